"""The part `input-scale`: the order of 10^9 samples, and samples from a data service over TCP."""

import pathlib
import statistics
import tempfile

from contenders import PYTHON, ROOT, TRIREME, progress, run
from inputs import Set, make_images
from pairs import Measurement, interleave
from report import Row, Section
from service_input import rows_of_tcp

LOOPS = TRIREME.parent / "bench_input_loops"
PEER = ROOT / "bench/peer_order.py"
SAMPLES = 1_000_000_000
TABLE = SAMPLES // 10  # A table of all samples takes minutes, and 8 GB.
LARGE_IMAGES = 400  # As make_images() makes them.


def once(seconds):
    return [Measurement(each, each) for each in seconds]


def rows_of_order(rounds):
    """The rows, and a sentence on memory."""
    taken = interleave({"index": lambda: run([LOOPS, "order", SAMPLES, 1]),
                        "table": lambda: run([PYTHON, PEER, TABLE])}, rounds, progress)
    ours, theirs = (statistics.median(run["resident_bytes"] for run in taken[name])
                    for name in ("index", "table"))
    memory = (f"The order without a table takes {ours / 1e6:.1f} MB together with its loader; the "
              f"table of {TABLE:,} samples takes {theirs / 1e6:,.0f} MB.")
    return rows_of_figures(taken["index"], taken["table"]), memory


def rows_of_figures(ours, tables):
    """The figures of each round. The peer makes a table of TABLE samples, whose time stands for
    that of all in proportion."""
    peer = "torch.randperm of 10^8, in proportion"
    return [Row("1,000 indices of an epoch of 10^9", "data.shuffle: index",
                once(1000 * run["index_s"] for run in ours), peer,
                once(1000 * run["table_s"] / TABLE for run in tables)),
            Row("a batch in the middle of an epoch of 10^9", "data.shuffle: index",
                once(run["seek_s"] for run in ours), peer,
                once(run["table_s"] * SAMPLES / TABLE for run in tables))]


def measure_input_scale(rounds):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        large = pathlib.Path(folder)
        make_images(large, "make-large")
        rows = rows_of_tcp(
            Set("", "image_folder", large,
                "decode | resize(256) | center_crop(224) | normalise(imagenet)", "large"),
            LARGE_IMAGES, rounds)
    note = ("`data.shuffle: index` computes each place of an epoch when it is needed, and a loader "
            "that continues in the middle of an epoch (`seek()`, and the first batch of 256 "
            "samples without content) computes nothing else. The peer makes a table of an epoch "
            "for both, as torch's RandomSampler does. Over TCP: samples of 600 KB that a data "
            "service has made before, in batches of 64; the plain socket is one connection on "
            "which a process sends such rows and another one receives them into a batch.")
    if LOOPS.exists():
        more, memory = rows_of_order(rounds)
        rows, note = more + rows, f"{note} {memory}"
    else:
        progress(f"the order of 10^9 samples is left out: {LOOPS} is missing (make bench)")
    return Section("Input at scale", note, rows)
