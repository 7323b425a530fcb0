"""Shuffle (Particle 5.1): each function of one host sends a short message, over a connection of its
own, to each function of another host, from the moment on when it starts.
"""

from __future__ import annotations

import argparse
import socket
import struct
import time

import report

import snowmelt as sm

PORT = 5000
# Time limits of a start and of a call: machines may be busy.
LIMIT = "4m"


@sm.function(network="job", memory="16MiB", timeout=LIMIT)
def shuffle(rank: int) -> list[float]:
    """The arrival times of the messages of a receiver."""
    job = sm.job()
    half = job.size // 2
    if rank < half:
        for place in range(half):
            # Each sender begins with a different receiver.
            receiver = half + (rank + place) % half
            with job.connect(receiver, PORT, timeout=60) as connection:
                connection.sendall(struct.pack("!I", rank))
        return []
    arrived = []
    with job.listen(PORT, backlog=4096) as server:
        waits_for = set(range(half))
        while waits_for:
            connection, _ = server.accept()
            with connection:
                (sender,) = struct.unpack("!I", connection.recv(4, socket.MSG_WAITALL))
            waits_for.remove(sender)
            arrived.append(time.monotonic())
    return arrived


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--senders", type=int, default=100, help="and as many receivers")
    parser.add_argument("--times", type=int, default=1)
    given = parser.parse_args()
    shuffle.burst(2, hosts=2, progress=False)
    for _ in range(given.times):
        begun = time.monotonic()
        results = shuffle.burst(2 * given.senders, hosts=2, start_within=LIMIT, progress=False)
        arrived = sorted((time - begun) * 1000 for times in results for time in times)
        report.tell(results, sent=len(arrived), arrived_ms=arrived[:: max(1, len(arrived) // 200)])


if __name__ == "__main__":
    main()
