"""A save may take as long as launch.stop_grace allows. If it is cut off, the launcher says so, and
the checkpoint before it is whole."""

import json
import os
import re
import signal
import unittest

from support import DIGITS, TRIREME, SystemTest, processes_that_mention, wait_until

WORDS = ("--quiet", "--set", "train.evaluate_every=0")
LONG = ("--set", "train.epochs=100000")


class Stop(SystemTest):
    def setUp(self):
        super().setUp()
        self.ckpt = self.folder / "ckpt"
        self.run_dir = self.folder / "run"
        self.train(*WORDS, "--set", f"checkpoint.dir={self.ckpt}", "--set", "train.steps=3",
                   name="before")

    def start_job(self, *words):
        """Starts a long job that continues at step 3, and returns it after some steps."""
        job = self.start(TRIREME, "train", DIGITS, *WORDS, *LONG, *words, "--set",
                         f"checkpoint.dir={self.ckpt}", "--set", f"run.dir={self.run_dir}")
        self.wait_for_step(job, 10)
        return job

    def steps(self):
        log = self.run_dir / "log.jsonl"
        lines = log.read_text().split("\n")[:-1] if log.exists() else []
        return [json.loads(line)["step"] for line in lines if '"event":"step"' in line]

    def wait_for_step(self, job, step):
        def is_there():
            if job.poll() is not None:
                self.fail(f"the job ended with {job.returncode}\n{job.stderr.read()}")
            return max(self.steps(), default=0) >= step

        wait_until(is_there, 60, f"step {step}")

    def end_of(self, job, code, timeout=60):
        _, err = job.communicate(timeout=timeout)
        self.assertEqual(job.returncode, code, err)
        wait_until(lambda: not processes_that_mention(str(self.folder)), 10, "all are gone")
        return err

    def newest(self):
        """Returns the step of the newest whole checkpoint, as a run that resumes finds it."""
        rest = self.train(*WORDS, "--set", f"checkpoint.dir={self.ckpt}", "--set", "train.steps=0",
                          name="rest")
        return rest["resumed_from_step"]

    def test_a_save_that_fits_into_the_grace_is_finished(self):
        for words in (("--workers", "2"), ("--elastic", "1:2")):
            with self.subTest(words):
                job = self.start_job(*words, "--inject", "slow:rank=0,checkpoint=3s",
                                     "--set", "launch.stop_grace=60s")
                job.send_signal(signal.SIGTERM)
                err = self.end_of(job, 143)
                self.assertNotIn("cut off", err)
                report = json.loads((self.run_dir / "report.json").read_text())
                self.assertEqual(self.newest(), report["steps"])
                (self.run_dir / "log.jsonl").unlink()

    def test_a_save_that_takes_longer_is_cut_off_and_the_launcher_says_so(self):
        for words in (("--workers", "2"), ("--elastic", "1:2")):
            with self.subTest(words):
                job = self.start_job(*words, "--inject", "slow:rank=0,checkpoint=100s",
                                     "--set", "launch.stop_grace=3s")
                job.send_signal(signal.SIGTERM)
                err = self.end_of(job, 143)
                # In an elastic job rank 0, which writes, is the worker that arrived first.
                found = re.search(r"\[(\d)\] trireme info rank 0/2: resumed", err)
                writer = found.group(1) if found else "0"
                self.assertRegex(err, r"checkpoint of step \d+ was cut off while worker "
                                      rf"{writer} wrote")
                self.assertIn("try: a longer launch.stop_grace", err)
                self.assertEqual(self.newest(), 3)
                (self.run_dir / "log.jsonl").unlink()

    def test_a_save_under_way_is_finished_when_another_worker_is_lost(self):
        for background in ("true", "false"):
            with self.subTest(background=background):
                every = max(self.newest() + 5, 20)
                job = self.start_job("--workers", "2", "--inject", "slow:rank=0,checkpoint=3s",
                                     "--set", "launch.loss_grace=100ms",
                                     "--set", f"checkpoint.every={every}",
                                     "--set", f"checkpoint.background={background}")
                self.wait_for_step(job, every)
                workers = [pid for pid, command in processes_that_mention(str(self.run_dir))
                           if "trireme-worker" in command]
                os.kill(max(workers), signal.SIGKILL)
                err = self.end_of(job, 138)
                self.assertNotIn("cut off", err)
                self.assertEqual(self.newest(), every)
                (self.run_dir / "log.jsonl").unlink()

    def test_any_programme_that_is_launched_has_these_times(self):
        deaf = ("sh", "-c", "trap '' TERM; echo ready; sleep 100")
        job = self.start(TRIREME, "launch", "--workers", "1", "--stop-grace", "200ms", "--", *deaf)
        self.assertIn("ready", job.stdout.readline())
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=10)
        self.assertEqual(job.returncode, 143, err)
        self.assertIn("did not end in time and was killed", err)
        self.assert_refused([TRIREME, "launch", "--loss-grace", "soon", "--", "true"], 2,
                            "--loss-grace is 'soon'", "250ms or 5s")
        self.assert_refused([TRIREME, "train", DIGITS, "--set", "launch.stop_grace=soon"], 2,
                            "launch.stop_grace", "duration")


if __name__ == "__main__":
    unittest.main(verbosity=2)
