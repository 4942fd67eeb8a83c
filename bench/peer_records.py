#!/usr/bin/env python3
"""Python packages as peers of our readers of records, and the files for all of them:

  peer_records.py make FOLDER                      write the files but that of tfrecord
  peer_records.py make-tfrecord FOLDER             write that one; needs TensorFlow
  peer_records.py READER PATH [--order none|full]  print {"samples_per_second": ..., "records": ...,
                                                   "bytes": ...}

A reader copies the bytes of each record into the memory of a batch, as record_loop.h does, in the
way of its package that is fastest.
"""

import argparse
import itertools
import json
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads it when it is imported.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy  # noqa: E402

BATCH = 256
RECORDS, BYTES = 20_000, 3072
COLUMNS = 32
BLOCK, BLOCKS = 1024, 20_000


def images():
    return numpy.random.default_rng(1).integers(0, 256, (RECORDS, BYTES), numpy.uint8)


# ---- Files ----


def make_tar(path, rows):
    import io
    import tarfile

    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, row in enumerate(rows):
            for end, content in (("bin", row.tobytes()), ("cls", str(number % 10).encode())):
                member = tarfile.TarInfo(f"{number:08}.{end}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def make_lmdb(path, rows):
    import lmdb

    with lmdb.open(str(path), map_size=1 << 30) as database:
        with database.begin(write=True) as transaction:
            for number, row in enumerate(rows):
                transaction.put(f"{number:08}".encode(), row.tobytes())


def make_parquet(folder, rows):
    import pyarrow
    import pyarrow.parquet

    labels = numpy.arange(len(rows)) % 10
    images = pyarrow.array([row.tobytes() for row in rows], pyarrow.binary())
    pyarrow.parquet.write_table(pyarrow.table({"image": images, "label": labels}),
                                folder / "images.parquet", row_group_size=2048,
                                use_dictionary=False)
    numbers = numpy.random.default_rng(1).normal(size=(COLUMNS, 10 * len(rows)))
    columns = {f"c{i}": numpy.float32(column) for i, column in enumerate(numbers)}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "numbers.parquet",
                                row_group_size=50_000, use_dictionary=False)


def make(folder):
    rows = images()
    make_tar(folder / "images.tar", rows)
    make_lmdb(folder / "lmdb", rows)
    make_parquet(folder, rows)
    numpy.save(folder / "images.npy", rows)
    tokens = numpy.random.default_rng(1).integers(0, 50_000, BLOCK * BLOCKS + 1, numpy.uint16)
    tokens.tofile(folder / "tokens.bin")


def make_tfrecord(folder):
    import tensorflow as tf

    def bytes_of(value):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    def number_of(value):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    with tf.io.TFRecordWriter(str(folder / "images.tfrecord")) as file:
        for number, row in enumerate(images()):
            features = {"image": bytes_of(row.tobytes()), "label": number_of(number % 10)}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            file.write(example.SerializeToString())


# ---- Readers: each yields the (records, bytes) of its batches for ever ----


def epochs_of_rows(rows, order):
    """Batches of an array whose rows are views of a mapped file."""
    batch = numpy.empty((BATCH, *rows.shape[1:]), rows.dtype)
    places = numpy.random.default_rng(1)
    while True:
        shuffled = places.permutation(len(rows)) if order == "full" else None
        for first in range(0, len(rows), BATCH):
            end = min(first + BATCH, len(rows))
            part = batch[:end - first]
            if shuffled is None:
                part[:] = rows[first:end]
            elif rows.flags.c_contiguous:
                numpy.take(rows, shuffled[first:end], axis=0, out=part, mode="clip")
            else:  # take() would copy all of them first.
                part[:] = rows[shuffled[first:end]]
            yield len(part), part.nbytes


def numpy_batches(path, order):
    yield from epochs_of_rows(numpy.load(path, mmap_mode="r"), order)


def token_batches(path, order):
    tokens = numpy.memmap(path, numpy.uint16, mode="r")
    windows = numpy.lib.stride_tricks.sliding_window_view(tokens, BLOCK + 1)[::BLOCK]
    yield from epochs_of_rows(windows, order)


