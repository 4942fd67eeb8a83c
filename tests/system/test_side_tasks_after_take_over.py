"""Side tasks of an elastic job of two nodes whose launcher with the coordinator is killed, so that
a worker takes over."""

import os
import signal
import unittest

from etcd_server import EtcdServer, is_installed
from support import parent_of, wait_until
from world_job import WorldTest


@unittest.skipUnless(is_installed(),
                     "there is no etcd (scripts/setup test installs Debian's etcd-server)")
class SideTasksAfterATakeOver(WorldTest):
    @classmethod
    def setUpClass(cls):
        cls.etcd = EtcdServer()
        cls.addClassCleanup(cls.etcd.end)

    def start_nodes(self, loss):
        """Starts two launchers with two workers and one reader each. Returns them, with the
        processes of the readers, once all are at work."""
        rendezvous = f"etcd://{self.etcd.address}/{self._testMethodName}"
        launchers = [
            self.launch("--elastic", "1:4", "--role", f"reader=2:{loss}", "--nodes", "2", "--node",
                        node, "--rendezvous", rendezvous, "--stop-grace", "5s", role=["reader"],
                        TRIREME_JOB_TOKEN="a token of this test", TRIREME_HOST=f"node{node}")
            for node in range(2)]
        self.wait_for_generation(launchers[0], 4)
        readers = self.wait_for(launchers[0], lambda: self.seen_by_workers(2), "both readers")
        self.assertEqual([parent_of(pid) for pid in readers], [each.pid for each in launchers])
        return launchers, readers

    def seen_by_workers(self, size):
        """Returns the readers that the workers of the newest generation saw last, if they are so
        many."""
        members = self.generations()[-1][1]
        seen = {event["pid"]: event["tasks"] for event in self.events("sees")}
        last = [seen.get(pid, []) for pid in members]
        return last[0] if len(last[0]) == size and last == [last[0]] * len(last) else None

    def kill_the_first_launcher(self, launchers, readers):
        before, first = self.generations()[-1][0], self.etcd.coordinator(self._testMethodName)
        os.kill(launchers[0].pid, signal.SIGKILL)
        launchers[0].wait(timeout=10)
        wait_until(lambda: not self.is_alive(readers[0]), 10, "its reader has ended with it")
        self.wait_for_generation(launchers[1], 4, before)
        self.assertNotIn(self.etcd.coordinator(self._testMethodName), ("", first))

    def test_a_reader_of_another_node_is_replaced_and_joins_the_new_coordinator(self):
        launchers, readers = self.start_nodes("replace")
        self.kill_the_first_launcher(launchers, readers)
        (newcomer,) = self.wait_for(launchers[1], lambda: self.seen_by_workers(1),
                                    "all workers see the replacement")
        self.assertNotIn(newcomer, readers)
        self.assertEqual(parent_of(newcomer), launchers[1].pid)
        self.go.touch()
        said = self.end(launchers[1])
        self.assertIn(f"reader 1 (pid {readers[1]}) was lost", said)
        self.assertIn(newcomer, {event["pid"] for event in self.events("finished")})
        self.assertEqual(self.etcd.coordinator(self._testMethodName), "")

    def test_a_reader_of_another_node_ends_and_the_workers_go_on_without_it(self):
        launchers, readers = self.start_nodes("tell")
        self.kill_the_first_launcher(launchers, readers)
        self.wait_for(launchers[1], lambda: self.seen_by_workers(0) == [], "no worker sees it")
        wait_until(lambda: not self.is_alive(readers[1]), 10, "it has ended")
        self.go.touch()
        said = self.end(launchers[1])
        self.assertIn(f"reader 1 (pid {readers[1]}) was lost", said)
        self.assertNotIn(readers[1], {event["pid"] for event in self.events("finished")})
        self.assertEqual(self.etcd.coordinator(self._testMethodName), "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
