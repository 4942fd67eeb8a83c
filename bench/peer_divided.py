"""PyTorch's side of the parts `pipeline`, `shards` and `memory`: torch.distributed.pipelining,
FSDP2, ZeroRedundancyOptimizer and torch.utils.checkpoint, as the documentation of PyTorch sets them
up."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from peer_models import MODELS, parts_of
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe,
                                          ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

# name -> (the class, the parts of the model on each stage)
SCHEDULES = {"gpipe": (ScheduleGPipe, 1), "1f1b": (Schedule1F1B, 1),
             "zb": (ScheduleInterleavedZeroBubble, 1), "zbv": (ScheduleZBVZeroBubble, 2)}
SHARDS = ("fsdp", "zero", "ddp")
MEMORY = ("plain", "checkpoint")


def pipeline_step(model_name, batch, schedule, microbatches, cut=None):
    """Returns a training step of this rank, which is one stage. `cut`: the blocks of each part, or
    None for equally many."""
    kind, chunks = SCHEDULES[schedule]
    rank, stages = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    make_model, make_batch = MODELS[model_name]
    parts = parts_of(make_model(), stages * chunks, cut)
    # ZBV goes down the stages and comes up again.
    mine = [rank] if chunks == 1 else [rank, 2 * stages - 1 - rank]
    pieces = [PipelineStage(parts[number], number, len(parts), torch.device("cpu"))
              for number in mine]
    parameters = [parameter for number in mine for parameter in parts[number].parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=True)
    pipe = kind(pieces if issubclass(kind, (ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble))
                else pieces[0], microbatches,
                loss_fn=lambda output, target: F.cross_entropy(output, target.flatten()))
    inputs, targets = make_batch(batch)
    targets = targets.view(len(inputs), -1).squeeze(1)
    gives_loss = len(parts) - 1 in mine

    def step():
        optimizer.zero_grad(set_to_none=True)
        pipe.step(*([inputs] if 0 in mine else []),
                  **({"target": targets, "losses": []} if gives_loss else {}))
        optimizer.step()

    return step


def sharded_step(model_name, batch, kind):
    """Returns a training step with Adam, of replicas that divide their state."""
    torch.manual_seed(1)
    make_model, make_batch = MODELS[model_name]
    model = make_model()
    if kind == "fsdp":
        for block in blocks_to_shard(model):
            fully_shard(block)
        fully_shard(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = (torch.optim.Adam(model.parameters(), lr=1e-3, fused=True) if kind == "ddp"
                     else ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3,
                                                  fused=True))
    inputs, targets = make_batch(batch) if batch else make_batch()

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(inputs), targets.flatten()).backward()
        optimizer.step()

    return step


def memory_step(model_name, batch, kind):
    """Returns a training step of one process that keeps activations, or recomputes each block."""
    torch.manual_seed(1)
    make_model, make_batch = MODELS[model_name]
    model = make_model()
    blocks = parts_of(model, None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    inputs, targets = make_batch(batch)

    def output():
        x = inputs
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False) if kind == "checkpoint" else block(x)
        return x

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(output(), targets.flatten()).backward()
        optimizer.step()

    return step


def blocks_to_shard(model):
    """The modules that FSDP2 gathers one by one: the transformer's blocks, or the layers."""
    children = getattr(model, "blocks", model).children()
    return [child for child in children if any(True for _ in child.parameters())]
