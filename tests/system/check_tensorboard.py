"""Opens a folder with TensorBoard's own reader and checks that it holds the expected scalars.

Usage: check_tensorboard.py FOLDER TAG...    TAG can be TAG=COUNT, with the number of its points
Needs the Python package tensorboard. Prints each tag with its first and last point. Exits with 1
and names the missing tags if there are any.
"""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def read_scalars(folder):
    """Returns {tag: [(step, value), ...]} of every scalar in the folder, ordered by step."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]}


def problems_of(scalars, expected):
    """Returns one sentence for each of `expected` (TAG or TAG=COUNT) that is not fulfilled."""
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
        print(f"{tag}: {len(points)} points, step {first_step}: {first:g} .. "
              f"step {last_step}: {last:g}")
    problems = problems_of(scalars, expected)
    for problem in problems:
        print(f"check_tensorboard: {folder}: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
