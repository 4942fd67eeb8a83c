"""With virtual shards a run ends with the same bits for any number of workers, also for one that
changes."""

import json
import os
import signal
import unittest

from support import DIGITS, TRIREME, SystemTest, processes_that_mention, wait_until

SHARDS = ("--set", "reproducible.virtual_shards=8")
STEPS = ("--set", "train.steps=60", "--set", "train.evaluate_every=0", "--set",
         "monitor.tensorboard=false")
# Dropout draws different numbers for each sample, and clipping depends on all gradients.
HARD = ("--set", "model.dropout=0.2", "--set", "train.clip_norm=1")


class Reproducible(SystemTest):
    def train_shards(self, name, *words):
        return self.train(*STEPS, *SHARDS, *HARD, *words, name=name)

    def assert_same_run(self, report, reference):
        self.assertEqual(report["loss_history"], reference["loss_history"])
        self.assertEqual(report["parameters_sha256"], reference["parameters_sha256"])
        self.assertEqual(report["steps"], reference["steps"])

    def workers(self):
        return sorted(pid for pid, command in processes_that_mention(str(self.folder))
                      if "trireme-worker" in command)

    def test_every_number_of_replicas_ends_with_the_same_bits(self):
        alone = self.train_shards("alone")
        for name, words in {
            "two": ("--workers", 2),
            "three": ("--workers", 3),
            "mirrored": ("--set", "strategy.name=mirrored", "--set", "strategy.replicas=2"),
            "tcp": ("--workers", 2, "--set", "comm.backend=tcp"),
        }.items():
            with self.subTest(name):
                self.assert_same_run(self.train_shards(name, *words), alone)

    def test_a_run_that_resumes_with_another_number_of_workers_ends_with_the_same_bits(self):
        folder = ("--set", f"checkpoint.dir={self.folder / 'checkpoint'}")
        self.train_shards("begun", *folder, "--workers", 3, "--set", "train.steps=25", "--set",
                          "schedule.name=constant")
        reference = self.train_shards("constant", "--set", "schedule.name=constant")
        resumed = self.train_shards("resumed", *folder, "--workers", 2, "--set",
                                    "schedule.name=constant")
        self.assertEqual(resumed["resumed_from_step"], 25)
        self.assert_same_run(resumed, reference)

    def test_a_run_that_lost_a_worker_ends_with_the_same_bits(self):
        longer = ("--set", "train.steps=200")  # Time for the kill.
        alone = self.train_shards("alone", *longer)
        process = self.start(TRIREME, "train", DIGITS, *STEPS, *SHARDS, *HARD, *longer,
                             "--elastic", "1:3", "--set",
                             f"run.dir={self.folder / 'run'}", "--report",
                             self.folder / "elastic.json", "--quiet")
        log = self.folder / "run" / "log.jsonl"
        wait_until(lambda: log.exists() and log.read_text().count('"event":"step"') >= 10, 60,
                   "the first steps")
        victim = self.workers()[-1]
        os.kill(victim, signal.SIGKILL)
        out, err = process.communicate(timeout=90)
        self.assertEqual(process.returncode, 0, err)
        report = json.loads((self.folder / "elastic.json").read_text())
        self.assertGreater(len(report["generations"]), 1, "no worker was lost in time")
        self.assert_same_run(report, alone)

    def test_other_threads_are_refused_on_resume_with_the_reason(self):
        folder = ("--set", f"checkpoint.dir={self.folder / 'checkpoint'}")
        self.train_shards("begun", *folder, "--set", "train.steps=5")
        self.assert_refused([TRIREME, "train", DIGITS, *STEPS, *SHARDS, *HARD, *folder, "--set",
                             "device.threads=2", "--set",
                             f"run.dir={self.folder / 'run'}"], 2,
                            "8 virtual shards and 1 threads", "device.threads=1")

    def test_settings_that_depend_on_the_number_of_replicas_are_refused(self):
        for words, *parts in (
            (("--set", "strategy.compression=bf16"), "strategy.compression is bf16",
             "number of replicas"),
            (("--set", "strategy.local_steps=4"), "strategy.local_steps is 4"),
            (("--set", "strategy.sync_batch_norm=true"), "strategy.sync_batch_norm is true"),
            (("--set", "model.batch_norm=true"), "running statistics", "model.batch_norm=false"),
            (("--workers", "9"), "reproducible.virtual_shards is 8, but there are 9 replicas"),
        ):
            with self.subTest(words):
                self.assert_refused([TRIREME, "train", DIGITS, *STEPS, *SHARDS, *words], 2, *parts,
                                    cwd=self.folder)


if __name__ == "__main__":
    unittest.main()
