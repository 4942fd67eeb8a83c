#!/usr/bin/env python3
"""tf.data, Grain and FFCV, as peers of `trireme bench input`. Each in its own environment:

  peer_input_pipelines.py tf.data|grain|ffcv memory|small|large FOLDER [--threads N]
                          print {"samples_per_second": ...}

The folders are those of peer_input.py. Each library runs as its own guide for speed says.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads it when it is imported.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy  # noqa: E402

CIFAR = ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SIZE = 224


def arrays_of(folder):
    """The pixels [n, 3, 32, 32] and labels of CIFAR-10's binary files."""
    raw = numpy.concatenate([numpy.fromfile(path, numpy.uint8).reshape(-1, 3073)
                             for path in sorted(folder.glob("*.bin"))])
    return raw[:, 1:].reshape(-1, 3, 32, 32).copy(), raw[:, 0].astype(numpy.int64)


def files_of(folder):
    files = sorted(folder.glob("*/*.jpg"))
    return [str(path) for path in files], [int(path.parent.name) for path in files]


def colours_of(kind):
    return IMAGENET if kind == "large" else CIFAR


# ---- tf.data ----


def tensorflow_batches(kind, folder, batch, threads):
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    mean, deviation = (tf.constant(numbers, tf.float32) for numbers in colours_of(kind))

    if kind == "memory":
        pixels, labels = arrays_of(folder)
        mean, deviation = (tf.reshape(numbers, [1, 3, 1, 1]) for numbers in (mean, deviation))

        def numbers_of(pixels, labels):
            return (tf.cast(pixels, tf.float32) / 255 - mean) / deviation, labels

        data = tf.data.Dataset.from_tensor_slices((pixels, labels)).shuffle(len(pixels)).repeat()
        data = data.batch(batch).map(numbers_of, num_parallel_calls=threads)
    else:
        def image_of(path, label):
            content = tf.io.read_file(path)
            if kind == "large":
                begin, size, _ = tf.image.sample_distorted_bounding_box(
                    tf.image.extract_jpeg_shape(content), tf.zeros([1, 0, 4]),
                    area_range=(0.08, 1), aspect_ratio_range=(3 / 4, 4 / 3),
                    use_image_if_no_bounding_boxes=True)
                window = tf.concat([begin[:2], size[:2]], 0)
                pixels = tf.image.decode_and_crop_jpeg(content, window, channels=3)
                pixels = tf.image.resize(pixels, [SIZE, SIZE])
            else:
                pixels = tf.cast(tf.image.decode_jpeg(content, channels=3), tf.float32)
            pixels = tf.image.random_flip_left_right(pixels)
            return (pixels / 255 - mean) / deviation, label

        files, labels = files_of(folder)
        data = tf.data.Dataset.from_tensor_slices((files, labels)).shuffle(len(files)).repeat()
        data = data.map(image_of, num_parallel_calls=threads, deterministic=True).batch(batch)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    for pixels, _ in data.with_options(options).prefetch(4):
        yield len(pixels)


# ---- Grain ----


class GrainSamples:
    """Samples by their numbers, as Grain's sources are."""

    def __init__(self, kind, folder):
        self.kind = kind
        self.mean, self.deviation = (numpy.array(numbers, numpy.float32)
                                     for numbers in colours_of(kind))
        if kind == "memory":
            self.pixels, self.labels = arrays_of(folder)
            self.mean, self.deviation = (numbers.reshape(3, 1, 1)
                                         for numbers in (self.mean, self.deviation))
        else:
            self.files, self.labels = files_of(folder)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        if self.kind == "memory":
            return self.pixels[index], self.labels[index]
        return self.files[index], self.labels[index]

    def sample(self, one, numbers):
        from PIL import Image

        content, label = one
        if self.kind == "memory":
            return (content.astype(numpy.float32) / 255 - self.mean) / self.deviation, label
        with Image.open(content) as image:
            image = image.convert("RGB")
            if self.kind == "large":
                image = crop(image, numbers)
            pixels = numpy.asarray(image)
        if numbers.random() < 0.5:
            pixels = pixels[:, ::-1]
        return (pixels.astype(numpy.float32) / 255 - self.mean) / self.deviation, label


