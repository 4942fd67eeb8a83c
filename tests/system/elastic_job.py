"""An elastic job of a test. The test starts it, watches it by its log, and compares the result
with that of an undisturbed run."""

import json
import os
import pathlib
import signal

from support import (DIGITS, TRIREME, SystemTest, environment, free_port, processes_that_mention,
                     wait_until)

# With float64, rounding cannot be mistaken for a missing step. Each step takes long enough for
# something to happen in it.
COMMON = ("--set", "train.dtype=float64", "--set", "train.evaluate_every=0", "--set",
          "schedule.name=constant")
LONG = ("--set", "train.epochs=100000", "--inject", "slow:rank=0,forward=10ms")
# In seconds, on a busy machine. Everything that a test waits for comes within a few.
PATIENCE = 60


class ElasticTest(SystemTest):
    unit = 1  # Workers that have a copy of the model between them.
    config = DIGITS  # A test may have another one.

    def setUp(self):
        super().setUp()
        self.run_dir = self.folder / "run"
        self.tokens = self.folder / "tokens"
        self.tokens.mkdir(mode=0o700)

    def start_job(self, elastic, *words):
        """Starts a long job and returns it after some steps with all its workers."""
        job = self.start(TRIREME, "train", self.config, "--elastic", elastic, *COMMON, *LONG,
                         "--quiet", *words, "--set", f"run.dir={self.run_dir}",
                         env=environment(XDG_RUNTIME_DIR=str(self.tokens)))
        self.wait_for(job, lambda: self.step() >= 10, "the first steps")
        self.assertEqual(self.world_size(), int(elastic.split(":")[1]))
        return job

    def wait_for(self, job, condition, what):
        """Waits until `condition` holds. `job` is None if its launcher has ended."""
        def holds():
            if job and job.poll() is not None:
                self.fail(f"the job ended with {job.returncode} before {what}\n"
                          + job.stderr.read())
            return condition()

        wait_until(holds, PATIENCE, what)

    def records(self, event):
        """Returns these records of rank 0's log, without a line that is still being written."""
        log = self.run_dir / "log.jsonl"
        if not log.exists():
            return []
        found = []
        for line in log.read_text(errors="replace").split("\n")[:-1]:
            if f'"event":"{event}"' in line:
                try:
                    found.append(json.loads(line))
                except json.JSONDecodeError:
                    pass  # The end of the process that wrote the line cut it off.
        return found

    def commits(self):
        # Records that a new rank 0 repeats have no shares.
        return [record for record in self.records("commit") if "shares" in record]

    def step(self):
        return max((record["step"] for record in self.commits()), default=0)

    def generation(self):
        return max((record["generation"] for record in self.commits()), default=-1)

    def world_size(self):
        commits = self.commits()
        return len(commits[-1]["shares"]) * self.unit if commits else 0

    def workers(self):
        return {pid for pid, command in processes_that_mention(str(self.run_dir))
                if "trireme-worker" in command}

    def chief(self):
        """Returns the worker that writes the log."""
        log = str(self.run_dir / "log.jsonl")
        for pid in self.workers():
            for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                try:
                    if os.readlink(link) == log:
                        return pid
                except OSError:
                    pass
        self.fail("no worker has the log open")

    def wait_until_whole(self, job, size, after):
        """Waits until `size` workers commit steps in a generation after `after`; returns it."""
        self.wait_for(job, lambda: any(c["generation"] > after and
                                       len(c["shares"]) * self.unit == size
                                       for c in self.commits()), f"{size} workers continue")
        return self.generation()

    def end(self, job, seconds=30):
        """Asks the job to stop and returns its report."""
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=seconds)
        self.assertEqual(job.returncode, 143, err)
        self.assert_nothing_left()
        return json.loads((self.run_dir / "report.json").read_text())

    def assert_no_process_left(self):
        wait_until(lambda: not processes_that_mention(str(self.folder)), 10,
                   "all processes are gone")

    def assert_nothing_left(self):
        self.assert_no_process_left()
        self.assertEqual([path for path in self.tokens.rglob("*") if path.is_file()], [])

    def assert_undisturbed(self, report, all_were_lost=False, words=()):
        """Checks that losses, ledger and history are those of an undisturbed run. If all workers
        were lost at once, steps were done again. `words`: the job's settings of model and
        optimizer, if they differ from its file."""
        reference = self.train(*COMMON, *words, "--set", "device.threads=1", "--set",
                               f"train.steps={report['steps']}", name="reference",
                               config=self.config, timeout=300)
        # The rounding of sums of three shares and of two differs: by a few parts in 1e16, which
        # grow from step to step.
        self.assert_close(report["loss_history"], reference["loss_history"], 1e-7)
        self.assert_each_sample_once(report)
        generations = report["generations"]
        self.assertEqual([each["generation"] for each in generations],
                         list(range(len(generations))))
        self.assertEqual(generations[0]["cause"], "start")
        if not all_were_lost:
            first_steps = [each["first_step"] for each in generations]
            self.assertEqual(first_steps, sorted(first_steps))

    def assert_each_sample_once(self, report):
        samples = report["samples"]
        self.assertEqual((samples["lost"], samples["repeated"]), (0, 0), samples)
        self.assertEqual(samples["seen_once"], samples["expected"])
        code, out, err = self.run_to_end(TRIREME, "data", "audit", self.run_dir)
        self.assertEqual(code, 0, out + err)

    def scale(self, workers):
        code, out, err = self.run_to_end(TRIREME, "scale", workers,
                                         env=environment(XDG_RUNTIME_DIR=str(self.tokens)))
        self.assertEqual(code, 0, out + err)

    def kill_the_launcher(self, job, *others):
        for pid in (job.pid, *others):
            os.kill(pid, signal.SIGKILL)
        job.wait(timeout=10)

    def end_of_orphans(self):
        for pid in self.workers():
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not processes_that_mention(str(self.folder)), 30,
                   "all processes are gone")
        return json.loads((self.run_dir / "report.json").read_text())

    def start_nodes(self, elastic, nodes, *words, rendezvous=None, prefixes=None, length=LONG):
        """Starts a launcher for each node, all on this host but without shared memory.

        `prefixes`: the words before each node's command. `length`: the words that say how long
        the job and its steps are.
        """
        rendezvous = rendezvous or f"127.0.0.1:{free_port()}"
        launchers = []
        for node in range(nodes):
            launchers.append(self.start(
                *(prefixes[node] if prefixes else ()), TRIREME, "train", self.config,
                "--elastic", elastic, "--nodes", nodes, "--node", node,
                "--rendezvous", rendezvous, *COMMON, *length,
                "--quiet", *words, "--set", f"run.dir={self.run_dir}",
                env=environment(XDG_RUNTIME_DIR=str(self.tokens),
                                TRIREME_JOB_TOKEN="a token of this test",
                                TRIREME_HOST=f"node{node}")))
        self.wait_for(launchers[0], lambda: self.step() >= 10, "the first steps")
        return launchers
