"""Mistakes in training loops of one's own are named, on the rank that makes them and on the others
(loop_mistakes.cc)."""

import re
import typing
import unittest

from support import BIN, TRIREME, SystemTest, environment

PROGRAMME = BIN / "loop_mistakes"
AT_ONCE = 3  # Jobs that mostly start, or wait for each other.


class Mistake(typing.NamedTuple):
    name: str
    pattern: str  # {last}: the last rank, which makes the mistake.
    processes: typing.Sequence[int] = (1, 2, 3)
    code: int = 2
    all_say: bool = True  # Each process says it; else one of them.
    apart: typing.Sequence[bool] = (False,)  # True: replicas do not share their parameters.


BOTH = (False, True)

# In a loop as it stands. The last rank makes the mistake, or all ranks do.
IN_DISTRIBUTED = (
    Mistake("no_backward", r"rank \d, step 1: step\(\) without a backward\(\)"),
    Mistake("only_own", r"rank \d, step 1: step\(\) after a backward\(\) under no_sync\(\)"),
    Mistake("closure_alone", r"step 1: step\(\) after a backward\(\) under no_sync\(\)"),
    Mistake("closure_without_backward", r"step 1: step\(\) without a backward\(\)"),
    Mistake("not_a_number", r"step 2: rank {last}: the gradient of parameter '\w+.\w+' is NaN",
            code=1),
    Mistake("not_a_number_in_one_gradient",
            "step 3: rank {last}: the gradient of parameter 'hidden.weight' is NaN", code=1),
    Mistake("another_type", "rank {last}: parameter 'hidden.weight' has another type"),
    Mistake("moved_before_the_step", "rank {last}: parameter 'hidden.weight' has another type"),
    Mistake("own_instead_of_all", r"rank {last}, step 3: step\(\) after a backward\(\) under "),
    Mistake("own_behind_all", r"rank {last}, step 3: step\(\) after a backward\(\) under "),
    Mistake("foreign", r"rank 0: parameter 4 of group 0 of the optimizer, of shape \[16, 6\], does "
            "not belong to the model", all_say=False),
    Mistake("replaced_layer", r"rank {last}: parameter 'output.weight' was replaced after its "),
    Mistake("plain_step", r"step \d+: the parameters are updated behind each backward\(\), but "),
    Mistake("went_on_behind_leave", r"rank \d, step 2: backward\(\) of all ranks behind "
            r"World::leave\(\)", all_say=False),
    Mistake("loss_is_nan", "the loss of rank {last} is NaN or infinite in step 2", code=1),
    Mistake("cleared_gradients", r"rank \d, step 1: step\(\) without gradients"),
    Mistake("not_a_number_in_a_corner", r"step 64: rank \d: parameter 'table.weight' has values "
            "that are NaN", code=1),
    Mistake("loader_left_out", r"rank \d, step 1: the batch in hand is of a loader that"),
    Mistake("too_few_rows", r"evaluate\(\) got 1 rows for a batch of 8 samples"),
    Mistake("threw_in_step_3", "nothing caught std::out_of_range: no such word", code=1,
            all_say=False),
)
BETWEEN_RANKS = (
    Mistake("one_with_fewer_backward", "rank 1 is in step 3 of optimizer 0, and rank 0 in step 2",
            (2, 3)),
    Mistake("one_without_backward", r"rank 1, step 3: step\(\) without a backward\(\)", (2, 3)),
    Mistake("drifted", "step 1: the parameter 'output.bias' of rank 1 is not that of ranks? 0.*"
            "has changed it since the start", (2, 3)),
    Mistake("drifted_at_the_end", r"at leave\(\), the parameter 'output.bias' of optimizer 0 of "
            "rank 1 is not that of ranks? 0.*when 3 steps were done.*since step 2", (2, 3)),
    Mistake("drifted_first_rank", "'output.bias' of optimizer 0 of rank 0 is not that of ranks 1 "
            "and 2", (3,)),
    Mistake("drifted_behind_the_optimizer", r"at leave\(\), the parameter 'output.bias'", (2, 3)),
    Mistake("plain_step_of_one_rank", r"step 10: the parameter '\w+.\w+' of rank {last} is not "
            "that of ranks? 0.*since step 2", (2, 3)),
    Mistake("loaded_on_one_rank", "step 10: the parameter 'hidden.weight' of rank {last} is not "
            "that of ranks? 0", (2, 3)),
    Mistake("one_of_two", r"step \d: rank 0: a tensor of \d+ elements gets gradients", (2, 3)),
    Mistake("one_of_two_in_one_loss", r"step \d: rank 0: a tensor of \d+ elements gets gradients",
            (2, 3)),
    Mistake("one_of_two_in_a_thread", r"step \d: rank 0: a tensor of \d+ elements gets", (2, 3)),
    Mistake("weight_of_0_in_a_sum", r"rank \d, step 1: a batch of weight 0 in a sum", (2, 3)),
    Mistake("weighed_quiet_of_one_of_two",
            r"step 1: World::weigh\(\) with no_sync\(\) of one of two optimizers", (2, 3)),
    Mistake("weighed_and_written", r"rank \d, step 1: gradients were written behind a backward\(\) "
            r"under no_sync\(\)", (2, 3)),
    Mistake("weighed_and_clipped", r"rank \d, step 1: gradients were written behind", (2, 3)),
    Mistake("weighed_in_a_thread", r"step 1: World::weigh\(\) with several backward\(\) in a step, "
            "of which this one runs on another thread", (2, 3)),
    Mistake("weighed_inside", r"step 1: World::weigh\(\) with a backward\(\) inside another one",
            (2, 3)),
    Mistake("same_samples", "step 1: all ranks have computed the same gradients", (2, 3)),
    Mistake("other_rate", "rank 1, step 6: its learning rate is not that of ranks? 0", (2, 3)),
    Mistake("other_momentum", "rank {last}, step 3: its momentum is not that of ranks? 0", (2, 3)),
    Mistake("other_batches", "rank {last}, step 4: its size of the global batch is not", (2, 3)),
    Mistake("frozen_on_one_rank", "rank {last}, step 4: its choice of frozen parameters", (2, 3)),
    Mistake("left_in_evaluation", r"rank {last}, step 3: its choice of train\(\) or eval\(\) is "
            "not that of ranks? 0", (2, 3)),
    Mistake("mode_of_a_layer", r"rank {last}, step 3: its choice of train\(\) or eval\(\) is not "
            "that of ranks? 0", (2, 3)),
    Mistake("other_order", "rank {last}, step 1: its global batch is not that of ranks? 0", (2, 3)),
    Mistake("synchronised_on_one_rank", "gradients.*broadcast|broadcast.*gradients", (2, 3)),
    Mistake("other_scalars", 'the ranks record other values in step 1.*"critics"', (2, 3),
            all_say=False),
    Mistake("more_scalars", 'the ranks record other values in step 1.*"only here"', (2, 3),
            all_say=False),
    Mistake("joined_with_a_record", r"join\(\) in a loop with a LoopRecord", (2, 3)),
    Mistake("other_turns", r"rank 0 has come to backward\(\) of optimizer 0, and rank 1 to "
            r"backward\(\) of optimizer 1", (2, 3), all_say=False),
    Mistake("uneven_values", "values for metrics.*rank 1", (2,)),
    Mistake("evaluated_behind_leave", r"an operation of all ranks behind World::leave\(\)", (2,),
            all_say=False),
)
# With DataParallel, whose replicas share one copy of the parameters or have their own.
IN_DATA_PARALLEL = (
    Mistake("step_without_a_loss", r"step 1: step\(\) without a loss", apart=BOTH),
    Mistake("negative_samples", r"step 3: rank {last}: backward\(\) with -3 samples", apart=BOTH),
    Mistake("no_scalar", "step 3: rank {last}: the loss has 6 elements", apart=BOTH),
    Mistake("nan_with_data_parallel", "step 3: the loss of rank {last} is NaN", code=1,
            apart=BOTH),
    Mistake("other_decay_with_data_parallel",
            "rank {last}, step 3: its weight_decay is not that of ranks? 0", (2, 3), apart=BOTH),
    Mistake("went_on_behind_leave_with_data_parallel",
            r"rank \d, step 1: step\(\) of all ranks behind World::leave\(\)", all_say=False,
            apart=BOTH),
    Mistake("drifted_with_data_parallel", "step 4: the parameter 'output.bias' of rank {last} is "
            "not that of ranks? 0.*since step 2", (2, 3), apart=(True,)),
    Mistake("drifted_with_data_parallel", "step 4: rank {last}: parameter 'output.bias' was "
            "written in place, but all replicas of a host share one copy", (2, 3)),
    Mistake("drifted_at_the_end_with_data_parallel", r"at leave\(\), the parameter 'output.bias' "
            "of DataParallel 0 of rank {last} is not that of ranks? 0.*when 3 steps were done",
            (2, 3), apart=BOTH),
    Mistake("plain_loop_with_data_parallel", r"rank \d, step 17: the parameters are updated behind "
            r"loss.backward\(\), but.*; try: call replica.step\(loss, samples\)", all_say=False,
            apart=BOTH),
    Mistake("short_plain_loop_with_data_parallel", r"rank \d, step 3: the parameters are updated "
            r"behind loss.backward\(\), but", apart=BOTH),
    Mistake("one_of_two_replicas", r"rank \d, step 17: the parameters are updated behind",
            all_say=False, apart=BOTH),
)
# Mistakes that only show when all ranks wait for each other.
CALLS_OF_ONE_RANK = (
    Mistake("skipped", "leaving of step 5", (2, 3)),
    Mistake("left_early", "leaving of step 4", (2, 3)),
    Mistake("left_early_with_data_parallel", "leaving of step 4", (2, 3), apart=BOTH),
    Mistake("joined_alone", "leaving of step 6", (2, 3)),
    Mistake("saved_on_one_rank", "of step 4", (2, 3)),
    Mistake("evaluated_on_one_rank", "of step 4", (2, 3)),
    Mistake("epoch_on_one_rank", "data of step 2", (2, 3)),
)
NO_MISTAKES = (
    Mistake("left_twice", "", code=0),
    Mistake("gradients_of_others", "", code=0),
    Mistake("swapped_on_one_rank", "", code=0),
    Mistake("one_of_two_as_meant", "", code=0),
    Mistake("same_samples_as_meant", "", code=0),
    Mistake("masked_as_meant", "", code=0),
)
NO_MISTAKES_IN_DATA_PARALLEL = (
    Mistake("two_replicas_as_meant", "", code=0, apart=BOTH),
    Mistake("own_backward_as_meant", "", code=0, apart=BOTH),
    Mistake("written_back_as_meant", "", code=0, apart=(True,)),
)


