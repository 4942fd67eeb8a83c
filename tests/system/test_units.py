"""Workers of an elastic job that come and go in units of two (`trireme launch --unit 2`)."""

import os
import signal
import unittest

from world_job import WorldTest


def units(members):
    return [tuple(members[i:i + 2]) for i in range(0, len(members), 2)]


class Units(WorldTest):
    def start_job(self, elastic):
        """Starts a job of two units; returns it with its first generation."""
        job = self.launch("--elastic", elastic, "--unit", "2")
        return job, *self.wait_for_generation(job, 4)

    def assert_whole_units(self):
        """Checks that no process was told of a generation that is not of whole units."""
        places = self.events("place")
        self.assertEqual({event["workers"] % 2 for event in places}, {0}, places)

    def assert_new_in_the_place_of(self, victim, members, before):
        newcomer = members[before.index(victim)]
        self.assertNotIn(newcomer, before)
        self.assertEqual(members, [newcomer if pid == victim else pid for pid in before])

    def test_a_replacement_fills_the_hole_of_a_killed_worker(self):
        job, number, before = self.start_job("2:4")
        os.kill(before[3], signal.SIGKILL)
        number, members = self.wait_for_generation(job, 4, number)
        self.assert_new_in_the_place_of(before[3], members, before)
        # The unit that stayed whole is the first one then, and the hole is in the second one.
        before = members
        os.kill(before[0], signal.SIGKILL)
        number, members = self.wait_for_generation(job, 4, number)
        newcomer = (set(members) - set(before)).pop()
        self.assertEqual(set(units(members)), {(newcomer, before[1]), (before[2], before[3])})
        self.assert_whole_units()
        self.go.touch()
        self.end(job)
        self.assertEqual({event["pid"] for event in self.events("finished")}, set(members))

    def test_the_whole_unit_continues_while_the_other_one_has_a_hole(self):
        job, number, before = self.start_job("2:4")
        os.kill(before[2], signal.SIGKILL)
        number, members = self.wait_for_generation(job, 4, number)
        between = [each for each in self.generations() if 0 < each[0] < number]
        self.assertEqual([each[1] for each in between], [before[:2]] * len(between))
        self.assert_new_in_the_place_of(before[2], members, before)
        self.go.touch()
        self.end(job)

    def test_with_a_minimum_of_all_units_the_others_wait_for_the_replacement(self):
        job, number, before = self.start_job("4:4")
        os.kill(before[1], signal.SIGKILL)
        after, members = self.wait_for_generation(job, 4, number)
        self.assertEqual(after, number + 1)
        self.assert_new_in_the_place_of(before[1], members, before)
        # Only the newcomer has no state for its position.
        steps = [event["steps"] for event in self.events("place") if event["generation"] == after]
        self.assertEqual([step < 0 for step in steps[0]], [False, True, False, False], steps)
        job.send_signal(signal.SIGTERM)
        self.end(job, code=143)

    def test_scale_removes_and_adds_whole_units(self):
        job, number, before = self.start_job("2:4")
        code, _, err = self.scale(2)
        self.assertEqual(code, 0, err)
        number, members = self.wait_for_generation(job, 2, number)
        self.assertEqual(members, before[:2])
        self.wait_for(job, lambda: len(self.events("dismissed")) == 2, "two are dismissed")
        self.assertEqual({event["pid"] for event in self.events("dismissed")}, set(before[2:]))
        code, _, err = self.scale(3)
        self.assertEqual(code, 2, err)
        self.assertIn("unit", err)
        code, _, err = self.scale(4)
        self.assertEqual(code, 0, err)
        number, members = self.wait_for_generation(job, 4, number)
        self.assertEqual(members[:2], before[:2])
        self.assertFalse(set(members[2:]) & set(before))
        self.assert_whole_units()
        self.go.touch()
        self.end(job)


if __name__ == "__main__":
    unittest.main(verbosity=2)
