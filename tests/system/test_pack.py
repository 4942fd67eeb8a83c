"""`trireme data pack`: each format's own package reads what was written, and nothing that is cut
looks whole."""

import json
import os
import random
import signal
import struct
import time
import unittest
import warnings

import numpy as np
import webdataset

import small_disk
from support import TRIREME, SystemTest
from test_records import example_class, jpeg, sha256


class Pack(SystemTest):
    def data(self, *words, code=0, before=()):
        actual, out, err = self.run_to_end(*before, TRIREME, "data", *words)
        self.assertEqual(actual, code, out + err)
        return out + err

    def images(self, count=12):
        for number in range(count):
            folder = self.folder / "images" / f"class{number % 3}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:03}.jpg").write_bytes(jpeg(number))
        return self.folder / "images"

    def test_an_image_folder_becomes_shards_that_webdataset_reads(self):
        images, output = self.images(), self.folder / "shards"
        out = self.data("pack", images, "--to", "webdataset", "--output", output, "--shuffle", "3",
                        "--json")
        self.assertEqual(json.loads(out)[0]["records"], 12)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = list(webdataset.WebDataset(str(output / "shard-000000.tar"),
                                                 shardshuffle=False).decode())
        expected = {(sha256(file.read_bytes()), int(file.parent.name[-1]))
                    for file in images.glob("*/*.jpg")}
        raw = list(webdataset.WebDataset(str(output / "shard-000000.tar"), shardshuffle=False))
        self.assertEqual({(sha256(one["jpg"]), int(one["cls"])) for one in raw}, expected)
        self.assertEqual(len(samples), 12)
        self.assertEqual([one["cls"] for one in samples],
                         [record["label"] for record in
                          json.loads(self.data("head", output, "--json", "--count", "12"))])

    def test_rows_become_tfrecords_and_arrays(self):
        table = self.folder / "rows.csv"
        table.write_text("x,n,word\n0.5,1,one\n-2,2,two\n1e3,3,three\n")
        self.data("pack", table, "--to", "tfrecord", "--output", self.folder / "records")
        content, words, at = (self.folder / "records/shard-000000.tfrecord").read_bytes(), [], 0
        while at < len(content):
            size = struct.unpack_from("<Q", content, at)[0]
            example = example_class()()
            example.ParseFromString(content[at + 12:at + 12 + size])
            feature = example.features.feature
            words.append((list(feature["x"].float_list.value), list(feature["n"].int64_list.value),
                          list(feature["word"].bytes_list.value)))
            at += size + 16
        self.assertEqual(words, [([0.5], [1], [b"one"]), ([-2.0], [2], [b"two"]),
                                 ([1000.0], [3], [b"three"])])
        self.data("pack", table, "--column", "x", "--column", "n", "--to", "npy", "--output",
                  self.folder / "arrays")
        self.assertEqual(np.load(self.folder / "arrays/x.npy").tolist(), [0.5, -2, 1000])
        self.assertEqual(np.load(self.folder / "arrays/n.npy").tolist(), [1, 2, 3])

    def test_packed_tokens_train_as_the_lists_that_they_are_from(self):
        numbers = random.Random(7)
        documents = [[numbers.randrange(17) for _ in range(numbers.randrange(2, 20))]
                     for _ in range(60)]
        lists = self.folder / "lists.jsonl"
        lists.write_text("".join(json.dumps({"tokens": one}) + "\n" for one in documents))
        self.data("pack", lists, "--to", "tokens", "--output", self.folder / "packed")
        tokens = np.fromfile(self.folder / "packed/tokens.bin", np.uint16)
        self.assertEqual(tokens.tolist(), sum(documents, []))
        # Megatron's index: a head, the lengths, where each document begins, and its number.
        index = (self.folder / "packed/tokens.idx").read_bytes()
        head = struct.unpack_from("<9sQBQQ", index)
        self.assertEqual(head, (b"MMIDIDX\0\0", 1, 8, 60, 61))
        lengths = np.frombuffer(index, np.int32, 60, 34)
        self.assertEqual(lengths.tolist(), [len(one) for one in documents])
        begins = np.frombuffer(index, np.int64, 60, 34 + 60 * 4)
        self.assertEqual(begins.tolist(), [0] + (2 * np.cumsum(lengths[:-1])).tolist())
        self.assertEqual(np.frombuffer(index, np.int64, 61, 34 + 60 * 12).tolist(),
                         list(range(61)))
        config = self.folder / "gpt.yaml"
        config.write_text("""
model: {name: gpt, layers: 1, width: 8, heads: 2}
data: {batch: 6, stages: "pack(24, window=32)"}
train: {epochs: 2, dtype: float64}
""")
        losses = [self.train("--set", f"data.name={name}", "--set", f"data.path={path}",
                             config=config, name=name)["loss_history"]
                  for name, path in (("jsonl", lists), ("tokens", self.folder / "packed"))]
        self.assertEqual(losses[0], losses[1])

    def test_a_configuration_is_packed_part_by_part(self):
        for part in ("train", "test"):
            (self.folder / f"{part}.csv").write_text(f"x,y\n1,0\n{len(part)},1\n")
        config = self.folder / "job.yaml"
        config.write_text(f"data: {{name: csv, path: {self.folder}/train.csv, "
                          f"test_path: {self.folder}/test.csv}}\n")
        self.data("pack", config, "--to", "tfrecord", "--output", self.folder / "out")
        for part in ("train", "test"):
            records = json.loads(self.data("head", self.folder / "out" / part, "--json"))
            self.assertEqual(records[1]["fields"]["x"]["values"], [len(part)])

    def test_a_killed_pack_leaves_no_output(self):
        lines = self.folder / "lines.txt"
        lines.write_text("".join(f"line {i}\n" for i in range(200_000)))
        output = self.folder / "out"
        words = ["pack", lines, "--to", "webdataset", "--output", output, "--shard-bytes", "1MB"]
        process = self.start(TRIREME, "data", *words)
        unfinished, deadline = self.folder / ".out.packing", time.monotonic() + 20
        while time.monotonic() < deadline and not list(unfinished.glob("*.tar")):
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        self.assertFalse(output.exists())
        self.assertTrue(unfinished.exists())
        lines.write_text("".join(f"line {i}\n" for i in range(100)))
        self.data("index", lines)
        self.data(*words)
        self.assertEqual([file.name for file in output.iterdir() if file.suffix == ".tar"],
                         ["shard-000000.tar"])
        self.assertFalse(unfinished.exists())
        self.assertIn("has files already", self.data(*words, code=2))

    @unittest.skipUnless(small_disk.can_be_made(), "mount namespaces cannot be made here")
    def test_a_mount_point_is_refused_before_anything_is_read(self):
        disk = self.folder / "disk"
        disk.mkdir()
        words = ["pack", self.folder / "missing.txt", "--to", "webdataset", "--output"]
        out = self.data(*words, disk, code=2, before=small_disk.words(disk, "2m"))
        self.assertIn("is a mount point", out)
        self.assertIn(f"{disk}/packed", out)
        # A part of the same file system, which has the same number of a device.
        bound = ["unshare", "--mount", "--map-root-user", "sh", "-c",
                 'mount --bind "$0" "$0" && exec "$@"', disk]
        self.assertIn("is a mount point", self.data(*words, disk, code=2, before=bound))
        self.assertIn("missing.txt", self.data(*words, disk / "new", code=2))

    @unittest.skipUnless(small_disk.can_be_made(), "mount namespaces cannot be made here")
    def test_a_full_disk_names_the_shard(self):
        lines = self.folder / "lines.txt"
        lines.write_text("".join(f"line {i}\n" for i in range(3000)))
        disk = self.folder / "disk"
        disk.mkdir()
        out = self.data("pack", lines, "--to", "webdataset", "--output", disk / "out",
                        "--index-dir", self.folder, code=1,
                        before=small_disk.words(disk, "2m"))
        self.assertIn("shard-000000.tar", out)
        self.assertIn("No space left", out)


if __name__ == "__main__":
    unittest.main()
