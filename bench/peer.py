"""PyTorch's side of the suite, as the programme that a PyTorch user would write.

  peer.py step --model mlp --steps 40 [--tuned --bucket-mb 25]
      training steps under DistributedDataParallel
  peer.py pipeline --model chain --schedule 1f1b --microbatches 8 --batch 1024 --steps 10
      training steps under torch.distributed.pipelining, with one stage in each rank
  peer.py sharded --model mlpbig --kind fsdp --steps 10
      training steps with Adam under FSDP2, ZeroRedundancyOptimizer or DDP
  peer.py memory --model resnet18 --kind checkpoint --batch 8 --ranks 1 --steps 3
      training steps of one process, with torch.utils.checkpoint or plain
  peer.py all_reduce --bytes 4096 --steps 200
      c10d's all_reduce over Gloo
  peer.py rpc --bytes 4096 --steps 1000 [--transport uv] [--updates]
      a tensor to another process and back by torch.distributed.rpc; uv is TCP; with --updates a
      gradient goes there and a parameter comes back
  peer.py sparse --table 1000000x64 --rows 4096 --ranks 2 --steps 50
      training steps of an embedding with sparse gradients
  torchrun --nproc-per-node 2 peer.py first-step --model mlp
      the time of day when the first step is done

All but the last start their ranks themselves; all but the last two, with --rank and --store, are
one of several ranks.
Rank 0 prints one JSON object. OMP_NUM_THREADS sets the threads per rank.
"""

import argparse
import json
import os
import resource
import socket
import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
import torch.nn.functional as F
from peer_divided import (MEMORY, SCHEDULES, SHARDS, memory_step, pipeline_step, sharded_step)
from peer_models import MODELS
from peer_sparse import sparse_step
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 5  # The same number as in `trireme bench step`.
HOOKS = ("fp16", "powersgd")  # The hook for bf16 does not work with Gloo.


def add_hook(model, name):
    """Registers compression as DistributedDataParallel ships it."""
    if name == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2,
                                            start_powerSGD_iter=2)  # The earliest step allowed.
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif name:
        model.register_comm_hook(None, getattr(default_hooks, f"{name}_compress_hook"))


def training_step(model_name, tuned=False, bucket_mb=25, apart=False, hook=None):
    torch.manual_seed(1)
    make_model, make_batch = MODELS[model_name]
    model = make_model()
    if not apart:
        model = DistributedDataParallel(model, bucket_cap_mb=bucket_mb,
                                        gradient_as_bucket_view=tuned)
    add_hook(model, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=tuned)
    inputs, targets = make_batch()

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(action, steps, prepare=lambda: None):
    """Returns the figures of this rank; the CPU seconds are summed over all ranks."""
    seconds = []
    for number in range(-WARM_UP, steps):
        if number == 0:
            cpu = cpu_seconds()
        prepare()
        start = time.perf_counter()
        action()
        if number >= 0:
            seconds.append(time.perf_counter() - start)
    cpu = torch.tensor((cpu_seconds() - cpu) / steps, dtype=torch.double)
    dist.all_reduce(cpu)
    return {"median_s": statistics.median(seconds), "min_s": min(seconds), "cpu_s": cpu.item()}


