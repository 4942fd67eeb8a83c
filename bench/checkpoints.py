"""The part `checkpoint`: what a save costs, how soon it is durable, and how long loading takes, beside torch.save and Python's safetensors."""

import pathlib
import statistics
import subprocess
import sys
import tempfile

from contenders import PYTHON, TIMEOUT_S, TRIREME, object_in, progress, run
from report import Section

MODEL_MB = 100

# What Python does with as many bytes, one thread as everywhere in the suite.
PEER = """
import json, os, pathlib, statistics, sys, time, torch
from safetensors.torch import load_model, save_file
folder, megabytes, repeats = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(os.cpu_count())
size = 3 * megabytes * 250_000 // 36
model = torch.nn.ParameterDict({f"t{i}": torch.nn.Parameter(torch.randn(size)) for i in range(36)})
def median(action):
    taken = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        action()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken[1:])
state = {name: value.detach() for name, value in model.state_dict().items()}
save_file(state, folder / "m.safetensors")
print(json.dumps({"torch_save_ms": median(lambda: torch.save(state, folder / "m.pt")),
                  "load_ms": median(lambda: load_model(model, folder / "m.safetensors"))}))
"""


def peer(folder, repeats):
    words = [str(PYTHON), "-c", PEER, str(folder), str(MODEL_MB), str(repeats)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"bench: {done.stderr}")
    return object_in(done.stdout)


def measure_checkpoints(rounds):
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        for i in range(rounds):
            progress(f"checkpoint, round {i + 1}")
            ours.append(run([TRIREME, "bench", "checkpoint", "--model-mb", MODEL_MB, "--repeats", 3, "--folder", folder, "--json"]))
            theirs.append(peer(pathlib.Path(folder), 5))

    def row(what, mine, name, other):
        ratio = statistics.median(a / b for a, b in zip(mine, other))
        return (what, f"{statistics.median(mine):.0f}", name, f"{statistics.median(other):.0f}", f"{ratio:.2f}")

    def figures(of, key):
        return [each[key] for each in of]

    rows = [row("added by a save", figures(ours, "added_ms"), "copy in memory", figures(ours, "copy_ms")),
            row("added by a save", figures(ours, "added_ms"), "torch.save", figures(theirs, "torch_save_ms")),
            row("blocked by a save", figures(ours, "blocking_ms"), "copy in memory", figures(ours, "copy_ms")),
            row("durable after", figures(ours, "durable_ms"), "write and fsync", figures(ours, "raw_write_ms")),
            row("load, warm", figures(ours, "load_ms"), "Python's safetensors", figures(theirs, "load_ms"))]
    note = (f"{MODEL_MB} MB of parameters and {2 * MODEL_MB} MB of optimizer state. Added: to arithmetic on every core, until it is durable. "
            "torch.save does not sync. Ours verifies the hashes when it loads. Ratio: ours / peer, below 1 Trireme is faster.")
    return Section("Checkpoints", note, rows, headings=("what", "ours, ms", "peer", "peer, ms", "ours / peer"))
