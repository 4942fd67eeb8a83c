"""Two jobs with the same seed: the CPU time of their samples from one data service, and apart."""

import contextlib
import functools
import json
import os
import subprocess

from contenders import ONE_THREAD, TRIREME, object_in, progress
from pairs import Measurement, interleave
from report import Row

SHORT, LONG = 1, 7  # Seconds of a run; the difference has no start in it.


def settings(data, *more):
    return [word for setting in (f"data.name={data.name}", f"data.path={data.path}",
                                 f"data.stages={data.stages}", "data.batch=64",
                                 "data.threads=2", "data.test_fraction=0",
                                 "data.service_bytes=256MiB", *more)
            for word in ("--set", setting)]


def end_of(process):
    """Waits for the end of a process; returns its CPU seconds."""
    usage = os.wait4(process.pid, 0)[2]
    return usage.ru_utime + usage.ru_stime


def two_jobs(data, service, seconds):
    """Returns the CPU seconds of two jobs and of their server, and the number of their samples."""
    environment = {**os.environ, **ONE_THREAD, "TRIREME_DATA_TOKEN": "a secret of this benchmark"}

    def start(*words):
        process = subprocess.Popen([str(word) for word in (TRIREME, *words)], env=environment,
                                   stdout=subprocess.PIPE, text=True)
        closing.callback(process.stdout.close)
        return process

    with contextlib.ExitStack() as closing:
        more, server = [], None
        if service:
            server = start("data", "serve", *settings(data), "--listen", "127.0.0.1:0", "--json")
            more = ["data.service=" + json.loads(server.stdout.readline())["address"]]
        jobs = [start("bench", "input", "--seconds", seconds, "--json", *settings(data, *more))
                for _ in range(2)]
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
