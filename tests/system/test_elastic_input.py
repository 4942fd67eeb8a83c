"""Elastic jobs whose samples come from files through stages: workers are killed, and their number
changes. Each sample is used once, and the losses are those of an undisturbed run."""

import os
import random
import signal
import unittest

from elastic_job import COMMON, ElasticTest
from made_files import write_documents, write_pictures
from support import TRIREME

SHARDS = ("--set", "reproducible.virtual_shards=6")


class ElasticInput(ElasticTest):
    def kill(self, job, victim, size):
        before = self.generation()
        os.kill(victim, signal.SIGKILL)
        self.wait_until_whole(job, size, before)

    def resize(self, job, *sizes):
        for size in sizes:
            before = self.generation()
            self.scale(size)
            self.wait_until_whole(job, size, before)

    def disturbed(self, *words):
        """Returns the report of a job whose workers were killed and became more and fewer."""
        job = self.start_job("1:3", *words)
        self.kill(job, max(self.workers() - {self.chief()}), 3)
        self.resize(job, 2, 3, 2)
        self.kill(job, self.chief(), 2)
        report = self.end(job)
        lost = [each["lost_ranks"] for each in report["generations"] if each["lost_ranks"]]
        self.assertEqual([len(ranks) for ranks in lost], [1, 1], report["generations"])
        self.assertGreaterEqual({each["world_size"] for each in report["generations"]}, {2, 3})
        return report

    def test_images_that_are_cropped_and_cached(self):
        images = self.folder / "images"
        write_pictures(images, random.Random(7))
        self.config = self.folder / "images.yaml"
        self.config.write_text(f"""
model: {{name: mlp, hidden: [8]}}
data:
  name: image_folder
  path: {images}
  batch: 16
  test_fraction: 0
  stages: decode | resize(20:20) | cache | random_crop(16, padding=2) | flip | normalise(0.5, 0.25)
optimizer: {{name: sgd, lr: 0.002}}
""")
        report = self.disturbed()
        self.assert_undisturbed(report)
        self.assertGreater(report["input"]["cache"]["hits"], 0)

    def assert_bits_of_one_worker(self, report):
        self.assert_each_sample_once(report)
        one = self.train(*COMMON, *SHARDS, "--set", f"train.steps={report['steps']}",
                         config=self.config, name="one")
        self.assertEqual(report["loss_history"], one["loss_history"])
        self.assertEqual(report["parameters_sha256"], one["parameters_sha256"])

    def write_documents(self, stages, name="jsonl", path=None):
        """Writes documents of tokens, and a configuration that has them or their shards."""
        documents = self.folder / "documents.jsonl"
        write_documents(documents, random.Random(5), 100)
        self.config = self.folder / "documents.yaml"
        self.config.write_text(f"""
model: {{name: gpt, layers: 1, width: 8, heads: 2}}
data: {{name: {name}, path: {path or documents}, batch: 6, test_fraction: 0, stages: {stages}}}
optimizer: {{name: adam, lr: 0.001}}
""")
        return documents

    def test_packs_of_documents(self):
        self.write_documents("pack(24)")
        self.assert_bits_of_one_worker(self.disturbed(*SHARDS))

    def test_padded_documents_of_shards(self):
        shards = self.folder / "shards"
        documents = self.write_documents("bucket(window=4) | pad", "webdataset", shards)
        self.must(TRIREME, "data", "pack", documents, "--to", "webdataset", "--output", shards)
        self.assert_bits_of_one_worker(self.disturbed(*SHARDS))


if __name__ == "__main__":
    unittest.main(verbosity=2)
