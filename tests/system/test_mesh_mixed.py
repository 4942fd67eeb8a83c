"""Stages and shards with everything else that a run may ask for: lower precision, convolutions with
batch norm, eight processes, two hosts. All of them train as one device does."""

import json
import re
import unittest

import two_hosts
from support import DIGITS, TRIREME, SystemTest, environment, settings

SMALL = settings("model.name=mlp", "model.hidden=[64,48,32]", "monitor.tensorboard=false",
                 "train.evaluate_every=0", "data.batch=64", "train.steps=12",
                 "optimizer.name=adam", "optimizer.lr=0.005",
                 "schedule.name=constant", "schedule.warmup_steps=0")
STAGES = ["--workers", "2", *settings("mesh.pipeline=2", "pipeline.microbatches=4")]
MIXED = {
    "two stages": STAGES,
    "two stages of two replicas": ["--workers", "4", *settings("mesh.pipeline=2",
                                                               "pipeline.microbatches=2")],
    "shards of level 1": ["--workers", "2", *settings("shard.level=1",
                                                      "strategy.share_parameters=false")],
    "shards of level 3": ["--workers", "2", *settings("shard.level=3")],
    "divided layers": ["--workers", "2", *settings("mesh.tensor=2")],
}


class MixedMesh(SystemTest):
    def test_lower_precision_follows_one_device(self):
        for key, tolerance in (("train.precision=bf16", 0.03), ("train.precision=fp16", 0.01),
                               ("train.dtype=bfloat16", 0.05), ("train.dtype=float16", 0.01)):
            words = [*SMALL, *settings(key)]
            reference = self.train(*words, name=key)
            self.assertLess(reference["loss_history"][-1], 0.95 * reference["loss_history"][0])
            for name, layout in MIXED.items():
                with self.subTest(f"{key}, {name}"):
                    report = self.train(*words, *layout, name=f"{key}-{name}".replace(" ", "-"))
                    self.assert_close(report["loss_history"], reference["loss_history"], tolerance)

    def test_an_overflow_skips_the_step_everywhere(self):
        # A scale of 2^40 overflows until it has been halved often enough. Stages compute
        # micro-batches, whose smaller gradients overflow less often.
        words = [*SMALL, *settings("train.precision=fp16", "train.loss_scale=1.0995e12",
                                   "train.steps=40")]
        replicas = self.train(*words, "--workers", "2", name="replicas")
        self.assertGreater(replicas["skipped_steps"], 20)
        for name, layout in MIXED.items():
            with self.subTest(name):
                report = self.train(*words, *layout, name=name.replace(" ", "-"))
                self.assertLessEqual(abs(report["skipped_steps"] - replicas["skipped_steps"]), 3)
                self.assertLess(report["loss_history"][-1], 0.6 * report["loss_history"][0])
                if name.startswith("shards"):
                    self.assertEqual(report["skipped_steps"], replicas["skipped_steps"])
                    self.assert_close(report["loss_history"], replicas["loss_history"], 1e-3)

    def test_models_with_batch_norm_train_in_stages(self):
        for model, blocks in (
                (("model.name=cnn", "model.channels=[8,8,16]", "model.strides=[1,2,2]"), 4),
                (("model.name=resnet18",), 10),
                (("model.name=amoebanet", "model.layers=3", "model.width=16"), 9)):
            words = settings(*model, "monitor.tensorboard=false", "train.evaluate_every=0",
                             "train.dtype=float64", "data.batch=8", "train.steps=3",
                             "optimizer.lr=0.01", "train.ema_decay=0")
            with self.subTest(model[0]):
                reference = self.train(*words, name=model[0])
                # One micro-batch is the whole batch, as on one device.
                whole = self.train(*words, *STAGES[:4], *settings("pipeline.microbatches=1"),
                                   name=f"{model[0]}-whole")
                self.assert_close(whole["loss_history"], reference["loss_history"], 1e-9)
                self.assertAlmostEqual(whole["eval"]["loss"], reference["eval"]["loss"], 9)
                # Micro-batches have statistics of their own, so losses are close only.
                four = self.train(*words, "--workers", "4",
                                  *settings("mesh.pipeline=4", "pipeline.microbatches=2"),
                                  name=f"{model[0]}-four")
                same = self.train(*words, *STAGES[:4], *settings("pipeline.microbatches=2"),
                                  name=f"{model[0]}-two")
                self.assertEqual(four["loss_history"], same["loss_history"])
                self.assertEqual(four["parameters_sha256"], same["parameters_sha256"])

    def test_eight_processes_and_what_loads_their_checkpoint(self):
        words = [*SMALL, *settings("train.dtype=float64", "model.hidden=[32,32,32,32,32]")]
        whole = self.train(*words, name="whole")
        eight = ["--workers", "8", *settings("mesh.pipeline=4", "mesh.data=2")]
        folder = f"checkpoint.dir={self.folder}/eight"
        half = settings("train.steps=6")
        self.train(*words, *eight, *half, *settings(folder), name="eight")
        for number, layout in enumerate((eight, [], *MIXED.values())):
            with self.subTest(layout):
                # The run writes into a folder of its own, so each one loads what eight wrote.
                own = self.folder / f"copy{number}"
                self.run_to_end("cp", "-r", self.folder / "eight", own)
                after = self.train(*words, *layout, *settings(f"checkpoint.dir={own}"),
                                   name=f"after{number}")
                self.assertEqual(after["resumed_from_step"], 6)
                self.assert_close(after["loss_history"], whole["loss_history"], 1e-10)
                self.assertAlmostEqual(after["eval"]["loss"], whole["eval"]["loss"], 9)
        # And back: eight load what one device wrote.
        one = settings(f"checkpoint.dir={self.folder}/one")
        self.train(*words, *half, *one, name="one")
        after = self.train(*words, *eight, *one, name="back")
        self.assertEqual(after["resumed_from_step"], 6)
        self.assert_close(after["loss_history"], whole["loss_history"], 1e-10)

    @unittest.skipUnless(two_hosts.can_be_made(), "network namespaces cannot be made here")
    def test_stages_and_replicas_on_two_hosts(self):
        words = [*SMALL, *settings("train.dtype=float64")]
        reference = self.train(*words, name="one_device")
        hosts = two_hosts.TwoHosts()
        self.addCleanup(hosts.end)
        for port, (workers, layout) in enumerate((
                (2, settings("mesh.pipeline=2")),
                (4, settings("mesh.pipeline=2", "pipeline.schedule=zbh1")),
                (4, settings("mesh.pipeline=4")),
                (4, settings("mesh.tensor=2")),
                (4, settings("shard.level=3")),
                (2, settings("mesh.pipeline=2", "comm.backend=tcp")))):
            with self.subTest(layout):
                report = self.folder / f"report{port}.json"
                launchers = []
                for node in (0, 1):
                    tokens = self.folder / f"tokens{node}"
                    tokens.mkdir(exist_ok=True)
                    tokens.chmod(0o700)
                    launchers.append(self.start(
                        *hosts.on(node), TRIREME, "train", DIGITS, *words, *layout, "--quiet",
                        "--workers", workers, "--nodes", 2, "--node", node, "--rendezvous",
                        f"{hosts.addresses[0]}:{29600 + port}", "--report", report,
                        *settings(f"run.dir={self.folder}/two{port}"),
                        env=environment(XDG_RUNTIME_DIR=str(tokens),
                                        TRIREME_JOB_TOKEN="a token of this test",
                                        TRIREME_HOST=f"node{node}")))
                for launcher in launchers:
                    out, err = launcher.communicate(timeout=60)
                    self.assertEqual(launcher.returncode, 0, f"{out}\n{err}")
                self.assert_close(json.loads(report.read_text())["loss_history"],
                                  reference["loss_history"], 1e-10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
