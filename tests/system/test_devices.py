"""`trireme train` with device.name gives what it gives on the CPU. The device is a stand-in whose
memory the host cannot read (tests/stand_in), which a shared object brings along."""

import json
import unittest

from support import BIN, DIGITS, TRIREME, SystemTest, environment

LIBRARY = BIN.parent / "lib" / "stand_in_model.so"


class Devices(SystemTest):
    def words(self, *settings, model="noisy", device="hpu"):
        all_settings = ("train.steps=12", "optimizer.lr=0.05", "schedule.warmup_steps=0",
                        f"model.library={LIBRARY}", f"model.name={model}",
                        f"device.name={device}", *settings)
        if model == "noisy":  # Keys of other models.
            config = self.folder / "noisy.yaml"
            config.write_text("data: {name: digits, batch: 48}\n"
                              "optimizer: {name: sgd, momentum: 0.9}\n")
        else:
            config = DIGITS
        words = [config]
        for setting in all_settings:
            words += ["--set", setting]
        return words

    def run_on(self, device, *settings, words=(), name="run", model="noisy", devices=3):
        config, *rest = self.words(*settings, model=model, device=device)
        return self.train(*rest, *words, name=f"{name}-{device.replace(':', '')}", config=config,
                          env=environment(TRIREME_TEST_DEVICES=str(devices), OMP_NUM_THREADS="1"))

    def assert_same(self, name, *settings, words=(), device="hpu", model="noisy"):
        with self.subTest(name):
            here = self.run_on("cpu", *settings, words=words, name=name, model=model)
            there = self.run_on(device, *settings, words=words, name=name, model=model)
            self.assertEqual(len(there["loss_history"]), 12)
            for one, other in zip(here["loss_history"], there["loss_history"]):
                self.assertAlmostEqual(one, other, delta=1e-5)
            self.assertAlmostEqual(here["eval"]["loss"], there["eval"]["loss"], delta=1e-5)
            self.assertEqual(here["eval"]["accuracy"], there["eval"]["accuracy"])

    def test_trains_as_on_the_cpu(self):
        self.assert_same("alone")
        self.assert_same("second device", device="hpu:1")
        self.assert_same("processes", words=("--workers", "3"))
        self.assert_same("threads", "strategy.name=mirrored", "strategy.replicas=2")

    def test_trains_with_everything_that_stages(self):
        self.assert_same("compressed", "strategy.compression=topk", words=("--workers", "2"))
        self.assert_same("apart", "strategy.local_steps=2", words=("--workers", "2"))
        self.assert_same("norms and averages", "strategy.sync_batch_norm=true",
                         "train.ema_decay=0.9", "train.clip_norm=0.5", words=("--workers", "2"))
        self.assert_same("checked", "guard.check_replicas_every=2", "train.dtype=float64",
                         "train.accumulate=2", "optimizer.name=adam", words=("--workers", "2"))
        self.assert_same("masters", "train.dtype=bfloat16", words=("--workers", "2"))
        self.assert_same("virtual shards", "reproducible.virtual_shards=4",
                         "model.batch_norm=false", words=("--workers", "2"), model="cnn")

    def test_checkpoints_continue_on_another_device(self):
        folder = self.folder / "checkpoints"
        whole = self.run_on("cpu", name="whole")
        for steps, device, workers in ((4, "hpu", 2), (8, "cpu", 1), (12, "hpu", 1)):
            found = self.run_on(device, f"train.steps={steps}", f"checkpoint.dir={folder}",
                                words=("--workers", str(workers)), name=f"part{steps}")
        self.assertEqual(found["resumed_from_step"], 8)
        self.assertEqual(found["steps"], 12)
        # Batch norms of two workers see their own samples, so losses are near and not equal.
        self.assertAlmostEqual(found["train_loss"], whole["train_loss"], delta=0.5)

    def test_an_elastic_job_goes_on_without_a_lost_worker(self):
        found = self.run_on("hpu", words=("--elastic", "1:2", "--inject", "kill:rank=1@step=5"))
        self.assertEqual(found["steps"], 12)
        self.assertGreaterEqual(len(found["generations"]), 2)

    def assert_named(self, *parts, settings=(), words=(), device="hpu", devices=1, code=2,
                     model="noisy"):
        with self.subTest(parts[0]):
            config, *rest = self.words(*settings, device=device, model=model)
            command = (TRIREME, "train", config, *rest, *words, "--set",
                       f"run.dir={self.folder / 'refused'}")
            self.assert_refused(command, code, *parts, env=environment(
                TRIREME_TEST_DEVICES=str(devices), OMP_NUM_THREADS="1"))

    def test_wrong_devices_are_named(self):
        self.assert_named('device.name is "gpu", which is no device of LibTorch', device="gpu")
        self.assert_named("device.name is cuda, and LibTorch sees no device of type cuda",
                          device="cuda")
        self.assert_named("this host has 3 replicas and 2 devices", words=("--workers", "3"),
                          devices=2)
        self.assert_named("device.name is hpu:3, and LibTorch sees 2 devices", device="hpu:3",
                          devices=2)
        self.assert_named("this host has 2 replicas: each takes a device of its own",
                          device="hpu:0", words=("--workers", "2"), devices=2)
        self.assert_named("a worker has 2 replicas", device="hpu:0", devices=2,
                          settings=("strategy.name=mirrored", "strategy.replicas=2"))

    def test_what_trains_on_the_cpu_only_is_named(self):
        self.assert_named("strategy.name is sharded", settings=("shard.level=1",),
                          words=("--workers", "2"), devices=2)
        self.assert_named("strategy.name is central_storage",
                          settings=("strategy.name=central_storage", "strategy.replicas=2"))
        self.assert_named("strategy.name is parameter_server",
                          settings=("strategy.name=parameter_server",), words=("--ps", "1"))
        self.assert_named("memory.policy is recompute", settings=("memory.policy=recompute",))
        self.assert_named("memory.offload is optimizer",
                          settings=("memory.offload=optimizer", f"memory.swap_dir={self.folder}"))
        self.assert_named("train.precision is bf16", settings=("train.precision=bf16",))
        self.assert_named("optimizer.name is lamb", settings=("optimizer.name=lamb",))

    def test_plan_and_doctor_show_devices(self):
        command = (TRIREME, "plan", *self.words(), "--workers", "2")
        code, out, err = self.run_to_end(*command)
        self.assertEqual(code, 0, out + err)
        self.assertIn("device: hpu, one for each replica of a host", out)
        code, out, err = self.run_to_end(*command, "--json")
        self.assertEqual(json.loads(out)["device"], "hpu")
        code, out, err = self.run_to_end(TRIREME, "doctor", "--json")
        self.assertEqual((code, json.loads(out)["device_counts"]), (0, {}), err)


if __name__ == "__main__":
    unittest.main()
