"""The runs of single measurements: Trireme, and its peers on the same machine."""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from pairs import Measurement

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRIREME = pathlib.Path(os.environ.get("TRIREME_BIN", ROOT / "build/bin")) / "trireme"
PYTHON = ROOT / ".venv/bin/python"
PEER = ROOT / "bench/peer.py"
PACKAGE = ROOT / "bench/package_all_reduce.py"
OPENMPI_SOURCE = ROOT / "bench/openmpi_allreduce.c"
# The limit for one run.
TIMEOUT_S = 180

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
              "GLOO_SOCKET_IFNAME": "lo"}
# Freed memory stays with the process, which avoids page faults in every step. trireme-worker asks
# glibc for the same.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
               "MALLOC_TOP_PAD_": str(64 << 20)}


def progress(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def run(command, extra_environment=()):
    """Returns the JSON object that `command` prints."""
    environment = {**os.environ, **ONE_THREAD, **dict(extra_environment)}
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=True)
    except subprocess.TimeoutExpired:
        sys.exit(f"bench: not finished after {TIMEOUT_S} s: {' '.join(words)}")
    except subprocess.CalledProcessError as failure:
        sys.exit(f"bench: exit code {failure.returncode}: {' '.join(words)}\n{failure.stderr}")
    return object_in(done.stdout)


def object_in(text):
    return json.loads(text[text.index("{"):])


def set_words(settings):
    """The words of a command that set each of the settings KEY=VALUE."""
    return [word for setting in settings for word in ("--set", setting)]


def measurement_of_samples(figures):
    """The time of 1,000 samples, of which `figures` has the number a second."""
    seconds = 1000 / figures["samples_per_second"]
    return Measurement(seconds, seconds)


# ---- Training steps ----


def our_step_words(model, path, ranks, steps, compression="none"):
    return [TRIREME, "bench", "step", "--model", model, "--workers", ranks, "--path", path,
            "--steps", steps, "--compression", compression, "--json"]


def measurement_of_our_step(figures):
    return Measurement(figures["median_ms"] / 1e3, figures["min_ms"] / 1e3,
                       figures["cpu_seconds_per_step"], figures["bytes_sent_per_step"])


def our_step(model, path, ranks, steps):
    return measurement_of_our_step(run(our_step_words(model, path, ranks, steps)))


def written_step(model, ranks, steps, check_every=64):
    """A loop as it stands (Distributed), between processes, which compare their parameters in each
    `check_every` steps (0: never)."""
    return measurement_of_our_step(run([*our_step_words(model, "shm", ranks, steps), "--written",
                                        "--check-every", check_every]))


def our_copies(model, ranks, steps):
    """Runs one replica in each of `ranks` processes at once; the processes do not communicate."""
    words = our_step_words(model, "threads", 1, steps)
    with concurrent.futures.ThreadPoolExecutor(ranks) as starts:
        all_figures = list(starts.map(run, [words] * ranks))
    slowest = max(all_figures, key=lambda figures: figures["median_ms"])
    cpu = sum(figures["cpu_seconds_per_step"] for figures in all_figures)
    return Measurement(slowest["median_ms"] / 1e3, slowest["min_ms"] / 1e3, cpu)


def ddp_step_words(model, ranks, steps, bucket_mb=None, hook=None, apart=False):
    """DDP as shipped, or tuned with buckets of this size. `apart`: the tuned step without DDP, so
    without any exchange."""
    words = [PYTHON, PEER, "step", "--model", model, "--ranks", ranks, "--steps", steps]
    words += ["--tuned", "--bucket-mb", bucket_mb] if bucket_mb else []
    words += ["--hook", hook] if hook else []
    return words + (["--apart"] if apart else [])


def measurement_of_peer(figures):
    return Measurement(figures["median_s"], figures["min_s"], figures["cpu_s"])


def ddp_step(model, ranks, steps, bucket_mb=None, apart=False):
    words = ddp_step_words(model, ranks, steps, bucket_mb, apart=apart)
    return measurement_of_peer(run(words, KEEP_MEMORY if bucket_mb else {}))


# ---- all_reduce ----


def our_all_reduce_words(path, size, ranks, steps, shared=False):
    words = [TRIREME, "bench", "collectives", "--op", "all_reduce", "--bytes", size,
             "--workers", ranks, "--path", path, "--steps", steps, "--json"]
    return words + (["--shared-tensors"] if shared else [])


def measurement_of_our_all_reduce(figures):
    return Measurement(figures["median_us"] / 1e6, figures["min_us"] / 1e6)


