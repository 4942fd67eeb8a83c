"""The same training in Python's DistributedDataParallel, with the same weights and batches.

Settings of a case: lr, momentum, strides, and optionally the type of autocast.
"""

import torch
from torch.nn.parallel import DistributedDataParallel

from model_of_weights import cnn_of
from python_job import replica_loss, run_cases


def train(case):
    settings = case.settings
    model = cnn_of(case.weights, settings["strides"])
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"],
                                momentum=settings["momentum"])
    autocast = settings.get("autocast")
    parts = []
    for images, labels in case.batches():
        with torch.autocast("cpu", getattr(torch, autocast or "bfloat16"), enabled=bool(autocast)):
            loss, part = replica_loss(replica, images, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        parts.append(part)
    return parts


if __name__ == "__main__":
    run_cases(train)
