"""The memory of activations, seen from outside: a process takes what its budget says."""

import json
import os
import subprocess
import unittest

from support import BIN, SystemTest, environment


class MemoryFromOutside(SystemTest):
    def measured(self, *words):
        """Returns the measured activations of a run of `trireme-bench step`, and the largest
        resident size of its process, in bytes."""
        process = subprocess.Popen(
            [BIN / "trireme-bench", "step", "--model", "gptdeep", "--batch", "4", "--workers", "1",
             "--steps", "1", "--json", *map(str, words)], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=environment(OMP_NUM_THREADS="1"))
        out = process.stdout.read()
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return json.loads(out)["activation_bytes"]["measured"], usage.ru_maxrss * 1024

    def test_a_quarter_of_the_activations_leaves_three_quarters_of_their_memory_free(self):
        activations, whole = self.measured("--memory-policy", "auto", "--memory-budget", 1 << 40)
        budget = activations // 4
        for policy in ("recompute", "swap"):
            with self.subTest(policy):
                held, part = self.measured("--memory-policy", policy, "--memory-budget", budget,
                                           *(("--swap-dir", self.folder) if policy == "swap"
                                             else ()))
                self.assertLessEqual(held, budget)
                self.assertGreater(whole - part, 0.75 * (activations - budget))
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
