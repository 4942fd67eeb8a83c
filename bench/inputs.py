"""The part `input`: samples a second from files to shuffled batches of normalised float32."""

import functools
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile

from contenders import (PYTHON, ROOT, TRIREME, measurement_of_samples, progress, run,
                        set_words)
from pairs import Measurement, interleave
from programmes import compiled
from report import Row, Section
from service_input import rows_of_service

PEER = ROOT / "bench/peer_input.py"
PIPELINES_PEER = ROOT / "bench/peer_input_pipelines.py"
# library -> (its Python, how to get it)
PIPELINES = {
    "tf.data": (ROOT / ".venv-tensorflow/bin/python", "python3 -m venv .venv-tensorflow && "
                ".venv-tensorflow/bin/pip install tensorflow-cpu grain pillow"),
    "grain": (ROOT / ".venv-tensorflow/bin/python", "as for tf.data"),
    "ffcv": (ROOT / ".venv-ffcv/bin/python", "python3 -m venv .venv-ffcv, then pip install there "
             "torch, ffcv and opencv-python-headless; FFCV compiles against Debian's "
             "libopencv-dev and libturbojpeg0-dev"),
}
SECONDS, BATCH = 3, 256
COLOURS = "0.4914:0.4822:0.4465, 0.247:0.2435:0.2616"


class Set:
    """A data set on the disk, and the stages of a sample."""

    def __init__(self, title, name, path, stages, peer):
        self.title, self.name, self.path = title, name, path
        self.stages, self.peer = stages, peer


def ours(data, threads):
    figures = run([TRIREME, "bench", "input", "--seconds", SECONDS, "--json"] +
                  set_words((f"data.name={data.name}", f"data.path={data.path}",
                             f"data.stages={data.stages}", f"data.batch={BATCH}",
                             f"data.threads={threads}", "data.test_fraction=0",
                             "data.prefetch=4")))
    return measurement_of_samples(figures)


def torch_loader(data, workers, batched=False):
    words = [PYTHON, PEER, data.peer, data.path, "--workers", workers, "--seconds", SECONDS,
             "--batch", BATCH]
    figures = run(words + (["--batched"] if batched else []))
    return measurement_of_samples(figures)


def pipeline(library, data, threads):
    figures = run([PIPELINES[library][0], PIPELINES_PEER, library, data.peer, data.path,
                   "--threads", threads, "--seconds", SECONDS, "--batch", BATCH])
    return measurement_of_samples(figures)


def bound(programme, kind, data, threads):
    figures = run([programme, kind, data.path, SECONDS, BATCH, threads])
    return measurement_of_samples(figures)


# The kind of data -> name of a loop without a library -> its word for input_bound.cc.
BOUNDS = {"memory": {"bare C++ loop": "memory"},
          "small": {"bare C++ loop": "files", "bare C++ loop, files in memory": "bytes"},
          "large": {}}


def peers_of(data, threads, bounds):
    """name -> its measurement, for libraries that are here. `bounds` is the programme of the bare
    loops, or None."""
    workers = 0 if threads == 1 else threads
    peers = {f"{name}, {threads}": functools.partial(bound, bounds, kind, data, threads)
             for name, kind in BOUNDS[data.peer].items() if bounds}
    peers[f"DataLoader, {workers} workers"] = functools.partial(torch_loader, data, workers)
    if data.peer == "memory":
        peers["DataLoader, batched"] = functools.partial(torch_loader, data, 0, True)
    for library, (python, _) in PIPELINES.items():
        if python.exists():
            peers[f"{library}, {threads}"] = functools.partial(pipeline, library, data, threads)
    return peers


def make_bytes(folder, records=4000):
    """Five files in CIFAR-10's binary format with random pixels, each of so many records."""
    numbers = random.Random(1)
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(
            b"".join(bytes([numbers.randrange(10)]) + numbers.randbytes(3072)
                     for _ in range(records)))


STEPS = 40


