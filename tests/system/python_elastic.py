"""A PyTorch loop in an elastic job, which prints its end, and that of the same loop in plain
PyTorch. Run by test_python_package.py.

python_elastic.py FOLDER|- [KILL_RANK KILL_STEP [PLACE]]

The worker of this rank ends itself in this step, once: in `backward`, `update` or `commit`. The
file KILL_MARKER says that it has. With STOP_STEP set, rank 1 is asked to stop in that step. With
WAIT_FOR set, the job waits in the middle until it has so many workers."""

import json
import os
import pathlib
import signal
import sys
import time

import torch

import trireme

STEPS, BATCH = 24, 12


def make_parts():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16),
                                torch.nn.Tanh(), torch.nn.Linear(16, 3)).double().eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 7, gamma=0.5)


def loss_of(model, step, part):
    generator = torch.Generator().manual_seed(step)
    data = torch.randn(BATCH, 8, dtype=torch.float64, generator=generator)
    target = torch.randint(3, (BATCH,), generator=generator)
    return torch.nn.functional.cross_entropy(model(data[part]), target[part])


def numbers_of(model, optimizer):
    return {"sum": sum(p.detach().abs().sum().item() for p in model.parameters()),
            "moments": sum(v["exp_avg"].abs().sum().item() for v in optimizer.state.values()),
            "rate": optimizer.param_groups[0]["lr"]}


def plain(steps):
    model, optimizer, schedule = make_parts()
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss_of(model, step, slice(None)).backward()
        optimizer.step()
        schedule.step()
    return numbers_of(model, optimizer)


def main():
    folder = None if sys.argv[1] == "-" else sys.argv[1]
    kill_rank, kill_step = (int(word) for word in sys.argv[2:4]) if len(sys.argv) > 2 else (-1, -1)
    place = sys.argv[4] if len(sys.argv) > 4 else "backward"
    wait_for = int(os.environ.get("WAIT_FOR", 0))
    signal.alarm(120)  # A process that its test does not end must not stay.
    stop_step = int(os.environ.get("STOP_STEP", -1))
    marker = pathlib.Path(os.environ.get("KILL_MARKER", "/nonexistent/marker"))
    world = trireme.join()
    model, optimizer, schedule = make_parts()
    replica = trireme.distribute(world, model)
    position = {"step": 0, "samples": 0}
    state = trireme.State(world, model, optimizer, position, folder=folder,
                          every=5 if folder else 0)
    state.include("schedule", schedule)

    def dies(step, where):
        if (world.rank, step, where) == (kill_rank, kill_step, place) and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def loop():
        while position["step"] < STEPS:
            if position["step"] == STEPS // 2 and world.size < wait_for:
                time.sleep(0.02)
                state.commit()
                continue
            step = position["step"] + 1
            part = world.share(BATCH)
            replica.samples = len(part)
            optimizer.zero_grad()
            loss = loss_of(model, step, part)
            dies(step, "backward")
            loss.backward()
            dies(step, "update")
            optimizer.step()
            schedule.step()
            dies(step, "commit")
            position["step"], position["samples"] = step, position["samples"] + BATCH
            if step == stop_step and world.rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            state.commit()

    if not trireme.run_elastic(state, loop):
        return
    if world.rank == 0:
        print(json.dumps({**numbers_of(model, optimizer), "ranks": world.size,
                          "stopped": state.stopped, "plain": plain(position["step"]),
                          **position}), flush=True)
    world.leave()


main()