class LoopMistakes(SystemTest):
    def words_of(self, name, processes):
        launch = (TRIREME, "launch", "--workers", processes, "--") if processes > 1 else ()
        return (*launch, PROGRAMME, name)

    def run_mistake(self, name, processes, **variables):
        return self.run_to_end(*self.words_of(name, processes), timeout=90,
                               env=environment(OMP_NUM_THREADS="1", **variables))

    def check_each(self, mistakes, check):
        """Runs several at once, and calls check(mistake, processes, standard error)."""
        jobs = {(mistake, processes, apart):
                (*(("env", "TEST_APART=1") if apart else ()),
                 *self.words_of(mistake.name, processes))
                for mistake in mistakes for processes in mistake.processes
                for apart in mistake.apart}
        for (mistake, processes, apart), code, out, err in self.run_each(
                jobs, AT_ONCE, timeout=90, env=environment(OMP_NUM_THREADS="1")):
            with self.subTest(mistake.name, processes=processes, apart=apart):
                self.assertEqual(code, mistake.code, out + err)
                self.assertNotIn("SIGSEGV", err)
                check(mistake, processes, err)

    def assert_named(self, mistakes):
        def check(mistake, processes, err):
            pattern = mistake.pattern.format(last=processes - 1)
            named = re.findall(r"^(?:\[\d\] )?(?:\[\w+\]|trireme:) .*(?:" + pattern + ")", err,
                               re.M)
            self.assertGreaterEqual(len(named), processes if mistake.all_say else 1,
                                    f"{pattern}\n{err}")
        self.check_each(mistakes, check)

    def test_mistakes_are_named_with_any_number_of_processes(self):
        self.assert_named(IN_DISTRIBUTED)

    def test_differences_between_ranks_are_named(self):
        self.assert_named(BETWEEN_RANKS)

    def test_mistakes_are_named_with_parameters_that_are_shared_and_not(self):
        self.assert_named(IN_DATA_PARALLEL)

    def test_all_ranks_name_a_call_that_one_rank_leaves_out(self):
        def check(mistake, processes, err):
            told = re.findall(rf"^\[\d\] .*worker \d.* {mistake.pattern}.*; try: the same calls",
                              err, re.M)
            self.assertEqual(len(told), processes, err)
        self.check_each(CALLS_OF_ONE_RANK, check)

    def test_loops_without_mistakes_come_to_their_end(self):
        def check(mistake, processes, err):
            warned = "the samples of the first step were not shared" in err
            self.assertEqual(warned, processes > 1 and mistake.name != "same_samples_as_meant",
                             err)
        self.check_each(NO_MISTAKES, check)

    def test_loops_of_replicas_without_mistakes_come_to_their_end(self):
        self.check_each(NO_MISTAKES_IN_DATA_PARALLEL, lambda mistake, processes, err:
                        self.assertNotRegex(err, "updated behind|draw the same"))

    def test_a_replica_that_ends_before_the_loop_leaves_tells_of_updates_past_it(self):
        name = "plain_loop_of_an_engine_that_is_gone"
        for processes, ends_with in ((1, 0), (2, 2)):  # Several have drifted apart.
            code, out, err = self.run_mistake(name, processes, TEST_APART="1")
            self.assertEqual(code, ends_with, out + err)
            told = re.findall(r"trireme error.*rank \d, step 3: the parameters are updated behind "
                              r"loss.backward\(\).*; try: call replica.step", err)
            self.assertEqual(len(told), processes, err)

    def test_ranks_that_draw_the_same_numbers_are_told(self):
        for name, processes, count in (("same_dropout", 1, 0), ("same_dropout", 2, 1),
                                       ("same_dropout", 3, 1), ("other_dropout", 3, 0),
                                       ("same_dropout_with_data_parallel", 2, 1),
                                       ("shuffled_alike", 2, 0)):
            with self.subTest(name, processes=processes):
                code, out, err = self.run_mistake(name, processes)
                self.assertEqual(code, 0, out + err)
                told = re.findall(r"step 2: ranks 0.* and \d draw the same random numbers .*; try: "
                                  r"torch::manual_seed\(seed \+ world.rank\(\)\)", err)
                self.assertEqual(len(told), count, err)
                self.assertEqual("draw the same random numbers" in err, count > 0, err)

    def test_a_rank_that_calls_exit_ends_with_its_code(self):
        code, out, err = self.run_mistake("ended_by_exit", 2)
        self.assertEqual(code, 3, out + err)
        self.assertIn("worker 1", err)
        self.assertNotIn("SIGSEGV", err)

    def test_the_end_of_main_leaves(self):
        code, out, err = self.run_mistake("drifted_behind_the_optimizer", 2, TEST_CODE="0")
        self.assertEqual(code, 2, out + err)
        told = re.findall(r"^\[\d\] .*at leave\(\), the parameter ", err, re.M)
        self.assertEqual(len(told), 2, err)
        code, out, err = self.run_mistake("equal_to_the_end", 3, TEST_CODE="0")
        self.assertEqual(code, 0, out + err)
        self.assertNotIn("goodbye", err)
        code, out, err = self.run_mistake("equal_to_the_end", 3, TEST_CODE="4")
        self.assertEqual(code, 4, out + err)

    def test_a_rank_that_ends_early_is_named_by_all(self):
        code, out, err = self.run_mistake("ended_early", 2, TEST_CODE="0")
        self.assertEqual(code, 2, out + err)
        told = re.findall(r"^\[\d\] .*worker \d.* leaving of step 4.*; try: the same calls",
                          err, re.M)
        self.assertEqual(len(told), 2, err)

    def test_an_elastic_loop_has_no_ranks_without_batches(self):
        code, out, err = self.run_to_end(TRIREME, "launch", "--elastic", "2:2", "--", PROGRAMME,
                                         "joined_in_an_elastic_job", timeout=60)
        self.assertEqual(code, 2, out + err)
        self.assertIn("OwnStepsOptions::joins in an elastic job", err)
        self.assertIn("the programme's use of Trireme", err)

    def test_replicas_of_an_elastic_job_are_in_an_elastic_loop(self):
        code, out, err = self.run_to_end(TRIREME, "launch", "--elastic", "2:2", "--", PROGRAMME,
                                         "drifted_with_data_parallel", timeout=60)
        self.assertEqual(code, 2, out + err)
        self.assertRegex(err, r"step 1: the job is elastic .* try: trireme::run_elastic\(")

    def test_a_loop_that_says_so_goes_on_behind_a_loss_that_is_nan(self):
        for name in ("skipped_nan_with_data_parallel", "own_look_at_gradients"):
            for processes in (1, 2):
                with self.subTest(name, processes=processes):
                    code, out, err = self.run_mistake(name, processes)
                    self.assertEqual(code, 0, out + err)
                    self.assertIn('{"updated":4}', out)
                    self.assertEqual("step 3: the loss of rank" in err, "skipped" in name)


if __name__ == "__main__":
    unittest.main()
