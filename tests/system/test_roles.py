"""`trireme launch` with roles, units and elastic jobs: what a user sees of them."""

import os
import signal
import time
import unittest

from support import TRIREME, SystemTest

SERVE = "trap 'echo ends; exit 0' TERM; echo serves as $$; while :; do sleep 0.05; done"
TASK = f"""
if [ $TRIREME_ROLE = worker ]; then
  while [ ! -e go ]; do sleep 0.05; done
  echo worker $TRIREME_INDEX of $TRIREME_WORKERS is done
else
  {SERVE}
fi"""


class Roles(SystemTest):
    def read_until(self, job, part):
        """Returns the first line of the job's output that contains `part`."""
        for line in job.stdout:
            if part in line:
                return line
        self.fail(f"the job ended without '{part}'\n{job.stderr.read()}")

    def start_job(self, *options):
        return self.start(TRIREME, "launch", *options, "--", "sh", "-c", TASK)

    def let_workers_finish(self, job):
        (self.folder / "go").touch()
        out, err = job.communicate(timeout=60)
        return job.returncode, out, err

    def test_a_killed_parameter_server_comes_back_in_its_place(self):
        job = self.start_job("--workers", "2", "--ps", "1")
        pid = int(self.read_until(job, "[ps 0] serves as ").split()[-1])
        os.kill(pid, signal.SIGKILL)
        self.assertNotEqual(int(self.read_until(job, "[ps 0] serves as ").split()[-1]), pid)
        code, out, err = self.let_workers_finish(job)
        self.assertEqual(code, 0, err)
        self.assertIn("[1] worker 1 of 2 is done", out)
        self.assertIn("[ps 0] ends", out)
        self.assertIn(f"trireme: ps 0 (pid {pid}) was lost: killed by signal 9 (SIGKILL); "
                      "another process gets its task", err)

    def test_worker_0_is_the_chief(self):
        script = "echo $TRIREME_ROLE $TRIREME_INDEX is ${TRIREME_WORKER:-none}; sleep 0.5"
        code, out, err = self.run_to_end(TRIREME, "launch", "--workers", "2", "--chief", "--ps",
                                         "1", "--", "sh", "-c", script)
        self.assertEqual(code, 0, err)
        for line in ("[0] chief 0 is 0", "[1] worker 1 is 1", "[ps 0] ps 0 is none"):
            self.assertIn(line, out)
        self.assert_refused((TRIREME, "launch", "--chief", "--role", "chief=1", "--", "true"), 2,
                            "--chief", "--role")

    def test_the_job_continues_without_an_evaluator(self):
        job = self.start_job("--workers", "1", "--evaluator")
        pid = int(self.read_until(job, "[evaluator 0] serves as ").split()[-1])
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        code, _, err = self.let_workers_finish(job)
        self.assertEqual(code, 0, err)
        self.assertIn("the job continues without it", err)

    def test_a_role_of_ones_own_ends_the_job(self):
        job = self.start_job("--workers", "1", "--role", "reader=2")
        pid = int(self.read_until(job, "[reader 1] serves as ").split()[-1])
        os.kill(pid, signal.SIGKILL)
        _, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 138, err)
        self.assertIn(f"reader 1 (pid {pid}, host ", err)

    def test_roles_beside_an_elastic_job(self):
        job = self.start_job("--elastic", "1:2", "--ps", "1")
        self.read_until(job, "[ps 0] serves as ")
        code, out, err = self.let_workers_finish(job)
        self.assertEqual(code, 0, err)
        self.assertIn("[ps 0] ends", out)

    def test_wrong_options_are_refused_before_a_process_starts(self):
        for options, parts in (
                (["--ps", "0"], ["the role 'ps' has 0 tasks"]),
                (["--role", "reader"], ["--role is 'reader'", "NAME=COUNT"]),
                (["--role", "=1"], ["the name '' of a role"]),
                (["--role", "worker=1"], ["the role 'worker' is declared"]),
                (["--role", "a=1:forget"], ["'forget' is not a rule",
                                              "end, tell, replace or replace_or_tell"]),
                (["--ps", "1", "--role", "ps=2"], ["'ps' is declared twice"]),
                (["--unit", "2"], ["--unit 2 without --elastic"]),
                (["--elastic", "3:4", "--unit", "2"], ["the minimum of 3", "unit of 2", "2 or 4"]),
                (["--elastic", "2:4", "--workers", "3", "--unit", "2"], ["the number of 3"])):
            with self.subTest(options):
                self.assert_refused([TRIREME, "launch", *options, "--", "echo", "started"], 2,
                                    *parts)


if __name__ == "__main__":
    unittest.main()
