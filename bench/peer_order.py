#!/usr/bin/env python3
"""A shuffled epoch as a table of torch, as torch's RandomSampler makes it:

  peer_order.py SAMPLES   print {"table_s": ..., "resident_bytes": ...}
"""

import json
import os
import pathlib
import sys
import time

import torch


def resident_bytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main():
    torch.set_num_threads(1)
    torch.randperm(1000)
    before = resident_bytes()
    begin = time.monotonic()
    order = torch.randperm(int(sys.argv[1]))
    seconds = time.monotonic() - begin
    print(json.dumps({"table_s": seconds, "resident_bytes": resident_bytes() - before,
                      "first": int(order[0])}))


if __name__ == "__main__":
    main()
