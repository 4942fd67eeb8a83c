"""Opens a TensorBoard folder with TensorBoard's own reader and checks that it holds the expected scalars.

Usage: check_tensorboard.py FOLDER TAG...      a tag may be TAG=COUNT, the number of points it must have
Needs the Python package tensorboard. Prints each tag with its first and last point; exits 1 naming what is missing.
"""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def read_scalars(folder):
    """{tag: [(step, value), ...]} of every scalar in the folder, in the order of their steps."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def problems_of(scalars, expected):
    """What of `expected` (tags, or TAG=COUNT) the scalars do not fulfil, one sentence each."""
    problems = []
    for wanted in expected:
        tag, _, count = wanted.partition("=")
        if tag not in scalars:
            problems.append(f"no scalar '{tag}'; there are {sorted(scalars)}")
        elif count and len(scalars[tag]) != int(count):
            problems.append(f"scalar '{tag}' has {len(scalars[tag])} points, expected {count}")
    return problems


def main(folder, *expected):
    scalars = read_scalars(folder)
    for tag, points in sorted(scalars.items()):
        (first_step, first), (last_step, last) = points[0], points[-1]
        print(f"{tag}: {len(points)} points, step {first_step}: {first:g} .. step {last_step}: {last:g}")
    problems = problems_of(scalars, expected)
    for problem in problems:
        print(f"check_tensorboard: {folder}: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
