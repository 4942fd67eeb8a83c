"""Embedding tables on parameter servers in `trireme train`: the losses of one device, every
consistency, checkpoints, and losses of workers and servers."""

import json
import os
import shutil
import signal
import unittest

from server_jobs import SERVERS, ServerTest, tasks_of
from support import ROOT, TRIREME, wait_until

CLICKS = ROOT / "examples" / "clicks.yaml"
SGD = ("--set", "optimizer.name=sgd", "--set", "optimizer.lr=0.1")
TABLES = (*SERVERS, "--set", "ps.tables=true")


class ServerTables(ServerTest):
    def on_servers(self, *words, servers=2, workers=2, name="run", **options):
        return self.train(*TABLES, "--ps", str(servers), "--workers", str(workers), *words,
                          config=CLICKS, name=name, **options)

    def start_job(self, *words, name="run"):
        return self.start(TRIREME, "train", CLICKS, *TABLES, "--ps", "2", "--workers", "2",
                          "--set", f"run.dir={self.folder / name}", "--report",
                          self.folder / f"{name}.json", *words)

    def tables_in(self, report):
        return report["parameter_server"]["tables"]

    def test_losses_are_those_of_embeddings_in_the_model(self):
        for optimizer, rate in (("adagrad", 0.02), ("sgd", 0.1)):
            words = ("--set", "train.steps=40", "--set", f"optimizer.name={optimizer}", "--set",
                     f"optimizer.lr={rate}", "--set", "schedule.name=step", "--set",
                     "schedule.every=1", "--set", "schedule.gamma=0.5")
            one = self.train(*words, config=CLICKS, name=f"one {optimizer}")
            for servers, workers, more in ((1, 1, ()), (2, 2, ("--set", "train.clip_norm=0.5")),
                                           (3, 2, ("--set", "train.accumulate=2"))):
                with self.subTest(optimizer, servers=servers, workers=workers):
                    reference = one if not more else self.train(
                        *words, *more, config=CLICKS, name=f"one {optimizer} {servers}")
                    report = self.on_servers(*words, *more, servers=servers, workers=workers,
                                             name=f"{optimizer} {servers}")
                    self.assert_close(report["loss_history"], reference["loss_history"], 2e-6)
                    self.assertAlmostEqual(report["eval"]["loss"], reference["eval"]["loss"],
                                           delta=1e-5)
                    self.assertEqual(len(self.tables_in(report)), 26)
                    self.assertGreater(max(t["rows"] for t in self.tables_in(report)), 50)

    def test_a_run_goes_on_from_its_checkpoint_with_another_number_of_servers(self):
        reference = self.train("--set", "train.steps=60", *SGD, config=CLICKS, name="one")
        self.on_servers("--set", "train.steps=20", *SGD)
        self.on_servers("--set", "train.steps=40", *SGD, servers=3)
        report = self.on_servers("--set", "train.steps=60", *SGD, servers=1, workers=3)
        self.assertEqual(report["resumed_from_step"], 40)
        self.assert_close(report["loss_history"], reference["loss_history"], 2e-6)

    def test_workers_at_their_own_pace_learn(self):
        for mode in ("async", "stale", "delay_compensated"):
            with self.subTest(mode):
                report = self.on_servers("--set", f"ps.consistency={mode}", name=mode)
                self.assert_each_sample_once(report, epochs=5)
                # 0.65 are not clicked, whose entropy is 0.65. How well the test part is learnt
                # depends on the paces: 0.71 to 0.83.
                self.assertLess(report["train_loss"], 0.4)
                self.assertGreater(report["eval"]["accuracy"], 0.67)

    def test_unbounded_and_limited_tables_learn(self):
        for name, words in (("unbounded", ("tables.unbounded=true", "tables.optimizer=ftrl",
                                           "tables.lr=0.1")),
                            ("admission", ("tables.admit_after=2", "tables.evict_unused=2",
                                           "data.batch=16", "train.epochs=2")),
                            ("budget", ("tables.budget=4KiB", "tables.evict_least_recent=true",
                                        "data.batch=16", "train.epochs=2"))):
            with self.subTest(name):
                settings = [part for word in words for part in ("--set", word)]
                servers = 1 if name == "budget" else 2
                report = self.on_servers(*settings, servers=servers, name=name)
                self.assertGreater(report["eval"]["accuracy"], 0.7)
                told = self.tables_in(report)
                if name == "unbounded":
                    self.assertEqual(report["parameter_server"]["replication"], 2)
                    continue
                self.assertEqual(report["parameter_server"]["replication"], 1)
                self.assertGreater(sum(table["evicted"] for table in told), 0)
                if name == "budget":
                    self.assertLessEqual(max(table["bytes"] for table in told), 4 << 10)

    def test_a_table_past_its_budget_ends_the_run(self):
        code, out, err = self.run_to_end(TRIREME, "train", CLICKS, *TABLES, "--ps", "1", "--set",
                                         "tables.budget=4KiB", "--set",
                                         f"run.dir={self.folder / 'run'}")
        self.assertEqual(code, 2, out + err)
        self.assertIn("budget", err)
        self.assertIn("embeddings.", err)

    def test_the_job_goes_on_without_a_worker_or_a_server_that_is_killed(self):
        # Adagrad makes much of a rounding error in a gradient near 0.
        words = ("--set", "train.epochs=12", "--set", "checkpoint.every=never", *SGD)
        reference = self.train(*words, config=CLICKS, name="one")
        for mode, victim in (("sync", "worker 1"), ("sync", "worker 0"), ("sync", "ps 0"),
                             ("sync", "ps 1"), ("async", "worker 1"), ("async", "ps 0")):
            name = f"{mode} {victim}"
            with self.subTest(name):
                job = self.start_job(*words, "--set", f"ps.consistency={mode}", name=name)
                wait_until(lambda: self.steps_logged(name) > 20, 60, "the first steps")
                os.kill(tasks_of(job.pid)[victim], signal.SIGKILL)
                report, output = self.end_of(job, name)
                self.assert_each_sample_once(report, epochs=12)
                self.assertIn(victim, output)
                if mode == "sync":
                    self.assert_close(report["loss_history"], reference["loss_history"], 1e-5)

    def test_servers_without_copies_go_on_from_the_newest_checkpoint(self):
        reference = self.train("--set", "train.epochs=6", *SGD, config=CLICKS, name="one")
        job = self.start_job("--set", "train.epochs=6", *SGD, "--set", "ps.replication=1", "--set",
                             "checkpoint.every=10 steps")
        wait_until(lambda: self.steps_logged() > 25, 60, "the first steps")
        os.kill(tasks_of(job.pid)["ps 1"], signal.SIGKILL)
        report, _ = self.end_of(job)
        self.assert_each_sample_once(report, epochs=6)
        self.assert_close(report["loss_history"], reference["loss_history"], 1e-5)

    def test_a_damaged_file_of_rows_sends_the_run_to_an_older_checkpoint(self):
        self.on_servers("--set", "train.steps=20", "--set", "checkpoint.every=10 steps")
        newest = self.folder / "run" / "checkpoint" / "step-000000020"
        file = newest / "tables-1.safetensors"
        content = bytearray(file.read_bytes())
        content[-5] ^= 1
        file.write_bytes(content)
        report = self.on_servers("--set", "train.steps=30")
        self.assertEqual(report["resumed_from_step"], 10)
        code, out, err = self.run_to_end(TRIREME, "ckpt", "verify", newest.parent)
        self.assertEqual(code, 1, out + err)
        self.assertIn(f"{file} was changed", out)

    def test_wrong_input_is_refused(self):
        def refused(*words, parts, config=CLICKS, servers=("--ps", "2")):
            self.assert_refused((TRIREME, "train", config, "--workers", "2", *servers, *words), 2,
                                *parts)
        refused(*TABLES, servers=(), parts=("--ps",))
        refused("--set", "ps.tables=true", servers=(), parts=("ps.tables", "parameter_server"))
        refused(*TABLES, "--set", "model.name=mlp", "--set", "model.rows=auto", "--set",
                "model.embedding_dim=auto", "--set", "model.bottom=auto", "--set",
                "model.top=auto", parts=("ps.tables is true", "mlp", "dlrm"))
        refused(*TABLES, "--set", "optimizer.name=adamw", parts=("tables.optimizer", "adamw"))
        refused(*TABLES, "--set", "optimizer.name=sgd", "--set", "optimizer.momentum=0.9",
                parts=("optimizer.momentum is 0.9",))
        refused(*TABLES, "--set", "tables.optimizer=lamb", parts=("lamb", "row_adagrad"))
        refused(*TABLES, "--set", "tables.evict_least_recent=true", parts=("tables.budget is 0",))
        refused(*TABLES, "--set", "tables.admit_after=2", "--set", "ps.replication=2",
                parts=("ps.replication is 2", "ps.replication=1"))
        refused(*SERVERS, "--set", "tables.lr=1", parts=("tables.lr", "ps.tables"))

    def test_an_evaluator_reads_the_rows_of_each_checkpoint(self):
        for mode, limits in (("sync", ()), ("async", ("--set", "tables.budget=1 MiB"))):
            with self.subTest(mode):
                report = self.on_servers("--evaluator", "--set", f"ps.consistency={mode}", "--set",
                                         "train.steps=60", "--set", "checkpoint.every=20 steps",
                                         "--set", "checkpoint.keep=9", *limits, name=mode)
                lines = (self.folder / mode / "evaluator.jsonl").read_text().splitlines()
                last = json.loads(lines[-1])
                self.assertEqual(last["step"], 60)
                self.assertAlmostEqual(last["loss"], report["eval"]["loss"], delta=1e-6)
                self.assertAlmostEqual(last["accuracy"], report["eval"]["accuracy"], delta=1e-6)
                self.assertGreater(json.loads(lines[0])["loss"], last["loss"])

    def test_checkpoints_of_another_kind_of_tables_are_refused_by_name(self):
        self.on_servers("--set", "train.steps=5")
        saved = self.folder / "run"
        before = sorted(path.name for path in (saved / "checkpoint").iterdir())
        for words, parts in ((("--set", "train.steps=9"), ("no state on parameter servers",)),
                             ((*TABLES, "--ps", "2", "--workers", "2", "--set", "train.steps=9",
                               "--set", "tables.optimizer=row_adagrad"),
                              ("with adagrad", "with row_adagrad"))):
            code, out, err = self.run_to_end(TRIREME, "train", CLICKS, *words, "--set",
                                             f"run.dir={saved}")
            self.assertEqual(code, 2, out + err)
            for part in parts:
                self.assertIn(part, err)
        self.assertEqual(sorted(path.name for path in (saved / "checkpoint").iterdir()), before)
        shutil.rmtree(saved)


if __name__ == "__main__":
    unittest.main()
