"""The part `input-formats`: records a second of each format, beside the loop of its own library
over the same file."""

import functools
import pathlib
import subprocess
import sys
import tempfile

from contenders import PYTHON, ROOT, TRIREME, measurement_of_samples, progress, run
from inputs import PIPELINES, SECONDS
from pairs import interleave
from programmes import arrow_libraries, compiled
from report import Row, Section

PEER = ROOT / "bench/peer_records.py"
LOOPS = TRIREME.parent / "bench_input_loops"
TENSORFLOW = PIPELINES["tf.data"][0]


def measured(words, content):
    """The time of 1,000 records. `content` has the bytes of a record as another contender has read
    them: all must read the same."""
    figures = run(words)
    read = figures["bytes"] / figures["records"]
    if content.setdefault("bytes", read) != read:
        sys.exit(f"bench: {read} bytes of a record, where another reader has {content['bytes']}: "
                 f"{' '.join(map(str, words))}")
    return measurement_of_samples(figures)


def ours(form, path, order, field="*"):
    return [LOOPS, "records", form, path, SECONDS, order, field]


def package(reader, path, order):
    python = TENSORFLOW if reader == "tensorflow" else PYTHON
    return [python, PEER, reader, path, "--order", order, "--seconds", SECONDS]


def comparisons(base, programmes):
    """(title, our command, name of a peer -> its command)"""
    def of(name, *words):
        return {f"{name[1]}, C++": [programmes[name[0]], *words]} if programmes[name[0]] else {}

    arrow, archive, lmdb, mapped = (("parquet_loop", "Arrow"), ("tar_loop", "libarchive"),
                                    ("lmdb_loop", "liblmdb"), ("mapped_loop", "mmap"))
    for title, file in (("Parquet, images of 3 KB", base / "images.parquet"),
                        ("Parquet, 32 columns of float32", base / "numbers.parquet")):
        mapped_file = (arrow[0], f"{arrow[1]} (file mapped)")
        yield (title, ours("parquet", file, "none"),
               of(arrow, file, SECONDS, "read") | of(mapped_file, file, SECONDS, "mapped") |
               {"pyarrow": package("pyarrow", file, "none")})
    for order, title in (("none", ""), ("full", ", shuffled")):
        file = base / "lmdb"
        yield (f"LMDB, 3 KB{title}", ours("lmdb", file, order, "value"),
               of(lmdb, file, SECONDS, order) | {"lmdb, Python": package("lmdb", file, order)})
    file = base / "images.tar"
    yield ("tar, 3 KB", ours("webdataset", file, "none", "bin"),
           of(archive, file, SECONDS) | {"tarfile": package("tarfile", file, "none"),
                                         "webdataset": package("webdataset", file, "none")})
    if TENSORFLOW.exists():
        file = base / "images.tfrecord"
        yield ("TFRecord, images of 3 KB", ours("tfrecord", file, "none"),
               {"TFRecordDataset": package("tensorflow", file, "none")})
    for order, title in (("none", ""), ("full", ", shuffled")):
        file = base / "images.npy"
        yield (f"npy, 3 KB{title}", ours("npy", file, order),
               of(mapped, file, SECONDS, order, 128, 3072, 3072) |
               {"numpy": package("numpy", file, order)})
        file = base / "tokens.bin"
        yield (f"tokens, 1,025 of uint16{title}", ours("tokens", file, order),
               of(mapped, file, SECONDS, order, 0, 2 * 1025, 2 * 1024) |
               {"numpy": package("numpy-tokens", file, order)})


def measure_formats(rounds):
    if not LOOPS.exists():
        progress(f"input-formats is left out: {LOOPS} is missing (make bench builds it)")
        return None
    rows = []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        base = pathlib.Path(folder)
        subprocess.run([PYTHON, PEER, "make", base], check=True)
        if TENSORFLOW.exists():
            subprocess.run([TENSORFLOW, PEER, "make-tfrecord", base], check=True,
                           capture_output=True)
        programmes = {
            "parquet_loop": compiled("parquet_loop", base, *arrow_libraries(),
                                     needs="scripts/setup arrow"),
            "lmdb_loop": compiled("lmdb_loop", base, "-llmdb", needs="Debian's liblmdb-dev"),
            "tar_loop": compiled("tar_loop", base, "-larchive", needs="Debian's libarchive-dev"),
            "mapped_loop": compiled("mapped_loop", base)}
        for title, mine, peers in comparisons(base, programmes):
            content = {}
            taken = interleave({name: functools.partial(measured, words, content)
                                for name, words in {"ours": mine, **peers}.items()}, rounds,
                               progress)
            rows += [Row(title, "ours", taken["ours"], peer, taken[peer]) for peer in peers]
    note = ("The time of 1,000 records on one thread, in the order of the file unless it is "
            "shuffled: the bytes of each record are copied into the memory of a batch of 256. "
            "Ours: `open_records()`, whose index is made before. Peers: loops in C++ over the "
            "library of a format, or over a mapped file (mmap), and the Python packages, which "
            "copy whole batches at once where they can. All read the same bytes of files that are "
            "in memory. Ours reads the files of Parquet and does not map them, so that a file that "
            "becomes shorter is an error and no signal; it keeps few row groups, so each epoch "
            "unpacks them anew, as the peers do.")
    if not TENSORFLOW.exists():
        note += f" TFRecord is left out, without TensorFlow ({PIPELINES['tf.data'][1]})."
    return Section("Input from each format", note, rows)
