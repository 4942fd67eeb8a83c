"""`trireme consistency`: another consistency of parameter servers while their job trains."""

import json
import os
import signal
import unittest

from server_jobs import ServerTest, tasks_of
from support import DIGITS, TRIREME, environment, wait_until

# Worker 1 takes so long that the other one could make many steps meanwhile.
SLOW = ("--set", "train.epochs=100000", "--set", "train.evaluate_every=0", "--inject",
        "slow:rank=1,forward=40ms,percent=100")
BSP = ("--set", "ps.consistency=stale", "--set", "ps.staleness=0")
# With s = 0 no push is computed from parameters that lack more than the other worker's step.
MOST_OF_BSP = 1


class Consistency(ServerTest):
    def setUp(self):
        super().setUp()
        # So that no job of another test is seen.
        os.chmod(self.folder, 0o700)
        self.options = {"env": environment(XDG_RUNTIME_DIR=str(self.folder))}

    def start_job(self, *words, name="run"):
        return self.start(TRIREME, "train", DIGITS, "--set", "model.name=mlp", "--set",
                          "model.hidden=[32]", "--set", f"run.dir={self.folder / name}",
                          "--report", self.folder / f"{name}.json", *words, **self.options)

    def start_servers(self, *words, name="run"):
        job = self.start_job("--set", "strategy.name=parameter_server", "--ps", "2", "--workers",
                             "2", *words, name=name)
        wait_until(lambda: self.steps_logged(name) >= 20, 60, "20 steps")
        return job

    def change(self, *words):
        code, out, err = self.run_to_end(TRIREME, "consistency", *words, **self.options)
        self.assertEqual(code, 0, out + err)
        return out

    def refused(self, *words):
        code, out, err = self.run_to_end(TRIREME, "consistency", *words, **self.options)
        self.assertEqual(code, 2, out + err)
        return " ".join((out + err).split())

    def go_on(self, steps=60):
        before = self.steps_logged()
        wait_until(lambda: self.steps_logged() >= before + steps, 60, f"{steps} more steps")

    def staleness_at_the_end(self, job):
        job.send_signal(signal.SIGTERM)
        out, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 143, out + err)
        report = json.loads((self.folder / "run.json").read_text())
        self.assertEqual(report["samples"]["repeated"], 0)
        return report["parameter_server"]["staleness"]["max"]

    def test_without_a_change_the_bound_holds(self):
        job = self.start_servers(*SLOW, *BSP)
        self.go_on()
        self.assertLessEqual(self.staleness_at_the_end(job), MOST_OF_BSP)

    def test_workers_follow_the_new_consistency_at_once(self):
        job = self.start_servers(*SLOW, *BSP)
        out = self.change("async")
        self.assertIn(f"job {job.pid}: ps.consistency was stale with a bound of 0 steps, and is "
                      "async from now on", out)
        self.go_on()
        out = self.change("sync", "--backup-workers", "1")
        self.assertIn("was async, and is sync with 1 backup worker from", out)
        self.go_on()
        self.assertIn("was sync with 1 backup worker, and is sync from", self.change("sync"))
        self.go_on()
        out = self.change("delay_compensated", "--job", str(job.pid))
        self.assertIn("was sync, and is delay_compensated from", out)
        self.go_on()
        self.change("stale", "--staleness", "2")
        self.go_on()
        self.assertGreater(self.staleness_at_the_end(job), 5)

    def test_the_server_that_gets_the_clock_keeps_the_change(self):
        job = self.start_servers(*SLOW, *BSP)
        self.change("stale", "--staleness", "1")
        os.kill(tasks_of(job.pid)["ps 0"], signal.SIGKILL)
        self.go_on()
        # Whoever has the clock now says which consistency it had.
        self.assertIn("was stale with a bound of 1 step, and is async", self.change("async"))
        self.go_on()
        self.assertGreater(self.staleness_at_the_end(job), 5)

    def test_changes_that_do_not_fit_are_refused(self):
        self.assertIn("no job of this user that can be changed runs", self.refused("async"))
        self.assertIn("sync, async, stale or delay_compensated", self.refused("asynchronous"))
        self.assertIn("ps.staleness is 2, and ps.consistency is async",
                      self.refused("async", "--staleness", "2"))
        self.assertIn("ps.staleness is -1", self.refused("stale", "--staleness", "-1"))
        job = self.start_servers(*SLOW, *BSP)
        self.assertIn("ps.backup_workers is 2, and there are 2 workers",
                      self.refused("sync", "--backup-workers", "2"))
        self.assertIn(f"process 1 is not the launcher of a job that can be changed; try: --job "
                      f"{job.pid}", self.refused("async", "--job", "1"))
        self.assertLessEqual(self.staleness_at_the_end(job), MOST_OF_BSP)

    def test_a_job_in_step_keeps_its_consistency(self):
        job = self.start_servers("--set", "train.epochs=100000", "--set", "train.evaluate_every=0")
        refused = self.refused("async")
        self.assertIn(f"job {job.pid} refuses: the job began with ps.consistency=sync", refused)
        self.assertIn("ps.consistency=stale and ps.staleness=0", refused)
        self.staleness_at_the_end(job)

    def test_a_job_without_servers_is_named(self):
        job = self.start_job("--workers", "2", "--evaluator", "--set", "train.epochs=100000",
                             "--set", "checkpoint.every=1000 steps")
        wait_until(lambda: self.steps_logged() >= 5, 60, "5 steps")
        self.assertIn(f"job {job.pid} has no parameter servers that train", self.refused("async"))
        code, out, err = self.run_to_end(TRIREME, "scale", "3", **self.options)
        self.assertEqual(code, 2, out + err)
        self.assertIn("the job is not elastic", " ".join((out + err).split()))


if __name__ == "__main__":
    unittest.main()
