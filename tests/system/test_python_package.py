"""Training from Python, through the package over the library for other languages."""

import json
import re
import sys
import unittest

from support import BIN, ROOT, TRIREME, SystemTest, environment

PYTHON_LOOP = ROOT / "tests" / "system" / "python_loop.py"
PYTHON_ELASTIC = ROOT / "tests" / "system" / "python_elastic.py"
PYTHON_MISTAKES = ROOT / "tests" / "system" / "python_mistakes.py"
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

    def errors_of(self, count, code, *words):
        """The lines of an error that the ranks of a job print. It ends with `code`."""
        found, out, err = self.run_to_end(
            TRIREME, "launch", "--workers", count, "--", sys.executable, PYTHON_MISTAKES, *words,
            timeout=100, env=environment(**PACKAGE))
        self.assertEqual(found, code, out + err)
        return [line for line in (out + err).splitlines()
                if re.search(r": \[(capi|parallel|comm|membership)\] ", line)]

    def assert_all_ranks_say(self, lines, count, sentence):
        ranks = {line[:3] for line in lines if re.search(sentence + ".*; try:", line)}
        self.assertEqual(ranks, {f"[{rank}]" for rank in range(count)},
                         f"{sentence}\n" + "\n".join(lines))

    def test_all_ranks_name_the_mistake_of_one(self):
        differs = "rank {last}, step 3: its %s is not that of ranks? 0"
        sentences = {
            # Only the first model is looked at.
            "same": "all ranks have computed the same gradients, bit for bit",
            "mode": differs % r"choice of train\(\) or eval\(\)",
            "rate": differs % "learning rate",
            "momentum": differs % "momentum",
            "eval": differs % r"choice of train\(\) or eval\(\)",
            "frozen": differs % "choice of frozen parameters",
            "other_values":
                "step 3: the parameter 'output.bias' of rank {last} is not that of ranks? 0",
            "type": r"rank {last}, step 3: parameter hidden.weight is float64 \[8, 4\] on cpu now",
            "shape": r"rank {last}, step 3: parameter output.bias is float32 \[1\]",
            "replaced": "rank {last}, step 4: parameter output.weight was registered",
            "nan": "step 3: the gradient of .* is NaN or infinite on rank {last}",
            "no_sync": r"rank {last}, step 3: optimizer.step\(\) after a backward\(\) under",
            "no_backward": r"rank {last}, step 3: optimizer.step\(\) without a backward\(\)"}
        for count, *words in ((2,), (3, "apart")):
            lines = self.errors_of(count, 2, *words, *sentences, "written")
            for mistake, sentence in sentences.items():
                self.assert_all_ranks_say(lines, count, f"{mistake}: .*"
                                          + sentence.replace("{last}", str(count - 1)))
            self.assert_all_ranks_say(lines, count,
                                      "Error: .*at leave.., the parameter .* of gradients")

    def test_gradients_count_by_the_shares(self):
        shares = ROOT / "tests" / "system" / "python_shares.py"
        alone = self.sums_of(sys.executable, shares)
        together = self.sums_of(TRIREME, "launch", "--workers", 3, "--no-prefix", "--",
                                sys.executable, shares)
        self.assert_close(together, alone, 1e-12)

    def test_one_process_is_told_its_mistakes_too(self):
        code, out, err = self.run_to_end(sys.executable, PYTHON_MISTAKES, "nan", "no_backward",
                                         "none", timeout=100, env=environment(**PACKAGE))
        self.assertEqual(code, 0, out + err)
        self.assertRegex(out, "nan: .*step 3: the gradient of .* is NaN or infinite")
        self.assertRegex(out, r"no_backward: .*step 3: optimizer.step\(\) without a backward\(\)")

    def test_a_rank_that_leaves_early_is_named(self):
        lines = self.errors_of(2, 2, "left")
        self.assert_all_ranks_say(lines, 2, "worker 1.* leaving of step 3")

    def test_what_all_ranks_do_alike_is_no_mistake(self):
        lines = self.errors_of(2, 2, "none", "moved", "loaded", "skipped", "kept", "behind_leave")
        self.assert_all_ranks_say(lines, 2, r"of all ranks behind World::leave\(\)")
        self.assertEqual(len(lines), 2, lines)  # There are no other errors.

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

    def read_checkpoint(self, folder):
        """Reads a checkpoint without the package safetensors; returns (exit code, output)."""
        code, out, err = self.run_to_end(sys.executable, "-c", f"""
import json, sys
sys.modules["safetensors"] = None
import trireme
manifest, tensors = trireme.read_checkpoint("{folder}")
print(json.dumps({{name: [list(tensor.shape), tensor.double().sum().item()]
                  for name, tensor in tensors.items()}}))
""", timeout=100, env=environment(**PACKAGE))
        return (code, json.loads(out.splitlines()[-1])) if code == 0 else (code, err)

    def test_checkpoints_in_parts_are_read_whole_and_compared_with_their_hashes(self):
        found = {}
        for name, *words in (("alone",), ("stages", "mesh.pipeline=2"), ("rows", "shard.level=3")):
            folder = self.folder / name / "saved"
            self.train("--workers", "1" if name == "alone" else "2", "--set", "model.name=mlp",
                       "--set", "train.steps=3", "--set", f"checkpoint.dir={folder}",
                       *(each for word in words for each in ("--set", word)), name=name)
            code, found[name] = self.read_checkpoint(folder)
            self.assertEqual(code, 0, found[name])
        for name in ("stages", "rows"):
            self.assertGreaterEqual(len(list((self.folder / name).glob("saved/step-*/model*"))), 2)
            self.assertEqual(found[name].keys(), found["alone"].keys())
            for tensor, (shape, total) in found["alone"].items():
                self.assertEqual(found[name][tensor][0], shape, tensor)
                self.assertAlmostEqual(found[name][tensor][1], total,
                                       delta=1e-4 * max(1, abs(total)), msg=tensor)
        saved = next((self.folder / "stages").glob("saved/step-*"))
        part = saved / "model-1.safetensors"
        part.write_bytes(part.read_bytes()[:-1] + b"?")
        code, said = self.read_checkpoint(saved)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, "RuntimeError: .*model-1.safetensors")
        code, said = self.read_checkpoint(self.folder / "nothing")
        self.assertRegex(said, "RuntimeError: .*nothing holds no checkpoint")
        code, said = self.read_checkpoint("--json")
        self.assertRegex(said, "RuntimeError: .*/--json holds no checkpoint")

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
