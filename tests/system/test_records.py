"""`trireme data index`, `verify` and `head`: files that each format's own package has written give
what was written, and damage is named."""

import csv
import gzip
import hashlib
import io
import json
import shutil
import struct
import unittest

import lmdb
import numpy as np
import webdataset
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from PIL import Image
from tensorboard.summary.writer.record_writer import RecordWriter

from support import TRIREME, SystemTest


def example_class():
    """tf.train.Example, described as TensorFlow's example.proto and feature.proto do."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    kinds = {"BytesList": "BYTES", "FloatList": "FLOAT", "Int64List": "INT64"}
    field = descriptor_pb2.FieldDescriptorProto
    for name, kind in kinds.items():
        file.message_type.add(name=name).field.add(name="value", number=1, label=3,
                                                   type=getattr(field, f"TYPE_{kind}"))
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(kinds, start=1):
        feature.field.add(name=f"{kinds[name].lower()}_list", number=number, label=1, type=11,
                          type_name=f".t.{name}", oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=11, type_name=".t.Feature")
    features.field.add(name="feature", number=1, label=3, type=11,
                       type_name=".t.Features.FeatureEntry")
    file.message_type.add(name="Example").field.add(name="features", number=1, label=1, type=11,
                                                    type_name=".t.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


def jpeg(number):
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), number * 20, np.uint8)).save(file, "JPEG")
    return file.getvalue()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Records(SystemTest):
    def data(self, command, path, *words, code=0):
        actual, out, err = self.run_to_end(TRIREME, "data", command, path, *words)
        self.assertEqual(actual, code, out + err)
        return out + err

    def head(self, path, *words):
        return json.loads(self.data("head", path, "--json", "--count", "1000", *words))

    def values(self, path, field, *words):
        fields = [record["fields"][field] for record in self.head(path, *words)]
        return [one["text"] if "text" in one else one["values"] for one in fields]

    def test_webdataset_shards(self):
        for number in range(2):
            file = f"{self.folder}/s-{number:04}.tar{'.gz' if number else ''}"
            with webdataset.TarWriter(file) as writer:
                for i in range(3):
                    writer.write({"__key__": f"{number}/{i:06}" + "k" * 120 * i, "jpg": jpeg(i),
                                  "cls": 10 * number + i, "json": {"id": i},
                                  "npy": np.arange(i + 2, dtype=np.float32)})
        records = self.head(self.folder / "s-{0000..0001}.tar*")
        self.assertEqual([record["label"] for record in records], [0, 1, 2, 10, 11, 12])
        for i, record in enumerate(records):
            fields, i = record["fields"], i % 3
            self.assertEqual(fields["jpg"]["sha256"], sha256(jpeg(i)))
            self.assertEqual(json.loads(fields["json"]["text"]), {"id": i})
            self.assertEqual(fields["npy"]["values"], list(range(i + 2)))
            self.assertTrue(fields["__key__"]["text"].endswith(f"{i:06}" + "k" * 120 * i))
        self.assertIn("6 records, 0 bad", self.data("verify", self.folder / "s-*.tar*"))

    def test_a_shard_of_pickles_is_refused(self):
        with webdataset.TarWriter(f"{self.folder}/x.tar") as writer:
            writer.write({"__key__": "a", "pyd": {"x": 1}})
        self.assertIn("a.pyd", self.data("index", self.folder / "x.tar", code=2))

    def test_tfrecords(self):
        example = example_class()
        file = self.folder / "x.tfrecord"
        with open(file, "wb") as out:
            writer = RecordWriter(out)
            for i in range(3):
                record = example()
                feature = record.features.feature
                feature["image"].bytes_list.value.append(jpeg(i))
                feature["label"].int64_list.value.append(i - 1)
                feature["box"].float_list.value.extend([0.5 * i, 2])
                feature["words"].bytes_list.value.extend([b"a", b"b"])
                writer.write(record.SerializeToString())
        self.assertEqual(self.values(file, "label"), [[-1], [0], [1]])
        self.assertEqual(self.values(file, "box"), [[0, 2], [0.5, 2], [1, 2]])
        self.assertEqual(self.values(file, "words.1"), ["b", "b", "b"])
        self.assertEqual(self.head(file)[2]["fields"]["image"]["sha256"], sha256(jpeg(2)))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        self.data("index", file)
        bad = json.loads(self.data("verify", file, "--json", code=1))["bad"]
        self.assertEqual(len(bad), 1)
        self.assertIn("x.tfrecord, record 1 at byte", bad[0])
        self.assertIn("CRC-32C", bad[0])

    def test_arrays_of_numpy(self):
        x = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
        y = np.array([5, 6, 7])
        folder = self.folder / "arrays"
        folder.mkdir()
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        np.savez(self.folder / "plain.npz", x=x, y=y)
        np.savez_compressed(self.folder / "packed.npz", x=x, y=y)
        for path in (folder, self.folder / "plain.npz", self.folder / "packed.npz"):
            self.assertEqual(self.values(path, "x"), x.reshape(3, 4).tolist())
            self.assertEqual([record["label"] for record in self.head(path, "--label", "y")],
                             [5, 6, 7])
            self.data("verify", path)
        np.save(folder / "objects.npy", np.array([{}, {}, {}]), allow_pickle=True)
        self.assertIn("never unpickled", self.data("head", folder, code=2))
        np.save(folder / "objects.npy", np.asfortranarray(x))
        self.assertIn("ascontiguousarray", self.data("head", folder, code=2))

    def test_files_of_mnist(self):
        images = np.arange(30, dtype=np.uint8).reshape(5, 2, 3)
        for part, first in (("train", 0), ("t10k", 3)):
            (self.folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(
                struct.pack(">4I", 0x803, 5 - first, 2, 3) + images[first:].tobytes()))
            (self.folder / f"{part}-labels-idx1-ubyte").write_bytes(
                struct.pack(">2I", 0x801, 5 - first) + bytes(range(first, 5)))
        self.assertEqual(self.values(self.folder, "image"), images.reshape(5, 6).tolist())
        self.assertEqual(self.values(self.folder, "label", "--part", "test"), [[3], [4]])
        labels = ("--labels", self.folder / "t10k-labels-idx1-ubyte")
        self.assertIn("2 labels", self.data("head", self.folder, *labels, code=2))
        config = self.folder / "job.yaml"
        config.write_text(f"data: {{name: idx, path: {self.folder}}}\n")
        parts = json.loads(self.data("index", config, "--json"))
        self.assertEqual([parts[name]["records"] for name in ("train", "test")], [5, 2])
        self.assertEqual(parts["train"]["fields"][0]["shape"], [1, 2, 3])
        self.assertIn("5 records, 0 bad", self.data("verify", config))

    def test_text_as_blocks_of_tokens(self):
        text = self.folder / "words.txt"
        text.write_text("b\u00e4a\u20acb\n")
        words = ("--format", "text", "--block", "2")
        self.assertEqual(self.values(text, "tokens", *words), [[2, 3, 1], [1, 4, 2]])
        self.assertEqual(self.values(text, "tokens", *words, "--tokens", "bytes")[0],
                         list("b\u00e4".encode()))
        self.assertEqual(self.values(text, "text"), ["b\u00e4a\u20acb"])
        self.assertIn("--block=64", self.data("head", text, "--format", "text", code=2))
        config = self.folder / "job.yaml"
        config.write_text(f"model: {{name: gpt}}\ndata: {{name: text, path: {text}, block: 2}}\n")
        parts = json.loads(self.data("index", config, "--json"))
        self.assertEqual(parts["train"]["records"], 2)
        self.assertEqual(parts["train"]["fields"][0]["shape"], [3])
        self.assertIn("2 records, 0 bad", self.data("verify", config))
        self.data("pack", config, "--to", "npy", "--output", self.folder / "packed")
        self.assertEqual(np.load(self.folder / "packed/train/tokens.npy").tolist(),
                         [[2, 3, 1], [1, 4, 2]])

    def test_lmdb(self):
        folder = self.folder / "db"
        with lmdb.open(str(folder), map_size=1 << 24) as database:
            with database.begin(write=True) as transaction:
                for i in reversed(range(4)):
                    transaction.put(f"{i:04}".encode(), jpeg(i) if i < 3 else b"text")
        records = self.head(folder, "--format", "lmdb")
        self.assertEqual([record["fields"]["key"]["text"] for record in records],
                         ["0000", "0001", "0002", "0003"])
        self.assertEqual(records[2]["fields"]["image"]["sha256"], sha256(jpeg(2)))
        self.assertEqual(records[3]["fields"]["value"]["text"], "text")

    def test_csv_and_json_lines(self):
        rows = [["plain", 1, 0.5], ['a, "b"', -2, 1e10], ["two\nlines", 3, -0.25], ["é", 4, 0]]
        file = self.folder / "x.csv"
        with open(file, "w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(["name", "count", "weight"])
            writer.writerows(rows)
        self.assertEqual(self.values(file, "name"), [row[0] for row in rows])
        self.assertEqual(self.values(file, "count"), [[row[1]] for row in rows])
        self.assertEqual(self.values(file, "weight"), [[row[2]] for row in rows])
        with gzip.open(self.folder / "x.jsonl.gz", "wt") as out:
            for name, count, weight in rows:
                out.write(json.dumps({"name": name, "count": count, "list": [weight, 1]}) + "\n")
        file = self.folder / "x.jsonl.gz"
        self.assertEqual(self.values(file, "name"), [row[0] for row in rows])
        self.assertEqual(self.values(file, "list"), [[row[2], 1] for row in rows])

    def test_texts_of_numpy_and_tables_below_other_lines(self):
        numbers = np.array([[1, -2.5], [1e10, 4], [0, 0.125]])
        file = self.folder / "x.dat"
        np.savetxt(file, numbers, header="time value\nin s", fmt="%15.7e")
        words = ("--format", "csv", "--delimiter", "whitespace", "--comment", "#", "--no-header")
        for column in (0, 1):
            self.assertEqual(self.values(file, f"c{column}", *words),
                             numbers[:, [column]].tolist())
        table = self.folder / "table.csv"
        table.write_text("a machine, 2026\n\nx,y\n1,2\n")
        self.assertEqual(self.values(table, "y", "--skip-lines", "2"), [[2]])
        self.assertIn("--skip-lines is 5",
                      self.data("head", table, "--skip-lines", "5", code=2))

    def test_image_folders(self):
        for i, name in enumerate(("dog", "cat")):
            (self.folder / "images" / name).mkdir(parents=True)
            (self.folder / "images" / name / "0.jpg").write_bytes(jpeg(i))
        records = self.head(self.folder / "images")
        self.assertEqual([record["label"] for record in records], [0, 1])
        self.assertEqual(records[0]["fields"]["image"]["sha256"], sha256(jpeg(1)))
        self.assertIn("2 classes: cat, dog", self.data("index", self.folder / "images"))

    def test_tokens_of_llmc(self):
        header = np.zeros(256, np.int32)
        header[:3] = 20240520, 1, 100
        tokens = np.arange(100, dtype=np.uint16)
        file = self.folder / "train.bin"
        file.write_bytes(header.tobytes() + tokens.tobytes())
        words = ("--format", "tokens", "--block", "8")
        self.assertEqual(self.values(file, "tokens", *words),
                         [list(range(i * 8, i * 8 + 9)) for i in range(12)])

    def test_an_index_is_made_once_and_notices_changes(self):
        file = self.folder / "x.txt"
        file.write_text("one\ntwo\n")
        self.data("index", file)
        before = json.loads(self.data("index", file, "--json"))
        other = self.folder / "other"
        other.mkdir()
        shutil.copy(file, other)
        self.assertEqual(json.loads(self.data("index", other / "x.txt", "--json")), before)
        file.write_text("one\nTWO\n")
        self.assertIn("trireme data index", self.data("head", file, code=1))
        self.data("index", file)
        self.assertEqual(self.values(file, "text"), ["one", "TWO"])

    def test_wrong_words_are_refused(self):
        file = self.folder / "x.txt"
        file.write_text("one\n")
        for words, part in ((("--format", "line"), "did you mean lines?"),
                            (("--delimiter", ";"), "no option delimiter"),
                            (("--memory", "7"), "memory")):
            self.assertIn(part, self.data("head", file, *words, code=2))
        self.assertIn("does not exist", self.data("head", self.folder / "none.txt", code=2))


    def test_a_configuration_names_the_files(self):
        (self.folder / "train.csv").write_text("y\nx;y\n1;0\n2;1\n! 5\n3;0\n")
        (self.folder / "test.csv").write_text("\nx;y\n7;1\n")
        config = self.folder / "job.yaml"
        config.write_text(f"""
