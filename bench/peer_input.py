#!/usr/bin/env python3
"""torch's DataLoader with Pillow and torchvision, as the peer of `trireme bench input`.

  peer_input.py make-small|make-large FOLDER        write the images
  peer_input.py memory|small|large FOLDER [options] print {"samples_per_second": ...}
"""

import argparse
import json
import pathlib
import random
import time

import numpy
import torch
from PIL import Image

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)


def transforms_v2():
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        # A torchvision for CUDA has no compiled part beside a LibTorch for the CPU. Its transforms
        # need the names of two operators only.
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float threshold) -> Tensor")
        globals()["_library"] = library
    from torchvision.transforms import v2
    return v2


def write_images(folder, count, width, height, quality):
    numbers = numpy.random.default_rng(1)
    for label in range(2):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        # Smooth colours with some noise compress as photographs do.
        coarse = numbers.integers(0, 255, (max(2, height // 16), max(2, width // 16), 3),
                                  numpy.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.BICUBIC)
        noise = numbers.normal(0, 6, (height, width, 3))
        pixels = numpy.clip(numpy.asarray(image) + noise, 0, 255).astype(numpy.uint8)
        Image.fromarray(pixels).save(folder / str(i % 2) / f"{i:05}.jpg", quality=quality)


class Bytes(torch.utils.data.Dataset):
    def __init__(self, folder):
        raw = numpy.concatenate([numpy.fromfile(path, numpy.uint8).reshape(-1, 3073)
                                 for path in sorted(folder.glob("*.bin"))])
        self.labels = torch.from_numpy(raw[:, 0].astype(numpy.int64))
        self.pixels = torch.from_numpy(raw[:, 1:].reshape(-1, 3, 32, 32).copy())
        self.mean = torch.tensor(MEAN).reshape(3, 1, 1)
        self.deviation = torch.tensor(DEVIATION).reshape(3, 1, 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        pixels = self.pixels[index].float().div_(255).sub_(self.mean).div_(self.deviation)
        return pixels, self.labels[index]


class Files(torch.utils.data.Dataset):
    def __init__(self, folder, transform):
        self.files = sorted(folder.glob("*/*.jpg"))
        self.labels = [int(path.parent.name) for path in self.files]
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with Image.open(self.files[index]) as image:
            return self.transform(image.convert("RGB")), self.labels[index]


def data_set(kind, folder):
    if kind == "memory":
        return Bytes(folder)
    v2 = transforms_v2()
    crop = [] if kind == "small" else [v2.RandomResizedCrop(224, antialias=True)]
    colours = (MEAN, DEVIATION) if kind == "small" else ((0.485, 0.456, 0.406),
                                                        (0.229, 0.224, 0.225))
    return Files(folder, v2.Compose([v2.PILToTensor(), *crop, v2.RandomHorizontalFlip(),
                                     v2.ToDtype(torch.float32, scale=True),
                                     v2.Normalize(*colours)]))


def batches(data, batch, workers, batched):
    if not batched:
        yield from torch.utils.data.DataLoader(data, batch, shuffle=True, num_workers=workers)
        return
    order = torch.randperm(len(data))
    for start in range(0, len(data), batch):
        rows = order[start:start + batch]
        yield data[rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["memory", "small", "large", "make-small", "make-large"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--batched", action="store_true")
    parser.add_argument("--count", type=int, default=400, help="images of make-large")
    arguments = parser.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if arguments.kind == "make-small":
        return write_images(arguments.folder, 4000, 32, 32, 95)
    if arguments.kind == "make-large":
        return write_images(arguments.folder, arguments.count, 640, 427, 90)
    data = data_set(arguments.kind, arguments.folder)
    samples, begin = 0, None
    while begin is None or time.monotonic() - begin < arguments.seconds:
        for pixels, _ in batches(data, arguments.batch, arguments.workers, arguments.batched):
            if begin is None:  # The first batch starts the workers.
                begin = time.monotonic()
                continue
            samples += len(pixels)
            if time.monotonic() - begin >= arguments.seconds:
                break
    print(json.dumps({"samples_per_second": samples / (time.monotonic() - begin)}))


if __name__ == "__main__":
    main()
