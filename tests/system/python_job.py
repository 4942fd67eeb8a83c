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


def share_of(batch):
    """The samples of a batch that this rank trains on, as a range."""
    rank, world = dist.get_rank(), dist.get_world_size()
    return slice(len(batch) * rank // world, len(batch) * (rank + 1) // world)


def replica_loss(model, images, labels):
    """Returns two values: the loss for this rank's backward, and the sum of its samples' losses.

    DistributedDataParallel and FSDP average gradients over ranks, so shares of different sizes are
    weighted to give a mean over samples."""
    share = share_of(labels)
    loss = torch.nn.functional.cross_entropy(model(images[share]), labels[share])
    count = len(labels[share])
    return loss * count * dist.get_world_size() / len(labels), loss.detach().double() * count


def over_ranks(total):
    """Returns the sum of a number over all ranks."""
    total = torch.as_tensor(total, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item()


def run_cases(train):
    """Calls `train(case)` for each case of the job, which gives the loss of each batch on every
    rank, and ends the process. Arguments of the programme: the job, and the file of the losses."""
    job, output = map(pathlib.Path, sys.argv[1:])
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    cases = json.loads(job.read_text())
    losses = {name: train(Case(settings)) for name, settings in cases.items()}
    if dist.get_rank() == 0:
        output.write_text(json.dumps(losses))
    dist.barrier()
    # PyTorch's own teardown sometimes aborts the process, so this skips it.
    os._exit(0)
