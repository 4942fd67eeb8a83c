"""Jobs that meet through etcd: no process knows an address in advance, and etcd leads to the
coordinator that took over from a lost one."""

import json
import os
import pathlib
import signal
import time
import unittest

from elastic_job import COMMON, LONG, ElasticTest
from etcd_server import EtcdServer, is_installed
from support import DIGITS, TRIREME, environment, free_port, parent_of, wait_until

TOKEN = "a token of this test"


def has_handler_of_sigterm(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1


SHORT = ("--quiet", "--set", "train.steps=10", "--workers", "2")


@unittest.skipUnless(is_installed(),
                     "there is no etcd (scripts/setup test installs Debian's etcd-server)")
class Etcd(ElasticTest):
    @classmethod
    def setUpClass(cls):
        cls.etcd = EtcdServer()
        cls.addClassCleanup(cls.etcd.end)

    def setUp(self):
        super().setUp()
        self.job = self._testMethodName
        self.rendezvous = f"etcd://{self.etcd.address}/{self.job}"

    def launcher(self, *words, token=TOKEN):
        """Starts a launcher of a short job."""
        return self.start(TRIREME, "train", DIGITS, *SHORT, "--rendezvous", self.rendezvous,
                          *words, "--set", f"run.dir={self.run_dir}",
                          env=environment(TRIREME_JOB_TOKEN=token))

    def scale_by_etcd(self, workers, **variables):
        return self.run_to_end(TRIREME, "scale", workers, "--rendezvous", self.rendezvous,
                               env=environment(XDG_RUNTIME_DIR=str(self.folder), **variables))

    def test_two_launchers_meet_in_any_order_and_leave_nothing(self):
        second = self.launcher("--nodes", "2", "--node", "1")
        first = self.launcher("--nodes", "2", "--node", "0", "--report",
                              self.folder / "report.json")
        for launcher in (first, second):
            _, err = launcher.communicate(timeout=60)
            self.assertEqual(launcher.returncode, 0, err)
        self.assertEqual(json.loads((self.folder / "report.json").read_text())["world_size"], 2)
        self.assertEqual(self.etcd.coordinator(self.job), "")

    def test_any_programme_may_be_launched(self):
        script = 'echo "$TRIREME_RENDEZVOUS"'
        code, out, err = self.run_to_end(TRIREME, "launch", "--workers", "2", "--no-prefix",
                                         "--rendezvous", self.rendezvous, "--",
                                         "sh", "-c", script)
        self.assertEqual((code, out), (0, f"{self.rendezvous}\n" * 2), err)

    def test_without_the_first_node_replacements_find_the_new_coordinator(self):
        launchers = self.start_nodes("1:4", 2, rendezvous=self.rendezvous)
        before = self.generation()
        first = self.etcd.coordinator(self.job)
        for pid in [launchers[0].pid, *(pid for pid in self.workers() if parent_of(pid)
                                        == launchers[0].pid)]:
            os.kill(pid, signal.SIGKILL)
        before = self.wait_until_whole(launchers[1], 2, before)
        self.assertNotIn(self.etcd.coordinator(self.job), ("", first))
        for victim in (max, min):  # One of them is the coordinator.
            os.kill(victim(self.workers()), signal.SIGKILL)
            before = self.wait_until_whole(launchers[1], 2, before)
        code, _, err = self.scale_by_etcd(3, TRIREME_JOB_TOKEN=TOKEN)
        self.assertEqual(code, 2, err)
        self.assertIn("this job has several nodes", err)  # The new coordinator says so.
        launchers[1].send_signal(signal.SIGTERM)
        _, err = launchers[1].communicate(timeout=30)
        self.assertEqual(launchers[1].returncode, 143, err)
        self.assertEqual(self.etcd.coordinator(self.job), "")
        report = json.loads((self.run_dir / "report.json").read_text())
        self.assert_undisturbed(report)
        self.assertEqual(sum(len(each["lost_ranks"]) for each in report["generations"]), 4,
                         report["generations"])

    def test_a_launcher_that_was_stopped_for_too_long_continues_without_the_coordinator(self):
        launchers = self.start_nodes("1:2", 2, rendezvous=self.rendezvous)
        of_first, of_second = (next(pid for pid in self.workers() if parent_of(pid)
                                    == launcher.pid) for launcher in launchers)
        before = self.generation()
        launchers[0].send_signal(signal.SIGSTOP)
        wait_until(lambda: not self.etcd.coordinator(self.job), 20, "its lease has run out")
        os.kill(of_second, signal.SIGKILL)
        before = self.wait_until_whole(launchers[1], 2, before)
        launchers[0].send_signal(signal.SIGCONT)
        os.kill(of_first, signal.SIGKILL)
        self.wait_until_whole(launchers[0], 2, before)
        for launcher in launchers:
            launcher.send_signal(signal.SIGTERM)
        errors = [launcher.communicate(timeout=30)[1] for launcher in launchers]
        self.assertEqual([launcher.returncode for launcher in launchers], [143, 143], errors)
        self.assertIn("another coordinator has taken over; this launcher continues with its "
                      "workers", errors[0])
        self.assertNotIn("it is killed", errors[0])
        report = json.loads((self.run_dir / "report.json").read_text())
        self.assert_undisturbed(report)
        self.assertEqual(sum(len(each["lost_ranks"]) for each in report["generations"]), 2,
                         report["generations"])

    def test_scale_finds_the_job_from_anywhere_also_after_a_take_over(self):
        job = self.start(TRIREME, "train", DIGITS, "--elastic", "1:3", *COMMON, *LONG, "--quiet",
                         "--rendezvous", self.rendezvous, "--set",
                         f"run.dir={self.run_dir}",
                         env=environment(XDG_RUNTIME_DIR=str(self.tokens),
                                         TRIREME_JOB_TOKEN=TOKEN))
        self.wait_for(job, lambda: self.step() >= 10, "the first steps")
        before = self.generation()
        code, out, err = self.scale_by_etcd(2, TRIREME_JOB_TOKEN=TOKEN)
        self.assertEqual(code, 0, err)
        self.assertIn(f"job {self.job}: 3 workers now, 2 from the next steps on", out)
        before = self.wait_until_whole(job, 2, before)
        self.kill_the_launcher(job)
        before = self.wait_until_whole(None, 2, before)
        code, _, err = self.scale_by_etcd(1, TRIREME_JOB_TOKEN=TOKEN)
        self.assertEqual(code, 0, err)
        self.wait_until_whole(None, 1, before)
        self.assert_undisturbed(self.end_of_orphans())
        self.assertEqual(self.etcd.coordinator(self.job), "")

    def test_a_job_continues_while_etcd_is_away(self):
        job = self.start(TRIREME, "train", DIGITS, "--elastic", "1:2", *COMMON, *LONG, "--quiet",
                         "--rendezvous", self.rendezvous, "--set",
                         f"run.dir={self.run_dir}",
                         env=environment(XDG_RUNTIME_DIR=str(self.tokens),
                                         TRIREME_JOB_TOKEN=TOKEN))
        self.wait_for(job, lambda: self.step() >= 10, "the first steps")
        before, coordinator = self.generation(), self.etcd.coordinator(self.job)
        self.etcd.stop()
        self.addCleanup(self.etcd.go_on)
        steps = self.step()
        self.wait_for(job, lambda: self.step() >= steps + 20, "more steps")
        os.kill(max(self.workers() - {self.chief()}), signal.SIGKILL)
        self.etcd.go_on()
        self.wait_until_whole(job, 2, before)
        self.assertEqual(self.etcd.coordinator(self.job), coordinator)
        self.assert_undisturbed(self.end(job))

    def test_a_name_that_is_taken_is_refused_and_free_again_afterwards(self):
        long = self.start(TRIREME, "launch", "--workers", "1", "--rendezvous", self.rendezvous,
                          "--", "sleep", "60")
        wait_until(lambda: self.etcd.coordinator(self.job), 20, "it is published")
        self.assert_refused([TRIREME, "launch", "--workers", "1", "--rendezvous", self.rendezvous,
                             "--", "echo", "started"], 2,
                            f"a job with the name '{self.job}' is running",
                            self.etcd.coordinator(self.job), timeout=5)
        os.killpg(long.pid, signal.SIGKILL)
        code, out, err = self.run_to_end(TRIREME, "launch", "--workers", "1", "--no-prefix",
                                         "--rendezvous", self.rendezvous, "--", "echo",
                                         "started", timeout=20)
        self.assertEqual((code, out), (0, "started\n"), err)

    def test_an_etcd_that_is_silent_at_the_start_is_asked_again(self):
        self.addCleanup(self.etcd.go_on)
        for node in ("0", "1"):
            self.etcd.stop()
            launchers = {node: self.launcher("--nodes", "2", "--node", node)}
            time.sleep(1.5)  # A server has 1 s to answer.
            self.assertIsNone(launchers[node].poll())
            self.etcd.go_on()
            other = str(1 - int(node))
            launchers[other] = self.launcher("--nodes", "2", "--node", other)
            for launcher in launchers.values():
                _, err = launcher.communicate(timeout=60)
                self.assertEqual(launcher.returncode, 0, err)

    def test_without_an_etcd_the_job_may_be_tried_again(self):
        nowhere = f"etcd://127.0.0.1:{free_port()}/job"
        for node in ("0", "1"):
            self.assert_refused([TRIREME, "train", DIGITS, *SHORT, "--set", "comm.timeout=1s",
                                 "--set", f"run.dir={self.run_dir}", "--nodes", "2", "--node",
                                 node,
                                 "--rendezvous", nowhere], 138, "etcd does not answer",
                                nowhere[7:-4], timeout=20,
                                env=environment(TRIREME_JOB_TOKEN=TOKEN))
        waiting = self.start(TRIREME, "launch", "--nodes", "2", "--node", "0", "--rendezvous",
                             nowhere, "--", "true", env=environment(TRIREME_JOB_TOKEN=TOKEN))
        wait_until(lambda: has_handler_of_sigterm(waiting.pid), 20, "it watches for signals")
        waiting.send_signal(signal.SIGTERM)
        _, err = waiting.communicate(timeout=10)
        self.assertEqual(waiting.returncode, 143, err)

    def test_wrong_input_is_refused_at_once(self):
        for url, why in (("etcd://127.0.0.1:2379", "names no job"),
                         ("etcd://127.0.0.1/job", "is not HOST:PORT"),
                         ("etcd://127.0.0.1:2379/a/b", "other characters")):
            self.assert_refused([TRIREME, "launch", "--rendezvous", url, "--", "true"], 2, url,
                                why, "etcd://HOST:PORT", timeout=5)
        self.assert_refused([TRIREME, "launch", "--nodes", "2", "--rendezvous", self.rendezvous,
                             "--", "true"], 2, "no job token", timeout=5)

    def test_scale_names_the_missing_token_or_job(self):
        code, _, err = self.scale_by_etcd(2)
        self.assertEqual(code, 2, err)
        self.assertIn("no job token", err)
        code, _, err = self.scale_by_etcd(2, TRIREME_JOB_TOKEN=TOKEN)
        self.assertEqual(code, 138, err)
        for part in (self.rendezvous, f"/trireme/{self.job}/coordinator",
                     "no coordinator is published"):
            self.assertIn(part, err)

    def test_a_wrong_token_is_refused(self):
        first = self.launcher("--nodes", "2", "--node", "0", "--set", "comm.timeout=8s")
        second = self.launcher("--nodes", "2", "--node", "1", "--set", "comm.timeout=8s",
                               token="another token than the job's")
        _, err = second.communicate(timeout=30)
        self.assertEqual(second.returncode, 2, err)
        self.assertIn("token", err)
        first.communicate(timeout=30)
        self.assertNotEqual(first.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