def run_rank(rank, host, port, arguments):
    store = dist.TCPStore(host, port, arguments.ranks, is_master=rank == 0,
                          timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=arguments.ranks)
    if arguments.command == "step":
        step = training_step(arguments.model, arguments.tuned, arguments.bucket_mb,
                             arguments.apart, arguments.hook)
        figures = measure(step, arguments.steps)
    elif arguments.command == "pipeline":
        figures = measure(pipeline_step(arguments.model, arguments.batch, arguments.schedule,
                                        arguments.microbatches, arguments.cut), arguments.steps)
    elif arguments.command == "memory":
        step = memory_step(arguments.model, arguments.batch, arguments.kind)
        figures = measure(step, arguments.steps)
    elif arguments.command == "sharded":
        step = sharded_step(arguments.model, arguments.batch, arguments.kind)
        figures = measure(step, arguments.steps)
    elif arguments.command == "sparse":
        figures = measure(sparse_step(arguments.table, arguments.rows), arguments.steps)
    else:
        tensor = torch.zeros(arguments.bytes // 4)
        figures = measure(lambda: dist.all_reduce(tensor), arguments.steps, prepare=dist.barrier)
    if rank == 0:
        print(json.dumps(figures), flush=True)
    dist.barrier()
    # The figures are printed. Gloo's threads sometimes abort a process that ends normally.
    os._exit(0)


def returned(tensor):
    return tensor


PARAMETERS = {}


def updated(gradient):
    """A push and a pull: the server's parameter after a step of SGD."""
    parameter = PARAMETERS.setdefault(gradient.numel(), torch.ones_like(gradient))
    return parameter.sub_(gradient, alpha=1e-3)


def run_rpc(rank, port, arguments):
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}",
        _transports=[arguments.transport] if arguments.transport else None)
    rpc.init_rpc(f"process{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        tensor = (torch.ones(arguments.bytes // 4) if arguments.updates
                  else torch.zeros(arguments.bytes, dtype=torch.uint8))
        action = updated if arguments.updates else returned
        seconds = []
        for number in range(-100, arguments.steps):
            start = time.perf_counter()
            rpc.rpc_sync("process1", action, args=(tensor,))
            if number >= 0:
                seconds.append(time.perf_counter() - start)
        print(json.dumps({"median_s": statistics.median(seconds), "min_s": min(seconds)}),
              flush=True)
    rpc.shutdown()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def first_step(model):
    dist.init_process_group("gloo")
    training_step(model)()
    if dist.get_rank() == 0:
        print(json.dumps({"time_of_day": time.time()}), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["step", "pipeline", "sharded", "memory", "all_reduce",
                                            "rpc", "sparse", "first-step"])
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--bytes", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--apart", action="store_true",
                        help="step: without an exchange between the ranks")
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--hook", choices=HOOKS, help="step: compress the gradients")
    parser.add_argument("--updates", action="store_true",
                        help="rpc: the tensor is a gradient, and a parameter comes back")
    parser.add_argument("--transport", choices=["uv", "shm"],
                        help="rpc: the only transport (default: the fastest one)")
    parser.add_argument("--batch", type=int, help="pipeline, sharded: samples of each rank")
    parser.add_argument("--schedule", choices=SCHEDULES)
    parser.add_argument("--microbatches", type=int)
    parser.add_argument("--cut", type=lambda text: [int(size) for size in text.split("+")],
                        help="pipeline: the blocks of each part, such as 4+5")
    parser.add_argument("--kind", choices=SHARDS + MEMORY)
    parser.add_argument("--table", type=lambda text: [int(size) for size in text.split("x")],
                        help="sparse: rows and width of the table, such as 1000000x64")
    parser.add_argument("--rows", type=int, help="sparse: rows of each rank in a step")
    parser.add_argument("--rank", type=int,
                        help="run only this rank, which meets the others at --store")
    parser.add_argument("--store", metavar="HOST:PORT")
    arguments = parser.parse_args()
    if arguments.command == "first-step":
        return first_step(arguments.model)
    if arguments.command == "rpc":
        torch.multiprocessing.start_processes(run_rpc, (free_port(), arguments), nprocs=2,
                                              start_method="fork")
        return
    if arguments.rank is not None:
        host, port = arguments.store.rsplit(":", 1)
        return run_rank(arguments.rank, host, int(port), arguments)
    # A fork after the import: the start is not measured, and two imports would take two seconds.
    torch.multiprocessing.start_processes(run_rank, ("127.0.0.1", free_port(), arguments),
                                          nprocs=arguments.ranks, start_method="fork")


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
