"""A ring all-reduce over plain sockets: each function has a vector, all get the sum of the vectors.

In each of 2 (n - 1) steps every function sends a part of 1 / n to its right neighbour and receives
one from its left, so the bytes per function are nearly independent of the number of functions.
"""

from __future__ import annotations

import array
import socket
import sys
import threading

import snowmelt as sm

LENGTH = 1 << 16


def all_reduce(rank: int) -> tuple[float, int]:
    """Sums the vectors (rank, rank, …) of all; returns the sum of the result and the bytes sent."""
    job = sm.job()
    server = job.listen(5000)
    right = job.connect((rank + 1) % job.size, 5000)
    left, _ = server.accept()
    vector = array.array("d", [float(rank)] * LENGTH)
    bounds = [LENGTH * part // job.size for part in range(job.size + 1)]
    sent = 0

    def exchange(out: int, into: int) -> array.array[float]:
        nonlocal sent
        data = vector[bounds[out] : bounds[out + 1]].tobytes()
        # Concurrently, because two neighbours with full buffers would wait for each other.
        sending = threading.Thread(target=right.sendall, args=(data,))
        sending.start()
        size = (bounds[into + 1] - bounds[into]) * vector.itemsize
        part = array.array("d", left.recv(size, socket.MSG_WAITALL))
        sending.join()
        sent += len(data)
        return part

    for step in range(job.size - 1):  # reduce-scatter: each part is summed along the ring
        into = (rank - step - 1) % job.size
        for index, value in enumerate(exchange((rank - step) % job.size, into), bounds[into]):
            vector[index] += value
    for step in range(job.size - 1):  # all-gather: the sums are sent along the ring
        into = (rank - step) % job.size
        vector[bounds[into] : bounds[into + 1]] = exchange((rank - step + 1) % job.size, into)
    return sum(vector), sent


def main(functions: int) -> None:
    results = sm.burst(all_reduce, functions, network="job", memory="128MiB")
    expected = float(sum(range(functions)) * LENGTH)
    assert all(total == expected for total, _ in results), results
    print(f"{functions} functions on {len(results.hosts)} host(s) agree on {expected:,.0f}")
    print(f"each sent {results[0][1]:,} bytes; started in {results.started_ms:,.0f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
