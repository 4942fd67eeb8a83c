"""Data-parallel training of Python models through Trireme's exchange, and its programmes from
Python.

    import torch, trireme

    world = trireme.join()                      # finds this process's place in its job
    model = Net()
    trireme.distribute(world, model)            # after backward() every .grad is the global mean
    ...
    world.leave()

`trireme.launch(["python", "train.py"], workers=2)` starts a job; `plan()`, `read_report()` and
`read_checkpoint()` read what `trireme` writes. The library is the one beside this package or in
TRIREME_LIB, and the programme `trireme` the one in TRIREME_BIN or on the PATH.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from . import _place

_place.refuse_another_torch()

from ._library import Error
from ._place import cmake_prefix_path
from ._state import State, run_elastic
from ._world import Replica, World, distribute, join

__all__ = ["Error", "World", "join", "distribute", "Replica", "State", "run_elastic", "launch",
           "plan", "read_report", "read_checkpoint", "cmake_prefix_path"]


def _programme():
    folder = os.environ.get("TRIREME_BIN")
    places = [pathlib.Path(folder)] if folder else _place.places_of("bin")
    for place in places:
        if (place / "trireme").exists():
            return str(place / "trireme")
    found = shutil.which("trireme")
    if found is None:
        raise FileNotFoundError("the programme trireme was not found; try: TRIREME_BIN=FOLDER")
    return found


def launch(command, workers=2, elastic=None, **options):
    """Runs a command in each worker of a job, as `trireme launch` does, and returns its exit code.
    `elastic` is "MIN:MAX"; other options are those of subprocess.run."""
    words = [_programme(), "launch", "--workers", str(workers)]
    if elastic:
        words += ["--elastic", elastic]
    return subprocess.run([*words, "--", *map(str, command)], check=False, **options).returncode


def _output_of(*words):
    """What `trireme WORDS...` prints. Raises RuntimeError with its message."""
    done = subprocess.run([_programme(), *map(str, words)], check=False, capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def _path(name):
    """A path that no programme takes for an option."""
    return os.path.abspath(name)


def plan(config, *words):
    """What `trireme plan CONFIG WORDS... --json` prints."""
    return json.loads(_output_of("plan", _path(config), *words, "--json"))


def read_report(path):
    """The report of a run (docs/report.md)."""
    return json.loads(pathlib.Path(path).read_text())


def read_checkpoint(folder):
    """The manifest of the newest whole checkpoint in a folder, or of the checkpoint itself, and the
    model's tensors by name. All ranks' slices are put together, and every file is compared with its
    hash, by `trireme ckpt`: RuntimeError has its message. A copy of the model lies in the folder of
    temporary files (TMPDIR) meanwhile."""
    import torch
    found = pathlib.Path(json.loads(_output_of("ckpt", "inspect", _path(folder), "--json"))["path"])
    with tempfile.TemporaryDirectory(prefix="trireme-") as temporary:
        whole = pathlib.Path(temporary, "model.pt")
        _output_of("ckpt", "convert", found, whole)
        tensors = torch.load(whole, map_location="cpu", weights_only=True)
    return json.loads((found / "manifest.json").read_text()), dict(tensors)
