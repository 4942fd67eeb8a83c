"""Results as a table for the terminal, and as a page with the machine, the versions and the command beside the figures."""

import datetime
import os
import platform
import statistics
import subprocess
from dataclasses import dataclass

from pairs import Measurement, compare

BUSY = 0.7  # Load before the suite's own, above which others must have been running.
HEADINGS = ("what", "ours", "peer", "ours, ms", "peer, ms", "CPU ms, ours / peer", "peer / ours", "95 %", "best / best")


@dataclass(frozen=True)
class Row:
    what: str
    our_name: str
    ours: list[Measurement]
    peer_name: str
    peers: list[Measurement]

    def cells(self):
        comparison = compare(self.ours, self.peers)
        return (self.what, self.our_name, self.peer_name, in_ms(median_of(self.ours)), in_ms(median_of(self.peers)),
                f"{cpu_of(self.ours)} / {cpu_of(self.peers)}", f"{comparison.ratio:.2f}", f"{comparison.low:.2f} to {comparison.high:.2f}",
                f"{comparison.ratio_of_bests:.2f}")


@dataclass(frozen=True)
class Section:
    """Comparisons (Row), or with headings of its own: tuples of cells."""

    title: str
    note: str
    rows: list[Row | tuple]
    headings: tuple = HEADINGS


def median_of(measurements):
    return statistics.median(m.median for m in measurements)


def cpu_of(measurements):
    taken = [m.cpu for m in measurements if m.cpu is not None]
    return in_ms(statistics.median(taken)) if taken else "-"


def in_ms(seconds):
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def aligned(section):
    """The section's rows under their headings, as cells of equal width."""
    lines = [section.headings] + [row.cells() if isinstance(row, Row) else row for row in section.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(section.headings))]
    return [[cell.ljust(width) for cell, width in zip(line, widths)] for line in lines]


def table(section):
    return "\n".join([f"\n{section.title}. {section.note}", *("  ".join(line).rstrip() for line in aligned(section))])


def markdown_section(section, origin):
    heading, *lines = (f"| {' | '.join(line)} |" for line in aligned(section))
    return "\n".join([f"## {section.title}", section.note, "", origin, "", heading, "|---" * len(section.headings) + "|", *lines])


def markdown(sections, order, page, command, rounds, load, trireme, python):
    """`page` with these sections in the place of those that it has. What another machine or version measured is left out. `load`: of the machine
    before the first run."""
    origin = f"Measured on {datetime.date.today().isoformat()} by `{command}`; {rounds} rounds."
    if load > BUSY:
        origin += f" Other programmes kept the machine busy (load {load:.1f}): trust the ratios more than the times, and neither much."
    head = HEAD.format(machine=machine(), versions=versions(trireme, python))
    kept = page.removeprefix(head) if page.startswith(head) else ""
    texts = {text.split("\n", 1)[0]: f"## {text.strip()}" for text in kept.split("\n## ")[1:]}
    texts |= {section.title: markdown_section(section, origin) for section in sections}
    return head + "\n\n".join(texts[title] for title in order if title in texts) + "\n"


def machine():
    facts = dict(line.split(":", 1) for line in output_of("lscpu").splitlines() if ":" in line)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    virtual = f", virtual ({facts['Hypervisor vendor'].strip()})" if "Hypervisor vendor" in facts else ""
    model = facts["Model name"].strip()
    kernel = platform.release().split("-")[0]
    generation = f"family {facts['CPU family'].strip()}, model {facts['Model'].strip()}" if "CPU family" in facts else platform.machine()
    return f"{model} ({generation}), {os.cpu_count()} cores{virtual}, {memory:.0f} GiB of memory, {platform.system()} {kernel}"


def versions(trireme, python):
    return (f"Trireme {output_of(trireme, '--version')}, PyTorch and LibTorch {output_of(python, '-c', 'import torch; print(torch.__version__)')}, "
            f"{output_of('c++', '--version').splitlines()[0]}, Python {output_of(python, '--version').split()[-1]}")


def output_of(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout.strip()


HEAD = """\
# Benchmarks

Trireme beside PyTorch and OpenMPI; `make bench` repeats it, and `bench/run.py PART --write` one part of it. That script writes this page.

- Machine: {machine}
- Versions: {versions}

Two ranks, one thread each, unless it says otherwise. Every comparison ran its contenders in turn, round by round. Milliseconds are the median
over the rounds of rank 0's median; CPU milliseconds are those of all ranks. `peer / ours` is the median of the rounds' ratios, so above 1 Trireme
is faster; `95 %` is its bootstrap interval; `best / best` compares the best repetition of each side. A difference that the interval does
not show is none.

"""
