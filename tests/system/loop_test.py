"""The programme written_loops and what tests of it have in common."""

import json
import math

from support import BIN, TRIREME, SystemTest, environment, wait_until

PROGRAMME = BIN / "written_loops"


class LoopTest(SystemTest):
    known = {}  # Results that several tests compare with.

    def run_scenario(self, name, processes, between_hosts=False, **variables):
        words = (PROGRAMME, name)
        if between_hosts:  # Each process takes itself for a host.
            words = ("sh", "-c", 'TRIREME_HOST="host$TRIREME_WORKER" exec "$0" "$1"', *words)
        if processes > 1:
            words = (TRIREME, "launch", "--workers", processes, "--", *words)
        return self.run_to_end(*words, timeout=90, env=environment(
            **{key: str(value) for key, value in variables.items()}))

    def lines_of(self, name, processes, **variables):
        code, out, err = self.run_scenario(name, processes, **variables)
        self.assertEqual(code, 0, f"{name}, {processes} processes\n{out}\n{err}")
        return [json.loads(line[line.index("{"):]) for line in out.splitlines() if "{" in line]

    def assert_same_lines(self, found, expected):
        for step, (one, other) in enumerate(zip(expected, found, strict=True)):
            for key, value in one.items():
                self.assertAlmostEqual(other[key], value, delta=1e-9 * max(1, abs(value)),
                                       msg=f"{key} of line {step}")

    def continued(self, *options, processes=1, loop="continued", **variables):
        words = (PROGRAMME, loop)
        if processes > 1 or options:
            words = (TRIREME, "launch", "--workers", processes, *options, "--", *words)
        code, out, err = self.run_to_end(*words, timeout=90, env=environment(
            OMP_NUM_THREADS="1", **{name: str(value) for name, value in variables.items()}))
        self.assertEqual(code, 0, f"{variables}\n{out}\n{err}")
        lines = [line for line in out.splitlines() if "{" in line]
        return json.loads(lines[-1][lines[-1].index("{"):])

    def undisturbed(self, loop="continued"):
        """What a loop of a process alone that continues says at its end."""
        if loop not in self.known:
            self.known[loop] = self.continued(loop=loop)
        return dict(self.known[loop])

    def assert_same_end(self, found, expected, but=("ranks", "drawn")):
        for key in expected.keys() - set(but):
            self.assertAlmostEqual(found[key], expected[key], delta=1e-9 * abs(expected[key]),
                                   msg=key)

    def wait_for_steps(self, record, count, seconds=30):
        """Waits until a loop has recorded so many steps."""
        log = record / "log.jsonl"
        wait_until(lambda: log.exists() and log.read_text().count('"event":"step"') >= count,
                   seconds, f"{count} steps")

    def recorded(self, folder):
        """Returns the report of a loop, and the events of its log by kind."""
        events = {}
        for line in (folder / "log.jsonl").read_text().splitlines():
            event = json.loads(line)
            events.setdefault(event["event"], []).append(event)
        return json.loads((folder / "report.json").read_text()), events

    def assert_each_sample_once(self, folder):
        """The newest records of the steps have the samples of an epoch after epoch: as many, and
        the sum of their first values is that of all samples."""
        events = self.recorded(folder)[1]
        samples = {step["step"]: step["samples"] for step in events["step"]}
        self.assertEqual([samples[step] for step in range(1, 25)], [20, 20, 20, 20, 20, 3] * 4)
        means = {step["step"]: step["values"]["data/first"] for step in events["scalars"]}
        for epoch in range(4):
            steps = range(6 * epoch + 1, 6 * epoch + 7)
            self.assertAlmostEqual(sum(samples[step] * means[step] for step in steps),
                                   sum(math.sin(0.7 * i) for i in range(103)), places=9)
