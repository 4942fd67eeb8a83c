"""A PyTorch loop that trains through the package `trireme`, or through torch's own DDP; it prints
its losses. Run by test_python_package.py."""

import json
import sys

import torch

STEPS = 20


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(),
                               torch.nn.Linear(16, 3)).double()


def train(model, part, after_backward=lambda: None):
    """Trains on `part` of each global batch of 12; returns the parameters' sum after each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    sums = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        data = torch.randn(12, 8, dtype=torch.float64, generator=generator)
        target = torch.randint(3, (12,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data[part]), target[part]).backward()
        after_backward()
        optimizer.step()
        sums.append(sum(p.detach().abs().sum().item() for p in model.parameters()))
    return sums


def main():
    if sys.argv[1] == "ddp":
        torch.distributed.init_process_group("gloo")
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        model = torch.nn.parallel.DistributedDataParallel(make_model())
        sums = train(model, slice(12 * rank // size, 12 * (rank + 1) // size))
        torch.distributed.destroy_process_group()
    else:
        import trireme
        world = trireme.join()
        rank = world.rank
        model = make_model()
        if rank > 0:
            with torch.no_grad():
                model[0].weight.fill_(9)  # Rank 0's values count.
        replica = trireme.distribute(world, model)
        part = world.share(12)
        replica.samples = len(part)
        sums = train(model, slice(part.start, part.stop))
        # The mean of 64 is 64, also where the sum over samples is above float16's largest number.
        half = torch.nn.Linear(3, 1).half()
        replica = trireme.distribute(world, half)
        replica.samples = 40000 + rank
        (half(torch.ones(1, 3, dtype=torch.float16)) * 64).sum().backward()
        for parameter in half.parameters():
            assert ((parameter.grad - 64).abs() < 0.25).all(), parameter.grad
        try:
            world.all_reduce(torch.zeros(2, dtype=torch.complex64))
        except TypeError as error:
            assert "complex64" in str(error), error
        world.leave()
    if rank == 0:
        print(json.dumps(sums))


main()
