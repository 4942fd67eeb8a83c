"""Data in files of records, through stages: the same training for any number of workers, with and
without a cache; records that are damaged; wrong stages."""

import gzip
import json
import pathlib
import random
import re
import shutil
import signal
import unittest

import small_disk
from made_files import write_picture_job, write_pictures
from support import (DIGITS, ROOT, TRIREME, SystemTest, environment, processes_that_mention,
                     wait_until)


def pages_of(pid, name):
    """Resident bytes of a file that a process has mapped, and its share of them."""
    rss = pss = 0
    is_of_file = False
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
            words = line.split()
            if re.match(r"[0-9a-f]+-[0-9a-f]+$", words[0]):
                is_of_file = words[-1].endswith(name)
            elif is_of_file and words[0] in ("Rss:", "Pss:"):
                rss += int(words[1]) * 1024 if words[0] == "Rss:" else 0
                pss += int(words[1]) * 1024 if words[0] == "Pss:" else 0
    except OSError:  # It has ended.
        pass
    return rss, pss


STAGES = ("decode | random_resized_crop(16, scale=0.5:1) | flip | colour_jitter(0.2) | "
          "normalise(0.5, 0.25)")


class Input(SystemTest):
    def setUp(self):
        super().setUp()
        self.images = self.folder / "images"
        write_pictures(self.images, random.Random(7), [(24, 20), (20, 30), (32, 32)])
        self.config = self.folder / "images.yaml"
        write_picture_job(self.config, self.images, """
    - decode
    - random_resized_crop: {size: 16, scale: [0.5, 1]}
    - flip
    - colour_jitter: 0.2
    - normalise: {mean: 0.5, std: 0.25}""", epochs=6)

    def fit(self, *words, **options):
        return self.train(*words, config=self.config, **options)

    def test_workers_threads_and_caches_change_nothing(self):
        one = self.fit(name="one")
        self.assertLess(one["loss_history"][-1], one["loss_history"][0])
        self.assertGreater(one["eval"]["accuracy"], 0.5)
        self.assertEqual(one["samples"]["seen_once"], one["samples"]["expected"])
        for words in (["--workers", "2"], ["--workers", "3", "--set", "data.threads=0"],
                      ["--set", "strategy.name=mirrored", "--set", "strategy.replicas=2", "--set",
                       "data.threads=3"],
                      ["--set", f"data.stages={STAGES}"]):
            with self.subTest(words=words):
                other = self.fit(*words, name="other" + str(abs(hash(tuple(words)))))
                self.assert_close(other["loss_history"], one["loss_history"], 1e-9)
                self.assertAlmostEqual(other["eval"]["loss"], one["eval"]["loss"], places=9)

    def test_rows_of_bfloat16_are_used_as_the_type_of_the_training(self):
        stages = "data.stages=decode | resize(16:16) | normalise(0.5, 0.25{})"
        words = ["--set", "train.dtype=bfloat16", "--set", "train.epochs=2"]
        wide = self.fit(*words, "--set", stages.format(""), name="wide")
        rows = self.fit(*words, "--set", stages.format(", type=bfloat16"), name="rows")
        two = self.fit(*words, "--set", stages.format(", type=bfloat16"), "--workers", "2",
                       name="two")
        # The same numbers are rounded in the row or in the loader.
        self.assertEqual(rows["loss_history"], wide["loss_history"])
        self.assertEqual(rows["eval"], wide["eval"])
        self.assertEqual(len(two["loss_history"]), len(rows["loss_history"]))
        size = 3 * 16 * 16 * 2
        stage, = [stage for stage in rows["input"]["stages"] if stage["name"] == "normalise"]
        self.assertEqual(stage["bytes"], stage["samples"] * size)
        # A training in float32 gets the same numbers, which it widens.
        exact = self.fit("--set", "train.dtype=float32", "--set", "train.epochs=2", "--set",
                         stages.format(", type=bfloat16"), name="exact")
        self.assert_close(exact["loss_history"], wide["loss_history"], 0.1)

    def test_a_cache_changes_nothing_and_is_used(self):
        resized = "decode | resize(24:24) | {}random_crop(16) | flip | normalise(0.5, 0.25)"
        plain = self.fit("--set", "data.stages=" + resized.format(""), name="plain")
        cached = "data.stages=" + resized.format("cache | ")
        for name, words in {"memory": ["--set", cached],
                            "two": ["--set", cached, "--workers", "2"],
                            "small": ["--set", cached, "--set", "data.cache_bytes=20000"],
                            "disk": ["--set", cached.replace("cache", "cache(disk)"), "--set",
                                     f"data.cache_dir={self.folder / 'cache'}"],
                            "again": ["--set", cached.replace("cache", "cache(disk)"), "--set",
                                      f"data.cache_dir={self.folder / 'cache'}", "--workers",
                                      "2"]}.items():
            with self.subTest(name=name):
                other = self.fit(*words, name=name)
                self.assert_close(other["loss_history"], plain["loss_history"], 1e-9)
                stages = {stage["name"]: stage for stage in other["input"]["stages"]}
                self.assertGreater(stages["cache"]["samples"], 0)
        self.assertEqual(len(list((self.folder / "cache").glob("*.cache"))), 1)

    def test_a_cache_of_tensors_changes_nothing_and_is_used(self):
        stages = "decode | resize(16:16) | normalise(0.5, 0.25{}){} | erase | mixup(0.4)"
        for kind in ("", ", type=bfloat16"):
            plain = self.fit("--set", "data.stages=" + stages.format(kind, ""),
                             name=f"plain{len(kind)}")
            for run, place in enumerate(("memory", "disk", "disk")):
                with self.subTest(kind=kind, run=run, place=place):
                    cached = self.fit("--set", "data.stages=" +
                                      stages.format(kind, f" | cache({place})"), "--workers", "2",
                                      "--set", f"data.cache_dir={self.folder / 'cache'}",
                                      name=f"{run}{place}{len(kind)}")
                    self.assert_close(cached["loss_history"], plain["loss_history"], 1e-9)
                    self.assertEqual(cached["input"]["cache"]["samples"], 72)
        # Two caches of images of float32 and bfloat16.
        self.assertEqual(len(list((self.folder / "cache").glob("*.cache"))), 2)

    def test_the_report_counts_bytes_and_what_a_cache_has(self):
        # Without threads no batch is loaded ahead, so the numbers are those of the steps.
        words = ["--set", "data.stages=decode | resize(24:24) | cache | random_crop(16) | flip | "
                 "normalise(0.5, 0.25)", "--set", "data.threads=0", "--set",
                 "train.evaluate_every=0"]
        # Every 16th sample is measured: one in each of three steps.
        few = self.fit(*words, "--set", "train.steps=3", name="few")["input"]
        stages = {stage["name"]: stage for stage in few["stages"]}
        for name, size in {"resize": 3 * 24 * 24, "random_crop": 3 * 16 * 16,
                           "normalise": 3 * 16 * 16 * 4}.items():
            self.assertEqual((stages[name]["samples"], stages[name]["bytes"]), (48, 48 * size),
                             name)
        self.assertGreater(stages["read"]["bytes"], 0)
        self.assertEqual((few["cache"]["hits"], few["cache"]["misses"]), (0, 48))
        for stage in stages.values():  # One rank loads by itself.
            self.assertEqual(stage["threads"], stage["busy_share"])
        for workers in (1, 2):
            cache = self.fit(*words, "--set", "train.epochs=2", "--workers", workers,
                             name=f"{workers}")["input"]["cache"]
            # 18 of the 72 images are held out.
            self.assertEqual((cache["hits"], cache["misses"]), (54, 54))

    def cache_command(self, *words):
        code, out, err = self.run_to_end(TRIREME, "data", "cache", "--cache-dir",
                                         self.folder / "cache", "--json", *words)
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def test_caches_on_the_disk_are_shown_bounded_and_removed(self):
        stages = "data.stages=decode | resize({0}) | cache(disk) | flip | normalise"

        def run(size, name, *words):
            return self.fit("--set", stages.format(size), "--set",
                            f"data.cache_dir={self.folder / 'cache'}", "--set", "train.epochs=1",
                            *words, name=name)
        few = run("24:24", "few", "--set", "data.cache_bytes=30000")["input"]["cache"]
        self.assertTrue(few["full"])
        self.assertLess(few["bytes"], 30000)
        more = run("24:24", "more", "--set", "data.cache_bytes=1MB")["input"]["cache"]
        self.assertEqual((more["full"], more["samples"], more["place"]), (False, 72, "disk"))
        shown, = self.cache_command()["caches"]
        self.assertEqual((shown["stored"], shown["in_use"]), (72, False))
        # The cache of other stages takes the space of the older one.
        run("32:32", "others", "--set", "data.cache_bytes=300KB")
        left, = self.cache_command()["caches"]
        self.assertNotEqual(left["path"], shown["path"])
        self.assertGreater(self.cache_command("--clear")["freed_bytes"], 0)
        self.assertEqual(self.cache_command()["caches"], [])

    @unittest.skipUnless(small_disk.can_be_made(), "mount namespaces cannot be made here")
    def test_a_full_disk_ends_a_cache_and_not_the_run(self):
        disk = self.folder / "disk"
        disk.mkdir()
        code, out, err = self.run_to_end(
            *small_disk.words(disk, "64k"), TRIREME, "train", self.config, "--set",
            "data.stages=decode | resize(24:24) | cache(disk) | flip | normalise", "--set",
            f"data.cache_dir={disk}", "--set", "data.cache_bytes=1MB", "--set", "train.epochs=1",
            "--set", f"run.dir={self.folder / 'full'}", timeout=60)
        self.assertEqual(code, 0, out + err)
        self.assertRegex(out + err, r"the cache of samples ends at [1-9]\d* samples: no file for "
                         f"the cache of samples in data.cache_dir {disk}: .*No space left.*; try: "
                         r".*data\.cache_dir.*data\.cache_bytes")
        self.assertNotIn("memory.swap_dir", out + err)

    def test_a_cache_stands_in_memory_if_it_fits(self):
        stages = "data.stages=decode | resize(24:24) | cache(auto) | flip | normalise"
        words = ["--set", stages, "--set", "train.epochs=2", "--set",
                 f"data.cache_dir={self.folder / 'cache'}"]
        whole = self.fit(*words, "--workers", "2", name="whole")["input"]["cache"]
        self.assertEqual((whole["place"], whole["samples"]), ("memory", 72))
        small = self.fit(*words, "--set", "data.memory_bytes=40000", name="small")
        self.assertEqual(small["input"]["cache"]["place"],
                         "disk" if (self.folder / "cache").exists() else "memory")
        self.assert_refused([TRIREME, "train", self.config, "--set", stages, "--set",
                             "data.memory_bytes=1MB", "--set", "data.cache_bytes=2MB"], 2,
                            "data.cache_bytes", "data.memory_bytes")

    def test_the_place_of_a_cache_is_chosen_before_the_run(self):
        # The images are scaled twice, which costs more than all that comes behind.
        stages = "decode | resize(400:400) | resize(16:16) | random_crop(12) | normalise"
        words = ["--set", f"data.stages={stages}", "--set", "train.epochs=3"]
        plain = self.fit(*words, name="plain")
        for name, more in {"two": ["--workers", "2"],
                           "mirrored": ["--set", "strategy.name=mirrored", "--set",
                                        "strategy.replicas=2"]}.items():
            with self.subTest(name=name):
                report = self.folder / f"{name}.json"
                code, out, err = self.run_to_end(
                    TRIREME, "train", self.config, *words, "--set", "data.cache=auto", *more,
                    "--report", report, "--set", f"run.dir={self.folder / name}")
                self.assertEqual(code, 0, out + err)
                line, = re.findall(r"input: a cache behind resize saves .*", err)
                frozen = re.search(r'data.cache=stages data.stages="(.*)"$', line).group(1)
                self.assertEqual(frozen, stages.replace(" | random", " | cache | random"))
                found = json.loads(report.read_text())
                self.assert_close(found["loss_history"], plain["loss_history"], 1e-9)
                # One process has a cache for each part, and workers share one for both.
                self.assertEqual((found["input"]["cache"]["place"],
                                  found["input"]["cache"]["samples"]),
                                 ("memory", 72 if name == "two" else 54))
        # A run may continue with another place, or with none.
        rest = self.fit("--set", f"data.stages={stages}", "--set", "train.epochs=4", "--set",
                        f"run.dir={self.folder / 'two'}", name="rest")
        self.assertGreater(rest["resumed_from_step"], 0)
        none = self.run_to_end(TRIREME, "bench", "input", self.config, "--seconds", "1", "--set",
                               "data.stages=decode | resize(400:400) | normalise", "--set",
                               "data.cache=auto", "--set", "data.cache_bytes=0")
        self.assertEqual(none[0], 0, none[2])
        self.assertIn("input: no cache", none[2])

    def test_a_choice_of_the_cache_that_cannot_be_made_is_refused(self):
        auto = "data.cache=auto"
        self.refused(auto, "data.stages=decode | resize(8:8) | cache | normalise",
                     parts=["data.stages has a stage cache", "one of the two"])
        self.refused("data.cache=always", parts=["always", "stages", "auto"])

    def write_mixture(self, cache):
        config = self.folder / "mixture.yaml"
        config.write_text(f"""
model: {{name: mlp, hidden: [16]}}
data:
  name: mixture
  batch: 16
  test_fraction: 0.25
  cache: {cache}
  sources:
    - {{name: image_folder, path: {self.images}, weight: 2, as: scaled}}
    - name: image_folder
      path: {self.images}
      as: cropped
      stages: [decode, random_resized_crop: 12, normalise]
  stages:
    - decode
    - resize: "400:400"
    - resize: "16:16"
    - random_crop: 12
    - normalise
    - mixup: 0.2
optimizer: {{name: sgd, lr: 0.02}}
train: {{epochs: 2, dtype: float64}}
""")
        return config

    def test_each_source_of_a_mixture_has_a_place_of_its_own(self):
        plain = self.train(config=self.write_mixture("stages"), name="plain")
        config = self.write_mixture("auto")
        report = self.folder / "auto.json"
        code, out, err = self.run_to_end(TRIREME, "train", config, "--workers", "2", "--report",
                                         report, "--set", f"run.dir={self.folder / 'auto'}")
        self.assertEqual(code, 0, out + err)
        line, = re.findall(r"input: source .*", err)
        self.assertRegex(line, r"^input: source scaled: a cache behind resize saves .*; source "
                         r"cropped: no cache, because .*; to keep it: data.cache=stages, in "
                         r'source scaled stages: "decode \| resize\(400:400\) \| '
                         r'resize\(16:16\) \| cache \| random_crop\(12\) \| normalise"$')
        found = json.loads(report.read_text())
        self.assert_close(found["loss_history"], plain["loss_history"], 1e-9)
        self.assertEqual(found["input_plan_digest"], plain["input_plan_digest"])
        cache = found["input"]["cache"]
        self.assertEqual((cache["place"], cache["samples"]), ("memory", 72))
        # A run may continue without the caches, and says nothing of other samples.
        code, out, err = self.run_to_end(TRIREME, "train", self.write_mixture("stages"), "--set",
                                         f"run.dir={self.folder / 'auto'}", "--set",
                                         "train.epochs=3")
        self.assertEqual(code, 0, out + err)
        self.assertNotIn("in the checkpoint", out + err)

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_workers_of_another_launcher_share_a_cache(self):
        report = self.folder / "mpi.json"
        code, out, err = self.run_to_end(
            "mpirun", "-n", 2, "--oversubscribe", TRIREME, "train", self.config, "--quiet",
            "--report", report, "--set", f"run.dir={self.folder / 'mpi'}", "--set",
            "data.stages=decode | resize(24:24) | cache | flip | normalise", "--set",
            "train.epochs=1", timeout=120,
            env=environment(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
        self.assertEqual(code, 0, out + err)
        # In one epoch each worker loads one half of the samples, and evaluates one half.
        cache = json.loads(report.read_text())["input"]["cache"]
        self.assertEqual((cache["place"], cache["samples"]), ("memory", 72))

    def test_numbers_of_threads_are_tuned_or_kept(self):
        tuned = self.fit(name="tuned")["input"]
        self.assertTrue(tuned["tuned"]["threads"] and tuned["tuned"]["prefetch"])
        self.assertEqual(tuned["tuned"]["to_freeze"],
                         f"data.threads={tuned['threads']} data.prefetch={tuned['prefetch']}")
        frozen = self.fit("--set", "data.threads=2", "--set", "data.prefetch=5",
                          name="frozen")["input"]
        self.assertEqual((frozen["threads"], frozen["prefetch"]), (2, 5))
        self.assertEqual(frozen["tuned"]["reason"], "fixed")

    def test_mixed_batches_are_the_same_for_two_workers(self):
        words = ["--set", f"data.stages={STAGES} | mixup(0.4) | cutmix"]
        one, two = self.fit(*words, name="one"), self.fit(*words, "--workers", "2", name="two")
        self.assert_close(two["loss_history"], one["loss_history"], 1e-9)

    def test_a_damaged_record_is_named_or_left_out(self):
        damaged = self.images / "green" / "005.png"
        damaged.write_bytes(damaged.read_bytes()[:200])
        self.assert_refused([TRIREME, "train", self.config, "--quiet", "--set",
                             f"run.dir={self.folder / 'stopped'}"], 1, "005.png",
                            "data.on_bad_record=skip", timeout=60)
        skip = ["--set", "data.on_bad_record=skip"]
        one = self.fit(*skip, name="one")
        two = self.fit(*skip, "--workers", "2", name="two")
        self.assert_close(two["loss_history"], one["loss_history"], 1e-9)
        self.assertEqual(one["samples"]["seen_once"], one["samples"]["expected"])
        # Both parts of the third run have the damaged record. It counts once in each of them.
        both = self.fit(*skip, "--set", f"data.test_path={self.images}", "--workers", "2",
                        name="both")
        self.assertEqual([(run["input"]["skipped"], run["input"]["skipped_in_test"])
                          for run in (one, two, both)], [(1, 0), (1, 0), (2, 1)])
        for name in ("one", "two"):
            code, out, err = self.run_to_end(TRIREME, "data", "audit", self.folder / name, "--json")
            self.assertEqual(code, 0, out + err)
            # The ledger has the damaged record once in each epoch.
            self.assertEqual(json.loads(out)["left_out"], one["epochs"])

    def test_damaged_rows_of_a_text_are_named_or_left_out(self):
        rows = ["x,z,label"] + [f"{i % 5},{i % 3},{i % 2}" for i in range(100)]
        rows[7], rows[50], rows[80] = "1,2", "abc,1,0", '3,"4,1'
        table = self.folder / "rows.csv"
        table.write_text("\n".join(rows) + "\n")
        words = ["--quiet", "--set", "model.name=mlp", "--set", "data.name=csv", "--set",
                 f"data.path={table}", "--set", "data.batch=10", "--set", "train.epochs=2",
                 "--set", "data.test_fraction=0", "--set", "train.dtype=float64"]
        self.assert_refused([TRIREME, "train", *words, "--set", f"run.dir={self.folder / 'no'}"], 1,
                            "rows.csv, line 8 at byte", "it has 2 cells", "2 records are damaged",
                            "data.on_bad_record=skip", timeout=60)
        self.assertFalse((self.folder / "no").exists())
        code, out, err = self.run_to_end(TRIREME, "data", "verify", table)
        self.assertEqual(code, 1, err)
        self.assertIn("100 records, 2 bad", out)
        self.assertIn("line 81", out)
        losses = {}
        for workers in (1, 2):
            report = self.folder / f"{workers}.json"
            code, out, err = self.run_to_end(
                TRIREME, "train", *words, "--workers", str(workers), "--report", report, "--set",
                "data.on_bad_record=skip", "--set", f"run.dir={self.folder / str(workers)}")
            self.assertEqual(code, 0, out + err)
            found = json.loads(report.read_text())
            losses[workers] = found["loss_history"]
            code, out, err = self.run_to_end(TRIREME, "data", "audit", self.folder / str(workers),
                                             "--json")
            self.assertEqual(code, 0, out + err)
            self.assertEqual(json.loads(out)["left_out"], 2 * 3)  # In each epoch.
        self.assert_close(losses[2], losses[1], 1e-9)
        shards = ["--set", "data.on_bad_record=skip", "--set", "reproducible.virtual_shards=4"]
        bits = []
        for workers in (1, 3):
            report = self.folder / f"shards{workers}.json"
            code, out, err = self.run_to_end(
                TRIREME, "train", *words, *shards, "--workers", str(workers), "--report", report,
                "--set", f"run.dir={self.folder / f'shards{workers}'}")
            self.assertEqual(code, 0, out + err)
            found = json.loads(report.read_text())
            bits.append((found["loss_history"], found["parameters_sha256"]))
        self.assertEqual(bits[1], bits[0])
        self.assert_close(bits[0][0], losses[1], 1e-9)

    def test_a_table_of_another_form_trains_alike(self):
        rows = [(i % 5, (7 * i) % 3, i % 2) for i in range(60)]
        plain, other = self.folder / "plain.csv", self.folder / "other.dat"
        plain.write_text("x,z,label\n" + "".join(f"{x},{z},{y}\n" for x, z, y in rows))
        other.write_text("made, by hand\n  x z\tlabel\n# rows\n" +
                         "".join(f" {x}  {z}\t {y}\n" for x, z, y in rows))
        config = self.folder / "table.yaml"
        config.write_text("model: {name: mlp, hidden: [4]}\n"
                          "data: {name: csv, batch: 10}\ntrain: {epochs: 2}\n")
        losses = [self.train("--set", f"data.path={path}", *words, config=config,
                             name=path.stem)["loss_history"]
                  for path, words in ((plain, []),
                                      (other, ["--set", "data.delimiter=whitespace", "--set",
                                               "data.skip_lines=1", "--set", "data.comment=#"]))]
        self.assertEqual(losses[0], losses[1])

    def test_a_packed_file_beyond_the_ratio_needs_a_key(self):
        packed = self.folder / "rows.csv.gz"
        packed.write_bytes(gzip.compress(b"x,y\n" + b"0,1\n1,0\n" * 250_000))
        config = self.folder / "table.yaml"
        config.write_text("model: {name: mlp, hidden: [4]}\n"
                          f"data: {{name: csv, path: {packed}, batch: 1000, "
                          "stages: take(2000), test_fraction: 0}\ntrain: {epochs: 1}\n")
        self.assert_refused([TRIREME, "train", config, "--quiet", "--set",
                             f"run.dir={self.folder / 'no'}"], 2, "rows.csv.gz",
                            "over 250 times as many", "data.max_ratio", timeout=60)
        self.assertFalse((self.folder / "no").exists())
        self.assert_refused([TRIREME, "data", "index", packed], 2, "--max-ratio", timeout=60)
        report = self.train("--set", "data.max_ratio=100000", config=config)
        self.assertEqual(report["steps"], 2)
        code, out, err = self.run_to_end(TRIREME, "data", "index", config, "--set",
                                         "data.max_ratio=100000")
        self.assertEqual(code, 0, out + err)

    def test_an_image_beyond_the_memory_for_one_is_named(self):
        large = self.images / "green" / "005.png"
        file = bytearray(large.read_bytes())
        file[16:24] = (6000).to_bytes(4, "big") + (5000).to_bytes(4, "big")
        large.write_bytes(file)
        words = [TRIREME, "train", self.config, "--quiet"]
        self.assert_refused([*words, "--set", "data.memory_bytes=20MB", "--set",
                             f"run.dir={self.folder / 'bounded'}"], 1, "005.png",
                            "5000x6000 pixels", "at most 22369621", "data.memory_bytes",
                            timeout=60)
        self.assert_refused([*words, "--set", f"run.dir={self.folder / 'usual'}"], 1, "005.png",
                            "damaged", timeout=60)

    def test_a_run_continues_with_the_same_samples(self):
        whole = self.fit(name="whole")
        self.fit("--set", "train.epochs=2", "--set", f"run.dir={self.folder / 'parts'}",
                 name="first")
        rest = self.fit("--set", f"run.dir={self.folder / 'parts'}", "--workers", "2",
                        name="rest")
        self.assertGreater(rest["resumed_from_step"], 0)
        self.assert_close(rest["loss_history"], whole["loss_history"], 1e-9)
        self.assertEqual(rest["input_plan_digest"], whole["input_plan_digest"])
        # It may have other stages, and says so.
        code, out, err = self.run_to_end(
            TRIREME, "train", self.config, "--set", f"run.dir={self.folder / 'parts'}", "--set",
            "train.epochs=7", "--set", "data.stages=decode | resize(16:16) | normalise(0.5, 0.25)")
        self.assertEqual(code, 0, out + err)
        self.assertRegex(out + err, r'data.stages is "decode \| resize\(16:16\) \| .*" now and was '
                                    r'"decode \| random_resized_crop.*" in the checkpoint')

    def test_ranks_with_other_stages_are_refused_by_name(self):
        stages = "decode | resize(16:16) | {}normalise"
        script = (f'S="{stages.format("")}"; [ "$TRIREME_WORKER" = 1 ] && '
                  f'S="{stages.format("flip | ")}"; exec "{TRIREME}" train "{self.config}" '
                  f'--set "run.dir={self.folder / "run"}" --set "data.stages=$S"')
        code, out, err = self.run_to_end(TRIREME, "launch", "--workers", "2", "--", "sh", "-c",
                                         script)
        self.assertNotEqual(code, 0, out + err)
        self.assertRegex(out + err, r"'configuration': data.stages is 'decode .*' on worker 0 .*"
                                    r"and 'decode .* flip .*' on worker 1")

    def test_a_text_gets_what_records_have_and_goes_on_with_it(self):
        text = self.folder / "text.txt"
        text.write_text("".join(f"{i} and {i * i % 97} make {i + i * i % 97}\n"
                                for i in range(150)))
        config = self.folder / "text.yaml"
        config.write_text(f"""
model: {{name: gpt, layers: 1, width: 16, heads: 2}}
data: {{name: text, path: {text}, block: 16, batch: 8, test_fraction: 0.1}}
optimizer: {{lr: 0.05}}
train: {{steps: 8, dtype: float64}}
""")

        def fit(*words, name):
            return self.train(*words, config=config, name=name)
        whole = fit(name="whole")
        for name, words in {"fields": ["--set", "data.inputs=tokens"],
                            "skip": ["--set", "data.on_bad_record=skip", "--workers", "2"],
                            "served": ["--set", "data.service=host", "--workers", "2"]}.items():
            with self.subTest(name=name):
                other = fit(*words, name=name)
                self.assert_close(other["loss_history"], whole["loss_history"], 1e-9)
                self.assertAlmostEqual(other["eval"]["loss"], whole["eval"]["loss"], places=9)
        self.assertGreater(other["input"]["served"], 0)
        parts = ["--set", f"run.dir={self.folder / 'parts'}"]
        fit(*parts, "--set", "train.steps=3", name="first")
        rest = fit(*parts, "--set", "data.on_bad_record=skip", "--workers", "2", name="rest")
        self.assertEqual(rest["resumed_from_step"], 3)
        self.assert_close(rest["loss_history"], whole["loss_history"], 1e-9)
        few = fit("--set", "data.stages=take(16)", "--set", "train.epochs=1", name="few")
        self.assertEqual(few["samples"]["expected"], 16)
        self.assert_refused([TRIREME, "train", config, "--set", "data.stages=pack(32)"], 2,
                            "pack", "data.block", "data.name=tokens")

    def test_eight_workers_have_the_data_once(self):
        """By the shares of the mapped file that /proc/PID/smaps counts for each worker."""
        data = self.folder / "bytes"
        data.mkdir()
        numbers = random.Random(3)
        (data / "data_batch_1.bin").write_bytes(
            b"".join(bytes([i % 10]) + numbers.randbytes(3072) for i in range(2048)))
        size = (data / "data_batch_1.bin").stat().st_size
        job = self.start(TRIREME, "train", self.config, "--quiet", "--workers", "8", "--set",
                         "data.name=cifar", "--set", f"data.path={data}", "--set",
                         "data.stages=normalise", "--set", "data.batch=512", "--set",
                         "model.hidden=2", "--set", "train.epochs=100000", "--set",
                         f"run.dir={self.folder / 'run'}")

        def have_it_once():
            # Workers that map further pages meanwhile make the sum of the shares too large.
            self.assertIsNone(job.poll())
            pids = [pid for pid, command in processes_that_mention(str(data))
                    if "trireme-worker" in command]
            pages = [pages_of(pid, "data_batch_1.bin") for pid in pids]
            return (sum(rss for rss, _ in pages) > 7 * size and
                    sum(pss for _, pss in pages) < 1.05 * size)
        wait_until(have_it_once, 120, "eight workers that have used all samples of one file")
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60)

    def test_bench_input_measures_each_stage(self):
        code, out, err = self.run_to_end(TRIREME, "bench", "input", self.config, "--seconds", "1",
                                         "--json")
        self.assertEqual(code, 0, err)
        figures = json.loads(out)
        self.assertGreater(figures["samples_per_second"], 0)
        self.assertEqual([stage["name"] for stage in figures["stages"]],
                         ["read", "decode+random_resized_crop", "flip", "colour_jitter",
                          "normalise"])
        self.assertTrue(figures["tuned"]["threads"])
        self.assertGreaterEqual(figures["threads"], 1)
        self.assertIn(f"data.threads={figures['threads']}", figures["tuned"]["to_freeze"])
        # Threads go on counting while the numbers are read.
        row, size = figures["stages"][-1], 3 * 16 * 16 * 4
        self.assertAlmostEqual(row["bytes"] / row["samples"], size, delta=size / 20)

    def test_the_example_takes_these_images(self):
        example = ROOT / "examples" / "images.yaml"
        code, out, err = self.run_to_end(TRIREME, "plan", example, "--set",
                                         f"data.path={self.images}", "--set", "data.batch=16")
        self.assertEqual(code, 0, out + err)
        self.assertIn("random_crop(32, 4)", out)

    def refused(self, *settings, parts):
        words = [word for setting in settings for word in ("--set", setting)]
        self.assert_refused([TRIREME, "train", self.config, *words], 2, *parts)

    def test_wrong_stages_are_refused_before_a_process_starts(self):
        self.refused("data.stages=decode | fliip", parts=["fliip", "flip"])
        self.refused("data.stages=flip", parts=["decode | flip"])
        self.refused("data.stages=decode | resize(8:8) | normalise(type=fp8)",
                     parts=["fp8", "float32 or bfloat16"])
        self.refused("data.stages=decode | flip | cache | normalise", parts=["random"])
        self.refused("data.stages=decode | normalise | map(unknown)", parts=["unknown"])
        self.refused("data.path=/nowhere", parts=["/nowhere"])
        self.refused("data.target=nothing", parts=["nothing", "label"])
        self.assert_refused([TRIREME, "train", DIGITS, "--set", "data.stages=decode"], 2,
                            "data.stages", "image_folder")

    def test_a_missing_type_of_tokens_names_the_option_of_the_command(self):
        tokens = self.folder / "numbers.bin"
        tokens.write_bytes(bytes(4000))
        config = self.folder / "tokens.yaml"
        config.write_text(f"model: {{name: gpt}}\ndata: {{name: tokens, path: {tokens}}}\n")
        for words in (["train", config], ["plan", config], ["data", "head", config]):
            self.assert_refused([TRIREME, *words], 2, "numbers.bin", "data.token_type=uint8")
        self.assert_refused([TRIREME, "data", "head", tokens, "--format", "tokens", "--block",
                             "8"], 2, "numbers.bin", "--dtype=uint8")


if __name__ == "__main__":
    unittest.main(verbosity=2)
