"""Trireme is installed, and projects of users are built against it from outside."""

import os
import pathlib
import sys
import unittest

from support import BIN, ROOT, SystemTest, environment

DIGITS_FILE = str(ROOT / "data" / "digits.csv.gz")


class Install(SystemTest):
    def build(self, example, prefix):
        build = self.folder / f"build-{example}"
        for words in (["cmake", "-S", ROOT / "examples" / example, "-B", build, "-G", "Ninja",
                       f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release"],
                      ["cmake", "--build", build]):
            code, out, err = self.run_to_end(*words, timeout=300)
            self.assertEqual(code, 0, f"{out}\n{err}")
        return build / example

    def test_both_examples_build_as_outside_projects_and_train(self):
        prefix = self.folder / "prefix"
        code, out, err = self.run_to_end("cmake", "--install", BIN.parent, "--prefix", prefix,
                                         timeout=120)
        self.assertEqual(code, 0, err)
        trireme = prefix / "bin" / "trireme"

        own_loop = self.build("own_loop", prefix)
        self.assertLessEqual(len((ROOT / "examples/own_loop/main.cc").read_text().splitlines()),
                             60)
        last_losses = []
        for words in ([own_loop, DIGITS_FILE], [trireme, "launch", "--workers", "2", "--no-prefix",
                                                "--", own_loop, DIGITS_FILE]):
            code, out, err = self.run_to_end(*words)
            self.assertEqual(code, 0, err)
            last_losses.append(float(out.split()[-1]))
        self.assertLess(last_losses[0], 0.1)
        self.assertAlmostEqual(last_losses[0], last_losses[1], delta=0.02 * last_losses[0] + 1e-3)
        code, out, err = self.run_to_end(sys.executable, "-m", "torch.distributed.run",
                                         "--standalone", "--nproc_per_node", 2, "--no_python",
                                         own_loop,
                                         DIGITS_FILE, env=environment(OMP_NUM_THREADS="1"))
        self.assertEqual(code, 0, err)

        trainer = self.build("trainer", prefix)
        for words in ([trainer, DIGITS_FILE, "one_device"], [trainer, DIGITS_FILE, "mirrored"],
                      [trireme, "launch", "--workers", "2", "--no-prefix", "--", trainer,
                       DIGITS_FILE, "multi_worker"]):
            code, out, err = self.run_to_end(*words)
            self.assertEqual(code, 0, err)
            self.assertGreater(float(out.split()[-1]), 0.9)

        # The installed programmes find the data that ships without the source tree.
        code, out, err = self.run_to_end(trireme, "train", "--quiet", "--set", "train.steps=2")
        self.assertEqual(code, 0, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
