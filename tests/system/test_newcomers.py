"""A newcomer of an elastic job that cannot take part is turned away alone. The others continue."""

import json
import os
import pathlib
import shutil
import signal
import unittest

from elastic_job import COMMON, LONG, PATIENCE, ElasticTest
from support import DIGITS, ROOT, TRIREME, environment, free_port, wait_until


class Newcomers(ElasticTest):
    def start_with(self, config, elastic, *words):
        """Starts a long job with this configuration, and returns it after some steps."""
        job = self.start(TRIREME, "train", config, "--elastic", elastic, *COMMON, *LONG, "--quiet",
                         *words, "--set", f"run.dir={self.run_dir}",
                         env=environment(XDG_RUNTIME_DIR=str(self.tokens)))
        self.wait_for(job, lambda: self.step() >= 10, "the first steps")
        return job

    def kill_one(self):
        before = self.generation()
        os.kill(max(self.workers() - {self.chief()}), signal.SIGKILL)
        return before

    def test_replacements_get_the_configuration_of_the_start(self):
        config = self.folder / "job.yaml"
        shutil.copy(DIGITS, config)
        job = self.start_with(config, "1:2")
        for edited in ("optimizer: {lr: 0.7}\nmodel: {name: mlp}\n", "no: such key\n", None):
            with self.subTest(edited=edited):
                if edited is None:
                    config.unlink()
                else:
                    config.write_text(edited)
                self.wait_until_whole(job, 2, self.kill_one())
        self.assert_undisturbed(self.end(job))

    def test_a_replacement_with_other_data_is_turned_away_and_no_other_is_started(self):
        data = self.folder / "digits.csv.gz"
        shutil.copy(ROOT / "data" / "digits.csv.gz", data)
        job = self.start_with(DIGITS, "1:2", "--set", f"data.path={data}")
        data.unlink()
        before = self.kill_one()
        self.wait_until_whole(job, 1, before)
        wait_until(lambda: len(self.workers()) == 1, PATIENCE, "the replacement has ended")
        step = self.step()
        self.wait_for(job, lambda: self.step() > step + 20, "more steps")
        self.assertEqual(len(self.workers()), 1)
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 143, err)
        self.assertIn("the job continues without it, and no other process replaces it", err)
        self.assertEqual(err.count("no other process replaces it"), 1)
        report = json.loads((self.run_dir / "report.json").read_text())
        self.assertEqual(pathlib.Path(report["checkpoint"]).name, f"step-{report['steps']:09d}")

    def test_scale_tries_again_where_a_replacement_was_turned_away(self):
        data = self.folder / "digits.csv.gz"
        shutil.copy(ROOT / "data" / "digits.csv.gz", data)
        job = self.start_with(DIGITS, "1:2", "--set", f"data.path={data}")
        aside = data.rename(self.folder / "aside")
        generation = self.wait_until_whole(job, 1, self.kill_one())
        wait_until(lambda: len(self.workers()) == 1, PATIENCE, "the replacement has ended")
        step = self.step()
        self.wait_for(job, lambda: self.step() > step + 20, "more steps")
        self.assertEqual(len(self.workers()), 1)
        aside.rename(data)
        self.scale(2)
        self.wait_until_whole(job, 2, generation)
        self.assert_undisturbed(self.end(job))

    def test_a_job_that_then_has_too_few_workers_saves_before_it_ends(self):
        data = self.folder / "digits.csv.gz"
        shutil.copy(ROOT / "data" / "digits.csv.gz", data)
        job = self.start_with(DIGITS, "2:2", "--set", f"data.path={data}")
        data.unlink()
        self.kill_one()
        _, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 2, err)
        self.assertIn("fewer than 2 workers", err)
        report = json.loads((self.run_dir / "report.json").read_text())
        self.assertTrue(report["stopped"])
        self.assertEqual(pathlib.Path(report["checkpoint"]).name, f"step-{report['steps']:09d}")
        self.assert_nothing_left()

    def start_node(self, node, rendezvous, *words):
        return self.start(TRIREME, "train", DIGITS, "--elastic", "1:4", "--nodes", "2",
                          "--node", node, "--rendezvous", rendezvous, *COMMON, *LONG, "--quiet",
                          "--set",
                          "comm.timeout=6s", *words,
                          env=environment(XDG_RUNTIME_DIR=str(self.tokens),
                                          TRIREME_HOST=f"n{node}",
                                          TRIREME_JOB_TOKEN="a token of this test of newcomers"))

    def test_a_node_with_other_settings_is_turned_away_by_the_difference(self):
        rendezvous = f"127.0.0.1:{free_port()}"
        job = self.start_node(0, rendezvous, "--set", f"run.dir={self.run_dir}")
        self.wait_for(job, lambda: self.step() >= 10, "the first steps of node 0 alone")
        before = self.generation()
        other = self.start_node(1, rendezvous, "--set", f"run.dir={self.folder / 'other'}",
                                "--set", "optimizer.lr=0.7")
        _, err = other.communicate(timeout=60)
        self.assertEqual(other.returncode, 2, err)
        self.assertIn("turned away, as it differs from the job: optimizer.lr is '0.7' on this one "
                      "and '0.1' on", err)
        step = self.step()
        self.wait_for(job, lambda: self.step() > step + 20, "more steps")
        self.assertEqual(self.generation(), before)
        right = self.start_node(1, rendezvous, "--set", f"run.dir={self.folder / 'right'}")
        self.wait_until_whole(job, 4, before)
        job.send_signal(signal.SIGTERM)
        right.send_signal(signal.SIGTERM)
        for launcher in (job, right):
            _, err = launcher.communicate(timeout=60)
            self.assertEqual(launcher.returncode, 143, err)
        self.assert_undisturbed(json.loads((self.run_dir / "report.json").read_text()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
