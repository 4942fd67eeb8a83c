"""Training from plain C and from Python, through the library for other languages."""

import json
import os
import subprocess
import sys
import unittest

from support import BIN, ROOT, TRIREME, SystemTest, environment

LOOP = BIN / "capi_loop"
PYTHON_LOOP = ROOT / "tests" / "system" / "python_loop.py"
PACKAGE = {"PYTHONPATH": str(ROOT / "python"), "TRIREME_LIB": str(BIN.parent / "lib"),
           "TRIREME_BIN": str(BIN), "OMP_NUM_THREADS": "1"}


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

    def test_it_shows_its_own_functions_alone(self):
        names = subprocess.run(["nm", "-D", "--defined-only", BIN.parent / "lib/libtrireme_c.so"],
                               capture_output=True, text=True, check=True).stdout
        shown = {line.split()[-1].split("@")[0] for line in names.splitlines()
                 if " T " in line}
        self.assertIn("trireme_world_join", shown)
        self.assertEqual([name for name in shown if not name.startswith("trireme_")], [])


class PythonPackage(SystemTest):
    def sums_of(self, *words, **variables):
        code, out, err = self.run_to_end(*words, timeout=120,
                                         env=environment(**PACKAGE, **variables))
        self.assertEqual(code, 0, err)
        return json.loads(out.splitlines()[-1])

    def test_a_python_model_trains_as_under_ddp(self):
        alone = self.sums_of(sys.executable, PYTHON_LOOP, "trireme")
        launched = {count: self.sums_of(TRIREME, "launch", "--workers", count, "--no-prefix", "--",
                                        sys.executable, PYTHON_LOOP, "trireme")
                    for count in (2, 3)}
        ddp = self.sums_of(sys.executable, "-m", "torch.distributed.run", "--standalone",
                           "--nproc_per_node", 2, PYTHON_LOOP, "ddp")
        for other in (*launched.values(), ddp):
            self.assert_close(other, alone, 1e-12)

    def test_the_package_starts_and_reads_what_trireme_writes(self):
        run = self.folder / "run"
        script = self.folder / "use.py"
        script.write_text(f"""
import trireme
code = trireme.launch(["{BIN / 'trireme'}", "train", "{ROOT / 'examples/digits.yaml'}", "--quiet",
                       "--set", "train.steps=4", "--set", "run.dir={run}",
                       "--report", "{self.folder / 'report.json'}"], workers=2)
assert code == 0, code
report = trireme.read_report("{self.folder / 'report.json'}")
assert report["steps"] == 4 and report["workers"] == 2, report
manifest, tensors = trireme.read_checkpoint("{run / 'checkpoint'}")
assert manifest["step"] == 4 and len(tensors) > 2
plan = trireme.plan("{ROOT / 'examples/digits.yaml'}", "--workers", 2)
assert plan
try:
    trireme.plan("no such file")
except RuntimeError as error:
    assert "no such file" in str(error)
else:
    raise AssertionError("a plan of no file")
""")
        code, out, err = self.run_to_end(sys.executable, script, timeout=120,
                                         env=environment(**PACKAGE))
        self.assertEqual(code, 0, out + err)

    def test_another_libtorch_is_refused_by_name(self):
        code, _, err = self.run_to_end(
            sys.executable, "-c",
            "import torch; torch.__version__ = '9.9.9'; import trireme; trireme.join()",
            env=environment(**PACKAGE))
        self.assertNotEqual(code, 0)
        self.assertIn("built with LibTorch 2.", err)
        self.assertIn("has torch 9.9.9", err)


if __name__ == "__main__":
    unittest.main()
