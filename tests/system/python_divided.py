"""The same training in PyTorch's pipelines, shards and divided layers, with the same weights and
batches, for an `mlp`.

Settings of a case: kind ("pipeline", "fsdp", "zero" or "tensor"), optimizer ("SGD" or "Adam"), its
options, and for a pipeline the schedule and the number of micro-batches.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe,
                                          ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble,
                                          ScheduleZBVZeroBubble)
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch.nn.parallel import DistributedDataParallel

from model_of_weights import mlp_of
from python_job import replica_loss, run_cases

# name -> (the class, the parts of the model on each stage)
SCHEDULES = {"gpipe": (ScheduleGPipe, 1), "1f1b": (Schedule1F1B, 1),
             "interleaved": (ScheduleInterleaved1F1B, 2),
             "zero bubble": (ScheduleInterleavedZeroBubble, 1), "zbv": (ScheduleZBVZeroBubble, 2)}


def optimizer_of(case, parameters):
    return getattr(torch.optim, case.settings["optimizer"])(parameters, **case.settings["options"])


def parts_of(model, count):
    """Cuts the model into parts with about equally many linear layers."""
    starts = [i for i, layer in enumerate(model) if isinstance(layer, nn.Linear)]
    cuts = [starts[len(starts) * part // count] for part in range(count)] + [len(model)]
    return [model[first:last] for first, last in zip(cuts, cuts[1:])]


def pipeline_step(case):
    kind, chunks = SCHEDULES[case.settings["schedule"]]
    rank, stages = dist.get_rank(), dist.get_world_size()
    parts = parts_of(mlp_of(case.weights), stages * chunks)
    # ZBV goes down the stages and comes up again; the interleaved schedules always go down.
    mine = ([rank, 2 * stages - 1 - rank] if kind is ScheduleZBVZeroBubble
            else [rank + stages * chunk for chunk in range(chunks)])
    pieces = [PipelineStage(parts[number], number, len(parts), torch.device("cpu"))
              for number in mine]
    optimizer = optimizer_of(case, [parameter for number in mine
                                    for parameter in parts[number].parameters()])
    takes_many = kind not in (ScheduleGPipe, Schedule1F1B)
    pipe = kind(pieces if takes_many else pieces[0], case.settings["microbatches"],
                loss_fn=F.cross_entropy)

    def step(images, labels):
        losses = []  # One for each micro-batch, on the rank with the last part.
        optimizer.zero_grad(set_to_none=True)
        pipe.step(*([images] if 0 in mine else []),
                  **({"target": labels, "losses": losses} if len(parts) - 1 in mine else {}))
        optimizer.step()
        return sum(loss.item() for loss in losses) / case.settings["microbatches"]

    return step


def sharded_step(case):
    model = mlp_of(case.weights)
    if case.settings["kind"] == "fsdp":
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
        optimizer = optimizer_of(case, model.parameters())
    else:
        model = DistributedDataParallel(model)
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), getattr(torch.optim, case.settings["optimizer"]),
            **case.settings["options"])

    def step(images, labels):
        loss, part = replica_loss(model, images, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return part

    return step


def tensor_step(case):
    model = mlp_of(case.weights)
    linear = [name for name, layer in model.named_children() if isinstance(layer, nn.Linear)]
    # The last layer gives whole rows, whether its columns or its rows are divided.
    plan = {name: RowwiseParallel() if i % 2 else
            ColwiseParallel(output_layouts=Replicate() if name == linear[-1] else None)
            for i, name in enumerate(linear)}
    parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    optimizer = optimizer_of(case, model.parameters())

    def step(images, labels):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item() / dist.get_world_size()  # Each rank has the loss of the whole batch.

    return step


STEPS = {"pipeline": pipeline_step, "fsdp": sharded_step, "zero": sharded_step,
         "tensor": tensor_step}


def train(case):
    step = STEPS[case.settings["kind"]](case)
    return [step(images.flatten(1), labels) for images, labels in case.batches()]


if __name__ == "__main__":
    run_cases(train)
