"""State in files: the same training, nothing left behind, clear errors."""

import unittest

from offload_job import LARGE, OffloadTest
from support import DIGITS, TRIREME

STEPS = ("--set", "train.steps=20", "--set", "optimizer.name=adam", "--set", "optimizer.lr=0.001")
PLACES = {
    "one_device": ("--set", "strategy.name=one_device"),
    "mirrored": ("--set", "strategy.name=mirrored", "--set", "strategy.replicas=2"),
    "multi_worker": ("--workers", "2", "--set", "strategy.name=multi_worker"),
    "without sharing": ("--workers", "2", "--set", "strategy.share_parameters=false"),
}


class Offload(OffloadTest):
    def test_the_bits_are_those_without_it_and_no_file_is_left(self):
        self.assert_same_bits_and_no_files(PLACES, *STEPS)

    def test_its_checkpoints_continue_without_it_and_the_other_way_round(self):
        whole = self.train(*STEPS, name="whole")
        for first, second in ((self.offload("parameters"), ()), ((), self.offload("optimizer"))):
            with self.subTest(first=first):
                folder = self.folder / f"checkpoints{len(first)}"
                keep = ("--set", f"checkpoint.dir={folder}", "--set", "checkpoint.every=10 steps")
                half = ("--set", "train.steps=10")
                self.train(*STEPS, *half, *keep, *first, name=f"half{len(first)}")
                report = self.train(*STEPS, *keep, *second, name=f"rest{len(first)}")
                self.assertEqual(report["resumed_from_step"], 10)
                self.assertEqual(report["parameters_sha256"], whole["parameters_sha256"])

    def test_less_of_a_large_model_is_in_memory(self):
        words = ("--set", "train.steps=3", "--set", "optimizer.name=adam", "--set",
                 "optimizer.lr=0.0001", "--set", "train.clip_norm=1")
        self.assert_less_in_memory({place: PLACES[place]
                                    for place in ("one_device", "multi_worker")}, *words)
        # Loaded state goes into files too: three tensors for each parameter.
        more = (*LARGE, *words, "--set", "train.steps=4")
        plain = self.train(*more, *PLACES["one_device"], name="one_device plain")
        files = self.train(*more, *PLACES["one_device"], *self.offload("parameters"),
                           name="one_device files")
        self.assertEqual([plain["resumed_from_step"], files["resumed_from_step"]], [3, 3])
        self.assertEqual(files["loss_history"], plain["loss_history"])
        self.assertLess(files["peak_pss_bytes"], plain["peak_pss_bytes"] - 80e6)

    def test_a_worker_that_is_killed_leaves_no_file(self):
        code, out, err = self.run_to_end(TRIREME, "train", DIGITS, *STEPS,
                                         *PLACES["multi_worker"], *self.offload("parameters"),
                                         "--inject", "kill:rank=1@step=5")
        self.assertNotEqual(code, 0, f"{out}\n{err}")
        self.assertEqual(list(self.files().iterdir()), [])

    def test_what_cannot_be_is_refused(self):
        for words, code, parts in (
                (("--set", "memory.offload=optimizer"), 2,
                 ("memory.offload is optimizer", "memory.swap_dir")),
                (("--set", "memory.offload=all"), 2, ("memory.offload", "parameters")),
                (("--set", "memory.offload=optimizer", "--set", "memory.swap_dir=/nowhere/at/all"),
                 1, ("/nowhere/at/all", "memory.swap_dir"))):
            with self.subTest(words):
                self.assert_refused([TRIREME, "train", DIGITS, *words], code, *parts)


if __name__ == "__main__":
    unittest.main()
