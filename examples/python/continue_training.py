#!/usr/bin/env python3
"""Continues to train in Python a model that Trireme trained.

  trireme train examples/digits.yaml --set model.name=mlp --set run.dir=RUN
  examples/python/continue_training.py RUN/checkpoint/step-...
"""

import gzip
import pathlib
import sys

import numpy
import torch
from safetensors.torch import load_file

# The names and layouts are PyTorch's, as state_dict() has them.
weights = load_file(pathlib.Path(sys.argv[1]) / "model.safetensors")
layers = [name.removesuffix(".weight") for name in weights if name.endswith(".weight")]
layers.sort(key=int)
shapes = {int(name): weights[name + ".weight"].shape for name in layers}
modules = {index: torch.nn.Linear(*reversed(shape)) for index, shape in shapes.items()}
model = torch.nn.Sequential(*(modules.get(i, torch.nn.ReLU()) for i in range(max(modules) + 1)))
model.load_state_dict(weights)

with gzip.open(pathlib.Path(__file__).resolve().parents[2] / "data/digits.csv.gz", "rt") as file:
    table = torch.from_numpy(numpy.loadtxt(file, delimiter=",", dtype=numpy.float32))
images, labels = table[:, :-1] / 16, table[:, -1].long()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    if step % 19 == 0:
        print(f"step {step}: loss {loss.item():.6f}")
