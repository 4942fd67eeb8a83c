"""A worker that died, hangs or is slow is named with its phase, at once and in the log. Batch and
learning rate follow the number of workers."""

import json
import unittest

from support import DIGITS, TRIREME, SystemTest

SMALL = ["--set", "model.channels=[8]", "--set", "model.strides=[1]", "--set",
         "model.batch_norm=false", "--set", "train.evaluate_every=0",
         "--set", "device.threads=1"]
KEEP, SCALE = [], ["--set", "elastic.batch=scale", "--set", "elastic.lr=linear", "--set",
                   "elastic.warmup_steps=4"]


class Verdicts(SystemTest):
    def trained(self, *words, expected=0):
        """Returns (output and errors, report or None)."""
        self.run_dir = self.folder / "run"
        code, out, err = self.run_to_end(TRIREME, "train", DIGITS, "--set",
                                         f"run.dir={self.run_dir}", "--quiet", *SMALL, *words,
                                         timeout=100)
        self.assertEqual(code, expected, out + err)
        report = self.run_dir / "report.json"
        return out + err, json.loads(report.read_text()) if report.exists() else None

    def verdicts(self, kind):
        records = [json.loads(line)
                   for line in (self.run_dir / "log.jsonl").read_text().splitlines()
                   if '"event":"verdict"' in line]
        return [record for record in records if record["kind"] == kind]

    def test_a_slow_worker_is_named_with_the_phase_that_costs_it(self):
        said, report = self.trained("--workers", "3", "--set", "train.steps=80", "--inject",
                                    "slow:rank=0,forward=20ms")
        self.assertRegex(said,
                         r"rank 0 \(pid \d+, host \S+\) is a straggler: its forward "
                         r"takes 2\d ms a step, the others' [\d.]+ ms; the others wait")
        self.assertEqual(said.count("is a straggler"), 1, said)
        [record] = self.verdicts("straggler")
        self.assertEqual((record["rank"], record["phase"]), (0, "forward"))
        self.assertIn(record["text"], said)
        [straggler] = report["stragglers"]
        self.assertEqual((straggler["rank"], straggler["phase"], straggler["to_step"]),
                         (0, "forward", None))
        self.assertGreater(straggler["wait_seconds"], 0.01)
        self.assertEqual([part["rank"] for part in report["phases"]], [0, 1, 2])
        self.assertGreater(report["phases"][0]["forward"], 0.02)
        self.assertGreater(report["phases"][1]["waiting"], 0.01)

    def test_a_worker_that_is_slow_in_its_data_and_recovers(self):
        said, report = self.trained("--workers", "2", "--set", "train.steps=30", "--inject",
                                    "slow:rank=1,data=15ms")
        self.assertRegex(said, r"rank 1 .* is a straggler: its data takes 1\d ms a step")
        self.assertEqual([(one["rank"], one["phase"]) for one in report["stragglers"]],
                         [(1, "data")])

    def test_equal_workers_on_few_cores_are_no_stragglers(self):
        said, report = self.trained("--workers", "4", "--set", "train.steps=400")
        self.assertNotIn("straggler", said)
        self.assertEqual(report["stragglers"], [])
        self.assertEqual(len(report["phases"]), 4)

    def test_a_worker_that_hangs_is_named_in_the_log_too(self):
        said, _ = self.trained("--workers", "2", "--set", "comm.stall_timeout=300ms", "--set",
                               "train.steps=3", "--inject",
                               "slow:rank=1,exchange=1500ms@step=3")
        self.assertRegex(said,
                         r"worker 1 \(.*\) has been in exchange of step 3 for .*; worker 0 .* "
                         r"waits for it in exchange of step 3 \(collective 1: gradients\)")
        [record] = self.verdicts("stalled")
        self.assertEqual((record["rank"], record["phase"], record["step"], record["waiting"]),
                         (1, "exchange", 3, [0]))
        self.assertIn(record["text"], said)

    def test_the_phase_of_a_killed_worker_is_the_one_it_was_in(self):
        faults = "; ".join(f"kill:rank={step % 2}@step={step},phase={phase}"
                           for step, phase in ((12, "data"), (18, "forward"), (24, "backward"),
                                               (30, "exchange"), (36, "optimizer")))
        said, report = self.trained("--workers", "2", "--elastic", "2:2", "--set",
                                    "train.steps=45", "--inject", faults)
        phases = [generation["phase"] for generation in report["generations"]]
        self.assertEqual(phases, ["", "data of step 12", "forward of step 18",
                                  "backward of step 24", "exchange of step 30",
                                  "optimizer of step 36"])
        lost = self.verdicts("lost")
        self.assertEqual([(one["phase"], one["step"]) for one in lost],
                         [("data", 12), ("forward", 18), ("backward", 24), ("exchange", 30),
                          ("optimizer", 36)])
        self.assertTrue(all("it had been there for" in one["circumstances"] for one in lost), lost)
        self.assertTrue(all(one["text"] in said for one in lost))

    def test_a_job_that_ends_says_in_its_log_where(self):
        said, _ = self.trained("--workers", "2", "--set", "train.steps=20", "--inject",
                               "kill:rank=1@step=9,phase=forward", expected=138)
        [end] = self.verdicts("end")
        self.assertEqual((end["exit_code"], end["worker"], end["phase"], end["step"]),
                         (138, 1, "forward", 9))
        self.assertRegex(said,
                         r"worker 1 .* was killed by signal 9 \(SIGKILL\) in forward of step 9 "
                         r"\(it had been there for .*\); job ends with 138")


