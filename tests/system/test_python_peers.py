"""Trireme beside Python: the same losses as DistributedDataParallel, the same tensors as
safetensors reads, and events that TensorBoard opens."""

import pathlib
import unittest

from check_tensorboard import problems_of, read_scalars
from torch_peer import TorchPeer

STRIDES = [1, 2, 1]
MODEL = ("--set", "model.name=cnn", "--set", "model.channels=[16,32,32]", "--set",
         f"model.strides={STRIDES}", "--set", "model.batch_norm=false", "--set",
         "optimizer.name=sgd", "--set", "optimizer.lr=0.05", "--set", "optimizer.momentum=0.9",
         "--set", "optimizer.weight_decay=0", "--set", "schedule.name=constant", "--set",
         "schedule.warmup_steps=0", "--set", "data.batch=60")


class PythonPeers(TorchPeer):
    def ddp_losses(self, steps, dtype, ranks, **further):
        """Returns the losses of Python's DistributedDataParallel."""
        start = self.prepare(*MODEL, "--set", f"train.dtype={dtype}", steps=steps,
                             name=f"initial-{ranks}")
        case = {**start, "lr": 0.05, "momentum": 0.9, "strides": STRIDES, **further}
        return self.python_losses("python_ddp.py", ranks, {"ddp": case})["ddp"]

    def test_losses_are_those_of_python_ddp_over_50_steps(self):
        ours = {"one_device": (), **{f"multi_worker-{n}": ("--workers", n) for n in (2, 3)},
                **{f"mirrored-{n}": ("--set", f"strategy.replicas={n}") for n in (2, 3)}}
        python = {n: self.ddp_losses(50, "float32", n) for n in (2, 3)}
        for name, words in ours.items():
            report = self.train(*MODEL, "--set", "train.steps=50", *words, name=name)
            for world_size, losses in python.items():
                with self.subTest(name, python_ranks=world_size):
                    self.assert_close(report["loss_history"], losses, 1e-5)

    def test_losses_are_those_of_python_ddp_in_float64(self):
        python = self.ddp_losses(100, "float64", 3)
        report = self.train(*MODEL, "--set", "train.steps=100", "--set", "train.dtype=float64",
                            "--workers", "3", name="three")
        self.assert_close(report["loss_history"], python, 1e-10)

    def test_losses_under_bfloat16_autocast_are_those_of_python(self):
        python = self.ddp_losses(30, "float32", 2, autocast="bfloat16")
        plain = self.train(*MODEL, "--set", "train.steps=30", name="plain")
        report = self.train(*MODEL, "--set", "train.steps=30", "--set", "train.precision=bf16",
                            "--workers", "2", name="mixed")
        # Both round at the same places, but sums in another order round differently here and
        # there.
        self.assert_close(report["loss_history"], python, 5e-3)
        self.assertNotEqual(report["loss_history"], plain["loss_history"])

    def test_safetensors_of_python_reads_the_weights_under_state_dict_names(self):
        from model_of_weights import cnn_of
        from safetensors.torch import load_file

        report = self.train(*MODEL, "--set", "train.steps=20")
        weights = load_file(pathlib.Path(report["checkpoint"]) / "model.safetensors")
        cnn_of(weights, STRIDES)  # Throws if a name or shape differs.
        self.assertEqual(report["parameters"], sum(tensor.numel() for tensor in weights.values()))

    def test_the_real_tensorboard_opens_the_events(self):
        report = self.train("--set", "train.epochs=2", "--set", "train.evaluate_every=1")
        expected = [f"train/loss={report['steps']}", "train/learning_rate",
                    "train/samples_per_second", "eval/accuracy=2"]
        problems = problems_of(read_scalars(report["files"]["events"]), expected)
        self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
