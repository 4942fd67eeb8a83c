"""Records that only a function of the user's own can read (the stage decode_record), in a shared
object: trainings on LMDB, and on columns of Parquet, beside the same samples in a `zip`."""

import io
import random
import unittest

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from support import BIN, TRIREME, SystemTest

OWN_STAGE = BIN.parent / "lib" / "own_stage.so"
HAS_ARROW = (BIN.parent / "lib/libtrireme_arrow.so").exists()
STAGES = "decode_record(labelled, 1:8:8)"
SIDE, RECORDS = 8, 96


def picture(number, numbers):
    """Noise, brighter for a larger label."""
    return bytes(80 * (number % 3) + numbers.randrange(60) for _ in range(SIDE * SIDE))


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(np.frombuffer(pixels, np.uint8).reshape(SIDE, SIDE)).save(file, "PNG")
    return file.getvalue()


class OwnRecords(SystemTest):
    def setUp(self):
        super().setUp()
        numbers = random.Random(3)
        self.pictures = [picture(i, numbers) for i in range(RECORDS)]
        self.values = [bytes([i % 3]) + one for i, one in enumerate(self.pictures)]
        self.write("values", self.values)

    def write(self, name, values):
        with lmdb.open(str(self.folder / name), map_size=1 << 24) as database:
            with database.begin(write=True) as transaction:
                for i, value in enumerate(values):
                    transaction.put(f"{i:04}".encode(), value)

    def config(self, name, data):
        path = self.folder / f"{name}.yaml"
        path.write_text(f"""
model: {{name: mlp, hidden: [16], library: {OWN_STAGE}}}
data:
  batch: 16
  test_fraction: 0.25
{data}
optimizer: {{name: adam, lr: 0.05}}
train: {{epochs: 20, dtype: float64}}
""")
        return path

    def own(self, name="own", stages=STAGES, data="lmdb", path="values", more=""):
        return self.config(name, f"  name: {data}\n  path: {self.folder / path}\n  classes: 3\n"
                                 f"  stages: {stages}\n{more}")

    def zipped(self):
        self.write("images", [png(one) for one in self.pictures])
        labels = self.folder / "labels.csv"
        labels.write_text("label\n" + "".join(f"{i % 3}\n" for i in range(RECORDS)))
        return self.config("zipped", f"""  name: zip
  sources:
    - {{name: lmdb, path: {self.folder / 'images'}}}
    - {{name: csv, path: {labels}}}
  stages: decode(1)""")

    def test_train_as_the_same_samples_of_a_zip_do(self):
        wanted = self.train(config=self.zipped(), name="zip")
        self.assertGreater(wanted["eval"]["accuracy"], 0.9)
        for name, words in {"alone": [], "workers": ["--workers", "2"],
                            "cache": ["--set", f"data.stages={STAGES} | cache(disk)", "--set",
                                      f"data.cache_dir={self.folder / 'cache'}"],
                            "service": ["--set", "data.service=host"]}.items():
            with self.subTest(name):
                found = self.train(*words, config=self.own(), name=name)
                self.assert_close(found["loss_history"], wanted["loss_history"], 1e-4, count=20)
                self.assertEqual(found["eval"]["accuracy"], wanted["eval"]["accuracy"])
        code, out, err = self.run_to_end(TRIREME, "plan", self.own())
        self.assertEqual(code, 0, out + err)
        self.assertIn(f"stages: {STAGES}", out)

    def test_have_further_functions_behind_them(self):
        stages = f"{STAGES} | map(negative) | filter(no greens)"
        found = self.train(config=self.own(stages=stages), name="behind")
        self.assertGreater(found["eval"]["accuracy"], 0.9)

    def test_that_are_damaged_are_named_or_left_out(self):
        self.write("cut", [*self.values[:40], self.values[40][:9], *self.values[41:]])
        config = self.own(path="cut")
        words = (TRIREME, "train", config, "--set", "data.test_fraction=0", "--set",
                 f"run.dir={self.folder / 'stopped'}")
        self.assert_refused(words, 1, "data.mdb, record 40", "decode_record(labelled)",
                            "the value is no label", "data.on_bad_record=skip")
        found = self.train("--set", "data.test_fraction=0", "--set", "data.on_bad_record=skip",
                           config=config, name="skipped")
        self.assertEqual(found["input"]["skipped"], 1)

    def test_are_refused_before_a_step(self):
        def refused(config, *parts):
            run = self.folder / "refused"
            self.assert_refused((TRIREME, "train", config, "--set", f"run.dir={run}"), 2, *parts)
            self.assertFalse((run / "log.jsonl").exists())

        refused(self.own(stages="decode_record(labeled, 1:8:8)"), "'labeled' is not known",
                "labelled")
        refused(self.own(stages="decode_record(labelled)"), "decode_record needs shape")
        refused(self.own(more="  target: key"), "data.target is key")
        self.assert_refused((TRIREME, "plan", self.own(), "--set", "data.classes=auto"), 2,
                            "data.classes is auto")

    @unittest.skipUnless(HAS_ARROW, "built without Arrow")
    def test_need_the_columns_that_are_named(self):
        pq.write_table(pa.table({"value": pa.array(self.values, pa.binary()),
                                 "counts": pa.array([[("a", 1)]] * RECORDS,
                                                    pa.map_(pa.string(), pa.int64()))}),
                       self.folder / "values.parquet")
        config = self.own(data="parquet", path="values.parquet")
        self.assert_refused((TRIREME, "plan", config), 2, "counts")
        columns = self.own(data="parquet", path="values.parquet", more="  inputs: value")
        found = self.train(config=columns, name="columns")
        wanted = self.train(config=self.own(), name="lmdb")
        self.assert_close(found["loss_history"], wanted["loss_history"], 1e-9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
