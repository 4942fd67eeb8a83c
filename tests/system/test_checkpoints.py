"""Saving and resuming: a resumed run has the losses of an undisturbed one, and nothing is damaged
when a disk or a file fails."""

import gzip
import os
import pathlib
import resource
import signal
import struct
import unittest

from support import DIGITS, ROOT, TRIREME, SystemTest


class Checkpoints(SystemTest):
    def checkpointed(self, *words, name, **options):
        return self.train("--set", f"checkpoint.dir={self.folder / 'ckpt'}", *words, name=name,
                          **options)

    def steps_in(self, folder="ckpt"):
        return sorted(int(p.name.removeprefix("step-")) for p in (self.folder / folder).iterdir()
                      if p.name.startswith("step-"))

    def newest(self):
        return max((self.folder / "ckpt").glob("step-*"))

    def test_resuming_in_the_middle_of_an_epoch_gives_the_undisturbed_run_bit_for_bit(self):
        for optimizer in ("sgd", "adam"):
            with self.subTest(optimizer):
                common = ("--set", f"optimizer.name={optimizer}", "--set", "optimizer.lr=0.005",
                          "--set", "model.dropout=0.2", "--workers", "2")
                whole = self.train(*common, "--set", "train.steps=40", name=f"whole-{optimizer}")
                part = ("--set", f"checkpoint.dir={self.folder / optimizer}")
                # An epoch has 23 steps, so this one ends inside the first.
                self.train(*common, *part, "--set", "train.steps=17", name=f"part-{optimizer}")
                rest = self.train(*common, *part, "--set", "train.steps=40",
                                  name=f"rest-{optimizer}")
                self.assertEqual(rest["resumed_from_step"], 17)
                self.assertEqual(rest["loss_history"], whole["loss_history"])
                self.assertEqual(rest["parameters_sha256"], whole["parameters_sha256"])

    def test_a_checkpoint_resumes_under_another_strategy(self):
        whole = self.train("--set", "train.steps=40", "--set", "train.dtype=float64", name="whole")
        self.checkpointed("--set", "train.steps=15", "--set", "train.dtype=float64", "--workers",
                          "2", name="two")
        rest = self.checkpointed("--set", "train.steps=40", "--set", "train.dtype=float64",
                                 "--set", "strategy.replicas=3", name="three")
        self.assert_close(rest["loss_history"], whole["loss_history"], 1e-10)

    def test_every_n_steps_keeps_the_last_k(self):
        self.checkpointed("--set", "train.steps=35", "--set", "checkpoint.every=10", "--set",
                          "checkpoint.keep=3", name="run")
        self.assertEqual(self.steps_in(), [20, 30, 35])

    def test_a_damaged_checkpoint_is_named_and_the_newest_whole_one_chosen(self):
        words = ("--set", "checkpoint.every=10", "--set", "checkpoint.keep=5")
        whole = self.checkpointed("--set", "train.steps=30", *words, name="whole")
        for damage in ("flip", "truncate", "manifest", "missing"):
            with self.subTest(damage):
                file = self.newest() / ("manifest.json" if damage == "manifest"
                                        else "model.safetensors")
                content = file.read_bytes()
                if damage == "flip":
                    file.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
                elif damage == "missing":
                    file.unlink()
                else:
                    file.write_bytes(content[: len(content) // 2])
                code, out, err = self.run_to_end(TRIREME, "train", DIGITS, "--set",
                                                 f"checkpoint.dir={self.folder / 'ckpt'}", "--set",
                                                 "train.steps=30",
                                                 *words, "--set",
                                                 f"run.dir={self.folder / damage}", "--quiet")
                self.assertEqual(code, 0, err)
                self.assertIn(file.parent.name, err)  # The damaged checkpoint,
                self.assertIn("step-000000020", err)  # and the one that was chosen.
                again = self.train("--set", f"checkpoint.dir={self.folder / 'ckpt'}", "--set",
                                   "train.steps=30", *words, name=damage + "-again")
                self.assertEqual(again["parameters_sha256"], whole["parameters_sha256"])

    def test_if_all_are_damaged_it_does_not_start_again_silently(self):
        self.checkpointed("--set", "train.steps=5", name="run")
        file = self.newest() / "model.safetensors"
        file.write_bytes(file.read_bytes()[:100])
        self.assert_refused([TRIREME, "train", DIGITS, "--set",
                             f"checkpoint.dir={self.folder / 'ckpt'}", "--quiet"], 1,
                            "model.safetensors")
        self.assertTrue(file.exists())

    def test_fresh_moves_older_checkpoints_aside(self):
        first = self.checkpointed("--set", "train.steps=5", name="first")
        second = self.checkpointed("--set", "train.steps=5", "--fresh", name="second")
        self.assertEqual(second["resumed_from_step"], 0)
        self.assertEqual(first["parameters_sha256"], second["parameters_sha256"])
        self.assertEqual(self.steps_in("ckpt.old-1"), [5])

    def test_fresh_works_with_any_name_of_the_folder(self):
        self.checkpointed("--set", "train.steps=3", name="first")
        report = self.checkpointed("--set", "train.steps=3", "--fresh", "--set",
                                   f"checkpoint.dir={self.folder / 'ckpt'}/", name="slash")
        self.assertEqual(report["resumed_from_step"], 0)
        self.assertEqual(self.steps_in("ckpt.old-1"), [3])
        report = self.checkpointed("--set", "train.steps=3", "--fresh", "--set",
                                   "checkpoint.dir=.", name="here", cwd=self.folder / "ckpt")
        self.assertEqual(report["resumed_from_step"], 0)
        self.assertEqual(self.steps_in("ckpt/old-1"), [3])
        self.assertEqual(self.steps_in(), [3])

    def test_a_run_continues_only_with_its_own_data(self):
        digits = gzip.decompress((ROOT / "data" / "digits.csv.gz").read_bytes())
        file, moved = self.folder / "mine.csv", self.folder / "moved.csv"
        file.write_bytes(digits)
        self.checkpointed("--set", "train.steps=3", "--set", f"data.path={file}", name="first")
        words = [TRIREME, "train", DIGITS, "--set", f"checkpoint.dir={self.folder / 'ckpt'}",
                 "--set", "train.steps=6", "--quiet"]
        path = ("--set", f"data.path={file}")
        for key, value, was in (("data.split_seed", "7", "20260101"),
                                ("data.shuffle", "false", "true"),
                                ("data.test_fraction", "0.3", "0.2")):
            self.assert_refused([*words, *path, "--set", f"{key}={value}"], 2,
                                f"{key} is {value} now and was {was}", "--fresh")
            self.assert_refused([*words, *path, "--set", f"{key}={value}", "--workers", "2"], 2,
                                f"{key} is {value} now and was {was}")
        lines = digits.splitlines(keepends=True)
        file.write_bytes(b"".join([lines[1], lines[0], *lines[2:]]))
        self.assert_refused([*words, *path], 2, "data.path", "holds other samples")
        moved.write_bytes(gzip.compress(digits))
        report = self.checkpointed("--set", "train.steps=6", "--set", f"data.path={moved}",
                                   "--set", "data.batch=32", name="moved")
        self.assertEqual(report["resumed_from_step"], 3)

    def test_a_run_continues_only_with_its_own_test_part(self):
        def write(part, count, first_label):
            images, labels = self.folder / f"{part}-images", self.folder / f"{part}-labels"
            pixels = bytes(i * 37 % 251 for i in range(64 * count))
            images.write_bytes(struct.pack(">IIII", 0x803, count, 8, 8) + pixels)
            labels.write_bytes(struct.pack(">II", 0x801, count)
                               + bytes((i + first_label) % 10 for i in range(count)))
            key = "data." if part == "train" else "data.test_"
            return ("--set", f"{key}images={images}", "--set", f"{key}labels={labels}")

        files = ("--set", "data.name=idx", *write("train", 100, 0))
        first, other = write("test", 20, 0), write("other", 20, 3)
        words = (*files, "--set", "model.name=mlp", "--set", "checkpoint.keep_best=1", "--set")
        self.checkpointed(*words, "train.steps=4", *first, name="first")
        # The training samples as the test part, and no test part at all.
        training = tuple(word.replace("data.", "data.test_") for word in files[2:])
        for test_part in (other, training, ("--set", "data.test_fraction=0")):
            self.assert_refused([TRIREME, "train", DIGITS, "--set",
                                 f"checkpoint.dir={self.folder / 'ckpt'}", "--quiet", *words,
                                 "train.steps=8", *test_part], 2, "data.test_content", "--fresh")
        moved = (self.folder / "test-images").rename(self.folder / "elsewhere")
        report = self.checkpointed(*words, "train.steps=8", *first, "--set",
                                   f"data.test_images={moved}", name="moved")
        self.assertEqual(report["resumed_from_step"], 4)

    def test_a_folder_that_is_a_link_to_itself_is_named(self):
        loop = self.folder / "loop"
        loop.symlink_to("loop")
        for words in (("train", DIGITS, "--fresh", "--quiet", "--set", f"checkpoint.dir={loop}"),
                      ("ckpt", "inspect", loop), ("ckpt", "verify", loop), ("ckpt", "prune", loop),
                      ("ckpt", "diff", loop, loop), ("data", "audit", loop),
                      ("train", DIGITS, "--quiet", "--set", f"data.path={loop}")):
            with self.subTest(words):
                err = self.assert_refused([TRIREME, *words], 1, str(loop), "symbolic links",
                                          "; try: ")
                self.assertNotIn("filesystem error", err)

    def test_a_folder_that_cannot_be_written_is_refused_before_training(self):
        (self.folder / "file").write_text("not a folder")
        self.assert_refused([TRIREME, "train", DIGITS, "--set",
                             f"checkpoint.dir={self.folder / 'file'}"], 1,
                            str(self.folder / "file"))

    def test_a_full_disk_ends_the_run_and_leaves_the_older_checkpoint_whole(self):
        self.checkpointed("--set", "train.steps=5", name="before")
        before = (self.newest() / "model.safetensors").read_bytes()

        def limit_files():
            # A file that may not grow past this size cannot be written, as on a full disk.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))

        words = [TRIREME, "train", DIGITS, "--set", f"checkpoint.dir={self.folder / 'ckpt'}",
                 "--set", "train.steps=10", "--quiet", "--set",
                 "monitor.json_lines=false", "--set", "monitor.tensorboard=false"]
        self.assert_refused(words, 1, str(self.folder / "ckpt"), preexec_fn=limit_files)
        self.assertEqual(self.steps_in(), [5])
        self.assertEqual((self.newest() / "model.safetensors").read_bytes(), before)
        self.assertEqual([p.name for p in (self.folder / "ckpt").iterdir()
                          if p.name.startswith(".")], [])

    def test_another_model_is_refused_naming_the_tensor(self):
        self.checkpointed("--set", "train.steps=3", name="run")
        words = [TRIREME, "train", DIGITS, "--set", f"checkpoint.dir={self.folder / 'ckpt'}",
                 "--set", "model.name=mlp", "--quiet"]
        self.assert_refused(words, 2, "0.weight", "--fresh")

    def test_ckpt_inspect_lists_the_content_of_a_checkpoint(self):
        report = self.checkpointed("--set", "train.steps=3", name="run")
        for path in (self.folder / "ckpt", pathlib.Path(report["checkpoint"])):
            code, out, err = self.run_to_end(TRIREME, "ckpt", "inspect", path)
            self.assertEqual(code, 0, err)
            self.assertIn("classifier.weight", out)
            self.assertIn("step 3", out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
