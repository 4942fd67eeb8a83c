"""Elastic jobs whose workers have parts of a model. A lost part comes from a worker that has it
too; if there is none, from a copy in the memory of another worker, or all go back to the newest
checkpoint."""

import os
import random
import signal
import time
import unittest

from elastic_job import PATIENCE, ElasticTest
from support import DIGITS, TRIREME, settings, wait_until

SEED = int(os.environ.get("TRIREME_SOAK_SEED", random.SystemRandom().randrange(1 << 32)))
KILLS = int(os.environ.get("TRIREME_MESH_KILLS", "6"))

MODEL = settings("model.name=mlp", "model.hidden=[64,32]", "train.dtype=float64",
                 "monitor.tensorboard=false", "train.evaluate_every=0", "optimizer.name=adam",
                 "optimizer.lr=0.001", "schedule.name=constant")
STAGES = settings("mesh.pipeline=2", "pipeline.microbatches=4")
STEPS = settings("train.steps=60")
COPIES = settings("checkpoint.memory_every=5")
CHECKPOINTS = settings("checkpoint.every=5 steps")
# On a busy machine no worker that lives is taken for lost: a killed one is noticed at once.
PATIENT = settings("comm.heartbeat_timeout=10s", "comm.timeout=60s")


class MeshRecovery(ElasticTest):
    def reference(self):
        return self.train(*MODEL, *STEPS, name="one-device")

    def train_and_compare(self, elastic, *words, reference, name):
        """Trains with faults; returns the report."""
        report = self.train(*MODEL, *STEPS, *PATIENT, "--elastic", elastic, *words, name=name,
                            timeout=2 * PATIENCE)
        self.assert_close(report["loss_history"], reference["loss_history"], 1e-10)
        samples = report["samples"]
        self.assertEqual((samples["lost"], samples["repeated"]), (0, 0), samples)
        self.assertEqual(samples["seen_once"], samples["expected"])
        return report

    def test_a_lost_part_comes_from_the_worker_that_has_it_too(self):
        """There is no checkpoint before the end."""
        reference = self.reference()
        layouts = {
            "stages": STAGES,
            "zero-bubble": settings("mesh.pipeline=2", "pipeline.schedule=zbh1"),
            "divided-layers": settings("mesh.tensor=2"),
            "tcp": [*STAGES, *settings("comm.backend=tcp")],
        }
        for name, words in layouts.items():
            for rank in (0, 3):
                with self.subTest(name, rank=rank):
                    report = self.train_and_compare("2:4", *words, "--inject",
                                                    f"kill:rank={rank}@step=13",
                                                    reference=reference, name=f"{name}-{rank}")
                    self.assertEqual(report["resumed_from_step"], 0)
                    lost = [each["lost_ranks"] for each in report["generations"]]
                    self.assertIn([rank], lost)

    def test_without_such_a_worker_all_go_back_to_the_newest_checkpoint(self):
        reference = self.reference()
        layouts = {
            "one-replica": ("2:2", STAGES),
            "shards-of-level-3": ("1:2", settings("shard.level=3")),
            "shards-of-stages": ("4:4", [*STAGES, *settings("shard.level=1")]),
        }
        for name, (elastic, words) in layouts.items():
            with self.subTest(name):
                report = self.train_and_compare(elastic, *words, *CHECKPOINTS, "--inject",
                                                "kill:rank=1@step=33", reference=reference,
                                                name=name)
                self.assertGreater(report["resumed_from_step"], 0)
                self.assertEqual(report["resumed_from_step"] % 5, 0)

    def test_a_lost_part_comes_from_the_copy_of_a_neighbour(self):
        """There is no checkpoint before the end, and no other worker has the part."""
        reference = self.reference()
        layouts = {
            "one-replica": ("2:2", STAGES),
            "one-replica-tcp": ("2:2", [*STAGES, *settings("comm.backend=tcp")]),
            "divided-layers": ("2:2", settings("mesh.tensor=2")),
            "shards-of-level-3": ("1:2", settings("shard.level=3")),
            "shards-of-stages": ("4:4", [*STAGES, *settings("shard.level=1")]),
            # The unit of the lost worker leaves the job, with its other worker.
            "shards-of-fewer-stages": ("2:4", [*STAGES, *settings("shard.level=3")]),
        }
        for name, (elastic, words) in layouts.items():
            for rank in (0, 1):
                with self.subTest(name, rank=rank):
                    report = self.train_and_compare(elastic, *words, *COPIES, "--inject",
                                                    f"kill:rank={rank}@step=33",
                                                    reference=reference, name=f"{name}-{rank}")
                    self.assertEqual(report["resumed_from_step"], 30)

    def test_copies_survive_kills_at_random_moments(self):
        dice = random.Random(SEED)
        self.unit = 2
        job = self.start_job("2:2", *MODEL, *STAGES, *COPIES, *PATIENT)
        for kill in range(KILLS):
            with self.subTest(seed=SEED, kill=kill):
                before = self.generation()
                # A worker and its copy are never lost together: the copies of the new generation
                # have been made.
                after = self.step() + 3
                self.wait_for(job, lambda: self.step() > after, "more steps")
                time.sleep(dice.uniform(0, 0.3))
                os.kill(dice.choice(sorted(self.workers())), signal.SIGKILL)
                self.wait_until_whole(job, 2, before)
        self.assert_undisturbed(self.end(job), all_were_lost=True, words=MODEL)

    def test_the_way_back_to_a_checkpoint_is_told_in_a_line(self):
        run = self.folder / "told"
        code, out, err = self.run_to_end(
            TRIREME, "train", DIGITS, *MODEL, *STEPS, *STAGES, *CHECKPOINTS, *PATIENT, "--elastic",
            "2:2", "--inject", "kill:rank=1@step=33", "--set", f"run.dir={run}",
            timeout=2 * PATIENCE)
        self.assertEqual(code, 0, out + err)
        self.assertRegex(out + err, r"1 of the 2 parts of the state after step 3\d was lost with "
                                    r".*all go back to the newest checkpoint")

    def kill_at_random(self, elastic, workers, kills, *words, model=MODEL):
        """Kills one or two workers, whole units among them, at moments that nobody chose."""
        dice = random.Random(SEED)
        job = self.start_job(elastic, *model, *words, *PATIENT)
        for kill in range(kills):
            with self.subTest(seed=SEED, kill=kill):
                before = self.generation()
                time.sleep(dice.uniform(0, 0.3))
                living = sorted(self.workers())
                for pid in dice.sample(living, min(len(living), dice.choice((1, 1, 1, 2)))):
                    os.kill(pid, signal.SIGKILL)
                self.wait_until_whole(job, workers, before)
        self.assert_undisturbed(self.end(job), all_were_lost=True, words=model)

    def test_stages_killed_at_random_moments(self):
        self.unit = 2
        self.kill_at_random("2:4", 4, KILLS, *STAGES, *CHECKPOINTS)

    def test_workers_of_four_stages_and_two_replicas_killed_at_random_moments(self):
        self.unit = 4
        self.kill_at_random("4:8", 8, KILLS // 2, *CHECKPOINTS,
                            *settings("mesh.pipeline=4", "pipeline.microbatches=4"),
                            model=[*MODEL, *settings("model.hidden=[64,32,32,32]")])

    def test_shards_killed_at_random_moments(self):
        self.kill_at_random("1:3", 3, KILLS, *settings("shard.level=3"), *CHECKPOINTS)

    def test_units_come_and_go_while_it_runs(self):
        self.unit = 2
        job = self.start_job("2:4", *MODEL, *STAGES, *PATIENT)
        for size in (2, 4):
            before = self.generation()
            self.scale(size)
            self.wait_until_whole(job, size, before)
            wait_until(lambda: len(self.workers()) == size, PATIENCE, f"{size} workers")
        report = self.end(job)
        self.assert_undisturbed(report, words=MODEL)
        self.assertEqual(report["resumed_from_step"], 0)
        self.assertEqual([each["world_size"] for each in report["generations"]], [4, 2, 4])

    def test_numbers_that_do_not_fit_the_units_are_refused(self):
        self.assert_refused([TRIREME, "train", DIGITS, "--elastic", "1:4", *STAGES], 2,
                            "minimum of 1 workers", "mesh.pipeline 2", "2")
        self.assert_refused([TRIREME, "train", DIGITS, "--elastic", "2:4", *STAGES,
                             *settings("mesh.data=2")], 2, "mesh.data is 2", "--elastic 4:4")


if __name__ == "__main__":
    unittest.main(verbosity=2)
