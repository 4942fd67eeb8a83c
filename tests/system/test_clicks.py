"""Clicks: the example learns more than how often is clicked, under each strategy alike; damaged
lines and wrong options are refused by name; the generator writes the file that ships."""

import gzip
import json
import pathlib
import subprocess
import sys
import unittest

from support import ROOT, TRIREME, SystemTest

EXAMPLE = ROOT / "examples" / "clicks.yaml"
SHIPPED = ROOT / "data" / "clicks.tsv.gz"


class Clicks(SystemTest):
    def test_the_example_learns(self):
        report = self.train(config=EXAMPLE)
        self.assertEqual(report["eval"]["samples"], 1200)
        self.assertGreater(report["eval"]["accuracy"], 0.78)  # 0.65 are not clicked.

    def test_other_strategies_train_alike(self):
        words = ("--set", "train.steps=12", "--set", "train.dtype=float64")
        one = self.train(*words, config=EXAMPLE, name="one")
        for name, more in {"workers": ("--workers", "2"),
                           "mirrored": ("--set", "strategy.name=mirrored", "--set",
                                        "strategy.replicas=2"),
                           "stages": ("--workers", "2", "--set", "mesh.pipeline=2")}.items():
            with self.subTest(name):
                other = self.train(*words, *more, config=EXAMPLE, name=name)
                self.assert_close(other["loss_history"], one["loss_history"], 1e-9)

    def test_losses_are_those_of_the_documented_module_in_python(self):
        words = ("--set", "train.dtype=float64", "--set", "optimizer.name=sgd", "--set",
                 "optimizer.lr=0.1")
        initial = self.train(*words, "--set", "train.steps=0", config=EXAMPLE, name="initial")
        code, plan, err = self.run_to_end(TRIREME, "plan", EXAMPLE, *words, "--batches", 8,
                                          "--json")
        self.assertEqual(code, 0, err)
        (self.folder / "plan.json").write_text(plan)
        code, out, err = self.run_to_end(
            sys.executable, ROOT / "tests" / "system" / "python_dlrm.py",
            pathlib.Path(initial["checkpoint"]) / "model.safetensors", self.folder / "plan.json")
        self.assertEqual(code, 0, err)
        report = self.train(*words, "--set", "train.steps=8", config=EXAMPLE, name="ours")
        self.assert_close(report["loss_history"], json.loads(out), 1e-9)

    def refused(self, *words, code=2, parts):
        self.assert_refused([TRIREME, "train", EXAMPLE, *words], code, *parts)

    def test_damage_is_named(self):
        lines = gzip.decompress(SHIPPED.read_bytes()).decode().splitlines(keepends=True)[:50]
        file = self.folder / "clicks.tsv"
        for column, text, said in ((1, "3", "label is 0 or 1"), (5, "x", "a whole number"),
                                   (20, "zz", "hexadecimal")):
            columns = lines[6].split("\t")
            columns[column - 1] = text
            file.write_text("".join([*lines[:6], "\t".join(columns), *lines[7:]]))
            self.refused("--set", f"data.path={file}", code=1,
                         parts=["clicks.tsv, line 7: ", f"column {column} is", said])
        file.write_text("".join(lines)[:-30])
        self.refused("--set", f"data.path={file}", code=1, parts=["line 50: there are"])

    def test_wrong_options_are_refused(self):
        self.refused("--set", "model.name=gpt", parts=["gpt"])
        self.refused("--set", "data.name=digits", parts=["categorical features",
                                                         "data.name=criteo"])
        self.refused("--set", "model.rows=0", parts=["model.rows"])
        self.refused("--set", "data.path=/nowhere/clicks.tsv", parts=["/nowhere/clicks.tsv"])

    def test_the_generator_writes_the_file_that_ships(self):
        file = self.folder / "clicks.tsv.gz"
        subprocess.run([sys.executable, ROOT / "scripts" / "make_clicks.py", file], check=True,
                       capture_output=True, timeout=60)
        # The bytes of gzip depend on the version of zlib.
        self.assertEqual(gzip.decompress(file.read_bytes()), gzip.decompress(SHIPPED.read_bytes()))

    def test_a_table_is_measured(self):
        words = (TRIREME, "bench", "ps", "--rows", "256", "--steps", "5")
        code, out, err = self.run_to_end(*words, "--table", "20000x8", "--workers", "2", "--json")
        self.assertEqual(code, 0, err)
        self.assertIn('"ratio":', out)
        for more, named in ((("--table", "20000"), "--table 20000 is not ROWSxWIDTH"),
                            (("--table", "20x8"), "--rows 256 of a table of 20 rows"),
                            (("--table", "20000x8", "--bytes", "4KB"), "--bytes and --table"),
                            (("--table", "20000x8", "--workers", "0"), "0")):
            code, out, err = self.run_to_end(*words, *more)
            self.assertEqual(code, 2, err)
            self.assertIn(named, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
