#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy) over the sources that include no torch. For the others clang takes
half a minute each.

  lint.py BUILD [JOBS]   BUILD is a configured build folder. Files that passed are remembered in
                         BUILD/lint by the hash of the source, of our headers that it includes,
                         and of the checks.
Exits with 1 if a file has findings.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import check_rooms

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The build uses GCC's language. Clang does not know all its warnings, finds deprecated parts in
# its library, and must be told that it has coroutines.
EXTRA = ("-Wno-unknown-warning-option", "-Wno-deprecated-declarations", "-DASIO_HAS_CO_AWAIT",
         "-DASIO_HAS_STD_COROUTINE")
ARGUMENTS = ["--quiet", *(f"--extra-arg={argument}" for argument in EXTRA)]


def inputs_of(file, seen):
    """Returns `file` and our headers that it includes, directly or not."""
    if file not in seen and file.exists():
        seen.add(file)
        for _, path in check_rooms.includes(file):
            if path.startswith("trireme/"):
                inputs_of(ROOT / path, seen)
    return seen


def digest_of(file):
    digest = hashlib.sha256(" ".join(ARGUMENTS).encode())
    for path in [ROOT / ".clang-tidy", *sorted(inputs_of(file, set()))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def lint(file, build):
    """Returns an empty text if `file` has no findings."""
    stamp = build / "lint" / f"{file.relative_to(ROOT)}.passed"
    digest = digest_of(file)
    if stamp.exists() and stamp.read_text() == digest:
        return ""
    done = subprocess.run([ROOT / ".venv/bin/clang-tidy", "-p", build, *ARGUMENTS, file], cwd=ROOT,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        return done.stdout or done.stderr
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(digest)
    return ""


def main(build, jobs=os.cpu_count()):
    # A library that this machine cannot build is left out (records/arrow without Apache Arrow).
    commands = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    folders = {pathlib.Path(entry["file"]).parent for entry in commands}
    sources = [file for file in sorted(check_rooms.light_files(ROOT, check_rooms.sources_of(ROOT)))
               if file.suffix == ".cc" and file.parent in folders]
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        findings = [text for text in pool.map(lambda file: lint(file,
                                                                pathlib.Path(build).resolve()),
                                              sources) if text]
    print(*findings, sep="\n", end="")
    print(f"lint: {len(sources)} files, {len(findings)} with findings")
    return 1 if findings or not sources else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
