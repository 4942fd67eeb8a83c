"""The base of the system tests: it runs the programmes that were built, and checks what they
leave behind."""

import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import textwrap
import time
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TRIREME_BIN", ROOT / "build" / "bin"))
TRIREME = str(BIN / "trireme")
DIGITS = str(ROOT / "examples" / "digits.yaml")


def environment(**extra):
    """Returns this process's environment without variables that a launcher may have set."""
    left_out = re.compile(r"^(TRIREME_(WORKER|RENDEZVOUS|JOB|PROGRESS|STARTED)|RANK$|WORLD_SIZE$"
                          r"|LOCAL_|MASTER_|TORCHELASTIC|OMPI_|PMI)")
    env = {k: v for k, v in os.environ.items() if not left_out.match(k)}
    # Tests run beside each other, and threads that spin would take the cores from other tests.
    env.setdefault("OMP_WAIT_POLICY", "passive")
    env.update(extra)
    return env


def settings(*pairs):
    """Returns the words of a command line that set keys, each as KEY=VALUE."""
    return [word for pair in pairs for word in ("--set", pair)]


class SystemTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trireme-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self._end_left_workers)
        self.started = []
        self.addCleanup(self._end_started_processes)

    def _end_started_processes(self):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()

    def _end_left_workers(self):
        """Ends workers of an elastic job that outlived their launcher."""
        for pid, _ in processes_that_mention(str(self.folder)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def start(self, *words, **options):
        """Starts a programme in a process group of its own, in the test's folder."""
        options.setdefault("cwd", self.folder)
        options.setdefault("env", environment())
        process = subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, text=True, start_new_session=True,
                                   **options)
        self.started.append(process)
        return process

    def run_to_end(self, *words, timeout=60, **options):
        """Runs a programme; returns (exit code, standard output, standard error). The test fails
        if the programme does not end in time."""
        process = self.start(*words, **options)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.fail(f"still running after {timeout} s: {' '.join(map(str, words))}")
        return process.returncode, out, err

    def must(self, *words, timeout=240, **options):
        """Runs a programme that must succeed; returns its standard output."""
        code, out, err = self.run_to_end(*words, timeout=timeout, **options)
        self.assertEqual(code, 0, f"{words}\n{out}\n{err}")
        return out

    def run_each(self, jobs, at_once=4, timeout=60, **options):
        """Runs jobs, a few at once; gives (job, exit code, standard output, standard error) of
        each. A job is a name or a tuple, and `jobs` has its words."""
        waiting, running = list(jobs.items()), []
        while waiting or running:
            while waiting and len(running) < at_once:
                job, words = waiting.pop(0)
                running.append((job, self.start(*words, **options)))
            job, process = running.pop(0)
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                self.fail(f"still running after {timeout} s: {job}")
            yield job, process.returncode, out, err

    def train(self, *words, name="run", config=DIGITS, timeout=90, **options):
        """Runs a training that must succeed; returns its report."""
        report = self.folder / f"{name}.json"
        run_dir = self.folder / name
        code, out, err = self.run_to_end(TRIREME, "train", config, "--set", f"run.dir={run_dir}",
                                         "--report", report, "--quiet",
                                         *words, timeout=timeout, **options)
        self.assertEqual(code, 0, f"exit code {code}\n{out}\n{err}")
        return json.loads(report.read_text())

    def assert_refused(self, words, code, *parts, timeout=30, **options):
        """Checks that the programme ends in time with `code` and a message with all `parts`."""
        actual, out, err = self.run_to_end(*words, timeout=timeout, **options)
        self.assertEqual(actual, code, f"{words}\n{out}\n{err}")
        for part in parts:
            self.assertIn(part, out + err)
        return err

    def assert_close(self, losses, reference, tolerance, count=None):
        count = count or len(reference)
        self.assertGreaterEqual(len(losses), count)
        for step in range(count):
            relative = abs(losses[step] - reference[step]) / max(abs(reference[step]), 1e-30)
            self.assertLessEqual(relative, tolerance,
                                 f"step {step}: {losses[step]} and {reference[step]}")


def png(pixels, width, height):
    """An RGB file of rows of bytes, without a library."""
    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + pixels[row * width * 3:(row + 1) * width * 3]
                    for row in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0,
                                                             0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def processes_that_mention(text):
    """Returns (pid, command line) of living processes whose command line contains `text`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0",
                                                               b" ").decode(errors="replace")
            state, _ = state_and_parent(entry.name)
        except OSError:
            continue
        if text in command and state != "Z":
            found.append((int(entry.name), command))
    return found


def wait_until(condition, seconds, what):
    """Polls a condition until it holds; raises after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


def kept_ports():
    """The ports that the kernel gives to nobody who asks for any port, as tests/net/free_port.h
    has them."""
    first, last, enough = 10000, 29000, 1000
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    low = min(low, last)
    if low - first >= enough:
        return range(first, low)
    if 65535 - high >= enough:
        return range(high + 1, 65536)
    return range(1024, 65536)


TAKEN_PORTS = []  # The locks, which last as long as this process.


def free_port():
    """A port of loopback for a server that must be told its port, and may start again. Until this
    process ends no other socket gets it by chance: the kernel gives it to nobody, and tests that
    take such ports lock them."""
    ports = kept_ports()
    locks = pathlib.Path(tempfile.gettempdir()) / "trireme-test-ports"
    if not locks.is_dir():
        locks.mkdir(exist_ok=True)
        locks.chmod(0o777)
    for tried in range(len(ports)):
        port = ports[(os.getpid() * 37 + len(TAKEN_PORTS) + tried) % len(ports)]
        try:
            lock = open(locks / str(port), "a", encoding="ascii")
        except PermissionError:
            continue
        with contextlib.ExitStack() as unless_taken, socket.socket() as probe:
            unless_taken.callback(lock.close)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            unless_taken.pop_all()
            TAKEN_PORTS.append(lock)
            return port
    raise AssertionError("no port is free")


def own_bytes(pid):
    """Returns a process's part (PSS) of all memory that is no file; 0: it has ended. The shares of
    files, such as libraries, depend on who else has mapped them."""
    try:
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return 1024 * sum(int(kib) for kib in
                      re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB$", rollup, re.M))


def state_and_parent(pid):
    state, parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    return state, int(parent)


def parent_of(pid):
    try:
        return state_and_parent(pid)[1]
    except OSError:
        return 0


# A block of code in a document. Those in lists are indented.
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks_of(text):
    """Yields (place in the text, language, code) of each block of code of a document."""
    for block in FENCE.finditer(text):
        yield block.start(), block[2], textwrap.dedent(block[3])


def links_of_documents(folder):
    """Returns the links of the documents below a folder: (document, the file to which it leads)."""
    return [(document, (document.parent / target).resolve())
            for document in pathlib.Path(folder).rglob("*.md")
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", document.read_text())
            if not re.match("https?:", target)]


def dead_links(folder):
    return [link for link in links_of_documents(folder) if not link[1].exists()]
