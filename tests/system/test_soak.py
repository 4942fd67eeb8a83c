"""Random faults in a running job. One or more workers, worker 0 too, are killed or stopped at
once, and the job's size changes. Workers also die at moments that a random time rarely meets.

TRIREME_SOAK sets the number of faults (`make soak`: 200), TRIREME_SOAK_SEED repeats a run.
"""

import mmap
import os
import pathlib
import random
import signal
import struct
import time
import unittest

from elastic_job import PATIENCE, ElasticTest
from support import state_and_parent, wait_until

FAULTS = int(os.environ.get("TRIREME_SOAK", "12"))
SEED = int(os.environ.get("TRIREME_SOAK_SEED", random.SystemRandom().randrange(1 << 32)))
RULES = ("--set", "checkpoint.every=10", "--set", "comm.heartbeat_timeout=1s",
         "--set", "comm.timeout=15s")
# A model whose update takes a millisecond, in which a signal can arrive.
WIDE = ("--set", "model.name=mlp", "--set", "model.hidden=[512,512]",
        "--set", "optimizer.momentum=0.9")


class PhasePage:
    """The memory in which a worker writes what it does (trireme/watch/phase_page.cc). It can
    also be read after the worker's death."""

    MARK = 0x7472_6972_656D_6533
    PHASES = ("starting", "connecting", "data", "forward", "backward", "exchange", "optimizer",
              "callbacks", "evaluate", "checkpoint", "idle", "leaving")

    def __init__(self, pid):
        self.pid = pid
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        handle = next(word for word in environment if word.startswith(b"TRIREME_PHASE_PAGE="))
        descriptor = int(handle.split(b"=")[1].split(b":")[0])
        with open(f"/proc/{pid}/fd/{descriptor}", "rb") as file:
            self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if struct.unpack_from("Q", self.memory)[0] != self.MARK:
            raise OSError(f"the page of process {pid} has another layout")

    def phase(self):
        """Returns the worker's phase, and whether it is in a collective."""
        place = struct.unpack_from("Q", self.memory, 24)[0]
        return self.PHASES[place & 0xFF], bool(place >> 8 & 1)


def pages_of(pids):
    """Returns the pages of those processes that still exist."""
    pages = []
    for pid in pids:
        try:
            pages.append(PhasePage(pid))
        except (OSError, StopIteration):
            pass
    return pages


def kill(pid, sign=signal.SIGKILL):
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        pass  # An earlier fault ended it.


class Soak(ElasticTest):
    def strike(self, job, dice):
        """Injects one random fault, and sets the number of workers that are wanted afterwards."""
        workers = sorted(self.workers())
        kind = dice.choices(("kill", "kill the first", "kill two", "stop", "scale"),
                            (8, 4, 2, 1, 2))[0]
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
                    pass  # Between two chiefs: any worker will do.
            for pid in victims:
                kill(pid, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
        # The next fault may also come during a recovery.
        time.sleep(dice.choice((0, 0.02, 0.2, 0.5)))

    def wait_for_all(self, job, before, steps=0):
        self.wait_for(job, lambda: self.step() > before + steps and
                      self.world_size() == self.wanted, "all wanted workers continue")

    def test_every_sample_is_used_once_whatever_happens(self):
        dice = random.Random(SEED)
        self.wanted = 3
        job = self.start_job("1:3", *RULES)
        for fault in range(FAULTS):
            with self.subTest(seed=SEED, fault=fault):
                before = self.step()
                self.strike(job, dice)
                if fault % 3 == 2:
                    self.wait_for_all(job, before)
        self.wait_for_all(job, self.step(), 5)
        self.assert_undisturbed(self.end(job), all_were_lost=True)

    def kill_when(self, pages, holds, dice, most_seconds):
        """Kills one process soon after holds(phase, in a collective) became true. Returns the
        place where it died, or None if the condition never held."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for page in pages:
                if holds(*page.phase()):
                    until = time.perf_counter() + dice.uniform(0, most_seconds)
                    while time.perf_counter() < until:
                        pass
                    kill(page.pid)
                    self.wait_until_dead(page.pid)
                    return page.phase()
            if not any(pathlib.Path(f"/proc/{page.pid}").exists() for page in pages):
                return None
        return None

    def wait_until_dead(self, pid):
        def is_dead():
            try:
                return state_and_parent(pid)[0] in "ZX"
            except OSError:
                return True

        wait_until(is_dead, PATIENCE, f"process {pid} is dead")

    def soak_at(self, wanted_hits, attempt, was_hit):
        """Calls attempt(dice), which kills a process and returns the place where it died, until
        was_hit(phase, in a collective) was true often enough."""
        dice = random.Random(SEED)
        self.wanted = 3
        job = self.start_job("1:3", *RULES, *WIDE)
        hits = 0
        for fault in range(20 * wanted_hits):
            with self.subTest(seed=SEED, fault=fault):
                before = self.step()
                place = attempt(dice)
                hits += place is not None and was_hit(*place)
                self.wait_for_all(job, before)
            if hits == wanted_hits:
                break
        self.assertEqual(hits, wanted_hits, f"seed {SEED}")
        self.wait_for_all(job, self.step(), 5)
        self.assert_undisturbed(self.end(job), all_were_lost=True, words=WIDE)

    def test_deaths_inside_the_update_of_shared_parameters(self):
        def in_update(phase, in_collective):
            return phase == "optimizer" and not in_collective

        def attempt(dice):
            victims = pages_of([dice.choice(sorted(self.workers()))])
            return self.kill_when(victims, in_update, dice, 0.001)

        self.soak_at(max(3, FAULTS // 5), attempt, in_update)

    def test_deaths_between_the_steps_of_a_regrouping(self):
        def regroups(phase, in_collective):
            return phase == "connecting"

        def attempt(dice):
            workers = sorted(self.workers())
            if not workers:
                return None
            first, *others = dice.sample(workers, len(workers))
            pages = pages_of(others)
            kill(first)
            # The kill comes in one of these: the arrival, the meeting, the groups, the state of
            # worker 0.
            return self.kill_when(pages, regroups, dice, dice.choice((0.002, 0.02, 0.1)))

        def had_not_continued(phase, in_collective):
            return phase in ("connecting", "checkpoint")

        self.soak_at(max(3, FAULTS // 5), attempt, had_not_continued)


if __name__ == "__main__":
    unittest.main(verbosity=2)
