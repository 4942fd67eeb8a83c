"""Interleaved measurements and what can be said about them: ratios of neighbours in time, with an interval."""

import random
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """One run of one contender. Seconds of one repetition; `cpu` over all ranks. None: not taken."""

    median: float
    best: float
    cpu: float | None = None
    sent_bytes: int | None = None  # By rank 0 for a step.


@dataclass(frozen=True)
class Comparison:
    """Ratios are peer / ours: above 1, ours is faster."""

    ratio: float
    low: float
    high: float
    ratio_of_bests: float


def interleave(contenders, rounds, progress=lambda text: None):
    """Runs every contender once a round, so that a slow minute of the machine hits all alike. name -> its measurements."""
    taken = {name: [] for name in contenders}
    for number in range(rounds):
        for name, measure in contenders.items():
            progress(f"round {number + 1}/{rounds}: {name}")
            taken[name].append(measure())
    return taken


def compare(ours, peer):
    ratios = [theirs.median / mine.median for mine, theirs in zip(ours, peer, strict=True)]
    low, high = bootstrap_interval(ratios)
    return Comparison(statistics.median(ratios), low, high, min(p.best for p in peer) / min(o.best for o in ours))


def bootstrap_interval(values, resamples=10_000, coverage=0.95):
    """Percentiles of the median over resamples (Efron 1979). The same values give the same interval."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(resamples))
    tail = int(resamples * (1 - coverage) / 2)
    return medians[tail], medians[-1 - tail]
