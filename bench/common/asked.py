"""Queries of the SDK in this process, with their time, the processor time of the platform's
processes, and their profile."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import snowmelt as sm

from .processes import cpu_seconds_below
from .server import Server


@dataclass
class Run:
    """One query: seconds, its profile and its answer."""

    wall: float
    # Of the platform and all of its sandboxes, without this process.
    cpu: float
    profile: dict[str, Any]
    answer: pa.Table

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of the outputs of all stages that other stages read."""
        sent = (s["bytes_sent"] for s in self.profile["stages"] if s["medium"] != "driver")
        return sum(sent)


def ask(sql: str, processes: Sequence[int], **options: Any) -> Run:
    """Runs a query on the platform whose processes these are, with all below them."""
    before = sum(map(cpu_seconds_below, processes))
    # As many tasks as workers, also on small tables.
    query = sm.sql(sql, udfs=[], progress=False, scan_task=0, **options)
    begun = time.perf_counter()
    answer = query.collect()
    wall = time.perf_counter() - begun
    cpu = sum(map(cpu_seconds_below, processes)) - before
    assert query.profile is not None
    return Run(wall, cpu, query.profile, answer)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables of the environment are set during the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def platform(folder: Path, **settings: str) -> Iterator[list[int]]:
    """A server for the SDK of this process during the block, and its process.

    The SDK stays with its platform as long as that runs, so these blocks do not overlap.
    """
    server = Server(folder)
    server.environment |= settings
    with server, environment({"SNOWMELT_SOCKET": str(server.socket)}):
        yield [int(server.status()["pid"])]
