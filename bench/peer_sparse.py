"""PyTorch's side of the part `tables`: an embedding with sparse gradients in
DistributedDataParallel. Each rank has the whole table, and Gloo gathers the gradients."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def sparse_step(table, rows):
    """Returns a training step on `rows` different rows of a table of (rows, width)."""
    torch.manual_seed(1)
    size, width = table
    model = DistributedDataParallel(nn.Embedding(size, width, sparse=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    gradient = torch.full((rows, width), 0.5)
    draw = torch.Generator().manual_seed(dist.get_rank())

    def step():
        indices = (torch.arange(rows) * (size // rows)
                   + int(torch.randint(size, (1,), generator=draw))) % size
        optimizer.zero_grad(set_to_none=True)
        model(indices).backward(gradient)
        optimizer.step()

    return step
