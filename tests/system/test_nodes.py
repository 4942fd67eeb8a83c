"""Elastic jobs on two nodes that lose one another: each side ends or goes on in bounded time."""

import json
import os
import signal
import unittest

import two_hosts
from elastic_job import PATIENCE, ElasticTest
from support import parent_of, wait_until

# A side that has lost the coordinator notices it within 10 s, asks for comm.timeout, and its
# launcher lets one replacement ask for as long; the rest is for starting it on a busy machine.
TIMEOUT = 3
BOUND = 10 + 2 * TIMEOUT + 40


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
