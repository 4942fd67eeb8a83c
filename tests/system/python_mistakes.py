"""Mistakes of the last rank in a PyTorch loop, which test_python_package.py expects all ranks to
name. Each rank prints the errors that it gets.

python_mistakes.py [apart] MISTAKE...

The mistakes are made one after the other, each with a model of its own. The last one may be `left`
(a rank leaves early) or `behind_leave`, whose error ends the process, and so does leave() where
parameters have drifted apart. With `apart` each worker takes itself for a host, so that gradients
travel while backward runs."""

import os
import signal
import sys

import torch

import trireme

STEPS = 4


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.hidden, self.output = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, data):
        return self.output(torch.tanh(self.hidden(data)))


def change(mistake, model, optimizer):
    """The mistakes before step 3 of the last rank."""
    bias = model.output.bias
    if mistake == "rate":
        optimizer.param_groups[0]["lr"] = 0.2
    elif mistake == "momentum":
        optimizer.param_groups[0]["momentum"] = 0.5
    elif mistake == "eval":
        model.eval()
    elif mistake == "mode":
        model.hidden.eval()
    elif mistake == "frozen":
        model.hidden.weight.requires_grad_(False)
    elif mistake == "other_values":
        bias.data = torch.ones(2)
    elif mistake == "moved":
        bias.data = bias.data.clone()
    elif mistake == "type":
        model.double()
    elif mistake == "shape":
        bias.data = torch.ones(1)
    elif mistake == "replaced":
        model.output = torch.nn.Linear(8, 2)
    elif mistake == "written":
        torch.nn.init.ones_(bias)


def train(world, mistake):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    replica = trireme.distribute(
        world, model, optimizer=optimizer, own_samples=mistake != "same",
        nonfinite={"skipped": "skip", "kept": "keep"}.get(mistake, "error"))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=mistake == "kept")
    for step in range(1, STEPS + 1):
        makes_it = world.rank == world.size - 1 and step == 3
        if makes_it:
            change(mistake, model, optimizer)
        if mistake == "loaded" and step == 3:
            model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})
        if mistake == "left" and makes_it:
            return
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), float(step), dtype=model.hidden.weight.dtype)).sum()
        if makes_it and mistake in ("nan", "skipped", "kept"):
            loss = loss * float("nan")
        if makes_it and mistake == "no_sync":
            with replica.no_sync():
                loss.backward()
        elif not makes_it or mistake != "no_backward":
            scaler.scale(loss).backward()
        before = model.hidden.weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        is_skipped = step == 3 and mistake in ("skipped", "kept")
        assert is_skipped == torch.equal(before, model.hidden.weight), (mistake, step)
        if mistake in ("skipped", "kept"):
            assert replica.nonfinite_rank == (world.size - 1 if is_skipped else None)


def main():
    signal.alarm(120)  # A process that its test does not end must not stay.
    mistakes = sys.argv[1:]
    if mistakes[0] == "apart":
        os.environ["TRIREME_HOST"] = "host" + os.environ["TRIREME_WORKER"]
        del mistakes[0]
    world = trireme.join()
    for mistake in mistakes:
        try:
            train(world, mistake)
        except trireme.Error as error:
            print(f"{mistake}: {error}", flush=True)
    world.leave()
    if "behind_leave" in mistakes:
        train(world, "behind_leave")


main()
