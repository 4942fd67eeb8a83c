"""The part `input-tuning`: threads that the loader tunes, beside a grid of fixed numbers; and
epochs from a cache, beside data that is in memory from the start."""

import functools
import pathlib
import tempfile

from contenders import TRIREME, measurement_of_samples, progress, run, set_words
from inputs import BATCH, COLOURS, SECONDS, make_bytes, make_images
from pairs import interleave
from report import Row, Section, median_of

SETTLING = 3


def loaded(name, path, stages, threads, prefetch, *settings):
    """The time of 1,000 samples. Tuned threads have 3 s before they are measured."""
    words = (f"data.name={name}", f"data.path={path}", f"data.stages={stages}",
             f"data.batch={BATCH}", f"data.threads={threads}", f"data.prefetch={prefetch}",
             "data.test_fraction=0", *settings)
    figures = run([TRIREME, "bench", "input", "--seconds", SECONDS, "--json"] + set_words(words))
    if figures["tuned"]["threads"]:
        progress(f"{figures['tuned']['to_freeze']}, {figures['tuned']['reason']}, after "
                 f"{figures['tuned']['seconds']:.1f} s")
    return measurement_of_samples(figures)


def beside_a_grid(title, name, path, stages, rounds):
    grid = {f"{threads} threads, {ahead} ahead":
            functools.partial(loaded, name, path, stages, threads, ahead)
            for threads in (1, 2) for ahead in (2, 4, 8) if ahead > threads}
    tuned = {"tuned": functools.partial(loaded, name, path, stages, "auto", "auto")}
    taken = interleave(tuned | grid, rounds, progress)
    best = min(grid, key=lambda each: median_of(taken[each]))
    return Row(title, "tuned from 1 thread", taken["tuned"], f"best of a grid: {best}",
               taken[best])


def cached_epochs(memory, small, folder, rounds):
    rest = f"flip | normalise({COLOURS})"
    taken = interleave(
        {"in memory": functools.partial(loaded, "cifar", memory, rest, 1, 4),
         "cache": functools.partial(loaded, "image_folder", small, f"decode | cache | {rest}", 1,
                                    4),
         "cache(disk)": functools.partial(loaded, "image_folder", small,
                                          f"decode | cache(disk) | {rest}", 1, 4,
                                          f"data.cache_dir={folder}")}, rounds, progress)
    return [Row("later epochs of 3x32x32, flip", name, taken[name], "in memory",
                taken["in memory"]) for name in ("cache", "cache(disk)")]


def measure_input_tuning(rounds):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        memory, small, large = (pathlib.Path(folder) / name
                                for name in ("memory", "small", "large"))
        for each in (memory, small, large):
            each.mkdir()
        make_bytes(memory)
        make_images(small, "make-small")
        make_images(large, "make-large")
        rows = [beside_a_grid(*each, rounds) for each in (
            ("3x32x32 bytes in memory", "cifar", memory, f"normalise({COLOURS})"),
            ("JPEG 32x32, flip", "image_folder", small,
             f"decode | flip | normalise({COLOURS})"),
            ("JPEG 640x427, random resized crop 224, flip", "image_folder", large,
             "decode | random_resized_crop(224) | flip | normalise(imagenet)"))]
        rows += cached_epochs(memory, small, pathlib.Path(folder) / "caches", rounds)
    note = (f"The time of 1,000 samples in shuffled batches of {BATCH}, without a model. Tuned "
            f"threads have {SETTLING} s to settle before they are measured, and the grid has 1 and "
            "2 threads and 2 to 8 batches ahead. Data in memory is CIFAR's binary format; a cache "
            "has images of the same size after its first epoch, and one thread loads.")
    return Section("Input that is tuned or cached", note, rows)
