#!/usr/bin/env python3
"""Learns with parameter servers, in each consistency and with one slow worker, and draws accuracy
and loss against epochs and against time.

  bench/learning.py                       digits, which ship with Trireme
  bench/learning.py mnist --data FOLDER   MNIST, from its four IDX files in FOLDER
  bench/learning.py --write               writes the figures to docs/images

Each job has one server. Worker 1 of the jobs with more than one worker is slow. Numbers are means
over the seeds, and the bands of the figures go from the worst to the best seed. Nothing else should
run on the machine.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from contenders import ONE_THREAD, ROOT, TRIREME, progress
from line_charts import Line, Panel, draw

TIMEOUT_S = 300  # The limit for one run.
# The name in figures -> the keys that are set.
MODES = {"BSP": {"ps.consistency": "sync"},
         "SSP, bound 1": {"ps.consistency": "stale", "ps.staleness": 1},
         "SSP, bound 4": {"ps.consistency": "stale", "ps.staleness": 4},
         "async": {"ps.consistency": "async"}}
ALONE = "1 worker"
FILES = {"data.images": "train-images", "data.labels": "train-labels",
         "data.test_images": "test-images", "data.test_labels": "test-labels"}
# All modes get the same rate, which does not change, and no momentum: momentum adds to staleness.
COMMON = {"strategy.name": "parameter_server", "model.name": "mlp", "optimizer.name": "sgd",
          "optimizer.momentum": 0, "schedule.name": "constant", "data.batch": 64,
          "train.evaluate_every": 1}


@dataclass(frozen=True)
class Task:
    name: str
    config: tuple  # The words for the configuration file, if there is one.
    keys: dict
    epochs: int
    target: float  # The accuracy that a run should reach.


@dataclass(frozen=True)
class Curve:
    """One value for each epoch."""

    seconds: list  # Since the first step could begin.
    accuracy: list
    loss: list


def digits():
    return Task("digits", (ROOT / "examples/digits.yaml",),
                {"model.hidden": "[64]", "optimizer.lr": 0.3}, epochs=30, target=0.9)


def mnist(folder):
    found = {}
    for key, part in FILES.items():
        files = sorted(folder.glob(f"*{part}*")) or sorted(
            folder.glob(f"*{part.replace('test', 't10k')}*"))
        if not files:
            sys.exit(f"learning: no file in {folder} has {part} in its name; "
                     "try: --data with a folder that has MNIST's four IDX files")
        found[key] = files[0]
    return Task("mnist", (), {"data.name": "idx", **found, "model.hidden": "[128]",
                              "optimizer.lr": 0.2}, epochs=6, target=0.9)


def run(task, mode, workers, seed, arguments):
    """Returns the Curve of one job."""
    with tempfile.TemporaryDirectory() as folder:
        keys = {**COMMON, **task.keys, **mode, "train.epochs": arguments.epochs or task.epochs,
                "train.seed": seed, "run.dir": f"{folder}/run"}
        words = [TRIREME, "train", *task.config, "--ps", 1, "--workers", workers, "--quiet"]
        for key, value in keys.items():
            words += ["--set", f"{key}={value}"]
        if workers > 1:
            words += ["--inject", f"slow:rank=1,{arguments.slow}"]
        words = [str(word) for word in words]
        try:
            subprocess.run(words, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True,
                           timeout=TIMEOUT_S, check=True)
        except subprocess.TimeoutExpired:
            sys.exit(f"learning: not finished after {TIMEOUT_S} s: {' '.join(words)}")
        except subprocess.CalledProcessError as failure:
            sys.exit(f"learning: exit code {failure.returncode}: {' '.join(words)}\n"
                     f"{failure.stderr}")
        return curve_in(pathlib.Path(folder, "run/log.jsonl").read_text())


def curve_in(log):
    events = [json.loads(line) for line in log.splitlines()]
    begin = next(event["time"] for event in events if event["event"] == "start")
    evals = [event for event in events if event["event"] == "eval"]
    return Curve([event["time"] - begin for event in evals],
                 [event["accuracy"] for event in evals], [event["loss"] for event in evals])


def measure(task, arguments):
    """Returns {workers: {name: the Curves of all seeds}}. The seeds are the outer loop, so that a
    slow minute of the machine affects all modes."""
    found = {workers: {name: [] for name in (MODES if workers > 1 else [ALONE])}
             for workers in arguments.workers}
    for seed in range(1, arguments.seeds + 1):
        for workers, curves in found.items():
            for name in curves:
                progress(f"{task.name}, {workers} workers, {name}, seed {seed}")
                mode = MODES.get(name, MODES["BSP"])
                curves[name].append(run(task, mode, workers, seed, arguments))
    return found


def line(name, curves, against, measured):
    columns = [*zip(*(getattr(curve, measured) for curve in curves), strict=True)]
    if against == "epochs":
        x = list(range(1, len(columns) + 1))
    else:
        x = [statistics.mean(times) for times in zip(*(c.seconds for c in curves), strict=True)]
    return Line(name, x, [statistics.mean(values) for values in columns],
                [min(values) for values in columns], [max(values) for values in columns])


def figure(task, workers, curves):
    labels = {"epochs": "epochs", "seconds": "seconds", "accuracy": "held-out accuracy",
              "loss": "held-out loss"}
    return draw([Panel(f"{task.name}, {workers} workers, one slow", labels[against],
                       labels[measured],
                       [line(name, each, against, measured) for name, each in curves.items()])
                 for measured in ("accuracy", "loss") for against in ("epochs", "seconds")])


def to_target(curve, target):
    """Returns (epochs, seconds) of the first evaluation that reaches `target`, or None."""
    for number, accuracy in enumerate(curve.accuracy):
        if accuracy >= target:
            return number + 1, curve.seconds[number]
    return None


def table(task, found):
    epochs = len(next(iter(next(iter(found.values())).values()))[0].accuracy)
    yield (f"| {task.name} | seconds for {epochs} epochs | accuracy after {max(1, epochs // 4)} "
           f"| after {epochs} | epochs to {task.target:.0%} | seconds to {task.target:.0%} |")
    yield "|---|---|---|---|---|---|"
    for workers, curves in found.items():
        for name, each in curves.items():
            reached = [to_target(curve, task.target) for curve in each]
            means = ["{:.1f}".format(statistics.mean(pair[part] for pair in reached))
                     if None not in reached else "not by all seeds" for part in (0, 1)]
            early, late = (100 * statistics.mean(curve.accuracy[number - 1] for curve in each)
                           for number in (max(1, epochs // 4), epochs))
            who = name if name == ALONE else f"{workers} workers, {name}"
            yield (f"| {who} | {statistics.mean(curve.seconds[-1] for curve in each):.1f} "
                   f"| {early:.1f} % | {late:.1f} % | {means[0]} | {means[1]} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", default=["digits"],
                        help="digits, mnist (default: digits)")
    parser.add_argument("--data", type=pathlib.Path, metavar="FOLDER",
                        help="the folder with MNIST's four IDX files")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], metavar="N",
                        help="numbers of workers (default: 1 2 4)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each job (default: 3)")
    parser.add_argument("--epochs", type=int, help="epochs of each run (default: by data set)")
    parser.add_argument("--slow", default="forward=100ms,percent=20", metavar="RULE",
                        help="how worker 1 is slow, as in --inject (default: %(default)s)")
    parser.add_argument("--figures", type=pathlib.Path, metavar="FOLDER",
                        help="write the figures, and all curves as learning.json, to FOLDER")
    parser.add_argument("--write", action="store_true", help="write the figures to docs/images")
    arguments = parser.parse_args()
    if unknown := set(arguments.tasks) - {"digits", "mnist"}:
        parser.error(f"unknown task {', '.join(unknown)}; known: digits, mnist")
    if "mnist" in arguments.tasks and not arguments.data:
        parser.error("mnist needs --data, the folder with MNIST's four IDX files")
    for name in ("seeds", "epochs"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            parser.error(f"--{name} is {value}; it must be 1 or more")
    if min(arguments.workers) < 1:
        parser.error(f"--workers has {min(arguments.workers)}; each number must be 1 or more")
    if not TRIREME.exists():
        sys.exit(f"learning: {TRIREME} is missing; try: make build")
    tasks = [digits() if name == "digits" else mnist(arguments.data) for name in arguments.tasks]
    folders = [folder for folder in (arguments.figures, arguments.write and ROOT / "docs/images")
               if folder]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)

    curves = {}
    for task in tasks:
        found = measure(task, arguments)
        print("\n".join(table(task, found)), flush=True)
        alone = found.get(1, {})
        for workers in found.keys() - {1}:
            text = figure(task, workers, {**alone, **found[workers]})
            for folder in folders:
                (folder / f"learning_{task.name}_{workers}.svg").write_text(text)
        curves[task.name] = {
            workers: {name: [vars(curve) for curve in each] for name, each in modes.items()}
            for workers, modes in found.items()}
    if arguments.figures:
        (arguments.figures / "learning.json").write_text(json.dumps(curves))


if __name__ == "__main__":
    main()
