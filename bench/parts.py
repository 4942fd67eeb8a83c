"""Parts of the suite that need nothing but this machine."""

import functools
import statistics

from contenders import (ddp_step, gloo_all_reduce, openmpi, our_all_reduce, our_copies, our_first_step, our_step, progress, torchrun_first_step)
from pairs import compare, interleave
from report import Row, Section, median_of

RANKS = 2
STEP_PATHS = ("shm", "threads")
SIZES = {"4 KB": 4096, "1 MB": 1 << 20, "25 MB": 25 << 20, "100 MB": 100 << 20}
BUCKETS_MB = (1, 25, 100)
FEWEST_ROUNDS = 5
NOISY = 0.05  # Widest interval of ours against ours that lets us believe the rest.
SCALE_RANKS = (1, 2, 3, 4, 8)


def measure_noise(rounds, steps):
    contender = functools.partial(our_step, "mlp", "shm", RANKS, steps["mlp"])
    taken = interleave({"ours": contender, "ours again": contender}, rounds, progress)
    comparison = compare(taken["ours"], taken["ours again"])
    width = comparison.high - comparison.low
    verdict = "steady enough" if width <= NOISY else f"TOO NOISY (above {NOISY:.0%}): do not believe the rest"
    if rounds < FEWEST_ROUNDS:
        verdict = f"which {rounds} rounds cannot tell (at least {FEWEST_ROUNDS})"
    note = f"The same programme against itself, to see how far the machine lets us believe the rest: interval {width:.1%} wide, {verdict}."
    return Section("Noise", note, [Row("mlp, step", "ours", taken["ours"], "ours again", taken["ours again"])])


def best_bucket(model, ranks, steps):
    return min(BUCKETS_MB, key=lambda size: ddp_step(model, ranks, max(3, steps // 4), size).best)


def rows_of_step(model, rounds, steps):
    bucket_mb = best_bucket(model, RANKS, steps)
    ours = {f"ours, {path}": functools.partial(our_step, model, path, RANKS, steps) for path in STEP_PATHS}
    peers = {
        "DDP as shipped": functools.partial(ddp_step, model, RANKS, steps),
        "DDP tuned": functools.partial(ddp_step, model, RANKS, steps, bucket_mb),
        "tuned, no exchange": functools.partial(ddp_step, model, RANKS, steps, bucket_mb, apart=True),
        "ours, two copies apart": functools.partial(our_copies, model, RANKS, steps),
    }
    progress(f"step of {model}")
    taken = interleave(ours | peers, rounds, progress)
    return [Row(model, mine, taken[mine], peer, taken[peer]) for mine in ours for peer in peers]


def summary_of_steps(rows):
    """The share of the gap between tuned DDP and no exchange at all that is closed, and the geometric means of the ratios."""
    lines = []
    for path in STEP_PATHS:
        mine = {(row.what, row.peer_name): row for row in rows if row.our_name == f"ours, {path}"}
        models = list(dict.fromkeys(model for model, _ in mine))
        shares = []
        for model in models:
            tuned, bound = (median_of(mine[model, peer].peers) for peer in ("DDP tuned", "tuned, no exchange"))
            shares.append(f"{model} {(tuned - median_of(mine[model, 'DDP tuned'].ours)) / (tuned - bound):.2f}")
        means = {peer: statistics.geometric_mean(compare(mine[model, peer].ours, mine[model, peer].peers).ratio for model in models)
                 for peer in ("DDP as shipped", "DDP tuned")}
        lines.append(f"`{path}`: share of the gap closed, (tuned - ours) / (tuned - no exchange): {', '.join(shares)}; geometric mean of the speed "
                     f"ratios {means['DDP tuned']:.2f} (tuned), {means['DDP as shipped']:.2f} (as shipped).")
    return "\n\n".join(lines)


def measure_steps(models, rounds, steps):
    note = ("Forward, backward, exchange and SGD with momentum (learning rate 1e-3, momentum 0.9) on random data. `shm`: two processes; "
            "`threads`: two replicas in one process. Tuned: gradient_as_bucket_view, the fused optimizer, the best of three bucket sizes "
            f"({', '.join(map(str, BUCKETS_MB))} MB), glibc told to keep freed memory. No exchange: the same without DDP. Two copies apart: our "
            "step with one replica in each of two processes that know nothing of each other, the slower one.")
    rows = [row for model in models for row in rows_of_step(model, rounds, steps[model])]
    return Section("Training step", f"{note}\n\n{summary_of_steps(rows)}", rows)


def measure_scale(models, rounds, steps):
    rows = []
    for model in models:
        for ranks in SCALE_RANKS:
            fewer = max(3, steps[model] // ranks)
            bucket_mb = best_bucket(model, ranks, fewer)
            contenders = {f"ours, {path}": functools.partial(our_step, model, path, ranks, fewer) for path in STEP_PATHS}
            contenders["DDP tuned"] = functools.partial(ddp_step, model, ranks, fewer, bucket_mb)
            progress(f"step of {model}, {ranks} ranks")
            taken = interleave(contenders, rounds, progress)
            rows += [Row(f"{model} x{ranks}", f"ours, {path}", taken[f"ours, {path}"], "DDP tuned", taken["DDP tuned"]) for path in STEP_PATHS]
    note = ("The training step with fewer and with more ranks than cores, one thread and one batch each; DDP is tuned for each number of ranks "
            "anew.")
    return Section("Scale", note, rows)


def measure_startup(rounds):
    contenders = {"trireme bench startup": functools.partial(our_first_step, RANKS), "torchrun + DDP": functools.partial(torchrun_first_step, RANKS)}
    contenders |= {"ours, 8": functools.partial(our_first_step, 8), "torchrun, 8": functools.partial(torchrun_first_step, 8)}
    taken = interleave(contenders, rounds, progress)
    rows = [Row("mlp, 2 processes", "trireme bench startup", taken["trireme bench startup"], "torchrun + DDP", taken["torchrun + DDP"]),
            Row("mlp, 8 processes", "trireme bench startup", taken["ours, 8"], "torchrun + DDP", taken["torchrun, 8"])]
    return Section("Start", "From the launch to the end of the first step.", rows)


def measure_collectives(rounds, repetitions):
    rows = []
    with openmpi() as openmpi_all_reduce:
        for name, size, ranks in [(name, size, RANKS) for name, size in SIZES.items()] + [("4 KB", SIZES["4 KB"], 4), ("25 MB", SIZES["25 MB"], 4)]:
            what = name if ranks == RANKS else f"{name}, {ranks} ranks"
            steps = repetitions[name]
            progress(f"all_reduce of {what}")
            ours = {f"ours, {path}": functools.partial(our_all_reduce, path, size, ranks, steps) for path in ("shm", "threads", "tcp")}
            ours["ours, shm, shared"] = functools.partial(our_all_reduce, "shm", size, ranks, steps, shared=True)
            peers = {"c10d Gloo": functools.partial(gloo_all_reduce, size, ranks, steps)}
            if openmpi_all_reduce:
                peers["OpenMPI"] = functools.partial(openmpi_all_reduce, size, ranks, steps)
            taken = interleave(ours | peers, rounds, progress)
            rows += [Row(what, mine, taken[mine], peer, taken[peer]) for mine in ours for peer in peers]
    note = ("Float tensors, a barrier before each repetition. Ordinary ones, and `shared`: of Group::shared_tensor(), which all ranks of the host "
            "reach where they lie. OpenMPI: a C programme that calls MPI_Allreduce on ordinary buffers.")
    return Section("all_reduce", note, rows)
