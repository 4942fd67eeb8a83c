"""Activations that swap to a disk which becomes full: the job ends at once with an error that names
the folder."""

import json
import time
import unittest

import small_disk
from support import DIGITS, TRIREME, SystemTest, environment, processes_that_mention

# In seconds. Without news of the error the others would wait for comm.timeout, which is longer.
SOON = 40
# About 59 MB of activations in each of two replicas or stages.
WORDS = ("--set", "model.name=mlp", "--set", f"model.hidden={[512] * 40}", "--set",
         "data.batch=1400", "--set", "train.steps=2", "--set", "train.evaluate_every=0", "--set",
         "memory.policy=swap", "--set", "monitor.tensorboard=false")
PLACES = {
    "multi_worker": (),
    "stages": ("--set", "mesh.pipeline=2", "--set", "pipeline.schedule=gpipe"),
}


@unittest.skipUnless(small_disk.can_be_made(), "mount namespaces cannot be made here")
class FullDisk(SystemTest):
    def swap(self, size, place):
        """Runs two workers; returns the exit code and what they printed."""
        disk = self.folder / "disk"
        disk.mkdir(exist_ok=True)
        run_dir = self.folder / f"{place} {size}"
        code, out, err = self.run_to_end(
            *small_disk.words(disk, size), TRIREME, "train", DIGITS, "--workers", "2", *WORDS,
            *PLACES[place], "--set", f"memory.swap_dir={disk}", "--set", f"run.dir={run_dir}",
            "--report", run_dir.with_suffix(".json"), env=environment(OMP_NUM_THREADS="1"),
            timeout=2 * SOON)
        return code, out + err, disk

    def test_the_job_ends_with_an_error_that_names_the_folder(self):
        for place in PLACES:
            with self.subTest(place):
                # A rank has space to measure the speed of the disk with 34 MB, whatever the other
                # one has already.
                started = time.monotonic()
                code, said, disk = self.swap("100m", place)
                self.assertLess(time.monotonic() - started, SOON)
                self.assertEqual(code, 1, said)
                self.assertRegex(said, "cannot make the swap file longer by .*: it has [1-9].* in "
                                 f"memory.swap_dir {disk}: No space left on device")
                self.assertRegex(said, r"worker [01] .*failed with exit code 1")
                self.assertEqual(processes_that_mention(str(self.folder)), [])

    def test_a_larger_disk_is_enough(self):
        for place in PLACES:
            with self.subTest(place):
                code, said, _ = self.swap("256m", place)
                self.assertEqual(code, 0, said)
                report = json.loads((self.folder / f"{place} 256m.json").read_text())
                self.assertEqual(report["steps"], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
