"""The parts of the suite that need only this machine."""

import functools
import statistics

from contenders import (bare_tcp, ddp_step, gloo_all_reduce, openmpi, our_all_reduce, our_copies,
                        our_first_step, our_push_pull, our_requests, our_step, package_all_reduce,
                        progress, torch_push_pull, torch_rpc, torchrun_first_step, written_step)
from pairs import compare, interleave
from report import Row, Section, median_of

RANKS = 2
STEP_PATHS = ("shm", "threads")
PACKAGE_SIZE = "25 MB"
SIZES = {"4 KB": 4096, "1 MB": 1 << 20, "25 MB": 25 << 20, "100 MB": 100 << 20}
REQUEST_SIZES = ("4 KB", "1 MB")
SERVER_SIZES = ("4 KB", "25 MB")
BUCKETS_MB = (1, 25, 100)
FEWEST_ROUNDS = 5
# The widest interval of ours against ours with which the other results can be trusted.
NOISY = 0.05
SCALE_RANKS = (1, 2, 3, 4, 8)
# The model whose loop is also measured without the comparison of parameters: it is the smallest.
# The difference is small, and needs more rounds.
CHECKED_MODEL = "tiny"
CHECKED_ROUNDS = 5


def measure_noise(rounds, steps):
    contender = functools.partial(our_step, "mlp", "shm", RANKS, steps["mlp"])
    taken = interleave({"ours": contender, "ours again": contender}, rounds, progress)
    comparison = compare(taken["ours"], taken["ours again"])
    width = comparison.high - comparison.low
    steady = width <= NOISY
    verdict = "steady enough" if steady else f"TOO NOISY (above {NOISY:.0%}): do not trust the rest"
    if rounds < FEWEST_ROUNDS:
        verdict = f"{rounds} rounds are too few to judge it (at least {FEWEST_ROUNDS})"
    note = ("The same programme against itself, to see how far the other results can be trusted: "
            f"interval {width:.1%} wide, {verdict}.")
    row = Row("mlp, step", "ours", taken["ours"], "ours again", taken["ours again"])
    return Section("Noise", note, [row])


