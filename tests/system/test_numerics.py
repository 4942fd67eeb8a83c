"""Batch norm over all replicas, precision, compression and local steps with real processes, from
the command line."""

import pathlib
import unittest

from support import DIGITS, TRIREME, SystemTest

NORMS = ("--set", "model.name=cnn", "--set", "model.channels=[8,16]", "--set",
         "model.strides=[1,2]", "--set", "model.batch_norm=true")
QUICK = ("--set", "model.name=mlp", "--set", "model.hidden=[64,32]", "--set",
         "schedule.warmup_steps=10")


def settings(**keys):
    return [word for key, value in keys.items() for word in ("--set",
                                                             f"{key.replace('__', '.')}={value}")]


class Numerics(SystemTest):
    def test_batch_norm_over_all_replicas_is_that_of_one_device(self):
        # 1,437 samples in batches of 65: the last batch has 7, in uneven shares of 3 workers.
        words = (*NORMS, *settings(train__steps=30, train__dtype="float64", data__batch=65))
        reference = self.train(*words, name="one")
        for workers in (2, 3):
            report = self.train(*words, *settings(strategy__sync_batch_norm="true"), "--workers",
                                workers, name=f"sync-{workers}")
            self.assert_close(report["loss_history"], reference["loss_history"], 1e-10)
            self.assertAlmostEqual(report["eval"]["loss"], reference["eval"]["loss"], places=8)
        apart = self.train(*words, "--workers", 2, name="apart")
        self.assertGreater(abs(apart["loss_history"][5] - reference["loss_history"][5]), 1e-4)

    def test_compressed_training_reaches_the_loss_with_fewer_bytes_and_resumes_exactly(self):
        # Large enough for blocks and factors to be worth their cost.
        words = (*QUICK, *settings(train__steps=200, model__hidden="[256,128]"))
        plain = self.train(*words, *settings(strategy__share_parameters="false"), "--workers", 2,
                           name="plain")
        most_bytes = {"bf16": 0.51, "fp16": 0.52, "int8": 0.28, "topk": 0.15, "powersgd": 0.12}
        for name, fraction in most_bytes.items():
            with self.subTest(name):
                how = settings(strategy__compression=name)
                if name == "topk":
                    how += settings(strategy__compression_ratio=0.05)
                whole = self.train(*words, *how, "--workers", 2, name=name)
                self.assertLess(whole["train_loss"], 1.3 * plain["train_loss"] + 0.02)
                self.assertLess(whole["exchange_bytes_per_step"],
                                fraction * plain["exchange_bytes_per_step"])
                self.assertEqual(whole["compression"], name)
                if name not in ("int8", "powersgd"):
                    continue
                folder = settings(checkpoint__dir=self.folder / f"{name}-checkpoints",
                                  schedule__name="constant")
                straight = self.train(*QUICK, *how, *settings(train__steps=20,
                                                              schedule__name="constant"),
                                      "--workers", 2, name=f"{name}-s")
                self.train(*QUICK, *how, *settings(train__steps=8), *folder, "--workers", 2,
                           name=f"{name}-a")
                resumed = self.train(*QUICK, *how, *settings(train__steps=20), *folder,
                                     "--workers", 2, name=f"{name}-b")
                self.assertEqual(resumed["resumed_from_step"], 8)
                self.assertEqual(resumed["parameters_sha256"], straight["parameters_sha256"])

    def test_local_steps_send_less_and_end_averaged(self):
        words = (*QUICK, *settings(train__steps=100))
        plain = self.train(*words, *settings(strategy__share_parameters="false"), "--workers", 2,
                           name="plain")
        local = self.train(*words, *settings(strategy__local_steps=5, strategy__local_after=20),
                           "--workers", 2, name="local")
        again = self.train(*words, *settings(strategy__local_steps=5, strategy__local_after=20),
                           "--workers", 2, name="again")
        self.assertEqual(local["local_steps"], 5)
        self.assertLess(local["exchange_bytes_per_step"], 0.5 * plain["exchange_bytes_per_step"])
        self.assertLess(local["train_loss"], 1.2 * plain["train_loss"])
        self.assertEqual(local["parameters_sha256"], again["parameters_sha256"])

    def test_a_resnet_trains_alike_on_one_device_and_on_two_workers(self):
        words = settings(model__name="resnet18", data__batch=8, train__steps=2,
                         train__dtype="float64", data__test_fraction=0.01)
        one = self.train(*words, name="one")
        two = self.train(*words, *settings(strategy__sync_batch_norm="true"), "--workers", 2,
                         name="two")
        self.assertEqual(one["parameters"], 11_172_810)  # One channel, a 3x3 stem, ten classes.
        self.assert_close(two["loss_history"], one["loss_history"], 1e-10)

    def test_sixteen_bits_train_nearly_alike(self):
        words = (*QUICK, *settings(train__steps=100))
        plain = self.train(*words, name="plain")
        for name, how in {"bf16": settings(train__precision="bf16"),
                          "fp16": settings(train__precision="fp16"),
                          "bfloat16": settings(train__dtype="bfloat16"),
                          "float16": settings(train__dtype="float16", train__loss_scale=256),
                          "average": settings(train__ema_decay=0.9)}.items():
            with self.subTest(name):
                report = self.train(*words, *how, "--workers", 2, name=name)
                self.assertLess(abs(report["train_loss"] - plain["train_loss"]),
                                0.05 * plain["train_loss"] + 0.01)
                self.assertGreater(report["eval"]["accuracy"], plain["eval"]["accuracy"] - 0.03)
                self.assertEqual(report["steps"], 100)

    def test_a_loss_scale_that_is_too_large_is_halved_on_all_ranks_until_it_fits(self):
        report = self.train(*QUICK, *settings(train__steps=10, train__precision="fp16",
                                              train__loss_scale=2.0**30), "--workers", 2)
        self.assertEqual(report["steps"], 10)
        self.assertGreater(report["skipped_steps"], 3)
        self.assertEqual(report["loss_scale"], 2.0 ** (30 - report["skipped_steps"]))

    def test_the_learning_rate_follows_the_batch(self):
        report = self.train(*QUICK, *settings(train__steps=3, optimizer__scale_lr="linear",
                                              optimizer__base_batch=16, optimizer__lr=0.025))
        plain = self.train(*QUICK, *settings(train__steps=3, optimizer__lr=0.1), name="plain")
        self.assertEqual(report["learning_rate_scale"], 4)
        self.assertEqual(report["parameters_sha256"], plain["parameters_sha256"])

    def test_contradictory_settings_are_refused(self):
        for words, parts in {
            ("strategy.compression=zip",): ["zip", "powersgd"],
            ("strategy.compression_rank=4",): ["strategy.compression_rank", "powersgd"],
            ("strategy.compression=topk",
             "strategy.compression_ratio=0"): ["strategy.compression_ratio"],
            ("strategy.local_steps=0",): ["strategy.local_steps"],
            ("strategy.local_after=5",): ["strategy.local_after", "strategy.local_steps"],
            ("strategy.local_steps=4", "strategy.compression=int8"): ["one of them"],
            ("train.precision=bf16", "train.dtype=float64"): ["train.dtype"],
            ("train.precision=int4",): ["int4"],
            ("train.loss_scale=8",): ["train.loss_scale", "fp16"],
            ("train.ema_decay=1",): ["train.ema_decay"],
            ("optimizer.scale_lr=linear",): ["optimizer.base_batch"],
            ("optimizer.base_batch=64",): ["optimizer.base_batch"],
        }.items():
            sets = [word for key in words for word in ("--set", key)]
            with self.subTest(words):
                self.assertIn("; try: ", self.assert_refused([TRIREME, "train",
                                                              pathlib.Path(DIGITS), *sets], 2,
                                                             *parts))


if __name__ == "__main__":
    unittest.main(verbosity=2)
