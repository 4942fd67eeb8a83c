"""The part that all trainings in Python's PyTorch share: weights, batches and samples of Trireme
come in, and the losses of whole batches go out. `torch_peer.py` writes the job and starts it."""

import gzip
import json
import os
import pathlib
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from safetensors.torch import load_file

from support import ROOT


class Case:
    """A training: `settings`, the initial `weights`, and the batches in their order. The type of
    the weights is that of the data."""

    def __init__(self, settings):
        self.settings = settings
        self.weights = load_file(settings["weights"])
        plan = json.loads(pathlib.Path(settings["plan"]).read_text())
        with gzip.open(ROOT / "data" / "digits.csv.gz", "rt") as file:
            rows = [list(map(int, line.split(","))) for line in file if line.strip()]
        samples = torch.tensor([rows[i] for i in plan["split"]["train"]])
        dtype = next(iter(self.weights.values())).dtype
        self._images = samples[:, :64].view(-1, 1, 8, 8).to(dtype) / 16
        self._labels = samples[:, 64]
        self._batches = plan["batches"]

    def batches(self):
        """Gives (images, labels) of each whole batch."""
        for batch in self._batches:
            yield self._images[batch], self._labels[batch]


def replica_loss(model, images, labels):
    """Returns two values: the loss for this rank's backward, and this rank's part of the mean loss
    of the batch.

    DistributedDataParallel and FSDP average gradients over ranks, so shares of different sizes are
    weighted to give a mean over samples."""
    rank, world = dist.get_rank(), dist.get_world_size()
    share = slice(len(labels) * rank // world, len(labels) * (rank + 1) // world)
    loss = torch.nn.functional.cross_entropy(model(images[share]), labels[share])
    part = len(labels[share]) / len(labels)
    return loss * part * world, loss.item() * part


def run_cases(train):
    """Calls `train` for each case of the job, writes the losses and ends the process.
    `train(case)` returns this rank's part of the mean loss of each batch. Arguments of the
    programme: the job, and the file of the losses."""
    job, output = map(pathlib.Path, sys.argv[1:])
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    losses = {}
    for name, settings in json.loads(job.read_text()).items():
        parts = torch.tensor(train(Case(settings)), dtype=torch.float64)
        dist.all_reduce(parts)
        losses[name] = parts.tolist()
    if dist.get_rank() == 0:
        output.write_text(json.dumps(losses))
    dist.barrier()
    # PyTorch's own teardown sometimes aborts the process, so this skips it.
    os._exit(0)
