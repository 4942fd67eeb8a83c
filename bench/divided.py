"""The parts of the suite in which the ranks divide a model or its state."""

import functools
import statistics

from contenders import (KEEP_MEMORY, PEER, PYTHON, TRIREME, measurement_of_our_step,
                        measurement_of_peer, progress, run)
from hosts import Hosts, NotPermitted
from pairs import compare, interleave
from report import Row, Section

STAGES = 2
MICROBATCH = {"chain": 128, "gpt": 2}  # Samples of one micro-batch.
MICROBATCHES = {"chain": (4, 8), "gpt": (8,)}
# The cuts that are tried for the peer, as blocks of the first stage and of the second.
PEER_CUTS = {"chain": ("4+5",), "gpt": ("4+4", "5+3", "6+2")}
PEER_SCHEDULES = {"1F1B": "1f1b", "zero-bubble": "zb"}
SHARDED_MODELS = ("mlpbig", "gpt")
LINK_MBIT = 1000


# ---- Pipelines ----


def our_words(model, batch, steps, path, *words):
    return [TRIREME, "bench", "step", "--model", model, "--batch", batch, "--steps", steps,
            "--path", path, "--json", *words]


def our_stages(model, microbatches, schedule, path, steps, bubbles):
    """Also adds the bubble of the run to bubbles[schedule, path], a list."""
    figures = run(our_words(model, MICROBATCH[model] * microbatches, steps, path,
                            "--workers", STAGES, "--mesh", f"pipeline={STAGES}",
                            "--schedule", schedule, "--microbatches", microbatches))
    bubbles.setdefault((schedule, path), []).append(figures["bubble"])
    return measurement_of_our_step(figures)


def one_process(model, microbatches, steps):
    return measurement_of_our_step(run(our_words(model, MICROBATCH[model] * microbatches, steps,
                                                 "threads", "--workers", 1)))


def torch_stages(model, microbatches, schedule, cut, steps):
    words = [PYTHON, PEER, "pipeline", "--model", model, "--schedule", schedule, "--ranks", STAGES,
             "--batch", MICROBATCH[model] * microbatches, "--microbatches", microbatches,
             "--cut", cut, "--steps", steps]
    return measurement_of_peer(run(words, KEEP_MEMORY))


def rows_of_pipeline(model, microbatches, rounds, steps):
    cut = min(PEER_CUTS[model],
              key=lambda cut: torch_stages(model, microbatches, "1f1b", cut, 3).best)
    bubbles = {}
    ours = {f"ours, {schedule}, {path}": functools.partial(our_stages, model, microbatches,
                                                           schedule, path, steps, bubbles)
            for schedule, path in (("1f1b", "threads"), ("zbh1", "threads"), ("1f1b", "shm"))}
    peers = {"one process": functools.partial(one_process, model, microbatches, steps)}
    peers |= {f"torch, {name}": functools.partial(torch_stages, model, microbatches, schedule, cut,
                                                  steps)
              for name, schedule in PEER_SCHEDULES.items()}
    what = f"{model}, M = {microbatches}"
    progress(f"pipeline of {what}")
    taken = interleave(ours | peers, rounds, progress)
    rows = [Row(what, mine, taken[mine], peer, taken[peer]) for mine in ours for peer in peers]
    plain, zero = "ours, 1f1b, threads", "ours, zbh1, threads"
    rows.append(Row(what, zero, taken[zero], plain, taken[plain]))
    return rows, f"{what}: {text_of_bubbles(bubbles, rows[-1])}"


def text_of_bubbles(bubbles, row):
    """Bubbles of the threads, measured and predicted, and the gain of H1 (`row`) as a share of the
    one that the predicted bubbles promise."""
    def median(schedule, kind):
        return statistics.median(bubble[kind] for bubble in bubbles[schedule, "threads"])

    texts = [f"{schedule} {median(schedule, 'measured'):.3f} ({median(schedule, 'predicted'):.3f})"
             for schedule in ("1f1b", "zbh1")]
    promised = (1 - median("zbh1", "predicted")) / (1 - median("1f1b", "predicted")) - 1
    share = (compare(row.ours, row.peers).ratio - 1) / promised
    return f"{', '.join(texts)}, and H1 gains {share:.2f} of the predicted {promised:.1%}"


def share_of_bound(row, microbatches):
    """The speed beside one process, as a fraction of what K stages reach with M micro-batches."""
    bound = STAGES * microbatches / (microbatches + STAGES - 1)
    return compare(row.ours, row.peers).ratio / bound


