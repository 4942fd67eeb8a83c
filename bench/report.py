"""Results as a table for the terminal, and as a page with the machine, the versions and the command
beside the figures."""

import datetime
import os
import platform
import re
import statistics
import subprocess
import textwrap
from dataclasses import dataclass

from pairs import Measurement, compare

BUSY = 0.7  # At a higher load before the first run, other programmes must have been running.
HEADINGS = ("what", "ours", "peer", "ours, ms", "peer, ms", "CPU ms, ours / peer", "peer / ours",
            "95 %", "best / best")


@dataclass(frozen=True)
class Row:
    what: str
    our_name: str
    ours: list[Measurement]
    peer_name: str
    peers: list[Measurement]

    def cells(self):
        comparison = compare(self.ours, self.peers)
        return (self.what, self.our_name, self.peer_name,
                in_ms(median_of(self.ours)), in_ms(median_of(self.peers)),
                f"{cpu_of(self.ours)} / {cpu_of(self.peers)}",
                f"{comparison.ratio:.2f}", f"{comparison.low:.2f} to {comparison.high:.2f}",
                f"{comparison.ratio_of_bests:.2f}")


@dataclass(frozen=True)
class Section:
    """A section's rows are comparisons (Row), or tuples of cells under headings of its own."""

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
    """Returns the section's rows under their headings, as cells of equal width."""
    lines = [section.headings]
    lines += [row.cells() if isinstance(row, Row) else row for row in section.rows]
    columns = range(len(section.headings))
    widths = [max(len(line[column]) for line in lines) for column in columns]
    return [[cell.ljust(width) for cell, width in zip(line, widths)] for line in lines]


def table(section):
    lines = ["  ".join(line).rstrip() for line in aligned(section)]
    return "\n".join([f"\n{section.title}. {section.note}", *lines])


def wrapped(text, indent=""):
    """Returns the text with lines of at most 99 characters; blank lines part its paragraphs."""
    return "\n\n".join(textwrap.fill(paragraph, 99, subsequent_indent=indent,
                                     break_long_words=False, break_on_hyphens=False)
                       for paragraph in text.split("\n\n"))


def markdown_section(section, origin):
    heading, *lines = (f"| {' | '.join(line)} |" for line in aligned(section))
    rule = "|---" * len(section.headings) + "|"
    return "\n".join([f"## {section.title}", wrapped(section.note), "", wrapped(origin), "",
                      heading, rule, *lines])


def markdown(sections, order, page, command, rounds, load, trireme, python):
    """Returns `page` with these sections instead of those with the same titles. Sections of another
    machine or other versions say so. `load` is that of the machine before the first run."""
    origin = f"Measured on {datetime.date.today().isoformat()} by `{command}`; {rounds} rounds."
    if load > BUSY:
        origin += (f" Other programmes kept the machine busy (load {load:.1f}): trust the ratios "
                   "more than the times, and neither much.")
    head = HEAD.format(machine=wrapped(f"- Machine: {machine()}", "  "),
                       versions=wrapped(f"- Versions: {versions(trireme, python)}", "  "))
    former, *parts = page.split("\n## ")
    texts = {text.split("\n", 1)[0]: f"## {text.strip()}" for text in parts}
    if former.strip() != head.strip():
        texts = {title: with_machine(text, former) for title, text in texts.items()}
    texts |= {section.title: markdown_section(section, origin) for section in sections}
    return head + "\n\n".join(texts[title] for title in order if title in texts) + "\n"


ELSEWHERE = "It was another machine, or other versions:"


def with_machine(text, head):
    """Returns a section with the machine that the head of its page names, unless it has one."""
    facts = [line.removeprefix("- ") for line in
             re.sub(r"\n  +", " ", head).splitlines() if re.match(r"- (Machine|Versions): ", line)]
    if ELSEWHERE in text.replace("\n", " ") or len(facts) != 2:
        return text
    note = wrapped(f"{ELSEWHERE} {' '.join(f'{fact}.' for fact in facts)}")
    # The paragraph that tells the origin comes before the table.
    return re.sub(r"\n\n\| ", f"\n\n{note}\n\n| ", text, count=1)


def machine():
    facts = dict(line.split(":", 1) for line in output_of("lscpu").splitlines() if ":" in line)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    hypervisor = facts.get("Hypervisor vendor", "").strip()
    virtual = f", virtual ({hypervisor})" if hypervisor else ""
    model = facts["Model name"].strip()
    kernel = platform.release().split("-")[0]
    generation = platform.machine()
    if "CPU family" in facts:
        generation = f"family {facts['CPU family'].strip()}, model {facts['Model'].strip()}"
    return (f"{model} ({generation}), {os.cpu_count()} cores{virtual}, {memory:.0f} GiB of memory, "
            f"{platform.system()} {kernel}")


def versions(trireme, python):
    torch = output_of(python, "-c", "import torch; print(torch.__version__)")
    compiler = output_of("c++", "--version").splitlines()[0]
    return (f"Trireme {output_of(trireme, '--version')}, PyTorch and LibTorch {torch}, {compiler}, "
            f"Python {output_of(python, '--version').split()[-1]}")


def output_of(*command):
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


HEAD = """\
# Benchmarks

Trireme beside PyTorch, TensorFlow and OpenMPI. `make bench` repeats all measurements, and
`bench/run.py PART --write` repeats one part. That script writes this page.

{machine}
{versions}

There are two ranks with one thread each, unless a section says otherwise. Every comparison ran its
contenders in turn, round by round. Milliseconds are the median over the rounds of rank 0's median;
CPU milliseconds are those of all ranks. `peer / ours` is the median of the rounds' ratios: above 1
Trireme is faster. `95 %` is its bootstrap interval, and `best / best` compares the best repetition
of each side. If the interval contains 1, the measurement shows no difference.

"""
