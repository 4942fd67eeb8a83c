"""Pipelines, shards and divided layers beside PyTorch's own: torch.distributed.pipelining, FSDP2,
ZeroRedundancyOptimizer and torch.distributed.tensor.parallel give the same losses.

Every case compares the loss of each step, from the same initial weights on the same batches."""

import unittest

from support import settings
from torch_peer import TorchPeer

# Not more, because Python sends many messages in each, which wait for cores that other tests use.
STEPS = 20
# The relative difference of losses that another order of additions may cause.
TOLERANCES = {"float32": 1e-5, "float64": 1e-10}

SGD = {"lr": 0.2, "momentum": 0.9}
# Other values than the defaults, so that a key without effect shows.
ADAM = {"lr": 0.01, "betas": [0.8, 0.98], "eps": 1e-6}

COMMON = settings("model.name=mlp", "optimizer.weight_decay=0", "schedule.name=constant",
                  "schedule.warmup_steps=0", "train.evaluate_every=0", "monitor.tensorboard=false")
SGD_WORDS = settings("optimizer.name=sgd", f"optimizer.lr={SGD['lr']}",
                     f"optimizer.momentum={SGD['momentum']}")
ADAM_WORDS = settings("optimizer.name=adam", f"optimizer.lr={ADAM['lr']}",
                      f"optimizer.beta1={ADAM['betas'][0]}", f"optimizer.beta2={ADAM['betas'][1]}",
                      f"optimizer.eps={ADAM['eps']}")


class TorchParity(TorchPeer):
    def compare(self, strategy, words, python, ours):
        """Trains in Python and in Trireme, in each type. `strategy`: the name that the reports
        must have. `python`: name -> settings of a case. `ours`: name -> (the name of a case in
        Python, further words)."""
        words = [*COMMON, *words]
        cases = {}
        for dtype in TOLERANCES:
            start = self.prepare(*words, *settings(f"train.dtype={dtype}"), steps=STEPS,
                                 name=dtype)
            cases |= {f"{name} {dtype}": {**start, **case} for name, case in python.items()}
        losses = self.python_losses("python_divided.py", 2, cases)
        for name, (peer, layout) in ours.items():
            for dtype, tolerance in TOLERANCES.items():
                with self.subTest(name, dtype=dtype, python=peer):
                    report = self.train(*words, *settings(f"train.dtype={dtype}",
                                                          f"train.steps={STEPS}"),
                                        "--workers", 2, *layout, name=f"{name}-{dtype}")
                    self.assertEqual(report["strategy"], strategy)
                    expected = losses[f"{peer} {dtype}"]
                    self.assertEqual((len(expected), len(report["loss_history"])), (STEPS, STEPS))
                    self.assertLess(expected[-1], 0.8 * expected[0], "it hardly learns")
                    self.assert_close(report["loss_history"], expected, tolerance)

    def test_losses_of_each_schedule_are_those_of_the_same_schedule_in_python(self):
        # ours -> Python's. PyTorch has ZB-H1 as its interleaved zero bubble with one part on each
        # stage. `naive` and `zbh2` have no peer there.
        pairs = {"gpipe": "gpipe", "1f1b": "1f1b", "interleaved": "interleaved",
                 "zbh1": "zero bubble", "zbv": "zbv"}
        self.compare(
            "pipeline",
            # Four layers of different sizes give each of the two stages of `interleaved` and `zbv`
            # two parts. Python's schedules weigh all micro-batches alike, so all must have one
            # size: the smaller batch at the end of the epoch comes after the last step.
            [*SGD_WORDS, *settings("model.hidden=[256,128,96]", "data.batch=48")],
            {peer: {"kind": "pipeline", "schedule": peer, "microbatches": 4, "optimizer": "SGD",
                    "options": SGD} for peer in pairs.values()},
            {name: (peer, settings("mesh.pipeline=2", f"pipeline.schedule={name}",
                                   "pipeline.microbatches=4")) for name, peer in pairs.items()})

    def test_losses_of_each_shard_level_are_those_of_fsdp_and_of_zero(self):
        # On one host levels 1 and 2 become shared parameters unless this is turned off.
        apart = "strategy.share_parameters=false"
        self.compare(
            "sharded",
            # The shares of the two ranks differ in size.
            [*ADAM_WORDS, *settings("model.hidden=[128,96,64,80]", "data.batch=63")],
            {kind: {"kind": kind, "optimizer": "Adam", "options": ADAM}
             for kind in ("fsdp", "zero")},
            {"level 1": ("zero", settings("shard.level=1", apart)),
             "level 2": ("fsdp", settings("shard.level=2", apart)),
             "level 2, shared": ("fsdp", settings("shard.level=2")),
             "level 3": ("fsdp", settings("shard.level=3"))})

    def test_losses_of_divided_layers_are_those_of_tensor_parallel_in_python(self):
        self.compare(
            "tensor",
            # The columns of the first and the third layer are divided, and the rows of the second.
            [*SGD_WORDS, *settings("model.hidden=[96,64]", "data.batch=63")],
            {"tensor": {"kind": "tensor", "optimizer": "SGD", "options": SGD}},
            {"tensor": ("tensor", settings("mesh.tensor=2"))})


if __name__ == "__main__":
    unittest.main(verbosity=2)
