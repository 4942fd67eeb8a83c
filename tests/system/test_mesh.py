"""Ranks that have a stage of the model, a part of its layers or a shard of its state: processes
that train as one device does, and load each other's checkpoints."""

import json
import unittest

from support import DIGITS, ROOT, TRIREME, SystemTest, settings

SMALL = settings("model.name=mlp", "model.hidden=[64,32]", "train.dtype=float64",
                 "monitor.tensorboard=false", "train.evaluate_every=0")
STEPS = settings("train.steps=20")
ONE_DEVICE = ()
LAYOUTS = {
    "two stages": ["--workers", "2", *settings("mesh.pipeline=2")],
    "three stages, zero bubble": ["--workers", "3", *settings("mesh.pipeline=3",
                                                              "pipeline.schedule=zbh1")],
    "two stages of two replicas": ["--workers", "4", *settings("mesh.pipeline=2",
                                                               "pipeline.schedule=gpipe")],
    "three stages over TCP": ["--workers", "3", *settings("mesh.pipeline=3", "comm.backend=tcp")],
    "two stages over Gloo": ["--workers", "2", *settings("mesh.pipeline=2", "comm.backend=gloo",
                                                         "pipeline.schedule=gpipe")],
    "stages in threads": settings("mesh.pipeline=2", "strategy.replicas=2"),
    "shards of level 1": ["--workers", "3", *settings("shard.level=1",
                                                      "strategy.share_parameters=false")],
    "shards of level 3": ["--workers", "2", *settings("shard.level=3")],
    "divided layers": ["--workers", "2", *settings("mesh.tensor=2")],
    "stages of divided layers": ["--workers", "4", *settings("mesh.pipeline=2", "mesh.tensor=2")],
}


