"""Parquet and Arrow files that pyarrow has written: `trireme data` gives what pyarrow reads, damage
and what a record cannot have are named, and trainings use the samples of the same CSV file."""

import csv
import datetime
import hashlib
import json
import random
import resource
import shutil
import unittest

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from support import BIN, TRIREME, SystemTest, environment, png

HAS_ARROW = (BIN.parent / "lib/libtrireme_arrow.so").exists()
ROWS = 50


def sample_table():
    rows = range(ROWS)
    day = datetime.datetime(2024, 2, 28)
    return pa.table({
        "byte": pa.array([i - 25 for i in rows], pa.int8()),
        "half_word": pa.array(rows, pa.uint16()),
        "large": pa.array([2**63 + i for i in rows], pa.uint64()),
        "x": pa.array([i / 4 for i in rows], pa.float32()),
        "y": pa.array([i / 7 for i in rows], pa.float64()),
        "flag": pa.array([i % 3 == 0 for i in rows]),
        "text": pa.array(["é" * (i % 5) + str(i) for i in rows]),
        "long_text": pa.array([f"L{i}" for i in rows], pa.large_string()),
        "bytes3": pa.array([b"ab" + bytes([97 + i % 26]) for i in rows], pa.binary(3)),
        "word": pa.array(["yes no maybe".split()[i % 3] for i in rows]).dictionary_encode(),
        "when": pa.array([day + datetime.timedelta(days=i) for i in rows], pa.timestamp("us")),
        "date": pa.array([day.date() + datetime.timedelta(days=i) for i in rows], pa.date32()),
        "list": pa.array([list(range(i % 4)) for i in rows], pa.list_(pa.int32())),
        "triple": pa.array([[i, 0.5, -i] for i in rows], pa.list_(pa.float32(), 3)),
        "matrix": pa.array([[[i, 1], [2, 3]] for i in rows], pa.list_(pa.list_(pa.int64()))),
        "flags": pa.array([[True, i % 2 == 0] for i in rows], pa.list_(pa.bool_())),
        "image": pa.array([{"bytes": b"\xff\xd8\xff" + bytes([i]), "path": f"{i}.jpg"}
                           for i in rows]),
        "label": pa.array([i % 4 for i in rows], pa.int64()),
    })


def expected(value):
    """A value of pyarrow as `trireme data head --json` prints it."""
    if isinstance(value, dict):
        value = value["bytes"]
    if isinstance(value, datetime.datetime):
        return [(value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)]
    if isinstance(value, datetime.date):
        return [(value - datetime.date(1970, 1, 1)).days]
    if isinstance(value, list):
        while value and isinstance(value[0], list):
            value = sum(value, [])
        return value
    return value if isinstance(value, (str, bytes)) else [value]


class Keys(pe.KmsClient):
    """Keeps keys in plain text, for a test."""

    def wrap_key(self, key_bytes, master_key_identifier):
        return key_bytes.hex()

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return bytes.fromhex(wrapped_key)


