"""Parts of the suite that need links slower than this machine's memory, and what compression for them costs."""

import functools
import statistics

from contenders import (KEEP_MEMORY, ddp_step_words, gloo_all_reduce_words, losses_of_training, measurement_of_our_all_reduce,
                        measurement_of_our_step, measurement_of_peer, our_all_reduce_words, our_step_words, progress)
from hosts import Hosts, NotPermitted, RunFailed
from pairs import Measurement, interleave
from report import Row, Section, in_ms

FAST_MBIT, SLOW_MBIT = 1000, 200
SIZES = {"4 KB": 4096, "25 MB": 25 << 20}
COMPRESSIONS = ("none", "bf16", "int8", "powersgd")  # powersgd: rank 2.
HOOKS = {"DDP, fp16 hook": "fp16", "DDP, PowerSGD hook (rank 2)": "powersgd"}  # The one for bf16 is not for Gloo.
BUCKETS_MB = (1, 25, 100)
LOSS_STEPS = 300
LOSS_RATES = (0.001, 0.01)
LAST = 20  # Losses of single batches scatter.


def skipped(part, failure):
    progress(f"{part}: skipped, as this machine lets us make no shaped links: {failure}")


def measure_links(rounds, repetitions):
    rows = []
    try:
        for ranks, hosts in ((2, 2), (4, 4), (4, 2)):
            with Hosts(hosts, FAST_MBIT) as net:
                rows += [row for name in SIZES for row in rows_of_link(net, ranks, name, rounds, repetitions[name])]
    except NotPermitted as failure:
        return skipped("links", failure)
    note = (f"all_reduce between hosts: network namespaces on one machine, each behind a link of {FAST_MBIT // 1000} Gbit/s. The wire: what the "
            "busiest link needs for the bytes of the best algorithm (2 (n-1)/n of the tensor for n hosts), at 0.956 of its rate.")
    return Section("Links between hosts", note, rows)


def rows_of_link(net, ranks, name, rounds, steps):
    size, hosts = SIZES[name], len(net.names)
    steps = max(5, steps // 4)
    what = f"{name}, {ranks} ranks on {hosts} hosts"
    progress(f"all_reduce of {what}")
    wire = net.wire_seconds(2 * (hosts - 1) / hosts * size)
    contenders = {
        "ours, tcp": lambda: measurement_of_our_all_reduce(net.ours(our_all_reduce_words("tcp", size, ranks, steps))),
        "c10d Gloo": lambda: measurement_of_peer(net.peers(gloo_all_reduce_words(size, ranks, steps), ranks)),
    }
    taken = interleave(contenders, rounds, progress)
    rows = [Row(what, "ours, tcp", taken["ours, tcp"], "c10d Gloo", without_cpu(taken["c10d Gloo"]))]
    if wire > 0.01:  # Below, it is not the wire that counts.
        rows.append(Row(what, "ours, tcp", taken["ours, tcp"], "the wire", [Measurement(wire, wire)] * rounds))
    return rows


def without_cpu(measurements):
    return [Measurement(m.median, m.best) for m in measurements]


def measure_compression(model, rounds, steps):
    try:
        with Hosts(2, SLOW_MBIT) as net:
            bucket_mb = min(BUCKETS_MB, key=lambda size: peer_step(net, model, 3, bucket_mb=size).best)
            ours = {f"ours, {name}": functools.partial(our_step, net, model, steps, name) for name in COMPRESSIONS}
            peers = {"DDP as shipped": functools.partial(peer_step, net, model, steps),
                     "DDP tuned": functools.partial(peer_step, net, model, steps, bucket_mb=bucket_mb)}
            peers |= {name: functools.partial(hooked_step, net, model, steps, hook) for name, hook in HOOKS.items()}
            taken = interleave(ours | peers, rounds, progress)
    except NotPermitted as failure:
        return skipped("compression", failure)
    wire = ", ".join(f"{name} {in_ms(net.wire_seconds(taken[f'ours, {name}'][0].sent_bytes))}" for name in COMPRESSIONS)
    note = (f"Steps of {model} on 2 hosts with a link of {SLOW_MBIT} Mbit/s between them, over our `tcp` and over Gloo. Tuned as above "
            f"(buckets of {bucket_mb} MB; with a hook 25 MB). What the wire alone takes for the bytes of our step, ms: {wire}.")
    return Section("Compression on a slow link", note, [Row(model, mine, taken[mine], peer, taken[peer]) for mine in ours for peer in peers])


def our_step(net, model, steps, compression):
    return measurement_of_our_step(net.ours(our_step_words(model, "tcp", len(net.names), steps, compression)))


def peer_step(net, model, steps, bucket_mb=None, hook=None):
    words = ddp_step_words(model, len(net.names), steps, bucket_mb, hook)
    return measurement_of_peer(net.peers(words, len(net.names), KEEP_MEMORY if bucket_mb else {}))


def measure_compression_loss():
    keys = {"data.name": "digits", "data.batch": 64, "model.name": "mlp", "optimizer.name": "sgd", "optimizer.momentum": 0.9}
    lines = []
    for rate in LOSS_RATES:
        plain = None
        for name in (*COMPRESSIONS, "fp16", "topk"):
            progress(f"{LOSS_STEPS} steps with learning rate {rate} and compression {name}")
            losses, test, sent = losses_of_training(name, LOSS_STEPS, {**keys, "optimizer.lr": rate})
            train = statistics.mean(losses[-LAST:])
            plain = plain or (train, test)
            lines.append((str(rate), name, f"{train:.4f}", in_percent(train, plain[0]), f"{test:.4f}", in_percent(test, plain[1]), f"{sent / 1e6:.3f}"))
    note = (f"The mlp after {LOSS_STEPS} steps on the digits (2 workers, global batch 64, SGD with momentum 0.9, the same seed), with the suite's "
            f"learning rate and with one at which the loss falls fast: the mean of the last {LAST} steps' training losses and the test loss, beside "
            "those without compression; MB that a rank sends in a step.")
    headings = ("learning rate", "compression", "training loss", "beside none", "test loss", "beside none", "MB a step")
    return Section("Loss with compression", note, lines, headings)


def in_percent(value, reference):
    return f"{(value / reference - 1) * 100:+.2f} %"


def hooked_step(net, model, steps, hook, attempts=4):
    """With DDP's default buckets: over Gloo, the all-reduces that PowerSGD's hook starts for several buckets get mixed up now and then, and more
    often the more buckets there are. Then a rank aborts, and the run is repeated."""
    for _ in range(attempts - 1):
        try:
            return peer_step(net, model, steps, bucket_mb=25, hook=hook)
        except RunFailed:
            progress(f"DDP with the {hook} hook aborted; once more")
    return peer_step(net, model, steps, bucket_mb=25, hook=hook)
