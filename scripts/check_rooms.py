#!/usr/bin/env python3
"""Checks that a room includes only rooms above it, and that torch stays where it belongs.

The order is docs/architecture.md's. Light rooms (and the PLAIN files of the others, see
CMakeLists.txt) include no torch, neither themselves nor through a header of ours. No header
includes torch/torch.h, which is slow to parse. Prints one line for each breach and exits with 1 if
there is any.

  check_rooms.py [FOLDER]   check the source tree FOLDER (default: this one)
"""
import pathlib
import re
import sys

ORDER = ["base", "config", "plan", "monitor", "net", "watch", "membership", "checkpoint", "faults",
         "records", "comm", "tensor", "images", "data", "parallel", "train", "models", "launch",
         "run", "capi", "cli"]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")


def includes(file):
    """Yields (line number, included path) of every include in `file`."""
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def light_files(root, sources):
    """Returns the sources that must stay without torch: those of light rooms and of the light
    programme, and the files that CMake lists as PLAIN."""
    rooms = (root / "CMakeLists.txt").read_text()
    light = set()
    for room, options in re.findall(r"^trireme_room\((\w+)([^)]*)\)", rooms, re.M):
        folder = root / "trireme" / room
        if "TORCH" not in options.split():
            light.update(file for file in sources if folder in file.parents)
        plain = re.search(r"PLAIN((?:\s+[\w/*]+\.cc)+)", options)
        if plain:
            for name in plain.group(1).split():
                light.update(folder.glob(name) if "*" in name else [folder / name])
    # The programme `trireme` is light. The folders in cli/ are those of the other programmes.
    light.update(file for file in sources if file.parent == root / "trireme/cli")
    return light


def path_to_torch(file, root, known):
    """Returns the chain of includes by which `file` reaches torch, or an empty list."""
    if file in known:
        return known[file]
    known[file] = []
    for _, path in includes(file):
        if TORCH.match(path):
            known[file] = [path]
            break
        header = root / path
        if path.startswith("trireme/") and header.exists():
            chain = path_to_torch(header, root, known)
            if chain:
                known[file] = [path, *chain]
                break
    return known[file]


def sources_of(root):
    return sorted(file for file in (root / "trireme").rglob("*") if file.suffix in (".h", ".cc"))


def check(root):
    sources = sources_of(root)
    breaches = []
    for file in sources:
        name = file.relative_to(root)
        # trireme/trireme.h belongs to no room: it includes all of them.
        room = name.parts[1] if len(name.parts) > 2 else None
        if room and room not in ORDER:
            breaches.append(f"{name}: room '{room}' has no place in the order: {' '.join(ORDER)}")
            continue
        for number, path in includes(file):
            where = f"{name}:{number}"
            if file.suffix == ".h" and path == "torch/torch.h":
                breaches.append(f"{where}: a header includes torch/torch.h; include the part it "
                                "needs, such as ATen/core/Tensor.h")
            parts = path.split("/")
            if parts[0] != "trireme":
                continue
            if not (root / path).exists():
                breaches.append(f"{where}: {path} does not exist")
            elif room and (len(parts) == 2 or ORDER.index(parts[1]) > ORDER.index(room)):
                breaches.append(f"{where}: room '{room}' includes {path}, which stands below it; "
                                "a room includes only rooms above it")
    known = {}
    for file in sorted(light_files(root, sources)):
        chain = path_to_torch(file, root, known) if file.exists() else []
        if chain:
            breaches.append(f"{file.relative_to(root)}: must stay without torch, but includes "
                            + " -> ".join(chain))
    return len(sources), breaches


def main(arguments):
    here = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(arguments[0]).resolve() if arguments else here
    count, breaches = check(root)
    for breach in breaches:
        print(breach)
    print(f"rooms: {count} files, {len(breaches)} breaches of the order")
    return 0 if count and not breaches else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
