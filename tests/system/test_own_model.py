"""A model, a data set and a metric of the user's own, from a shared object (examples/own_model) or
from a programme that stands in for the worker."""

import json
import os
import re
import shutil
import subprocess
import unittest

from support import BIN, ROOT, TRIREME, SystemTest

LIBRARY = BIN.parent / "lib" / "own_model.so"
PROGRAMME = BIN / "registered_names"
WAVES = ROOT / "examples" / "own_model" / "waves.yaml"


class OwnModel(SystemTest):
    def train_waves(self, *words, name="run", library=LIBRARY):
        return self.train("--set", f"model.library={library}", *words, name=name, config=WAVES)

    def test_trains_with_any_number_of_workers(self):
        alone = self.train_waves(name="alone")
        self.assertLess(alone["eval"]["loss"], 0.05)
        self.assertAlmostEqual(alone["eval"]["metrics"]["rmse"] ** 2, alone["eval"]["loss"],
                               delta=1e-6)
        together = self.train_waves("--workers", "2", name="together")
        for one, other in zip(alone["loss_history"][:50], together["loss_history"]):
            self.assertAlmostEqual(one, other, delta=1e-5)

    def test_faults_are_injected_and_an_elastic_job_goes_on(self):
        for library in (LIBRARY, PROGRAMME):
            with self.subTest(library=library.name):
                found = self.train_waves("--elastic", "1:2", "--inject", "kill:rank=1@step=20",
                                         name=library.name, library=library)
                self.assertEqual(found["samples"]["lost"], 0)
                self.assertGreaterEqual(len(found["generations"]), 2)
                self.assertEqual(found["steps"], 6 * 32)

    def test_it_shows_nothing_of_trireme(self):
        shown = subprocess.run(["nm", "-DC", "--defined-only", LIBRARY], check=True,
                               capture_output=True, text=True, timeout=30).stdout
        self.assertIn("torch::", shown)
        self.assertNotIn("trireme::", shown)

    def output_of(self, *words):
        code, out, err = self.run_to_end(TRIREME, *words, timeout=60)
        self.assertEqual(code, 0, out + err)
        return out

    def test_is_planned_and_timed(self):
        # The path of a shared object or of a programme may be relative.
        here = {name: os.path.relpath(name, self.folder) for name in (LIBRARY, PROGRAMME)}
        plans = []
        for library in (LIBRARY, PROGRAMME):
            with self.subTest(library=library.name):
                out = self.output_of("plan", WAVES, "--workers", "2", "--set",
                                     f"model.library={here[library]}", "--json")
                plans.append(json.loads(out))
                self.assertIn("in.weight", out)
                measured = json.loads(self.output_of(
                    "bench", "step", "--library", here[library], "--model", "waves", "--workers",
                    "2", "--path", "shm", "--steps", "5", "--json"))
                self.assertEqual((measured["model"], measured["batch"]), ("waves", 64))
                self.assertGreater(measured["median_ms"], 0)
        self.assertEqual(plans[0]["world_size"], 2)
        self.assertEqual(plans[0], plans[1])

    def test_a_programme_stands_in_for_the_worker(self):
        by_library = self.train_waves(name="library")
        for workers in ("1", "2"):
            by_programme = self.train_waves("--workers", workers, name=f"programme-{workers}",
                                            library=PROGRAMME)
            for one, other in zip(by_library["loss_history"][:50], by_programme["loss_history"]):
                self.assertAlmostEqual(one, other, delta=1e-5)
            if workers == "1":
                self.assertEqual(by_programme["parameters_sha256"],
                                 by_library["parameters_sha256"])
        # What ships with Trireme is in the programme too.
        digits = ("data.name=digits", "model.name=mlp", "loss.name=cross_entropy",
                  "train.metrics=none", "early_stop.measure=loss")
        settings = [word for each in digits for word in ("--set", each)]
        found = self.train_waves(*settings, "--set", "train.epochs=2", name="digits",
                                 library=PROGRAMME)
        self.assertGreater(found["eval"]["accuracy"], 0.5)
        measured = json.loads(self.output_of("bench", "input", WAVES, "--set",
                                             f"model.library={PROGRAMME}", *settings, "--seconds",
                                             "1", "--json"))
        self.assertGreater(measured["samples"], 0)
        # Wherever the programme lies, it finds the data that ship.
        elsewhere = self.folder / "elsewhere"
        shutil.copy(PROGRAMME, elsewhere)
        again = self.train_waves(*settings, "--set", "train.epochs=2", name="again",
                                 library=elsewhere)
        self.assertEqual(again["parameters_sha256"], found["parameters_sha256"])
        elsewhere.chmod(0o644)
        self.assert_refused("may not be executed", "chmod +x", library=elsewhere)
        memory = self.output_of("plan", WAVES, "--set", f"model.library={PROGRAMME}", "--set",
                                "memory.policy=recompute", "--measure")
        self.assertIn("recompute", memory)

    def assert_refused(self, *parts, words=(), library=LIBRARY):
        code, out, err = self.run_to_end(TRIREME, "train", WAVES, "--set",
                                         f"model.library={library}", *words)
        self.assertEqual(code, 2, out + err)
        for part in parts:
            self.assertIn(part, err)
        self.assertFalse((self.folder / "runs").exists(), "nothing was written")

    def test_wrong_input_is_refused_before_anything_is_written(self):
        self.assert_refused("model.library", "no such file", library="absent.so")
        text = self.folder / "text.so"
        text.write_text("no shared object")
        self.assert_refused("registers no model", library=text)
        # A programme without the call would do something else.
        mute = self.folder / "mute"
        mute.write_bytes(PROGRAMME.read_bytes().replace(b"trireme:worker:", b"trireme.worker:"))
        self.assert_refused("a programme that does not call trireme::run_as_worker()",
                            "the first line of its main()", library=mute)
        self.assert_refused('model.name is "wave"', "waves", words=("--set", "model.name=wave"))
        self.assert_refused("early_stop.measure", "rmse", words=("--set", "early_stop.measure=f1"))
        self.assert_refused('train.metrics has "f1"', "rmse", words=("--set", "train.metrics=f1"))
        # An image that ends before its code does.
        cut = self.folder / "cut.so"
        cut.write_bytes(LIBRARY.read_bytes()[:-200000])
        code, out, err = self.run_to_end(TRIREME, "train", WAVES, "--set", f"model.library={cut}",
                                         "--set", f"run.dir={self.folder}/cut")
        self.assertNotEqual(code, 0)
        other = self.folder / "other.so"
        other.write_bytes(re.sub(rb"(trireme:model:waves:)\d", rb"\g<1>9", LIBRARY.read_bytes()))
        code, out, err = self.run_to_end(TRIREME, "plan", WAVES, "--set", f"model.library={other}")
        self.assertEqual(code, 2, out + err)
        self.assertIn("was built with LibTorch 9", err)
        older = self.folder / "older.so"
        older.write_bytes(LIBRARY.read_bytes().replace(b":0.1.0\x1f", b":0.0.9\x1f"))
        self.assert_refused("was built with Trireme 0.0.9", "this is Trireme", library=older)
        self.assertIn("this process has LibTorch", err)

    def test_a_programme_registers_the_same_names_without_a_shared_object(self):
        config = self.folder / "waves.yaml"
        config.write_text("".join(line for line in WAVES.read_text().splitlines(True)
                                  if "library:" not in line))
        found = {}
        for processes in (1, 2):
            words = (BIN / "registered_names", config, "train.epochs=1",
                     f"run.dir={self.folder}/own-{processes}")
            if processes > 1:
                words = (TRIREME, "launch", "--workers", processes, "--no-prefix", "--", *words)
            code, out, err = self.run_to_end(*words)
            self.assertEqual(code, 0, out + err)
            found[processes] = json.loads(out[out.rindex("{"):])
        by_library = self.train_waves("--set", "train.epochs=1")
        self.assertEqual(found[1]["parameters"], by_library["parameters_sha256"])
        self.assertAlmostEqual(found[1]["loss"], found[2]["loss"], delta=1e-6)

    def test_a_library_whose_names_are_not_used_does_no_harm(self):
        code, out, err = self.run_to_end(
            TRIREME, "train", WAVES, "--set", f"model.library={LIBRARY}", "--set", "model.name=mlp",
            "--set", "data.name=digits", "--set", "loss.name=cross_entropy", "--set",
            "train.metrics=none", "--set", "early_stop.measure=loss", "--set", "train.epochs=1",
            "--set", f"run.dir={self.folder}/mlp", timeout=60)
        self.assertEqual(code, 0, out + err)


if __name__ == "__main__":
    unittest.main()