def our_all_reduce(path, size, ranks, steps, shared=False):
    figures = run(our_all_reduce_words(path, size, ranks, steps, shared))
    return measurement_of_our_all_reduce(figures)


def package_all_reduce(size, ranks, steps):
    """The Python package's World.all_reduce() between processes."""
    words = [TRIREME, "launch", "--workers", ranks, "--no-prefix", "--", PYTHON, PACKAGE]
    figures = run([*words, size, steps], {"PYTHONPATH": str(ROOT / "python"),
                                          "TRIREME_LIB": str(TRIREME.parent.parent / "lib")})
    return Measurement(figures["median_s"], figures["min_s"])


def gloo_all_reduce_words(size, ranks, steps):
    return [PYTHON, PEER, "all_reduce", "--bytes", size, "--ranks", ranks, "--steps", steps]


def gloo_all_reduce(size, ranks, steps):
    figures = run(gloo_all_reduce_words(size, ranks, steps))
    return Measurement(figures["median_s"], figures["min_s"])


# ---- Requests ----


def our_requests_figures(path, size, steps):
    return run([TRIREME, "bench", "requests", "--bytes", size, "--path", path, "--steps", steps,
                "--json"])


def our_requests(path, size, steps):
    figures = our_requests_figures(path, size, steps)
    return Measurement(figures["median_us"] / 1e6, figures["min_us"] / 1e6,
                       figures["cpu_us"] / 1e6)


def our_push_pull(path, size, steps):
    figures = run([TRIREME, "bench", "ps", "--bytes", size, "--path", path, "--steps", steps,
                   "--json"])
    return Measurement(figures["median_us"] / 1e6, figures["min_us"] / 1e6)


def torch_push_pull(size, steps, transport=None):
    words = [PYTHON, PEER, "rpc", "--updates", "--bytes", size, "--steps", steps]
    figures = run(words + (["--transport", transport] if transport else []))
    return Measurement(figures["median_s"], figures["min_s"])


def bare_tcp(size, steps):
    """The same bytes over a plain socket; `trireme bench requests` measures them in turn with its
    own."""
    figures = our_requests_figures("tcp", size, steps)
    return Measurement(figures["bare_tcp_median_us"] / 1e6, figures["bare_tcp_min_us"] / 1e6,
                       figures["bare_tcp_cpu_us"] / 1e6)


def torch_rpc(size, steps, transport=None):
    words = [PYTHON, PEER, "rpc", "--bytes", size, "--steps", steps]
    figures = run(words + (["--transport", transport] if transport else []))
    return Measurement(figures["median_s"], figures["min_s"])


@contextlib.contextmanager
def openmpi():
    """Yields a contender like gloo_all_reduce: MPI_Allreduce in a C programme, compiled here.
    Yields None if there is no OpenMPI."""
    if not (shutil.which("mpicc") and shutil.which("mpirun")):
        progress("OpenMPI is left out: there is no mpicc or no mpirun "
                 "(apt-get install libopenmpi-dev openmpi-bin)")
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "openmpi_allreduce"
        compiler = ["mpicc", "-O2", "-std=c11", "-Wall", "-Wextra", "-o", program]
        subprocess.run([*compiler, OPENMPI_SOURCE], check=True, timeout=TIMEOUT_S)
        yield functools.partial(openmpi_all_reduce, program)


def openmpi_all_reduce(program, size, ranks, steps):
    words = ["mpirun", "-n", ranks, "--bind-to", "none"]  # No process is pinned.
    words += ["--oversubscribe"] if ranks > os.cpu_count() else []
    words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    figures = run([*words, program, size, steps])
    return Measurement(figures["median_s"], figures["min_s"])


# ---- Start ----


def our_first_step(ranks):
    figures = run([TRIREME, "bench", "startup", "--model", "mlp", "--workers", ranks,
                   "--path", "shm", "--repeats", 1, "--json"])
    return Measurement(figures["median_ms"] / 1e3, figures["min_ms"] / 1e3)


def torchrun_first_step(ranks):
    words = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, PEER,
             "first-step", "--model", "mlp"]
    launched = time.time()
    seconds = run(words)["time_of_day"] - launched
    return Measurement(seconds, seconds)


# ---- Training ----


def losses_of_training(compression, steps, keys):
    """Returns the losses of a run of two workers over TCP, its test loss, and its bytes per
    step."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {**keys, "train.steps": steps, "strategy.compression": compression,
                    "comm.backend": "tcp", "run.dir": folder}
        words = set_words(f"{key}={value}" for key, value in settings.items())
        report = run([TRIREME, "train", "--workers", 2, "--json", *words])
    return report["loss_history"], report["eval"]["loss"], report["exchange_bytes_per_step"]