class Parquet(SystemTest):
    def data(self, command, path, *words, code=0, **options):
        actual, out, err = self.run_to_end(TRIREME, "data", command, path, *words, **options)
        self.assertEqual(actual, code, out + err)
        return out + err

    def head(self, path, *words):
        return json.loads(self.data("head", path, "--json", "--count", "1000", *words))

    def write(self, name, table, **options):
        path = self.folder / name
        if name.endswith(".parquet"):
            pq.write_table(table, path, **options)
        elif name.endswith(".feather"):
            feather.write_feather(table, path, **options)
        else:
            chunk = options.pop("chunk", 16)
            make = pa.ipc.new_stream if options.pop("stream", False) else pa.ipc.new_file
            with pa.OSFile(str(path), "wb") as file:
                with make(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
                    out.write_table(table, max_chunksize=chunk)
        return path

    def check(self, path, table, *words):
        records = self.head(path, *words)
        self.assertEqual(len(records), len(table))
        for i, (record, row) in enumerate(zip(records, table.to_pylist())):
            self.assertEqual(list(record["fields"]), list(row), path)
            for name, value in row.items():
                field, value = record["fields"][name], expected(value)
                if isinstance(value, bytes) and "text" not in field:
                    self.assertEqual(field["sha256"], hashlib.sha256(value).hexdigest())
                    continue
                got = field["text"] if "text" in field else field["values"]
                value = value.decode() if isinstance(value, bytes) else value
                if name == "flag" or name == "flags":
                    value = [int(one) for one in value]
                    got = [int(one) for one in got]
                self.assertEqual(got, value, f"{path}, row {i}, {name}")

    def refused(self, path, *parts, words=(), code=2, command="head"):
        said = self.data(command, path, *words, code=code)
        for part in parts:
            self.assertIn(part, said)


@unittest.skipIf(HAS_ARROW, "the library is there")
class WithoutArrow(Parquet):
    def test_a_build_without_arrow_says_what_is_missing(self):
        path = self.write("x.parquet", sample_table())
        self.refused(path, "built without", "pip install pyarrow", "ARROW_DIR")


@unittest.skipUnless(HAS_ARROW, "a build without Arrow")
class WithArrow(Parquet):
    def test_every_type_in_every_kind_of_file(self):
        table = sample_table()
        self.check(self.write("groups.parquet", table, row_group_size=7), table)
        views = table.append_column("view", pa.array(["v" * i for i in range(ROWS)],
                                                     pa.string_view()))
        self.check(self.write("x.arrow", views), views)
        self.check(self.write("stream.arrow", views, stream=True, compression="zstd"), views)
        self.check(self.write("x.feather", table, compression="lz4", chunksize=20), table)
        said = json.loads(self.data("index", self.folder / "groups.parquet", "--json"))
        self.assertEqual((said["records"], said["blocks"]), (ROWS, 8))
        self.assertIn({"name": "triple", "encoded": False, "dtype": "float32", "shape": [3]},
                      said["fields"])

    def test_every_compression_and_version_of_pages(self):
        table = sample_table().select(["text", "x", "list", "label"])
        for codec in ("none", "snappy", "gzip", "zstd", "lz4", "brotli"):
            for version in ("1.0", "2.0"):
                path = self.write(f"{codec}-{version}.parquet", table, compression=codec,
                                  data_page_version=version, write_page_checksum=True)
                self.check(path, table)
        path = self.folder / "*-2.0.parquet"
        self.assertIn(f"{6 * ROWS} records, 0 bad", self.data("verify", path))

    def test_dictionaries_that_grow_and_change_in_a_stream(self):
        batches = [pa.record_batch({"word": pa.array(words).dictionary_encode()})
                   for words in (["a", "b"], ["a", "b", "c"], ["x", "y"])]
        path = self.folder / "x.arrow"
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        with pa.ipc.new_stream(str(path), batches[0].schema, options=options) as out:
            for batch in batches:
                out.write_batch(batch)
        self.check(path, pa.table({"word": ["a", "b", "a", "b", "c", "x", "y"]}))

    def test_thousands_of_dictionaries_take_no_memory_for_each_other(self):
        count = 12_000
        words = pa.array([f"word {i}" for i in range(count)])
        schema = pa.schema([("word", pa.dictionary(pa.int32(), pa.string()))])
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        with pa.ipc.new_stream(str(self.folder / "x.arrow"), schema, options=options) as out:
            for i in range(count):
                word = pa.DictionaryArray.from_arrays(pa.array([i], pa.int32()), words[:i + 1])
                out.write_batch(pa.record_batch([word], schema=schema))
        most = (1 << 30, 1 << 30)
        self.data("index", self.folder / "x.arrow",
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, most))
        records = self.head(self.folder / "x.arrow")
        self.assertEqual([record["fields"]["word"]["text"] for record in records],
                         words[:1000].to_pylist())

    def test_tensors_have_their_shapes(self):
        kind = pa.fixed_shape_tensor(pa.uint8(), [2, 3])
        table = pa.table({"t": pa.ExtensionArray.from_storage(
            kind, pa.array([list(range(6))] * 3, kind.storage_type))})
        for path in (self.write("t.parquet", table), self.write("t.arrow", table)):
            fields = json.loads(self.data("index", path, "--json"))["fields"]
            self.assertEqual(fields[0]["shape"], [2, 3])

    def test_missing_values_are_named_unless_they_are_not_chosen(self):
        table = pa.table({"x": pa.array([1, 2, None, 4]), "text": ["a", None, "c", "d"],
                          "list": pa.array([[1], [2], [3], [None]], pa.list_(pa.int64())),
                          "good": [1, 2, 3, 4]})
        for name in ("x.parquet", "x.arrow"):
            path = self.write(name, table)
            bad = json.loads(self.data("verify", path, "--json", code=1))["bad"]
            self.assertEqual(len(bad), 3)
            for row, column in ((1, "text"), (2, "x"), (3, "list")):
                self.assertIn(f"row {row}", bad[row - 1])
                self.assertIn(f"column '{column}'", bad[row - 1])
            self.data("verify", path, "--column", "good")
            self.refused(path, "row 2", "column 'x'", "no value", words=("--column", "x"))
            labels = [record.get("label") for record in
                      self.head(path, "--column", "good", "--label", "x")]
            self.assertEqual(labels, [1, 2, None, 4])
        table = pa.table({"image": pa.array([{"bytes": None, "path": "0.jpg"}],
                                            pa.struct([("bytes", pa.binary()),
                                                       ("path", pa.string())]))})
        self.refused(self.write("x.parquet", table), "column 'image'", "no value")

    def test_columns_that_no_record_can_have_are_named(self):
        table = pa.table({"pair": [{"a": 1, "b": 2}], "sum": pa.array([1], pa.decimal128(9, 2)),
                          "words": [["a", "b"]], "nothing": pa.nulls(1), "good": [7]})
        for name in ("x.parquet", "x.arrow"):
            path = self.write(name, table)
            for column, kind in (("pair", "a struct of 2 members"), ("sum", "decimal"),
                                 ("words", "a list of text"), ("nothing", "null")):
                self.refused(path, f"column '{column}'", kind, "--column",
                             words=("--column", column))
            self.check(path, table.select(["good"]), "--column", "good")
        ragged = self.write("r.parquet", pa.table({"m": [[[1], [2]], [[1], [2, 3]]]}))
        self.refused(ragged, "row 1", "different lengths")

    def test_files_of_one_set_have_the_same_columns(self):
        one, other = pa.table({"x": [1, 2], "y": [1, 2]}), pa.table({"y": [3.0], "x": [3]})
        self.write("0.parquet", one)
        self.write("1.parquet", other)
        self.refused(self.folder, "1.parquet", "'y'", "0.parquet")
        self.check(self.folder, pa.table({"x": [1, 2, 3]}), "--column", "x")

    def test_sizes_are_compared_with_the_memory_before_they_are_used(self):
        numbers = random.Random(1)
        large = self.write("large.parquet", pa.table({
            "x": [numbers.random() for _ in range(40_000)]}), compression="none")
        self.refused(large, "row group 0", "more than the", words=("--memory", "65536"))
        self.data("verify", large, "--memory", "1MB")
        # The footer states a few bytes; the values have 200 MB.
        bomb = self.write("bomb.parquet", pa.table({"text": ["a" * 20_000] * 10_000}))
        self.refused(bomb, "needs too much memory", words=("--memory", "16MB"))
        bomb = self.write("bomb.arrow", pa.table({"x": [0] * 4_000_000}), chunk=4_000_000,
                          compression="zstd")
        self.refused(bomb, "needs too much memory", words=("--memory", "8MB"))

    def test_damage_is_named(self):
        table = sample_table().select(["x", "text"])
        path = self.write("x.parquet", table, row_group_size=20, compression="none",
                          use_dictionary=False, write_page_checksum=True)
        content = bytearray(path.read_bytes())
        content[content.index("éé32".encode())] ^= 1
        path.write_bytes(content)
        bad = json.loads(self.data("verify", path, "--json", code=1))["bad"]
        self.assertEqual(len(bad), 20)
        for part in ("row 20 (row group 1)", "column 'text'", "CRC"):
            self.assertIn(part, bad[0])
        self.data("verify", path, "--column", "x")
        for name, size in (("x.parquet", 10), ("x.parquet", 500), ("x.arrow", 700),
                           ("x.feather", 700)):
            path = self.write(name, table)
            path.write_bytes(path.read_bytes()[:size])
            self.refused(path, "x.", code=1)
        path = self.write("x.arrow", table, stream=True)
        path.write_bytes(path.read_bytes()[:1500])
        self.refused(path, "too short", code=1)
        path.write_bytes(b"")
        self.refused(path, "empty", code=1)

    def test_encrypted_files_are_refused(self):
        keys = pe.CryptoFactory(lambda _: Keys())
        for plain_footer in (False, True):
            how = pe.EncryptionConfiguration(footer_key="f", column_keys={"k": ["x"]},
                                             plaintext_footer=plain_footer)
            properties = keys.file_encryption_properties(pe.KmsConnectionConfig(), how)
            path = self.write("x.parquet", pa.table({"x": [1], "y": [2]}),
                              encryption_properties=properties)
            self.refused(path, "encrypted")

    def test_a_schema_that_is_too_deep_ends_no_process(self):
        kind = pa.int64()
        for _ in range(300):
            kind = pa.list_(kind)
        empty = pa.table({"deep": pa.nulls(1).cast(kind)})
        path = self.write("deep.parquet", empty)
        actual, out, err = self.run_to_end(TRIREME, "data", "head", path)
        self.assertIn(actual, (1, 2), out + err)
        self.assertIn("deep.parquet", err)

    def write_points(self):
        """The same points as CSV, Parquet and a stream of Arrow; returns their number."""
        numbers = random.Random(3)
        rows = []
        for _ in range(400):
            x, y = numbers.uniform(-1, 1), numbers.uniform(-1, 1)
            rows.append([round(x, 3), round(y, 3), int(x * y > 0)])
        with open(self.folder / "points.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["x", "y", "label"])
            writer.writerows(rows)
        columns = dict(zip(("x", "y", "label"), zip(*rows)))
        table = pa.table({"note": ["not read"] * len(rows),
                          "more": [{"a": 1, "b": None}] * len(rows),
                          "x": pa.array(columns["x"], pa.float32()),
                          "y": pa.array(columns["y"], pa.float32()), "label": columns["label"]})
        self.write("points.parquet", table, row_group_size=64)
        self.write("points.arrow", table, stream=True, chunk=50)
        return len(rows)

    def fit(self, name, *settings, workers=1, **options):
        words = [word for setting in (
            "model.name=mlp", "model.hidden=16", f"data.path={self.folder / name}",
            f"data.name={name.split('.')[1]}", "data.inputs=x,y", "data.target=label",
            "data.batch=20", "train.epochs=3", "train.dtype=float64", *settings)
                 for word in ("--set", setting)]
        return self.train("--workers", str(workers), *words, name=f"run-{name}-{workers}",
                          **options)

    def test_trainings_use_the_samples_of_the_same_csv(self):
        self.write_points()
        of_csv = self.fit("points.csv")
        for name in ("points.parquet", "points.arrow"):
            one = self.fit(name)
            self.assertEqual(one["loss_history"], of_csv["loss_history"])
            shutil.rmtree(self.folder / f"run-{name}-1")
            two = self.fit(name, workers=2)
            self.assert_close(two["loss_history"], one["loss_history"], 1e-12)
            shutil.rmtree(self.folder / f"run-{name}-2")
            in_blocks = [self.fit(name, "data.shuffle=blocks", "data.window=100", workers=n)
                         for n in (1, 2)]
            self.assert_close(*[run["loss_history"] for run in in_blocks], 1e-12)
            self.assertNotEqual(in_blocks[0]["loss_history"], one["loss_history"])
            self.assertEqual(in_blocks[1]["samples"]["seen_once"],
                             in_blocks[1]["samples"]["expected"])

    def test_rows_without_a_value_are_left_out(self):
        table = pa.table({"x": pa.array([0.5, None] + [i / 40 for i in range(38)], pa.float32()),
                          "label": pa.array([i % 2 for i in range(38)] + [None, 1])})
        self.write("points.parquet", table, row_group_size=16)
        words = ["--set", "model.name=mlp", "--set", "data.name=parquet", "--set",
                 f"data.path={self.folder / 'points.parquet'}", "--set", "train.epochs=1", "--set",
                 "data.batch=10", "--set", "data.test_fraction=0"]
        report = self.train(*words, "--set", "data.on_bad_record=skip", name="skip")
        self.assertEqual(report["input"]["skipped"], 2)
        self.assert_refused([TRIREME, "train", *words], 2, "points.parquet, row 38 (row group 2)",
                            "column 'label'", "no value")

    def test_columns_that_are_not_needed_may_differ(self):
        for number, caption in enumerate(("a text", 7)):
            rows = [{"bytes": png(bytes([200 if i % 2 else 20]) * 192, 8, 8), "path": "x.png"}
                    for i in range(30)]
            self.write(f"{number}.parquet", pa.table({
                "image": rows, "label": [i % 2 for i in range(30)], "caption": [caption] * 30}))
        report = self.train("--set", "model.name=mlp", "--set", "data.name=parquet", "--set",
                            f"data.path={self.folder}", "--set",
                            "data.stages=decode | normalise(0.5, 0.5)", "--set",
                            "train.epochs=1", "--set", "data.batch=10", name="captions")
        self.assertEqual(report["samples"]["expected"], report["samples"]["seen_once"])

    def test_images_as_hugging_face_has_them(self):
        rows = [{"bytes": png(bytes([200 if i % 2 else 20]) * 192, 8, 8), "path": f"{i}.png"}
                for i in range(60)]
        table = pa.table({"image": rows, "label": [i % 2 for i in range(60)],
                          "caption": ["a caption"] * 60})
        self.write("points.parquet", table, row_group_size=10)
        report = self.train("--set", "model.name=mlp", "--set", "data.name=parquet", "--set",
                            f"data.path={self.folder / 'points.parquet'}", "--set",
                            "data.stages=decode | normalise(0.5, 0.5)", "--set",
                            "train.epochs=4", "--set", "data.batch=10", "--set",
                            "data.shuffle=blocks", "--workers", "2")
        self.assertEqual(report["eval"]["accuracy"], 1)

    def test_without_the_library_the_message_says_what_is_missing(self):
        path = self.write("x.parquet", pa.table({"x": [1]}))
        lacking = environment(TRIREME_ARROW_PLUGIN=str(self.folder / "none.so"))
        said = self.data("head", path, code=2, env=lacking)
        for part in ("libtrireme_arrow.so", "none.so", f"pip install pyarrow=={pa.__version__}",
                     "ARROW_DIR"):
            self.assertIn(part, said)
        (self.folder / "x.csv").write_text("x\n1\n")
        self.data("head", self.folder / "x.csv", env=lacking)

    def test_the_programmes_load_arrow_only_when_they_need_it(self):
        for programme in ("trireme", "trireme-worker"):
            _, out, _ = self.run_to_end("ldd", BIN / programme)
            self.assertNotIn("arrow", out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
