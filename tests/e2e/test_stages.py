"""Queries in several stages: lost workers, a full disk, an early end, and nothing left behind."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import CLEAN_WITHIN_S, Snowmelt, wait_for
from test_endings import drivers_and_workers, workers

from common.machine_state import MachineState

SLOW = """import time

@sm.udf
def slow(x: int) -> int:
    time.sleep(0.002)
    return x
"""


def joined(data: Path, before: str, after: str) -> str:
    """Two scans, a join of both, and groups of that: four stages, in which `slow` is called in a
    scan or above the join."""
    return (
        f"select o_orderpriority p, count(*) c, sum(k) s from ("
        f" select o_orderpriority, {after} k from"
        f" (select l_orderkey from '{data / 'lineitem'}' where l_quantity > 49) l join"
        f" (select o_orderkey, o_orderpriority, {before} v from '{data / 'orders'}'"
        f"  where o_orderkey < 9000) o on l_orderkey = o_orderkey)"
        f" group by o_orderpriority order by 1"
    )


def assert_answer_despite_kills(
    snowmelt: Snowmelt, process: subprocess.Popen[str], expected: list[dict[str, object]]
) -> None:
    """Kills two workers of an embedded query `joined`, and compares its JSON."""
    killed: set[int] = set()
    while process.poll() is None and len(killed) < 2:
        for worker in workers(process.pid)[-1:]:
            if worker not in killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
                killed.add(worker)
        time.sleep(0.3)
    done = snowmelt.finish(process).succeeded()
    assert killed
    lines = [line for line in done.out.splitlines() if line]
    rows = ",".join(lines)
    assert len(lines) == len(expected)
    for row in expected:
        assert f'"c":{row["c"]},"s":{row["s"]}' in rows


@pytest.fixture
def expected(snowmelt: Snowmelt, data: Path) -> list[dict[str, object]]:
    return snowmelt.rows(joined(data, "o_orderkey", "o_orderkey"), "--workers", 1)


@pytest.mark.parametrize(
    ("before", "after"), [("slow(o_orderkey)", "v"), ("o_orderkey", "slow(v)")]
)
def test_workers_killed_in_any_stage_give_the_same_answer(
    snowmelt: Snowmelt,
    data: Path,
    udf_file: Callable[[str], Path],
    expected: list[dict[str, object]],
    before: str,
    after: str,
) -> None:
    process = snowmelt.start(
        "sql", joined(data, before, after), "-o", "json", "--udf", udf_file(SLOW),
        "--workers", 3, "--embedded",
    )  # fmt: skip
    assert_answer_despite_kills(snowmelt, process, expected)


def test_a_worker_that_is_frozen_is_overtaken(
    alone: Snowmelt, data: Path, expected_pairs: tuple[str, str]
) -> None:
    sql, rows = expected_pairs
    process = alone.start("sql", sql, "-o", "json", "--workers", 3, "--embedded")
    wait_for("a worker for each task", lambda: len(workers(process.pid)) >= 3)
    time.sleep(0.5)
    frozen = workers(process.pid)[0]
    os.kill(frozen, signal.SIGSTOP)
    # Without a second attempt it would wait for the frozen worker.
    done = alone.finish(process).succeeded()
    assert done.out.strip() == rows
    assert "is slow: a second attempt is started" in done.err
    assert not Path(f"/proc/{frozen}").exists()


@pytest.fixture
def expected_pairs(snowmelt: Snowmelt, data: Path) -> tuple[str, str]:
    """A query whose tasks compute for seconds, without a function, and its answer."""
    sql = (
        f"select count(*) c from '{data / 'lineitem'}' l, '{data / 'orders'}' o"
        f" where l_orderkey % 1000 + l_linenumber > o_orderkey % 1001 + o_custkey % 5"
    )
    return sql, f'{{"c":{snowmelt.rows(sql, "--workers", 1)[0]["c"]}}}'


def test_a_killed_server_leaves_no_exchange(
    alone: Snowmelt, data: Path, udf_file: Callable[[str], Path]
) -> None:
    before = MachineState()
    sql = joined(data, "o_orderkey", "slow(v)")
    process = alone.start("sql", sql, "--udf", udf_file(SLOW), "--workers", 2, "--embedded")
    wait_for("a worker", lambda: len(drivers_and_workers(process.pid)) > 2)
    process.kill()
    process.wait()
    alone.rows("select 1 as one")
    assert not before.remaining_within(CLEAN_WITHIN_S)
    folder = alone.folder / "state" / "exchange"
    assert [file for file in folder.rglob("*") if not file.is_dir()] == []


@pytest.fixture
def small_exchange(alone: Snowmelt) -> Iterator[Path]:
    """The folder of exchanges on a file system of 1 MiB."""
    folder = alone.folder / "state" / "exchange"
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_an_exchange_that_does_not_fit_is_an_error(
    alone: Snowmelt, data: Path, small_exchange: Path
) -> None:
    sql = f"select l_orderkey, l_comment, count(*) from '{data / 'lineitem'}' group by 1, 2"
    done = alone.sql(sql, "--workers", 3)
    assert done.code == 3, done
    done.failed_with("SM-0506", "exchange")
    assert [file for file in small_exchange.rglob("*") if not file.is_dir()] == []
    assert alone.rows("select 1 as one") == [{"one": 1}]


def test_a_limit_ends_the_workers(
    snowmelt: Snowmelt, data: Path, udf_file: Callable[[str], Path]
) -> None:
    # All rows would take two minutes.
    sql = f"select slow(l_orderkey) k from '{data / 'lineitem'}' limit 3"
    assert len(snowmelt.rows(sql, "--udf", udf_file(SLOW), "--workers", 2, timeout=60)) == 3


def test_queries_at_the_same_time_read_their_own_exchanges(snowmelt: Snowmelt, data: Path) -> None:
    def sql(number: int) -> str:
        return (
            f"select count(*) c, sum(o_orderkey) s from '{data / 'lineitem'}' l"
            f" join '{data / 'orders'}' o on l_orderkey = o_orderkey + {number}"
        )

    alone = [snowmelt.rows(sql(number), "--workers", 3) for number in range(4)]
    started = [
        snowmelt.start("sql", sql(number), "-o", "json", "--workers", 3) for number in range(4)
    ]
    for process, rows in zip(started, alone, strict=True):
        out = snowmelt.finish(process).succeeded().out.strip()
        assert out == f'{{"c":{rows[0]["c"]},"s":{rows[0]["s"]}}}'
