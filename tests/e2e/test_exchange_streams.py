"""Exchanges by streams: answers, workers killed in each phase, a host without room, early ends, and
nothing left."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from analytics import TPCH_QUERIES
from conftest import Snowmelt, wait_for
from reference import Reference
from suites import failures, report, warm_server, wrong
from test_endings import workers
from test_query_hosts import SLOW

import snowmelt as sm

QUERIES = {file.stem: file.read_text() for file in sorted(TPCH_QUERIES.glob("q*.sql"))}
WORKERS = 3
# So that there is room for all workers of two stages.
MEMORY = "256MiB"
BROKEN = "store their rows"


def numbered(tables: dict[str, Path], before: str = "{0}", after: str = "{0}") -> str:
    """A scan whose rows are numbered by customer in the second stage. Expressions make one of them
    slow; its tasks take some seconds."""
    return (
        f"select count(*) c, sum(n) n, sum(s) s from"
        f" (select n, {after.format('k')} s from"
        f"  (select k, row_number() over (partition by w order by k) n from"
        f"   (select {before.format('o_orderkey')} k, o_custkey w from '{tables['orders']}'"
        f"    where o_orderkey < 20000)))"
    )


def stages(sql: str, **options: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of a query, and its stages."""
    given = {"memory": MEMORY, **options}
    query = sm.sql(sql, progress=False, exchange="streams", **given)
    rows = query.collect().to_pylist()
    return rows, (query.profile or {})["stages"]


@pytest.mark.parametrize("workers", [1, WORKERS])
def test_answers_to_tpch(
    alone: Snowmelt, tables: dict[str, Path], reference: Reference, workers: int
) -> None:
    assert len(QUERIES) == 22
    with warm_server(alone.folder):
        given = {"exchange": "streams", "memory": "512MiB"}
        check = lambda sql: wrong(sql, tables, workers, reference, **given)  # noqa: E731
        found = failures(QUERIES, check)
    assert not found, report(found, QUERIES, workers)


def test_the_profile_and_the_plan_name_streams(alone: Snowmelt, tables: dict[str, Path]) -> None:
    sql = numbered(tables)
    with warm_server(alone.folder):
        _, [sender, receiver] = stages(sql, workers=WORKERS)
        explained = sm.sql(f"explain {sql}", progress=False, exchange="streams", workers=WORKERS)
        plan = " ".join(row["plan"] for row in explained.collect().to_pylist())
    assert (sender["medium"], receiver["medium"]) == ("streams", "driver")
    assert 0 < sender["bytes_sent"] == receiver["bytes_received"]
    assert sender["largest"]["of"] == WORKERS
    # Both ran at the same time.
    assert receiver["from_us"] < sender["to_us"]
    assert "exchange by streams for stage 1" in plan


def test_without_room_for_all_tasks_rows_are_stored(
    alone: Snowmelt, tables: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = numbered(tables)
    expected = alone.rows(sql, "--workers", 1)
    # The driver, and four workers.
    monkeypatch.setenv("SNOWMELT_SANDBOXES_MEMORY", "2GiB")
    with warm_server(alone.folder):
        rows, [sender, _] = stages(sql, workers=WORKERS, memory="128MiB")
        fitting, [streamed, _] = stages(sql, workers=2, memory="128MiB")
    assert rows == fitting == expected
    assert sender["medium"] == "files (no room for all tasks at once)"
    assert streamed["medium"] == "streams"


def test_queries_at_the_same_time_stream_or_store(
    alone: Snowmelt, tables: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gangs of several queries wait for none of the others."""
    sql = numbered(tables)
    expected = alone.rows(sql, "--workers", 1)
    monkeypatch.setenv("SNOWMELT_SANDBOXES_MEMORY", "6GiB")
    with warm_server(alone.folder):
        check = lambda _: str(found) if (found := stages(sql, workers=4)[0]) != expected else None  # noqa: E731
        wrong_ones = failures({f"query {number}": sql for number in range(12)}, check)
    assert not wrong_ones


def cpu(worker: int) -> int:
    try:
        fields = Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    except OSError:
        return -1


def by_work(found: list[int]) -> list[int]:
    """Workers, those that have computed most lately last."""
    before = {worker: cpu(worker) for worker in found}
    time.sleep(0.3)
    return sorted(found, key=lambda worker: cpu(worker) - before[worker])


def start(snowmelt: Snowmelt, sql: str) -> "subprocess.Popen[str]":
    options = ["--workers", WORKERS, "--memory", MEMORY, "--exchange", "streams"]
    return snowmelt.start("sql", sql, "-o", "json", "--embedded", *options)


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("slow", "which"),
    [("before", "first"), ("before", "sends"), ("before", "waits"), ("after", "computes")],
)
def test_a_worker_killed_in_each_phase(
    snowmelt: Snowmelt, tables: dict[str, Path], slow: str, which: str
) -> None:
    expected = snowmelt.rows(numbered(tables), "--workers", 1)
    process = start(snowmelt, numbered(tables, **{slow: SLOW}))
    if which == "first":
        victim = wait_for("a worker", lambda: max(workers(process.pid), default=None))
    else:
        # Those that have sent may have ended.
        least = WORKERS if slow == "after" else 2 * WORKERS
        wait_for("a worker for each task", lambda: len(workers(process.pid)) >= least)
        time.sleep(0.5)
        order = by_work(workers(process.pid))
        victim = order[0] if which == "waits" else order[-1]
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    done = snowmelt.finish(process).succeeded()
    assert rows_of(done.out) == expected
    assert BROKEN in done.err, done.err


def test_workers_killed_again_and_again_give_the_same_answer(
    snowmelt: Snowmelt, tables: dict[str, Path]
) -> None:
    expected = snowmelt.rows(numbered(tables), "--workers", 1)
    process, killed = start(snowmelt, numbered(tables, SLOW, SLOW)), set[int]()
    # The second one runs with rows that are stored.
    while process.poll() is None and len(killed) < 2:
        time.sleep(0.7)
        for worker in [it for it in workers(process.pid) if it not in killed][-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
            killed.add(worker)
    assert rows_of(snowmelt.finish(process).succeeded().out) == expected
    assert killed


@pytest.mark.parametrize("ending", ["cancelled", "killed"])
def test_a_query_that_ends_early_leaves_nothing(
    alone: Snowmelt, tables: dict[str, Path], ending: str
) -> None:
    process = start(alone, numbered(tables, SLOW, SLOW))
    wait_for("a worker for each task", lambda: len(workers(process.pid)) == 2 * WORKERS)
    process.send_signal(signal.SIGINT if ending == "cancelled" else signal.SIGKILL)
    assert alone.finish(process).code != 0
    # What a killed server leaves, the next one removes.
    assert alone.rows("select 1 as one") == [{"one": 1}]


def test_a_limit_ends_the_tasks_that_send(alone: Snowmelt, tables: dict[str, Path]) -> None:
    sql = (
        f"select l_orderkey, o_comment from '{tables['lineitem']}' full join"
        f" '{tables['orders']}' on l_orderkey = o_orderkey limit 3"
    )
    with warm_server(alone.folder):
        rows, found = stages(sql, workers=WORKERS)
    assert len(rows) == 3
    assert any(stage["medium"] == "streams" for stage in found), found
