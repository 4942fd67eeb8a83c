"""The part `input-memory`: how often the memory of eight workers counts one data set, by the shares
(PSS) that /proc/PID/smaps_rollup has for all processes of a job."""

import contextlib
import functools
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from contenders import ONE_THREAD, PYTHON, ROOT, TRIREME, progress, set_words
from inputs import COLOURS, make_bytes, make_images
from pairs import bootstrap_interval, interleave
from report import Section

PEER = ROOT / "bench/peer_input.py"
WORKERS = 8
# Records of each of the five files; a job with few of them has everything but the data.
MANY, FEW = 40_000, 2_000
RECORD = 3073
IMAGES, FEW_IMAGES = 400, 40
IMAGE = 640 * 427 * 3
HEADINGS = ("what", "whose", "data, MB", "memory, MB", "times the data", "95 %")
# Memory that still grows behind the limit is taken as it is then.
SETTLED_S, LIMIT_S = 8, 60


def processes_of(roots):
    """The processes with these numbers and all that they have started."""
    found, new = set(), list(roots)
    while new:
        pid = new.pop()
        found.add(pid)
        for file in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                new += [int(word) for word in file.read_text().split()]
            except OSError:
                pass  # The thread has ended.
    return found


def share_of(pid):
    """The bytes of a process, with its share of those that it has together with others."""
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0  # It has ended.
    return 1024 * int(re.search(r"^Pss: +(\d+) kB", text, re.M)[1])


def is_settled(readings):
    """Whether the last readings, one a second, show no growth, or there were enough of them."""
    last = readings[-4:]
    return len(readings) > LIMIT_S or (
        len(readings) > SETTLED_S and max(last) < 1.01 * min(last))


def settled_bytes(*commands):
    """Starts the commands, which run on, and returns their memory once it grows no more, or at
    the limit."""
    readings = []
    with tempfile.TemporaryFile() as output:
        jobs = [subprocess.Popen([str(word) for word in words], env={**os.environ, **ONE_THREAD},
                                 stdout=output, stderr=output, start_new_session=True)
                for words in commands]
        try:
            while not is_settled(readings):
                time.sleep(1)
                if ended := [job for job in jobs if job.poll() is not None]:
                    output.seek(0)
                    sys.exit(f"bench: a job has ended: {ended[0].args}\n{output.read().decode()}")
                readings.append(sum(map(share_of, processes_of(job.pid for job in jobs))))
        finally:
            end(jobs)
    return statistics.median(readings[-4:])


def end(jobs):
    for job in jobs:
        job.terminate()
    for job in jobs:
        try:
            job.wait(30)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
        # Processes of the job may outlive its first one for some seconds.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)


def added_bytes(commands_of, many, few):
    """The memory of a job on `many`, less that of the same job on `few`."""
    return settled_bytes(*commands_of(many)) - settled_bytes(*commands_of(few))


def training(name, stages, folder):
    run_folder = tempfile.mkdtemp(prefix="run-", dir=folder.parent)
    settings = ("model.name=mlp", "model.hidden=2", f"data.name={name}", f"data.path={folder}",
                f"data.stages={stages}", "data.batch=512", "data.threads=1", "data.prefetch=2",
                "data.test_fraction=0", "data.cache_bytes=1GiB", "optimizer.lr=0.00001",
                "train.steps=100000000", "train.evaluate_every=0", "monitor.tensorboard=false",
                f"run.dir={run_folder}/run")
    return [[TRIREME, "train", "--quiet", "--workers", WORKERS, *set_words(settings)]]


def data_loader(folder):
    return [[PYTHON, PEER, "memory", folder, "--workers", WORKERS, "--seconds", 1000]]


def own_tables(folder):
    return [[PYTHON, PEER, "memory", folder, "--seconds", 1000]] * WORKERS


def row(what, whose, data, added):
    """`added` has the bytes of each round."""
    times = [each / data for each in added]
    low, high = bootstrap_interval(times)
    return (what, whose, f"{data / 1e6:.0f}", f"{statistics.median(added) / 1e6:.0f}",
            f"{statistics.median(times):.2f}", f"{low:.2f} to {high:.2f}")


def measure_input_memory(rounds):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        many, few, images, few_images = (pathlib.Path(folder) / name for name in
                                         ("many", "few", "images", "few-images"))
        for each in (many, few, images, few_images):
            each.mkdir()
        make_bytes(many, MANY)
        make_bytes(few, FEW)
        make_images(images, "make-large", "--count", IMAGES)
        make_images(few_images, "make-large", "--count", FEW_IMAGES)
        mapped = functools.partial(training, "cifar", f"normalise({COLOURS})")
        cached = functools.partial(
            training, "image_folder",
            "decode | cache | random_resized_crop(32) | normalise(imagenet)")
        contenders = {
            ("3x32x32 bytes", "ours, mapped files"): (mapped, many, few),
            ("640x427 decoded", "ours, cache in memory"): (cached, images, few_images),
            ("3x32x32 bytes", f"DataLoader, {WORKERS} workers"): (data_loader, many, few),
            ("3x32x32 bytes", f"{WORKERS} processes, each with its table"):
                (own_tables, many, few)}
        taken = interleave({name: functools.partial(added_bytes, *how)
                            for name, how in contenders.items()}, rounds,
                           lambda text: progress(f"memory: {text}"))
        data = {"3x32x32 bytes": 5 * (MANY - FEW) * RECORD,
                "640x427 decoded": (IMAGES - FEW_IMAGES) * IMAGE}
        rows = [row(*name, data[name[0]], added) for name, added in taken.items()]
    note = (f"The memory that a data set takes in {WORKERS} workers, as seen from outside: the sum "
            "of all processes' shares (PSS) while they train or read, less the same sum for a "
            "small part of the data. 1 means that all workers have the data once. Ours: `trireme "
            f"train --workers {WORKERS}`. Peers: one process whose DataLoader has {WORKERS} "
            f"workers, and {WORKERS} processes that each read the files into a tensor, as the "
            f"ranks of a job do. The memory of a job that still grows after {LIMIT_S} s is that of "
            "this moment.")
    return Section("Memory of input", note, rows, HEADINGS)
