"""The part `server-jobs`: whole jobs with parameter servers, in which a worker is slow, pieces have
copies, or a server is killed, and one beside TensorFlow."""

import itertools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

from contenders import KEEP_MEMORY, ONE_THREAD, ROOT, TIMEOUT_S, TRIREME, progress, run
from pairs import interleave
from recovery import lines_of, wait_for
from report import Section

BATCH, WORKERS = 64, 2
SERVER_JOBS = ("cnn", "mlp")  # The models of the jobs.
SLOW = "slow:rank=1,forward=50ms,percent=5"
KILL_AFTER_STEPS = 60
MODES = {"BSP": ("ps.consistency=sync",),
         "SSP, bound 2": ("ps.consistency=stale", "ps.staleness=2"),
         "async": ("ps.consistency=async",)}
# name -> (the hidden layers, the factor of the steps)
MLPS = {"mlp": ((1024, 1024, 1024), 1), "mlp of 64": ((64,), 10)}
TENSORFLOW_PYTHON = ROOT / ".venv-tensorflow/bin/python"
TENSORFLOW_PEER = ROOT / "bench/peer_tensorflow.py"
TO_INSTALL_TENSORFLOW = ("python3 -m venv .venv-tensorflow && "
                         ".venv-tensorflow/bin/pip install tensorflow-cpu")
# TensorFlow's steps in a call of the coordinator, and the words that turn XLA on.
TENSORFLOW_OPTIONS = list(itertools.product((5, 20), ((), ("--jit",))))


def job_words(servers, settings, folder):
    words = [TRIREME, "train", ROOT / "examples/digits.yaml", "--ps", servers, "--workers", WORKERS]
    for setting in ("strategy.name=parameter_server", "optimizer.lr=0.02", "train.evaluate_every=0",
                    f"data.batch={BATCH}", f"run.dir={folder}/run", *settings):
        words += ["--set", setting]
    return words


def steps_per_second(servers, settings, steps, faults=()):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        report = run([*job_words(servers, (*settings, f"train.steps={steps}"), folder), *faults,
                      "--json"])
    return report["samples_per_second"] / BATCH


