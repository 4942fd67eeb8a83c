"""bench/learning.py: jobs with servers and a slow worker learn, and their curves become figures."""

import json
import sys
import unittest
import xml.etree.ElementTree as ElementTree

from support import ROOT, SystemTest

SLOW_MS = 30
STEPS_OF_EPOCH = 22


class Learning(SystemTest):
    def learning(self, *words):
        return self.run_to_end(sys.executable, ROOT / "bench/learning.py", *words, timeout=60)

    def test_curves_and_figures_of_jobs_with_a_slow_worker(self):
        code, out, err = self.learning("--workers", "1", "2", "--seeds", "1", "--epochs", "4",
                                       "--slow", f"forward={SLOW_MS}ms", "--figures", self.folder)
        self.assertEqual(code, 0, err)
        curves = json.loads((self.folder / "learning.json").read_text())["digits"]
        self.assertEqual(list(curves["1"]), ["1 worker"])
        self.assertEqual(list(curves["2"]), ["BSP", "SSP, bound 1", "SSP, bound 4", "async"])
        for name, (curve,) in {**curves["1"], **curves["2"]}.items():
            self.assertEqual(curve["seconds"], sorted(curve["seconds"]), name)
            self.assertEqual([len(each) for each in curve.values()], [4, 4, 4], name)
            self.assertLess(curve["loss"][-1], curve["loss"][0], name)
            self.assertTrue(all(0 <= accuracy <= 1 for accuracy in curve["accuracy"]), name)
            self.assertIn(f"{100 * curve['accuracy'][-1]:.1f} %", out)
        # Synchronous workers wait for the slow one in every step, and compute what one worker does.
        (bsp,), (alone,) = curves["2"]["BSP"], curves["1"]["1 worker"]
        self.assertGreater(bsp["seconds"][-1], 4 * STEPS_OF_EPOCH * SLOW_MS / 1000)
        for ours, theirs in zip(bsp["loss"], alone["loss"], strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-3)

        svg = self.folder / "learning_digits_2.svg"
        self.assertLess(svg.stat().st_size, 60_000)
        texts = [text.text for text in
                 ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
        for part in ("epochs", "seconds", "held-out accuracy", "held-out loss", "1 worker",
                     "async"):
            self.assertIn(part, texts)

    def test_wrong_input_is_refused_before_a_job_starts(self):
        for words, part in (
            (("cifar",), "unknown task cifar"),
            (("mnist",), "mnist needs --data"),
            (("mnist", "--data", self.folder), "has train-images in its name"),
            (("--seeds", "0"), "--seeds is 0"),
            (("--workers", "0"), "--workers has 0"),
        ):
            code, out, err = self.learning(*words)
            self.assertNotEqual(code, 0, words)
            self.assertIn(part, err)
            self.assertEqual(out, "")


if __name__ == "__main__":
    unittest.main()
