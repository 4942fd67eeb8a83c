"""A PyTorch loop that trains through the package `trireme`, or through torch's own DDP; it prints
its losses. Run by test_python_package.py. With `apart` each worker takes itself for a host, so that
gradients travel over sockets while backward runs."""

import json
import os
import sys

import torch

STEPS = 20


def make_model():
    torch.manual_seed(3)
    width = 900  # It fills several buckets.
    return torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Tanh(),
                               torch.nn.Linear(width, width), torch.nn.Tanh(),
                               torch.nn.Linear(width, width), torch.nn.Tanh(),
                               torch.nn.Linear(width, 3)).double()


class Branches(torch.nn.Module):
    """A branch that only positive data reach."""

    def __init__(self):
        super().__init__()
        self.common, self.rare = torch.nn.Linear(2, 1), torch.nn.Linear(1, 1)
        self.never = torch.nn.Linear(1, 1)

    def forward(self, data):
        found = self.common(data)
        return self.rare(found) if data.sum() > 0 else found


def check_odd_steps(trireme, world):
    """What a rank does not use, gradients of several backward calls, and mistakes."""
    rank = world.rank
    model = Branches()
    replica = trireme.distribute(world, model)
    with replica.no_sync():
        model(torch.full((1, 2), -1.0)).sum().backward()
    model(torch.full((1, 2), 1.0 if rank == 0 else -1.0)).sum().backward()
    assert model.never.weight.grad is None
    weight = model.rare.weight.grad.clone()
    world.broadcast(weight)
    assert torch.equal(weight, model.rare.weight.grad), "ranks have different gradients"
    # The sum of two backward calls: -1 of the first one; then rank 0 differs.
    assert torch.allclose(model.common.bias.grad[0],
                          1 + (model.rare.weight[0, 0] + world.size - 1) / world.size)
    if world.size == 1:
        return
    # A parameter that gets a second gradient in one backward, after the first one was handed over.
    twice = torch.nn.Linear(2, 2)
    replica = trireme.distribute(world, twice)
    again = torch.nn.Linear(2, 2)
    twice.weight.register_post_accumulate_grad_hook(lambda p: replica._ready(0, p))
    try:
        twice(again(torch.ones(1, 2))).sum().backward()
    except trireme.Error as error:
        assert "weight was handed over twice" in str(error), error
    else:
        raise AssertionError("a second gradient was taken")


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
        if "apart" in sys.argv:
            os.environ["TRIREME_HOST"] = "host" + os.environ["TRIREME_WORKER"]
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
        assert replica.buckets > 2, replica.buckets
        assert (replica.sent_early > 1) == ("apart" in sys.argv), replica.sent_early
        # The mean of 64 is 64, also where the sum over samples is above float16's largest number.
        half = torch.nn.Linear(3, 1).half()
        replica = trireme.distribute(world, half)
        replica.samples = 40000 + rank
        (half(torch.ones(1, 3, dtype=torch.float16)) * 64).sum().backward()
        for parameter in half.parameters():
            assert ((parameter.grad - 64).abs() < 0.25).all(), parameter.grad
        check_odd_steps(trireme, world)
        try:
            world.all_reduce(torch.zeros(2, dtype=torch.complex64))
        except TypeError as error:
            assert "complex64" in str(error), error
        world.leave()
    if rank == 0:
        print(json.dumps(sums))


main()
