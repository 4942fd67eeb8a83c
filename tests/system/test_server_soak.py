"""Random faults in a job of parameter servers: processes of each role (chief, worker, ps,
evaluator) are killed or stopped, one or two at once, in every consistency, and the consistency is
changed meanwhile.

TRIREME_SOAK sets the number of faults (`make soak`: 200), TRIREME_SOAK_SEED repeats a run.
"""

import json
import os
import random
import signal
import subprocess
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
# The changes that a job at its workers' own pace may get.
CHANGES = (("async",), ("stale", "--staleness", "1"), ("sync", "--backup-workers", "1"), ("sync",),
           ("delay_compensated",))
# kind: (weight, role, signal)
STRIKES = {"ps": (6, "ps", signal.SIGKILL), "worker": (3, "worker", signal.SIGKILL),
           "chief": (1, "chief", signal.SIGKILL), "evaluator": (1, "evaluator", signal.SIGKILL),
           "stopped ps": (2, "ps", signal.SIGSTOP),
           "stopped worker": (1, "worker", signal.SIGSTOP)}
FAULTS_OF_A_RUN = 5
EPOCHS = 120


class ServerSoak(SystemTest):
    def strike(self, job, dice, may_change):
        """Injects one random fault; returns its name."""
        weights = {kind: weight for kind, (weight, _, _) in STRIKES.items()}
        weights |= {"one of each": 2, "two servers": 1, "change": 3 if may_change else 0}
        kind = dice.choices(tuple(weights), tuple(weights.values()))[0]
        if kind == "change":
            return self.change(job, dice)
        tasks = tasks_of(job.pid)
        of_role = lambda role: sorted(task for task in tasks if task.startswith(role))
        sends = signal.SIGKILL
        if kind == "one of each":
            victims = [dice.choice(of_role(role)) for role in ("ps", "worker") if of_role(role)]
        elif kind == "two servers":
            victims = dice.sample(of_role("ps"), min(2, len(of_role("ps"))))
        else:
            _, role, sends = STRIKES[kind]
            victims = [dice.choice(of_role(role))] if of_role(role) else []
        self.send(tasks, victims, sends)
        if sends == signal.SIGSTOP:
            # It may come back before the job has lost it, or behind its replacement.
            time.sleep(dice.choice((0.3, 4)))
            self.send(tasks, victims, signal.SIGCONT)
        return f"{kind}: {', '.join(victims)}"

    def send(self, tasks, victims, which):
        for task in victims:
            try:
                os.kill(tasks[task], which)
            except ProcessLookupError:
                pass  # An earlier fault ended it.

    def change(self, job, dice):
        """Asks for another consistency. The server with the clock may be lost just then."""
        words = dice.choice(CHANGES)
        done = subprocess.run([TRIREME, "consistency", *words, "--job", str(job.pid)], timeout=60,
                              capture_output=True, text=True)
        return f"{' '.join(words)}: {done.stdout}{done.stderr}"

    def steps_logged(self, name):
        log = self.folder / name / "log.jsonl"
        return log.read_text(errors="replace").count('"event":"commit"') if log.exists() else 0

    def run_with_faults(self, dice, number, reference):
        mode, more = dice.choice(MODES)
        name = f"run{number}"
        job = self.start(TRIREME, "train", DIGITS, *SMALL, *SERVERS, *RULES, *more, "--ps", "3",
                         "--workers", "3", "--chief", "--evaluator", "--set",
                         f"ps.consistency={mode}", "--set", f"train.epochs={EPOCHS}", "--set",
                         f"run.dir={self.folder / name}",
                         "--report", self.folder / f"{name}.json")
        output = Lines(job)
        wait_until(lambda: self.steps_logged(name) > 3, 60, "the first steps")
        struck = []
        for _ in range(FAULTS_OF_A_RUN):
            time.sleep(dice.choice((0, 0.05, 0.3, 0.8)))
            if job.poll() is not None:
                break
            struck.append(self.strike(job, dice, may_change=mode != "sync" or bool(more)))
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
