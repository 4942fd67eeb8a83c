#!/usr/bin/env python3
"""Measures Trireme beside PyTorch on this machine, with 2 ranks of one thread each.

  bench/run.py                                the whole suite, below 15 minutes
  bench/run.py step --model mlp --model gpt   only training steps, of these models (tiny, mlp, mlpbig, cnn, gpt)
  bench/run.py noise startup collectives      other parts alone
  bench/run.py --write                        the whole suite, and docs/benchmarks.md from it

Every part runs its contenders in turn, round by round; what is compared are the rounds' ratios peer / ours, so above 1 Trireme
is faster. Let nothing else run. Needs build/bin/trireme, and the Python of the virtual environment (which has torch).
"""

import argparse
import concurrent.futures
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from pairs import Measurement, compare, interleave
from report import Row, Section, markdown, median_of, table

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/bin/trireme"
PYTHON = ROOT / ".venv/bin/python"
PEER = ROOT / "bench/peer.py"
RANKS = 2
TIMEOUT_S = 180  # Of one run.
PARTS = ("noise", "step", "startup", "collectives")
SIZES = {"4 KB": 4096, "1 MB": 1 << 20, "25 MB": 25 << 20, "100 MB": 100 << 20}
STEP_PATHS = ("shm", "threads")
MODELS = ("tiny", "mlp", "mlpbig", "cnn", "gpt")
REPETITIONS = {"tiny": 200, "mlp": 40, "mlpbig": 10, "cnn": 20, "gpt": 4, "4 KB": 1000, "1 MB": 300, "25 MB": 40, "100 MB": 10}  # 2 seconds or less.
BUCKETS_MB = (1, 25, 100)
FEWEST_ROUNDS = 5
NOISY = 0.05  # Widest interval of ours against ours that lets us believe the rest.

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
# Memory that was freed stays with the process, instead of being faulted in anew every step: what trireme-worker asks of glibc.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_TOP_PAD_": str(64 << 20)}


def run(command, extra_environment=()):
    """The JSON object that `command` prints."""
    environment = {**os.environ, **ONE_THREAD, **dict(extra_environment)}
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    except subprocess.TimeoutExpired:
        sys.exit(f"bench: no end after {TIMEOUT_S} s: {' '.join(words)}")
    except subprocess.CalledProcessError as failure:
        sys.exit(f"bench: exit code {failure.returncode}: {' '.join(words)}\n{failure.stderr}")
    return json.loads(done.stdout[done.stdout.index("{"):])


# ---- Contenders: what is run, once, for one measurement ----


def our_step(model, path, steps):
    figures = run([TRIREME, "bench", "step", "--model", model, "--workers", RANKS, "--path", path, "--steps", steps, "--json"])
    return Measurement(figures["median_ms"] / 1e3, figures["min_ms"] / 1e3, figures["cpu_seconds_per_step"])


def our_copies(model, steps):
    """One replica in each of as many processes as there are ranks, at once, that know nothing of each other."""
    words = [TRIREME, "bench", "step", "--model", model, "--workers", 1, "--path", "threads", "--steps", steps, "--json"]
    with concurrent.futures.ThreadPoolExecutor(RANKS) as starts:
        all_figures = list(starts.map(run, [words] * RANKS))
    slowest = max(all_figures, key=lambda figures: figures["median_ms"])
    return Measurement(slowest["median_ms"] / 1e3, slowest["min_ms"] / 1e3, sum(figures["cpu_seconds_per_step"] for figures in all_figures))


def ddp_step(model, steps, bucket_mb=None, apart=False):
    """As shipped, or tuned with buckets of that size; `apart`: the tuned step without DDP, so without any exchange."""
    tuning = ["--tuned", "--bucket-mb", bucket_mb] if bucket_mb else []
    tuning += ["--apart"] if apart else []
    figures = run([PYTHON, PEER, "step", "--model", model, "--ranks", RANKS, "--steps", steps, *tuning], KEEP_MEMORY if bucket_mb else {})
    return Measurement(figures["median_s"], figures["min_s"], figures["cpu_s"])


def our_all_reduce(path, size, steps):
    figures = run([TRIREME, "bench", "collectives", "--op", "all_reduce", "--bytes", size, "--workers", RANKS, "--path", path, "--steps", steps, "--json"])
    return Measurement(figures["median_us"] / 1e6, figures["min_us"] / 1e6)


def gloo_all_reduce(size, steps):
    figures = run([PYTHON, PEER, "all_reduce", "--bytes", size, "--ranks", RANKS, "--steps", steps])
    return Measurement(figures["median_s"], figures["min_s"])


def our_first_step():
    with tempfile.TemporaryDirectory() as folder:
        report = run([TRIREME, "train", "--workers", RANKS, "--json", *(word for key, value in {
            "data.name": "digits", "data.batch": 32 * RANKS, "model.name": "mlp", "train.steps": 1, "run.dir": folder,
        }.items() for word in ("--set", f"{key}={value}"))])
    seconds = report["seconds_to_first_step"]
    return Measurement(seconds, seconds)


