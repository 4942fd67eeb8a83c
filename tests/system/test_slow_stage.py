"""A stage that is slow: it is named, and what the tuner does about it stays within
data.memory_bytes, measured from outside."""

import io
import json
import random
import tarfile
import time
import unittest

from support import (BIN, TRIREME, SystemTest, own_bytes, png, processes_that_mention,
                     settings)

OWN_STAGE = BIN.parent / "lib" / "own_stage.so"


class SlowStage(SystemTest):
    def setUp(self):
        super().setUp()
        numbers = random.Random(5)
        data = self.folder / "bytes"
        data.mkdir()
        (data / "data_batch_1.bin").write_bytes(
            b"".join(bytes([i % 10]) + numbers.randbytes(3072) for i in range(1024)))
        self.config = self.folder / "slow.yaml"
        self.config.write_text(f"""
model: {{name: mlp, hidden: [2], library: {OWN_STAGE}}}
data: {{name: cifar, path: {data}, batch: 128, test_fraction: 0}}
optimizer: {{name: sgd, lr: 0.01}}
train: {{evaluate_every: 0}}
""")

    def test_is_named_in_the_report_and_in_the_line(self):
        for name, stages in {"first": "normalise | map(slow) | map(darker)",
                             "last": "resize(40:40) | normalise | map(darker) | map(slow)"}.items():
            with self.subTest(name):
                words = ["--set", f"data.stages={stages}", "--set", "data.threads=2", "--set",
                         "train.steps=8"]
                found = self.train(*words, config=self.config, name=name)["input"]
                self.assertEqual(found["slowest_stage"], "map(slow)", found)
                self.assertGreater(found["waited_share"], 0.3)
                slow, = (stage for stage in found["stages"] if stage["name"] == "map(slow)")
                self.assertGreaterEqual(slow["ms_per_sample"], 4)
                self.assertRegex(found["line"], r"^waited \d+\.\d % of step time; slowest stage "
                                 r"map\(slow\), [12]\.\d of 2 threads busy: data.threads=3")
        code, out, err = self.run_to_end(TRIREME, "train", self.config, *words, "--set",
                                         f"run.dir={self.folder / 'told'}")
        self.assertEqual(code, 0, out + err)
        self.assertRegex(out, r"input +waited .*slowest stage map\(slow\)")

    def plan(self, *pairs):
        return self.run_to_end(TRIREME, "plan", self.config, *settings(*pairs))

    def test_a_plan_knows_the_functions_of_the_library(self):
        code, out, err = self.plan("data.stages=normalise | map(slow)")
        self.assertEqual(code, 0, err)
        self.assertNotIn("not known", out)
        code, out, err = self.plan("data.stages=normalise | map(quick)")
        self.assertEqual(code, 2, out)
        self.assertIn("function for the stage map 'quick' is not known; try: darker, "
                      "negative, slow", err)
        # A programme may register what no library has.
        self.config.write_text(self.config.read_text().replace(f", library: {OWN_STAGE}", ""))
        code, out, err = self.plan("data.stages=normalise | map(quick)")
        self.assertEqual(code, 0, err)
        self.assertIn("map(quick): this function is not known here", out)

    def most_memory(self, *pairs, name):
        """Returns the report, and the most memory that all processes of the job had together."""
        run, report = self.folder / name, self.folder / f"{name}.json"
        job = self.start(TRIREME, "train", self.config, "--quiet", "--workers", "2", "--report",
                         report, *settings(f"run.dir={run}", *pairs))
        most, deadline = 0, time.monotonic() + 120
        while job.poll() is None and time.monotonic() < deadline:
            most = max(most, sum(own_bytes(pid)
                                 for pid, _ in processes_that_mention(str(run))))
            time.sleep(0.03)
        out, err = job.communicate(timeout=1)
        self.assertEqual(job.returncode, 0, out + err)
        return json.loads(report.read_text()), most

    def test_tuning_stays_within_its_memory(self):
        """A rank's share of a batch has 7 MB. Without the budget 4 threads of each rank and 8
        batches ahead would have 170 MB."""
        budget, batch = 72_000_000, 64 * 3 * 96 * 96 * 4
        stages = "data.stages=resize(96:96) | normalise | map(slow)"
        _, without = self.most_memory(stages, "data.threads=0", "train.steps=6", name="without")
        report, tuned = self.most_memory(stages, f"data.memory_bytes={budget}", "train.steps=60",
                                         name="tuned")
        self.assertEqual(report["input"]["tuned"]["reason"], "memory", report["input"])
        self.assertGreater(tuned - without, 2 * batch)
        self.assertLess(tuned - without, 1.25 * budget)

    def test_tuning_beside_a_cache_stays_within_the_memory_of_both(self):
        """The images in front of the crop have 104 MB, and the cache takes three quarters of the
        budget. Batches have the rest."""
        budget = 72_000_000
        stages = "resize(184:184) | {}random_crop(48) | normalise | map(slow)"
        _, without = self.most_memory("data.stages=" + stages.format(""), "data.threads=0",
                                      "train.steps=6", name="without")
        report, tuned = self.most_memory("data.stages=" + stages.format("cache | "),
                                         f"data.memory_bytes={budget}", "train.steps=24",
                                         name="tuned")
        cache = report["input"]["cache"]
        self.assertEqual((cache["place"], cache["full"]), ("memory", True), cache)
        self.assertGreater(cache["bytes"], budget // 2)
        self.assertIs(report["input"]["tuned"]["threads"], True, report["input"])
        self.assertGreater(tuned - without, cache["bytes"] // 2)
        self.assertLess(tuned - without, 1.25 * budget)

    def test_packed_files_stay_within_their_memory(self):
        """Six shards of 18 MB, which two workers would keep as a whole otherwise."""
        numbers, shards = random.Random(6), self.folder / "shards"
        shards.mkdir()
        images = [png(numbers.randbytes(64 * 64 * 3), 64, 64) for _ in range(32)]
        for shard in range(6):
            with tarfile.open(shards / f"{shard}.tar.gz", "w:gz", compresslevel=1) as tar:
                for i in range(1400):
                    for name, content in ("png", images[i % 32]), ("cls", str(i % 10).encode()):
                        member = tarfile.TarInfo(f"{i:04}.{name}")
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))
        words = ["data.name=webdataset", f"data.path={shards}", "data.stages=decode | normalise",
                 "data.shuffle=blocks", "data.window=128", "data.threads=1", "data.prefetch=1",
                 "train.steps=65"]
        _, all_kept = self.most_memory(*words, "data.memory_bytes=1GB", name="all")
        _, few_kept = self.most_memory(*words, "data.memory_bytes=64MB", name="few")
        self.assertGreater(all_kept - few_kept, 64_000_000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
