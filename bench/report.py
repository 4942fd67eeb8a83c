"""Results as a table for the terminal, and as a page with the machine, the versions and the command beside the figures."""

import datetime
import os
import platform
import statistics
import subprocess
from dataclasses import dataclass

from pairs import Measurement, compare

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
    title: str
    note: str
    rows: list[Row]


def median_of(measurements):
    return statistics.median(m.median for m in measurements)


def cpu_of(measurements):
    taken = [m.cpu for m in measurements if m.cpu is not None]
    return in_ms(statistics.median(taken)) if taken else "-"


def in_ms(seconds):
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def aligned(section):
    """The section's rows under their headings, as cells of equal width."""
    lines = [HEADINGS] + [row.cells() for row in section.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return [[cell.ljust(width) for cell, width in zip(line, widths)] for line in lines]


def table(section):
    return "\n".join([f"\n{section.title}. {section.note}", *("  ".join(line).rstrip() for line in aligned(section))])


def markdown_section(section):
    heading, *lines = (f"| {' | '.join(line)} |" for line in aligned(section))
    return "\n".join([f"## {section.title}", section.note, "", heading, "|---" * len(HEADINGS) + "|", *lines])


def markdown(sections, command, rounds, trireme, python):
    return PAGE.format(date=datetime.date.today().isoformat(), command=command, rounds=rounds, machine=machine(), versions=versions(trireme, python),
                       sections="\n\n".join(markdown_section(section) for section in sections))


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


PAGE = """\
# Benchmarks

Trireme beside PyTorch, measured in one run; `make bench` repeats it. This page is written by `{command}`.

- Date: {date}
- Machine: {machine}
- Versions: {versions}

Two ranks, one thread each. Every comparison ran its contenders in turn, {rounds} rounds. Milliseconds are the median over the rounds of rank 0's
median; CPU milliseconds are those of all ranks. `peer / ours` is the median of the rounds' ratios, so above 1 Trireme is faster; `95 %` is its
bootstrap interval; `best / best` compares the best repetition of each side. A difference that the interval does not show is none.

{sections}
"""
