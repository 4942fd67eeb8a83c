"""Measures the part `recovery`: a worker is killed in the middle of a run. The figure is the time
until the next committed step, beside torchrun with DDP."""

import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import tempfile
import time

from contenders import ONE_THREAD, PYTHON, TIMEOUT_S, TRIREME, progress
from report import Section

KILL_AFTER_STEPS = 60
# DDP under torchrun. After a kill torchrun restarts all workers, which continue from a checkpoint
# of every 10th step. Rank 0 records each step.
PEER = """
import os, sys, time, torch
import torch.distributed as dist
folder = sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
saved, step = folder + "/state.pt", 0
if os.path.exists(saved):
    state = torch.load(saved)
    net.load_state_dict(state["net"])
    step = state["step"]
ddp = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
open(f"{folder}/pid{rank}", "w").write(str(os.getpid()))
while step < 100_000:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(ddp(torch.randn(32, 64)), torch.randint(10, (32,))).backward()
    optimizer.step()
    step += 1
    if rank == 0:
        print(f"step {step}", file=open(folder + "/steps", "a"), flush=True)
        if step % 10 == 0:
            torch.save({"net": net.state_dict(), "step": step}, saved + ".new")
            os.replace(saved + ".new", saved)
    time.sleep(0.01)
"""


def wait_for(condition, process):
    deadline = time.monotonic() + TIMEOUT_S / 3
    while not (found := condition()):
        if process.poll() is not None or time.monotonic() > deadline:
            return None
        time.sleep(0.001)
    return found


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def our_recovery(ranks):
    """Returns the seconds from the kill to the next committed step, and to the first step with all
    workers again. None means that the job did not recover."""
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        words = [TRIREME, "train", "--elastic", f"1:{ranks}", "--set", f"run.dir={folder}/run",
                 "--set", "train.epochs=100000", "--set", "train.evaluate_every=0", "--quiet"]
        job = subprocess.Popen([str(word) for word in words], env={**os.environ, **ONE_THREAD},
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        log = pathlib.Path(folder) / "run/log.jsonl"

        def commits(size=None):
            found = [json.loads(line) for line in lines_of(log)
                     if '"event":"commit"' in line and line.endswith("}")]
            return [each for each in found if size is None or len(each.get("shares", [0])) == size]

        def commits_after(generation, size=None):
            return [each for each in commits(size) if each["generation"] > generation]

        try:
            if not wait_for(lambda: len(commits(ranks)) > KILL_AFTER_STEPS, job):
                return None, None
            listed = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True,
                                    check=True)
            children = listed.stdout.split()
            os.kill(int(random.choice(children)), signal.SIGKILL)
            killed, generation = time.time(), commits()[-1]["generation"]
            first = wait_for(lambda: commits_after(generation), job)
            whole = first and wait_for(lambda: commits_after(generation, ranks), job)
            return first and first[0]["time"] - killed, whole and whole[0]["time"] - killed
        finally:
            job.kill()
            job.wait()


def peer_recovery(ranks):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = pathlib.Path(name)
        (folder / "peer.py").write_text(PEER)
        words = [str(PYTHON), "-m", "torch.distributed.run", "--standalone",
                 "--nproc-per-node", str(ranks), "--max-restarts", "3",
                 str(folder / "peer.py"), name]
        job = subprocess.Popen(words, env={**os.environ, **ONE_THREAD}, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            if not wait_for(lambda: len(lines_of(folder / "steps")) > KILL_AFTER_STEPS, job):
                return None
            before = {path.name: path.read_text() for path in folder.glob("pid*")}
            os.kill(int(random.choice(list(before.values()))), signal.SIGKILL)
            killed, known = time.monotonic(), len(lines_of(folder / "steps"))
            # A surviving rank 0 may still record steps; only after the recovery all processes are
            # new.
            def all_are_new():
                return all((folder / key).read_text() not in ("", old)
                           for key, old in before.items())

            renewed = wait_for(all_are_new, job)
            known = len(lines_of(folder / "steps"))
            if not renewed or not wait_for(lambda: len(lines_of(folder / "steps")) > known, job):
                return None
            return time.monotonic() - killed
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            # torchrun's workers are in sessions of their own.
            subprocess.run(["pkill", "-KILL", "-f", str(folder / "peer.py")], check=False)


def figure(seconds):
    whole = [each for each in seconds if each is not None]
    if not whole:
        return "-"
    return f"{statistics.median(whole):.2f} ({min(whole):.2f} to {max(whole):.2f})"


def recovered(seconds):
    return f"{sum(each is not None for each in seconds)} of {len(seconds)}"


def measure_recovery(rounds):
    rows = []
    for ranks in (2, 4):
        ours, joins, theirs = [], [], []
        for i in range(rounds):
            progress(f"recovery of {ranks} workers, round {i + 1}")
            first, whole = our_recovery(ranks)
            ours.append(first)
            joins.append(whole)
            theirs.append(peer_recovery(ranks))
        rows += [(f"next step, one of {ranks} killed", figure(ours), recovered(ours),
                  figure(theirs), recovered(theirs)),
                 (f"all {ranks} workers again", figure(joins), recovered(joins), "", "")]
    note = (f"kill -9 of a random worker after {KILL_AFTER_STEPS} steps; seconds from the kill, "
            "median (minimum to maximum). Ours: `trireme train --elastic`, the cnn on digits, "
            "which continues with the next step. Peer: torchrun --max-restarts with DDP, a small "
            "mlp, which restarts all workers and continues from its newest checkpoint.")
    headings = ("what", "Trireme, s", "recovered", "torchrun + DDP, s", "recovered")
    return Section("Recovery", note, rows, headings=headings)

