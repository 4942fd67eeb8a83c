"""Strategy parameter_server: jobs with processes that serve, and what a user sees of them."""

import json
import os
import signal
import unittest

from server_jobs import SERVERS, SMALL, Lines, ServerTest, tasks_of
from support import DIGITS, TRIREME, wait_until


class ParameterServers(ServerTest):
    def test_synchronous_steps_give_the_losses_of_one_device(self):
        words = ("--set", "train.steps=50", *SMALL)
        for more, tolerance in ((("--set", "train.dtype=float64"), 1e-10), ((), 1e-5)):
            reference = self.train(*words, *more, "--set", "strategy.name=one_device",
                                   name=f"one-{tolerance}")
            for servers, workers in ((1, 1), (2, 2), (2, 3)):
                with self.subTest(servers=servers, workers=workers, tolerance=tolerance):
                    report = self.with_servers(*words, *more, servers=servers, workers=workers,
                                               name=f"{servers}x{workers}-{tolerance}")
                    self.assert_close(report["loss_history"], reference["loss_history"],
                                      tolerance)
                    told = report["parameter_server"]
                    self.assertEqual(told["servers"], servers)
                    self.assertEqual(told["staleness"]["max"], 0)
                    self.assertGreater(told["cpu_seconds"], 0.1 * servers)
                    self.assertGreater(report["cpu_seconds"], told["cpu_seconds"])
                    self.assertEqual(report["roles"], {"worker": workers, "ps": servers})

    def test_clipping_schedules_and_optimizers_hold_on_servers(self):
        for optimizer in ("sgd", "adam"):
            words = ("--set", "train.steps=30", "--set", "train.dtype=float64", *SMALL, "--set",
                     "train.clip_norm=0.5", "--set", "schedule.name=step", "--set",
                     "schedule.every=1", "--set", "schedule.gamma=0.5", "--set",
                     f"optimizer.name={optimizer}", "--set", "optimizer.lr=0.01")
            reference = self.train(*words, name=f"one-{optimizer}")
            report = self.with_servers(*words, name=optimizer)
            self.assert_close(report["loss_history"], reference["loss_history"], 1e-9)

    def test_checkpoints_go_from_servers_to_one_device_and_back(self):
        words = ("--set", "train.dtype=float64", *SMALL, "--set", "optimizer.name=adam", "--set",
                 "optimizer.lr=0.001")
        reference = self.train(*words, "--set", "train.steps=40", name="whole")
        self.with_servers(*words, "--set", "train.steps=20", name="run")
        second = self.train(*words, "--set", "train.steps=30", name="run")
        self.assertEqual(second["resumed_from_step"], 20)
        third = self.with_servers(*words, "--set", "train.steps=40", servers=3, name="run")
        self.assertEqual(third["resumed_from_step"], 30)
        self.assert_close(third["loss_history"], reference["loss_history"], 1e-9)

    def test_workers_at_their_own_pace_learn_and_use_each_sample_once(self):
        words = (*SMALL, "--set", "train.epochs=8", "--set", "optimizer.lr=0.05")
        reference = self.train(*words, name="one")
        modes = {"async": (), "stale": ("--set", "ps.staleness=2"), "delay_compensated": ()}
        for mode, more in modes.items():
            with self.subTest(mode):
                report = self.with_servers(*words, "--set", f"ps.consistency={mode}", *more,
                                           name=mode)
                self.assertEqual(report["steps"], reference["steps"])
                self.assertEqual(len(report["loss_history"]), report["steps"])
                self.assert_each_sample_once(report, epochs=8)
                self.assertGreater(report["eval"]["accuracy"], 0.88)
                self.assertEqual(report["parameter_server"]["updates"], report["steps"])
                if mode == "stale":
                    self.assertLessEqual(report["parameter_server"]["staleness"]["max"], 5)

    def test_backup_workers_leave_no_sample_out(self):
        report = self.with_servers(*SMALL, "--set", "train.epochs=2", "--set",
                                   "ps.backup_workers=1", workers=3, name="backup")
        self.assert_each_sample_once(report, epochs=2)
        self.assertLess(report["parameter_server"]["updates"], report["steps"])

    def test_the_job_goes_on_without_a_worker_that_is_killed(self):
        for mode in ("sync", "async"):
            with self.subTest(mode):
                job = self.start_job("--set", "train.epochs=12", "--set",
                                     f"ps.consistency={mode}", name=mode)
                wait_until(lambda: self.steps_logged(mode) > 5, 60, "the first steps")
                os.kill(tasks_of(job.pid)["worker 1"], signal.SIGKILL)
                report, _ = self.end_of(job, mode)
                self.assert_each_sample_once(report, epochs=12)
                self.assertGreater(len(report["generations"]), 1)
                told, steps = self.events(mode, "step"), range(1, report["steps"] + 1)
                if 0 not in report["generations"][1]["lost_ranks"]:
                    self.assertEqual(sorted(told), list(steps), "each is told once")
                elif mode == "async":  # The next rank 0 tells those of the round again.
                    self.assertEqual(set(told), set(steps))
                code, out, err = self.run_to_end(TRIREME, "data", "audit", self.folder / mode)
                self.assertEqual(code, 0, out + err)

    def test_a_synchronous_job_that_lost_a_worker_has_the_losses_of_one_device(self):
        words = ("--set", "train.epochs=8", "--set", "train.dtype=float64")
        reference = self.train(*SMALL, *words, name="one")
        job = self.start_job(*words)
        wait_until(lambda: self.steps_logged() > 5, 60, "the first steps")
        os.kill(tasks_of(job.pid)["worker 0"], signal.SIGKILL)
        report, _ = self.end_of(job)
        self.assert_close(report["loss_history"], reference["loss_history"], 1e-9)

    def test_a_job_that_lost_a_server_goes_on_with_the_copies_of_another(self):
        words = ("--set", "train.epochs=20", "--set", "train.dtype=float64", "--set",
                 "checkpoint.every=never")
        reference = self.train(*SMALL, *words, name="one")
        for mode, victim in (("sync", "ps 0"), ("sync", "ps 1"), ("async", "ps 0"),
                             ("stale", "ps 1"), ("delay_compensated", "ps 0")):
            name = f"{mode} {victim}"
            with self.subTest(name):
                job = self.start_job(*words, "--set", f"ps.consistency={mode}", name=name)
                wait_until(lambda: self.steps_logged(name) > 5, 60, "the first steps")
                os.kill(tasks_of(job.pid)[victim], signal.SIGKILL)
                report, output = self.end_of(job, name)
                self.assert_each_sample_once(report, epochs=20)
                self.assertEqual(report["parameter_server"]["failovers"], 1, output)
                self.assertEqual(report["parameter_server"]["updates"], report["steps"])
                self.assertEqual(len(report["generations"]), 1)
                self.assertIn(f"{victim} (pid", output)
                if mode == "sync":
                    self.assert_close(report["loss_history"], reference["loss_history"], 1e-9)

    def test_servers_that_are_lost_one_after_another_cost_nothing(self):
        words = ("--set", "train.epochs=200", "--set", "train.dtype=float64", "--set",
                 "train.evaluate_every=0")
        reference = self.train(*SMALL, *words, name="one")
        job = self.start_job(*words)
        output = Lines(job)
        for count, victim in enumerate(("ps 0", "ps 1", "ps 0"), start=1):
            before = self.steps_logged()
            wait_until(lambda: self.steps_logged() > before + 5, 60, "some steps")
            os.kill(tasks_of(job.pid)[victim], signal.SIGKILL)
            wait_until(lambda: output.count("has its pieces again") == count, 60,
                       f"the pieces of {victim}")
        self.assertEqual(job.wait(timeout=120), 0, output.text)
        report = json.loads((self.folder / "run.json").read_text())
        self.assert_each_sample_once(report)
        self.assert_close(report["loss_history"], reference["loss_history"], 1e-9)
        # The last one is that of server 1; the first two are counts of servers that were lost.
        self.assertGreaterEqual(report["parameter_server"]["failovers"], 1)
        self.assertEqual(len(report["generations"]), 1)

    def test_without_copies_a_lost_server_sends_the_job_to_its_newest_checkpoint(self):
        for mode in ("sync", "async"):
            with self.subTest(mode):
                job = self.start_job("--set", "train.epochs=12", "--set",
                                     f"ps.consistency={mode}", "--set", "ps.replication=1",
                                     "--set", "checkpoint.every=10 steps", name=mode)
                wait_until(lambda: self.steps_logged(mode) > 15, 60, "the first steps")
                os.kill(tasks_of(job.pid)["ps 1"], signal.SIGKILL)
                report, output = self.end_of(job, mode)
                # The launcher explains a connection that was closed a moment later.
                self.assertRegex(output, r"(lost are server 1 \(127\.0\.0\.1:\d+; ps 1 on host \S+ "
                                 r"\(pid \d+\) was lost: (killed by signal 9 \(SIGKILL\)|"
                                 r"connection closed)\))|nobody has the pieces of server 1")
                self.assert_each_sample_once(report, epochs=12)

    def test_compressed_pushes_learn_too(self):
        words = (*SMALL, "--set", "train.epochs=8", "--set", "optimizer.lr=0.05")
        ratio = ("--set", "strategy.compression_ratio=0.1")
        for name, mode, more in (("int8", "async", ()), ("bf16", "sync", ()),
                                 ("topk", "stale", ratio)):
            with self.subTest(name, mode=mode):
                report = self.with_servers(*words, "--set", f"strategy.compression={name}", *more,
                                           "--set", f"ps.consistency={mode}", name=name)
                self.assert_each_sample_once(report, epochs=8)
                self.assertGreater(report["eval"]["accuracy"], 0.85)

    def test_trireme_plan_prints_the_placement(self):
        code, out, err = self.run_to_end(TRIREME, "plan", DIGITS, *SERVERS, "--workers", "2",
                                         "--ps", "2")
        self.assertEqual(code, 0, err)
        self.assertIn("on 2 servers", out)
        self.assertRegex(out, r"ps 0 +[\d.]+ KB +\d+ pieces")
        report = self.with_servers("--set", "train.steps=3", name="run")
        self.assertIn(report["plan_digest"], out)

    def test_wrong_options_are_refused_before_anything_starts(self):
        def refused(*words, parts, servers=("--ps", "2")):
            self.assert_refused((TRIREME, "train", DIGITS, "--workers", "2", *servers, *words), 2,
                                *parts)
        refused(*SERVERS, servers=(), parts=("--ps",))
        refused(parts=("ps.servers", "parameter_server"))
        refused(*SERVERS, "--set", "ps.backup_workers=2", parts=("ps.backup_workers is 2",
                                                                 "2 workers"))
        refused(*SERVERS, "--set", "ps.staleness=2", parts=("ps.staleness", "ps.consistency=stale"))
        refused(*SERVERS, "--set", "ps.replication=3", parts=("ps.replication is 3",
                                                              "2 parameter servers"))
        refused(*SERVERS, "--set", "optimizer.name=lamb", parts=("lamb", "adam"))
        refused(*SERVERS, "--set", "strategy.compression=powersgd", parts=("powersgd", "topk"))
        refused(*SERVERS, "--set", "mesh.pipeline=2", parts=("mesh.pipeline",))
        refused(*SERVERS, "--set", "ps.consistency=maybe", parts=("ps.consistency", "async"))
        refused(*SERVERS, "--set", "ps.consistency=async", "--set", "train.ema_decay=0.9",
                parts=("train.ema_decay", "own pace"))
        refused(*SERVERS, "--set", "ps.consistency=async", "--set", "elastic.batch=scale",
                parts=("elastic.batch is scale", "own pace"))


if __name__ == "__main__":
    unittest.main()
