"""Trireme beside Python: the same losses as DistributedDataParallel, the same tensors as
safetensors reads, and events that TensorBoard opens."""

import json
import pathlib
import sys
import unittest

from check_tensorboard import problems_of, read_scalars
from support import DIGITS, ROOT, TRIREME, SystemTest, environment

PYTHON = sys.executable
STRIDES = [1, 2, 1]
MODEL = ("--set", "model.name=cnn", "--set", "model.channels=[16,32,32]", "--set",
         f"model.strides={STRIDES}", "--set", "model.batch_norm=false", "--set",
         "optimizer.name=sgd", "--set", "optimizer.lr=0.05", "--set", "optimizer.momentum=0.9",
         "--set", "optimizer.weight_decay=0", "--set", "schedule.name=constant", "--set",
         "schedule.warmup_steps=0", "--set", "data.batch=60")


class PythonPeers(SystemTest):
    def prepare(self, steps, dtype):
        """Writes the batches and the training part of the split for the Python side; returns the
        file of the initial weights."""
        words = (*MODEL, "--set", f"train.dtype={dtype}")
        initial = self.train(*words, "--set", "train.steps=0", name="initial")
        code, out, err = self.run_to_end(TRIREME, "plan", DIGITS, *words, "--batches", steps,
                                         "--json")
        self.assertEqual(code, 0, err)
        plan = json.loads(out)
        (self.folder / "plan.json").write_text(out)
        (self.folder / "split.json").write_text(json.dumps(plan["split"]["train"]))
        return pathlib.Path(initial["checkpoint"]) / "model.safetensors"

    def python_losses(self, weights, workers, dtype, autocast=None):
        output = self.folder / f"python-{workers}.json"
        code, out, err = self.run_to_end(
            PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", workers,
                                         ROOT / "tests/system/python_ddp.py", weights,
            self.folder / "plan.json", ROOT / "data/digits.csv.gz", self.folder / "split.json",
                                         output, 0.05, 0.9, dtype, json.dumps(STRIDES),
            *([autocast] if autocast else []), timeout=120,
                                         env=environment(OMP_NUM_THREADS="1",
                                                         GLOO_SOCKET_IFNAME="lo"))
        self.assertEqual(code, 0, f"{out}\n{err}")
        return json.loads(output.read_text())

    def test_losses_are_those_of_python_ddp_over_50_steps(self):
        weights = self.prepare(50, "float32")
        ours = {"one_device": (), **{f"multi_worker-{n}": ("--workers", n) for n in (2, 3)},
                **{f"mirrored-{n}": ("--set", f"strategy.replicas={n}") for n in (2, 3)}}
        python = {n: self.python_losses(weights, n, "float32") for n in (2, 3)}
        for name, words in ours.items():
            report = self.train(*MODEL, "--set", "train.steps=50", *words, name=name)
            for world_size, losses in python.items():
                with self.subTest(name, python_ranks=world_size):
                    self.assert_close(report["loss_history"], losses, 1e-5)

    def test_losses_are_those_of_python_ddp_in_float64(self):
        weights = self.prepare(100, "float64")
        python = self.python_losses(weights, 3, "float64")
        report = self.train(*MODEL, "--set", "train.steps=100", "--set", "train.dtype=float64",
                            "--workers", "3", name="three")
        self.assert_close(report["loss_history"], python, 1e-10)

    def test_losses_under_bfloat16_autocast_are_those_of_python(self):
        weights = self.prepare(30, "float32")
        python = self.python_losses(weights, 2, "float32", "bfloat16")
        plain = self.train(*MODEL, "--set", "train.steps=30", name="plain")
        report = self.train(*MODEL, "--set", "train.steps=30", "--set", "train.precision=bf16",
                            "--workers", "2", name="mixed")
        # Both round at the same places, but sums in another order round differently here and
        # there.
        self.assert_close(report["loss_history"], python, 5e-3)
        self.assertNotEqual(report["loss_history"], plain["loss_history"])

    def test_safetensors_of_python_reads_the_weights_under_state_dict_names(self):
        from model_of_weights import model_of
        from safetensors.torch import load_file

        report = self.train(*MODEL, "--set", "train.steps=20")
        weights = load_file(pathlib.Path(report["checkpoint"]) / "model.safetensors")
        model = model_of(weights, STRIDES)
        model.load_state_dict(weights)  # Throws if a name or shape differs.
        self.assertEqual(report["parameters"], sum(tensor.numel() for tensor in weights.values()))

    def test_the_real_tensorboard_opens_the_events(self):
        report = self.train("--set", "train.epochs=2", "--set", "train.evaluate_every=1")
        expected = [f"train/loss={report['steps']}", "train/learning_rate",
                    "train/samples_per_second", "eval/accuracy=2"]
        problems = problems_of(read_scalars(report["files"]["events"]), expected)
        self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
