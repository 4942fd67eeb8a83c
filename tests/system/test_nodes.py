"""Elastic jobs on two nodes that lose one another: each side ends or goes on in bounded time."""

import json
import os
import signal
import unittest

import two_hosts
from elastic_job import COMMON, PATIENCE, ElasticTest
from support import DIGITS, TRIREME, environment, free_port, parent_of, wait_until

# A side that has lost the coordinator notices it within 10 s, asks for comm.timeout, and its
# launcher lets one replacement ask for as long; the rest is for starting it on a busy machine.
TIMEOUT = 3
BOUND = 10 + 2 * TIMEOUT + 40


class LastWorkerOfANode(ElasticTest):
    """It is lost near the end of the job. The others finish before its replacement is ready."""

    def end_without_it(self, launchers, code):
        errors = [launcher.communicate(timeout=PATIENCE)[1] for launcher in launchers]
        self.assertEqual([launcher.returncode for launcher in launchers], [code, code], errors)
        self.assert_nothing_left()

    def kill_it(self, launchers, step):
        self.wait_for(launchers[0], lambda: self.step() >= step, f"step {step}")
        victims = [pid for pid in self.workers() if parent_of(pid) == launchers[0].pid]
        self.assertEqual(len(victims), 1)
        os.kill(victims[0], signal.SIGKILL)

    def test_its_launcher_ends_with_the_job(self):
        launchers = self.start_nodes("1:2", 2, length=("--set", "train.steps=60", "--inject",
                                                       "slow:rank=0,forward=10ms"))
        self.kill_it(launchers, 50)
        self.end_without_it(launchers, 0)
        self.assertEqual(json.loads((self.run_dir / "report.json").read_text())["steps"], 60)

    def test_its_launcher_knows_that_the_job_was_stopped(self):
        launchers = self.start_nodes("1:2", 2)
        self.kill_it(launchers, 10)
        launchers[1].send_signal(signal.SIGTERM)
        self.end_without_it(launchers, 143)


class RefusedCheckpoint(ElasticTest):
    def test_all_launchers_end_with_the_refusal(self):
        checkpoints = self.folder / "ckpt"
        self.train("--set", "train.steps=3", "--set", f"checkpoint.dir={checkpoints}",
                   name="before")
        rendezvous = f"127.0.0.1:{free_port()}"
        launchers = [
            self.start(TRIREME, "train", DIGITS, "--workers", 4, "--nodes", 2, "--node", node,
                       "--rendezvous", rendezvous, "--quiet", "--set", "train.steps=6", "--set",
                       "data.split_seed=7", "--set", f"checkpoint.dir={checkpoints}", "--set",
                       f"run.dir={self.run_dir}",
                       env=environment(XDG_RUNTIME_DIR=str(self.tokens), TRIREME_HOST=f"n{node}",
                                       TRIREME_JOB_TOKEN="a token of this test of nodes"))
            for node in range(2)]
        for launcher in launchers:
            _, err = launcher.communicate(timeout=PATIENCE)
            self.assertEqual(launcher.returncode, 2, err)
            self.assertIn("data.split_seed is 7 now", err)


