"""The evaluator: a process beside the workers that evaluates each checkpoint, keeps the best one
and may stop the run; and the chief, a worker with a role of its own."""

import json
import os
import signal
import unittest

from server_jobs import tasks_of
from support import DIGITS, TRIREME, SystemTest, wait_until

SMALL = ("--set", "model.name=mlp", "--set", "model.hidden=[32]")
EVERY = ("--set", "checkpoint.every=5 steps", "--set", "checkpoint.keep=50")


class Evaluators(SystemTest):
    def curve(self, name="run"):
        """The evaluations that have been written down, in order."""
        path = self.folder / name / "evaluator.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def steps_of_curve(self, name="run"):
        return [line["step"] for line in self.curve(name)]

    def best(self, name="run"):
        return sorted(os.listdir(self.folder / name / "checkpoint" / "best"))

    def start_job(self, *words, name="run"):
        return self.start(TRIREME, "train", DIGITS, *SMALL, "--set",
                          f"run.dir={self.folder / name}", "--report",
                          self.folder / f"{name}.json", "--evaluator", *words)

    def end_of(self, job, code=0, name="run", timeout=120):
        out, err = job.communicate(timeout=timeout)
        self.assertEqual(job.returncode, code, f"{out}\n{err}")
        return json.loads((self.folder / f"{name}.json").read_text()), out + err

    def assert_curve_is_right(self, report, name="run"):
        """Each step once, the last checkpoint with the loss of the run, and the best one kept."""
        lines = self.curve(name)
        steps = [line["step"] for line in lines]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(steps[-1], report["steps"])
        self.assertAlmostEqual(lines[-1]["loss"], report["eval"]["loss"], delta=1e-4)
        self.assertAlmostEqual(lines[-1]["accuracy"], report["eval"]["accuracy"], delta=1e-3)
        self.assertEqual(lines[-1]["samples"], report["eval"]["samples"])
        best = min(lines, key=lambda line: (line["loss"], line["step"]))
        self.assertEqual(self.best(name), [f"step-{best['step']:09}"])

    def test_each_strategy_is_evaluated_beside_its_training(self):
        strategies = {
            "one_device": (),
            "multi_worker": ("--workers", "2"),
            "elastic": ("--elastic", "1:2"),
            "servers": ("--workers", "2", "--ps", "2", "--set",
                        "strategy.name=parameter_server"),
            "at own pace": ("--workers", "2", "--ps", "1", "--set",
                            "strategy.name=parameter_server", "--set", "ps.consistency=async"),
            "stages": ("--workers", "2", "--set", "mesh.pipeline=2"),
            "shards": ("--workers", "2", "--set", "shard.level=3"),
            "tensor": ("--workers", "2", "--set", "mesh.tensor=2"),
        }
        for name, words in strategies.items():
            with self.subTest(name):
                folder = name.replace(" ", "_")
                report = self.train(*SMALL, *EVERY, "--evaluator", "--set", "train.steps=40",
                                    *words, name=folder)
                self.assert_curve_is_right(report, folder)
                self.assertEqual(report["roles"]["evaluator"], 1)
                self.assertTrue(list((self.folder / folder / "events" / "evaluator").iterdir()))

    def test_it_evaluates_while_training_goes_on_and_the_report_has_what_it_found(self):
        job = self.start_job(*EVERY, "--workers", "2", "--set", "train.epochs=200", "--set",
                             "checkpoint.keep=2")
        wait_until(lambda: len(self.curve()) >= 3, 60, "the first evaluations")
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGINT)
        report, _ = self.end_of(job, code=143)
        self.assertEqual((report["stopped"], report["stop_reason"]), (True, "request"))
        found = report["evaluator"]
        self.assertGreaterEqual(found["evaluations"], 3)
        self.assertIn(found["best_step"], self.steps_of_curve())
        self.assertFalse(found["stopped_early"])
        # The checkpoint of the stop is evaluated too.
        self.assertEqual(self.steps_of_curve()[-1], report["steps"])

    def test_averages_of_the_parameters_are_evaluated(self):
        report = self.train(*SMALL, *EVERY, "--evaluator", "--set", "train.steps=20", "--set",
                            "train.ema_decay=0.9")
        self.assert_curve_is_right(report)

    def test_it_stops_a_run_that_no_longer_improves(self):
        for name, words in (("processes", ("--workers", "2")), ("one", ()),
                            ("servers", ("--workers", "2", "--ps", "1", "--set",
                                         "strategy.name=parameter_server", "--set",
                                         "ps.consistency=async"))):
            with self.subTest(name):
                # With a learning rate of nearly 0 nothing improves by 0.5.
                job = self.start_job(*EVERY, *words, "--set", "train.epochs=500", "--set",
                                     "checkpoint.keep=2", "--set", "optimizer.lr=1e-9", "--set",
                                     "evaluator.patience=2", "--set",
                                     "evaluator.minimum_change=0.5", name=name)
                report, output = self.end_of(job, name=name)
                self.assertEqual((report["stopped"], report["stop_reason"]), (True, "evaluator"))
                self.assertTrue(report["evaluator"]["stopped_early"])
                self.assertGreaterEqual(report["evaluator"]["evaluations"], 3)
                self.assertIn("early, by the evaluator", output)
                self.assertEqual(self.steps_of_curve(name)[-1], report["steps"])
                # The same command trains on, until the next evaluation.
                again = self.train(*SMALL, *EVERY, *words, "--evaluator", "--set",
                                   f"train.steps={report['steps'] + 1}", "--set",
                                   "optimizer.lr=1e-9", "--set", "evaluator.patience=2",
                                   name=name)
                self.assertEqual(again["steps"], report["steps"] + 1)
                self.assertFalse(again["stopped"])

    def test_an_evaluator_that_is_killed_goes_on_with_its_curve(self):
        job = self.start_job(*EVERY, "--workers", "2", "--set", "train.epochs=300", "--set",
                             "checkpoint.keep=2")
        for _ in range(2):
            seen = len(self.curve())
            wait_until(lambda: len(self.curve()) > seen, 60, "another evaluation")
            before = tasks_of(job.pid)["evaluator 0"]
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: tasks_of(job.pid).get("evaluator 0", before) != before, 30,
                       "another process for the task")
        seen = len(self.curve())
        wait_until(lambda: len(self.curve()) > seen, 60, "an evaluation after that")
        job.send_signal(signal.SIGINT)
        report, output = self.end_of(job, code=143)
        steps = self.steps_of_curve()
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(steps[-1], report["steps"])
        self.assertIn("evaluator 0", output)
        self.assertEqual(len(self.best()), 1)

    def test_a_resumed_run_goes_on_with_the_curve_and_a_fresh_one_begins_another(self):
        words = (*SMALL, *EVERY, "--evaluator")
        self.train(*words, "--set", "train.steps=20")
        first = self.curve()
        report = self.train(*words, "--set", "train.steps=40")
        self.assertEqual(self.curve()[:len(first)], first)
        self.assert_curve_is_right(report)
        report = self.train(*words, "--set", "train.steps=10", "--fresh")
        self.assert_curve_is_right(report)

    def test_a_damaged_checkpoint_is_said_and_passed_over(self):
        self.train(*SMALL, *EVERY, "--set", "train.steps=20")
        folder = self.folder / "run" / "checkpoint" / "step-000000010"
        model = folder / "model.safetensors"
        content = bytearray(model.read_bytes())
        content[-1] ^= 1
        model.unlink()
        model.write_bytes(content)
        job = self.start_job(*EVERY, "--set", "train.steps=30")
        report, output = self.end_of(job)
        self.assertIn("passes a checkpoint over", output)
        self.assertIn("model.safetensors", output)
        self.assertNotIn(10, self.steps_of_curve())
        self.assert_curve_is_right(report)

    def test_wrong_options_are_refused_before_anything_starts(self):
        def refused(*words, parts):
            self.assert_refused((TRIREME, "train", DIGITS, *words), 2, *parts)
        refused("--evaluator", parts=("checkpoint.every", "--evaluator", "100 steps"))
        refused("--set", "evaluator.patience=3", parts=("evaluator.patience is 3", "--evaluator"))
        refused("--evaluator", *EVERY, "--set", "evaluator.measure=speed",
                parts=("evaluator.measure", "accuracy"))
        refused("--evaluator", *EVERY, "--set", "evaluator.patience=-1",
                parts=("evaluator.patience",))

    def test_the_chief_is_one_of_the_workers_and_may_be_lost(self):
        job = self.start_job(*EVERY, "--chief", "--elastic", "2:2", "--set", "train.epochs=60")
        wait_until(lambda: len(self.curve()) > 1, 60, "the first evaluations")
        tasks = tasks_of(job.pid)
        self.assertEqual(sorted(tasks), ["chief 0", "evaluator 0", "worker 1"])
        os.kill(tasks["chief 0"], signal.SIGKILL)
        wait_until(lambda: tasks_of(job.pid).get("chief 0", tasks["chief 0"]) != tasks["chief 0"],
                   60, "another chief")
        report, _ = self.end_of(job)
        self.assertEqual(report["roles"], {"chief": 1, "worker": 1, "evaluator": 1})
        self.assertGreater(len(report["generations"]), 1)
        self.assertEqual(report["samples"]["lost"], 0)
        self.assertEqual(report["samples"]["repeated"], 0)

    def test_a_chief_alone_has_its_role(self):
        report = self.train(*SMALL, "--chief", "--set", "train.steps=5")
        self.assertEqual(report["roles"], {"chief": 1})


if __name__ == "__main__":
    unittest.main()
