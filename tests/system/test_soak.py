"""Random faults in a running job: workers killed and stopped, one or more at once, worker 0 too, and the job's size changed.

TRIREME_SOAK sets the number of faults (`make soak`: 200), TRIREME_SOAK_SEED repeats a run.
"""

import os
import random
import signal
import time
import unittest

from elastic_job import ElasticTest

FAULTS = int(os.environ.get("TRIREME_SOAK", "20"))
SEED = int(os.environ.get("TRIREME_SOAK_SEED", random.SystemRandom().randrange(1 << 32)))

class Soak(ElasticTest):
    def strike(self, job, dice):
        """One random fault, and how many workers are wanted afterwards."""
        workers = sorted(self.workers())
        kind = dice.choices(("kill", "kill the first", "kill two", "stop", "scale"), (8, 4, 2, 1, 2))[0]
        if kind == "scale":
            size = dice.choice((2, 3))
            self.scale(size)
            self.wanted = size
        else:
            victims = dice.sample(workers, min(len(workers), 2 if kind == "kill two" else 1))
            if kind == "kill the first":
                try:
                    victims = [self.chief()]
                except (self.failureException, OSError):
                    pass  # Just between two; then any one.
            for pid in victims:
                try:
                    os.kill(pid, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
                except ProcessLookupError:
                    pass  # An earlier fault ended it.
        time.sleep(dice.choice((0, 0.02, 0.2, 0.5)))  # Also in the middle of a recovery.

    def test_every_sample_is_used_once_whatever_happens(self):
        dice = random.Random(SEED)
        self.wanted = 3
        job = self.start_job("1:3", "--set", "checkpoint.every=10", "--set", "comm.heartbeat_timeout=1s", "--set", "comm.timeout=15s")
        for fault in range(FAULTS):
            with self.subTest(seed=SEED, fault=fault):
                before = self.step()
                self.strike(job, dice)
                if fault % 3 == 2:
                    self.wait_for(job, lambda: self.step() > before and self.world_size() == self.wanted, "all wanted workers go on")
        before = self.step()
        self.wait_for(job, lambda: self.step() > before + 5 and self.world_size() == self.wanted, "all wanted workers go on")
        self.assert_undisturbed(self.end(job), all_were_lost=True)

if __name__ == "__main__":
    unittest.main(verbosity=2)
