"""The same command is started again at once: after `kill -9` of the launcher, and by several
launchers of one job on shared storage."""

import json
import os
import pathlib
import signal
import time
import unittest

from elastic_job import COMMON, LONG, PATIENCE, ElasticTest
from support import DIGITS, TRIREME, environment, free_port, wait_until

ROUNDS = int(os.environ.get("TRIREME_TEST_ROUNDS", "3"))
TOKEN = "a token of this test of restarts"


class Restart(ElasticTest):
    def setUp(self):
        super().setUp()
        self.ckpt = self.folder / "ckpt"

    def command(self, *words, run="run"):
        return self.start(TRIREME, "train", DIGITS, *COMMON, "--quiet", "--set",
                          f"checkpoint.dir={self.ckpt}", "--set", f"run.dir={self.folder / run}",
                          *words, env=environment(XDG_RUNTIME_DIR=str(self.tokens),
                                                  TRIREME_JOB_TOKEN=TOKEN))

    def end_of(self, job, code, timeout=90):
        _, err = job.communicate(timeout=timeout)
        self.assertEqual(job.returncode, code, err)
        return err

    def wait_for_step(self, job, step):
        self.wait_for(job, lambda: self.step() >= step, f"step {step}")

    def kill_and_start_again(self, *words):
        """Kills the launcher of a long job in each round; each start continues the run."""
        reached = 0
        for _ in range(ROUNDS):
            job = self.command(*words, *LONG, "--set", "checkpoint.every=5")
            self.wait_for_step(job, reached + 10)
            reached = self.step()
            # No process has waited for it when the next one starts.
            os.kill(job.pid, signal.SIGKILL)
        job = self.command(*words, "--set", "train.steps=1")
        self.end_of(job, 0)
        report = json.loads((self.run_dir / "report.json").read_text())
        self.assertGreater(report["resumed_from_step"], 0)
        self.assert_nothing_left()

    def test_after_the_launcher_of_an_elastic_job_was_killed(self):
        self.kill_and_start_again("--elastic", "1:2")

    def test_after_the_launcher_of_a_job_was_killed(self):
        self.kill_and_start_again("--workers", "2")

    def test_after_the_only_process_was_killed(self):
        self.kill_and_start_again()

    def wait_for_line(self, job, text):
        """Waits until the job, whose errors are read nowhere else, has written this text."""
        os.set_blocking(job.stderr.fileno(), False)
        lines = bytearray()

        def came():
            try:
                lines.extend(os.read(job.stderr.fileno(), 1 << 16))
            except BlockingIOError:
                pass
            return text in lines.decode(errors="replace")

        wait_until(came, PATIENCE, f"'{text}' is said")

    def saved_by(self, again):
        """Ends a job that was started again; returns the step from which it continued."""
        self.end_of(again, 0)
        report = json.loads((self.run_dir / "report.json").read_text())
        self.assert_nothing_left()
        return report["resumed_from_step"]

    SLOW_SAVE = ("--elastic", "1:2", "--set", "checkpoint.every=1000000")

    def start_with_slow_saves(self):
        job = self.command(*self.SLOW_SAVE, "--set", "train.epochs=100000", "--inject",
                           "slow:rank=0,forward=10ms; slow:rank=0,checkpoint=5s")
        self.wait_for_step(job, 10)
        return job

    def test_a_second_restart_leaves_the_orphans_time_to_save(self):
        self.kill_the_launcher(self.start_with_slow_saves())
        again = self.command(*self.SLOW_SAVE, "--set", "train.steps=1")
        self.wait_for_line(again, "its remaining processes are asked to save and to end")
        time.sleep(0.6)  # From now on a second request by a user would mean "at once".
        self.kill_the_launcher(again)
        again = self.command(*self.SLOW_SAVE, "--set", "train.steps=1")
        self.assertGreaterEqual(self.saved_by(again), 10)

    def test_a_restart_leaves_workers_time_to_save_that_were_asked_to_stop(self):
        job = self.start_with_slow_saves()
        job.send_signal(signal.SIGTERM)
        time.sleep(0.6)
        self.kill_the_launcher(job)
        again = self.command(*self.SLOW_SAVE, "--set", "train.steps=1")
        self.assertGreaterEqual(self.saved_by(again), 10)

    def test_orphans_that_are_too_few_to_continue_save(self):
        for words in ((), ("--set", "comm.launcher_grace=1s")):
            with self.subTest(words):
                self.run_dir = self.folder / f"run{len(words)}"
                self.ckpt = self.folder / f"ckpt{len(words)}"
                few = ("--elastic", "2:3", "--set", "checkpoint.every=1000000", *words)
                job = self.command(*few, *LONG, run=self.run_dir.name)
                self.wait_for_step(job, 10)
                self.kill_the_launcher(job, *sorted(self.workers())[:2])
                if words:  # The orphan ends by itself.
                    wait_until(lambda: not self.workers(), PATIENCE, "the orphan has ended")
                again = self.command(*few, "--set", "train.steps=1", run=self.run_dir.name)
                self.assertGreaterEqual(self.saved_by(again), 10)

    def test_orphans_that_do_not_end_are_killed(self):
        job = self.command("--elastic", "2:2", *LONG, "--set", "checkpoint.every=5")
        self.wait_for_step(job, 10)
        self.kill_the_launcher(job)
        for pid in self.workers():
            os.kill(pid, signal.SIGSTOP)
        again = self.command("--elastic", "2:2", "--set", "train.steps=1", "--set",
                             "launch.stop_grace=1s")
        err = self.end_of(again, 0)
        self.assertIn("its remaining processes are asked to save and to end", err)
        self.assertIn("did not save and end within 1.0 s: it is killed", err)
        self.assert_nothing_left()

    def test_a_job_whose_launcher_lives_is_left_alone(self):
        job = self.command("--elastic", "1:2", *LONG)
        self.wait_for_step(job, 10)
        err = self.end_of(self.command("--elastic", "1:2", *LONG, run="other"), 2)
        self.assertIn("in use by another job", err)
        step = self.step()
        self.wait_for_step(job, step + 10)
        self.end(job)

    def test_the_next_run_clears_the_token_of_a_killed_launcher(self):
        job = self.command("--elastic", "1:2", *LONG)
        self.wait_for_step(job, 10)
        left = [path for path in self.tokens.rglob("*.token")]
        self.assertEqual(len(left), 1)
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
        self.end_of(self.command("--set", "train.steps=1"), 0)
        self.assert_nothing_left()

    def test_two_launchers_of_one_job_start_together_on_shared_storage(self):
        for number in range(ROUNDS):
            rendezvous = f"127.0.0.1:{free_port()}"
            words = ("--workers", "2", "--nodes", "2", "--rendezvous", rendezvous,
                     "--set", f"train.steps={3 * (number + 1)}")
            launchers = [self.command(*words, "--node", node, run=f"run{node}") for node in (1, 0)]
            for launcher in launchers:
                self.end_of(launcher, 0)

    def test_a_launcher_joins_late_and_again_on_shared_storage(self):
        words = ("--elastic", "1:4", "--nodes", "2", "--rendezvous", f"127.0.0.1:{free_port()}",
                 *LONG, "--set", "comm.timeout=10s")
        job = self.command(*words, "--node", "0")
        self.wait_for_step(job, 10)
        for _ in range(2):
            before = self.generation()
            late = self.command(*words, "--node", "1", run="late")
            self.wait_until_whole(job, 4, before)
            before = self.generation()
            late.send_signal(signal.SIGKILL)
            for pid in self.workers_of(late.pid):
                os.kill(pid, signal.SIGKILL)
            self.wait_until_whole(job, 2, before)
        job.send_signal(signal.SIGTERM)
        self.end_of(job, 143)

    def workers_of(self, launcher):
        return [pid for pid in self.workers_in("late") if launched_by(pid) == launcher]

    def workers_in(self, run):
        self.run_dir, kept = self.folder / run, self.run_dir
        try:
            return self.workers()
        finally:
            self.run_dir = kept


def launched_by(pid):
    """Returns the launcher that the process's environment names, even one that has ended."""
    try:
        entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return 0
    return next((int(e.split(b"=")[1]) for e in entries if e.startswith(b"TRIREME_LAUNCHER=")), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
