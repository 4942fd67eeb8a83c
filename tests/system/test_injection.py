"""Faults that are injected into a run, the expectations of that run, and the proof in its logs."""

import gzip
import json
import re
import unittest

from support import DIGITS, ROOT, TRIREME, SystemTest

SMALL = ["--set", "train.steps=40", "--set", "model.channels=[8]", "--set", "model.strides=[1]",
         "--set", "model.batch_norm=false", "--set", "train.dtype=float64",
         "--set", "device.threads=1"]


class Injection(SystemTest):
    def injected(self, *words, name="run", config=DIGITS, small=SMALL, **options):
        """Returns (exit code, standard error, report or None)."""
        run_dir = self.folder / name
        code, out, err = self.run_to_end(TRIREME, "train", config, "--set", f"run.dir={run_dir}",
                                         "--quiet", *small, *words, timeout=100,
                                         **options)
        report = run_dir / "report.json"
        return code, out + err, json.loads(report.read_text()) if report.exists() else None

    def audit(self, *names):
        code, out, err = self.run_to_end(TRIREME, "data", "audit", "--json",
                                         *(self.folder / name for name in names))
        self.assertEqual(code, 0, out + err)
        return json.loads(out)

    def log(self, name):
        lines = (self.folder / name / "log.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def test_wrong_faults_are_refused_before_anything_starts(self):
        for faults, parts in {
            "kil:rank=1@step=4": ["fault 1, 'kil:rank=1@step=4'", "try: kill"],
            "kill:rank=1@step=4; stop:rank=0@step=5,for=ages": ["fault 2", "for is 'ages'"],
            "kill:rank=2@step=4": ["no rank 2 among 2 replicas", "a rank from 0 to 1"],
            "kill:rank=1@step=41": ["step 41 is beyond the 40 steps"],
        }.items():
            self.assert_refused([TRIREME, "train", DIGITS, "--workers", "2", *SMALL, "--inject",
                                 faults], 2, *parts)
        self.assert_refused([TRIREME, "train", DIGITS, *SMALL, "--expect", "same-los"], 2,
                            "'same-los'", "try: same-loss")

    def test_a_worker_that_the_others_wait_for_is_named_with_its_stack(self):
        code, text, _ = self.injected("--workers", "2", "--set", "comm.stall_timeout=300ms",
                                      "--set", "comm.heartbeat_interval=50ms", "--set",
                                      "train.steps=3", "--inject",
                                      "slow:rank=1,forward=1500ms@step=3")
        self.assertEqual(code, 0, text)
        self.assertRegex(text,
                         r"worker 1 \(.*\) has been in (data|forward|backward) of step 3 for .*; "
                         r"worker 0 .* waits for it in exchange of step 3")
        self.assertIn("the stack of the main thread", text)

    def test_a_job_that_loses_workers_keeps_its_losses_and_its_samples(self):
        code, text, report = self.injected("--workers", "2", "--elastic", "2:2", "--inject",
                                           "kill:rank=1@step=6; "
                                           "kill:rank=0@step=12,phase=optimizer; "
                                           "slow:rank=1,forward=1ms@step=30",
                                           "--expect", "same-loss,exactly-once")
        self.assertEqual(code, 0, text)
        self.assertIn("expected same-loss: holds: 40 losses", text)
        self.assertIn("expected exactly-once: holds", text)
        self.assertEqual([finding["holds"] for finding in report["expect"]], [True, True])
        self.assertEqual(len(report["generations"]), 3)
        self.assertEqual(report["samples"], {"expected": 2526, "seen_once": 2526, "lost": 0,
                                             "repeated": 0})
        audit = self.audit("run")
        self.assertEqual(audit["samples"], report["samples"])
        self.assertEqual(audit["continuations"], 2)
        # Rank 0 writes its own faults at once. The heartbeats of the others bring theirs.
        faults = [(event.get("rank"), event["fault"].split("@")[0]) for event in self.log("run")
                  if event["event"] == "fault"]
        self.assertIn((None, "kill:rank=0"), faults)
        self.assertIn((1, "slow:rank=1,forward=1ms"), faults)

    def test_the_report_survives_a_worker_that_dies_after_the_last_step(self):
        for elastic in ("1:2", "2:2"):
            for rank in (0, 1):
                with self.subTest(elastic=elastic, rank=rank):
                    code, text, report = self.injected("--elastic", elastic, "--inject",
                                                       f"kill:rank={rank}@step=40,phase=idle",
                                                       "--expect", "same-loss,exactly-once",
                                                       name=f"{elastic}-{rank}".replace(":", "-"))
                    self.assertEqual(code, 0, text)
                    self.assertIn("phase=idle", text)
                    self.assertEqual(report["steps"], 40)
                    self.assertEqual([each["lost_ranks"] for each in report["generations"]][1],
                                     [rank])
                    self.assertIsNotNone(report["eval"])

    def test_scripts_read_one_report_also_when_a_worker_dies_after_the_last_step(self):
        code, out, err = self.run_to_end(TRIREME, "train", DIGITS, "--set",
                                         f"run.dir={self.folder / 'json'}", "--json", *SMALL,
                                         "--elastic", "1:2",
                                         "--inject", "kill:rank=1@step=40,phase=idle", timeout=100)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["generations"][1]["lost_ranks"], [1])
        log = [json.loads(line)
               for line in (self.folder / "json" / "log.jsonl").read_text().splitlines()]
        self.assertEqual(sum(record["event"] == "end" for record in log), 1)

    def test_a_worker_that_dies_while_it_writes_its_part_destroys_that_checkpoint_only(self):
        # In the middle of the run, and at the last save, for which rank 0 waits.
        for step, every in ((20, 10), (40, 15)):
            with self.subTest(step=step):
                name = f"parts-{step}"
                code, text, report = self.injected("--elastic", "1:2", "--set",
                                                   "checkpoint.writers=ranks", "--set",
                                                   f"checkpoint.every={every}",
                                                   "--inject",
                                                   f"kill:rank=1@step={step},phase=checkpoint",
                                                   "--expect", "same-loss,exactly-once",
                                                   name=name)
                self.assertEqual(code, 0, text)
                self.assertEqual(report["steps"], 40)
                self.assertEqual(report["generations"][1]["lost_ranks"], [1])
                self.assertIn("step-000000040", report["checkpoint"])
                self.assertEqual([path.name
                                  for path in (self.folder / name / "checkpoint").iterdir()
                                  if path.name.startswith(".writing")], [])

    def test_a_failure_on_which_all_agree_ends_an_elastic_job_whichever_worker_ends_first(self):
        trips = ["--elastic", "1:2", "--set", "guard.spike=1.1", "--set", "guard.window=4",
                 "--set", "checkpoint.every=100"]
        code, text, _ = self.injected(*trips, name="first")
        self.assertEqual(code, 1, text)
        step = re.search(r"of step (\d+) is", text).group(1)
        for policy in ("stop", "rollback"):
            with self.subTest(policy=policy):
                code, text, _ = self.injected(*trips, "--set", f"guard.policy={policy}",
                                              "--inject", f"stop:rank=0@step={step},"
                                              "phase=optimizer,for=1500ms", name=policy)
                self.assertEqual(code, 1, text)
                self.assertNotIn("abandoned", text)
                self.assertNotIn("back to the newest checkpoint", text)
                self.assertEqual(list((self.folder / policy).rglob("step-*")), [])

    def test_newcomers_skip_the_batches_that_the_others_rolled_back_from(self):
        # Without shuffling, the steps 1 to 28 use the lines of the file in their order.
        lines = gzip.decompress((ROOT / "data" / "digits.csv.gz").read_bytes()).splitlines()
        for number, line in enumerate(lines):
            if number // 64 + 1 in (18, 22):
                pixels, label = line.rsplit(b",", 1)
                lines[number] = pixels + b",%d" % ((int(label) + 1) % 10)
        file = self.folder / "two-batches-are-wrong.csv"
        file.write_bytes(b"\n".join(lines) + b"\n")
        words = [word for key_and_value in (
            f"data.path={file}", "data.shuffle=false", "data.test_fraction=0", "train.steps=26",
            "model.name=mlp", "model.hidden=[64]", "optimizer.name=adam", "optimizer.lr=0.01",
            "schedule.name=constant", "schedule.warmup_steps=0", "guard.policy=rollback",
            "guard.spike=3", "guard.window=4", "checkpoint.every=15", "train.dtype=float64",
            "device.threads=1")
            for word in ("--set", key_and_value)]
        # The first wrong batch was rolled back from when the worker dies. Its replacement meets
        # that batch again, as the second wrong one leads back to the same checkpoint.
        for rank in (0, 1):
            with self.subTest(rank=rank):
                name = f"lost-{rank}"
                code, text, report = self.injected(*words, "--elastic", "2:2", "--inject",
                                                   f"kill:rank={rank}@step=20", "--expect",
                                                   "same-loss,exactly-once", small=(), name=name)
                self.assertEqual(code, 0, text)
                self.assertIn("expected same-loss: holds: 26 losses", text)
                self.assertIn("expected exactly-once: holds", text)
                self.assertEqual((report["steps"], report["skipped_steps"]), (26, 2))
                self.assertEqual(len(report["generations"]), 2)
                log = self.folder / name / "log.jsonl"
                texts = [json.loads(line).get("text", "")
                         for line in log.read_text().splitlines()]
                self.assertEqual(sum("back to the newest checkpoint" in text for text in texts), 2)

    def test_a_killed_job_that_is_started_again_is_not_killed_again(self):
        words = ["--workers", "2", "--set", "checkpoint.every=5", "--set",
                 f"checkpoint.dir={self.folder / 'kept'}", "--inject",
                 "kill:rank=1@step=13", "--expect", "exactly-once"]
        code, text, _ = self.injected(*words, name="first")
        self.assertEqual(code, 138, text)
        self.assertIn("injected at step 13: kill:rank=1@step=13", text)
        self.assertIn("--expect was not checked", text)
        code, text, report = self.injected(*words, name="second")
        self.assertEqual(code, 0, text)
        self.assertEqual(report["resumed_from_step"], 10)
        self.assertIn("expected exactly-once: holds: 2526 uses", text)
        self.assertEqual(self.audit("first", "second")["taken_back"], 2)
        self.assertEqual(self.audit("second")["samples"], report["samples"],
                         "the checkpoint's ledger speaks for the first part")

    def test_a_stopped_worker_continues(self):
        code, text, report = self.injected("--workers", "2", "--inject",
                                           "stop:rank=1@step=7,for=300ms", "--expect", "same-loss")
        self.assertEqual(code, 0, text)
        self.assertIn("equal to the last bit, parameters too", text)

    def test_corruption_breaks_the_losses_and_is_found_by_comparing_replicas(self):
        corrupt = ["--workers", "2", "--inject", "corrupt:rank=1,exchange@step=7", "--expect",
                   "same-loss"]
        code, text, _ = self.injected(*corrupt)
        self.assertEqual(code, 1, text)
        self.assertIn("expected same-loss: DOES NOT HOLD: the loss of step 8", text)
        code, text, _ = self.injected(*corrupt, "--set", "guard.check_replicas_every=10",
                                      name="checked")
        self.assertEqual(code, 1, text)
        self.assertIn("after step 10 the parameters of rank 0 and rank 1 differ from each other",
                      text)

    def test_an_audit_of_a_damaged_log_fails(self):
        code, text, _ = self.injected()
        self.assertEqual(code, 0, text)
        log = self.folder / "run" / "log.jsonl"
        lines = [line for line in log.read_text().splitlines() if '"commit"' not in line
                 or json.loads(line)["step"] != 17]
        log.write_text("\n".join(lines) + "\n")
        self.assert_refused([TRIREME, "data", "audit", self.folder / "run"], 1, "64 lost",
                            "after step 16 comes step 18")
        self.assert_refused([TRIREME, "data", "audit", self.folder / "absent"], 2, "absent")


if __name__ == "__main__":
    unittest.main()
