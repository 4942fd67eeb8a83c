"""Documents of tokens in packs, and batches of similar lengths: the same training for any number
of workers and under every strategy; wrong input is refused by name."""

import json
import random
import unittest

from made_files import write_documents
from support import TRIREME, SystemTest, settings

PACK = "data.stages=pack(24)"
PADDED = "data.stages=bucket(window=4) | pad"


def records_of(file):
    """Returns the records of a TFRecord file, each with its length and checksums."""
    content, records = bytearray(file.read_bytes()), []
    while content:
        size = 16 + int.from_bytes(content[:8], "little")
        records.append(content[:size])
        content = content[size:]
    return records


class Packing(SystemTest):
    def setUp(self):
        super().setUp()
        self.documents = self.folder / "documents.jsonl"
        write_documents(self.documents, random.Random(5), 120)
        self.config = self.folder / "packs.yaml"
        self.config.write_text(f"""
model: {{name: gpt, layers: 2, width: 16, heads: 2}}
data:
  name: jsonl
  path: {self.documents}
  batch: 6
  stages:
    - pack: {{tokens: 24, window: 32}}
optimizer: {{name: adam, lr: 0.01}}
train: {{epochs: 3, dtype: float64}}
""")

    def fit(self, *words, **options):
        return self.train(*words, config=self.config, **options)

    def test_every_strategy_trains_alike(self):
        one = self.fit(name="one")
        self.assertLess(one["loss_history"][-1], 0.9 * one["loss_history"][0])
        self.assertEqual(one["samples"]["seen_once"], one["samples"]["expected"])
        for name, words in {
                "workers": ["--workers", "3"],
                "passes": ["--set", "train.accumulate=2"],
                "mirrored": ["--set", "strategy.name=mirrored", "--set", "strategy.replicas=2"],
                "sharded": ["--workers", "2", "--set", "shard.level=3"],
                "pipeline": ["--workers", "2", "--set", "mesh.pipeline=2"],
                "zero bubble": ["--workers", "2", "--set", "mesh.pipeline=2", "--set",
                                "pipeline.schedule=zbh1", "--set", "memory.policy=recompute"],
                "tensor": ["--workers", "2", "--set", "mesh.tensor=2"],
                "servers": ["--workers", "2", "--ps", "1", "--set",
                            "strategy.name=parameter_server"],
                "recompute": ["--set", "memory.policy=recompute"]}.items():
            with self.subTest(name=name):
                other = self.fit(*words, name=name)
                self.assert_close(other["loss_history"], one["loss_history"], 1e-9)
                self.assertAlmostEqual(other["eval"]["loss"], one["eval"]["loss"], places=9)
                self.assertAlmostEqual(other["eval"]["accuracy"], one["eval"]["accuracy"])

    def test_virtual_shards_have_the_same_bits(self):
        words = ["--set", "reproducible.virtual_shards=4"]
        one = self.fit(*words, name="one")
        two = self.fit(*words, "--workers", "2", name="two")
        self.assertEqual(two["loss_history"], one["loss_history"])

    def test_padded_batches_of_similar_lengths(self):
        one = self.fit("--set", PADDED, name="one")
        for name, words in {"workers": ["--workers", "2"],
                            "pipeline": ["--workers", "2", "--set", "mesh.pipeline=2"],
                            "unsorted": None}.items():
            with self.subTest(name=name):
                if words is None:
                    other = self.fit("--set", "data.stages=pad", name=name)
                    self.assertNotEqual(other["loss_history"], one["loss_history"])
                    self.assertEqual(other["eval"]["samples"], one["eval"]["samples"])
                    continue
                other = self.fit("--set", PADDED, *words, name=name)
                self.assert_close(other["loss_history"], one["loss_history"], 1e-9)
        shards = ["--set", PADDED, "--set", "reproducible.virtual_shards=3"]
        self.assertEqual(self.fit(*shards, name="s1")["loss_history"],
                         self.fit(*shards, "--workers", "3", name="s3")["loss_history"])

    def test_a_run_continues(self):
        for name, stages in {"packs": PACK, "lengths": PADDED}.items():
            with self.subTest(name=name):
                words = ["--set", stages, "--set", f"run.dir={self.folder / name}"]
                whole = self.fit("--set", stages, name=name + "whole")
                self.fit(*words, "--set", "train.steps=3", name=name + "first")
                rest = self.fit(*words, "--workers", "2", name=name + "rest")
                self.assertEqual(rest["resumed_from_step"], 3)
                self.assert_close(rest["loss_history"], whole["loss_history"], 1e-9)
                code, out, err = self.run_to_end(TRIREME, "data", "audit", self.folder / name)
                self.assertEqual(code, 0, out + err)
        self.assert_refused([TRIREME, "train", self.config, "--quiet", "--set",
                             f"run.dir={self.folder / 'packs'}", "--set", "data.stages=pack(32)"],
                            2, "other samples", "--fresh")

    def test_take_and_repeat(self):
        def epoch(stages):
            code, out, err = self.run_to_end(TRIREME, "plan", self.config, "--json", "--set",
                                             f"data.stages={stages}")
            self.assertEqual(code, 0, err)
            return json.loads(out)["data"]["samples"]

        self.assertEqual(epoch("take(10) | pad"), 10)
        self.assertEqual(epoch("repeat(3) | pad"), 288)
        self.assertEqual(epoch("take(10) | repeat(3) | take(25) | pad"), 25)
        packs = epoch("pack(24)")
        self.assertEqual(epoch("pack(24) | repeat(2)"), 2 * packs)
        self.assertLess(epoch("take(20) | pack(24)"), packs)
        report = self.fit("--set", "data.stages=take(10) | repeat(3) | pad")
        self.assertEqual(report["samples"]["seen_once"], 90)

    def test_shards_of_documents_train_as_their_lines_do(self):
        words = ["--set", "data.test_fraction=0", "--set", "train.epochs=2"]
        for to, stages in (("tfrecord", PACK), ("webdataset", PACK), ("tfrecord", PADDED),
                           ("webdataset", PADDED)):
            with self.subTest(to=to, stages=stages):
                output = self.folder / f"{to}-{len(stages)}"
                self.must(TRIREME, "data", "pack", self.documents, "--to", to, "--output", output)
                files = settings(f"data.name={to}", f"data.path={output}", stages)
                lines = self.fit(*words, "--set", stages, name=output.name + "-lines")
                one = self.fit(*words, *files, name=output.name + "-one")
                self.assertEqual(one["loss_history"], lines["loss_history"])
                two = self.fit(*words, *files, "--workers", "2", "--set", "data.service=host",
                               name=output.name + "-two")
                self.assert_close(two["loss_history"], lines["loss_history"], 1e-9)

    def with_more_lists(self):
        """Returns a file of the documents with another list in most lines, which is longer."""
        both = self.folder / "both.jsonl"
        lines = self.documents.read_text().splitlines()
        both.write_text("".join(json.dumps({"more": [1] * (20 + i % 3)} | json.loads(line)) + "\n"
                                if i % 5 else line + "\n" for i, line in enumerate(lines)))
        return both

    def test_lines_with_two_lists_train_as_those_with_one_do(self):
        both = settings(f"data.path={self.with_more_lists()}")
        for number, stages in enumerate((PACK, PADDED)):
            with self.subTest(stages=stages):
                lines = self.fit("--set", stages, name=f"lines{number}")
                self.assertEqual(self.fit(*both, "--set", stages,
                                          name=f"both{number}")["loss_history"],
                                 lines["loss_history"])

    def test_damaged_documents_are_left_out_of_packs(self):
        lines = self.documents.read_text().splitlines(keepends=True)
        for number in (5, 40, 77):
            lines[number] = '{"tokens": [1, 2\n'
        damaged = self.folder / "damaged.jsonl"
        damaged.write_text("".join(lines))
        shards = self.folder / "shards"
        self.must(TRIREME, "data", "pack", self.documents, "--to", "tfrecord", "--output", shards)
        [shard] = shards.glob("*.tfrecord")
        records = records_of(shard)
        for number in (5, 40):
            records[number][len(records[number]) // 2] ^= 1
        shard.write_bytes(b"".join(records))
        words = settings(PACK, "data.test_fraction=0", "train.epochs=2", "data.bad_records=3")
        for name, path, count in (("jsonl", damaged, 3), ("tfrecord", shards, 2)):
            with self.subTest(name):
                files = settings(f"data.name={name}", f"data.path={path}")
                self.assert_refused([TRIREME, "train", self.config, *words, *files], 1, name,
                                    "data.on_bad_record=skip")
                files += ["--set", "data.on_bad_record=skip"]
                self.assert_refused([TRIREME, "train", self.config, *words, *files, "--set",
                                     f"data.bad_records={count - 1}"], 2,
                                    f"{count} records could not be read", timeout=60)
                one = self.fit(*words, *files, name=f"{name}-one")
                self.assertEqual(one["input"]["skipped"], count)
                for kind in ("none", "host"):
                    two = self.fit(*words, *files, "--workers", "2", "--set",
                                   f"data.service={kind}", name=f"{name}-{kind}")
                    self.assertEqual(two["input"]["skipped"], count)
                    self.assert_close(two["loss_history"], one["loss_history"], 1e-9)

    def test_the_index_of_shards_can_be_made_ahead(self):
        output = self.folder / "shards"
        self.must(TRIREME, "data", "pack", self.documents, "--to", "tfrecord", "--output", output)
        self.must(TRIREME, "data", "index", output, "--length-of", "tokens")
        made = sorted(output.iterdir())
        self.fit(*settings("data.name=tfrecord", f"data.path={output}", "train.steps=1"))
        self.assertEqual(len(set(output.iterdir()) - set(made)), 1)  # That without lengths.
        self.assert_refused([TRIREME, "data", "index", output, "--length-of", "token"], 1,
                            "record 0", "no feature 'token'")
        self.must(TRIREME, "data", "index", self.documents, "--length-of", "tokens")
        self.assert_refused([TRIREME, "data", "index", self.documents, "--length-of", "token"], 2,
                            "documents.jsonl", "a member 'token'")
        # The files become others. The error about each index says how it is made anew.
        [shard] = output.glob("*.tfrecord")
        shard.write_bytes(b"".join(records_of(shard)[:60]))
        words = settings("data.name=tfrecord", f"data.path={output}", "train.steps=1")
        for more in ([], ["--length-of", "tokens"]):
            self.assert_refused([TRIREME, "train", self.config, "--fresh", *words], 1,
                                "after the index", " ".join(["trireme data index", *more]))
            self.must(TRIREME, "data", "index", output, *more)
        self.assertEqual(self.fit("--fresh", *words)["steps"], 1)

    def test_numbers_with_fractions_are_no_tokens(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"tokens": [1.0, 2.5, i]}) + "\n" for i in range(20)))
        for words in ([PACK], ["data.stages=take(9)"], ["data.stages=take(9)", "data.classes=30"]):
            self.refused(f"data.path={rows}", *words,
                         parts=["rows.jsonl, line", "has the number 2.5"])

    def test_a_mixture_of_packs(self):
        sources = ", ".join(f"{{name: jsonl, path: {self.documents}, as: {name}}}"
                            for name in "ab")
        words = ["--set", "data.name=mixture", "--set", f"data.sources=[{sources}]"]
        one = self.fit(*words, name="one")
        two = self.fit(*words, "--workers", "2", name="two")
        self.assert_close(two["loss_history"], one["loss_history"], 1e-9)

    def test_a_mixture_of_padded_documents(self):
        others = self.folder / "others.jsonl"
        others.write_text("".join(json.dumps({"tokens": [i % 11, 3, (5 * i) % 13] * (1 + i % 9)})
                                  + "\n" for i in range(60)))
        sources = (f"{{name: jsonl, path: {self.documents}, as: a, weight: 2}}, "
                   f"{{name: jsonl, path: {others}, as: b}}")
        words = ["--set", "data.name=mixture", "--set", f"data.sources=[{sources}]", "--set",
                 PADDED]
        one = self.fit(*words, name="one")
        self.assertLess(one["loss_history"][-1], 0.9 * one["loss_history"][0])
        self.assertGreater(one["eval"]["samples"], 0)
        for service in ("none", "host"):
            two = self.fit(*words, "--workers", "2", "--set", f"data.service={service}",
                           name=service)
            self.assert_close(two["loss_history"], one["loss_history"], 1e-9)
            self.assertAlmostEqual(two["eval"]["loss"], one["eval"]["loss"], places=9)
        run = [*words, "--set", f"run.dir={self.folder / 'parts'}"]
        self.fit(*run, "--set", "train.steps=7", name="first")
        rest = self.fit(*run, "--workers", "2", name="rest")
        self.assertEqual(rest["resumed_from_step"], 7)
        self.assert_close(rest["loss_history"], one["loss_history"], 1e-9)
        code, out, err = self.run_to_end(TRIREME, "data", "audit", self.folder / "parts")
        self.assertEqual(code, 0, out + err)

    def test_the_plan_tells_of_the_packs(self):
        code, out, err = self.run_to_end(TRIREME, "plan", self.config)
        self.assertEqual(code, 0, err)
        self.assertIn("packs: 96 documents of", out)
        self.assertIn("stages: pack(24, 32)", out)

    def refused(self, *settings, parts, code=2):
        words = [word for setting in settings for word in ("--set", setting)]
        self.assert_refused([TRIREME, "train", self.config, "--quiet", *words], code, *parts,
                            timeout=60)

    def test_wrong_input_is_refused_by_name(self):
        self.refused("data.stages=pack(8)", parts=["documents.jsonl", "line", "long=split"])
        self.refused("data.stages=pack(24) | pad", parts=["pad", "pack"])
        self.refused("data.stages=repeat(2) | pack(24)", parts=["repeat"])
        self.refused("data.stages=pack(2.5)", parts=["whole"])
        self.refused("data.stages=pack(24, long=cut)", parts=["refuse or split"])
        self.refused("data.stages=pad | pad", parts=["two stages pad"])
        self.refused(PACK, "model.name=mlp", parts=["tokens", "model.name is mlp"])
        self.refused("data.stages=pad", "model.name=mlp", parts=["tokens", "model.name is mlp"])
        self.refused(PACK, "model.context=8", parts=["24", "model.context"])
        for word, place in {"shuffle": "data.shuffle", "batch": "data.batch",
                            "prefetch": "data.prefetch", "interleave": "data.name=mixture"}.items():
            self.refused(f"data.stages={word}", parts=[place])

    def test_a_ragged_batch_without_padding_names_two_records(self):
        self.refused("data.stages=", parts=["data.stages"])
        parts = ["neither pad nor pack", "documents.jsonl, line", "19 tokens", "has 2 tokens"]
        for command in ("train", "plan"):
            self.assert_refused([TRIREME, command, self.config, "--set", "data.stages=take(60)"],
                                2, *parts)
        sources = f"{{name: jsonl, path: {self.documents}, as: a}}"
        self.refused("data.name=mixture", f"data.sources=[{sources}]", "data.stages=take(60)",
                     parts=["source a: ", *parts])
        # The test part has them too.
        self.refused("data.stages=take(1)", parts=parts[:2])
        report = self.fit("--set", "data.stages=take(10)", "--set", "data.batch=1", "--set",
                          "train.epochs=1")
        self.assertEqual(report["steps"], 10)
        # Two replicas have a sample each, and files may be sorted. An evaluation has batches of
        # two then, and its order is that of the files.
        for pairs in (["data.batch=2", "strategy.name=mirrored", "strategy.replicas=2"],
                      ["data.shuffle=none"]):
            words = settings("data.stages=take(60)", *pairs)
            self.assert_refused([TRIREME, "plan", self.config, *words], 2, *parts[:2])
            code, _, err = self.run_to_end(TRIREME, "plan", self.config, *words, "--set",
                                           "data.test_fraction=0")
            self.assertEqual(code, 0, err)
        # Two workers of an elastic job would have one sample each, and one worker both.
        job = [TRIREME, "train", self.config, "--elastic", "1:2",
               *settings("data.stages=take(60)", "data.test_fraction=0", "data.batch=2")]
        self.assert_refused([*job, "--set", "elastic.workers=1"], 2, *parts[:2])
        self.assertEqual(self.fit(*job[3:], name="elastic")["steps"], 30 * 3)

    def test_lengths_that_the_index_does_not_know_are_compared_in_the_batch(self):
        lines = [json.loads(line) for line in self.documents.read_text().splitlines()]
        both = self.folder / "both.jsonl"
        both.write_text("".join(json.dumps(line | {"more": [1] * (1 + i % 3)}) + "\n"
                                for i, line in enumerate(lines)))
        words = [TRIREME, "train", self.config, "--quiet", "--set", f"data.path={both}", "--set",
                 "data.stages=take(60)"]
        err = self.assert_refused(words, 2, "both.jsonl, line", "the stage pad, or pack",
                                  timeout=60)
        self.assertNotIn("neither pad nor pack", err)

    def test_padded_numbers_need_a_model_for_them(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"x": [0.5] * (1 + i % 4), "label": i % 2}) + "\n"
                                for i in range(20)))
        self.refused(f"data.path={rows}", "data.stages=pad", "model.name=mlp",
                     parts=["different lengths", "model.name is mlp"])

    def test_a_model_without_tokens_is_refused_at_the_start(self):
        fixed = self.folder / "fixed.jsonl"
        fixed.write_text("".join(json.dumps({"tokens": [1, 2, 3, 4]}) + "\n" for _ in range(20)))
        words = [f"data.path={fixed}", "data.stages=take(9)", "model.name=mlp"]
        self.refused(*words, parts=["data.name jsonl", "rows of tokens", "model.name is mlp"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
