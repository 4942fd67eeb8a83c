"""Loops of one's own whose model is on a device give what they give on the CPU (written_loops.cc).
The device is a stand-in whose memory the host cannot read (tests/stand_in)."""

import json
import re
import unittest

from support import BIN, TRIREME, SystemTest, environment

PROGRAMME = BIN / "written_loops"
MISTAKES = BIN / "loop_mistakes"
# "hpu:" is the device of the rank: each process of a host has its own.
ON_DEVICE = {"TEST_DEVICE": "hpu:", "TRIREME_TEST_DEVICES": "3", "OMP_NUM_THREADS": "1"}


class DeviceLoops(SystemTest):
    def run_scenario(self, name, processes, *options, on_device=True, programme=PROGRAMME,
                     **variables):
        words = (programme, name)
        if processes > 1 or options:
            words = (TRIREME, "launch", "--workers", processes, *options, "--", *words)
        return self.run_to_end(*words, timeout=90, env=environment(
            **(ON_DEVICE if on_device else {}),
            **{name: str(value) for name, value in variables.items()}))

    def lines_of(self, name, processes, *options, **variables):
        code, out, err = self.run_scenario(name, processes, *options, **variables)
        self.assertEqual(code, 0, f"{name}, {processes} processes\n{out}\n{err}")
        return [json.loads(line[line.index("{"):]) for line in out.splitlines() if "{" in line]

    def assert_same(self, name, at_least, processes=(1, 2, 3)):
        on_host = self.lines_of(name, 1, on_device=False)  # The loops of the CPU.
        self.assertGreaterEqual(len(on_host), at_least)
        for count in processes:
            with self.subTest(name, processes=count):
                found = self.lines_of(name, count)
                self.assertEqual(len(found), len(on_host))
                for step, (one, other) in enumerate(zip(on_host, found)):
                    for key, value in one.items():
                        self.assertAlmostEqual(other[key], value, delta=1e-9 * max(1, abs(value)),
                                               msg=f"{key} of step {step}")

    def test_the_host_cannot_read_the_device(self):
        code, out, err = self.run_scenario("read_by_the_host", 1)
        self.assertEqual(code, -11, out + err)

    def test_clipping_and_a_schedule(self):
        self.assert_same("plain", at_least=18)

    def test_sums_of_several_backward_calls(self):
        self.assert_same("accumulate", at_least=2)
        self.assert_same("uneven_sum", at_least=1, processes=(3,))

    def test_two_optimizers_of_one_model_add_up_by_weights_once(self):
        self.assert_same("weighed_by_two", at_least=6, processes=(2, 3))

    def test_gradients_that_the_loop_keeps(self):
        self.assert_same("kept", at_least=7, processes=(2,))

    def test_a_model_from_torchscript(self):
        self.assert_same("script", at_least=6, processes=(2,))

    def test_closures(self):
        self.assert_same("lbfgs", at_least=2, processes=(1, 2))

    def test_two_models(self):
        self.assert_same("gan", at_least=6, processes=(2,))

    def test_gradients_of_gradients_and_tied_parameters(self):
        self.assert_same("odd", at_least=6, processes=(2,))

    def test_metrics(self):
        self.assert_same("evaluated_on_a_device", at_least=1, processes=(1, 3))

    def test_unequal_numbers_of_batches(self):
        self.assertEqual(len(self.lines_of("join", 3)), 2)

    def continued(self, processes, *options, **variables):
        return self.lines_of("continued", processes, *options, **variables)[-1]

    def assert_same_end(self, found, expected):
        for key in ("steps", "epochs", "sum"):
            self.assertAlmostEqual(found[key], expected[key], delta=1e-9 * abs(expected[key]),
                                   msg=key)

    def test_checkpoints_move_between_devices_and_numbers_of_processes(self):
        undisturbed = self.continued(1, on_device=False)
        for before, after, on_device in ((2, 2, (True, True)), (1, 2, (True, False)),
                                         (2, 1, (False, True))):
            with self.subTest(before=before, after=after, on_device=on_device):
                folder = self.folder / f"{before}{after}{on_device[0]}"
                self.continued(before, on_device=on_device[0], TEST_FOLDER=folder, TEST_STOP=13)
                found = self.continued(after, on_device=on_device[1], TEST_FOLDER=folder)
                self.assert_same_end(found, undisturbed)

    def test_a_loop_goes_on_without_a_lost_worker(self):
        undisturbed = self.continued(1, on_device=False)
        found = self.continued(3, "--elastic", "2:3", TEST_KILL=7)
        self.assertEqual(found["ranks"], 2)
        self.assert_same_end(found, undisturbed)

    def assert_named(self, name, *parts, processes=2, **variables):
        code, out, err = self.run_scenario(name, processes, **variables)
        self.assertEqual(code, 2, out + err)
        for part in parts:
            self.assertIn(part, err)

    def test_mistakes_are_named(self):
        self.assert_named("moved_later", "is on another device than when its engine was made",
                          "module.to(device) before Distributed or DataParallel is made")
        self.assert_named("one_rank_on_a_device",
                          'device is "cpu" on rank 0, and "hpu" on rank 1')
        self.assert_named("half_on_a_device", "'hidden.weight' is on cpu",
                          "'output.weight' is on hpu:1")

    def test_a_quiet_backward_of_one_of_two_optimizers_is_named(self):
        self.assert_named("weighed_quiet_of_one_of_two", "no_sync() of one of two optimizers",
                          programme=MISTAKES)

    def test_all_ranks_name_the_rank_that_moved_its_model_alone(self):
        code, out, err = self.run_scenario("moved_later", 2, TEST_ALONE=1)
        self.assertEqual(code, 2, out + err)
        named = "rank 1: parameter 'hidden.weight' is on another device"
        self.assertEqual(len(re.findall(rf"^\[[01]\] .*{named}", err, re.M)), 2, err)


if __name__ == "__main__":
    unittest.main()
