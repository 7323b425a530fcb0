"""A worker killed in each phase of its tasks (its start, reading inputs, writing an output, posting
rows), with each medium of exchange: the answer stays the same."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, wait_for
from lab import lab
from suites import client_of
from test_endings import drivers_and_workers, workers
from test_query_hosts import SLOW, Running, answer, pids, wait_until_clean

from common import s3, s3_proxy

# By the outputs of tasks that a worker has open: none, one to write, also some to read, only these.
STARTS, WRITES, READS, POSTS = "starts", "writes", "reads", "posts"
PHASES = {STARTS, WRITES, READS, POSTS}


def grouped(tables: dict[str, Path], slow: bool) -> str:
    """A join of two scans, its groups, and groups of these, which are the answer. Each stage takes
    some time, and the second one reads and writes."""

    def of(column: str) -> str:
        return SLOW.format(column) if slow else column

    return (
        f"select {of('k')} k, c, s from (select w k, sum(n) c, sum(v) s from"
        f" (select w, {of('v')} v, n from (select w, o_orderkey v, count(*) n from"
        f"  (select l_orderkey from '{tables['lineitem']}' where l_quantity > 45) l join"
        f"  (select o_orderkey, {of('o_custkey')} w from '{tables['orders']}'"
        f"   where o_orderkey < 6000) o on l_orderkey = o_orderkey group by w, o_orderkey))"
        f" group by w)"
    )


def by_group(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in the order of their keys."""
    return sorted(rows, key=lambda row: row["k"])


def phase(worker: int) -> str | None:
    """What a worker does, as far as its open files tell; `None` if it has ended."""
    reads = writes = False
    try:
        for link in Path(f"/proc/{worker}/fd").iterdir():
            # Not what it has to spill to.
            if "/exchange/#" in str(link.readlink()):
                fields = Path(f"/proc/{worker}/fdinfo/{link.name}").read_text().splitlines()
                [flags] = [line.split()[1] for line in fields if line.startswith("flags:")]
                writes |= int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
                reads |= int(flags, 8) & os.O_ACCMODE == os.O_RDONLY
    except OSError:
        return None
    return {(False, False): STARTS, (False, True): WRITES, (True, True): READS}.get(
        (reads, writes), POSTS
    )


class Killer:
    """Kills one worker in each phase."""

    def __init__(self) -> None:
        self.killed: set[str] = set()

    def look(self, found: list[int]) -> None:
        """Kills the first worker at once, and later those that are in a phase in which none was
        killed yet. They are stopped before, so that they are still in that phase."""
        for worker in found:
            wanted = PHASES - self.killed
            with contextlib.suppress(ProcessLookupError):
                if STARTS in wanted:
                    os.kill(worker, signal.SIGKILL)
                    self.killed.add(STARTS)
                elif phase(worker) in wanted:
                    os.kill(worker, signal.SIGSTOP)
                    now = phase(worker)
                    os.kill(worker, signal.SIGKILL if now in wanted else signal.SIGCONT)
                    self.killed |= wanted & {now}


def start(snowmelt: Snowmelt, sql: str, *options: object) -> "subprocess.Popen[str]":
    return snowmelt.start("sql", sql, "-o", "json", "--workers", 3, "--embedded", *options)


def rows_of(text: str) -> list[dict[str, Any]]:
    return by_group([json.loads(line) for line in text.splitlines()])


def test_a_worker_killed_in_each_phase_with_files(
    snowmelt: Snowmelt, tables: dict[str, Path]
) -> None:
    expected = by_group(snowmelt.rows(grouped(tables, slow=False), "--workers", 1))
    process, killer = start(snowmelt, grouped(tables, slow=True)), Killer()
    while process.poll() is None and killer.killed != PHASES:
        killer.look(workers(process.pid))
    assert rows_of(snowmelt.finish(process).succeeded().out) == expected
    assert killer.killed == PHASES


def test_a_worker_killed_in_each_phase_with_hosts(alone: Snowmelt, tables: dict[str, Path]) -> None:
    with lab(alone, 2, "--link", "1gbit", "--memory", "2GiB") as made:
        [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(socket):
            hosts, killer = pids(made), Killer()
            running = Running(grouped(tables, slow=True), workers=4)
            while running.runs() and killer.killed != PHASES:
                # The driver is on the first one.
                killer.look(drivers_and_workers(hosts["host-2"]) + workers(hosts["host-1"]))
            rows = running.rows()
            assert by_group(rows) == by_group(answer(grouped(tables, slow=False), workers=4))
            assert killer.killed == PHASES
            wait_until_clean(made)


@pytest.fixture
def store() -> Iterator[tuple[dict[str, str], s3_proxy.Proxy]]:
    """A bucket, and a proxy before it."""
    with s3.running("exchange") as store, s3_proxy.counting(store.endpoint) as proxy:
        yield store.variables | {"AWS_ENDPOINT_URL": f"http://{proxy.endpoint}"}, proxy


def is_connected(worker: int, port: int) -> bool:
    """Whether a connection from this port is one of the worker's."""
    try:
        lines = Path(f"/proc/{worker}/net/tcp").read_text().splitlines()[1:]
        sockets = {f"socket:[{line.split()[9]}]" for line in lines if f":{port:04X} " in line}
        links = [str(link.readlink()) for link in Path(f"/proc/{worker}/fd").iterdir()]
        return bool(sockets.intersection(links))
    except OSError:
        return False


def stage_of(path: str) -> int | None:
    """The stage that wrote an object of an exchange, which has a folder below that of the query."""
    _, exchange, rest = path.partition("/snowmelt-exchange/")
    words = rest.split("/")
    return int(words[1]) if exchange and len(words) > 2 else None


class KillerAtRequests(Killer):
    """Kills the worker that sends the first request of a phase, before the store gets it."""

    def __init__(self, pid: int, last_stage: int) -> None:
        super().__init__()
        self._pid, self._last_stage = pid, last_stage
        self._lock = threading.Lock()

    def before(self, method: str, path: str, port: int) -> None:
        stage = stage_of(path)
        if stage is None or method not in ("GET", "PUT"):
            return
        now = WRITES if method == "PUT" else POSTS if stage == self._last_stage else READS
        with self._lock:
            for worker in workers(self._pid) if now not in self.killed else []:
                if is_connected(worker, port):
                    os.kill(worker, signal.SIGKILL)
                    self.killed.add(now)


def test_a_worker_killed_in_each_phase_with_objects(
    snowmelt: Snowmelt, tables: dict[str, Path], store: tuple[dict[str, str], s3_proxy.Proxy]
) -> None:
    snowmelt.environment, proxy = store
    options: list[object] = ["--exchange", "objects", "--exchange-location", "s3://exchange/a/"]
    options += ["--exchange-levels", 1, "--exchange-task", 1]
    stages: set[int] = set()

    def note(_method: str, path: str, _port: int) -> None:
        if (stage := stage_of(path)) is not None:
            stages.add(stage)

    proxy.before = note
    expected = by_group(snowmelt.rows(grouped(tables, slow=False), "--workers", 3, *options))
    process = start(snowmelt, grouped(tables, slow=True), *options)
    killer = KillerAtRequests(process.pid, max(stages))
    proxy.before = killer.before
    killer.look(wait_for("a worker", lambda: workers(process.pid)))
    assert rows_of(snowmelt.finish(process).succeeded().out) == expected
    assert killer.killed == PHASES
