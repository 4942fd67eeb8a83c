#!/usr/bin/env python3
"""Prints docs/command_line.md from the help of each command of a built `trireme`.

  command_line.py [PROGRAM]   (default: build/bin/trireme)
"""
import pathlib
import re
import subprocess
import sys

HEAD = """# The command line

A reference of every command and option of `trireme`, for people who know what they want to run.
`scripts/command_line.py` writes this page from `trireme help`. The
[README](../README.md#the-command-line) has one line about each command, and
[configuration.md](configuration.md) has the keys for `--set`.

"""


def help_of(program, path):
    done = subprocess.run([program, "help", *path], capture_output=True, text=True, check=True,
                          timeout=60)
    return done.stdout.rstrip()


def commands(program, path=()):
    """Yields (path, help) of a command and of those below it."""
    text = help_of(program, path)
    yield path, text
    below = text.partition("Subcommands:\n")[2].partition("\n\n")[0]
    for name in re.findall(r"(?m)^  (\w[\w-]*) ", below):
        if (*path, name) != ("help",):
            yield from commands(program, (*path, name))


def page(program):
    sections = [f"## {' '.join(['trireme', *path])}\n\n```text\n{text}\n```\n"
                for path, text in commands(program)]
    return HEAD + "\n".join(sections)


if __name__ == "__main__":
    root = pathlib.Path(__file__).resolve().parents[1]
    print(page(sys.argv[1] if len(sys.argv) > 1 else str(root / "build/bin/trireme")), end="")
