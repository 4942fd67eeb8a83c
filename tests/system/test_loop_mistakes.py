"""Mistakes in training loops of one's own are named, on the rank that makes them and on the others
(loop_mistakes.cc)."""

import re
import unittest

from support import BIN, TRIREME, SystemTest

PROGRAMME = BIN / "loop_mistakes"


class LoopMistakes(SystemTest):
    def run_mistake(self, name, processes):
        words = (PROGRAMME, name)
        if processes > 1:
            words = (TRIREME, "launch", "--workers", processes, "--", *words)
        return self.run_to_end(*words, timeout=90)

    def assert_named(self, name, *parts, processes=(2, 3), expected=2):
        for count in processes:
            with self.subTest(name, processes=count):
                code, out, err = self.run_mistake(name, count)
                self.assertEqual(code, expected, out + err)
                for part in parts:
                    self.assertIn(part, err)

    def test_all_ranks_name_a_step_without_a_backward_of_one_rank(self):
        code, out, err = self.run_mistake("one_without_backward", 2)
        self.assertEqual(code, 2, out + err)
        named = re.findall(r"^\[[01]\] .*rank 1, step 3: step\(\) without a backward", err, re.M)
        self.assertEqual(len(named), 2, err)

    def test_all_ranks_name_a_call_that_one_rank_leaves_out(self):
        for name, processes, place in (
                ("skipped", 3, "leaving of step 5"), ("left_early", 2, "leaving of step 4"),
                ("left_early_with_data_parallel", 2, "has left the job"),
                ("joined_alone", 3, "leaving of step 6"),
                ("saved_on_one_rank", 2, "of step 4"), ("evaluated_on_one_rank", 2, "of step 4"),
                ("epoch_on_one_rank", 2, "data of step 2")):
            with self.subTest(name):
                code, out, err = self.run_mistake(name, processes)
                self.assertEqual(code, 2, out + err)
                told = re.findall(rf"^\[\d\] .*worker \d.* {place}.*; try: the same calls",
                                  err, re.M)
                # The one that has left needs no message.
                self.assertEqual(len(told), processes - ("has left" in place), err)

    def test_a_rank_that_calls_exit_ends_with_its_code(self):
        code, out, err = self.run_mistake("ended_by_exit", 2)
        self.assertEqual(code, 3, out + err)
        self.assertIn("worker 1", err)
        self.assertNotIn("SIGSEGV", err)

    def test_a_second_leave_does_nothing(self):
        code, out, err = self.run_mistake("left_twice", 2)
        self.assertEqual(code, 0, out + err)
        self.assertIn("the samples of the first step were not shared", err)

    def test_mistakes_are_named(self):
        self.assert_named("no_backward", "step 1: step() without a backward()")
        self.assert_named("one_without_backward", "rank 1, step 3: step() without a backward()")
        self.assert_named("one_with_fewer_backward", "rank 1 is in step 3 of optimizer 0, and rank "
                          "0 in step 2")
        self.assert_named("only_own", "under no_sync()")
        self.assert_named("not_a_number", "the gradients of rank 1 are NaN or infinite in step 2",
                          expected=1)
        drift = "the parameters or learning rates of rank 1 are not those of rank 0"
        self.assert_named("drifted", drift)
        self.assert_named("loss_is_nan", "the loss of rank 1 is NaN or infinite in step 2",
                          expected=1)
        self.assert_named("other_scalars", "the ranks record other values in step 1",
                          '"critics"')
        self.assert_named("other_rate", "rank 1, step 6: its learning rate is not that of rank 0")
        self.assert_named("drifted_with_data_parallel", drift, processes=(2,))
        self.assert_named("step_without_a_loss", "step 1: step() without a loss", processes=(1, 2))
        self.assert_named("other_batches", "rank 1, step 4: its size of the global batch is not",
                          processes=(2,))
        self.assert_named("frozen_on_one_rank", "rank 2, step 4: its choice of frozen parameters",
                          processes=(3,))
        self.assert_named("too_few_rows", "evaluate() got 1 rows for a batch of 8 samples",
                          processes=(1, 2))
        self.assert_named("more_scalars", "the ranks record other values in step 1",
                          '"only here"')
        self.assert_named("joined_with_a_record", "join() in a loop with a LoopRecord")
        self.assert_named("other_turns", "rank 0 has come to backward() of optimizer 0, and rank 1 "
                          "to backward() of optimizer 1")
        code, out, err = self.run_to_end(TRIREME, "launch", "--elastic", "2:2", "--", PROGRAMME,
                                         "joined_in_an_elastic_job", timeout=60)
        self.assertEqual(code, 2, out + err)
        self.assertIn("OwnStepsOptions::joins in an elastic job", err)
        self.assert_named("drifted_at_the_end", "the parameters at leave()", "engine 0")
        self.assert_named("drifted_behind_the_optimizer", "the parameters at leave()")
        self.assert_named("foreign", "does not belong to the model")
        self.assert_named("closure_alone", "under no_sync()")
        self.assert_named("uneven_values", "values for metrics", "rank 1", processes=(2,))
        self.assert_named("another_type", "step 2: rank 1", "hidden.weight", processes=(2,))

    def assert_all_ranks_name(self, name, pattern, processes=(3,), expected=2):
        """Each process says what `pattern` says, the one that made the mistake and the others."""
        for count in processes:
            with self.subTest(name, processes=count):
                code, out, err = self.run_mistake(name, count)
                self.assertEqual(code, expected, out + err)
                named = re.findall(r"^(?:\[\d\] )?\[\w+\] .*" + pattern.format(last=count - 1),
                                   err, re.M)
                self.assertEqual(len(named), count, err)

    def test_all_ranks_name_the_mistake_of_one(self):
        self.assert_all_ranks_name("other_momentum",
                                   "rank {last}, step 3: its momentum is not that of rank 0")
        for name in ("other_decay_of_replicas", "other_decay_of_one_copy"):
            self.assert_all_ranks_name(
                name, "rank {last}, step 3: its weight_decay is not that of rank 0", (2,))
        self.assert_all_ranks_name("left_in_evaluation", r"rank {last}, step 3: its choice of "
                                   r"train\(\) or eval\(\) is not that of rank 0")
        self.assert_all_ranks_name("closure_without_backward",
                                   r"step 1: step\(\) without a backward\(\)")
        self.assert_all_ranks_name("moved_before_the_step",
                                   "rank {last}: parameter 'hidden.weight' has another type")
        for name in ("own_instead_of_all", "own_behind_all"):
            self.assert_all_ranks_name(name, r"rank {last}, step 3: step\(\) after a backward\(\) "
                                       r"under no_sync\(\)")
        self.assert_all_ranks_name("negative_samples", r"rank {last}: backward\(\) with -3 samples",
                                   processes=(1, 2))
        self.assert_all_ranks_name("no_scalar", "rank {last}: the loss has 6 elements",
                                   processes=(1, 2))
        self.assert_all_ranks_name("synchronised_on_one_rank", "gradients.*broadcast|"
                                   "broadcast.*gradients")
        self.assert_all_ranks_name("nan_with_data_parallel",
                                   "step 3: the loss of rank {last} is NaN or infinite",
                                   processes=(1, 2), expected=1)

    def test_a_loop_that_says_so_skips_a_loss_that_is_nan(self):
        for processes in (1, 2):
            code, out, err = self.run_mistake("skipped_nan_with_data_parallel", processes)
            self.assertEqual(code, 0, out + err)
            self.assertIn('{"updated":4}', out)
            self.assertIn("step 3: the loss of rank", err)

    def test_a_loop_does_not_go_on_behind_leave(self):
        for name, call in (("went_on_behind_leave", "backward()"),
                           ("went_on_behind_leave_with_data_parallel", "step()"),
                           ("evaluated_behind_leave", "an operation")):
            self.assert_named(name, f"{call} of all ranks behind World::leave()")

    def test_an_exception_of_the_programme_ends_the_job_for_good(self):
        self.assert_named("threw_in_step_3", "nothing caught std::out_of_range: no such word",
                          expected=1)


if __name__ == "__main__":
    unittest.main()