data:
  name: csv
  path: {self.folder / "train.csv"}
  test_path: {self.folder / "test.csv"}
  delimiter: ';'
  skip_lines: 1
  comment: '!'
""")
        out = self.data("index", config)
        self.assertIn("train.csv: 3 records", out)
        self.assertIn("test.csv: 1 records", out)
        self.assertEqual(len(list(self.folder.glob(".trireme-csv-*.index"))), 2)
        heads = self.head(config)
        self.assertEqual([record["fields"]["x"]["values"] for record in heads["train"]],
                         [[1], [2], [3]])
        self.assertEqual(heads["test"][0]["fields"]["y"]["values"], [1])
        self.assertIn("1 records, 0 bad", self.data("verify", config))
        swapped = self.data("index", config, "--set", f"data.path={self.folder / 'test.csv'}")
        self.assertIn("train " + str(self.folder / "test.csv"), swapped)
        for words, part in ((("--delimiter", ","), "--set data.delimiter"),
                            (("--skip-lines", "2"), "--set data."),
                            (("--set", "data.delimter=,"), "data.delimiter"),
                            (("--set", "data.name=digits"), "data.name is digits")):
            self.assertIn(part, self.data("index", config, *words, code=2))
        self.assertIn("--set is for a configuration",
                      self.data("index", self.folder / "train.csv", "--set", "data.block=2",
                                code=2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