def seconds_without_server(settings):
    """Kills a server. Returns the seconds until so many pushes counted that one of them must have
    begun after the kill: one more than there are workers. None means that the job ended."""
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        words = job_words(2, (*settings, "train.epochs=100000"), folder)
        job = subprocess.Popen([str(word) for word in words] + ["--quiet"],
                               env={**os.environ, **ONE_THREAD}, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        log = pathlib.Path(folder, "run/log.jsonl")

        def commits_after(moment):
            times = [json.loads(line)["time"] for line in lines_of(log)
                     if '"event":"commit"' in line and line.endswith("}")]
            return [time for time in times if time > moment]

        try:
            if not wait_for(lambda: len(commits_after(0)) > KILL_AFTER_STEPS, job):
                return None
            killed = kill_server(job.pid, 1)
            counted = wait_for(lambda: commits_after(killed)[WORKERS:], job)
            return counted and counted[0] - killed
        finally:
            job.terminate()
            try:
                job.wait(TIMEOUT_S / 3)
            except subprocess.TimeoutExpired:
                job.kill()
                job.wait()


def kill_server(launcher, index):
    """Returns the time of the kill."""
    children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for child in children:
        environment = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if {b"TRIREME_ROLE=ps", f"TRIREME_INDEX={index}".encode()} <= set(environment):
            moment = time.time()
            os.kill(int(child), signal.SIGKILL)
            return moment
    raise RuntimeError(f"launcher {launcher} has no server {index}")


def ratios_to(beside, taken):
    """Returns the cells of steps/s, of those beside them, and of the ratios of neighbours in
    time."""
    ratios = [ours / other for ours, other in zip(taken, beside, strict=True)]
    return (f"{statistics.median(taken):.1f}", f"{statistics.median(beside):.1f}",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def rows_of_cnn(rounds, steps):
    jobs = {}
    for name, settings in MODES.items():
        jobs[name] = lambda settings=settings: steps_per_second(1, settings, steps)
        jobs[f"{name}, slow"] = lambda settings=settings: steps_per_second(
            1, settings, steps, ("--inject", SLOW))
        for copies in (1, 2):
            jobs[f"{name}, {copies}"] = lambda settings=settings, copies=copies: steps_per_second(
                2, (*settings, f"ps.replication={copies}"), steps)
    taken = interleave(jobs, rounds, progress)
    rows = [(f"one worker slow, {name}", *ratios_to(taken[name], taken[f"{name}, slow"]), "-")
            for name in MODES]
    rows += [(f"2 copies beside 1, {name}", *ratios_to(taken[f"{name}, 1"], taken[f"{name}, 2"]),
              "-") for name in MODES]
    for name, settings in MODES.items():
        seconds = []
        for number in range(rounds):
            progress(f"round {number + 1}/{rounds}: a server is killed, {name}")
            seconds.append(seconds_without_server(settings))
        whole = [1000 * each for each in seconds if each is not None]
        text = (f"{statistics.median(whole):.0f} ({min(whole):.0f} to {max(whole):.0f}), "
                if whole else "")
        rows.append((f"a server killed, {name}", "-", "-", "-",
                     f"{text}{len(whole)} of {len(seconds)}"))
    return rows


def tensorflow_steps_per_second(hidden, steps, options):
    per_call, jit = options
    words = [TENSORFLOW_PYTHON, TENSORFLOW_PEER, "--hidden", "+".join(map(str, hidden)), "--batch",
             BATCH, "--steps", steps, "--per-call", per_call, *jit]
    return run(words, KEEP_MEMORY)["steps_per_second"]


def row_of_mlp(name, rounds, steps):
    hidden, factor = MLPS[name]
    steps *= factor
    settings = (*MODES["async"], "model.name=mlp", f"model.hidden={list(hidden)}",
                "optimizer.lr=0.1", "optimizer.momentum=0", "optimizer.weight_decay=0",
                "schedule.name=constant", "schedule.warmup_steps=0")
    progress(f"TensorFlow's options for the {name}")
    best = max(TENSORFLOW_OPTIONS,
               key=lambda options: tensorflow_steps_per_second(hidden, steps // 2, options))
    peer_name = f"TensorFlow ({best[0]} steps in a call, {'' if best[1] else 'no '}XLA)"
    taken = interleave({"ours": lambda: steps_per_second(1, settings, steps),
                        peer_name: lambda: tensorflow_steps_per_second(hidden, steps, best)},
                       rounds, progress)
    return (f"{name}, 1 server + {WORKERS} workers asynchronous, {os.cpu_count()} cores: steps/s "
            f"in all, beside {peer_name}", *ratios_to(taken[peer_name], taken["ours"]), "-")


def note_on_cnn(steps):
    return (f"The cnn on digits with {WORKERS} workers of one thread, batches of {BATCH}, {steps} "
            "steps: steps of the whole job, beside those of the undisturbed one, and their ratio, "
            "median (minimum to maximum). One worker slow: one server, and worker 1 takes 50 ms "
            "longer in 5 % of its steps. Copies: two servers, `ps.replication` 2 and 1. A server "
            f"killed: kill -9 of one of two servers with copies after {KILL_AFTER_STEPS} steps; "
            f"milliseconds until push number {WORKERS + 1} counts, as {WORKERS} may have been "
            "under way, and how many jobs went on.")


def note_on_mlp(steps):
    jobs = " and ".join(f"{' + '.join(map(str, hidden))} ({factor * steps} steps)"
                        for hidden, factor in MLPS.values())
    return (f"The mlps with hidden layers {jobs} learn the digits asynchronously, with plain SGD, "
            f"{WORKERS} workers and batches of {BATCH} for each; beside them TensorFlow's "
            "ParameterServerStrategy with the same layers, batches and processes, and a "
            "coordinator, over gRPC on the loopback interface. One thread in each process "
            "computes; TensorFlow's pool for operations has two, as it hangs with one. Its time "
            "begins after a warm-up, ours with the first step. TensorFlow gets all steps scheduled "
            "ahead, the data set in its workers, the best of 5 and 20 steps in a call, with XLA or "
            "without, and glibc set to keep freed memory. To install it: "
            f"`{TO_INSTALL_TENSORFLOW}`.")


def measure_server_jobs(models, rounds, steps):
    rows, notes = [], []
    if "cnn" in models:
        rows += rows_of_cnn(rounds, steps["server job"])
        notes.append(note_on_cnn(steps["server job"]))
    if "mlp" in models and TENSORFLOW_PYTHON.exists():
        rows += [row_of_mlp(name, rounds, steps["mlp job"]) for name in MLPS]
        notes.append(note_on_mlp(steps["mlp job"]))
    elif "mlp" in models:
        notes.append("The row beside TensorFlow is left out, because .venv-tensorflow is missing; "
                     f"try: `{TO_INSTALL_TENSORFLOW}`.")
        progress(notes[-1])
    if not rows:
        return None
    headings = ("what", "steps/s", "beside", "ratio", "ms to the next push")
    return Section("Jobs with parameter servers", "\n\n".join(notes), rows, headings=headings)
