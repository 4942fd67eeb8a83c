"""Workers of an elastic job are killed, stopped and replaced. The others continue at the next
step, and the result is that of an undisturbed run."""

import json
import os
import pathlib
import re
import signal
import time
import unittest

from elastic_job import COMMON, LONG, PATIENCE, ElasticTest
from support import DIGITS, TRIREME, environment, parent_of, processes_that_mention, wait_until


class Elastic(ElasticTest):
    def test_any_worker_may_be_killed_and_is_replaced(self):
        job = self.start_job("1:3")
        victims_killed = []

        def kill(victims):
            before = self.generation()
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            victims_killed.append(len(victims))
            self.wait_until_whole(job, 3, before)

        kill([min(self.workers() - {self.chief()})])
        kill([self.chief()])
        kill(sorted(self.workers() - {self.chief()}))  # Two workers at once.
        report = self.end(job)
        self.assert_undisturbed(report)
        self.assertEqual(report["world_size"], 3)
        disturbed = [each for each in report["generations"] if each["lost_ranks"]]
        self.assertEqual(sum(len(each["lost_ranks"]) for each in disturbed), sum(victims_killed),
                         report["generations"])
        self.assertIn(0, disturbed[1]["lost_ranks"])
        for each in disturbed:
            self.assertRegex(each["cause"], r"worker \d .*was lost")
        for each in report["generations"][1:]:
            self.assertTrue(each["lost_ranks"] or each["cause"] == "a worker joined", each)
        self.assertEqual(report["generations"][-1]["cause"], "a worker joined")
        self.assertEqual(report["generations"][-1]["world_size"], 3)

    def test_a_replacement_needs_no_weights_file_that_is_gone(self):
        words = ("--set", "model.name=mlp", "--set", f"checkpoint.dir={self.folder}/first",
                 "--set", "train.steps=2")
        self.train(*COMMON, *words, name="first")
        weights = self.folder / "weights.safetensors"
        code, out, err = self.run_to_end(TRIREME, "ckpt", "convert", self.folder / "first",
                                         weights)
        self.assertEqual(code, 0, out + err)
        job = self.start_job("1:2", "--set", "model.name=mlp", "--set",
                             f"model.weights={weights}")
        weights.unlink()
        for chief in (False, True):
            before = self.generation()
            victim = self.chief() if chief else min(self.workers() - {self.chief()})
            os.kill(victim, signal.SIGKILL)
            self.wait_until_whole(job, 2, before)
        self.assertGreater(self.end(job)["steps"], 10)
        self.assert_refused([TRIREME, "train", DIGITS, "--workers", "2", "--quiet", "--set",
                             f"model.weights={weights}", "--set", f"run.dir={self.folder}/no"],
                            2, "there is no such file")

    def test_survivors_name_one_rank_and_no_remedy_for_a_job_that_has_ended(self):
        job = self.start_job("1:3")
        before = self.generation()
        os.kill(max(self.workers() - {self.chief()}), signal.SIGKILL)
        self.wait_until_whole(job, 3, before)
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=60)
        said = [line for line in err.split("\n") if "abandoned: " in line]
        self.assertEqual(len(said), 2, err)
        for line in said:
            self.assertRegex(line, r"rank \d/3: step \d+ abandoned: worker \d .*was lost")
            self.assertEqual(len(re.findall(r"rank \d/\d: ", line)), 1, line)
            self.assertNotIn("try: ", line)

    def test_after_the_death_of_all_workers_the_job_continues_from_the_checkpoint(self):
        job = self.start_job("1:2", "--set", "checkpoint.every=5")
        wait_until(lambda: list((self.run_dir / "checkpoint").glob("step-*")), PATIENCE,
                   "a checkpoint")
        before = self.generation()
        for pid in self.workers():
            os.kill(pid, signal.SIGKILL)
        self.wait_until_whole(job, 2, before)
        report = self.end(job)
        self.assert_undisturbed(report, all_were_lost=True)
        self.assertGreater(report["resumed_from_step"], 0)
        self.assertEqual(report["resumed_from_step"] % 5, 0)

    def test_a_replacement_killed_while_it_starts_is_replaced_too(self):
        job = self.start_job("1:2")
        first = self.workers()
        before = self.generation()
        os.kill(max(first - {self.chief()}), signal.SIGKILL)
        wait_until(lambda: self.workers() - first, PATIENCE, "a replacement has started")
        os.kill((self.workers() - first).pop(), signal.SIGKILL)
        self.wait_until_whole(job, 2, before)
        report = self.end(job)
        self.assert_undisturbed(report)
        self.assertEqual([len(each["lost_ranks"]) for each in report["generations"]], [0, 1, 0])

    def test_a_stopped_worker_is_found_by_its_silence_ended_and_replaced(self):
        job = self.start_job("1:2", "--set", "comm.heartbeat_timeout=2s")
        victim = max(self.workers() - {self.chief()})
        before = self.generation()
        os.kill(victim, signal.SIGSTOP)
        self.wait_until_whole(job, 2, before)
        self.assertNotIn(victim, self.workers())
        report = self.end(job)
        self.assert_undisturbed(report)
        lost = [each for each in report["generations"] if each["lost_ranks"]]
        self.assertEqual([each["lost_ranks"] for each in lost], [[1]])
        self.assertRegex(lost[0]["cause"], r"silent for 2\.")

    def test_workers_are_removed_and_added_while_running(self):
        job = self.start_job("1:3")
        self.scale(2)
        generation = self.wait_until_whole(job, 2, self.generation())
        wait_until(lambda: len(self.workers()) == 2, PATIENCE, "the dismissed worker has ended")
        os.kill(max(self.workers() - {self.chief()}), signal.SIGKILL)  # It is still replaced.
        self.wait_until_whole(job, 2, generation)
        self.scale(3)
        self.wait_until_whole(job, 3, self.generation())
        report = self.end(job)
        self.assert_undisturbed(report)
        self.assertEqual([each["world_size"] for each in report["generations"]], [3, 2, 1, 2, 3])
        self.assertEqual(report["generations"][1]["cause"], "asked for fewer workers")
        self.assertEqual(report["generations"][1]["lost_ranks"], [])

    def test_with_virtual_shards_a_run_of_changing_size_has_the_bits_of_one_worker(self):
        shards = ("--set", "reproducible.virtual_shards=8")
        job = self.start_job("1:3", *shards)
        for size in (2, 3, 1):
            before = self.generation()
            self.scale(size)
            self.wait_until_whole(job, size, before)
        self.scale(3)
        before = self.wait_until_whole(job, 3, self.generation())
        os.kill(self.chief(), signal.SIGKILL)
        self.wait_until_whole(job, 3, before)
        report = self.end(job)
        self.assertGreaterEqual(len({each["world_size"] for each in report["generations"]}), 3)
        reference = self.train(*COMMON, *shards, "--set", f"train.steps={report['steps']}",
                               "--workers", "1", name="reference")
        self.assertEqual(report["loss_history"], reference["loss_history"])
        self.assertEqual(report["parameters_sha256"], reference["parameters_sha256"])

    def test_sigterm_saves_and_a_later_run_continues_to_the_end(self):
        job = self.start_job("1:2")
        stopped = self.end(job)
        self.assertTrue(stopped["stopped"])
        self.assertEqual(pathlib.Path(stopped["checkpoint"]).name, f"step-{stopped['steps']:09d}")
        rest = self.train("--elastic", "1:2", *COMMON, "--set",
                          f"checkpoint.dir={self.run_dir / 'checkpoint'}",
                          "--set", f"train.steps={stopped['steps'] + 7}", name="rest")
        self.assertEqual(rest["resumed_from_step"], stopped["steps"])
        self.assertEqual(rest["steps"], stopped["steps"] + 7)
        self.assertEqual(rest["loss_history"][: stopped["steps"]], stopped["loss_history"])

    def test_the_job_continues_when_its_launcher_with_the_coordinator_is_killed(self):
        job = self.start_job("1:3")
        before = self.generation()
        self.kill_the_launcher(job)
        generation = self.wait_until_whole(None, 3, before)
        # This is the coordinator again, and the worker with the log.
        os.kill(self.chief(), signal.SIGKILL)
        self.wait_until_whole(None, 2, generation)
        report = self.end_of_orphans()
        self.assert_undisturbed(report)
        self.assertEqual([each["world_size"] for each in report["generations"]], [3, 3, 2])
        self.assertIn("the coordinator", report["generations"][1]["cause"])
        self.assertEqual(report["generations"][2]["lost_ranks"], [0])
        for each in report["generations"]:
            self.assertIsNotNone(each["seconds_to_first_step"], report["generations"])

    def test_the_job_continues_when_worker_0_dies_together_with_the_launcher(self):
        job = self.start_job("1:3")
        before = self.generation()
        self.kill_the_launcher(job, self.chief())
        self.wait_until_whole(None, 2, before)
        report = self.end_of_orphans()
        self.assert_undisturbed(report)
        self.assertEqual([each["lost_ranks"] for each in report["generations"]], [[], [0]])

    def test_without_a_launcher_workers_save_and_end_after_the_grace(self):
        job = self.start_job("1:2", "--set", "comm.launcher_grace=1s")
        self.kill_the_launcher(job)
        wait_until(lambda: not processes_that_mention(str(self.folder)), 30,
                   "all processes are gone")
        report = json.loads((self.run_dir / "report.json").read_text())
        self.assertTrue(report["stopped"])
        self.assertEqual(pathlib.Path(report["checkpoint"]).name, f"step-{report['steps']:09d}")
        self.assertGreater(report["generations"][-1]["generation"], 0)

    def test_without_a_launcher_workers_end_after_a_while_also_before_the_first_generation(self):
        for seconds in (0, 1, 3):  # They load, connect, or wait for the one that does not come.
            with self.subTest(seconds=seconds):
                job = self.start(TRIREME, "train", DIGITS, "--elastic", "2:2", *COMMON, *LONG,
                                 "--quiet", "--set", "comm.launcher_grace=1s",
                                 "--set", "comm.heartbeat_timeout=60s",
                                 "--set", f"run.dir={self.run_dir}",
                                 env=environment(XDG_RUNTIME_DIR=str(self.tokens)))
                wait_until(lambda: len(self.workers()) == 2, PATIENCE, "both workers have started")
                stopped = min(self.workers())
                os.kill(stopped, signal.SIGSTOP)
                time.sleep(seconds)
                self.kill_the_launcher(job)
                if stopped in self.workers():
                    os.kill(stopped, signal.SIGCONT)  # The kernel may have done so, or not.
                wait_until(lambda: not self.workers(), 15, "both have ended")

    def test_workers_of_two_nodes_are_replaced_by_their_own_launchers(self):
        launchers = self.start_nodes("1:4", 2)
        for launcher in launchers:
            before = self.generation()
            victim = min(pid for pid in self.workers() if parent_of(pid) == launcher.pid)
            os.kill(victim, signal.SIGKILL)
            self.wait_until_whole(launcher, 4, before)
        for launcher in launchers:
            launcher.send_signal(signal.SIGTERM)
        for launcher in launchers:
            _, err = launcher.communicate(timeout=30)
            self.assertEqual(launcher.returncode, 143, err)
        self.assert_nothing_left()
        self.assert_undisturbed(json.loads((self.run_dir / "report.json").read_text()))

    def end_of_failing(self, *words):
        """Runs a short job that cannot succeed; returns its exit code, its errors, and the number
        of workers that were replaced."""
        code, _, err = self.run_to_end(TRIREME, "train", DIGITS, "--elastic", "1:2", "--quiet",
                                       *words, "--set", f"run.dir={self.run_dir}",
                                       env=environment(XDG_RUNTIME_DIR=str(self.tokens)))
        self.assert_nothing_left()
        return code, err, len(re.findall("the job continues", err))

    def test_a_loss_that_is_not_finite_ends_the_job_for_good(self):
        code, err, replaced = self.end_of_failing("--set", "optimizer.lr=1e30", "--set",
                                                  "schedule.name=constant")
        self.assertEqual(code, 1, err)
        self.assertRegex(err, r"of step \d+ (is|are) NaN or infinite")
        self.assertEqual(replaced, 0, err)

    def test_a_step_that_costs_a_worker_each_time_ends_the_job_for_good(self):
        code, err, replaced = self.end_of_failing(
            "--inject", ";".join(["kill:rank=0@step=7"] * 20), "--set", "checkpoint.every=2")
        self.assertEqual(code, 1, err)
        # The connection of the last worker may end before its launcher sees how it ended.
        self.assertRegex(err, r"step 7 is never finished: 5 times .*"
                              r"worker 0 in backward of step 7: "
                              r"(connection \w+ \(an earlier time: )?killed by signal 9")
        self.assertLess(replaced, 8, err)

    def test_a_mistake_that_workers_find_late_ends_the_job_for_good(self):
        ckpt = self.folder / "ckpt"
        self.train("--set", "train.steps=2", "--set", f"checkpoint.dir={ckpt}", name="other-model")
        code, err, replaced = self.end_of_failing("--set", "model.channels=[8, 16, 32, 64]",
                                                  "--set", f"checkpoint.dir={ckpt}")
        self.assertEqual(code, 2, err)
        self.assertIn("the checkpoint.dir of the same model", err)
        self.assertEqual(replaced, 0, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