class Resizes(SystemTest):
    trained = Verdicts.trained

    def sizes(self, report):
        return [(generation["world_size"], generation["batch"], generation["learning_rate_factor"])
                for generation in report["generations"]]

    def test_the_global_batch_stays_by_default(self):
        _, report = self.trained("--elastic", "1:2", "--set", "train.steps=40", "--inject",
                                 "kill:rank=1@step=6", "--expect", "exactly-once")
        self.assertEqual({size[1:] for size in self.sizes(report)}, {(64, 1)})
        self.assertEqual(self.sizes(report)[1][0], 1)
        self.assertEqual([generation["micro_batches"] for generation in report["generations"][:2]],
                         [1, 2])

    def test_batch_and_learning_rate_follow_the_workers(self):
        said, report = self.trained("--elastic", "1:2", *SCALE, "--set", "schedule.name=constant",
                                    "--set", "schedule.warmup_steps=0",
                                    "--set", "optimizer.lr=0.02", "--set", "train.epochs=40",
                                    "--set", "checkpoint.every=10", "--inject",
                                    "kill:rank=1@step=6; slow:rank=0,forward=3ms", "--expect",
                                    "exactly-once")
        sizes = self.sizes(report)
        self.assertEqual(sizes[:3], [(2, 64, 1), (1, 32, 0.5), (2, 64, 1)], said)
        self.assertIn("expected exactly-once: holds", said)
        records = [json.loads(line)
                   for line in (self.run_dir / "log.jsonl").read_text().splitlines()]
        rates = [round(record["learning_rate"], 6) for record in records if record["event"]
                 == "step"]
        alone = rates.index(0.01)
        together = next(step for step in range(alone, len(rates)) if rates[step] != 0.01)
        self.assertEqual(set(rates[:alone]), {0.02})
        self.assertEqual(rates[together:together + 5], [0.012, 0.014, 0.016, 0.018, 0.02])
        self.assertEqual(set(rates[together + 5:]), {0.02})
        self.assertTrue(any("a global batch of 32 (1 worker x 32)" in record.get("text", "")
                            for record in records))
        code, out, err = self.run_to_end(TRIREME, "data", "audit", self.run_dir)
        self.assertEqual(code, 0, out + err)

    def test_a_run_that_is_started_again_keeps_its_first_size(self):
        words = ["--elastic", "1:2", *SCALE, "--set", f"checkpoint.dir={self.folder / 'kept'}"]
        _, report = self.trained(*words, "--workers", "2", "--set", "train.steps=8")
        self.assertEqual(self.sizes(report), [(2, 64, 1)])
        _, report = self.trained(*words, "--workers", "1", "--set", "train.steps=16")
        self.assertEqual(report["resumed_from_step"], 8)
        self.assertEqual(self.sizes(report), [(1, 32, 0.5)])
        self.assertEqual(report["samples"], {"expected": 768, "seen_once": 768, "lost": 0,
                                             "repeated": 0})

    def test_contradictory_settings_are_refused_at_once(self):
        train = [TRIREME, "train", DIGITS, *SMALL]
        self.assert_refused([*train, *SCALE, "--workers", "2"], 2, "the number of workers stays",
                            "--elastic MIN:MAX")
        self.assert_refused([*train, "--elastic", "1:2", "--set", "elastic.lr=linear"], 2,
                            "elastic.batch is keep")
        self.assert_refused([*train, "--elastic", "1:3", *SCALE], 2, "not a multiple of 3 workers",
                            "data.batch=66")
        self.assert_refused([*train, "--elastic", "1:2", *SCALE, "--expect", "same-loss"], 2,
                            "same-loss")
        self.assert_refused([*train, "--elastic", "1:2", *SCALE, "--set",
                             "reproducible.virtual_shards=4"], 2, "virtual_shards")


if __name__ == "__main__":
    unittest.main()
