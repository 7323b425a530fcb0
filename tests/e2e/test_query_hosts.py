"""Queries on all hosts of a lab: the same answers, also when hosts are lost, and nothing left."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cluster
import pytest
from analytics import TPCH_QUERIES
from conftest import Snowmelt, wait_for
from lab import Lab, lab
from reference import Reference
from suites import client_of, failures, report, wrong

import snowmelt as sm

QUERIES = {file.stem: file.read_text() for file in sorted(TPCH_QUERIES.glob("q*.sql"))}
HOSTS = 4
NAMES = [f"host-{number}" for number in range(1, HOSTS + 1)]
# Where control runs.
CONTROL = NAMES[0]

# Hosts of a lab reach no package index, so what takes long there is an expression: it gives its
# column, and takes a millisecond or so for each row.
KEY = "cast({0} as varchar)"
SLOW = "greatest({0}, levenshtein(repeat(" + KEY + ", 250), repeat('12345', 250)) - 100000)"

FUNCTION = """import snowmelt as sm

@sm.udf
def twice(x: int) -> int:
    return 2 * x
"""


@pytest.fixture
def four(alone: Snowmelt) -> Iterator[Lab]:
    with lab(alone, HOSTS, "--link", "1gbit", "--memory", "2GiB") as made:
        [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(socket):
            yield made


def pids(made: Lab) -> dict[str, int]:
    """The process of each host that runs."""
    return {state["name"]: state["pid"] for state in made.states() if state["pid"]}


def outputs(made: Lab) -> Counter[str]:
    """How many outputs of tasks the processes of the hosts keep."""
    found: Counter[str] = Counter()
    for host, pid in pids(made).items():
        # A process that was killed may have ended by now.
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    found[host] += "/exchange/" in str(link.readlink())
    return +found


def wait_for_a_host_with_outputs(made: Lab) -> str:
    """A host other than control's that keeps outputs of a query that runs.

    Which hosts run the short tasks of a query depends on how busy the machine is.
    """
    found: list[str] = wait_for(
        "outputs on a host other than control's", lambda: sorted(outputs(made).keys() - {CONTROL})
    )
    return found[0]


def wait_until_clean(made: Lab) -> None:
    wait_for("all outputs to go", lambda: not outputs(made))


def joined(tables: dict[str, Path], before: str, after: str) -> str:
    """Two scans, a join of both, and groups of that: four stages.

    The orders are in four files. Each has rows of the join, so each is read by a task; the first
    has most, so that the outputs of the other tasks exist before this stage ends.
    """
    return (
        f"select o_orderpriority p, count(*) c, sum(k) s from ("
        f" select o_orderpriority, {after} k from"
        f" (select l_orderkey from '{tables['lineitem']}' where l_quantity > 45) l join"
        f" (select o_orderkey, o_orderpriority, {before} v from '{tables['orders']}'"
        f"  where o_orderkey < 9000 or o_orderkey % 7 = 0) o on l_orderkey = o_orderkey)"
        f" group by o_orderpriority order by 1"
    )


class Running:
    """A query that runs in a thread."""

    def __init__(self, sql: str, **options: Any) -> None:
        self._query = sm.sql(sql, progress=False, **options)
        self._answer: list[dict[str, Any]] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._query.collect().to_pylist()
        except Exception as error:
            self._error = error

    def runs(self) -> bool:
        return self._thread.is_alive()

    def rows(self) -> list[dict[str, Any]]:
        self._thread.join(180)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self._answer

    def stages(self) -> list[dict[str, Any]]:
        """From its profile, once it has ended."""
        return list((self._query.profile or {})["stages"])


def answer(sql: str, **options: Any) -> list[dict[str, Any]]:
    return list(sm.sql(sql, progress=False, **options).collect().to_pylist())


def test_answers_to_tpch_on_four_hosts(
    four: Lab, tables: dict[str, Path], reference: Reference
) -> None:
    assert len(QUERIES) == 22
    found = failures(QUERIES, lambda sql: wrong(sql, tables, 8, reference))
    assert not found, report(found, QUERIES, 8)
    wait_until_clean(four)


def test_tasks_run_on_all_hosts_and_the_plan_names_the_exchange(
    four: Lab, tables: dict[str, Path]
) -> None:
    # Tasks that take long run at the same time, however busy the machine is.
    sql = joined(tables, "o_orderkey", SLOW.format("v"))
    query = sm.sql(sql, workers=8, progress=False)
    query.collect()
    lanes = [lane for lane in (query.profile or {})["lanes"] if "worker" in lane["name"]]
    found = Counter(lane["host"] for lane in lanes)
    assert set(found) == set(NAMES), found
    plan = answer(f"explain {sql}", workers=8)
    assert any("exchange by hosts" in row["plan"] for row in plan), plan


@pytest.mark.parametrize(
    ("before", "after"),
    [(SLOW.format("o_orderkey"), "v"), ("o_orderkey", SLOW.format("v"))],
    ids=["in a scan", "above the join"],
)
@pytest.mark.parametrize("how", ["kill", "unplug", "partition"])
def test_a_host_lost_in_any_stage_gives_the_same_answer(
    four: Lab, tables: dict[str, Path], before: str, after: str, how: str
) -> None:
    rows = answer(joined(tables, "o_orderkey", "v"), workers=8)
    running = Running(joined(tables, before, after), workers=8)
    lost = wait_for_a_host_with_outputs(four)
    four.fail(lost, how)
    assert running.rows() == rows
    four.heal(lost)
    wait_until_clean(four)


def test_a_frozen_host_is_lost(four: Lab, tables: dict[str, Path]) -> None:
    rows = answer(joined(tables, "o_orderkey", "v"), workers=8)
    running = Running(joined(tables, SLOW.format("o_orderkey"), "v"), workers=8)
    frozen = pids(four)[wait_for_a_host_with_outputs(four)]
    os.kill(frozen, signal.SIGSTOP)
    try:
        assert running.rows() == rows
    finally:
        os.kill(frozen, signal.SIGCONT)
    wait_until_clean(four)


def test_a_cancelled_query_leaves_nothing_on_any_host(four: Lab, tables: dict[str, Path]) -> None:
    sql = joined(tables, "o_orderkey", SLOW.format("v"))
    client = four.start(f"sm.sql({sql!r}, workers=8).collect()")
    wait_for_a_host_with_outputs(four)
    client.kill()
    client.communicate()
    wait_until_clean(four)


def test_a_control_that_is_killed_leaves_nothing_on_other_hosts(
    four: Lab, tables: dict[str, Path]
) -> None:
    sql = joined(tables, "o_orderkey", SLOW.format("v"))
    client = four.start(f"sm.sql({sql!r}, workers=8).collect()")
    wait_for_a_host_with_outputs(four)
    four.fail(CONTROL)
    client.communicate()
    wait_until_clean(four)
    four.heal(CONTROL)


@pytest.fixture
def unlike(alone: Snowmelt, tmp_path: Path) -> Iterator[Path]:
    """A folder that control's host has and the other host of its cluster does not see."""
    folder = tmp_path / "data"
    folder.mkdir()
    hide = f'mount -t tmpfs none {folder} && exec "$@"'
    within = ["unshare", "--mount", "sh", "-c", hide, "sh"]
    with cluster.two_hosts(alone, tmp_path, 7470, alone.environ(), within):
        yield folder


