"""The end of a worker ends the job, which names it; a request to stop saves first; no process is
left behind."""

import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import termios
import time
import unittest

from support import DIGITS, TRIREME, SystemTest, environment, processes_that_mention, wait_until

LONG = ("--set", "train.epochs=100000", "--set", "train.evaluate_every=0")


class Failures(SystemTest):
    def start_training(self, *words):
        """Starts a long run with JSON lines; returns its process after some steps."""
        run_dir = self.folder / "run"
        process = self.start(TRIREME, "train", DIGITS, *LONG, "--set", f"run.dir={run_dir}",
                             "--quiet", *words)
        log = run_dir / "log.jsonl"
        # After so many steps, heartbeats have reported some of them.
        wait_until(lambda: log.exists() and log.read_text().count('"event":"step"') > 100, 60,
                   "the first steps")
        return process

    def workers(self):
        return sorted(pid for pid, command in processes_that_mention(str(self.folder))
                      if "trireme-worker" in command)

    def assert_nothing_left(self):
        wait_until(lambda: not processes_that_mention(str(self.folder)), 5,
                   "all processes are gone")

    def end_of(self, process, seconds):
        began = time.monotonic()
        out, err = process.communicate(timeout=seconds + 20)
        self.assertLessEqual(time.monotonic() - began, seconds)
        return process.returncode, out, err

    def test_a_killed_worker_ends_the_job_within_10_seconds_and_is_named(self):
        for workers in (2, 3):
            with self.subTest(workers=workers):
                process = self.start_training("--workers", workers)
                pids = self.workers()
                self.assertEqual(len(pids), workers)
                victim = pids[-1]
                os.kill(victim, signal.SIGKILL)
                code, out, err = self.end_of(process, 10)
                self.assertEqual(code, 138, err)
                verdict = [line for line in err.splitlines() if f"pid {victim}" in line
                           and "SIGKILL" in line]
                self.assertTrue(verdict, err)
                self.assertRegex(verdict[0], r"worker \d .* in \w+ of step \d+")
                self.assert_nothing_left()
                (self.folder / "run" / "log.jsonl").unlink()

    def test_a_worker_that_falls_silent_is_lost_by_its_deadline(self):
        process = self.start_training("--workers", "2", "--set", "comm.heartbeat_timeout=2s")
        victim = self.workers()[-1]
        os.kill(victim, signal.SIGSTOP)
        code, out, err = self.end_of(process, 12)
        self.assertEqual(code, 138, err)
        self.assertRegex(err, r"worker 1 .* of step \d+: silent for 2\.")
        self.assert_nothing_left()

    def test_sigterm_saves_and_ends_with_143_and_the_run_continues_from_there(self):
        for words in ((), ("--workers", "2"), ("--set", "strategy.replicas=2")):
            with self.subTest(words):
                ckpt = self.folder / f"ckpt{len(words)}{words[0][2:4] if words else ''}"
                process = self.start_training(*words, "--set", f"checkpoint.dir={ckpt}")
                process.send_signal(signal.SIGTERM)
                code, out, err = self.end_of(process, 20)
                self.assertEqual(code, 143, err)
                report = json.loads((self.folder / "run" / "report.json").read_text())
                self.assertTrue(report["stopped"])
                self.assertEqual(pathlib.Path(report["checkpoint"]).name,
                                 f"step-{report['steps']:09d}")
                self.assert_nothing_left()
                rest = self.train(*words, "--set", f"checkpoint.dir={ckpt}", "--set",
                                  f"train.steps={report['steps'] + 5}", name="rest")
                self.assertEqual(rest["resumed_from_step"], report["steps"])
                self.assertEqual(rest["loss_history"][: report["steps"]], report["loss_history"])
                (self.folder / "run" / "log.jsonl").unlink()

    def start_in_terminal(self, *words):
        """Starts a command in a terminal of its own; returns its process and the terminal."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        process = subprocess.Popen([TRIREME, *words], stdin=slave, stdout=slave, stderr=slave,
                                   env=environment(TERM="xterm", COLUMNS="100", CI=""),
                                   start_new_session=True, cwd=self.folder,
                                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.started.append(process)
        os.close(slave)
        return process, master

    def read_terminal(self, terminal, seen, condition, seconds):
        """Adds to `seen` what appears until the condition holds; returns whether it does."""
        deadline = time.monotonic() + seconds
        os.set_blocking(terminal, False)
        while time.monotonic() < deadline:
            try:
                seen.extend(os.read(terminal, 65536))
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # Nobody writes to it any more.
                return condition()
            if condition():
                return True
        return False

    def test_a_missing_folder_for_the_report_is_asked_for_in_a_terminal(self):
        report = self.folder / "results" / "deep" / "r.json"
        words = ("train", DIGITS, "--set", "train.steps=2", "--set",
                 f"run.dir={self.folder / 'run'}", "--report", report)
        for answer, code in ((b"n\n", 2), (b"\n", 2), (b"y\n", 0)):
            process, terminal = self.start_in_terminal(*words)
            seen = bytearray()
            self.assertTrue(self.read_terminal(terminal, seen, lambda: b"[y/N]" in seen, 20), seen)
            os.write(terminal, answer)
            self.read_terminal(terminal, seen, lambda: process.poll() is not None, 60)
            self.assertEqual(process.wait(timeout=20), code, seen)
            self.assertEqual(report.exists(), code == 0, answer)
            self.assertEqual(report.parent.exists(), code == 0, answer)

    def test_ctrl_c_in_a_terminal_saves_once(self):
        run_dir = self.folder / "run"
        process, master = self.start_in_terminal("train", DIGITS, *LONG, "--workers", "2", "--set",
                                                 f"run.dir={run_dir}")
        seen = bytearray()

        def read_until(condition, seconds):
            return self.read_terminal(master, seen, condition, seconds)

        self.assertTrue(read_until(lambda: len(re.findall(rb"loss ", seen)) > 3, 60), seen[-2000:])
        os.write(master, b"\x03")
        read_until(lambda: process.poll() is not None, 20)
        self.assertEqual(process.wait(timeout=20), 143, seen[-2000:])
        read_until(lambda: False, 5)  # The terminal may still have the last lines.
        self.assertIn(b"checkpoint", seen)
        self.assert_nothing_left()

    def test_killing_the_launcher_leaves_no_worker(self):
        process = self.start_training("--workers", "2")
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)
        self.assert_nothing_left()

    def test_output_of_workers_is_prefixed_by_rank(self):
        code, out, err = self.run_to_end(TRIREME, "launch", "--workers", "3", "--", "sh", "-c",
                                         "echo hello $TRIREME_WORKER of $TRIREME_WORKERS")
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(out.splitlines()), [f"[{i}] hello {i} of 3" for i in range(3)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