def lmdb_batches(path, order):
    import lmdb

    database = lmdb.open(str(path), readonly=True, lock=False, readahead=order == "none")
    batch = numpy.empty((BATCH, BYTES), numpy.uint8)
    numbers = numpy.random.default_rng(1)
    with database.begin(buffers=True) as transaction:
        keys = [bytes(key) for key in transaction.cursor().iternext(values=False)]
        while True:
            if order == "full":
                values = (transaction.get(keys[i]) for i in numbers.permutation(len(keys)))
            else:
                values = transaction.cursor().iternext(keys=False)
            yield from batches_of_values(values, batch)


def batches_of_values(values, batch):
    values = iter(values)
    while part := list(itertools.islice(values, BATCH)):
        for place, value in enumerate(part):
            batch[place] = numpy.frombuffer(value, numpy.uint8)
        yield len(part), batch[:len(part)].nbytes


def webdataset_batches(path, _):
    import webdataset

    batch = numpy.empty((BATCH, BYTES), numpy.uint8)
    while True:
        samples = webdataset.WebDataset(str(path), shardshuffle=False)
        yield from batches_of_values((sample["bin"] for sample in samples), batch)


def tarfile_batches(path, _):
    import tarfile

    batch = numpy.empty((BATCH, BYTES), numpy.uint8)
    while True:
        with tarfile.open(path, "r|") as tar:
            contents = (tar.extractfile(member).read() for member in tar
                        if member.name.endswith(".bin"))
            yield from batches_of_values(contents, batch)


def pyarrow_batches(path, _):
    import pyarrow.parquet

    pyarrow.set_cpu_count(1)
    file = pyarrow.parquet.ParquetFile(path, memory_map=True)
    memory = {}
    while True:
        for rows in file.iter_batches(16 * BATCH, use_threads=False):
            used = 0
            for name, column in zip(rows.schema.names, rows.columns):
                # The values of the column, which is read without gaps.
                values = (bytes_of_texts(column) if pyarrow.types.is_binary(column.type)
                          else column.to_numpy())
                room = memory.setdefault(name, numpy.empty(2 * values.nbytes, numpy.uint8))
                room[:values.nbytes] = values.view(numpy.uint8)
                used += values.nbytes
            yield rows.num_rows, used


def bytes_of_texts(column):
    _, offsets, content = column.buffers()
    ends = numpy.frombuffer(offsets, numpy.int32)[column.offset:column.offset + len(column) + 1]
    return numpy.frombuffer(content, numpy.uint8)[ends[0]:ends[-1]]


def tensorflow_batches(path, _):
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    features = {"image": tf.io.FixedLenFeature([], tf.string),
                "label": tf.io.FixedLenFeature([], tf.int64)}

    def rows_of(batch):
        batch = tf.io.parse_example(batch, features)
        return tf.io.decode_raw(batch["image"], tf.uint8, fixed_length=BYTES), batch["label"]

    data = tf.data.TFRecordDataset(str(path), buffer_size=1 << 20).repeat()
    data = data.batch(BATCH).map(rows_of)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    for _, labels in data.with_options(options):
        yield len(labels), len(labels) * (BYTES + 8)


READERS = {"numpy": numpy_batches, "numpy-tokens": token_batches, "lmdb": lmdb_batches,
           "webdataset": webdataset_batches, "tarfile": tarfile_batches,
           "pyarrow": pyarrow_batches, "tensorflow": tensorflow_batches}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["make", "make-tfrecord", *READERS])
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("--order", choices=["none", "full"], default="none")
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    if arguments.what.startswith("make"):
        return {"make": make, "make-tfrecord": make_tfrecord}[arguments.what](arguments.path)
    batches = READERS[arguments.what](arguments.path, arguments.order)
    records_of_epoch = 10 * RECORDS if arguments.path.name == "numbers.parquet" else RECORDS
    records = size = 0
    while records < records_of_epoch:  # The first epoch takes the page faults.
        more, more_bytes = next(batches)
        records, size = records + more, size + more_bytes
    samples, begin = 0, time.monotonic()
    while time.monotonic() - begin < arguments.seconds:
        samples += next(batches)[0]
    print(json.dumps({"samples_per_second": samples / (time.monotonic() - begin),
                      "records": records, "bytes": int(size)}), flush=True)
    os._exit(0)  # Threads of the libraries need not end in order.


if __name__ == "__main__":
    main()
