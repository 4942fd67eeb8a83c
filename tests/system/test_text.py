"""A transformer on a text: its loss falls, on one device and on two workers alike; wrong input is
refused."""

import random
import unittest

from support import ROOT, TRIREME, SystemTest

EXAMPLE = ROOT / "examples" / "text.yaml"
SMALL = ("--set", "model.layers=2", "--set", "model.width=32", "--set", "model.heads=2", "--set",
         "data.block=16", "--set",
         "data.batch=16", "--set", "optimizer.lr=0.003", "--set", "schedule.warmup_steps=5")


class Text(SystemTest):
    def setUp(self):
        super().setUp()
        choice = random.Random(1).choice
        words = ["the ship", "a long way", "of the sea", "and then", "they saw",
                 "three rows of oars"]
        self.text = self.folder / "text.txt"
        self.text.write_text(" ".join(choice(words) for _ in range(1500)))
        self.words = (*SMALL, "--set", f"data.path={self.text}")

    def test_the_loss_falls_and_two_workers_train_alike(self):
        words = (*self.words, "--set", "train.steps=60")
        one = self.train(*words, config=EXAMPLE, name="one")
        two = self.train(*words, "--workers", "2", config=EXAMPLE, name="two")
        self.assertGreater(one["loss_history"][0], 2.5)
        self.assertLess(one["loss_history"][-1], 0.8 * one["loss_history"][0])
        self.assertLess(one["eval"]["loss"], one["loss_history"][0])
        self.assertGreater(one["eval"]["accuracy"], 0.2)
        self.assert_close(two["loss_history"], one["loss_history"], 1e-5, count=50)
        self.assertEqual(two["eval"]["samples"], one["eval"]["samples"])

    def test_bytes_are_256_tokens(self):
        report = self.train(*self.words, "--set", "data.tokens=bytes", "--set", "train.steps=2",
                            config=EXAMPLE)
        self.assertGreater(report["loss_history"][0], 5)  # About ln 256.

    def refused(self, *words, parts):
        self.assertIn("; try: ", self.assert_refused([TRIREME, "train", EXAMPLE, *words], 2,
                                                     *parts))

    def test_wrong_input_is_refused_by_name(self):
        self.refused("--set", "data.path=/nowhere/text.txt", parts=["/nowhere/text.txt"])
        self.refused("--set", "data.path=", parts=["data.path"])
        short = self.folder / "short.txt"
        short.write_text("short")
        self.refused("--set", f"data.path={short}", parts=["short.txt", "5 tokens",
                                                           "data.block=4"])
        self.refused(*self.words, "--set", "model.vocabulary=4",
                     parts=["model.vocabulary is 4", "different tokens"])
        self.refused(*self.words, "--set", "model.context=8",
                     parts=["model.context is 8", "data.block is 16"])
        self.refused(*self.words, "--set", "model.name=mlp",
                     parts=["model.name is mlp", "model.name=gpt"])
        self.refused(*self.words, "--set", "data.classes=4", parts=["data.classes"])
        self.refused(*self.words, "--set", "data.batch=10000", "--set", "data.drop_last=true",
                     parts=["10000"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
