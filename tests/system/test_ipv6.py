"""A job that meets at the IPv6 loopback address trains as one that meets at 127.0.0.1."""

import json
import os
import pathlib
import socket
import unittest

from server_jobs import children_of
from support import BIN, DIGITS, TRIREME, SystemTest, environment, free_port, settings, wait_until

PROGRAMME = BIN / "written_loops"
SMALL = settings("model.name=mlp", "model.hidden=[16]", "train.steps=20", "train.evaluate_every=0",
                 "monitor.tensorboard=false", "device.threads=1")
LOOPBACK = "00000000000000000000000001000000"  # ::1, as /proc/net/tcp6 has it.
IS_ESTABLISHED = "01"


def has_ipv6_loopback():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def connections_of(pid, table):
    """Returns (local, remote) address of each connection of a process in /proc/net/`table`."""
    inodes = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(descriptor))
        except OSError:
            continue
    rows = [row.split() for row in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return [(row[1].split(":")[0], row[2].split(":")[0]) for row in rows
            if row[3] == IS_ESTABLISHED and f"socket:[{row[9]}]" in inodes]


@unittest.skipUnless(has_ipv6_loopback(), "this machine has no address ::1")
class Ipv6(SystemTest):
    def start_loop(self, rendezvous, **variables):
        """Each of the two workers takes itself for a host, so that they have a mesh."""
        return self.start(TRIREME, "launch", "--workers", 2, "--rendezvous", rendezvous, "--",
                          "sh", "-c", 'TRIREME_HOST="host$TRIREME_WORKER" exec "$0" continued',
                          PROGRAMME, env=environment(OMP_NUM_THREADS="1", **variables))

    def end_of(self, job):
        out, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0, out + err)
        return json.loads(out[out.rindex("{"):])

    def test_a_loop_whose_rendezvous_and_mesh_are_over_ipv6(self):
        job = self.start_loop("[::1]:0", TEST_PAUSE="200")

        def have_met():
            workers = children_of(job.pid)
            try:  # To the coordinator, and two to the other worker.
                found = [connections_of(worker, "tcp6") for worker in workers]
            except OSError:  # A worker has only begun.
                return False
            return len(found) == 2 and min(map(len, found)) >= 3 and (workers, found)
        workers, found = wait_until(have_met, 30, "connections over IPv6")
        self.assertEqual({address for one in found for pair in one for address in pair},
                         {LOOPBACK})
        for worker in workers:
            self.assertEqual(connections_of(worker, "tcp"), [])
        self.assertEqual(self.end_of(job), self.end_of(self.start_loop("127.0.0.1:0")))

    def trained(self, address):
        rendezvous = f"{address}:{free_port()}"
        folder = self.folder / address
        launchers = [self.start(TRIREME, "train", DIGITS, *SMALL, "--workers", 2, "--nodes", 2,
                                "--node", node, "--rendezvous", rendezvous, "--quiet", "--set",
                                f"run.dir={folder}",
                                env=environment(TRIREME_HOST=f"node{node}",
                                                TRIREME_JOB_TOKEN="a token of the test of IPv6"))
                     for node in range(2)]
        for launcher in launchers:
            out, err = launcher.communicate(timeout=60)
            self.assertEqual(launcher.returncode, 0, out + err)
        return json.loads((folder / "report.json").read_text())

    def test_a_training_of_two_nodes_that_meet_over_ipv6(self):
        one, other = (self.trained(address)["loss_history"] for address in ("127.0.0.1", "[::1]"))
        self.assertEqual(len(one), 20)
        self.assertEqual(one, other)


if __name__ == "__main__":
    unittest.main()
