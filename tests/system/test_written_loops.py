"""Training loops as people write them for one process give the same with 1, 2 and 3 processes
(written_loops.cc)."""

import json
import math
import os
import re
import signal
import unittest

import torch
from check_tensorboard import read_scalars
from safetensors.torch import load_file
from server_jobs import children_of
from support import BIN, ROOT, TRIREME, SystemTest, environment, wait_until

PROGRAMME = BIN / "written_loops"


class WrittenLoops(SystemTest):
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

    def assert_same(self, name, tolerance, at_least, **how):
        alone = self.lines_of(name, 1)
        self.assertGreaterEqual(len(alone), at_least)
        for processes in (2, 3):
            with self.subTest(name, processes=processes):
                together = self.lines_of(name, processes, **how)
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

    def continued(self, *options, processes=1, **variables):
        words = (PROGRAMME, "continued")
        if processes > 1 or options:
            words = (TRIREME, "launch", "--workers", processes, *options, "--", *words)
        code, out, err = self.run_to_end(*words, timeout=90, env=environment(
            OMP_NUM_THREADS="1", **{name: str(value) for name, value in variables.items()}))
        self.assertEqual(code, 0, f"{variables}\n{out}\n{err}")
        lines = [line for line in out.splitlines() if "{" in line]
        return json.loads(lines[-1][lines[-1].index("{"):])

    def assert_same_end(self, found, expected, but=("ranks", "drawn")):
        for key in expected.keys() - set(but):
            self.assertAlmostEqual(found[key], expected[key], delta=1e-9 * abs(expected[key]),
                                   msg=key)

    def test_a_loop_continues_from_its_checkpoint_with_any_number_of_processes(self):
        undisturbed = self.continued()
        self.assertEqual((undisturbed["steps"], undisturbed["epochs"]), (24, 4))
        # In the middle of an epoch, at its end, and at its start; each step is saved or is behind
        # a saved one.
        for stop, before, after in ((8, 1, 1), (12, 1, 3), (13, 2, 1), (16, 3, 2)):
            with self.subTest(stop=stop, before=before, after=after):
                folder = self.folder / f"{stop}-{before}-{after}"
                self.continued(processes=before, TEST_FOLDER=folder, TEST_STOP=stop)
                found = self.continued(processes=after, TEST_FOLDER=folder)
                self.assert_same_end(found, undisturbed)
                if before == after == 1:
                    self.assertEqual(found, undisturbed)  # Random numbers too, bit for bit.

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

    def assert_same_lines(self, found, expected):
        for step, (one, other) in enumerate(zip(expected, found, strict=True)):
            for key, value in one.items():
                self.assertAlmostEqual(other[key], value, delta=1e-9 * max(1, abs(value)),
                                       msg=f"{key} of line {step}")

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

    def test_a_group_that_was_added_in_a_step_that_is_given_up_is_added_again(self):
        whole = self.lines_of("grouped", 1)
        code, out, err = self.run_to_end(
            TRIREME, "launch", "--elastic", "2:2", "--", PROGRAMME, "grouped", timeout=90,
            env=environment(OMP_NUM_THREADS="1", TEST_KILL="13"))
        self.assertEqual(code, 0, out + err)
        lines = [json.loads(line[line.index("{"):]) for line in out.splitlines() if "{" in line]
        self.assert_same_lines(lines, whole)

    def test_a_loop_goes_on_without_a_lost_worker(self):
        undisturbed = self.continued()
        for kill in (1, 5, 7, 24):
            with self.subTest(kill=kill):
                found = self.continued("--elastic", "2:3", processes=3, TEST_KILL=kill)
                self.assert_same_end(found, undisturbed)

    def test_an_exception_right_behind_a_loss_is_not_taken_for_a_part_of_it(self):
        code, out, err = self.run_to_end(
            TRIREME, "launch", "--elastic", "1:3", "--workers", "3", "--", PROGRAMME, "continued",
            timeout=60, env=environment(OMP_NUM_THREADS="1", TEST_KILL="5", TEST_THROW="1"))
        self.assertEqual(code, 1, out + err)
        self.assertRegex(err, r"\[2\] .*nothing caught std::out_of_range: no such word")
        self.assertRegex(err, r"trireme: worker 2 .* failed with exit code 1 in .*step 5")

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

    def test_a_loop_goes_on_without_a_stopped_worker(self):
        undisturbed = self.continued()
        # For good, so that it is lost; and for less than the heartbeat time-out, so that it is not.
        for pause, generations in (("", 2), (",for=500ms", 1)):
            with self.subTest(pause=pause):
                folder = self.folder / f"stopped{generations}"
                found = self.continued("--elastic", "2:3", "--inject", f"stop:rank=1@step=5{pause}",
                                       processes=3, TEST_RECORD=folder)
                self.assert_same_end(found, undisturbed)
                self.assert_each_sample_once(folder)
                causes = self.recorded(folder)[0]["generations"]
                self.assertEqual(len(causes) > 1, generations > 1, causes)
                if generations > 1:
                    self.assertEqual(causes[1]["lost_ranks"], [1])

    def test_a_rank_that_hangs_or_is_stopped_is_named(self):
        """The time-outs of `trireme launch` are 10 s, so both run at once. The slow one ends with
        this step."""
        hangs, stops = "slow:rank=1,forward=20s@step=5", "stop:rank=1@step=5"
        jobs = {fault: (TRIREME, "launch", "--workers", "2", "--inject", fault, "--", PROGRAMME,
                        "continued")
                for fault in (hangs, stops)}
        said = {fault: (code, err) for fault, code, _, err in
                self.run_each(jobs, timeout=90,
                              env=environment(OMP_NUM_THREADS="1", TEST_STOP="5"))}
        worker = r"worker 1 \(.*\)"
        waits = (r"worker 0 \(.*\) waits for it in exchange of step 5 \(collective 1: "
                 r"gradients\)")
        code, err = said[hangs]
        self.assertEqual(code, 0, err)
        self.assertRegex(err, rf"trireme: stalled: {worker} has been in forward of step 5 for "
                         rf"1\d\.\d s; {waits}")
        code, err = said[stops]
        self.assertEqual(code, 138, err)
        self.assertRegex(err, rf"trireme: {worker} was lost in backward of step 5: silent for "
                         rf"1\d\.\d s .*{waits}.*; job ends with 138")

    def test_a_rank_that_ends_its_process_in_an_elastic_loop_is_lost(self):
        code, out, err = self.run_to_end(
            TRIREME, "launch", "--elastic", "2:3", "--workers", "3", "--", PROGRAMME,
            "left_an_elastic_loop", timeout=60, env=environment(OMP_NUM_THREADS="1",
                                                                TEST_LEAVES="exit"))
        self.assertEqual(code, 0, out + err)
        told = re.findall(r"^\[[01]\] .*step \d abandoned: worker 2 \(.*\) was lost in ", err,
                          re.M)
        self.assertEqual(len(told), 2, err)
        self.assertIn('{"steps":24,"ranks":2}', out)

    def test_a_rank_that_leaves_an_elastic_loop_early_is_named(self):
        """The others cannot know whether it is to be replaced: it was not lost."""
        for how in ("leave", "break"):
            with self.subTest(how):
                code, out, err = self.run_to_end(
                    TRIREME, "launch", "--elastic", "2:3", "--workers", "3", "--", PROGRAMME,
                    "left_an_elastic_loop", timeout=60, env=environment(TEST_LEAVES=how))
                self.assertEqual(code, 2, out + err)
                told = re.findall(r"^\[\d\] .*worker 2.* of step 6.*; try: the same calls", err,
                                  re.M)
                self.assertEqual(len(told), 3, err)

    def start_and_wait(self, folder, *options):
        """Starts a slow elastic loop, and waits for its third step."""
        record = folder / "record"
        job = self.start(TRIREME, "launch", "--elastic", "1:3", *options, "--", PROGRAMME,
                         "continued",
                         env=environment(OMP_NUM_THREADS="1", TEST_FOLDER=str(folder / "saved"),
                                         TEST_RECORD=str(record), TEST_PAUSE="100",
                                         XDG_RUNTIME_DIR=str(folder)))
        log = record / "log.jsonl"
        wait_until(lambda: log.exists() and log.read_text().count('"event":"step"') >= 3, 30,
                   "three steps")
        return job

    def test_a_rank_of_an_elastic_loop_that_is_asked_to_stop_ends_it_for_all(self):
        undisturbed = self.continued()
        job = self.start_and_wait(self.folder)
        os.kill(children_of(job.pid)[1], signal.SIGTERM)
        out, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0, out + err)
        report, _ = self.recorded(self.folder / "record")
        self.assertEqual((report["stopped"], report["world_size"]), (True, 3))
        self.assertLess(report["steps"], 24)
        self.assert_same_end(self.continued(processes=2, TEST_FOLDER=self.folder / "saved"),
                             undisturbed)

    def test_an_elastic_loop_becomes_smaller_on_request(self):
        undisturbed = self.continued()
        job = self.start_and_wait(self.folder)
        code, out, err = self.run_to_end(TRIREME, "scale", "2",
                                         env=environment(XDG_RUNTIME_DIR=str(self.folder)))
        self.assertEqual(code, 0, out + err)
        out, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0, out + err)
        found = json.loads(out[out.rindex("{"):])
        self.assertEqual(found["ranks"], 2)
        self.assert_same_end(found, undisturbed)
        self.assert_each_sample_once(self.folder / "record")

    def test_a_process_that_joins_trains_with_the_others(self):
        code, out, err = self.run_to_end(TRIREME, "launch", "--elastic", "2:3", "--", PROGRAMME,
                                         "replaced", timeout=80)
        self.assertEqual(code, 0, out + err)
        self.assertIn('{"ranks":3,', out)

    def test_several_workers_may_be_lost_by_injected_faults(self):
        folder = self.folder / "injected"
        code, out, err = self.run_to_end(
            TRIREME, "launch", "--elastic", "1:3", "--workers", "3", "--inject",
            "kill:rank=2@step=5; kill:rank=1@step=9", "--", PROGRAMME, "continued", timeout=80,
            env=environment(OMP_NUM_THREADS="1", TEST_FOLDER=str(folder), TEST_PAUSE="30"))
        self.assertEqual(code, 0, out + err)
        self.assertNotIn("there is no rank", err)
        self.assertIn('"steps":24', out)

    def test_a_loop_that_is_not_elastic_is_named_in_an_elastic_job(self):
        code, out, err = self.run_to_end(TRIREME, "launch", "--elastic", "2:3", "--", PROGRAMME,
                                         "plain", timeout=60)
        self.assertEqual(code, 2, out + err)
        self.assertRegex(err, r"step 1: the job is elastic .* try: trireme::run_elastic\(")

    def recorded(self, folder):
        """Returns the report of a loop, and the events of its log by kind."""
        events = {}
        for line in (folder / "log.jsonl").read_text().splitlines():
            event = json.loads(line)
            events.setdefault(event["event"], []).append(event)
        return json.loads((folder / "report.json").read_text()), events

    def test_a_loop_has_a_record_as_a_run_has(self):
        losses = {}
        for processes in (1, 2, 3):
            folder = self.folder / f"record-{processes}"
            self.continued(processes=processes, TEST_RECORD=folder, TEST_PAUSE=30)
            report, events = self.recorded(folder)
            self.assertEqual((report["strategy"], report["steps"], report["epochs"]),
                             ("own_loop", 24, 4))
            self.assertEqual(report["world_size"], processes)
            self.assertFalse(report["stopped"])
            self.assertEqual([step["step"] for step in events["step"]], list(range(1, 25)))
            self.assertEqual([step["epoch"] for step in events["step"]],
                             [i // 6 for i in range(24)])
            self.assertEqual(sum(step["samples"] for step in events["step"]), 4 * 103)
            self.assertEqual(len({step["learning_rate"] for step in events["step"]}), 6)
            self.assertEqual(len(events["scalars"]), 24)
            self.assertIn("data/largest", report["scalars"])
            self.assertEqual(len(report["phases"]), processes)
            for rank in report["phases"]:
                self.assertGreater(rank["steps"], 20)
                self.assertGreater(rank["backward"] + rank["forward"] + rank["optimizer"], 0)
            self.assertGreater(report["samples_per_second"], 0)
            self.assertEqual(len(list((folder / "events").glob("events.out.tfevents*"))), 1)
            losses[processes] = report["loss_history"]
        for processes in (2, 3):
            for one, other in zip(losses[1], losses[processes]):
                self.assertAlmostEqual(one, other, delta=1e-9)

    def test_values_and_evaluations_of_a_loop_are_in_all_its_records(self):
        for processes in (1, 3):
            with self.subTest(processes=processes):
                folder = self.folder / f"recorded-{processes}"
                code, out, err = self.run_scenario("recorded", processes, TEST_RECORD=folder)
                self.assertEqual(code, 0, out + err)
                found = [json.loads(line[line.index("{"):]) for line in out.splitlines()
                         if "{" in line]
                self.assertEqual([each["step"] for each in found], [6, 12])
                report, events = self.recorded(folder)
                self.assert_lines_of_an_evaluation(events["eval"], found)
                self.assertEqual(report["eval"], {
                    "loss": found[1]["loss"], "accuracy": found[1]["accuracy"],
                    "metrics": {"right": found[1]["right"]}})
                # The 103 targets are 0, 1, 2, 0, ...: the mean of a batch is that of all ranks.
                means = [each["values"]["targets/mean"] for each in events["scalars"]]
                for epoch in range(2):
                    self.assertAlmostEqual(
                        sum(mean * step["samples"] for mean, step in
                            zip(means[6 * epoch:][:6], events["step"][6 * epoch:])), 102)
                self.assert_scalars(folder / "events", events, found)
                self.assert_progress(out, events["step"], found)

    def assert_lines_of_an_evaluation(self, events, found):
        self.assertEqual([(each["step"], each["epoch"], each["loss"], each["accuracy"],
                           each["metrics"]["right"]) for each in events],
                         [(each["step"], epoch, each["loss"], each["accuracy"], each["right"])
                          for epoch, each in enumerate(found)])

    def assert_scalars(self, folder, events, found):
        """TensorBoard shows the values of the log, as float32."""
        expected = {"targets/mean": [(each["step"], each["values"]["targets/mean"])
                                     for each in events["scalars"]]}
        for tag, key in (("train/loss", "loss"), ("train/learning_rate", "learning_rate")):
            expected[tag] = [(step["step"], step[key]) for step in events["step"]]
        for key in ("loss", "accuracy", "right"):
            expected[f"eval/{key}"] = [(each["step"], each[key]) for each in found]
        scalars = read_scalars(folder)
        for tag, points in expected.items():
            self.assertEqual([step for step, _ in scalars[tag]], [step for step, _ in points], tag)
            for (_, value), (_, wanted) in zip(scalars[tag], points):
                self.assertAlmostEqual(value, wanted, delta=1e-6 * max(1, abs(wanted)), msg=tag)

    def assert_progress(self, out, steps, found):
        self.assertIn("Training waves: own_loop", out)
        for epoch in range(2):
            last = steps[6 * epoch + 5]
            self.assertRegex(out, rf"epoch {epoch + 1}/2  step +{last['step']}/12  "
                             rf"loss {last['loss']:#.4g} ")
            self.assertRegex(out, rf"epoch {epoch + 1}: loss [\d.]+, held-out loss "
                             rf"{found[epoch]['loss']:#.4g}, accuracy "
                             rf"{found[epoch]['accuracy'] * 100:.1f} %, right ")

    def test_a_record_with_more_steps_than_commits_goes_on_from_its_own_step(self):
        for processes, words in ((1, ()), (3, ("--elastic", "2:3", "--inject",
                                               "kill:rank=1@step=7"))):
            with self.subTest(processes=processes):
                folder, record = self.folder / f"c{processes}", self.folder / f"r{processes}"
                known = {"TEST_TWICE": 1, "TEST_FOLDER": folder, "TEST_RECORD": record}
                self.continued(*words, processes=processes, TEST_STOP=12, **known)
                self.continued(processes=processes, **known)
                report, events = self.recorded(record)
                self.assertEqual((report["resumed_from_step"], report["steps"]), (24, 48))
                steps = [step["step"] for step in events["step"]]
                self.assertEqual(sorted(set(steps)), list(range(1, 49)))
                for before, step in zip(steps, steps[1:]):
                    self.assertLessEqual(step, before + 1)

    def test_injected_faults_strike_in_a_loop_and_its_record_goes_on(self):
        undisturbed = self.continued()
        for rank in (0, 1):
            with self.subTest(rank=rank):
                folder = self.folder / f"killed-{rank}"
                found = self.continued("--elastic", "2:3", "--inject", f"kill:rank={rank}@step=5",
                                       processes=3, TEST_RECORD=folder)
                # The shuffles are those of rank 0, and another process has other random numbers.
                self.assert_same_end(found, undisturbed,
                                     but=("ranks", "drawn") + (("sum",) if rank == 0 else ()))
                report, events = self.recorded(folder)
                self.assertEqual(report["steps"], 24)
                self.assertEqual([cause["lost_ranks"] for cause in report["generations"]][1],
                                 [rank])
                steps = [step["step"] for step in events["step"]]
                self.assertEqual(sorted(set(steps)), list(range(1, 25)))
                self.assert_each_sample_once(folder)

    def test_faults_that_do_not_strike_are_told(self):
        for fault in ("kill:rank=1@step=99", "stop:rank=0@step=77,for=1s"):
            code, out, err = self.run_to_end(TRIREME, "launch", "--workers", "2", "--inject", fault,
                                             "--", PROGRAMME, "evaluated", timeout=60)
            self.assertEqual(code, 0, out + err)
            self.assertIn(f"none of the faults of --inject has struck: {fault}", err)
        code, out, err = self.run_to_end(
            TRIREME, "launch", "--elastic", "1:2", "--nodes", "2", "--node", "0", "--rendezvous",
            "127.0.0.1:1", "--inject", "kill:rank=1@step=5", "--", PROGRAMME, "evaluated")
        self.assertEqual(code, 2, out + err)
        self.assertIn("--inject with --elastic and --nodes 2", err)

    def test_a_slow_rank_of_a_loop_is_measured(self):
        folder = self.folder / "slow"
        self.continued("--inject", "slow:rank=1,forward=20ms", processes=2, TEST_RECORD=folder)
        phases = {rank["rank"]: rank for rank in self.recorded(folder)[0]["phases"]}
        self.assertGreater(phases[1]["forward"], 0.015)
        self.assertGreater(phases[0]["waiting"], 0.01)

    def test_a_loop_that_is_asked_to_stop_saves_and_goes_on_later(self):
        undisturbed = self.continued()
        for processes in (1, 2):
            with self.subTest(processes=processes):
                folder, record = self.folder / f"c{processes}", self.folder / f"r{processes}"
                words = (PROGRAMME, "continued")
                if processes > 1:
                    words = (TRIREME, "launch", "--workers", processes, "--", *words)
                job = self.start(*words, env=environment(
                    TEST_FOLDER=str(folder), TEST_RECORD=str(record), TEST_PAUSE="200"))
                log = record / "log.jsonl"
                wait_until(lambda: log.exists() and log.read_text().count('"event":"step"') >= 2,
                           30, "two steps")
                job.send_signal(signal.SIGTERM)
                out, err = job.communicate(timeout=60)
                self.assertEqual(job.returncode, 143 if processes > 1 else 0, out + err)
                report, _ = self.recorded(record)
                self.assertEqual((report["stopped"], report["stop_reason"]), (True, "request"))
                self.assertLess(report["steps"], 20)
                found = self.continued(processes=processes, TEST_FOLDER=folder)
                self.assert_same_end(found, undisturbed)

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
