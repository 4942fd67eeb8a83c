"""Training loops as people write them for one process give the same with 1, 2 and 3 processes
(written_loops.cc)."""

import json
import unittest

import torch
from loop_test import PROGRAMME, LoopTest
from safetensors.torch import load_file
from support import BIN, ROOT, TRIREME, environment

# One job runs them all, because its start takes longer than they do.
TOGETHER = ("plain", "accumulate", "uneven_sum", "uneven_sum_of_two", "script", "kept", "lbfgs",
            "gan", "odd", "plateau", "weighed", "weighed_twice", "weighed_by_two", "weighed_alone",
            "weighed_apart", "evaluated_by_shares", "applied", "norms_of_all",
            "two_on_one_module", "own_sampler", "evaluated", "loaded", "grouped")


class WrittenLoops(LoopTest):
    def lines_of_one_together(self, name, processes, between_hosts):
        known, job = self.known, ("together", processes, between_hosts)
        if job not in known:
            known[job] = "an earlier test told how this job failed"
            found = {}
            for line in self.lines_of("+".join(TOGETHER), processes, between_hosts=between_hosts):
                if "loop" in line:
                    lines = found.setdefault(line["loop"], [])
                else:
                    lines.append(line)
            known[job] = found
        self.assertIsInstance(known[job], dict, known[job])
        return known[job][name]

    def assert_same(self, name, tolerance, at_least, between_hosts=False):
        alone = self.lines_of_one_together(name, 1, False)
        self.assertGreaterEqual(len(alone), at_least)
        for processes in (2, 3):
            with self.subTest(name, processes=processes):
                together = self.lines_of_one_together(name, processes, between_hosts)
                self.assertEqual(len(together), len(alone))
                for step, (one, other) in enumerate(zip(alone, together)):
                    for key, value in one.items():
                        self.assertAlmostEqual(other[key], value,
                                               delta=tolerance * max(1, abs(value)),
                                               msg=f"{key} of step {step}")

    def assert_same_on_one_host_and_between_hosts(self, name):
        for between_hosts in (False, True):
            self.assert_same(name, 1e-9, at_least=6, between_hosts=between_hosts)

    def test_clipping_and_a_schedule_see_the_global_batch(self):
        self.assert_same("plain", 1e-9, at_least=18)

    def test_a_process_alone_is_the_unmodified_programme_bit_for_bit(self):
        self.assertEqual(self.lines_of("plain", 1), self.lines_of("unmodified", 1))

    def test_several_backward_calls_add_up(self):
        self.assert_same("accumulate", 1e-9, at_least=2)

    def test_sums_of_unequal_shares_weigh_each_batch_by_its_own(self):
        for loop in ("uneven_sum", "uneven_sum_of_two"):
            with self.subTest(loop):
                self.assert_same(loop, 1e-9, at_least=1)

    def test_a_model_from_torchscript(self):
        self.assert_same("script", 1e-9, at_least=12)

    def test_a_model_from_torchscript_continues(self):
        whole = self.lines_of("script", 1)
        for before, after in ((1, 1), (1, 2), (2, 1)):
            with self.subTest(before=before, after=after):
                folder = self.folder / f"script-{before}-{after}"
                parts = self.lines_of("script", before, TEST_FOLDER=folder, TEST_STOP=8)
                parts += self.lines_of("script", after, TEST_FOLDER=folder)
                self.assert_same_lines(parts, whole)

    def test_kept_gradients_stay_and_evaluations_change_nothing(self):
        self.assert_same("kept", 1e-9, at_least=7)

    def test_closures_get_the_mean_loss(self):
        self.assert_same("lbfgs", 1e-8, at_least=2)

    def test_two_models_with_an_optimizer_each(self):
        self.assert_same("gan", 1e-9, at_least=6)

    def test_odd_parameters_and_gradients_of_gradients(self):
        self.assert_same("odd", 1e-9, at_least=6)

    def test_a_schedule_that_looks_at_the_loss_gets_that_of_all_ranks(self):
        rates = [line["rate"] for line in self.lines_of("plateau", 1)]
        self.assertGreaterEqual(len(set(rates)), 3)
        self.assert_same("plateau", 1e-9, at_least=12)

    def test_such_a_schedule_and_numbers_of_the_programme_continue(self):
        whole = self.lines_of("plateau", 1)
        for stop in (1, 4, 7):
            with self.subTest(stop=stop):
                folder = self.folder / f"after {stop}"
                parts = (self.lines_of("plateau", 2, TEST_FOLDER=folder, TEST_STOP=stop)
                         + self.lines_of("plateau", 1, TEST_FOLDER=folder))
                for key in ("rate", "lowest", "seen", "sum"):
                    for one, other in zip(whole, parts, strict=True):
                        self.assertAlmostEqual(one[key], other[key], places=9, msg=key)

    def test_losses_that_are_sums_or_have_weights_of_classes(self):
        self.assert_same("weighed", 1e-9, at_least=6)

    def test_several_backward_calls_count_by_weights_of_their_own(self):
        self.assert_same_on_one_host_and_between_hosts("weighed_twice")

    def test_two_optimizers_of_one_model_add_up_by_weights_once(self):
        self.assert_same_on_one_host_and_between_hosts("weighed_by_two")

    def test_what_has_counted_counts_once_if_one_rank_alone_has_a_quiet_backward(self):
        self.assert_same_on_one_host_and_between_hosts("weighed_alone")

    def test_a_weight_of_0_does_not_concern_a_model_that_the_backward_does_not_reach(self):
        self.assert_same("weighed_apart", 1e-9, at_least=6)

    def test_an_evaluation_that_shares_batches_changes_nothing(self):
        self.assert_same("evaluated_by_shares", 1e-9, at_least=6)

    def test_parameters_may_be_filled_on_all_ranks_after_wrapping(self):
        self.assert_same("applied", 1e-9, at_least=6)

    def test_batch_norm_over_all_ranks(self):
        self.assert_same("norms_of_all", 1e-9, at_least=5)

    def test_two_optimizers_of_one_model(self):
        self.assert_same("two_on_one_module", 1e-9, at_least=6)

    def test_a_sampler_of_ones_own_shares_by_the_world(self):
        self.assert_same("own_sampler", 1e-9, at_least=12)

    def test_metrics_count_each_sample_once(self):
        self.assert_same("evaluated", 1e-12, at_least=7)

    def assert_joined(self, name, at_least, processes, **variables):
        """The ranks together give what a process alone does with the batches of all of them."""
        lines = []
        for count in (1, processes):
            own = {key: f"{folder}-{count}" if "/" in str(folder) else str(folder)
                   for key, folder in variables.items()}
            words = (PROGRAMME, name)
            if count > 1:
                words = (TRIREME, "launch", "--workers", count, "--", *words)
            code, out, err = self.run_to_end(*words, timeout=90, env=environment(
                OMP_NUM_THREADS="1", TEST_RANKS=str(processes), **own))
            self.assertEqual(code, 0, f"{name}, {count} processes\n{out}\n{err}")
            lines.append([json.loads(line[line.index("{"):]) for line in out.splitlines()
                          if line.endswith("}")])
        self.assertGreaterEqual(len(lines[0]), at_least)
        self.assertEqual(len(lines[0]), len(lines[1]))
        for one, other in zip(*lines):
            for key, value in one.items():
                self.assertAlmostEqual(other[key], value, delta=1e-9 * max(1, abs(value)),
                                       msg=key)

    def test_ranks_with_unequal_numbers_of_batches(self):
        for processes in (2, 3):
            for reverse in (0, 1):
                with self.subTest(processes=processes, reverse=reverse):
                    self.assert_joined("join", 2, processes, TEST_REVERSED=reverse)
                    self.assert_joined("joined_closures", 1, processes, TEST_REVERSED=reverse)
                    self.assert_joined("joined_sums", 1, processes, TEST_REVERSED=reverse)

    def test_two_optimizers_a_record_and_checkpoints_with_unequal_numbers_of_batches(self):
        for processes in (2, 3):
            for reverse in (0, 1):
                with self.subTest(processes=processes, reverse=reverse):
                    folder = self.folder / f"{processes}-{reverse}"
                    self.assert_joined("joined_gan", 2, processes, TEST_REVERSED=reverse,
                                       TEST_FOLDER=folder / "c", TEST_RECORD=folder / "r")
                    self.assert_same_files(folder, processes)

    def assert_same_files(self, folder, processes):
        (alone, events), (report, found) = (self.recorded(folder / f"r-{count}")
                                            for count in (1, processes))
        self.assertEqual(report["steps"], 2 * 2 * processes)
        for one, other in zip(alone["loss_history"], report["loss_history"], strict=True):
            self.assertAlmostEqual(one, other, delta=1e-9)
        for one, other in zip(events["scalars"], found["scalars"], strict=True):
            self.assertEqual(one["step"], other["step"])
            self.assertEqual(one["values"].keys(), other["values"].keys())
        self.assertEqual({step["learning_rate"] for step in found["step"]}, {0.02})
        saves = [sorted((folder / f"c-{count}").glob("step-*")) for count in (1, processes)]
        self.assertEqual([save.name for save in saves[0]], [save.name for save in saves[1]])
        self.assertGreaterEqual(len(saves[0]), 2)
        for one, other in zip(*saves):
            for kind in ("model", "optimizer"):
                tensors, others = (load_file(save / f"{kind}.safetensors")
                                   for save in (one, other))
                for name in tensors.keys() - {"random"}:
                    if "random" not in name:
                        self.assertTrue(torch.allclose(tensors[name], others[name], rtol=1e-9),
                                        f"{name} of {other}")

    def test_ranks_draw_other_numbers_and_rank_0_those_of_a_process_alone(self):
        for name, processes in (("noise", 3), ("noise_of_replicas", 2), ("noise_of_replicas", 3)):
            with self.subTest(name, processes=processes):
                drawn, again = ({line["rank"]: line["drawn"]
                                 for line in self.lines_of(name, processes)} for _ in range(2))
                alone = self.lines_of(name, 1)[0]["drawn"]
                self.assertEqual(drawn[0], alone)
                self.assertEqual(drawn, again)
                self.assertTrue(alone)
                for numbers in zip(*drawn.values(), strict=True):
                    self.assertEqual(len(set(numbers)), processes)

    def test_injected_faults_strike_in_a_loop_of_replicas(self):
        for phase in ("forward", "backward", "exchange", "optimizer"):
            for apart in ({}, {"TEST_APART": "1"}):
                with self.subTest(phase, **apart):
                    code, out, err = self.run_to_end(
                        TRIREME, "launch", "--workers", "2", "--inject",
                        f"kill:rank=1@step=4,phase={phase}", "--", PROGRAMME, "noise_of_replicas",
                        timeout=60, env=environment(OMP_NUM_THREADS="1", TEST_STEPS="6", **apart))
                    self.assertNotEqual(code, 0, out + err)
                    self.assertRegex(err, r"worker 1 .* was killed by signal 9 \(SIGKILL\) in "
                                     rf"{phase} of step 4 ")
                    self.assertNotIn("none of the faults", err)

    def test_groups_of_parameters_have_learning_rates_of_their_own(self):
        self.assert_same("grouped", 1e-9, at_least=24)
        whole = self.lines_of("grouped", 1)
        self.assertAlmostEqual(whole[0]["rates"], 10 * 0.02 + 0.005)
        self.assertAlmostEqual(whole[-1]["rates"],
                               100 * 0.02 / 32 + 10 * 0.005 / 32 + 0.04 / 8)
        for stop, joined in ((5, 0), (14, 1)):  # Before and behind the step that adds a group.
            for before, after in ((1, 1), (2, 1), (1, 3)):
                with self.subTest(stop=stop, before=before, after=after):
                    folder = self.folder / f"{stop}-{before}-{after}"
                    parts = self.lines_of("grouped", before, TEST_FOLDER=folder, TEST_STOP=stop)
                    parts += self.lines_of("grouped", after, TEST_FOLDER=folder,
                                           TEST_JOINED=joined)
                    self.assert_same_lines(parts, whole)

    def test_a_loop_without_state_may_add_a_group_again(self):
        whole = self.lines_of("grouped_without_state", 1)
        folder = self.folder / "run"
        parts = self.lines_of("grouped_without_state", 1, TEST_STOP=14, TEST_FOLDER=folder)
        again = {"TEST_FOLDER": folder, "TEST_JOINED": 2}
        self.assert_same_lines(parts + self.lines_of("grouped_without_state", 2, **again), whole)
        code, out, err = self.run_scenario("grouped_without_state", 1, TEST_FOLDER=folder,
                                           TEST_JOINED=3)
        self.assertEqual(code, 0, out + err)
        self.assertIn("with the learning rate 0.04, and the checkpoint has 0.02", err)

    def test_a_checkpoint_with_other_groups_of_parameters_is_refused(self):
        for stop, joined, saved in ((5, 1, 2), (14, 0, 3), (14, 2, 3)):
            folder = self.folder / f"{stop}-{joined}"
            self.lines_of("grouped", 1, TEST_FOLDER=folder, TEST_STOP=stop)
            for processes in (1, 2):
                with self.subTest(stop=stop, processes=processes):
                    code, out, err = self.run_scenario("grouped", processes, TEST_FOLDER=folder,
                                                       TEST_JOINED=joined)
                    self.assertEqual(code, 2, out + err)
                    self.assertIn(f"the checkpoint has {saved} groups of parameters in the "
                                  f"optimizer of the model, and this programme has {5 - saved}",
                                  err)

    def test_a_backbone_gets_a_new_head(self):
        for processes in (1, 2):
            with self.subTest(processes=processes):
                file = self.folder / f"pretrained-{processes}.pt"
                words = (BIN / "transfer_learning", ROOT / "data" / "digits.csv.gz", file)
                if processes > 1:
                    words = (TRIREME, "launch", "--workers", processes, "--no-prefix", "--",
                             *words)
                code, out, err = self.run_to_end(*words, timeout=90)
                self.assertEqual(code, 0, out + err)
                before, after = (float(line.split()[-1]) for line in out.splitlines()[-2:])
                self.assertGreater(before, 0.97)
                self.assertGreater(after, 0.8)

    def test_weights_and_optimizer_may_be_loaded_on_all_ranks_at_any_time(self):
        self.assert_same("loaded", 1e-9, at_least=12)


if __name__ == "__main__":
    unittest.main()
