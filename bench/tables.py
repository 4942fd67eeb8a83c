"""The part `tables`: a step of an embedding whose rows live on a parameter server."""

import functools

from contenders import PEER, PYTHON, TRIREME, progress, run
from pairs import Measurement, interleave
from report import Row, Section

TABLE, ROWS, WORKERS = "1000000x64", 4096, 2


def our_figures(path, workers, steps):
    return run([TRIREME, "bench", "ps", "--table", TABLE, "--rows", ROWS, "--path", path,
                "--workers", workers, "--steps", steps, "--json"])


def ours(path, workers, steps):
    figures = our_figures(path, workers, steps)
    return Measurement(figures["median_us"] / 1e6, figures["min_us"] / 1e6)


def ours_with_a_small_table(path, workers, steps):
    """The two tables take turns inside a run."""
    figures = our_figures(path, workers, steps)
    return Measurement(figures["small_median_us"] / 1e6, figures["small_min_us"] / 1e6)


def torch_sparse(table, steps):
    figures = run([PYTHON, PEER, "sparse", "--table", table, "--rows", ROWS, "--ranks", WORKERS,
                   "--steps", steps])
    return Measurement(figures["median_s"], figures["min_s"], figures["cpu_s"])


def measure_tables(rounds, repetitions):
    steps = repetitions["table"]
    mine = {f"ours, {path}": functools.partial(ours, path, WORKERS, steps)
            for path in ("tcp", "shm")}
    small = {f"table of 10,000 rows, {path}":
             functools.partial(ours_with_a_small_table, path, WORKERS, steps)
             for path in ("tcp", "shm")}
    peers = {"torch sparse, DDP": functools.partial(torch_sparse, TABLE, steps)}
    taken = interleave(mine | small | peers, rounds, progress)
    what = f"{ROWS:,} rows of {TABLE}, {WORKERS} workers"
    rows = [Row(what, one, taken[one], peer, taken[peer])
            for one, near in zip(mine, small) for peer in (near, *peers)]
    note = ("A step of an embedding: each worker pulls rows that are all different from one server "
            "in another process, and pushes a gradient for each; the server adds up the workers' "
            "gradients and takes a step of SGD. The peer 'table of 10,000 rows' is the same with a "
            "table that fits into the cache: peer / ours is 1 if the size of a table costs "
            "nothing. torch: `nn.Embedding(sparse=True)` in DistributedDataParallel over Gloo, "
            "with the whole table on each rank.")
    return Section("Sparse tables", note, rows)
