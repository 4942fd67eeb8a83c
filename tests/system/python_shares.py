"""A PyTorch loop that says its samples by World.share() alone, in unequal parts, an evaluation that
shares another batch, and batches of unequal parts that add up under no_sync(). Rank 0 prints the
sum of the squares of the parameters."""

import contextlib
import json

import torch

import trireme

world = trireme.join()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2).double()
replica = trireme.distribute(world, model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    torch.manual_seed(step + 1)
    data, target = torch.randn(5, 4).double(), torch.randint(2, (5,))
    part = world.share(5)
    if step == 3:
        with torch.no_grad():
            world.share(40)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data[part]), target[part]).backward()
    optimizer.step()
for step in range(4):
    optimizer.zero_grad()
    for batch in (5, 4, 7):
        torch.manual_seed(10 * step + batch)
        data, target = torch.randn(batch, 4).double(), torch.randint(2, (batch,))
        part = world.share(batch)
        with contextlib.nullcontext() if batch == 7 else replica.no_sync():
            torch.nn.functional.cross_entropy(model(data[part]), target[part]).backward()
    optimizer.step()
if world.rank == 0:
    # Gradients of the two classes cancel each other, so a plain sum would not change.
    print(json.dumps([sum((each.detach() ** 2).sum().item() for each in model.parameters())]))
world.leave()
