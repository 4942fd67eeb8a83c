"""Formats without shards, on a server: each file is fetched once a host. Unless an index knows the
files, each start asks for changes and uses the copies of earlier runs if the server is gone."""

import io
import json
import random
import struct
import unittest

import lmdb
import numpy as np

from file_server import RemoteTest
from support import BIN, environment

HAS_ARROW = (BIN.parent / "lib/libtrireme_arrow.so").exists()
INDEXED = {"lmdb", "parquet"}  # An index knows the files of these formats.
COUNT = 24


def cifar(seed, count=COUNT):
    """Images whose brightness tells their label."""
    noise = random.Random(seed)
    return b"".join(bytes([i % 10]) + bytes(value // 4 + 19 * (i % 10)
                                            for value in noise.randbytes(3072))
                    for i in range(count))


def idx(seed, count=COUNT):
    noise = random.Random(seed)
    pixels = b"".join(bytes(value // 4 + 19 * (i % 10) for value in noise.randbytes(100))
                      for i in range(count))
    return {"images": struct.pack(">IIII", 0x803, count, 10, 10) + pixels,
            "labels": struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count))}


def table(seed, arrow):
    import pyarrow as pa
    import pyarrow.parquet as pq
    noise = random.Random(seed)
    rows = pa.table({"x": pa.array([[noise.random() + i % 2] * 4 for i in range(COUNT)],
                                   pa.list_(pa.float32(), 4)),
                     "label": pa.array([i % 2 for i in range(COUNT)], pa.int64())})
    file = io.BytesIO()
    if not arrow:
        pq.write_table(rows, file, row_group_size=5)
        return file.getvalue()
    with pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=5)
    return file.getvalue()


