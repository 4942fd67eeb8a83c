"""Random faults in a job of parameter servers: processes of each role are killed or stopped, one
or two at once, in every consistency.

TRIREME_SOAK sets the number of faults (`make soak`: 200), TRIREME_SOAK_SEED repeats a run.
"""

import json
import os
import random
import signal
import time
import unittest

from server_jobs import SERVERS, SMALL, Lines, tasks_of
from support import DIGITS, TRIREME, SystemTest, processes_that_mention, wait_until

FAULTS = int(os.environ.get("TRIREME_SOAK", "10"))
SEED = int(os.environ.get("TRIREME_SOAK_SEED", random.SystemRandom().randrange(1 << 32)))
RULES = ("--set", "checkpoint.every=20 steps", "--set", "comm.heartbeat_timeout=2s", "--set",
         "comm.timeout=20s", "--set", "ps.patience=20s", "--set", "train.dtype=float64",
         "--set", "train.evaluate_every=0", "--set", "optimizer.lr=0.02")
MODES = (("sync", ()), ("async", ()), ("stale", ("--set", "ps.staleness=2")),
         ("sync", ("--set", "ps.backup_workers=1")), ("delay_compensated", ()))
FAULTS_OF_A_RUN = 5
EPOCHS = 120


class ServerSoak(SystemTest):
    def strike(self, job, dice):
        """Injects one random fault; returns its name."""
        tasks = tasks_of(job.pid)
        roles = {role: sorted(task for task in tasks if task.startswith(role))
                 for role in ("ps", "worker")}
        kind = dice.choices(("ps", "worker", "one of each", "two servers", "stop"),
                            (6, 3, 2, 1, 2))[0]
        if kind == "one of each":
            victims = [dice.choice(tasks_of_role) for tasks_of_role in roles.values()
                       if tasks_of_role]
        elif kind == "two servers":
            victims = dice.sample(roles["ps"], min(2, len(roles["ps"])))
        else:
            role = "ps" if kind == "stop" else kind
            victims = [dice.choice(roles[role])] if roles[role] else []
        for task in victims:
            try:
                os.kill(tasks[task], signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
            except ProcessLookupError:
                pass  # An earlier fault ended it.
        if kind == "stop":
            # It may come back before the job has lost it, or behind its replacement.
            time.sleep(dice.choice((0.3, 4)))
            for task in victims:
                try:
                    os.kill(tasks[task], signal.SIGCONT)
                except ProcessLookupError:
                    pass
        return f"{kind}: {', '.join(victims)}"

    def steps_logged(self, name):
        log = self.folder / name / "log.jsonl"
        return log.read_text(errors="replace").count('"event":"commit"') if log.exists() else 0

    def run_with_faults(self, dice, number, reference):
        mode, more = dice.choice(MODES)
        name = f"run{number}"
        job = self.start(TRIREME, "train", DIGITS, *SMALL, *SERVERS, *RULES, *more, "--ps", "3",
                         "--workers", "3", "--set", f"ps.consistency={mode}", "--set",
                         f"train.epochs={EPOCHS}", "--set", f"run.dir={self.folder / name}",
                         "--report", self.folder / f"{name}.json")
        output = Lines(job)
        wait_until(lambda: self.steps_logged(name) > 3, 60, "the first steps")
        struck = []
        for _ in range(FAULTS_OF_A_RUN):
            time.sleep(dice.choice((0, 0.05, 0.3, 0.8)))
            if job.poll() is not None:
                break
            struck.append(self.strike(job, dice))
        told = f"seed {SEED}, run {number}, {mode} {more}, {struck}\n"
        try:
            code = job.wait(timeout=150)
        except Exception:
            self.fail(f"{told} still running\n{output.text[-6000:]}")
        self.assertEqual(code, 0, told + output.text[-6000:])
        report = json.loads((self.folder / f"{name}.json").read_text())
        samples = report["samples"]
        self.assertEqual([samples["lost"], samples["repeated"]], [0, 0], told)
        self.assertEqual(samples["expected"], samples["seen_once"], told)
        self.assertEqual(report["epochs"], EPOCHS, told)
        self.assertGreater(report["eval"]["accuracy"], 0.8, told)
        if mode == "sync" and not more:
            self.assert_close(report["loss_history"], reference["loss_history"], 1e-9)
        return len(struck)

    def test_every_sample_is_used_once_whichever_task_is_lost(self):
        dice = random.Random(SEED)
        reference = self.train(*SMALL, *RULES[8:], "--set", f"train.epochs={EPOCHS}", name="one")
        struck, number = 0, 0
        while struck < FAULTS:
            struck += max(1, self.run_with_faults(dice, number, reference))
            number += 1
        wait_until(lambda: not processes_that_mention(str(self.folder)), 20, "all have ended")


if __name__ == "__main__":
    unittest.main()
