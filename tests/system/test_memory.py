"""Memory, seen from outside: a process takes what the budget of its activations says, and its part
of the model."""

import json
import os
import signal
import subprocess
import unittest

from support import (BIN, DIGITS, TRIREME, SystemTest, environment, own_bytes,
                     processes_that_mention, wait_until)


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


class PartsFromOutside(SystemTest):
    """The largest model here has 16.9 million parameters: 68 MB, and three times as much for
    gradients and Adam's state."""

    def bytes_of_workers(self, name, hidden, *words):
        """Returns the own bytes of the workers of a training that has taken some steps."""
        run_dir = self.folder / name
        process = self.start(TRIREME, "train", DIGITS, "--set", "model.name=mlp", "--set",
                             f"model.hidden={hidden}", "--set", "train.steps=1000000", "--set",
                             "train.evaluate_every=0", "--set", "optimizer.name=adam", "--set",
                             "optimizer.lr=0.00001", "--set", "monitor.tensorboard=false", "--set",
                             f"run.dir={run_dir}", "--quiet", *words,
                             env=environment(OMP_NUM_THREADS="1"))
        log = run_dir / "log.jsonl"
        wait_until(lambda: log.exists() and log.read_text().count('"event":"step"') >= 3, 120,
                   f"the first steps of {name}")
        workers = [pid for pid, command in processes_that_mention(str(run_dir))
                   if "trireme-worker" in command]
        found = [own_bytes(pid) for pid in workers]
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=20)
        wait_until(lambda: not processes_that_mention(str(run_dir)), 20, "all processes are gone")
        return found

    def bytes_of_model(self, name, *words):
        """Returns how much more workers take with a large model than with a small one."""
        large = self.bytes_of_workers(name, "[2048,2048,2048,2048,2048]", *words)
        small = self.bytes_of_workers(f"small {name}", "[8,8,8,8,8]", *words)
        self.assertEqual(len(large), len(small))
        return [each - max(small) for each in large]

    def test_a_rank_takes_its_part_of_the_model(self):
        whole, = self.bytes_of_model("one device")
        self.assertGreater(whole, 240e6)
        # Besides its half of everything, a rank of level 3 has the parameters and the gradients of
        # the largest block, a quarter of the model, and of the latter also the sum that arrives.
        for name, least, most, *words in (
                ("stages", 0.35, 0.65, "--set", "mesh.pipeline=2"),
                ("shards", 0.4, 0.8, "--set", "shard.level=3")):
            with self.subTest(name):
                parts = self.bytes_of_model(name, "--workers", "2", *words)
                self.assertEqual(len(parts), 2)
                for part in parts:
                    self.assertGreater(part, least * whole)
                    self.assertLess(part, most * whole)


if __name__ == "__main__":
    unittest.main(verbosity=2)