class Mesh(SystemTest):
    def test_every_layout_gives_the_losses_of_one_device(self):
        reference = self.train(*SMALL, *STEPS, name="one_device")
        self.assertLess(reference["loss_history"][-1], reference["loss_history"][0])
        for name, words in LAYOUTS.items():
            with self.subTest(name):
                report = self.train(*SMALL, *STEPS, *words, name=name.replace(" ", "-"))
                self.assert_close(report["loss_history"], reference["loss_history"], 1e-10)
                self.assertEqual(report["eval"]["accuracy"], reference["eval"]["accuracy"])
                self.assertEqual(len(report["parameters_sha256"]), 64)

    def test_every_layout_loads_the_checkpoint_of_any_other(self):
        whole = self.train(*SMALL, *STEPS, name="whole")
        layouts = {"one device": ONE_DEVICE, **LAYOUTS}
        names = list(layouts)
        for first, second in zip(names, names[1:] + names[:1]):
            with self.subTest(f"{first}, then {second}"):
                folder = f"checkpoint.dir={self.folder}/of {first}"
                before = self.train(*SMALL, *settings("train.steps=10", folder), *layouts[first],
                                    name=f"before-{first}".replace(" ", "-"))
                self.assertEqual(before["steps"], 10)
                after = self.train(*SMALL, *STEPS, *settings(folder), *layouts[second],
                                   name=f"after-{first}".replace(" ", "-"))
                self.assertEqual(after["resumed_from_step"], 10)
                self.assert_close(after["loss_history"], whole["loss_history"], 1e-10)

    def test_a_divided_gpt_trains_in_replicas_as_one_device_does(self):
        text = self.folder / "text.txt"
        text.write_text("".join(f"{i} and {i * i % 97} make {i + i * i % 97}\n"
                                for i in range(400)))
        words = settings("model.name=gpt", "model.layers=2", "model.width=16", "model.heads=2",
                         "data.name=text", f"data.path={text}", "data.block=16", "data.batch=8",
                         "train.dtype=float64", "train.steps=12", "train.evaluate_every=0",
                         "optimizer.lr=0.05", "monitor.tensorboard=false", "model.tied=true")
        reference = self.train(*words, name="gpt")
        for name, layout in {
                "tensor": ["--workers", "4", *settings("mesh.tensor=2")],
                "tensor and shards": ["--workers", "4", *settings("mesh.tensor=2",
                                                                  "shard.level=1")],
                "tensor and shards of level 3": ["--workers", "4", *settings("mesh.tensor=2",
                                                                             "shard.level=3")],
                "tied over stages": ["--workers", "4", *settings("mesh.pipeline=2")],
                "tied over stages, shards": ["--workers", "4", *settings("mesh.pipeline=2",
                                                                         "shard.level=3")],
                "tied over stages, zero bubble": ["--workers", "4", *settings(
                    "mesh.pipeline=2", "shard.level=2", "pipeline.schedule=zbh1")],
        }.items():
            with self.subTest(name):
                report = self.train(*words, *layout, name=name.replace(" ", "-"))
                self.assert_close(report["loss_history"], reference["loss_history"], 1e-9)

    def test_every_layout_starts_from_the_weights_of_a_file(self):
        first = self.train(*SMALL, *settings("train.steps=5", f"checkpoint.dir={self.folder}/of"),
                           name="first")
        files = {"checkpoint": first["checkpoint"]}
        for kind in ("safetensors", "pt"):
            files[kind] = self.folder / f"weights.{kind}"
            code, out, err = self.run_to_end(TRIREME, "ckpt", "convert", first["checkpoint"],
                                             files[kind])
            self.assertEqual(code, 0, out + err)
        divided = self.train(*SMALL, *settings("train.steps=5",
                                               f"checkpoint.dir={self.folder}/parts"),
                             *LAYOUTS["shards of level 3"], name="divided")
        files["checkpoint of shards"] = divided["checkpoint"]
        # Another seed, so that a tensor that is not loaded is noticed.
        words = [*SMALL, *settings("train.steps=3", "train.seed=9",
                                   "model.weights_optional=^none$")]
        reference = self.train(*words, *settings(f"model.weights={files['checkpoint']}"),
                               name="from_file")
        self.assertLess(reference["loss_history"][0], first["loss_history"][0])
        kinds = list(files)
        for i, (name, layout) in enumerate(LAYOUTS.items()):
            kind = kinds[i % len(kinds)]
            with self.subTest(f"{name} from a {kind}"):
                report = self.train(*words, *layout, *settings(f"model.weights={files[kind]}"),
                                    name=f"from-{name}".replace(" ", "-"))
                self.assert_close(report["loss_history"], reference["loss_history"], 1e-10)

    def test_stages_start_with_new_layers_and_refuse_files_that_do_not_fit(self):
        first = self.train(*SMALL, *settings("train.steps=5", f"checkpoint.dir={self.folder}/of"),
                           name="first")
        less = self.folder / "less.safetensors"
        code, out, err = self.run_to_end(TRIREME, "ckpt", "convert", first["checkpoint"], less,
                                         "--drop", r"^2\.")
        self.assertEqual(code, 0, out + err)
        optional = settings(f"model.weights={less}", r"model.weights_optional=^2\.")
        words = [*SMALL, *settings("train.steps=3"), *optional]
        reference = self.train(*words, name="new_layer")
        for name in ("two stages", "shards of level 3", "divided layers"):
            with self.subTest(name):
                report = self.train(*words, *LAYOUTS[name], name=f"new-{name}".replace(" ", "-"))
                self.assert_close(report["loss_history"], reference["loss_history"], 1e-10)
        for words, part in (
                (settings(f"model.weights={less}"), "the file lacks 2."),
                ([*optional, *settings("model.hidden=[48,32]")], "0.weight is float32[48, 64] in "
                 "the model and float64[64, 64] in the file"),
                ([*optional, *settings("model.hidden=[64]")], "the model lacks 4.")):
            for layout in ("two stages", "shards of level 3"):
                with self.subTest(part, layout=layout):
                    code, out, err = self.run_to_end(
                        TRIREME, "train", DIGITS, *SMALL, *words, *LAYOUTS[layout], "--set",
                        f"run.dir={self.folder}/refused", timeout=60)
                    self.assertEqual(code, 2, out + err)
                    self.assertIn("does not fit the model", err)
                    self.assertIn(part, err)
                    self.assertNotIn("is allocated while it is made", err)

    def test_the_report_has_the_mesh_and_the_bubble(self):
        report = self.train(*SMALL, *STEPS, *LAYOUTS["two stages of two replicas"], name="mesh")
        self.assertEqual(report["mesh"], {"data": 2, "pipeline": 2, "tensor": 1})
        for kind in ("measured", "predicted"):
            self.assertGreater(report["bubble"][kind], 0)
            self.assertLess(report["bubble"][kind], 1)
        alone = self.train(*SMALL, *STEPS, name="alone")
        whole = alone["parameter_bytes"][0]
        self.assertGreater(whole, 0)
        # Ranks 0 and 1 are the stages of the first replica, and ranks 2 and 3 of the second one.
        stages = report["parameter_bytes"]
        self.assertEqual((stages[0] + stages[1], stages[2:]), (whole, stages[:2]))
        shards = self.train(*SMALL, *STEPS, *LAYOUTS["shards of level 3"], name="shards")
        self.assertEqual(sum(shards["parameter_bytes"]), whole)
        self.assertIsNone(alone["mesh"])
        self.assertIsNone(alone["bubble"])

    def test_stages_measure_their_blocks_and_recompute_them_in_a_budget(self):
        words = [*SMALL, *STEPS, *settings("model.hidden=[64,64,64,64,64,64]", "data.batch=64")]
        reference = self.train(*words, name="one_device")
        stages = [*words, *LAYOUTS["two stages"], *settings("pipeline.schedule=gpipe")]
        plain = self.train(*stages, *settings("pipeline.cut=3+4"), name="plain")
        for cut in ("time", "memory", "auto"):
            with self.subTest(cut):
                report = self.train(*stages, *settings(f"pipeline.cut={cut}"), name=cut)
                self.assert_close(report["loss_history"], reference["loss_history"], 1e-10)
                for rank in report["activation_bytes"]:
                    self.assertLess(abs(rank["predicted"] - rank["measured"]),
                                    0.05 * rank["measured"])
        budget = max(rank["measured"] for rank in plain["activation_bytes"])
        for policy in (["memory.policy=recompute"],
                       ["memory.policy=recompute", f"memory.budget={budget}"]):
            again = self.train(*stages, *settings("pipeline.cut=3+4", *policy),
                               name=f"again{len(policy)}")
            self.assertEqual(again["loss_history"], plain["loss_history"])
        for rank in again["activation_bytes"]:
            self.assertLessEqual(rank["measured"], budget)
        code, out, err = self.run_to_end(
            TRIREME, "train", DIGITS, *stages,
            *settings("memory.policy=recompute", "memory.budget=1000"))
        self.assertNotEqual(code, 0)
        self.assertIn("the least that works", out + err)

    def test_the_plan_is_that_of_the_run(self):
        for name in ("two stages of two replicas", "shards of level 3", "divided layers"):
            with self.subTest(name):
                words = [*SMALL, *STEPS, *LAYOUTS[name]]
                code, out, err = self.run_to_end(TRIREME, "plan", DIGITS, "--json", *words)
                self.assertEqual(code, 0, f"{out}\n{err}")
                report = self.train(*words, name=name.replace(" ", "-"))
                self.assertEqual(report["plan_digest"], json.loads(out)["digest"])

    def plan(self, *words):
        code, out, err = self.run_to_end(TRIREME, "plan", DIGITS, *words)
        self.assertEqual(code, 0, f"{out}\n{err}")
        return out

    def test_a_plan_that_measures_predicts_the_activations_of_the_run(self):
        words = [*SMALL, *STEPS, *settings("model.hidden=[64,64,64,64,64,64]", "data.batch=64")]
        recompute = settings("memory.policy=recompute")
        self.assertIn("--measure", self.plan(*words, *recompute))
        layouts = {"whole": [], "stages": LAYOUTS["two stages"],
                   "cut": [*LAYOUTS["two stages"], *settings("pipeline.cut=memory")]}
        for name, layout in layouts.items():
            for policy in ([], recompute):
                with self.subTest(name, policy=policy):
                    text = self.plan(*words, *layout, *policy, "--measure")
                    self.assertIn("activations at most" if layout else "memory: policy", text)
                    plan = json.loads(self.plan(*words, *layout, *policy, "--measure", "--json"))
                    report = self.train(*words, *layout, *policy, name=name + str(len(policy)))
                    self.assertEqual(plan["digest"], report["plan_digest"])
                    memory = plan["memory"]
                    peaks = memory["peak_bytes"] if layout else [memory["peak_bytes"]]
                    for peak, rank in zip(peaks, report["activation_bytes"], strict=True):
                        self.assertLess(abs(peak - rank["measured"]), 0.05 * rank["measured"])
        code, out, err = self.run_to_end(TRIREME, "plan", DIGITS, *words, "--measure",
                                         *settings("memory.policy=recompute",
                                                   "memory.budget=1000"))
        self.assertNotEqual(code, 0)
        self.assertIn("the least that works", out + err)

    def test_a_lost_stage_ends_the_job_and_its_checkpoint_continues_it(self):
        whole = self.train(*SMALL, *STEPS, name="whole")
        words = [*SMALL, *STEPS, *LAYOUTS["two stages"],
                 *settings(f"checkpoint.dir={self.folder}/lost", "checkpoint.every=5 steps",
                            "checkpoint.background=false")]
        code, out, err = self.run_to_end(TRIREME, "train", DIGITS, *words, "--inject",
                                         "kill:rank=1@step=13")
        self.assertNotEqual(code, 0)
        self.assertRegex(out + err, r"worker 1 .*(killed|SIGKILL|signal)")
        report = self.train(*words, name="again")
        self.assertEqual(report["resumed_from_step"], 10)
        self.assert_close(report["loss_history"], whole["loss_history"], 1e-10)

    def test_wrong_numbers_are_refused_before_anything_starts(self):
        self.assert_refused([TRIREME, "train", DIGITS, "--workers", "3",
                             *settings("mesh.pipeline=2")], 2, "mesh.pipeline 2", "3")
        self.assert_refused([TRIREME, "train", DIGITS, "--workers", "2",
                             *settings("mesh.pipeline=2", "pipeline.schedule=1f2b")], 2,
                            "pipeline.schedule", "1f1b")
        # The plan refuses what the run refuses.
        for command in ("train", "plan"):
            for keys, *words in (
                    (["mesh.pipeline=2", "strategy.local_steps=4"], "strategy.local_steps"),
                    (["mesh.pipeline=2", "strategy.compression=powersgd"],
                     "strategy 'pipeline' with strategy.compression powersgd"),
                    (["shard.level=3", "strategy.sync_batch_norm=true"],
                     "strategy 'sharded' with strategy.sync_batch_norm"),
                    (["model.name=cnn", "mesh.tensor=2"], "model.name is cnn", "mesh.tensor is 2"),
                    (["model.name=mlp", "mesh.tensor=2", "optimizer.name=lamb"],
                     "optimizer.name is lamb", "mesh.tensor is 2"),
                    (["mesh.pipeline=2", "guard.check_replicas_every=5"],
                     "guard.check_replicas_every 5"),
                    (["strategy.name=multi_worker", "mesh.pipeline=2"],
                     "strategy 'multi_worker' with mesh.pipeline 2"),
                    (["strategy.name=pipeline"], "mesh.pipeline is 1", "mesh.pipeline=2"),
                    (["pipeline.schedule=gpipe"], "pipeline.schedule is gpipe",
                     "mesh.pipeline is 1", "mesh.pipeline=2"),
                    (["pipeline.microbatches=4"], "pipeline.microbatches is 4"),
                    (["pipeline.cut=time"], "pipeline.cut is time", "mesh.pipeline is 1"),
                    (["strategy.name=tensor", "mesh.pipeline=2"], "mesh.tensor is 1"),
                    (["mesh.pipeline=2", "pipeline.schedule=0F0 0F1 0B0;1F0 1B0 1F1 1B1"],
                     "pipeline.schedule: ", "stage 0 never runs 0B1",
                     "stage 0  0F0  0F1  0B0 > ? <")):
                self.assert_refused([TRIREME, command, DIGITS, "--workers", "2",
                                     *settings(*keys)], 2, *words)
        self.assert_refused([TRIREME, "plan", ROOT / "examples/text.yaml", "--workers", "3",
                             *settings("mesh.tensor=3")], 2, "model.heads is", "mesh.tensor is 3")
        self.assert_refused([TRIREME, "plan", DIGITS, "--workers", "2",
                             *settings("mesh.pipeline=2", "pipeline.cut=time")], 2,
                            "pipeline.cut is time", "trireme plan --measure")
        self.assert_refused([TRIREME, "train", DIGITS, "--workers", "2",
                             *settings("shard.level=4")], 2, "shard.level", "4")
        self.assert_refused([TRIREME, "train", DIGITS, "--workers", "2",
                             *settings("mesh.data=5")], 2, "mesh.data 5", "there are 2")


if __name__ == "__main__":
    unittest.main()
