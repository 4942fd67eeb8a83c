"""A PyTorch loop that says its samples by World.share() alone, in unequal parts, and an evaluation
that shares another batch. Rank 0 prints the sum of the parameters."""

import json

import torch

import trireme

world = trireme.join()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2).double()
trireme.distribute(world, model)
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
if world.rank == 0:
    print(json.dumps([sum(each.detach().sum().item() for each in model.parameters())]))
world.leave()
