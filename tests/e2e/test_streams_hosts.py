"""Exchanges by streams between hosts: answers, hosts and workers lost while rows are on their way,
hosts that lack room or files, and nothing left."""

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cluster
import pytest
from conftest import Snowmelt, descendants, wait_for
from lab import Lab, lab
from reference import Reference
from suites import client_of, failures, report, wrong
from test_exchange_streams import QUERIES, numbered
from test_query_hosts import SLOW, Running, answer, outputs, pids

import snowmelt as sm

STREAMED = "streams between hosts"
BROKEN = "hosts (stream broken)"
HOSTS = ["host-1", "host-2", "host-3"]
# The one that is lost.
HOST = "host-3"
# On each host, a task that sends and one that receives.
WORKERS = 3
OPTIONS: dict[str, Any] = {"exchange": "streams", "memory": "128MiB"}
# To and from the tasks of the two other hosts.
STREAMS_OF_A_HOST = 2 + 2


def joined(tables: dict[str, Path]) -> str:
    """A join whose sides are both split by keys: the probe side can be streamed."""
    return (
        "select o_orderpriority p, count(*) c, sum(l_orderkey) s"
        f" from '{tables['lineitem']}' full join '{tables['orders']}' on l_orderkey = o_orderkey"
        " group by 1 order by 1"
    )


