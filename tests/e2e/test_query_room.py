"""Tasks of queries wait for room in the queue of calls and bursts: hosts are started for them and
stay as long as they run, and they take nothing that is kept for a burst."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, wait_for
from lab import Lab, lab
from suites import client_of
from test_query_hosts import SLOW, Running, answer

import snowmelt as sm

CONTROL = "host-1"

# The driver of a query has 1536 MiB, and each task this much.
TASK = "512MiB"

LATE = """
    import time

    begun = time.time()
    done = sm.burst(lambda rank: rank * 3, 2, memory="1200MiB", progress=False)
    print(json.dumps([list(done), [part["host"] for part in done.hosts], time.time() - begun]))
"""


def in_lab(alone: Snowmelt, *options: object) -> Iterator[Lab]:
    with lab(alone, 2, *options) as made:
        [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(socket):
            yield made


@pytest.fixture
def elastic(alone: Snowmelt) -> Iterator[Lab]:
    """Control's host runs two tasks of a query beside its driver; the other one is not started."""
    alone.environment |= {
        "SNOWMELT_SANDBOXES_MEMORY": "2600MiB",
        "SNOWMELT_CLUSTER_RECLAIM_AFTER": "3s",
    }
    yield from in_lab(alone, "--started", 1, "--memory", "1GiB")


@pytest.fixture
def crowded(alone: Snowmelt) -> Iterator[Lab]:
    """Two queries with nothing but the room that they keep fill control's host, which runs no
    bursts."""
    alone.environment["SNOWMELT_SANDBOXES_MEMORY"] = "4200MiB"
    yield from in_lab(alone, "--control-only", "--memory", "4GiB")


def rows_per_second(folder: Path) -> float:
    """How many rows of the slow expression a core of this machine does."""
    probe = folder / "probe.csv"
    probe.write_text("\n".join(["a", *map(str, range(1500))]))
    begun = time.monotonic()
    answer(f"select sum({SLOW.format('a')}) s from '{probe}'", workers=1, memory=TASK)
    return 1500 / (time.monotonic() - begun)


def slow_files(folder: Path, files: int, seconds: float) -> tuple[str, int]:
    """A query with a task for each file, which takes about this long, and its answer."""
    rows = max(200, int(rows_per_second(folder) * seconds))
    data = folder / "data"
    data.mkdir()
    for number in range(files):
        values = range(number * rows, (number + 1) * rows)
        # All of a size that is worth a task.
        lines = [f"{value},{'x' * 60}" for value in values]
        (data / f"{number}.csv").write_text("\n".join(["a,b", *lines]))
    total = files * rows
    return f"select sum({SLOW.format('a')}) s from '{data}'", total * (total - 1) // 2


def running(made: Lab) -> set[str]:
    return {host["name"] for host in made.states() if host["runs"]}


def listed(made: Lab) -> dict[str, dict[str, Any]]:
    return {host["name"]: host for host in json.loads(made.client("hosts", "-o", "json"))}


def tasks_on(made: Lab, host: str) -> int:
    known = listed(made)
    return int(known[host]["facts"]["tasks"]) if host in known else 0


def test_a_host_is_started_for_tasks_that_wait_and_stays_as_long_as_they_run(
    elastic: Lab, tmp_path: Path
) -> None:
    sql, expected = slow_files(tmp_path, files=8, seconds=1.5)
    assert running(elastic) == {CONTROL}, "what fits needs no other host"

    def ran_on() -> set[str]:
        query = sm.sql(sql, workers=8, memory=TASK, progress=False)
        assert [int(row["s"]) for row in query.collect().to_pylist()] == [expected]
        lanes = (query.profile or {})["lanes"]
        return {lane["host"] for lane in lanes if "worker" in lane["name"]}

    wait_for("tasks on two hosts", lambda: len(ran_on()) == 2, seconds=180)

    query = Running(sql, workers=8, memory=TASK)
    wait_for("a task there", lambda: tasks_on(elastic, "host-2"))
    # The time after which free hosts are ended passes again and again.
    while query.runs():
        states = {name: host["state"] for name, host in listed(elastic).items()}
        assert states["host-2"] == "active" or not query.runs(), states
    assert [int(row["s"]) for row in query.rows()] == [expected]
    wait_for("control to be alone", lambda: running(elastic) == {CONTROL}, seconds=120)


def test_a_burst_gets_its_room_although_queries_keep_coming(crowded: Lab, tmp_path: Path) -> None:
    sql, expected = slow_files(tmp_path, files=12, seconds=0.6)
    over = threading.Event()
    errors: list[Exception] = []

    def queries() -> None:
        while not over.is_set():
            try:
                rows = answer(sql, workers=12, memory=TASK)
                assert [int(row["s"]) for row in rows] == [expected]
            except Exception as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=queries) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        # Its share of the host is taken by tasks, of which the next ones follow at once.
        wait_for("tasks to fill a host", lambda: tasks_on(crowded, "host-2") >= 7)
        done, hosts, seconds = crowded.python(LATE, timeout=240)
        print(f"the burst had its answer after {seconds:.1f} s")
        assert done == [0, 3] and set(hosts) == {"host-2"}
        assert not errors and all(thread.is_alive() for thread in threads), errors
    finally:
        over.set()
        for thread in threads:
            thread.join(120)
    assert not errors, errors