def measure_pipelines(models, rounds, steps):
    rows, shares, bubbles = [], [], []
    for model in models:
        for microbatches in MICROBATCHES[model]:
            made, text = rows_of_pipeline(model, microbatches, rounds, steps[model])
            rows += made
            bubbles.append(text)
            shares += [f"{row.what}, {row.our_name.removeprefix('ours, ')} "
                       f"{share_of_bound(row, microbatches):.2f}"
                       for row in made if row.peer_name == "one process"]
    note = (f"{STAGES} stages with one thread each, SGD with momentum. chain: micro-batches of "
            f"{MICROBATCH['chain']} samples; gpt: of {MICROBATCH['gpt']}. One process: the same "
            "batch at once, without a pipeline. torch: torch.distributed.pipelining over Gloo with "
            "the fused optimizer, glibc set to keep freed memory, and the best of the cuts that "
            "were tried; zero-bubble: ScheduleInterleavedZeroBubble with one part on each stage.")
    summary = ("Speed beside one process, as a share of the bound K M / (M + K - 1) of 1F1B: "
               f"{'; '.join(shares)}.\n\nBubbles in threads, measured (predicted): "
               f"{'; '.join(bubbles)}.")
    return Section("Pipelines", f"{note}\n\n{summary}", rows)


# ---- Shards ----


def our_sharded_words(model, level, path, steps):
    words = our_words(model, 0, steps, path, "--workers", 2, "--optimizer", "adam")
    return words + (["--mesh", "data=2", "--shard-level", level] if level else [])


def torch_sharded_words(model, kind, steps):
    return [PYTHON, PEER, "sharded", "--model", model, "--kind", kind, "--steps", steps]


def rows_of_shards(model, rounds, steps):
    ours = {"ours, level 3": our_sharded_words(model, 3, "shm", steps),
            "ours, shared": our_sharded_words(model, 0, "shm", steps),
            "ours, level 1": our_sharded_words(model, 1, "shm", steps),
            "ours, level 2": our_sharded_words(model, 2, "shm", steps)}
    peers = {"FSDP2": torch_sharded_words(model, "fsdp", steps),
             "DDP + ZeRO": torch_sharded_words(model, "zero", steps),
             "DDP": torch_sharded_words(model, "ddp", steps)}
    contenders = {name: lambda words=words: measurement_of_our_step(run(words))
                  for name, words in ours.items()}
    contenders |= {name: lambda words=words: measurement_of_peer(run(words, KEEP_MEMORY))
                   for name, words in peers.items()}
    progress(f"shards of {model}")
    taken = interleave(contenders, rounds, progress)
    rows = [Row(model, mine, taken[mine], peer, taken[peer])
            for mine in ("ours, level 3", "ours, shared") for peer in peers]
    rows += [Row(model, f"ours, level {level}", taken[f"ours, level {level}"], "ours, shared",
                 taken["ours, shared"]) for level in (1, 2, 3)]
    return rows


def rows_between_hosts(model, rounds, steps):
    ours = {f"ours, level {level}": our_sharded_words(model, level, "tcp", steps)
            for level in (0, 1, 2, 3)}
    peers = {"FSDP2": torch_sharded_words(model, "fsdp", steps),
             "DDP + ZeRO": torch_sharded_words(model, "zero", steps)}
    with Hosts(2, LINK_MBIT) as net:
        contenders = {name: lambda words=words: measurement_of_our_step(net.ours(words))
                      for name, words in ours.items()}
        contenders |= {name: lambda words=words:
                       measurement_of_peer(net.peers(words, 2, KEEP_MEMORY))
                       for name, words in peers.items()}
        progress(f"shards of {model} between hosts")
        taken = interleave(contenders, rounds, progress)
    what = f"{model}, 2 hosts"
    pairs = [("ours, level 3", "FSDP2"), ("ours, level 1", "DDP + ZeRO"),
             ("ours, level 1", "ours, level 0"), ("ours, level 2", "ours, level 0"),
             ("ours, level 3", "ours, level 0")]
    return [Row(what, mine, taken[mine], peer, taken[peer]) for mine, peer in pairs]


def measure_shards(rounds, steps):
    rows = []
    for model in SHARDED_MODELS:
        rows += rows_of_shards(model, rounds, steps[model])
    try:
        rows += rows_between_hosts("mlpbig", rounds, max(3, steps["mlpbig"] // 3))
    except NotPermitted as failure:
        progress(f"shards between hosts: skipped, since this machine does not allow shaped links: "
                 f"{failure}")
    level_3 = ", ".join(f"{row.what} {compare(row.ours, row.peers).ratio:.2f}" for row in rows
                        if (row.our_name, row.peer_name) == ("ours, level 3", "FSDP2"))
    note = ("Steps with Adam. Level 3: parameters, gradients and optimizer state are divided among "
            "the ranks. Shared: the ranks of the host have one copy of them, which is what levels "
            "1 and 2 are on one host. FSDP2, ZeroRedundancyOptimizer and DDP run over Gloo with "
            "the fused optimizer, and with glibc set to keep freed memory. 2 hosts: a link of "
            f"{LINK_MBIT // 1000} Gbit/s between two network namespaces; level 0 is data "
            "parallelism.\n\nSpeed of level 3 beside FSDP2: "
            f"{level_3}.")
    return Section("Shards", note, rows)
