"""State in files where each rank has a part of the model: the same training, less memory, clear
errors."""

import unittest

import small_disk
from offload_job import OffloadTest
from support import DIGITS, TRIREME, processes_that_mention

ADAM = ("--set", "optimizer.name=adam", "--set", "optimizer.lr=0.001")
SHORT = ("--set", "train.steps=20", *ADAM)
ONE_DEVICE = ("--set", "strategy.name=one_device")
PLACES = {
    "stages": ("--workers", "2", "--set", "mesh.pipeline=2"),
    "stages of two replicas": ("--workers", "4", "--set", "mesh.pipeline=2", "--set",
                               "pipeline.schedule=zbh1"),
    "shards of level 1": ("--workers", "2", "--set", "shard.level=1", "--set",
                          "strategy.share_parameters=false"),
    "shards of level 3": ("--workers", "2", "--set", "shard.level=3"),
    "divided layers": ("--workers", "2", "--set", "mesh.tensor=2", "--set", "model.name=mlp"),
}


class OffloadedParts(OffloadTest):
    def test_the_bits_are_those_without_it_and_no_file_is_left(self):
        self.assert_same_bits_and_no_files(PLACES, *SHORT)

    def test_their_checkpoints_continue_in_other_layouts(self):
        exact = ("--set", "train.dtype=float64")
        whole = self.train(*SHORT, *exact, name="whole")
        # One device has another model than divided layers.
        layouts = ["one device", *PLACES][:-1]
        for first, second in zip(layouts, layouts[1:] + layouts[:1]):
            with self.subTest(f"{first}, then {second}"):
                keep = ("--set", f"checkpoint.dir={self.folder}/of {first}", *exact,
                        *self.offload("parameters"))
                half = ("--set", "train.steps=10")
                self.train(*SHORT, *half, *keep, *PLACES.get(first, ONE_DEVICE),
                           name=f"half {first}")
                report = self.train(*SHORT, *keep, *PLACES.get(second, ONE_DEVICE),
                                    name=f"rest {first}")
                self.assertEqual(report["resumed_from_step"], 10)
                self.assert_close(report["loss_history"], whole["loss_history"], 1e-10)

    def test_less_of_a_large_model_is_in_memory(self):
        self.assert_less_in_memory({place: PLACES[place]
                                    for place in ("stages", "shards of level 3")}, *ADAM, "--set",
                                   "train.steps=2")

    def test_the_plan_accepts_it(self):
        for place, words in PLACES.items():
            code, out, err = self.run_to_end(TRIREME, "plan", DIGITS, *words,
                                             *self.offload("parameters"))
            self.assertEqual(code, 0, f"{place}\n{out}\n{err}")

    @unittest.skipUnless(small_disk.can_be_made(), "mount namespaces cannot be made here")
    def test_a_disk_that_is_too_small_is_an_error_before_the_first_step(self):
        disk = self.files()
        for place in ("one_device", "stages", "shards of level 3"):
            for what in ("optimizer", "parameters"):
                with self.subTest(place, what=what):
                    folder = self.folder / f"{place} {what}"
                    code, out, err = self.run_to_end(
                        *small_disk.words(disk, "128k"), TRIREME, "train", DIGITS, *SHORT,
                        *PLACES.get(place, ONE_DEVICE), *self.offload(what), "--set",
                        f"run.dir={folder}")
                    self.assertEqual(code, 1, f"{out}\n{err}")
                    self.assertRegex(out + err, f"memory.swap_dir {disk}: it needs .*, and .* are "
                                     "free: No space left on device")
                    self.assertNotIn("step 1 ", out + err)
                    self.assertEqual(processes_that_mention(str(self.folder)), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