def crop(image, numbers):
    """Cuts a random part out as torchvision's RandomResizedCrop does, and scales it."""
    from PIL import Image

    area = image.width * image.height
    for _ in range(10):
        part = area * numbers.uniform(0.08, 1)
        ratio = numpy.exp(numbers.uniform(numpy.log(3 / 4), numpy.log(4 / 3)))
        width, height = round((part * ratio) ** 0.5), round((part / ratio) ** 0.5)
        if width <= image.width and height <= image.height:
            left = numbers.integers(0, image.width - width + 1)
            top = numbers.integers(0, image.height - height + 1)
            break
    else:
        width = height = min(image.width, image.height)
        left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.resize((SIZE, SIZE), Image.BILINEAR, (left, top, left + width, top + height))


def grain_batches(kind, folder, batch, threads):
    import grain

    samples = GrainSamples(kind, folder)
    data = grain.MapDataset.source(samples).seed(1).shuffle().repeat()
    data = data.random_map(samples.sample).batch(batch)
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
    data = data.to_iter_dataset(reading)
    if threads > 1:
        data = data.mp_prefetch(grain.MultiprocessingOptions(num_workers=threads))
    for pixels, _ in data:
        yield len(pixels)


# ---- FFCV ----


def write_beton(kind, folder, path):
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from PIL import Image

    class Samples:
        def __init__(self):
            if kind == "memory":
                self.pixels, self.labels = arrays_of(folder)
            else:
                self.files, self.labels = files_of(folder)

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, index):
            if kind == "memory":
                image = Image.fromarray(self.pixels[index].transpose(1, 2, 0).copy())
            else:
                image = Image.open(self.files[index]).convert("RGB")
            return image, int(self.labels[index])

    how = {"memory": ("raw", 95), "small": ("jpg", 95), "large": ("jpg", 90)}[kind]
    fields = {"image": RGBImageField(write_mode=how[0], jpeg_quality=how[1]), "label": IntField()}
    DatasetWriter(str(path), fields, num_workers=1).from_indexed_dataset(Samples())


def ffcv_batches(kind, folder, batch, threads):
    from ffcv.fields import decoders
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        path = pathlib.Path(scratch) / "data.beton"
        write_beton(kind, folder, path)
        decode = (decoders.RandomResizedCropRGBImageDecoder((SIZE, SIZE)) if kind == "large"
                  else decoders.SimpleRGBImageDecoder())
        flip = [] if kind == "memory" else [RandomHorizontalFlip()]
        mean, deviation = (numpy.array(numbers) * 255 for numbers in colours_of(kind))
        stages = [decode, *flip, NormalizeImage(mean, deviation, numpy.float32), ToTensor(),
                  ToTorchImage(channels_last=True)]
        count = len(arrays_of(folder)[1] if kind == "memory" else files_of(folder)[0])
        # An epoch is short here, and FFCV starts threads for each.
        numbers = list(range(count)) * max(1, 200_000 // count)
        loader = Loader(str(path), batch_size=batch, num_workers=threads, indices=numbers,
                        order=OrderOption.RANDOM, os_cache=True, drop_last=True,
                        pipelines={"image": stages,
                                   "label": [decoders.IntDecoder(), ToTensor()]})
        while True:
            for pixels, _ in loader:
                yield len(pixels)


def main():
    parser = argparse.ArgumentParser()
    batches = {"tf.data": tensorflow_batches, "grain": grain_batches, "ffcv": ffcv_batches}
    parser.add_argument("library", choices=batches)
    parser.add_argument("kind", choices=["memory", "small", "large"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--batch", type=int, default=256)
    arguments = parser.parse_args()
    counts = batches[arguments.library](arguments.kind, arguments.folder, arguments.batch,
                                        arguments.threads)
    for _ in range(6):  # The first batches start threads, and fill what is read ahead.
        next(counts)
    samples, begin = 0, time.monotonic()
    while time.monotonic() - begin < arguments.seconds:
        samples += next(counts)
    print(json.dumps({"samples_per_second": samples / (time.monotonic() - begin)}), flush=True)
    counts.close()
    os._exit(0)  # Threads of the libraries need not end in order.


if __name__ == "__main__":
    main()
