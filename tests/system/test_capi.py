"""Training from plain C, through the library for other languages."""

import json
import re
import subprocess
import unittest

from support import BIN, ROOT, TRIREME, SystemTest, environment

LOOP = BIN / "capi_loop"
ELASTIC_LOOP = BIN / "capi_elastic"
MISTAKES = BIN / "capi_mistakes"


class PlainC(SystemTest):
    def launched(self, processes, *words):
        if processes == 1:
            return self.run_to_end(LOOP, *words)
        return self.run_to_end(TRIREME, "launch", "--workers", processes, "--no-prefix", "--", LOOP,
                               *words)

    def test_a_c_programme_trains_the_same_with_any_number_of_processes(self):
        ends = []
        for processes in (1, 2, 3):
            code, out, err = self.launched(processes)
            self.assertEqual(code, 0, err)
            ends.append(json.loads(out))
            self.assertEqual([ends[-1][key] for key in ("ranks", "last", "largest")],
                             [processes, processes - 1, processes - 1])
        self.assertAlmostEqual(ends[0]["slope"], 2, delta=0.1)
        for other in ends[1:]:
            for key in ("slope", "offset"):
                self.assertAlmostEqual(other[key], ends[0][key], delta=1e-11)

    def test_mistakes_have_a_message_and_an_exit_code(self):
        for mistake, processes, part in (("type", 1, "offset is of Long, which has no gradients"),
                                         ("samples", 2, "0 samples"),
                                         ("shape", 2, "offset: Double [2]")):
            with self.subTest(mistake):
                code, out, err = self.launched(processes, mistake)
                self.assertEqual(code, 2, out + err)
                self.assertIn(part, err)

    def test_ranks_may_hand_over_gradients_in_any_order(self):
        code, out, err = self.launched(2, "order")
        self.assertEqual(code, 0, err)
        self.assertEqual(out, "3 buckets, 3 early\n")

    def test_gradients_that_are_handed_over_wrongly_are_named(self):
        for mistake, part in (("early", "no step has begun"),
                              ("twice", "the gradient of slope was handed over twice"),
                              ("form", "the gradient of offset is Double [1, 1]"),
                              ("unknown", "there is no parameter 2"),
                              ("missing", "the gradient of offset is missing")):
            with self.subTest(mistake):
                code, out, err = self.run_to_end(
                    TRIREME, "launch", "--workers", 2, "--no-prefix", "--", ELASTIC_LOOP, mistake)
                self.assertEqual(code, 2, out + err)
                self.assertIn(part, err)

    def elastic(self, *words, workers=3, elastic="2:3", **variables):
        """The line that rank 0 prints at the end."""
        launch = (TRIREME, "launch", "--workers", workers, "--no-prefix")
        if elastic:
            launch += ("--elastic", elastic)
        words = (*launch, "--", ELASTIC_LOOP, *words) if workers > 1 else (ELASTIC_LOOP, *words)
        code, out, err = self.run_to_end(*words, env=environment(**variables))
        self.assertEqual(code, 0, out + err)
        return json.loads(out.splitlines()[-1])

    def assert_same_end(self, found, expected):
        for key in ("slope", "offset"):
            self.assertAlmostEqual(found[key], expected[key], delta=1e-9)
        self.assertEqual(found["note"], expected["note"])

    def test_an_elastic_job_goes_on_without_a_lost_worker(self):
        undisturbed = self.elastic("-", workers=1)
        self.assertEqual(undisturbed["note"], {"samples": 720})
        for place in ("backward", "update", "commit"):
            for rank in (0, 1):
                with self.subTest(place=place, rank=rank):
                    marker = self.folder / f"{place}-{rank}"
                    found = self.elastic("-", rank, 9, place, marker)
                    self.assertTrue(marker.exists())
                    self.assert_same_end(found, undisturbed)

    def test_a_newcomer_gets_the_state(self):
        found = self.elastic("-", 1, 9, "update", self.folder / "marker", WAIT_FOR="3")
        self.assertEqual(found["ranks"], 3)
        self.assert_same_end(found, self.elastic("-", workers=1))

    def test_a_state_is_saved_when_the_job_is_asked_to_stop(self):
        folder = self.folder / "saved"
        stopped = self.elastic(folder, workers=2, elastic=None, STOP_STEP="20")
        self.assertEqual((stopped["stopped"], stopped["note"]), (1, {"samples": 240}))
        code, out, err = self.run_to_end(TRIREME, "ckpt", "inspect", folder)
        self.assertEqual(code, 0, err)
        self.assertIn("step-000000020: whole (all hashes match)", out)
        self.assert_same_end(self.elastic(folder, workers=3, elastic=None),
                             self.elastic("-", workers=1))

    def run_mistakes(self, mistakes):
        """`mistakes` are (name, numbers of processes, words of the programme)."""
        return self.run_each({
            (name, count, *words): (*((TRIREME, "launch", "--workers", count, "--")
                                      if count > 1 else ()), MISTAKES, name, *words)
            for name, counts, *words in mistakes for count in counts})

    def test_all_ranks_name_the_mistake_of_one(self):
        differs = "rank {last}, step {step}: its {what} is not that of ranks? 0"
        written = "step {step}: the parameter 'offset' of rank {last} is not that of ranks? 0"
        sentences = {
            ("written", (2, 3)): written.format(last="{last}", step=2),
            ("other_values", (2, 3)): written.format(last="{last}", step=3),
            ("other_values", (3,), "apart"): written.format(last="{last}", step=3),
            ("rate", (2, 3)): differs.format(last="{last}", step=3, what="learning rate"),
            ("fact", (2,)): differs.format(last="{last}", step=3, what="list of stated facts"),
            ("share", (2,)): differs.format(last="{last}", step=3,
                                            what="size of the global batch"),
            ("every", (2,)): differs.format(last="{last}", step=1,
                                            what="number of steps between checks"),
            ("shape", (1, 2)): r"rank {last}, step 3: parameter offset is Double \[2\] now",
            ("type", (3,), "apart"): r"rank {last}, step 3: parameter offset is Float \[1\] now",
            ("samples", (1, 2, 3)): "rank {last}, step 3: 0 samples",
            ("samples", (3,), "apart"): "rank {last}, step 3: 0 samples",
            ("finish", (1, 2)): "rank {last}, step 3: no step has begun",
            ("refused", (2,)): "rank {last}, step 3: no wind",
            ("behind_leave", (1, 2)):
                r"rank \d, step 6: a step of all ranks behind World::leave\(\)",
            ("written_late", (2,)): "at leave.., the parameter 'offset' of gradients 0",
            ("freed", (2,)): "at leave.., the parameter 'offset' of gradients 0",
            ("left", (3,)): "worker 2.* leaving of step 4",
            ("alone", (2,)): "worker 1.* all_reduce",
            ("nan", (1, 2, 3)): "step 3: the gradient of offset is NaN or infinite on rank {last}",
            ("infinite", (3,), "apart"):
                "step 3: the gradient of slope is NaN or infinite on rank {last}"}
        sentence_of = {(name, count, *words): sentence
                       for (name, counts, *words), sentence in sentences.items()
                       for count in counts}
        for job, code, out, err in self.run_mistakes(sentences):
            with self.subTest(job):
                self.assertEqual(code, 1 if job[0] in ("nan", "infinite") else 2, out + err)
                sentence = sentence_of[job].replace("{last}", str(job[1] - 1))
                told = re.findall(rf"^(?:\[\d\] )?\[\w+\] .*{sentence}.*; try:", err, re.M)
                self.assertEqual(len(told), job[1], err)

    def test_what_all_ranks_do_alike_is_no_mistake(self):
        ends = {("none", 2): "1.0 -1.0\n", ("together", 2): "4.7 -1.0\n",
                ("moved", 2): "1.0 -1.0\n", ("unchecked", 2): "1.0 -1.0\n",
                ("skipped", 1): "1.1 -0.9\n", ("skipped", 2): "1.1 -0.9\n"}
        for job, code, out, err in self.run_mistakes([(name, (count,)) for name, count in ends]):
            with self.subTest(job):
                self.assertEqual((code, out.replace("[0] ", "")), (0, ends[job]), err)
                self.assertEqual("NaN or infinite" in err, job[0] == "skipped", err)

    def test_it_shows_the_functions_of_its_header_and_nothing_else(self):
        names = subprocess.run(["nm", "-D", "--defined-only", BIN.parent / "lib/libtrireme_c.so"],
                               capture_output=True, text=True, check=True, timeout=30).stdout
        header = (ROOT / "trireme/capi/trireme_c.h").read_text()
        functions = re.findall(r"^TRIREME_API [^(]*?(\w+)\(", header, re.MULTILINE)
        self.assertEqual(sorted(line.split()[-1] for line in names.splitlines()),
                         sorted(functions))


if __name__ == "__main__":
    unittest.main()