def trained(path, stages, threads, waited):
    """The seconds of a step of the cnn in examples/images.yaml. Adds to `waited` the share of them
    in which the step waited for its input."""
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        report = pathlib.Path(folder) / "report.json"
        settings = (f"data.path={path}", f"data.stages={stages}", f"data.threads={threads}",
                    "data.test_fraction=0", f"train.steps={STEPS}", f"run.dir={folder}/run")
        words = [TRIREME, "train", ROOT / "examples/images.yaml", "--report", report]
        subprocess.run([str(word) for word in words] + set_words(settings), check=True,
                       capture_output=True)
        found = json.loads(report.read_text())
    phases = found["phases"][0]  # In each step but the first.
    seconds = sum(value for name, value in phases.items() if name not in ("rank", "steps"))
    waited.append(found["input"]["waited_share"])
    return Measurement(seconds, seconds, found["cpu_seconds"] / STEPS)


def rows_of_steps(base, small, rounds):
    """The rows, and the median share of a step with decoding in which it waited for its input."""
    one = base / "one"
    for label in range(2):
        (one / str(label)).mkdir(parents=True)
        for file in sorted((small / str(label)).iterdir())[:32]:
            shutil.copy(file, one / str(label))
    rest = f"random_crop(32, padding=4) | flip | normalise({COLOURS})"
    decoded, repeated = "decoded each epoch", "one batch repeated"
    waited = []
    taken = interleave({
        decoded: functools.partial(trained, small, f"decode | {rest}", 1, waited),
        repeated: functools.partial(trained, one, f"decode | cache | normalise({COLOURS})", 1,
                                    [])},
        rounds, progress)
    return [Row("a step of the cnn, 64 JPEG 32x32", decoded, taken[decoded], repeated,
                taken[repeated])], statistics.median(waited)


def make_images(folder, command, *more):
    subprocess.run([str(word) for word in (PYTHON, PEER, command, folder, *more)], check=True)


def measure_inputs(rounds):
    rows = []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        base = pathlib.Path(folder)
        memory, small, large = base / "memory", base / "small", base / "large"
        for each in (memory, small, large):
            each.mkdir()
        make_bytes(memory)
        make_images(small, "make-small")
        make_images(large, "make-large")
        sets = [
            (Set("3x32x32 bytes in memory", "cifar", memory, f"normalise({COLOURS})", "memory"),
             (1,)),
            (Set("JPEG 32x32, flip", "image_folder", small,
                 f"decode | flip | normalise({COLOURS})", "small"), (1, 2)),
            (Set("JPEG 640x427, random resized crop 224, flip", "image_folder", large,
                 "decode | random_resized_crop(224) | flip | normalise(imagenet)", "large"),
             (1, 2))]
        bounds = compiled("input_bound", base, "-ljpeg", needs="scripts/setup")
        for data, counts in sets:
            for threads in counts:
                mine, peers = f"ours, {threads}", peers_of(data, threads, bounds)
                taken = interleave({mine: functools.partial(ours, data, threads)} | peers, rounds,
                                   progress)
                rows += [Row(data.title, mine, taken[mine], peer, taken[peer]) for peer in peers]
        rows += rows_of_service(sets[-1][0], rounds)
        steps, waited = rows_of_steps(base, small, rounds)
        rows += steps
    note = (f"The time of 1,000 samples in shuffled batches of {BATCH}, without a model. The bare "
            "C++ loop is the bound: a programme for this data alone, without LibTorch and without "
            "threads that hand batches over, which reads the files or has their bytes in memory "
            "(bench/input_bound.cc). Peers: torch's DataLoader with Pillow and torchvision's "
            "transforms v2; \"batched\" takes the rows of a batch by one index; tf.data, Grain and "
            "FFCV as their guides for speed say. "
            "The number behind a name is that of its threads (Grain: processes). The images are "
            "generated: CIFAR's size in quality 95, and photographs' size of 640x427 in quality "
            "90; FFCV reads them from its own format. The row of two jobs is the CPU time of 1,000 "
            "samples in all processes, of jobs with the same seed. The last row is a step of "
            "training, beside one whose 64 images are decoded once; the first one waited "
            f"{100 * waited:.1f} % of its time for its input.")
    missing = [f"{library} ({remedy})" for library, (python, remedy) in PIPELINES.items()
               if not python.exists()]
    if missing:
        note += f" Left out, because they are not installed: {'; '.join(missing)}."
    return Section("Input", note, rows)
