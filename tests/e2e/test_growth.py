"""Steady work leaves nothing behind: after the same rounds again the server has the same files,
descriptors and memory, so it can run for ever.

SNOWMELT_SOAK_ROUNDS: rounds after those that fill pools and caches (`make soak` has more of them).
"""

import http.client
import json
import os
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, wait_for

# Folders with a file for each version of code: those are kept for a week, and a known number.
BY_VERSION = ("code", "known", "logs", "udf-logs")
# Pools, caches and logs have their sizes after these rounds.
FIRST_ROUNDS = 4
ROUNDS = int(os.environ.get("SNOWMELT_SOAK_ROUNDS", "4"))
CALLS = 100
LATER_CALLS = 25
# What an allocator may still take, and bursts whose results are kept for minutes; further the pages
# of the state in its cache, which has a size of its own, and what is known of them.
MAX_MEMORY_GROWTH = 4 << 20
MEMORY_OF_STATE = 2
# Programs for the networks of bursts are kept for the next ones, so many at the most.
KEPT_PROGRAMS = 64
MAX_MORE_DESCRIPTORS = 8
# Of many calls of one function, after some that fill what is bounded.
FIRST_CALLS = 1000
MORE_CALLS = 2000
MAX_BYTES_EACH = 128

HELLO = "def handler(event):\n    return {'hello': event['name'], 'round': ROUND}\n"


class OverSocket(http.client.HTTPConnection):
    """HTTP with the server, over its socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("snowmelt", timeout=120)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))

    def ask(self, method: str, path: str, body: object = None) -> Any:
        text = None if body is None else json.dumps(body)
        self.request(method, path, text, {"content-type": "application/json"})
        answer = self.getresponse()
        read = answer.read()
        assert answer.status in (200, 202), f"{method} {path}: {answer.status} {read!r}"
        return json.loads(read)


@dataclass
class Seen:
    """What a server has at one moment."""

    files: Counter[str]
    descriptors: int
    memory: int
    state: int


class Server:
    """A running server and its work."""

    def __init__(self, snowmelt: Snowmelt) -> None:
        self.snowmelt = snowmelt
        self.socket = snowmelt.folder / "state/snowmelt.sock"
        self.pid = OverSocket(self.socket).ask("GET", "/v1/status")["pid"]

    def deploy(self, folder: Path, number: int) -> None:
        file = folder / "function.py"
        file.write_text(HELLO.replace("ROUND", str(number)))
        self.snowmelt.run("fn", "deploy", "hello", file, "--memory", "128MiB").succeeded()

    def round(self, number: int) -> None:
        """Calls of every kind, bursts with and without a network, and a query."""
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(self.call, [CALLS // 2] * 2))
        self.call_later(LATER_CALLS)
        for network in ([], ["--network"]):
            data = ("--data", json.dumps({"name": "burst"}))
            self.snowmelt.run("fn", "burst", "hello", "-n", "2", *network, *data).succeeded()
        assert self.snowmelt.rows(f"select {number} as n") == [{"n": number}]

    def call(self, times: int) -> None:
        connection = OverSocket(self.socket)
        for _ in range(times):
            path = "/v1/functions/hello/invocations"
            connection.ask("POST", path, {"event": {"name": "x" * 100}})
        connection.close()

    def call_later(self, times: int) -> None:
        connection = OverSocket(self.socket)
        asked = {"event": {"name": "later"}, "asynchronous": True}
        path = "/v1/functions/hello/invocations"
        calls = [connection.ask("POST", path, asked)["id"] for _ in range(times)]
        ended = set()

        def all_have_ended() -> bool:
            for call in set(calls) - ended:
                if connection.ask("GET", f"/v1/invocations/{call}")["state"] == "succeeded":
                    ended.add(call)
            return len(ended) == times

        wait_for("the asynchronous calls", all_have_ended)
        connection.close()

    def seen(self) -> Seen:
        files: Counter[str] = Counter()
        for place in (self.snowmelt.folder / "state", self.snowmelt.folder / "run"):
            for folder, _, names in os.walk(place):
                parts = Path(folder).relative_to(place.parent).parts
                files["/".join(parts[:3])] += len(names)
        descriptors = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        memory = next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))
        state = (self.snowmelt.folder / "state/state.redb").stat().st_size
        return Seen(files, descriptors, memory, state)


@pytest.fixture
def server(alone: Snowmelt) -> Iterator[Server]:
    alone.run("up").succeeded()
    yield Server(alone)
    alone.run("down").succeeded()


@pytest.mark.alone
def test_steady_work_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    server.deploy(tmp_path, 0)
    for number in range(FIRST_ROUNDS):
        server.round(number)
    # The versions differ, so files of one are told from files of each call.
    server.deploy(tmp_path, 1)
    server.round(FIRST_ROUNDS)
    before = server.seen()
    for number in range(ROUNDS):
        server.round(number)
    # What ended last may still be removed.
    wait_for("the files of steady work to be gone", lambda: not grown(before, server.seen()))
    after = server.seen()
    more = after.descriptors - before.descriptors
    assert more <= KEPT_PROGRAMS + MAX_MORE_DESCRIPTORS, (before, after)
    most = MAX_MEMORY_GROWTH + MEMORY_OF_STATE * (after.state - before.state)
    assert after.memory <= before.memory + most, (before, after)


@pytest.mark.alone
def test_calls_leave_no_memory(server: Server, tmp_path: Path) -> None:
    server.deploy(tmp_path, 0)
    server.call(FIRST_CALLS)
    before = server.seen().memory
    server.call(MORE_CALLS)
    each = (server.seen().memory - before) / MORE_CALLS
    assert each < MAX_BYTES_EACH, f"{each} bytes for each call"


@pytest.mark.alone
def test_versions_leave_a_known_number_of_files(server: Server, tmp_path: Path) -> None:
    for number in range(2):
        server.deploy(tmp_path, number)
    before = server.seen()
    for number in range(2, 6):
        server.deploy(tmp_path, number)
    more = server.seen().files - before.files
    by_version = Counter({name: count for name, count in more.items() if is_by_version(name)})
    assert more == by_version, "files of versions are where they are swept"
    assert all(count <= 4 * 2 for count in by_version.values()), by_version


def is_by_version(name: str) -> bool:
    return any(name.startswith(f"state/{folder}") for folder in BY_VERSION)


def grown(before: Seen, after: Seen) -> Counter[str]:
    """The folders that have more files."""
    return after.files - before.files
