"""A function's rank and addresses in its burst, and plain sockets to its peers.

Invariant: everything is read from environment variables and three files that the platform wrote
before the function started, so a function in any language can do the same
(docs/explanation/network.md).
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from functools import cached_property

from .errors import make


@dataclass(frozen=True)
class Job:
    """The burst that this function belongs to."""

    id: str
    """The job's id."""
    rank: int
    """This function's number, from 0."""
    size: int
    """The number of functions."""
    address: str | None = None
    """This function's own IPv4 address; None without a job network."""
    address6: str | None = None
    """This function's own IPv6 address; None without a job network."""
    _peers: str | None = field(default=None, repr=False)
    _peers6: str | None = field(default=None, repr=False)

    @cached_property
    def peers(self) -> list[str]:
        """The IPv4 address of each function, by rank; empty without a job network."""
        return _lines(self._peers)

    @cached_property
    def peers6(self) -> list[str]:
        """The IPv6 address of each function, by rank; empty without a job network."""
        return _lines(self._peers6)

    def listen(self, port: int, backlog: int = 1024, *, ipv6: bool = False) -> socket.socket:
        """A listening TCP socket at this function's IPv4 or IPv6 address."""
        self._need_network()
        family = socket.AF_INET6 if ipv6 else socket.AF_INET
        return socket.create_server(("", port), family=family, backlog=backlog)

    def connect(
        self, rank: int, port: int, timeout: float = 30.0, *, ipv6: bool = False
    ) -> socket.socket:
        """A TCP connection to another function. Retries until the timeout if that function does not
        listen yet: all functions of a burst are called at the same time, but reach their `listen`
        at different times."""
        import time

        self._need_network()
        peers = self.peers6 if ipv6 else self.peers
        begun = time.monotonic()
        until = begun + timeout
        while True:
            left = max(until - time.monotonic(), 0.01)
            try:
                return socket.create_connection((peers[rank], port), timeout=left)
            except ConnectionRefusedError:
                now = time.monotonic()
                if now >= until:
                    raise
                # Pauses grow with the time that has passed: thousands of functions that wait for
                # a late one would take the CPU time that it needs.
                time.sleep(min(max((now - begun) / 4, 0.002), 0.25, until - now))

    def _need_network(self) -> None:
        if self.address is None:
            hint = 'request one: sm.burst(f, n, network="job")'
            raise make("SM-0110", "this burst has no job network", hint=hint)


def _lines(file: str | None) -> list[str]:
    if file is None:
        return []
    # Without pathlib: importing it takes as long as the rest of a function's start.
    with open(file, encoding="ascii") as lines:
        return lines.read().split()


def job() -> Job:
    """The burst that this function belongs to. Raises `Error` outside a burst."""
    try:
        return Job(
            os.environ["SNOWMELT_JOB"],
            int(os.environ["SNOWMELT_RANK"]),
            int(os.environ["SNOWMELT_SIZE"]),
            os.environ.get("SNOWMELT_ADDRESS"),
            os.environ.get("SNOWMELT_ADDRESS6"),
            os.environ.get("SNOWMELT_PEERS"),
            os.environ.get("SNOWMELT_PEERS6"),
        )
    except (KeyError, ValueError):
        hint = "call it inside a function that sm.burst runs"
        raise make("SM-0110", "this is not a function of a burst", hint=hint) from None
