#!/usr/bin/env python3
"""Prints a header as Doxygen should read it: its plain comments become documentation.

A comment on lines of its own belongs to what follows, and one behind code belongs to that code.
Doxygen 1.9 and Sphinx do not read the clause `requires` of templates, so it is left out.
"""
import re
import sys

SPECIAL = re.compile(r"([\\@<>&#$%\"])")


def escaped(comment):
    return SPECIAL.sub(r"\\\1", comment)


def filtered(text):
    text = re.sub(r"^([^\n/]*)/\*(?!\*)(.*?)\*/", block, text, flags=re.DOTALL | re.MULTILINE)
    lines, comment = [], []
    for line in text.splitlines():
        found = re.match(r"\s*//( ?.*)$", line)
        if found:
            comment.append(found[1].removeprefix(" "))
            continue
        # The first comment of a header is about the header.
        lines += documentation((["\\file", ""] if not lines else []) + comment)
        comment = []
        found = re.match(r"(.*[;,{}()\w])\s+// (.*)$", line)
        if found and '"' not in found[1] and not found[2].startswith("namespace "):
            line = f"{found[1]}  ///< {escaped(found[2])}"
        elif re.match(r"\s+requires\(.*\)$|\s+requires std::\S+<.*>$", line):
            line = ""
        lines.append(line)
    return "\n".join(lines) + "\n"


def documentation(comment):
    """A comment as documentation. Its indented lines are programmes."""
    lines, inside = [], False
    for line in comment:
        if line.startswith("  ") != inside and line:
            inside = not inside
            lines.append("\\verbatim" if inside else "\\endverbatim")
        lines.append(line if inside or line == "\\file" else escaped(line))
    if inside:
        lines.append("\\endverbatim")
    return [f"/// {line}" for line in lines]


def block(found):
    """A comment of C as lines, so that one rule serves for both languages."""
    text = [re.sub(r"^\* ?", "", part.strip()) for part in found[2].strip().splitlines()]
    return found[1] + "\n".join(f"// {part}" for part in text)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print(filtered(header.read()), end="")
