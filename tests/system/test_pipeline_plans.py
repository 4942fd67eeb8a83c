"""`trireme plan --schedule` as a user calls it: its output, its drawings, and wrong input."""

import json
import re
import shlex
import unittest
import xml.etree.ElementTree as xml

from support import DIGITS, ROOT, TRIREME, SystemTest

PAGE = ROOT / "docs" / "pipeline.md"
SIZE = ("--stages", "4", "--microbatches", "8")


class PipelinePlans(SystemTest):
    def plan(self, *words):
        code, out, err = self.run_to_end(TRIREME, "plan", *words)
        self.assertEqual(code, 0, f"{out}\n{err}")
        return out

    def refused(self, *words):
        code, out, err = self.run_to_end(TRIREME, "plan", *words)
        self.assertEqual(code, 2, f"{out}\n{err}")
        self.assertNotIn("stage 0", out)
        return err

    def test_the_pictures_of_the_page_are_those_of_the_tool(self):
        commands = re.findall(r"^trireme (plan --schedule .*--svg (docs/images/\S+))$",
                              PAGE.read_text(), re.MULTILINE)
        shown = re.findall(r"\]\((images/[^)]+\.svg)\)", PAGE.read_text())
        self.assertEqual([f"docs/{name}" for name in shown], [name for _, name in commands])
        for command, name in commands:
            picture = self.folder / "picture.svg"
            self.plan(*shlex.split(command)[1:-1], picture)
            self.assertEqual(picture.read_text(), (ROOT / name).read_text(),
                             f"trireme {command} makes another picture now: run it")

    def test_the_pictures_in_the_text_are_those_of_the_tool(self):
        page = PAGE.read_text()
        out = self.plan("--schedule", "1f1b", *SIZE)
        self.assertIn(out.strip(), page)

    def test_drawings_are_well_formed(self):
        for schedule in ("naive", "gpipe", "1f1b", "interleaved", "zbh1", "zbh2", "zbv"):
            picture = self.folder / f"{schedule}.svg"
            self.plan("--schedule", schedule, *SIZE, "--svg", picture)
            root = xml.parse(picture).getroot()
            self.assertTrue(root.tag.endswith("svg"))

    def test_json_has_the_steps_and_their_times(self):
        plan = json.loads(self.plan("--schedule", "1f1b", *SIZE, "--json"))
        self.assertEqual(plan["steps"][3][:4], ["3F0", "3B0", "3F1", "3B1"])
        self.assertEqual(plan["times"]["steps"][3][1], [4, 6])
        self.assertAlmostEqual(plan["times"]["bubble"], 3 / 11)
        self.assertAlmostEqual(plan["bubble_by_formula"], 3 / 11)
        self.assertEqual(plan["times"]["peak_microbatches"], [4, 3, 2, 1])
        self.assertEqual((plan["messages"], plan["buffers"]), ([8, 16, 16, 8], 1))

    def test_a_schedule_of_ones_own_may_be_a_word(self):
        own = "0F0 0F1 0B1 0B0; 1F0 1F1 1B1 1B0"
        self.assertIn("stage 1", self.plan("--schedule", own))
        self.assertIn("says how many stages", self.refused("--schedule", own, "--stages", "2"))
        self.assertIn("stage 0 never runs 0B0", self.refused("--schedule", own.replace(" 0B0", "")))

    def test_a_schedule_of_ones_own_comes_from_a_file(self):
        own = self.folder / "own.txt"
        own.write_text("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n")
        out = self.plan("--schedule-file", own, "--costs", "F=1,2 B=2,4 transfer=0.5")
        self.assertIn("pipeline schedule text: 2 stages, 2 micro-batches", out)
        own.write_text("0F0 0F1 0B0\n1F0 1B0 1F1 1B1\n")
        self.assertIn("stage 0 never runs 0B1", self.refused("--schedule-file", own))
        own.write_text("0F0 0B0\n1F0 1G0\n")
        self.assertIn("line 2 (stage 1), word 2: '1G0'", self.refused("--schedule-file", own))

    def test_wrong_input_is_named(self):
        for words, message in (
                (("--schedule", "1f1c", *SIZE), "did you mean '1f1b'"),
                (("--schedule", "1f1b", "--stages", "4"), "without --microbatches"),
                (("--schedule", "1f1b", "--microbatches", "4"), "without --stages"),
                (("--schedule", "1f1b", "--stages", "4", "--microbatches", "0"),
                 "0 microbatches"),
                (("--schedule", "1f1b", *SIZE, "--chunks", "2"), "one part"),
                (("--schedule", "interleaved", *SIZE, "--chunks", "0"), "--chunks is 0"),
                (("--schedule", "1f1b", *SIZE, "--costs", "F=1,2"), "2 values for 4 parts"),
                (("--schedule", "1f1b", *SIZE, "--costs", "G=1"), "'G=1' names no cost"),
                (("--schedule", "1f1b", *SIZE, "--buffers", "-1"), "--buffers is -1"),
                (("--schedule", "1f1b", *SIZE, "--buffers", "0"), "finds no room"),
                (("--stages", "4"), "needs --schedule or --schedule-file"),
                ((DIGITS, "--schedule", "1f1b", *SIZE), "exclude each other"),
                (("--schedule", "1f1b", "--schedule-file", "x", *SIZE), "together"),
                ((DIGITS, "--svg", "x.svg"), "needs --schedule")):
            with self.subTest(words=words):
                self.assertIn(message, self.refused(*words))

    def test_files_that_are_not_there_are_named(self):
        missing = self.folder / "missing"
        self.assertIn(str(missing), self.refused("--schedule-file", missing))
        self.assertIn(str(missing), self.refused("--schedule", "1f1b", *SIZE, "--svg",
                                                 missing / "picture.svg"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