def torchrun_first_step():
    launched = time.time()
    seconds = run([PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", RANKS, PEER, "first-step"])["time_of_day"] - launched
    return Measurement(seconds, seconds)


# ---- Parts of the suite ----


def progress(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def measure_noise(rounds, steps):
    contender = functools.partial(our_step, "mlp", "shm", steps["mlp"])
    taken = interleave({"ours": contender, "ours again": contender}, rounds, progress)
    comparison = compare(taken["ours"], taken["ours again"])
    width = comparison.high - comparison.low
    verdict = "steady enough" if width <= NOISY else f"TOO NOISY (above {NOISY:.0%}): do not believe the rest"
    if rounds < FEWEST_ROUNDS:
        verdict = f"which {rounds} rounds cannot tell (at least {FEWEST_ROUNDS})"
    note = f"The same programme against itself, to see how far the machine lets us believe the rest: interval {width:.1%} wide, {verdict}."
    return Section("Noise", note, [Row("mlp, step", "ours", taken["ours"], "ours again", taken["ours again"])])


def rows_of_step(model, rounds, steps):
    quick = max(3, steps[model] // 4)
    bucket_mb = min(BUCKETS_MB, key=lambda size: ddp_step(model, quick, size).best)
    ours = {f"ours, {path}": functools.partial(our_step, model, path, steps[model]) for path in STEP_PATHS}
    peers = {
        "DDP as shipped": functools.partial(ddp_step, model, steps[model]),
        "DDP tuned": functools.partial(ddp_step, model, steps[model], bucket_mb),
        "tuned, no exchange": functools.partial(ddp_step, model, steps[model], bucket_mb, apart=True),
        "ours, two copies apart": functools.partial(our_copies, model, steps[model]),
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
    rows = [row for model in models for row in rows_of_step(model, rounds, steps)]
    return Section("Training step", f"{note}\n\n{summary_of_steps(rows)}", rows)


def measure_startup(rounds):
    taken = interleave({"trireme train": our_first_step, "torchrun + DDP": torchrun_first_step}, rounds, progress)
    note = "From the launch to the end of the first step, two processes, an mlp on 8x8 images."
    return Section("Start", note, [Row("first step", "trireme train", taken["trireme train"], "torchrun + DDP", taken["torchrun + DDP"])])


def measure_collectives(rounds, repetitions):
    rows = []
    for name, size in SIZES.items():
        progress(f"all_reduce of {name}")
        contenders = {f"ours, {path}": functools.partial(our_all_reduce, path, size, repetitions[name]) for path in ("shm", "threads", "tcp")}
        peers = {"c10d Gloo": functools.partial(gloo_all_reduce, size, repetitions[name]),
                 "OpenMPI": functools.partial(our_all_reduce, "mpi", size, repetitions[name])}
        taken = interleave(contenders | peers, rounds, progress)
        rows += [Row(name, mine, taken[mine], peer, taken[peer]) for mine in contenders for peer in peers]
    note = "Ordinary float tensors, a barrier before each repetition. OpenMPI: its MPI_Iallreduce, called by Trireme's carrier `mpi`."
    return Section("all_reduce", note, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--model", action="append", choices=MODELS, help="for the part step; may be repeated (default: all)")
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS, help=f"of each comparison (default: {FEWEST_ROUNDS})")
    parser.add_argument("--steps", type=int, help="repetitions in each run (default: about 2 seconds' worth)")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    arguments = parser.parse_args()
    parts = arguments.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(unknown)}; known: {', '.join(PARTS)}")
    if arguments.rounds < 1 or (arguments.steps is not None and arguments.steps < 1):
        parser.error("--rounds and --steps must be 1 or more")
    for needed in (TRIREME, PYTHON):
        if not needed.exists():
            sys.exit(f"bench: {needed.relative_to(ROOT)} is missing; try: make build")

    rounds = arguments.rounds
    steps = dict.fromkeys(REPETITIONS, arguments.steps) if arguments.steps else REPETITIONS
    measure = {
        "noise": lambda: measure_noise(rounds, steps),
        "step": lambda: measure_steps(arguments.model or MODELS, rounds, steps),
        "startup": lambda: measure_startup(rounds),
        "collectives": lambda: measure_collectives(rounds, steps),
    }
    started = time.monotonic()
    sections = []
    for part in PARTS:
        if part in parts:
            sections.append(measure[part]())
            print(table(sections[-1]), flush=True)
    progress(f"{time.monotonic() - started:.0f} s in all")
    if arguments.write:
        command = " ".join(["bench/run.py", *sys.argv[1:]])
        (ROOT / "docs/benchmarks.md").write_text(markdown(sections, command, rounds, TRIREME, PYTHON))


if __name__ == "__main__":
    main()
