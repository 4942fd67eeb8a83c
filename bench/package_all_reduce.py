"""The all_reduce of the Python package over float32 tensors, for contenders.py.

  trireme launch --workers 2 --no-prefix -- python bench/package_all_reduce.py BYTES STEPS

Rank 0 prints one JSON object.
"""

import json
import statistics
import sys
import time

import torch
import trireme

WARM_UP = 5  # The same number as in peer.py.

size, steps = (int(word) for word in sys.argv[1:])
torch.set_num_threads(1)
world = trireme.join()
tensor = torch.zeros(size // 4)
seconds = []
for number in range(-WARM_UP, steps):
    world.barrier()
    start = time.perf_counter()
    world.all_reduce(tensor)
    if number >= 0:
        seconds.append(time.perf_counter() - start)
if world.rank == 0:
    print(json.dumps({"median_s": statistics.median(seconds), "min_s": min(seconds)}), flush=True)
world.leave()