def test_a_file_that_only_one_host_has_is_read_there(unlike: Path, tmp_path: Path) -> None:
    for number in range(4):
        lines = [f"{value}" for value in range(1000 * number, 1000 * (number + 1))]
        (unlike / f"{number}.csv").write_text("\n".join(["a", *lines]))
    query = sm.sql(f"select count(*) n, sum(a) s from '{unlike}'", workers=4, progress=False)
    assert query.collect().to_pylist() == [{"n": 4000, "s": 7998000}]
    lanes = (query.profile or {})["lanes"]
    assert {lane["host"] for lane in lanes if lane["stage"] == 0} == {"one"}


def test_functions_run_beside_the_tasks_of_all_hosts(
    unlike: Path, tmp_path: Path, tables: dict[str, Path], reference: Reference
) -> None:
    udfs = tmp_path / "udfs.py"
    udfs.write_text(FUNCTION)
    sql = f"select sum(twice(l_orderkey)) s from '{tables['lineitem']}'"
    [(expected,)] = reference.rows("select sum(2 * l_orderkey) from lineitem")

    def hosts() -> set[str]:
        query = sm.sql(sql, workers=8, udfs=[udfs], progress=False)
        assert [int(row["s"]) for row in query.collect().to_pylist()] == [expected]
        lanes = [lane for lane in (query.profile or {})["lanes"] if "twice" in lane["name"]]
        return {lane["host"] for lane in lanes}

    # The first queries do not wait until the other host has installed what the function needs.
    wait_for("the function on both hosts", lambda: hosts() == {"one", "two"}, seconds=120)