class LostNode(ElasticTest):
    def test_without_the_node_of_its_rendezvous_the_job_ends_and_goes_on_from_its_checkpoint(self):
        words = ("--set", "checkpoint.every=5", "--set", f"comm.timeout={TIMEOUT}s")
        launchers = self.start_nodes("1:4", 2, *words)
        checkpoints = self.run_dir / "checkpoint"
        wait_until(lambda: list(checkpoints.glob("step-*")), PATIENCE, "a checkpoint")
        first = launchers[0].pid
        for pid in [first, *(pid for pid in self.workers() if parent_of(pid) == first)]:
            os.kill(pid, signal.SIGKILL)
        _, err = launchers[1].communicate(timeout=BOUND)
        self.assertEqual(launchers[1].returncode, 138, err)
        self.assertIn("no other may take over in a job on several nodes without etcd", err)
        self.assertIn("--rendezvous etcd://", err)
        launchers[0].wait(timeout=10)
        self.assert_no_process_left()

        steps = self.step()
        launchers = self.start_nodes("1:4", 2, *words)
        self.wait_for(launchers[0], lambda: self.step() > steps, "more steps")
        for launcher in launchers:
            launcher.send_signal(signal.SIGTERM)
        for launcher in launchers:
            _, err = launcher.communicate(timeout=30)
            self.assertEqual(launcher.returncode, 143, err)
        report = json.loads((self.run_dir / "report.json").read_text())
        self.assertGreater(report["resumed_from_step"], 0)
        self.assert_undisturbed(report, all_were_lost=True)

    def test_a_job_goes_on_without_a_node_that_does_not_hold_the_coordinator(self):
        launchers = self.start_nodes("1:4", 2)
        before = self.generation()
        second = launchers[1].pid
        for pid in [second, *(pid for pid in self.workers() if parent_of(pid) == second)]:
            os.kill(pid, signal.SIGKILL)
        self.wait_until_whole(launchers[0], 2, before)
        launchers[0].send_signal(signal.SIGTERM)
        _, err = launchers[0].communicate(timeout=30)
        self.assertEqual(launchers[0].returncode, 143, err)
        self.assert_undisturbed(json.loads((self.run_dir / "report.json").read_text()))

    def test_fresh_waits_for_members_that_a_dead_launcher_left_behind(self):
        rendezvous = f"127.0.0.1:{free_port()}"
        words = ("--fresh", "--set", "checkpoint.every=5")
        launchers = self.start_nodes("1:4", 2, *words, rendezvous=rendezvous)
        checkpoints = self.run_dir / "checkpoint"
        wait_until(lambda: list(checkpoints.glob("step-*")), PATIENCE, "a checkpoint")
        self.kill_the_launcher(launchers[0])
        again = self.start_node(0, rendezvous, *words)
        aside = self.run_dir / "checkpoint.old-1"
        self.wait_for(again, lambda: list(aside.glob("step-*")), "the checkpoints are aside")

    def test_workers_that_never_met_do_not_outlive_their_launcher_for_long(self):
        job = self.start_node(1, f"127.0.0.1:{free_port()}", "--set", "comm.timeout=600s", "--set",
                              "comm.launcher_grace=100ms")
        self.wait_for(job, lambda: len(self.workers()) == 2, "the workers")
        self.kill_the_launcher(job)
        wait_until(lambda: not self.workers(), PATIENCE, "all workers are gone")

    def start_node(self, node, rendezvous, *words):
        return self.start(TRIREME, "train", DIGITS, "--elastic", "1:4", "--nodes", 2, "--node",
                          node, "--rendezvous", rendezvous, *COMMON, "--quiet", *words, "--set",
                          f"run.dir={self.run_dir}",
                          env=environment(XDG_RUNTIME_DIR=str(self.tokens),
                                          TRIREME_JOB_TOKEN="a token of this test",
                                          TRIREME_HOST=f"node{node}"))


@unittest.skipUnless(two_hosts.can_be_made(), "network namespaces cannot be made here")
class LostLink(ElasticTest):
    def start_on_two_hosts(self, elastic, *words):
        self.hosts = two_hosts.TwoHosts()
        self.addCleanup(self.hosts.end)
        rendezvous = f"{self.hosts.addresses[0]}:29500"
        launchers = self.start_nodes(elastic, 2, "--set", f"comm.timeout={TIMEOUT}s", *words,
                                     rendezvous=rendezvous,
                                     prefixes=[self.hosts.on(0), self.hosts.on(1)])
        self.wait_for(launchers[0], lambda: self.world_size() == 4, "all workers")
        return launchers

    def test_the_side_of_the_coordinator_goes_on_and_the_other_one_ends(self):
        launchers = self.start_on_two_hosts("1:4")
        before = self.generation()
        self.hosts.cut()
        self.wait_until_whole(launchers[0], 2, before)
        _, err = launchers[1].communicate(timeout=BOUND)
        self.assertEqual(launchers[1].returncode, 138, err)
        steps = self.step()
        self.wait_for(launchers[0], lambda: self.step() > steps + 10, "more steps")
        launchers[0].send_signal(signal.SIGTERM)
        _, err = launchers[0].communicate(timeout=30)
        self.assertEqual(launchers[0].returncode, 143, err)
        self.assert_no_process_left()
        self.assert_undisturbed(json.loads((self.run_dir / "report.json").read_text()))

    def test_both_sides_end_where_neither_has_enough_workers(self):
        launchers = self.start_on_two_hosts("3:4")
        self.hosts.cut()
        errors = [launcher.communicate(timeout=BOUND)[1] for launcher in launchers]
        self.assertEqual([launcher.returncode for launcher in launchers], [138, 138], errors)
        self.assertIn("of at least 3 processes are there", errors[0])
        self.assert_no_process_left()


if __name__ == "__main__":
    unittest.main(verbosity=2)