def profiled(sql: str, **options: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    query = sm.sql(sql, progress=False, exchange="streams", **options)
    rows = query.collect().to_pylist()
    return rows, query.profile or {}


def pair(profile: dict[str, Any], medium: str = STREAMED) -> list[set[str]]:
    """The hosts of the tasks of two stages between which rows were streamed."""
    stages = profile["stages"]
    sender = next(stage["stage"] for stage in stages if stage["medium"] == medium)
    receiver = next(stage["stage"] for stage in stages if sender in stage["reads"])
    lanes = [lane for lane in profile["lanes"] if lane["name"].startswith("worker")]
    return [
        {lane["host"] for lane in lanes if lane["stage"] == stage} for stage in (sender, receiver)
    ]


@contextmanager
def two(control: Snowmelt, folder: Path, **environment: str) -> Iterator[None]:
    with cluster.two_hosts(control, folder, 7480, control.environ() | environment):
        yield


def test_a_join_streams_between_tasks_of_both_hosts(
    alone: Snowmelt, tables: dict[str, Path], tmp_path: Path
) -> None:
    sql = joined(tables)
    with two(alone, tmp_path):
        expected = answer(sql, workers=4)
        rows, profile = profiled(sql, workers=4)
        plan = answer(f"explain {sql}", workers=4, exchange="streams")
    assert rows == expected
    assert pair(profile) == [{"one", "two"}, {"one", "two"}]
    assert any(f"exchange by {STREAMED} for stage" in row["plan"] for row in plan), plan


def test_answers_to_tpch_on_two_hosts(
    alone: Snowmelt, tables: dict[str, Path], reference: Reference, tmp_path: Path
) -> None:
    with two(alone, tmp_path):
        given = {"exchange": "streams", "memory": "256MiB"}
        check = lambda sql: wrong(sql, tables, 4, reference, **given)  # noqa: E731
        found = failures(QUERIES, check)
    assert not found, report(found, QUERIES, 4)


def test_queries_at_the_same_time_stream_or_store(
    alone: Snowmelt, tables: dict[str, Path], tmp_path: Path
) -> None:
    """Both hosts have room for one gang, or a little more."""
    sql = numbered(tables)
    with two(alone, tmp_path, SNOWMELT_SANDBOXES_MEMORY="1GiB"):
        expected = answer(sql, workers=1)

        def check(_: str) -> str | None:
            rows, _profile = profiled(sql, workers=4, memory="256MiB")
            return str(rows) if rows != expected else None

        wrong_ones = failures({f"query {number}": sql for number in range(9)}, check)
        # What they had is free again.
        _, profile = profiled(sql, workers=2, memory="256MiB")
    assert not wrong_ones
    assert {"one", "two"} == set.union(*pair(profile))


def test_a_host_without_room_takes_no_part(
    alone: Snowmelt, tables: dict[str, Path], tmp_path: Path
) -> None:
    sql = numbered(tables)
    # It has room for one worker.
    with two(alone, tmp_path, SNOWMELT_SANDBOXES_MEMORY="300MiB"):
        expected = answer(sql, workers=1)
        rows, profile = profiled(sql, workers=4, memory="256MiB")
    assert rows == expected
    assert pair(profile, "streams") == [{"one"}, {"one"}]


def test_a_host_without_the_files_receives(alone: Snowmelt, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    hide = f'mount -t tmpfs none {folder} && exec "$@"'
    within = ["unshare", "--mount", "sh", "-c", hide, "sh"]
    with cluster.two_hosts(alone, tmp_path, 7480, alone.environ(), within):
        for number in range(4):
            lines = [f"{value}" for value in range(1000 * number, 1000 * (number + 1))]
            (folder / f"{number}.csv").write_text("\n".join(["a", *lines]))
        sql = f"select a % 500 k, count(*) n from '{folder}' group by 1"
        rows, profile = profiled(f"select count(*) g, sum(n) n from ({sql})", workers=4)
    assert rows == [{"g": 500, "n": 4000}]
    senders, receivers = pair(profile)
    assert senders == {"one"}
    assert "two" in receivers


@pytest.fixture
def three(alone: Snowmelt) -> Iterator[Lab]:
    with lab(alone, len(HOSTS), "--link", "1gbit", "--memory", "4GiB") as made:
        [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(socket):
            yield made


@dataclass
class Before:
    """What the hosts of a lab have before a query streams."""

    made: Lab

    def __post_init__(self) -> None:
        self.workers = {host: workers(self.made, host) for host in HOSTS}
        self.connections = connections(self.made)

    def new_workers(self, host: str) -> list[int]:
        """Workers that are new on a host, and on control's a driver."""
        return sorted(workers(self.made, host) - self.workers[host])

    def wait_for_streams(self) -> None:
        """Waits until all tasks of a gang have a worker."""

        def is_streaming() -> bool:
            now = connections(self.made)
            return all(
                now[host] >= self.connections[host] + STREAMS_OF_A_HOST
                and len(self.new_workers(host)) >= 2
                for host in HOSTS
            )

        wait_for("streams of all hosts", is_streaming)

    def wait_until_clean(self) -> None:
        def is_clean() -> bool:
            now = connections(self.made)
            # Some of what hosts say to each other is a connection for a moment.
            few = all(now[host] <= self.connections[host] + 3 for host in pids(self.made))
            return few and not outputs(self.made)

        wait_for("all streams and outputs to go", is_clean)


def workers(made: Lab, host: str) -> set[int]:
    """The workers on a host, and on control's the drivers."""
    found = descendants(pids(made).get(host, -1))
    return {pid for pid, line in found.items() if "snowmelt-query" in line}


def connections(made: Lab) -> Counter[str]:
    """The connections of each host that are established."""
    found: Counter[str] = Counter()
    for host, pid in pids(made).items():
        for family in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]
                found[host] += sum(line.split()[3] == "01" for line in lines)
    return found


@pytest.mark.parametrize("how", ["kill", "unplug", "partition"])
def test_a_host_lost_while_rows_are_streamed(three: Lab, tables: dict[str, Path], how: str) -> None:
    # Its workers have other limits, and are not taken for those that stream.
    expected = answer(numbered(tables), workers=1)
    before = Before(three)
    running = Running(numbered(tables, SLOW), workers=WORKERS, **OPTIONS)
    before.wait_for_streams()
    three.fail(HOST, how)
    assert running.rows() == expected
    assert running.stages()[0]["medium"] == BROKEN
    three.heal(HOST)
    before.wait_until_clean()


def test_a_worker_killed_while_rows_are_streamed(three: Lab, tables: dict[str, Path]) -> None:
    # Its workers have other limits, and are not taken for those that stream.
    expected = answer(numbered(tables), workers=1)
    before = Before(three)
    running = Running(numbered(tables, SLOW), workers=WORKERS, **OPTIONS)
    before.wait_for_streams()
    with contextlib.suppress(ProcessLookupError):
        os.kill(before.new_workers(HOST)[-1], signal.SIGKILL)
    assert running.rows() == expected
    assert running.stages()[0]["medium"] == BROKEN
    before.wait_until_clean()


@pytest.mark.parametrize("ending", ["cancelled", "control killed"])
def test_a_query_that_ends_early_leaves_nothing_on_any_host(
    three: Lab, tables: dict[str, Path], ending: str
) -> None:
    sql = numbered(tables, SLOW, SLOW)
    before = Before(three)
    client = three.start(f"sm.sql({sql!r}, workers={WORKERS}, **{OPTIONS!r}).collect()")
    before.wait_for_streams()
    if ending == "cancelled":
        client.kill()
    else:
        three.fail("host-1")
    client.communicate()
    others = [host for host in HOSTS if host in pids(three)]
    wait_for("all workers to go", lambda: not any(workers(three, host) for host in others))
    before.wait_until_clean()
    if ending == "cancelled":
        # The room is free again.
        rows, profile = profiled(numbered(tables), workers=WORKERS, memory="128MiB")
        assert rows == answer(numbered(tables), workers=WORKERS)
        assert pair(profile) == [set(HOSTS), set(HOSTS)]
    else:
        three.heal("host-1")
