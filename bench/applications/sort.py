"""Map-reduce sort (Particle 5.3): mappers on one host sort random keys, cut them into ranges and
send each range to its reducer on another host; a reducer merges when it has heard all mappers.

A mapper makes its keys before it begins to map: a part of its start.
"""

from __future__ import annotations

import argparse
import array
import bisect
import random
import socket
import struct
import time
from typing import Any

import report

import snowmelt as sm

PORT = 5000
# Time limits of a start and of a call: machines may be busy.
LIMIT = "4m"
KEY = 8
ALL = 1 << 64


@sm.function(network="job", memory="48MiB", timeout=LIMIT)
def sort(item: tuple[int, int]) -> dict[str, Any]:
    """What a mapper sent or a reducer has, with the moments at which each step had ended."""
    rank, keys = item
    job = sm.job()
    half = job.size // 2
    width = -(-ALL // half)
    if rank < half:
        made = array.array("Q", random.Random(rank).randbytes(keys * KEY))
        begun = time.monotonic()
        own = array.array("Q", sorted(made))
        ends = [bisect.bisect_left(own, (part + 1) * width) for part in range(half)]
        cut = time.monotonic()
        for place in range(half):
            part = (rank + place) % half
            data = own[ends[part - 1] if part else 0 : ends[part]].tobytes()
            with job.connect(half + part, PORT, timeout=60) as connection:
                connection.sendall(struct.pack("!Q", len(data)) + data)
        return {"keys": len(own), "sum": sum(own), "begun": begun, "cut": cut}
    parts = []
    with job.listen(PORT, backlog=4096) as server:
        for _ in range(half):
            connection, _ = server.accept()
            with connection:
                (size,) = struct.unpack("!Q", connection.recv(8, socket.MSG_WAITALL))
                parts.append(connection.recv(size, socket.MSG_WAITALL) if size else b"")
    received = time.monotonic()
    # Runs that are sorted already: sorting them is merging them.
    merged = sorted(array.array("Q", b"".join(parts)))
    ended = time.monotonic()
    first = (rank - half) * width
    if merged and not first <= merged[0] <= merged[-1] < first + width:
        raise RuntimeError(f"reducer {rank - half} has keys that are not in its range")
    return {"keys": len(merged), "sum": sum(merged), "received": received, "sorted": ended}


def check(mapped: list[dict[str, Any]], reduced: list[dict[str, Any]]) -> None:
    """What was sent is there: as many keys, with the same sum."""
    for what in ("keys", "sum"):
        sent, there = (sum(row[what] for row in rows) for rows in (mapped, reduced))
        if sent != there:
            raise RuntimeError(f"{what}: {sent} were sent, {there} are there")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mappers", type=int, default=50, help="and as many reducers")
    parser.add_argument("--mib", type=float, default=0.5, help="of each mapper")
    parser.add_argument("--times", type=int, default=1)
    given = parser.parse_args()
    keys = int(given.mib * (1 << 20)) // KEY
    sort.burst([(rank, 1000) for rank in range(2)], hosts=2, progress=False)
    for _ in range(given.times):
        asked = time.monotonic()
        items = [(rank, keys) for rank in range(2 * given.mappers)]
        results = sort.burst(items, hosts=2, start_within=LIMIT, progress=False)
        mapped, reduced = results[: given.mappers], results[given.mappers :]
        check(mapped, reduced)
        moments = {
            "mapping": max(row["begun"] for row in mapped),
            "cut": max(row["cut"] for row in mapped),
            "received": max(row["received"] for row in reduced),
            "sorted": max(row["sorted"] for row in reduced),
        }
        since = {name: (moment - asked) * 1000 for name, moment in moments.items()}
        report.tell(results, mib=given.mib * given.mappers, moments_ms=since)


if __name__ == "__main__":
    main()
