"""What the system tests of jobs with parameter servers have in common."""

import json
import threading

from support import DIGITS, TRIREME, SystemTest

SERVERS = ("--set", "strategy.name=parameter_server")
SMALL = ("--set", "model.name=mlp", "--set", "model.hidden=[32]")


def tasks_of(launcher):
    """Returns {task: pid} of a launcher's children, by the environment that they got."""
    found = {}
    for pid in children_of(launcher):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                env = dict(entry.split("=", 1) for entry in
                           file.read().decode(errors="replace").split("\0") if "=" in entry)
        except OSError:
            continue
        if "TRIREME_ROLE" in env:
            found[f"{env['TRIREME_ROLE']} {env['TRIREME_INDEX']}"] = pid
    return found


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


class Lines:
    """The output of a process while it runs."""

    def __init__(self, process):
        self.text = ""
        self.lock = threading.Lock()
        for stream in (process.stdout, process.stderr):
            threading.Thread(target=self.read, args=(stream,), daemon=True).start()

    def read(self, stream):
        for line in stream:
            with self.lock:
                self.text += line

    def count(self, part):
        with self.lock:
            return self.text.count(part)


class ServerTest(SystemTest):
    def with_servers(self, *words, servers=2, workers=2, name="run", **options):
        return self.train(*SERVERS, "--ps", str(servers), "--workers", str(workers), *words,
                          name=name, **options)

    def start_job(self, *words, name="run"):
        return self.start(TRIREME, "train", DIGITS, *SMALL, *SERVERS, "--ps", "2", "--workers",
                          "2", "--set", f"run.dir={self.folder / name}", "--report",
                          self.folder / f"{name}.json", *words)

    def end_of(self, job, name="run", timeout=120):
        out, err = job.communicate(timeout=timeout)
        self.assertEqual(job.returncode, 0, f"{out}\n{err}")
        return json.loads((self.folder / f"{name}.json").read_text()), out + err

    def steps_logged(self, name="run"):
        log = self.folder / name / "log.jsonl"
        if not log.exists():
            return 0
        return log.read_text(errors="replace").count('"event":"commit"')

    def events(self, name, kind):
        """Returns the steps of the events of a kind in the log."""
        lines = (self.folder / name / "log.jsonl").read_text().splitlines()
        return [event["step"] for event in map(json.loads, lines) if event["event"] == kind]

    def assert_each_sample_once(self, report, epochs=None):
        samples = report["samples"]
        self.assertEqual(samples["lost"], 0, samples)
        self.assertEqual(samples["repeated"], 0, samples)
        self.assertEqual(samples["expected"], samples["seen_once"])
        if epochs is not None:
            self.assertEqual(report["epochs"], epochs)
