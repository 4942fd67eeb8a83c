"""Several data sets in one configuration: exact counts, the same training for any number of
workers, resumes and the audit; wrong sources are refused before a process starts."""

import json
import random
import unittest

from support import TRIREME, SystemTest


class Mixtures(SystemTest):
    def setUp(self):
        super().setUp()
        numbers = random.Random(3)
        for name, rows, shift in (("a", 60, 0.0), ("b", 30, 0.5)):
            lines = ["x,y,label"]
            for _ in range(rows):
                label = numbers.randrange(3)
                lines.append(f"{numbers.gauss(label + shift, 0.5):.4f},"
                             f"{numbers.gauss(-label, 0.5):.4f},{label}")
            (self.folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        # The same records in another format.
        lines = [{"x": numbers.gauss(0, 1) + 0.25, "y": numbers.gauss(0, 1) + 0.25, "label": i % 3}
                 for i in range(20)]
        (self.folder / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.config = self.folder / "mixture.yaml"
        self.write()

    def write(self, more=""):
        self.config.write_text(f"""
model: {{name: mlp, hidden: [8]}}
data:
  name: mixture
  batch: 10
  test_fraction: 0.2
  sources:
    - {{name: csv, path: {self.folder}/a.csv, weight: 0.5, as: web}}
    - {{name: csv, path: {self.folder}/b.csv, weight: 0.3, as: books}}
    - {{name: jsonl, path: {self.folder}/c.jsonl, weight: 0.2}}
{more}
optimizer: {{name: sgd, lr: 0.1}}
train: {{epochs: 4, dtype: float64}}
""")

    def plan(self, *words):
        code, out, err = self.run_to_end(TRIREME, "plan", self.config, *words)
        self.assertEqual(code, 0, err)
        return out

    def test_the_plan_has_exact_counts(self):
        out = self.plan()
        self.assertIn("mixture of web 50%, books 30%, 3 20%", out)
        self.assertIn("web: 44 of its 48 samples in epoch 0", out)
        self.assertIn("source books: csv", out)
        self.assertIn("24 samples, and 6 of the test part", out)
        with_more = json.loads(self.plan("--json", "--set", "data.epoch_samples=100"))
        self.assertEqual(with_more["data"]["samples"], 100)
        self.assertEqual([source["samples"] for source in with_more["input"]["sources"]],
                         [48, 24, 16])

    def test_workers_resumes_and_the_audit_hold(self):
        self.write("""  weights_at:
    - {epoch: 1, sample: 40, weights: {books: 1, web: 0}}""")
        one = self.train(config=self.config, name="one")
        self.assertLess(one["loss_history"][-1], one["loss_history"][0])
        self.assertEqual(one["samples"]["seen_once"], 4 * 88)
        self.assertEqual(one["samples"]["repeated"] + one["samples"]["lost"], 0)
        self.assertEqual(one["eval"]["samples"], 12 + 6 + 4)
        for words in (["--workers", "3"], ["--set", "strategy.name=mirrored", "--set",
                                           "strategy.replicas=2"]):
            with self.subTest(words=words):
                other = self.train(*words, config=self.config, name="other" + words[0][2:])
                self.assert_close(other["loss_history"], one["loss_history"], 1e-9)
                self.assertAlmostEqual(other["eval"]["loss"], one["eval"]["loss"], places=9)
        run = ["--set", f"run.dir={self.folder / 'parts'}"]
        self.train("--set", "train.steps=13", *run, config=self.config, name="first")
        rest = self.train(*run, "--workers", "2", config=self.config, name="rest")
        self.assertEqual(rest["resumed_from_step"], 13)
        self.assert_close(rest["loss_history"], one["loss_history"], 1e-9)
        code, out, err = self.run_to_end(TRIREME, "data", "audit", self.folder / "parts")
        self.assertEqual(code, 0, out + err)
        # Other weights are another order.
        self.write()
        self.assert_refused([TRIREME, "train", self.config, "--quiet", *run], 2, "data.order",
                            "--fresh")

    def test_mixup_mixes_the_samples_of_all_sources(self):
        words = ["--set", "data.stages=mixup(0.3)"]
        plain = self.train(config=self.config, name="plain")
        one = self.train(*words, config=self.config, name="one")
        self.assertNotEqual(one["loss_history"], plain["loss_history"])
        self.assertEqual(one["eval"]["samples"], plain["eval"]["samples"])
        shards = [*words, "--set", "reproducible.virtual_shards=6"]
        runs = [self.train(*shards, "--workers", workers, config=self.config, name="w" + workers)
                for workers in ("1", "2", "3")]
        for run in runs[1:]:
            self.assertEqual(run["loss_history"], runs[0]["loss_history"])

    def test_an_exhausted_source_stops_or_gives_its_places_away(self):
        out = self.plan("--set", "data.when_exhausted=renormalise")
        self.assertIn("an epoch of 88 samples", out)
        out = self.plan("--set", "data.when_exhausted=stop")
        self.assertIn("an epoch of 80 samples", out)

    def test_equal_weights_in_order_interleave(self):
        sources = ", ".join(f"{{name: csv, path: {self.folder}/{name}.csv}}" for name in "ab")
        out = json.loads(self.plan("--set", f"data.sources=[{sources}]", "--set",
                                   "data.shuffle=none", "--set", "data.test_fraction=0", "--set",
                                   "data.when_exhausted=stop", "--batches", "6", "--json"))
        first = [number for batch in out["batches"] for number in batch]
        self.assertEqual(sorted(first), sorted([*range(30), *range(60, 90)]))
        for pair in range(30):
            self.assertEqual(sorted(first[2 * pair:2 * pair + 2]), [pair, 60 + pair])

    def test_a_test_part_of_its_own(self):
        report = self.train("--set", f"data.test_path={self.folder}/b.csv", config=self.config)
        self.assertEqual(report["eval"]["samples"], 30)
        self.assertEqual(report["samples"]["seen_once"], 4 * 110)

    def refused(self, *settings, parts, config=None):
        words = [word for setting in settings for word in ("--set", setting)]
        self.assert_refused([TRIREME, "train", config or self.config, *words], 2, *parts)

    def test_wrong_sources_are_refused_by_name(self):
        path = f"path: {self.folder}/a.csv"
        self.refused(f"data.sources=[{{name: csv, {path}, weight: 0}}]", parts=["add up to 0"])
        self.refused(f"data.sources=[{{name: csv, {path}, weight: -1}}]",
                     parts=["the weight of source 1", "-1"])
        self.refused(f"data.sources=[{{{path}}}]", parts=["source 1 has no name"])
        self.refused(f"data.sources=[{{name: csvv, {path}}}]", parts=["csvv"])
        self.refused(f"data.sources=[{{name: csv, {path}, blok: 3}}]", parts=["blok", "delimiter"])
        self.refused(f"data.sources=[{{name: csv, {path}, block: 3}}]",
                     parts=["block", "data.name=csv does not use"])
        self.refused("data.sources=[{name: csv}]", parts=["source 1", "data.path"])
        self.refused("data.sources=[{name: csv, path: /nowhere/x.csv}]",
                     parts=["source 1", "/nowhere/x.csv"])
        self.refused("data.sources=a.csv", parts=["data.sources", "list of maps"])
        self.refused("data.weights_at=[{epoch: 1, weights: {bookz: 1}}]",
                     parts=["no source \"bookz\"", "books"])
        self.refused("data.weights_at=[{epoch: 1, weights: [1, 2]}]", parts=["3 sources"])
        self.refused("data.weights_at=[{sample: 0, weights: [1, 2, 3]}]", parts=["ascending"])
        self.refused("data.epoch_samples=10", "data.when_exhausted=stop",
                     parts=["data.epoch_samples"])
        (self.folder / "empty.csv").write_text("x,y,label\n")
        self.refused(f"data.sources=[{{name: csv, {path}}}, {{name: csv, as: bare, path: "
                     f"{self.folder}/empty.csv}}]", parts=["source bare", "empty.csv"])
        (self.folder / "wide.csv").write_text("x,y,z,label\n1,2,3,0\n2,3,4,1\n")
        self.refused(f"data.sources=[{{name: csv, {path}}}, {{name: csv, as: wide, path: "
                     f"{self.folder}/wide.csv}}]", parts=["source wide", "[3]", "[2]"])
        self.refused(f"data.sources=[{{name: csv, {path}, as: a}}, {{name: csv, {path}, as: a}}]",
                     parts=["two sources have the name a"])
        self.refused(f"data.sources=[{{name: csv, {path}, stages: mixup}}]",
                     parts=["source 1", "mixup", "data.stages"])
        self.refused("data.stages=bucket", parts=["source web", "bucket", "length"])
        self.refused("data.name=csv", f"data.path={self.folder}/a.csv", "data.stages=mix",
                     parts=["mix", "data.name=mixture"])

    def test_zipped_files_train_like_one(self):
        rows = [line.split(",") for line in (self.folder / "a.csv").read_text().splitlines()]
        (self.folder / "x.csv").write_text("".join(f"{x}\n" for x, _, _ in rows))
        (self.folder / "rest.csv").write_text("".join(f"{y},{label}\n" for _, y, label in rows))
        sources = [f"{{name: csv, path: {self.folder}/{name}.csv}}" for name in ("x", "rest")]
        one = self.train("--set", "data.name=csv", "--set", f"data.path={self.folder}/a.csv",
                         config=self.config, name="one")
        zipped = ["--set", "data.name=zip", "--set", f"data.sources=[{', '.join(sources)}]"]
        two = self.train(*zipped, "--workers", "2", config=self.config, name="two")
        self.assert_close(two["loss_history"], one["loss_history"], 1e-9)
        self.refused("data.name=zip", parts=["weight"])
        self.refused("data.name=zip", f"data.sources=[{sources[0]}, {{name: csv, path: "
                     f"{self.folder}/b.csv}}]", parts=["source 2 has"])

    def test_files_name_the_line(self):
        self.write("  weights_at: 5")
        self.refused(parts=["mixture.yaml:11", "data.weights_at"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
