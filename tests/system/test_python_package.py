"""Training from Python, through the package over the library for other languages."""

import json
import sys
import unittest

from support import BIN, ROOT, TRIREME, SystemTest, environment

PYTHON_LOOP = ROOT / "tests" / "system" / "python_loop.py"
PYTHON_ELASTIC = ROOT / "tests" / "system" / "python_elastic.py"
PACKAGE = {"PYTHONPATH": str(ROOT / "python"), "TRIREME_LIB": str(BIN.parent / "lib"),
           "TRIREME_BIN": str(BIN), "OMP_NUM_THREADS": "1"}


class PythonPackage(SystemTest):
    def sums_of(self, *words, **variables):
        code, out, err = self.run_to_end(*words, timeout=250,
                                         env=environment(**PACKAGE, **variables))
        self.assertEqual(code, 0, err)
        return json.loads(out.splitlines()[-1])

    def test_a_python_model_trains_as_under_ddp(self):
        alone = self.sums_of(sys.executable, PYTHON_LOOP, "trireme")
        # Over memory, and over sockets while backward runs.
        launched = [self.sums_of(TRIREME, "launch", "--workers", count, "--no-prefix", "--",
                                 sys.executable, PYTHON_LOOP, "trireme", *words)
                    for count, *words in ((3,), (2, "apart"))]
        ddp = self.sums_of(sys.executable, "-m", "torch.distributed.run", "--standalone",
                           "--nproc_per_node", 2, PYTHON_LOOP, "ddp")
        for other in (*launched, ddp):
            self.assert_close(other, alone, 1e-12)

    def elastic(self, *words, **variables):
        code, out, err = self.run_to_end(*words, timeout=250,
                                         env=environment(**PACKAGE, **variables))
        self.assertEqual(code, 0, out + err)
        found = json.loads(out.splitlines()[-1])
        for key, value in found["plain"].items():  # The same without Trireme.
            self.assertAlmostEqual(found[key], value, delta=1e-9, msg=key)
        return found

    def test_an_elastic_job_in_python_computes_what_plain_pytorch_does(self):
        # A worker is lost, another one joins and gets the optimizer's state, and the job is asked
        # to stop. Then one process continues.
        marker = self.folder / "killed"
        loop = (sys.executable, PYTHON_ELASTIC, self.folder / "saved")
        stopped = self.elastic(TRIREME, "launch", "--workers", 2, "--no-prefix", "--elastic", "1:2",
                               "--", *loop, 1, 5, "update", WAIT_FOR="2", STOP_STEP="18",
                               KILL_MARKER=str(marker))
        self.assertTrue(marker.exists())
        self.assertEqual((stopped["stopped"], stopped["step"], stopped["ranks"]), (True, 18, 2))
        continued = self.elastic(*loop)
        self.assertEqual((continued["step"], continued["samples"]), (24, 288))

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
        code, out, err = self.run_to_end(sys.executable, script, timeout=250,
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
