"""Aggregation, all to one (Particle 5.1): every function sends a short message to the first one and
waits for the time that it answers with. For several tenants at once, each has an equal part.
"""

from __future__ import annotations

import argparse
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import report

import snowmelt as sm

PORT = 5000
MEMORY = "16MiB"
# Time limits of a start and of a call: machines may be busy.
LIMIT = "4m"


def aggregate(rank: int) -> float:
    """When the message of this function was received; for the first one, when all were received."""
    job = sm.job()
    if rank > 0:
        with job.connect(0, PORT, timeout=60) as connection:
            connection.sendall(struct.pack("!I", rank))
            (heard,) = struct.unpack("!d", connection.recv(8, socket.MSG_WAITALL))
            return float(heard)
    waits_for = set(range(1, job.size))
    with job.listen(PORT, backlog=4096) as server:
        while waits_for:
            connection, _ = server.accept()
            with connection:
                (sender,) = struct.unpack("!I", connection.recv(4, socket.MSG_WAITALL))
                waits_for.remove(sender)
                connection.sendall(struct.pack("!d", time.monotonic()))
    return time.monotonic()


def run(functions: int, hosts: int, tenant: str) -> sm.BurstResults[float]:
    """One job. The first function received the last message of the others."""
    made = sm.function(network="job", memory=MEMORY, timeout=LIMIT, tenant=tenant)(aggregate)
    results = made.burst(functions, hosts=hosts, start_within=LIMIT, progress=False)
    if max(results) != results[0]:
        raise RuntimeError("a message was heard after the first function had ended")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", type=int, default=100, help="of all tenants together")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--tenants", type=int, default=1)
    parser.add_argument("--times", type=int, default=1)
    given = parser.parse_args()
    tenants = [f"tenant-{number}" for number in range(given.tenants)]
    each = given.functions // given.tenants
    with ThreadPoolExecutor(given.tenants) as pool:
        # Each tenant's interpreter runs already: this measures a job that is not the first.
        list(pool.map(lambda tenant: run(given.hosts, given.hosts, tenant), tenants))
        for _ in range(given.times):
            jobs = pool.map(lambda tenant: run(each, given.hosts, tenant), tenants)
            for tenant, results in zip(tenants, jobs, strict=True):
                report.tell(results, tenant=tenant, tenants=given.tenants)


if __name__ == "__main__":
    main()
