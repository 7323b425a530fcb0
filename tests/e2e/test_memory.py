"""Joins that do not fit into the memory of a worker: the answers of DuckDB, from
scratch on the disk, of which nothing is left however the query ends."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import CLEAN_WITHIN_S, Snowmelt, descendants, wait_for
from suites import client_of, warm_server
from test_endings import workers
from test_query_phases import POSTS, READS, phase

import snowmelt as sm

WORKERS = 2
# A worker's operators can use about two thirds of it. Each join below needs at least twice as
# much, also the one of two integers.
MEMORY = "128MiB"
# Enough for each join here without scratch.
ENOUGH = "2GiB"

SORTED = "a join did not fit into memory and was done by sorting"

# Of `build` and `probe`, half of the keys of each are in the other; `n` has nulls. The others have
# the columns of TPC-H that its query 18 reads.
TABLES = {
    "build": "select k, if(i % 1000 = 7, null, k) n, i v, md5(i::varchar) t"
    " from (select i, i * 7919 % 3200000 k from range(4000000) r(i))",
    "probe": "select k, if(i % 1000 = 7, null, k) n, i v, md5((-i)::varchar) t"
    " from (select i, 1600000 + i * 104729 % 3200000 k from range(4800000) r(i))",
    "customer": "select i c_custkey, 'Customer#' || i c_name from range(100000) r(i)",
    "orders": "select i o_orderkey, i * 7919 % 100000 o_custkey,"
    " (i * 104729 % 50000000 / 100)::decimal(15, 2) o_totalprice,"
    " date '1992-01-01' + (i % 2400)::int o_orderdate from range(1500000) r(i)",
    "lineitem": "select i * 7919 % 6000000 // 4 l_orderkey,"
    " (i * 31 % 97)::decimal(15, 2) l_quantity from range(6000000) r(i)",
}

Q18 = Path(__file__).resolve().parents[1] / "tpch" / "q18.sql"

# Joins in forms that hash joins do in one pass, with conditions beside the keys.
JOINS = {
    "inner": "build b join probe p on b.k = p.k",
    "full": "build b full join probe p on b.n = p.n and b.v % 7 < p.v % 5",
    "left": "probe p left join build b on b.n = p.n and b.v % 3 < p.v % 5",
}
NOT_IN = (
    "select count(*) c, sum(v) s from probe"
    " where n not in (select n from build where n is not null)"
)
# A null among the values excludes all rows, so that they are not even sorted.
NOT_IN_NULLS = "select count(*) c, sum(v) s from probe where n not in (select n from build)"

# Each group has a text of 32 characters.
GROUPS = "select count(*) c, sum(n) s, max(t) t from (select t, count(*) n from probe group by t)"


def joined(form: str) -> str:
    """A join whose answer depends on all of its rows."""
    return (
        "select count(*) c, count(b.v) nb, count(p.v) np, sum(b.v) sb, sum(p.v) sp, max(b.t) tb,"
        f" max(p.t) tp from {JOINS[form]}"
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tables")
    for name, rows in TABLES.items():
        (folder / name).mkdir()
        file = folder / name / "0.parquet"
        duckdb.sql(f"copy ({rows}) to '{file}' (format parquet, row_group_size 100000)")
    return {name: folder / name for name in TABLES}


def expected(sql: str, tables: dict[str, Path]) -> list[dict[str, Any]]:
    with duckdb.connect() as database:
        for name, folder in tables.items():
            database.sql(f"create view {name} as select * from '{folder}/*.parquet'")
        return database.sql(sql).to_arrow_table().to_pylist()


@pytest.fixture
def server(alone: Snowmelt) -> Iterator[int]:
    """The process of a running server, which the SDK uses."""
    alone.run("up").succeeded()
    pid = int(json.loads(alone.run("status", "-o", "json").succeeded().out)["pid"])
    with client_of(alone.folder / "state" / "snowmelt.sock"):
        yield pid
    alone.run("down").succeeded()


def on_disk(server: int) -> dict[int, int]:
    """Bytes of files of exchanges and scratch that processes of a server have open, by process."""
    found: dict[int, int] = {}
    for process in [server, *descendants(server)]:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{process}/fd").iterdir():
                if "/exchange/" in str(link.readlink()):
                    found[process] = found.get(process, 0) + link.stat().st_size
    return found


def assert_nothing_left(alone: Snowmelt, server: int) -> None:
    wait_for("the end of all scratch", lambda: not on_disk(server), CLEAN_WITHIN_S)
    folder = alone.folder / "state" / "exchange"
    assert [file for file in folder.rglob("*") if not file.is_dir()] == []


def run(
    sql: str, tables: dict[str, Path], memory: str, workers: int = WORKERS
) -> tuple[list[Any], dict[str, Any]]:
    """The rows of an answer, and the profile."""
    named: dict[str, Any] = {name: path for name, path in tables.items() if name in sql}
    query = sm.sql(sql, workers=workers, memory=memory, udfs=[], progress=False, **named)
    return query.collect().to_pylist(), dict(query.profile or {})


def titles(profile: dict[str, Any]) -> list[str]:
    return [finding["title"] for finding in profile["findings"]]


def spilled(profile: dict[str, Any]) -> int:
    return int(profile["totals"]["progress"]["spilled_bytes"])


@pytest.mark.parametrize("sql", [*map(joined, JOINS), NOT_IN], ids=[*JOINS, "not in"])
def test_a_join_that_does_not_fit_is_done_by_sorting(
    alone: Snowmelt, server: int, tables: dict[str, Path], sql: str
) -> None:
    rows, profile = run(sql, tables, MEMORY)
    assert rows == expected(sql, tables)
    assert SORTED in titles(profile)
    assert spilled(profile) > 0
    assert_nothing_left(alone, server)


def test_not_in_with_nulls_has_no_rows(
    alone: Snowmelt, server: int, tables: dict[str, Path]
) -> None:
    rows, _ = run(NOT_IN_NULLS, tables, MEMORY)
    assert rows == expected(NOT_IN_NULLS, tables) == [{"c": 0, "s": None}]
    assert_nothing_left(alone, server)


def test_a_join_that_fits_is_not_done_by_sorting(server: int, tables: dict[str, Path]) -> None:
    sql = joined("inner")
    rows, profile = run(sql, tables, ENOUGH)
    assert rows == expected(sql, tables)
    assert SORTED not in titles(profile) and spilled(profile) == 0


def test_query_18_of_tpch_in_little_memory(
    alone: Snowmelt, server: int, tables: dict[str, Path]
) -> None:
    sql = Q18.read_text()
    rows, _ = run(sql, tables, "160MiB")
    assert rows == expected(sql, tables) and len(rows) > 50
    assert_nothing_left(alone, server)


def command(sql: str, tables: dict[str, Path], memory: str) -> list[object]:
    words: list[object] = ["sql", sql, "-o", "json", "--workers", WORKERS, "--memory", memory]
    for name, folder in tables.items():
        words += ["--table", f"{name}={folder}"]
    return words


def spilling(server: int) -> int | None:
    """A worker that has something in its scratch."""
    for worker in workers(server):
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{worker}/fd").iterdir():
                if "/exchange/scratch/" in str(link.readlink()) and link.stat().st_size > 0:
                    return worker
    return None


def test_a_worker_killed_while_it_spills_leaves_nothing(
    alone: Snowmelt, server: int, tables: dict[str, Path]
) -> None:
    sql = joined("inner")
    process = alone.start(*command(sql, tables, MEMORY))
    os.kill(wait_for("a worker that spills", lambda: spilling(server), pause=0.002), signal.SIGKILL)
    done = alone.finish(process).succeeded()
    assert json.loads(done.out) == expected(sql, tables)[0]
    assert "is retried" in done.err
    assert_nothing_left(alone, server)


def test_a_query_cancelled_while_it_spills_leaves_nothing(
    alone: Snowmelt, server: int, tables: dict[str, Path]
) -> None:
    process = alone.start(*command(joined("inner"), tables, MEMORY))
    wait_for("a worker that spills", lambda: spilling(server), pause=0.002)
    process.send_signal(signal.SIGINT)
    assert alone.finish(process, timeout=30).code in (130, -signal.SIGINT)
    assert_nothing_left(alone, server)


def limit_to_what_it_has(process: int) -> None:
    """Sets the memory limit of a process's control group a little above what it has allocated, so
    that the kernel ends it when it needs more."""
    lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
    paths = {line.split(":")[1]: line.split(":", 2)[2].lstrip("/") for line in lines}
    if "memory" in paths:
        group = Path("/sys/fs/cgroup/memory") / paths["memory"]
        limit, allocated = group / "memory.limit_in_bytes", "rss"
    else:
        group = Path("/sys/fs/cgroup") / paths[""]
        limit, allocated = group / "memory.max", "anon"

    def is_set() -> bool:
        lines = [line.split() for line in (group / "memory.stat").read_text().splitlines()]
        bytes_now = {name: int(value) for name, value in lines}[allocated]
        try:
            limit.write_text(str(bytes_now + (8 << 20)))
        except OSError:
            # The kernel of version 1 could not free all cached pages yet.
            return False
        return True

    wait_for("a lower memory limit", is_set)


@pytest.mark.parametrize(
    "sql, note",
    [(joined("inner"), "it sorts instead"), (GROUPS, "it uses its scratch sooner")],
    ids=["a join", "groups"],
)
def test_a_task_whose_worker_the_kernel_ends_runs_again_with_less_memory(
    alone: Snowmelt, server: int, tables: dict[str, Path], sql: str, note: str
) -> None:
    process = alone.start(*command(sql, tables, ENOUGH))

    def reads() -> int | None:
        return next((it for it in workers(server) if phase(it) in (READS, POSTS)), None)

    worker = wait_for("a worker that reads outputs", reads, pause=0.002)
    os.kill(worker, signal.SIGSTOP)
    limit_to_what_it_has(worker)
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)
    done = alone.finish(process).succeeded()
    assert json.loads(done.out) == expected(sql, tables)[0]
    assert f"reached its memory limit, {note}" in done.err
    assert_nothing_left(alone, server)


def test_a_worker_that_is_used_again_needs_no_more_memory(alone: Snowmelt, tmp_path: Path) -> None:
    # 23,000 rows for each of two workers, in a query that uses two thirds of their memory.
    numbers = np.random.default_rng(1)
    place = tmp_path / "rows"
    place.mkdir()
    for number in range(2):
        columns = {f"c{n}": numbers.integers(0, 1 << 40, 23_000) for n in range(6)}
        pq.write_table(pa.table(columns), place / f"{number}.parquet")
    largest = ", ".join(f"max(c{n}) as c{n}" for n in range(2, 6))
    query = f"select count(*) n from (select c0, c1, {largest} from rows group by c0, c1)"
    with warm_server(alone.folder):
        for _ in range(8):
            asked = sm.sql(
                query, workers=2, memory="72MiB", exchange_task=1, exchange="files",
                rows=str(place), udfs=[], progress=False,
            )  # fmt: skip
            assert asked.collect()["n"].to_pylist() == [46_000]
            profile = asked.profile
            assert profile is not None
            # What the allocator keeps of one task does not bring the next one to the limit.
            assert max(lane["peak_memory"] for lane in profile["lanes"]) < 68 << 20
