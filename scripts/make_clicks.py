#!/usr/bin/env python3
"""Writes data/clicks.tsv.gz: generated clicks in the layout of Criteo's data sets.

No line of it comes from anybody's data. Each sample draws 13 numbers and 26 categories, some of
which are missing, and is clicked with a probability that depends on two of the numbers, on twelve
of the categories, and on pairs of categories through hidden vectors: the interactions that a
factorised model finds and a linear one does not. The same seed gives the same bytes.

  make_clicks.py [FILE]     write FILE (default: data/clicks.tsv.gz)
"""
import gzip
import hashlib
import io
import math
import pathlib
import random
import sys

SAMPLES, NUMBERS, CATEGORIES, SEED = 6000, 13, 26, 20260101
SIZES = [3, 4, 5, 6, 8, 10, 3, 4, 5, 6, 8, 10] + [2, 3, 4, 6, 9, 14, 20, 30, 45, 70, 5, 7, 12, 40]
STRONG, HIDDEN = 12, 3  # The first twelve features matter.


def category(feature, value):
    return hashlib.sha256(f"clicks {feature} {value}".encode()).hexdigest()[:8]


def draw_value(rng, size):
    """A value of 0 to size - 1; low ones are more frequent."""
    return min(int(size * rng.random() ** 1.5), size - 1)


def lines():
    rng = random.Random(SEED)
    effect = [[rng.gauss(0, 0.7) for _ in range(size)] for size in SIZES[:STRONG]]
    hidden = [[[rng.gauss(0, 1) for _ in range(HIDDEN)] for _ in range(size)]
              for size in SIZES[:STRONG]]
    for _ in range(SAMPLES):
        values = [draw_value(rng, size) for size in SIZES]
        numbers = [int(rng.expovariate(1) * 3 ** (i % 4)) for i in range(NUMBERS)]
        numbers[1] -= 1  # Criteo's second number may be below 0, too.
        score = 0.6 * math.log1p(numbers[0]) - 0.8 * math.log1p(numbers[4]) - 0.7
        score += sum(effect[i][values[i]] for i in range(STRONG))
        for i in range(0, STRONG, 2):
            one, two = hidden[i][values[i]], hidden[i + 1][values[i + 1]]
            score += 0.9 * sum(a * b for a, b in zip(one, two))
        label = int(rng.random() < 1 / (1 + math.exp(-1.5 * score)))
        texts = [str(x) for x in numbers] + [category(i, v) for i, v in enumerate(values)]
        for i in (2, 7, 11, 13 + 15, 13 + 20, 13 + 25):
            if rng.random() < 0.2:
                texts[i] = ""
        yield "\t".join([str(label)] + texts) + "\n"


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "data" / "clicks.tsv.gz"
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb", compresslevel=9, mtime=0) as file:
        file.write("".join(lines()).encode())
    path.write_bytes(content.getvalue())
    print(f"{path}: {SAMPLES} samples, {path.stat().st_size} bytes, "
          f"SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
