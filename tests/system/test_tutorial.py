"""Runs the commands of the tutorial and of the guides for newcomers, in order, as they stand."""

import json
import os
import re
import unittest

from support import BIN, ROOT, SystemTest, blocks_of, environment

FILE = re.compile(r"`(my_model/\S+)`:\n\n\Z")


class Newcomers(SystemTest):
    def setUp(self):
        super().setUp()
        # It looks like the root of the repository after a build. What a page makes stays here.
        for name in ("examples", "data"):
            os.symlink(ROOT / name, self.folder / name)
        os.symlink(BIN.parent, self.folder / "build")

    def follow(self, name):
        """Writes the YAML blocks into their files, and runs the commands of the others."""
        text = (ROOT / "docs" / name).read_text()
        outputs = {}
        for start, language, code in blocks_of(text):
            if language == "yaml":
                (self.folder / FILE.search(text[:start])[1]).write_text(code)
            if language:
                continue
            for line in code.replace("\\\n", " ").splitlines():
                if line.startswith("make "):  # The build has been made.
                    self.assertRegex((ROOT / "Makefile").read_text(), rf"(?m)^{line[5:]}:")
                    continue
                code, out, err = self.run_to_end(
                    "bash", "-c", line, timeout=240,
                    env=environment(OMP_NUM_THREADS="1", CMAKE_BUILD_TYPE="Release"))
                self.assertEqual(code, 0, f"{name}: {line}\n{out}\n{err}")
                outputs[line] = out + err
        return outputs

    def report(self, run):
        return json.loads((self.folder / "runs" / run / "report.json").read_text())

    def test_the_tutorial_does_what_it_says(self):
        outputs = self.follow("tutorial.md")
        one, two = self.report("one"), self.report("two")
        self.assert_close(two["loss_history"], one["loss_history"], 1e-4)
        self.assertIn("64, 16", "".join(outputs.values()), "the hidden layer is twice as wide")
        elastic = next(out for line, out in outputs.items() if "--inject" in line)
        self.assertIn("was lost in backward of step 40", elastic)
        audit = next(out for line, out in outputs.items() if "data audit" in line)
        self.assertIn("each sample was used exactly once", audit)
        self.assertEqual(self.report("elastic")["steps"], 6 * 32)

    def test_the_guide_from_libtorch_does_what_it_says(self):
        outputs = list(self.follow("from_libtorch.md").values())
        accuracies = [float(re.findall(r"accuracy ([0-9.]+)", out)[-1]) for out in outputs[-2:]]
        self.assertAlmostEqual(*accuracies, delta=0.05)

    def test_the_guide_from_ddp_has_no_commands_of_its_own(self):
        self.assertEqual(self.follow("from_ddp.md"), {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
