"""Interleaved measurements and their comparison: ratios of neighbours in time, with an interval."""

import random
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """One run of one contender, in seconds of one repetition. `cpu` is summed over all ranks. None
    means that the figure was not taken."""

    median: float
    best: float
    cpu: float | None = None
    sent_bytes: int | None = None  # Sent by rank 0 in a step.


@dataclass(frozen=True)
class Comparison:
    """The ratios are peer / ours: above 1 ours is faster."""

    ratio: float
    low: float
    high: float
    ratio_of_bests: float


def interleave(contenders, rounds, progress=lambda text: None):
    """Runs every contender once per round, so that a slow minute of the machine affects all of
    them. Returns name -> its measurements."""
    taken = {name: [] for name in contenders}
    for number in range(rounds):
        for name, measure in contenders.items():
            progress(f"round {number + 1}/{rounds}: {name}")
            taken[name].append(measure())
    return taken


def compare(ours, peer):
    ratios = [theirs.median / mine.median for mine, theirs in zip(ours, peer, strict=True)]
    low, high = bootstrap_interval(ratios)
    ratio_of_bests = min(p.best for p in peer) / min(o.best for o in ours)
    return Comparison(statistics.median(ratios), low, high, ratio_of_bests)


def bootstrap_interval(values, resamples=10_000, coverage=0.95):
    """Returns percentiles of the median over resamples (Efron 1979). The same values give the same
    interval."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values)))
                     for _ in range(resamples))
    tail = int(resamples * (1 - coverage) / 2)
    return medians[tail], medians[-1 - tail]
