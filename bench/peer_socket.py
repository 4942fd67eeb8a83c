#!/usr/bin/env python3
"""Samples over a plain TCP connection on one host, without any protocol, as the peer of a data
service: one process sends rows that it has in memory, the other one receives them into batches.

  peer_socket.py ROW_BYTES ROWS BATCH SECONDS   print {"bytes_per_second": ...}
"""

import json
import os
import socket
import sys
import time


def send_rows(port, row_bytes, rows):
    memory = memoryview(os.urandom(1 << 20) * (row_bytes * rows // (1 << 20) + 1))
    with socket.create_connection(("127.0.0.1", port)) as peer:
        try:
            while True:
                for row in range(rows):
                    peer.sendall(memory[row * row_bytes:(row + 1) * row_bytes])
        except OSError:
            pass  # The receiver has ended.


def main():
    row_bytes, rows, batch = (int(word) for word in sys.argv[1:4])
    with socket.create_server(("127.0.0.1", 0)) as server:
        if os.fork() == 0:
            send_rows(server.getsockname()[1], row_bytes, rows)
            os._exit(0)
        peer, _ = server.accept()
    batches = [memoryview(bytearray(batch * row_bytes)) for _ in range(2)]

    def receive(number):
        memory = batches[number % 2]
        while memory:
            count = peer.recv_into(memory)
            if count == 0:
                sys.exit("the sender has ended")
            memory = memory[count:]

    for number in range(4):  # They take the page faults.
        receive(number)
    number, begin = 0, time.monotonic()
    while time.monotonic() - begin < float(sys.argv[4]):
        receive(number)
        number += 1
    seconds = time.monotonic() - begin
    peer.close()
    os.wait()
    print(json.dumps({"bytes_per_second": number * batch * row_bytes / seconds}))


if __name__ == "__main__":
    main()
