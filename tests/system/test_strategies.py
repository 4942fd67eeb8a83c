"""Changing the strategy changes one word and not the result."""

import unittest

from support import SystemTest

STEPS50 = ("--set", "train.steps=50")
# A model whose first 50 steps already learn a lot.
QUICK = ("--set", "model.name=mlp", "--set", "model.hidden=[64,32]", "--set",
         "schedule.warmup_steps=10")
SAME_TRAINING = {
    "mirrored-2": ("--set", "strategy.name=mirrored", "--set", "strategy.replicas=2"),
    "mirrored-3": ("--set", "strategy.name=mirrored", "--set", "strategy.replicas=3"),
    "central_storage-2": ("--set", "strategy.name=central_storage", "--set",
                          "strategy.replicas=2"),
    "mirrored-3-ring": ("--set", "strategy.name=mirrored", "--set", "strategy.replicas=3", "--set",
                        "strategy.all_reduce=ring"),
    "multi_worker-2": ("--workers", "2", "--set", "strategy.name=multi_worker"),
    "multi_worker-3": ("--workers", "3", "--set", "strategy.name=multi_worker"),
    "multi_worker-2x2": ("--workers", "2", "--set", "strategy.replicas=2"),
    "accumulate": ("--set", "train.accumulate=3"),
}


class Strategies(SystemTest):
    def test_float32_losses_of_every_strategy_are_those_of_one_device_over_50_steps(self):
        for model in ((), QUICK):
            prefix = "quick-" if model else ""
            reference = self.train(*STEPS50, *model, "--set", "strategy.name=one_device",
                                   name=prefix + "one_device")
            self.assertEqual(len(reference["loss_history"]), 50)
            if model == QUICK:
                self.assertLess(reference["loss_history"][-1], 0.7 * reference["loss_history"][0])
            for name, words in SAME_TRAINING.items():
                with self.subTest(name, model=model):
                    report = self.train(*STEPS50, *model, *words, name=prefix + name)
                    self.assert_close(report["loss_history"], reference["loss_history"], 1e-5)

    def test_float64_losses_agree_over_a_whole_run(self):
        long = ("--set", "train.epochs=3", "--set", "train.dtype=float64")
        reference = self.train(*long, name="one_device")
        for name in ("mirrored-2", "multi_worker-2", "multi_worker-3"):
            with self.subTest(name):
                report = self.train(*long, *SAME_TRAINING[name], name=name)
                self.assert_close(report["loss_history"], reference["loss_history"], 1e-10)
                self.assertEqual(report["eval"]["accuracy"], reference["eval"]["accuracy"])

    def test_the_same_run_twice_ends_with_the_same_bits(self):
        for name in ("mirrored-3", "multi_worker-3"):
            with self.subTest(name):
                first = self.train(*STEPS50, *SAME_TRAINING[name], name=name + "-a")
                second = self.train(*STEPS50, *SAME_TRAINING[name], name=name + "-b")
                self.assertEqual(first["parameters_sha256"], second["parameters_sha256"])
                self.assertEqual(first["loss_history"], second["loss_history"])

    def test_dropout_draws_the_same_numbers_in_threads_and_in_processes(self):
        words = (*STEPS50, "--set", "model.dropout=0.3")
        threads = self.train(*words, *SAME_TRAINING["mirrored-2"], name="threads")
        processes = self.train(*words, *SAME_TRAINING["multi_worker-2"], name="processes")
        self.assert_close(processes["loss_history"], threads["loss_history"], 1e-5)

    def test_clipping_and_schedule_hold_for_every_strategy(self):
        words = (*STEPS50, "--set", "train.clip_norm=0.5", "--set", "schedule.name=step", "--set",
                 "schedule.every=1", "--set", "schedule.gamma=0.5")
        reference = self.train(*words, name="one_device")
        for name in ("mirrored-2", "multi_worker-2"):
            with self.subTest(name):
                self.assert_close(self.train(*words, *SAME_TRAINING[name],
                                             name=name)["loss_history"], reference["loss_history"],
                                  1e-5)

    def test_every_optimizer_gives_the_same_training_on_two_workers(self):
        for optimizer in ("sgd", "adam", "adamw", "rmsprop", "adagrad"):
            with self.subTest(optimizer):
                words = ("--set", "train.steps=20", "--set", f"optimizer.name={optimizer}",
                         "--set", "optimizer.lr=0.001", "--set",
                         "train.dtype=float64")
                reference = self.train(*words, name=optimizer)
                report = self.train(*words, *SAME_TRAINING["multi_worker-2"], name=optimizer
                                    + "-2")
                self.assert_close(report["loss_history"], reference["loss_history"], 1e-9)

    def test_the_uneven_last_batch_is_weighted_by_samples(self):
        # 1,437 training samples in batches of 100: the last batch of an epoch has 37, in uneven
        # shares of 3 ranks.
        words = ("--set", "data.batch=100", "--set", "train.epochs=2", "--set",
                 "train.dtype=float64")
        reference = self.train(*words, name="one_device")
        report = self.train(*words, *SAME_TRAINING["mirrored-3"], name="three")
        self.assertEqual(len(reference["loss_history"]), 30)
        self.assert_close(report["loss_history"], reference["loss_history"], 1e-10)

    def test_the_digits_example_as_it_stands_reaches_its_accuracy(self):
        report = self.train("--workers", "2")
        self.assertGreaterEqual(report["eval"]["accuracy"], 0.975)
        self.assertEqual(report["eval"]["samples"], 359)  # A fifth of 1,797.

    def test_the_report_has_the_keys_that_scripts_read(self):
        report = self.train("--set", "train.steps=3", "--workers", "2")
        for key in ("steps", "epochs", "workers", "world_size", "strategy", "loss_history",
                    "train_loss", "eval", "samples_per_second",
                    "wall_seconds", "cpu_seconds", "peak_pss_bytes", "checkpoint",
                    "parameters_sha256", "cost"):
            self.assertIn(key, report)
        self.assertEqual((report["steps"], report["workers"], report["world_size"],
                          report["strategy"]), (3, 2, 2, "multi_worker"))
        self.assertGreater(report["cpu_seconds"], 0)
        self.assertGreater(report["peak_pss_bytes"], 10_000_000)
        self.assertGreater(report["cost"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
