"""A data service: the CPU time of two jobs with the same seed, which share one or run apart; and
samples over TCP that are there already."""

import contextlib
import functools
import json
import os
import subprocess
import sys

from contenders import (ONE_THREAD, PYTHON, ROOT, TRIREME, object_in, progress, run,
                        set_words)
from pairs import Measurement, interleave
from report import Row

SOCKET_PEER = ROOT / "bench/peer_socket.py"
SHORT, LONG = 1, 7  # Seconds of a run; the difference has no start in it.
SECRET = {"TRIREME_DATA_TOKEN": "a secret of this benchmark"}
ROW_BYTES = 3 * 224 * 224 * 4


def settings(data, *more):
    return set_words((f"data.name={data.name}", f"data.path={data.path}",
                      f"data.stages={data.stages}", "data.batch=64", "data.threads=2",
                      "data.test_fraction=0", "data.service_bytes=256MiB", *more))


def start(closing, *words):
    process = subprocess.Popen([str(word) for word in (TRIREME, *words)],
                               env={**os.environ, **ONE_THREAD, **SECRET},
                               stdout=subprocess.PIPE, text=True)
    closing.callback(process.stdout.close)
    closing.callback(process.kill)
    return process


def start_server(closing, data, *more):
    """Returns the process and its address."""
    server = start(closing, "data", "serve", *settings(data, *more), "--listen", "127.0.0.1:0",
                   "--json")
    return server, json.loads(server.stdout.readline())["address"]


def end_of(process):
    """Waits for the end of a process; returns its CPU seconds."""
    usage = os.wait4(process.pid, 0)[2]
    return usage.ru_utime + usage.ru_stime


def two_jobs(data, service, seconds):
    """Returns the CPU seconds of two jobs and of their server, and the number of their samples."""
    with contextlib.ExitStack() as closing:
        more, server = [], None
        if service:
            server, address = start_server(closing, data)
            more = [f"data.service={address}"]
        jobs = [start(closing, "bench", "input", "--seconds", seconds, "--json",
                      *settings(data, *more)) for _ in range(2)]
        samples = sum(object_in(job.stdout.read())["samples"] for job in jobs)
        cpu = sum(end_of(job) for job in jobs)
        if server:
            server.terminate()
            cpu += end_of(server)
        return cpu, samples


def cpu_of_samples(data, service):
    """The CPU time of 1,000 samples."""
    short, long = (two_jobs(data, service, seconds) for seconds in (SHORT, LONG))
    seconds = 1000 * (long[0] - short[0]) / (long[1] - short[1])
    return Measurement(seconds, seconds)


def rows_of_service(data, rounds):
    contenders = {"one data service": True, "apart": False}
    taken = interleave({name: functools.partial(cpu_of_samples, data, service)
                        for name, service in contenders.items()}, rounds, progress)
    return [Row(f"CPU time of two jobs, {data.title}", "one data service",
                taken["one data service"], "apart", taken["apart"])]


# ---- Samples over TCP that are there already ----


def served_gigabyte(data, images, threads):
    """The time of 1 GB from a server that has made each sample before."""
    kept = ("data.service_bytes=1GiB", f"data.threads={threads}", "data.prefetch=4")
    with contextlib.ExitStack() as closing:
        server, address = start_server(closing, data, "data.service_bytes=1GiB")
        words = [TRIREME, "bench", "input", "--json",
                 *settings(data, *kept, f"data.service={address}"), "--seconds"]
        first = 0
        while first < 2 * images:  # Two epochs: all samples have been made.
            first += run([*words, 2], SECRET)["samples"]
        figures = run([*words, 3], SECRET)
        server.terminate()
        made = json.loads(server.stdout.read().splitlines()[-1])["use"]["made"]
        server.wait()
    if made > 2 * images:
        sys.exit(f"bench: the service has made {made} samples of {images}: it did not keep them")
    seconds = 1e9 / figures["bytes_per_second"]
    return Measurement(seconds, seconds)


def socket_gigabyte(images, batch):
    figures = run([PYTHON, SOCKET_PEER, ROW_BYTES, images, batch, 3])
    seconds = 1e9 / figures["bytes_per_second"]
    return Measurement(seconds, seconds)


def rows_of_tcp(data, images, rounds):
    ours = {f"service, {threads} of a worker's threads":
            functools.partial(served_gigabyte, data, images, threads) for threads in (1, 2)}
    peer = "plain socket"
    taken = interleave(ours | {peer: functools.partial(socket_gigabyte, images, 64)}, rounds,
                       progress)
    return [Row("1 GB of samples over TCP on one host", name, taken[name], peer, taken[peer])
            for name in ours]