class RemoteFormats(RemoteTest):
    def database(self, seed):
        folder = self.folder / f"db{seed}"
        with lmdb.open(str(folder), map_size=1 << 20) as made:
            with made.begin(write=True) as transaction:
                for i in range(COUNT):
                    transaction.put(f"{i:04}".encode(), f"{seed} {i}".encode() * 50)
        return (folder / "data.mdb").read_bytes()

    def files(self, seed):
        """By format: the files in the order in which they are fetched, and what names them."""
        pair = idx(seed)
        formats = {"cifar": ({"a.bin": cifar(seed), "b.bin": cifar(seed + 1)}, "{a,b}.bin"),
                   "idx": ({"x-labels-idx1-ubyte": pair["labels"],
                            "x-images-idx3-ubyte": pair["images"]}, "x-images-idx3-ubyte"),
                   "lmdb": ({"data.mdb": self.database(seed)}, "data.mdb")}
        if HAS_ARROW:
            for name, end in (("parquet", ".parquet"), ("arrow", ".arrow")):
                parts = {f"{part}{end}": table(seed + i, name == "arrow")
                         for i, part in enumerate("ab")}
                formats[name] = parts, "{a,b}" + end
        return formats

    def keep(self, files, name):
        folder = self.folder / name
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        return folder

    def records(self, path, name):
        out, err = self.out_and_err("head", path, "--json", "--count", "1000", "--format", name)
        return [record["fields"] for record in json.loads(out)], err

    def test_they_have_the_records_of_the_same_files_here(self):
        for name, (files, pattern) in self.files(1).items():
            with self.subTest(format=name):
                server = self.serve(files)
                local = self.keep(files, f"local {name}") / pattern
                address = f"{server.url}/{pattern}"
                self.assertEqual(self.records(address, name)[0], self.records(local, name)[0])
                self.assertEqual(server.bytes_sent, sum(map(len, files.values())))
                contents = [json.loads(self.data("index", path, "--json", "--format", name))
                            ["content"] for path in (address, local)]
                self.assertEqual(contents[0], contents[1])
                self.assertIn("0 bad", self.data("verify", address, "--format", name))
                self.assertEqual(server.bytes_sent, sum(map(len, files.values())))

    def test_faults_changes_and_the_end_of_the_server(self):
        changed = self.files(5)
        for name, (files, pattern) in self.files(1).items():
            with self.subTest(format=name):
                server = self.serve(files)
                address = f"{server.url}/{pattern}"
                first = next(iter(files))
                server.faults[first] = ["503"] if name == "idx" else ["cut"]
                old, _ = self.records(address, name)
                asked = server.requests_of(first)
                self.assertEqual(len(asked), 2)
                self.assertEqual("Range" in asked[1][1], name != "idx")

                # A later start asks for changes, unless an index knows the files.
                del server.requests[:]
                sent = server.bytes_sent
                self.assertEqual(self.records(address, name)[0], old)
                self.assertEqual(["If-None-Match" in headers for _, headers in server.requests],
                                 [] if name in INDEXED else [True] * len(files))
                self.assertEqual(server.bytes_sent, sent)

                server.files.update(changed[name][0])
                if name in INDEXED:
                    self.assertEqual(self.records(address, name)[0], old)
                    for file in self.downloads.glob("*.shard"):
                        file.unlink()
                    out = self.data("head", address, "--format", name, code=1)
                    self.assertIn("not the one that was indexed", out)
                    self.data("index", address, "--format", name)
                local = self.keep(changed[name][0], f"new {name}") / pattern
                new = self.records(local, name)[0]
                self.assertNotEqual(new, old)
                self.assertEqual(self.records(address, name)[0], new)

                server.close()
                records, err = self.records(address, name)
                self.assertEqual(records, new)
                self.assertEqual("the file that was fetched earlier is used" in err,
                                 name not in INDEXED)

    def test_a_server_that_is_down_is_asked_for_one_file_of_many(self):
        files = {f"{i}.bin": cifar(i) for i in range(4)}
        server = self.serve(files)
        address = server.url + "/{0..3}.bin"
        old, _ = self.records(address, "cifar")
        del server.requests[:]
        server.faults = {name: ["503"] * 9 for name in files}
        records, err = self.records(address, "cifar")
        self.assertEqual(records, old)
        self.assertEqual([name for name, _ in server.requests], ["0.bin"] * 2)
        self.assertIn("0.bin", err)
        self.assertIn("it is not asked for changes of the other files", err)

    def test_old_files_are_not_mixed_with_new_ones(self):
        server = self.serve({"a.bin": cifar(1), "b.bin": cifar(2)})
        address = server.url + "/{a,b}.bin"
        self.records(address, "cifar")
        server.files.update({"a.bin": cifar(3), "b.bin": cifar(4)})
        server.faults = {"b.bin": ["503"] * 9}
        out = self.data("head", address, "--format", "cifar", code=1)
        self.assertIn("b.bin", out)
        self.assertIn("cannot be fetched", out)
        server.faults = {}
        self.assertEqual(len(self.records(address, "cifar")[0]), 2 * COUNT)
        # Neither is a file that is fetched now used beside old ones, whichever comes first.
        for gone, broken in (("b.bin", "a.bin"), ("a.bin", "b.bin")):
            with self.subTest(gone=gone):
                copies = {file: file.read_bytes() for file in self.downloads.glob("*.shard")}
                self.assertEqual(len(copies), 2)
                content = server.files[gone]
                for file, held in copies.items():
                    if held.startswith(content[:1000]):
                        file.unlink()
                server.faults = {broken: ["503"] * 9}
                out = self.data("head", address, "--format", "cifar", code=1)
                self.assertIn("b.bin", out)
                server.faults = {}
                self.records(address, "cifar")

    def test_files_of_parquet_are_fetched_for_their_rows(self):
        if not HAS_ARROW:
            self.skipTest("Arrow is not installed")
        files = {f"{part}.parquet": table(i, False) for i, part in enumerate("abc")}
        server = self.serve(files)
        local = self.keep(files, "parquet") / "{a,b,c}.parquet"
        address = server.url + "/{a,b,c}.parquet"
        # The folder has room for two of the three.
        room = ("--download-bytes", str(sum(map(len, files.values())) - 1))
        words = ("--json", "--count", "1000", "--format", "parquet")
        here, there = (json.loads(self.data("head", path, *words, *more))
                       for path, more in ((local, ()), (address, room)))
        self.assertEqual([record["fields"] for record in there],
                         [record["fields"] for record in here])
        self.assertEqual([record["place"] for record in there],
                         [f"{server.url}/{name}, row {row} (row group {row // 5})"
                          for name in files for row in range(COUNT)])
        told = [json.loads(self.data("index", path, "--json", "--format", "parquet"))
                for path in (address, local)]
        for key in ("content", "blocks"):
            self.assertEqual(told[0][key], told[1][key], key)
        self.assertEqual(told[0]["blocks"], 3 * 5)
        # A later start needs no file before it reads rows of it.
        for file in self.downloads.glob("*.shard"):
            file.unlink()
        del server.requests[:]
        self.data("head", address, "--count", "2", "--format", "parquet", *room)
        self.assertEqual({name for name, _ in server.requests}, {"a.parquet"})
        with_password = server.url.replace("//", "//me:secret@")
        out = self.data("head", with_password + "/{a,d}.parquet", "--format", "parquet", code=2)
        self.assertIn("/d.parquet", out)
        self.assertNotIn("secret", out)

    def test_all_files_must_fit_into_the_folder(self):
        for name, (files, pattern) in self.files(1).items():
            if name == "parquet":
                continue
            with self.subTest(format=name):
                server = self.serve(files)
                most = sum(map(len, files.values())) - 1
                for file in self.downloads.glob("*"):
                    file.unlink()
                out = self.data("head", f"{server.url}/{pattern}", "--format", name,
                                "--download-bytes", str(most), code=2)
                self.assertIn("data.download_bytes", out)

    def test_what_cannot_be_read_is_refused(self):
        server = self.serve({"x-images-idx3-ubyte": idx(1)["images"]})
        for path, name, code, parts in (
                ("/photos", "image_folder", 2, ("cannot be listed", "pack --to webdataset")),
                ("/list.txt", "image_list", 2, ("a request of its own", "pack --to webdataset")),
                ("/cifar/", "cifar", 2, ("names no file",)),
                ("/mnist/", "idx", 2, ("names no file",)),
                ("/{a,b}.mdb", "lmdb", 2, ("is not one file",)),
                ("/none.bin", "cifar", 2, ("404", "none.bin")),
                ("/x-images-idx3-ubyte", "idx", 2, ("x-labels-idx1-ubyte", "404", "labels"))):
            with self.subTest(path=path):
                out = self.data("head", server.url + path, "--format", name, code=code)
                for part in (*parts, server.url.split("//")[1]):
                    self.assertIn(part, out)

    def test_a_text_is_one_file(self):
        text = b"A line of a text, and one more.\n" * 9
        server = self.serve({"a.txt": text})
        local = self.keep({"a.txt": text}, "text") / "a.txt"
        words = ("--format", "text", "--block", "8", "--json")
        here, there, later = (json.loads(self.data("head", path, *words))
                              for path in (local, *[f"{server.url}/a.txt"] * 2))
        self.assertEqual([record["fields"] for record in there],
                         [record["fields"] for record in here])
        self.assertEqual(later, there)
        self.assertEqual(server.bytes_sent, len(text))
        self.assertIn("names 2 files", self.data("head", server.url + "/{a,b}.txt", *words,
                                                 code=2))

    def test_they_are_packed_from_a_server(self):
        files, pattern = self.files(1)["cifar"]
        server = self.serve(files)
        self.data("pack", f"{server.url}/{pattern}", "--format", "cifar", "--to", "npy",
                  "--output", self.folder / "packed")
        self.assertEqual(np.load(self.folder / "packed" / "image.npy").shape,
                         (2 * COUNT, 3, 32, 32))

    def test_jobs_train_and_evaluate_as_from_files(self):
        train, test = self.files(1), self.files(9)
        for name in set(train) - {"lmdb"}:
            with self.subTest(format=name):
                pattern = train[name][1]
                server = self.serve({f"{part}/{file}": content
                                     for part, files in (("train", train), ("test", test))
                                     for file, content in files[name][0].items()})
                here = {part: self.keep(files[name][0], f"{name} {part}") / pattern
                        for part, files in (("train", train), ("test", test))}
                there = {part: f"{server.url}/{part}/{pattern}" for part in here}
                reports = []
                for place, workers in ((here, 1), (there, 1), (there, 2)):
                    config = self.folder / "job.yaml"
                    config.write_text(f"""
model: {{name: mlp, hidden: [8]}}
data:
  name: {name}
  path: "{place["train"]}"
  test_path: "{place["test"]}"
  batch: 12
optimizer: {{name: sgd, lr: 0.02}}
train: {{epochs: 2, dtype: float64}}
""")
                    words = ["--set", f"data.download_dir={self.downloads}"]
                    env = environment(no_proxy="127.0.0.1",
                                      XDG_CACHE_HOME=str(self.folder / "cache"))
                    reports.append(self.train("--workers", str(workers), *words, config=config,
                                              env=env, name=f"{name} {len(reports)}"))
                self.assertEqual(reports[1]["loss_history"], reports[0]["loss_history"])
                self.assertEqual(reports[1]["eval"], reports[0]["eval"])
                self.assert_close(reports[2]["loss_history"], reports[0]["loss_history"], 1e-9)
                self.assertEqual(server.bytes_sent, sum(map(len, server.files.values())))


if __name__ == "__main__":
    unittest.main()