def best_bucket(model, ranks, steps):
    def best_of(size):
        return ddp_step(model, ranks, max(3, steps // 4), size).best

    return min(BUCKETS_MB, key=best_of)


def rows_of_step(model, rounds, steps):
    bucket_mb = best_bucket(model, RANKS, steps)
    ours = {f"ours, {path}": functools.partial(our_step, model, path, RANKS, steps)
            for path in STEP_PATHS}
    ours["as it stands, shm"] = functools.partial(written_step, model, RANKS, steps)
    peers = {
        "DDP as shipped": functools.partial(ddp_step, model, RANKS, steps),
        "DDP tuned": functools.partial(ddp_step, model, RANKS, steps, bucket_mb),
        "tuned, no exchange": functools.partial(ddp_step, model, RANKS, steps, bucket_mb,
                                                apart=True),
        "ours, two copies apart": functools.partial(our_copies, model, RANKS, steps),
    }
    progress(f"step of {model}")
    taken = interleave(ours | peers, rounds, progress)
    rows = [Row(model, mine, taken[mine], peer, taken[peer]) for mine in ours for peer in peers]
    rows.append(Row(model, "as it stands, shm", taken["as it stands, shm"], "ours, shm",
                    taken["ours, shm"]))
    return rows + (row_of_checks(model, rounds, steps) if model == CHECKED_MODEL else [])


def row_of_checks(model, rounds, steps):
    """A loop as it stands, with and without the comparison of parameters."""
    contenders = {"as it stands, shm": functools.partial(written_step, model, RANKS, 5 * steps),
                  "unchecked": functools.partial(written_step, model, RANKS, 5 * steps, 0)}
    taken = interleave(contenders, CHECKED_ROUNDS * rounds, progress)
    ours, peer = contenders
    return [Row(model, ours, taken[ours], peer, taken[peer])]


def summary_of_steps(rows):
    """Returns the fraction of the gap between tuned DDP and no exchange at all that is closed, and
    the geometric means of the ratios."""
    lines = []
    for path in STEP_PATHS:
        mine = {(row.what, row.peer_name): row for row in rows if row.our_name == f"ours, {path}"}
        models = list(dict.fromkeys(model for model, _ in mine))
        fractions = []
        for model in models:
            tuned, bound = (median_of(mine[model, peer].peers)
                            for peer in ("DDP tuned", "tuned, no exchange"))
            closed = tuned - median_of(mine[model, "DDP tuned"].ours)
            fractions.append(f"{model} {closed / (tuned - bound):.2f}")
        means = {peer: statistics.geometric_mean(
                     compare(mine[model, peer].ours, mine[model, peer].peers).ratio
                     for model in models)
                 for peer in ("DDP as shipped", "DDP tuned")}
        lines.append(f"`{path}`: fraction of the gap closed, "
                     f"(tuned - ours) / (tuned - no exchange): {', '.join(fractions)}; "
                     f"geometric mean of the speed ratios {means['DDP tuned']:.2f} (tuned), "
                     f"{means['DDP as shipped']:.2f} (as shipped).")
    return "\n\n".join(lines)


def measure_steps(models, rounds, steps):
    note = ("Forward, backward, exchange and SGD with momentum (learning rate 1e-3, momentum 0.9) "
            "on random data. `shm`: two processes; `threads`: two replicas in one process. Tuned: "
            "gradient_as_bucket_view, the fused optimizer, the best of three bucket sizes "
            f"({', '.join(map(str, BUCKETS_MB))} MB), and glibc set to keep freed memory. No "
            "exchange: the same without DDP. Two copies apart: our step with one replica in each "
            "of two processes that do not communicate; the slower one counts. As it stands: a "
            "loop with `loss.backward()` and `optimizer.step()` (docs/own_loop.md); unchecked: the "
            "same without its comparison of parameters.")
    rows = [row for model in models for row in rows_of_step(model, rounds, steps[model])]
    return Section("Training step", f"{note}\n\n{summary_of_steps(rows)}", rows)


def measure_scale(models, rounds, steps):
    rows = []
    for model in models:
        for ranks in SCALE_RANKS:
            fewer = max(3, steps[model] // ranks)
            bucket_mb = best_bucket(model, ranks, fewer)
            contenders = {f"ours, {path}": functools.partial(our_step, model, path, ranks, fewer)
                          for path in STEP_PATHS}
            contenders["DDP tuned"] = functools.partial(ddp_step, model, ranks, fewer, bucket_mb)
            progress(f"step of {model}, {ranks} ranks")
            taken = interleave(contenders, rounds, progress)
            rows += [Row(f"{model} x{ranks}", f"ours, {path}", taken[f"ours, {path}"],
                         "DDP tuned", taken["DDP tuned"]) for path in STEP_PATHS]
    note = ("The training step with fewer and with more ranks than cores, one thread and one batch "
            "each. DDP is tuned separately for each number of ranks.")
    return Section("Scale", note, rows)


def measure_startup(rounds):
    contenders = {"ours, 2": functools.partial(our_first_step, RANKS),
                  "torchrun, 2": functools.partial(torchrun_first_step, RANKS),
                  "ours, 8": functools.partial(our_first_step, 8),
                  "torchrun, 8": functools.partial(torchrun_first_step, 8)}
    taken = interleave(contenders, rounds, progress)
    rows = [Row(f"mlp, {ranks} processes", "trireme bench startup", taken[f"ours, {ranks}"],
                "torchrun + DDP", taken[f"torchrun, {ranks}"]) for ranks in (RANKS, 8)]
    return Section("Start", "From the launch to the end of the first step.", rows)


def measure_collectives(rounds, repetitions):
    rows = []
    with openmpi() as openmpi_all_reduce:
        cases = [(name, size, RANKS) for name, size in SIZES.items()]
        cases += [(name, SIZES[name], 4) for name in ("4 KB", "25 MB")]
        for name, size, ranks in cases:
            what = name if ranks == RANKS else f"{name}, {ranks} ranks"
            steps = repetitions[name]
            progress(f"all_reduce of {what}")
            ours = {f"ours, {path}": functools.partial(our_all_reduce, path, size, ranks, steps)
                    for path in ("shm", "threads", "tcp")}
            ours["ours, shm, shared"] = functools.partial(our_all_reduce, "shm", size, ranks, steps,
                                                          shared=True)
            if name == PACKAGE_SIZE:
                ours["ours, Python"] = functools.partial(package_all_reduce, size, ranks, steps)
            peers = {"c10d Gloo": functools.partial(gloo_all_reduce, size, ranks, steps)}
            if openmpi_all_reduce:
                peers["OpenMPI"] = functools.partial(openmpi_all_reduce, size, ranks, steps)
            taken = interleave(ours | peers, rounds, progress)
            rows += [Row(what, mine, taken[mine], peer, taken[peer])
                     for mine in ours for peer in peers]
    note = ("Float tensors, with a barrier before each repetition. `shared`: tensors of "
            "Group::shared_tensor(), which all ranks of the host access directly; the others are "
            "ordinary tensors. `Python`: World.all_reduce() of the Python package. OpenMPI: a C "
            "programme that calls MPI_Allreduce on ordinary buffers.")
    return Section("all_reduce", note, rows)


def rows_beside_rpc(what, sizes, ours, rpc, rounds, repetitions, others=()):
    """`ours(path, size, steps)` over TCP and shared memory beside `rpc(size, steps, transport)` and
    `others`: name -> a function of size and steps."""
    rows = []
    for name in sizes:
        size, steps = SIZES[name], repetitions[name]
        progress(f"{what} of {name}")
        mine = {f"ours, {path}": functools.partial(ours, path, size, steps)
                for path in ("tcp", "shm")}
        peers = {other: functools.partial(measure, size, steps) for other, measure in others}
        peers |= {"torch rpc, TCP": functools.partial(rpc, size, steps, "uv"),
                  "torch rpc": functools.partial(rpc, size, steps)}
        taken = interleave(mine | peers, rounds, progress)
        rows += [Row(name, one, taken[one], peer, taken[peer]) for one in mine for peer in peers]
    return rows


def measure_requests(rounds, repetitions):
    rows = rows_beside_rpc("requests", REQUEST_SIZES, our_requests, torch_rpc, rounds, repetitions,
                           [("bare TCP", bare_tcp)])
    note = ("A tensor to a server's process and back, one request at a time. Bare TCP: the same "
            "bytes over a plain loopback socket, with blocking calls and no protocol at all. "
            "torch rpc: `rpc_sync` of torch.distributed.rpc, over TCP or as shipped, which takes "
            "shared memory on one host.")
    return Section("Requests", note, rows)


def measure_servers(rounds, repetitions):
    rows = rows_beside_rpc("pushes and pulls", SERVER_SIZES, our_push_pull, torch_push_pull, rounds,
                           repetitions)
    note = ("A gradient to a server in another process, an update by SGD there, and the parameters "
            "back: one worker, one request at a time. Ours also checks the gradient for NaN and "
            "counts versions. torch rpc: a function of the user that updates a tensor, by "
            "`rpc_sync`, over TCP or as shipped.")
    return Section("Parameter servers", note, rows)
