"""Measures the part `build`: what a build without a compiler cache costs, for each commit."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

from contenders import ROOT, progress
from report import Section, machine

ENVIRONMENT = dict(os.environ, CCACHE_DISABLE="1")
# The second step builds what the first one has left: the tests, and the timing commands.
STEPS = {"for make run": ["--target", "trireme", "trireme-worker"], "the rest": []}
HEADINGS = ("commit", "what", "CPU s", "s", "largest process, MB")


def run(*words, cwd):
    """Runs a command that must succeed. Returns the CPU seconds of all its processes, and the
    memory of the largest one in MB."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([str(word) for word in words], cwd=cwd, env=ENVIRONMENT,
                                   stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            tail = output.read().decode(errors="replace")[-2000:]
            sys.exit(f"bench: this failed: {' '.join(map(str, words))}\n{tail}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def clone(commit, folder):
    run("git", "clone", "--quiet", ROOT, folder, cwd=ROOT)
    run("git", "checkout", "--quiet", commit, cwd=folder)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    run("cmake", "--preset", "release", cwd=folder)


def measure_build(commits):
    jobs = os.cpu_count()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        # Each commit is built once, even if two names mean it.
        folders = {commit: pathlib.Path(place) / commit for commit in dict.fromkeys(commits)}
        for commit, folder in folders.items():
            clone(commit, folder)
        for step, targets in STEPS.items():
            for commit, folder in folders.items():
                progress(f"build {step}: {commit}")
                started = time.monotonic()
                words = ["cmake", "--build", "--preset", "release", f"-j{jobs}", *targets]
                cpu, largest = run(*words, cwd=folder)
                rows.append((commit, step, f"{cpu:.0f}", f"{time.monotonic() - started:.0f}",
                             f"{largest:.0f}"))
    note = (f"A build of a fresh clone without a compiler cache, with {jobs} processes at a time. "
            "CPU seconds are those of all compilers and linkers. The rest is what the tests need, "
            f"and the timing commands. The machine: {machine()}.")
    return Section("Build", note, rows, HEADINGS)


def known_commit(name):
    """Returns the short hash of a commit, or None if there is no such commit."""
    words = ["git", "rev-parse", "--verify", "--quiet", "--short", f"{name}^{{commit}}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or None
