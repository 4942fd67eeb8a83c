"""The part of the suite in which activations need several times the memory that they may take."""

import functools
import tempfile

from contenders import (KEEP_MEMORY, PEER, PYTHON, ROOT, TRIREME, measurement_of_our_step,
                        measurement_of_peer, progress, run)
from pairs import compare, interleave
from report import Row, Section

# Model -> samples of a batch. Their activations take at least ten times a block's.
BATCHES = {"gptdeep": 8, "chain": 1024}
SHARE = 4  # The budget is this part of the activations.


def our_figures(model, steps, *words):
    return run([TRIREME, "bench", "step", "--model", model, "--batch", BATCHES[model],
                "--workers", 1, "--steps", steps, "--json", *words])


def our_step(*arguments):
    return measurement_of_our_step(our_figures(*arguments))


def torch_step(model, kind, steps):
    words = [PYTHON, PEER, "memory", "--model", model, "--kind", kind, "--ranks", 1,
             "--batch", BATCHES[model], "--steps", steps]
    return measurement_of_peer(run(words, KEEP_MEMORY))


def rows_of_memory(model, rounds, steps, folder):
    # Everything is kept under a budget that nothing exceeds.
    all_bytes = our_figures(model, 1, "--memory-policy", "auto", "--memory-budget",
                            1 << 40)["activation_bytes"]["measured"]
    budget = all_bytes // SHARE
    policies = {"recompute": ["--memory-policy", "recompute", "--memory-budget", budget],
                "swap": ["--memory-policy", "swap", "--memory-budget", budget, "--swap-dir",
                         folder]}
    predicted = {}
    for name, words in policies.items():
        figures = our_figures(model, 1, *words)
        held = figures["activation_bytes"]
        predicted[name] = (figures["predicted_slowdown"], held["measured"] / budget,
                           held["predicted"] / held["measured"])
    contenders = {"ours, all kept": functools.partial(our_step, model, steps)}
    contenders |= {f"ours, {name}": functools.partial(our_step, model, steps, *words)
                   for name, words in policies.items()}
    contenders |= {"torch, all kept": functools.partial(torch_step, model, "plain", steps),
                   "torch.utils.checkpoint": functools.partial(torch_step, model, "checkpoint",
                                                               steps)}
    progress(f"memory of {model}: {all_bytes / 1e6:.0f} MB, budget {budget / 1e6:.0f} MB")
    taken = interleave(contenders, rounds, progress)
    what = f"{model}, {all_bytes / 1e6:.0f} MB in {budget / 1e6:.0f} MB"
    pairs = [("ours, recompute", "ours, all kept"), ("ours, swap", "ours, all kept"),
             ("ours, recompute", "torch.utils.checkpoint"),
             ("ours, all kept", "torch, all kept")]
    rows = [Row(what, mine, taken[mine], peer, taken[peer]) for mine, peer in pairs]
    return rows, summary_of(model, predicted, rows)


def summary_of(model, predicted, rows):
    texts = []
    for row in rows[:2]:
        name = row.our_name.removeprefix("ours, ")
        slowdown, held, accuracy = predicted[name]
        texts.append(f"{name} {1 / compare(row.ours, row.peers).ratio:.2f}x the time "
                     f"({slowdown:.2f}x is predicted for the blocks), {held:.2f} of the budget "
                     f"held, predicted bytes {accuracy:.2f} of the measured ones")
    return f"{model}: {'; '.join(texts)}."


def measure_memory(models, rounds, steps):
    rows, summaries = [], []
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        for model in models:
            made, summary = rows_of_memory(model, rounds, steps[model], folder)
            rows += made
            summaries.append(summary)
    note = (f"Steps of one process whose activations need {SHARE}x their budget, with SGD and "
            "momentum. Recompute and swap keep the budget; swap writes to a file on the disk of "
            "the checkout. torch.utils.checkpoint recomputes every block (without re-entrance), "
            "and knows no budget; it has no counterpart of a swap from a CPU.")
    return Section("Memory", f"{note}\n\n" + "\n\n".join(summaries), rows)
