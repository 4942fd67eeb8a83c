"""The losses of the `Dlrm` of docs/models.md in Python's PyTorch: the module is executed as the
page has it, with the weights of a checkpoint, on batches of the clicks that ship.

  python_dlrm.py MODEL.safetensors PLAN.json    prints the losses of the plan's batches, each by SGD
                                                of 0.1 from the one before
"""

import gzip
import json
import math
import pathlib
import re
import sys

import torch
from safetensors.torch import load_file

from support import ROOT

MASK = 2**64 - 1


def mix(x):
    """mix64 of trireme/base/hash.h."""
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & MASK
    return x ^ (x >> 31)


def documented_module():
    page = (ROOT / "docs" / "models.md").read_text()
    names = {}
    exec(re.search(r"^```python\n(.*?)^```$", page, re.M | re.S).group(1), names)
    return names["Dlrm"]


def main():
    weights, plan = load_file(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
    table_rows, dim = weights["embeddings.0.weight"].shape
    model = documented_module()(rows=table_rows, embedding_dim=dim, bottom=(32,), top=(64, 32))
    model.to(weights["top.0.weight"].dtype).load_state_dict(weights)  # Throws if a name differs.
    with gzip.open(ROOT / "data" / "clicks.tsv.gz", "rt") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    samples = [lines[i] for i in plan["split"]["train"]]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for batch in plan["batches"]:
        rows = [samples[i] for i in batch]
        numbers = torch.tensor([[math.log1p(max(0, int(text or 0))) for text in row[1:14]]
                                for row in rows], dtype=torch.float32)
        categories = torch.tensor([[mix(mix(i) ^ int(text or "0", 16)) % table_rows
                                    for i, text in enumerate(row[14:])] for row in rows])
        labels = torch.tensor([int(row[0]) for row in rows])
        optimizer.zero_grad()
        output = model(numbers.to(weights["top.0.weight"].dtype), categories)
        loss = torch.nn.functional.cross_entropy(output, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(json.dumps(losses))


if __name__ == "__main__":
    main()
