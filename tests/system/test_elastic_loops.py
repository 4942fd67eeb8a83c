"""Loops as people write them continue from their checkpoints and without workers that are lost, and
have the records of a run (written_loops.cc)."""

import json
import os
import re
import signal
import unittest

import two_hosts
from check_tensorboard import read_scalars
from loop_test import PROGRAMME, LoopTest
from server_jobs import children_of
from support import TRIREME, environment, processes_that_mention, wait_until


def but_if_lost(ranks):
    """The shuffles are those of rank 0, and another process has other random numbers."""
    return ("ranks", "drawn", *(("sum",) if 0 in ranks else ()))


class ElasticLoops(LoopTest):
    def test_a_loop_continues_from_its_checkpoint_with_any_number_of_processes(self):
        undisturbed = self.undisturbed()
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

    def test_a_loop_with_replicas_continues_with_any_number_of_processes(self):
        loop = "continued_replicas"
        undisturbed = self.undisturbed(loop)
        self.assertEqual((undisturbed["steps"], undisturbed["epochs"]), (24, 4))
        self.assertLess(undisturbed["rate"], 0.001)  # The schedule has done its work.
        shared, apart = {}, {"TEST_APART": 1}
        for stop, before, after, kind in ((8, 1, 1, shared), (12, 1, 2, shared), (13, 3, 2, apart),
                                          (16, 2, 1, shared), (16, 2, 2, apart)):
            with self.subTest(stop=stop, before=before, after=after, kind=kind):
                folder = self.folder / f"{stop}-{before}-{after}-{len(kind)}"
                self.continued(processes=before, loop=loop, TEST_FOLDER=folder, TEST_STOP=stop,
                               **kind)
                found = self.continued(processes=after, loop=loop, TEST_FOLDER=folder, **kind)
                self.assert_same_end(found, undisturbed)
                if before == after == 1:
                    self.assertEqual(found, undisturbed)  # Bit for bit.

    def test_masters_of_replicas_continue(self):
        loop, half = "continued_replicas", {"TEST_HALF": 1}
        whole = self.continued(processes=2, loop=loop, **half)
        folder = self.folder / "half"
        self.continued(processes=2, loop=loop, TEST_FOLDER=folder, TEST_STOP=12, **half)
        # Masters that begin as the parameters in 16 bits would end otherwise.
        self.assertEqual(self.continued(processes=2, loop=loop, TEST_FOLDER=folder, **half), whole)
        saved = b"".join(file.read_bytes() for file in folder.glob("*/*.safetensors"))
        self.assertIn(b"master/hidden.weight", saved)
        self.assertIn(b"critic.hidden.weight", saved)

    def test_a_checkpoint_of_other_replicas_is_refused(self):
        folder = self.folder / "alone"
        self.continued(TEST_FOLDER=folder, TEST_STOP=8)
        code, out, err = self.run_scenario("continued_replicas", 2, TEST_FOLDER=folder)
        self.assertNotEqual(code, 0, out + err)
        self.assertIn("the same models, optimizers and calls of Checkpoint::include()", err)

    def test_replicas_that_are_asked_to_stop_save_and_go_on_later(self):
        loop = "continued_replicas"
        undisturbed = self.undisturbed(loop)
        for processes in (1, 2):
            with self.subTest(processes=processes):
                folder = self.folder / f"stopped-{processes}"
                words = (PROGRAMME, loop)
                if processes > 1:
                    words = (TRIREME, "launch", "--workers", processes, "--", *words)
                job = self.start(*words, env=environment(TEST_FOLDER=str(folder),
                                                         TEST_PAUSE="200"))
                wait_until(lambda: list(folder.glob("step-*")), 30, "a checkpoint")
                job.send_signal(signal.SIGTERM)
                out, err = job.communicate(timeout=60)
                self.assertEqual(job.returncode, 143 if processes > 1 else 0, out + err)
                self.assertIn('"stopped":true', out)
                found = self.continued(processes=processes, loop=loop, TEST_FOLDER=folder)
                self.assert_same_end(found, undisturbed)

    def test_replicas_go_on_without_a_lost_worker(self):
        undisturbed = self.undisturbed("continued_replicas")
        for lost, kill, kind in ((1, 1, {}), (0, 7, {}), (2, 12, {"TEST_APART": 1}),
                                 (0, 24, {"TEST_APART": 1})):
            with self.subTest(lost=lost, kill=kill, kind=kind):
                found = self.continued("--elastic", "2:3", processes=3, loop="continued_replicas",
                                       TEST_LOST=lost, TEST_KILL=kill, **kind)
                self.assert_same_end(found, undisturbed)

    def test_replicas_go_on_with_a_process_that_joins_and_alone(self):
        loop = "continued_replicas"
        undisturbed = self.undisturbed(loop)
        found = self.continued("--elastic", "2:3", processes=3, loop=loop, TEST_LOST=1,
                               TEST_KILL=3, TEST_PAUSE=150)
        self.assertEqual(found["ranks"], 3)
        self.assert_same_end(found, undisturbed)
        found = self.continued("--elastic", "1:2", processes=2, loop=loop, TEST_LOST=0, TEST_KILL=3)
        self.assert_same_end(found, undisturbed)

    def test_masters_of_replicas_go_on_without_a_lost_worker(self):
        # Two ranks wait for a new one, so the bits are those of a job without a loss. They would
        # not be if masters began anew as the parameters in 16 bits.
        loop, half = "continued_replicas", {"TEST_HALF": 1}
        whole = self.continued(processes=2, loop=loop, **half)
        found = self.continued("--elastic", "2:2", processes=2, loop=loop, TEST_LOST=1,
                               TEST_KILL=9, **half)
        for key in ("sum", "critic", "rate", "steps"):
            self.assertEqual(found[key], whole[key], key)

    def test_a_group_that_was_added_in_a_step_that_is_given_up_is_added_again(self):
        whole = self.lines_of("grouped", 1)
        code, out, err = self.run_to_end(
            TRIREME, "launch", "--elastic", "2:2", "--", PROGRAMME, "grouped", timeout=90,
            env=environment(OMP_NUM_THREADS="1", TEST_KILL="13"))
        self.assertEqual(code, 0, out + err)
        lines = [json.loads(line[line.index("{"):]) for line in out.splitlines() if "{" in line]
        self.assert_same_lines(lines, whole)

    def test_a_loop_goes_on_without_a_lost_worker(self):
        undisturbed = self.undisturbed()
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

    def test_a_loop_goes_on_without_a_stopped_worker(self):
        undisturbed = self.undisturbed()
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
        self.wait_for_steps(record, 3)
        return job

    def test_a_rank_of_an_elastic_loop_that_is_asked_to_stop_ends_it_for_all(self):
        undisturbed = self.undisturbed()
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
        undisturbed = self.undisturbed()
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
        undisturbed = self.undisturbed()
        for rank in (0, 1):
            with self.subTest(rank=rank):
                folder = self.folder / f"killed-{rank}"
                found = self.continued("--elastic", "2:3", "--inject", f"kill:rank={rank}@step=5",
                                       processes=3, TEST_RECORD=folder)
                self.assert_same_end(found, undisturbed, but=but_if_lost([rank]))
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
        undisturbed = self.undisturbed()
        for processes in (1, 2):
            with self.subTest(processes=processes):
                folder, record = self.folder / f"c{processes}", self.folder / f"r{processes}"
                words = (PROGRAMME, "continued")
                if processes > 1:
                    words = (TRIREME, "launch", "--workers", processes, "--", *words)
                job = self.start(*words, env=environment(
                    TEST_FOLDER=str(folder), TEST_RECORD=str(record), TEST_PAUSE="200"))
                self.wait_for_steps(record, 2)
                job.send_signal(signal.SIGTERM)
                out, err = job.communicate(timeout=60)
                self.assertEqual(job.returncode, 143 if processes > 1 else 0, out + err)
                report, _ = self.recorded(record)
                self.assertEqual((report["stopped"], report["stop_reason"]), (True, "request"))
                self.assertLess(report["steps"], 20)
                found = self.continued(processes=processes, TEST_FOLDER=folder)
                self.assert_same_end(found, undisturbed)


