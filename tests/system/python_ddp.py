"""The same training in Python's DistributedDataParallel, with the same weights and batches.

torchrun starts it. Arguments: weights (safetensors), batches (JSON of `trireme plan --json
--batches`), digits.csv.gz, training indices (JSON list), output (JSON), learning rate, momentum,
dtype, strides (JSON list), and optionally the type of autocast.
"""

import gzip
import json
import os
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.nn.parallel import DistributedDataParallel

from model_of_weights import model_of


def main():
    (weights_file, plan_file, digits, split_file, output, lr, momentum, dtype,
     strides) = sys.argv[1:10]
    autocast = sys.argv[10] if len(sys.argv) > 10 else ""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    rows = [list(map(int, line.split(","))) for line in gzip.open(digits, "rt") if line.strip()]
    chosen = json.load(open(split_file))
    data = torch.tensor([rows[i][:64] for i in chosen], dtype=torch.float32).view(-1, 1, 8, 8) / 16
    target = torch.tensor([rows[i][64] for i in chosen])
    data = data.to(getattr(torch, dtype))
    batches = json.load(open(plan_file))["batches"]

    state = load_file(weights_file)
    model = model_of(state, json.loads(strides)).to(getattr(torch, dtype))
    model.load_state_dict(state)
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(lr), momentum=float(momentum))
    losses = []
    for batch in batches:
        first, last = len(batch) * rank // world, len(batch) * (rank + 1) // world
        share = batch[first:last]
        with torch.autocast("cpu", getattr(torch, autocast or "bfloat16"), enabled=bool(autocast)):
            loss = torch.nn.functional.cross_entropy(replica(data[share]), target[share])
        optimizer.zero_grad(set_to_none=True)
        # DDP averages over ranks, so shares of different sizes are weighted to give a mean over
        # samples.
        (loss * len(share) * world / len(batch)).backward()
        optimizer.step()
        total = loss.detach().double() * len(share)
        dist.all_reduce(total)
        losses.append(total.item() / len(batch))
    if rank == 0:
        with open(output, "w") as file:
            json.dump(losses, file)
    dist.barrier()
    # PyTorch's own teardown sometimes aborts the process, so this skips it.
    os._exit(0)


if __name__ == "__main__":
    main()
