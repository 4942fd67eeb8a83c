"""The part `server-jobs`: whole jobs with parameter servers, in which a worker is slow, pieces have
copies, or a server is killed."""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

from contenders import ONE_THREAD, ROOT, TIMEOUT_S, TRIREME, progress, run
from pairs import interleave
from recovery import lines_of, wait_for
from report import Section

BATCH, WORKERS = 64, 2
SLOW = "slow:rank=1,forward=50ms,percent=5"
KILL_AFTER_STEPS = 60
MODES = {"BSP": ("ps.consistency=sync",),
         "SSP, bound 2": ("ps.consistency=stale", "ps.staleness=2"),
         "async": ("ps.consistency=async",)}


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


def shares(taken, of):
    """Returns the cells of steps/s, and of the share that they are of the neighbour in time."""
    ratios = [ours / other for ours, other in zip(taken, of, strict=True)]
    return (f"{statistics.median(taken):.1f}", f"{statistics.median(of):.1f}",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def measure_server_jobs(rounds, steps):
    jobs = {}
    for name, settings in MODES.items():
        jobs[name] = lambda settings=settings: steps_per_second(1, settings, steps)
        jobs[f"{name}, slow"] = lambda settings=settings: steps_per_second(
            1, settings, steps, ("--inject", SLOW))
        for copies in (1, 2):
            jobs[f"{name}, {copies}"] = lambda settings=settings, copies=copies: steps_per_second(
                2, (*settings, f"ps.replication={copies}"), steps)
    taken = interleave(jobs, rounds, progress)
    rows = [(f"one worker slow, {name}", *shares(taken[f"{name}, slow"], taken[name]), "-")
            for name in MODES]
    rows += [(f"2 copies beside 1, {name}", *shares(taken[f"{name}, 2"], taken[f"{name}, 1"]), "-")
             for name in MODES]
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
    note = (f"The cnn on digits with {WORKERS} workers of one thread, batches of {BATCH}, {steps} "
            "steps: steps of the whole job, and their share of the undisturbed ones beside them, "
            "median (minimum to maximum). One worker slow: one server, and worker 1 takes 50 ms "
            "longer in 5 % of its steps. Copies: two servers, `ps.replication` 2 and 1. A server "
            f"killed: kill -9 of one of two servers with copies after {KILL_AFTER_STEPS} steps; "
            f"milliseconds until push number {WORKERS + 1} counts, as {WORKERS} may have been "
            "under way, and how many jobs went on.")
    headings = ("what", "steps/s", "undisturbed", "share", "ms to the next push")
    return Section("Jobs with parameter servers", note, rows, headings=headings)