@unittest.skipUnless(two_hosts.can_be_made(), "network namespaces cannot be made here")
class LoopsOnTwoHosts(LoopTest):
    def start_on_two_hosts(self, elastic, *options):
        """Starts three workers on two hosts, and waits for their third step."""
        self.hosts = two_hosts.TwoHosts()
        self.addCleanup(self.hosts.end)
        self.record = self.folder / "record"
        launchers = [
            self.start(*self.hosts.on(host), TRIREME, "launch", "--elastic", elastic, "--workers",
                       3, "--nodes", 2, "--node", host, "--rendezvous",
                       f"{self.hosts.addresses[0]}:29500", *options, "--", PROGRAMME, "continued",
                       env=environment(OMP_NUM_THREADS="1", TEST_TIMEOUT="3",
                                       TEST_RECORD=str(self.record), TEST_PAUSE="300",
                                       XDG_RUNTIME_DIR=str(self.folder),
                                       TRIREME_JOB_TOKEN="a token of this test"))
            for host in (0, 1)]
        self.wait_for_steps(self.record, 3, seconds=60)
        return launchers

    def assert_whole(self, launchers, ranks):
        """Rank 0 may be on either host, and says the end."""
        out = ""
        for launcher in launchers:
            own, err = launcher.communicate(timeout=60)
            self.assertEqual(launcher.returncode, 0, own + err)
            out += own
        found = json.loads(re.search(r"{.*}", out)[0])
        self.assertEqual(found["ranks"], ranks)
        lost = self.recorded(self.record)[0]["generations"][1]["lost_ranks"]
        self.assertTrue(lost)
        self.assert_same_end(found, self.undisturbed(), but=but_if_lost(lost))
        self.assert_each_sample_once(self.record)

    def test_the_side_of_the_coordinator_goes_on_if_the_link_is_lost(self):
        launchers = self.start_on_two_hosts("1:3")
        stay = len(children_of(launchers[0].pid))
        self.hosts.cut()
        self.assert_whole(launchers[:1], stay)
        out, err = launchers[1].communicate(timeout=60)
        self.assertEqual(launchers[1].returncode, 138, out + err)
        wait_until(lambda: not processes_that_mention(str(self.folder)), 10,
                   "all processes are gone")

    def test_a_worker_of_the_other_host_is_replaced_there(self):
        launchers = self.start_on_two_hosts("2:3")
        os.kill(children_of(launchers[1].pid)[0], signal.SIGKILL)
        self.assert_whole(launchers, 3)


if __name__ == "__main__":
    unittest.main()
