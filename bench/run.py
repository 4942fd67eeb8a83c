#!/usr/bin/env python3
"""Measures Trireme beside its peers on this machine, with ranks of one thread each.

  bench/run.py                            the whole suite
  bench/run.py step --model mlp --model gpt
                                          only training steps, of these models (resnet18, which is
                                          slow, runs only on request)
  bench/run.py noise startup collectives  only these parts
  bench/run.py links --write              all_reduce over shaped links; writes the section of
                                          docs/benchmarks.md
  bench/run.py build --commit v0.1.0 --commit HEAD
                                          fresh builds of two commits (minutes to an hour each, so
                                          this part runs only on request)

Every part runs its contenders in turn, round by round, and compares the ratios peer / ours of the
rounds: above 1 Trireme is faster. Nothing else should run on the machine. The suite needs
build/bin/trireme, and the Python of the virtual environment (with torch). The row beside TensorFlow
needs TensorFlow in an environment of its own, and says how to get it. The parts links, compression
and shards make network namespaces and remove them; without the permission they say so and are
skipped.
"""

import argparse
import os
import signal
import sys
import time

from build import known_commit, measure_build
from checkpoints import measure_checkpoints
from contenders import PYTHON, ROOT, TRIREME, progress
from divided import MICROBATCHES, measure_pipelines, measure_shards
from input_memory import measure_input_memory
from input_scale import measure_input_scale
from input_tuning import measure_input_tuning
from inputs import measure_inputs
from links import measure_compression, measure_compression_loss, measure_links
from memory import BATCHES, measure_memory
from parts import (FEWEST_ROUNDS, measure_collectives, measure_noise, measure_requests,
                   measure_scale, measure_servers, measure_startup, measure_steps)
from record_inputs import measure_formats
from recovery import measure_recovery
from report import markdown, table
from server_jobs import SERVER_JOBS, measure_server_jobs
from tables import measure_tables

PAGE = ROOT / "docs/benchmarks.md"
# Part -> the title of its section. The page has the sections in this order.
PARTS = {"noise": "Noise", "step": "Training step", "scale": "Scale",
         "input": "Input", "input-tuning": "Input that is tuned or cached",
         "input-formats": "Input from each format", "input-scale": "Input at scale",
         "input-memory": "Memory of input",
         "pipeline": "Pipelines", "shards": "Shards", "memory": "Memory",
         "startup": "Start",
         "checkpoint": "Checkpoints", "recovery": "Recovery", "collectives": "all_reduce",
         "requests": "Requests", "servers": "Parameter servers",
         "server-jobs": "Jobs with parameter servers", "tables": "Sparse tables",
         "links": "Links between hosts",
         "compression": "Compression on a slow link", "compression-loss": "Loss with compression",
         "build": "Build"}
PARTS_ON_DEMAND = ("build",)
MODELS = ("tiny", "mlp", "mlpbig", "cnn", "gpt")
ON_DEMAND = ("resnet18", "chain", "gptdeep")
# A step of resnet18 takes seconds; chain is for pipelines, and gptdeep for memory.
# Each takes 2 seconds or less, except resnet18 and mlp job.
REPETITIONS = {"tiny": 200, "mlp": 40, "mlpbig": 10, "cnn": 20, "gpt": 4, "chain": 5, "gptdeep": 3,
               "resnet18": 3, "4 KB": 1000, "1 MB": 300, "25 MB": 40, "100 MB": 10, "slow link": 8,
               "table": 100, "server job": 100, "mlp job": 300}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help=f"{', '.join(PARTS)} (default: all but build)")
    parser.add_argument("--model", action="append", choices=MODELS + ON_DEMAND,
                        help="a model for the parts step, scale, pipeline (chain, gpt), memory and "
                             "server-jobs (cnn, mlp); may be repeated (default: all but resnet18; "
                             "scale: mlp)")
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS,
                        help=f"rounds of each comparison (default: {FEWEST_ROUNDS})")
    parser.add_argument("--steps", type=int,
                        help="repetitions in each run (default: as many as take about 2 seconds)")
    parser.add_argument("--commit", action="append", default=[],
                        help="a commit for the part build; may be repeated (default: HEAD)")
    parser.add_argument("--write", action="store_true",
                        help="write the sections to docs/benchmarks.md")
    arguments = parser.parse_args()
    parts = arguments.parts or [part for part in PARTS if part not in PARTS_ON_DEMAND]
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(unknown)}; known: {', '.join(PARTS)}")
    if arguments.rounds < 1 or (arguments.steps is not None and arguments.steps < 1):
        parser.error("--rounds and --steps must be 1 or more")
    commits = {name: known_commit(name) for name in arguments.commit or ["HEAD"]}
    if unknown := [name for name, commit in commits.items() if not commit]:
        parser.error(f"not a commit of this repository: {', '.join(unknown)}")
    for needed in (TRIREME, PYTHON):
        if not needed.exists():
            sys.exit(f"bench: {needed} is missing; try: make build")
    # The exception lets the parts remove everything that they made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: ended by SIGTERM"))

    rounds = arguments.rounds
    steps = dict.fromkeys(REPETITIONS, arguments.steps) if arguments.steps else REPETITIONS
    measure = {
        "noise": lambda: measure_noise(rounds, steps),
        "step": lambda: measure_steps(arguments.model or MODELS, rounds, steps),
        "scale": lambda: measure_scale(arguments.model or ["mlp"], rounds, steps),
        "input": lambda: measure_inputs(rounds),
        "input-tuning": lambda: measure_input_tuning(rounds),
        "input-formats": lambda: measure_formats(rounds),
        "input-scale": lambda: measure_input_scale(rounds),
        "input-memory": lambda: measure_input_memory(rounds),
        "pipeline": lambda: measure_pipelines(
            [name for name in arguments.model or MICROBATCHES if name in MICROBATCHES], rounds,
            steps),
        "shards": lambda: measure_shards(rounds, steps),
        "memory": lambda: measure_memory(
            [name for name in arguments.model or BATCHES if name in BATCHES], rounds, steps),
        "startup": lambda: measure_startup(rounds),
        "checkpoint": lambda: measure_checkpoints(rounds),
        "recovery": lambda: measure_recovery(rounds),
        "collectives": lambda: measure_collectives(rounds, steps),
        "requests": lambda: measure_requests(rounds, steps),
        "servers": lambda: measure_servers(rounds, steps),
        "server-jobs": lambda: measure_server_jobs(
            [name for name in arguments.model or SERVER_JOBS if name in SERVER_JOBS], rounds,
            steps),
        "tables": lambda: measure_tables(rounds, steps),
        "links": lambda: measure_links(rounds, steps),
        "compression": lambda: measure_compression("mlp", rounds, steps["slow link"]),
        "compression-loss": measure_compression_loss,
        "build": lambda: measure_build(commits.values()),
    }
    load = os.getloadavg()[0]
    started = time.monotonic()
    sections = []
    for part in PARTS:
        if part in parts and (section := measure[part]()):
            sections.append(section)
            print(table(section), flush=True)
    progress(f"{time.monotonic() - started:.0f} s in all")
    if arguments.write and sections:
        command = " ".join(["bench/run.py", *sys.argv[1:]])
        page = PAGE.read_text() if PAGE.exists() else ""
        PAGE.write_text(markdown(sections, PARTS.values(), page, command, rounds, load, TRIREME,
                                 PYTHON))


if __name__ == "__main__":
    main()
