"""Spark with two workers: functions of rows and groups, and nothing is left of an application."""

import glob
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import short_folder, wait_for
from spark_application import WAITS, best, grade, middle, priced, prices, sales
from spark_session import WORKERS, cluster
from suites import warm_server

import snowmelt as sm

pytest.importorskip("pyspark")

APPLICATION = Path(__file__).with_name("spark_application.py")


@pytest.fixture(scope="module")
def master(machine: None) -> Iterator[str]:
    with short_folder() as folder, cluster(folder) as address:
        yield address


@pytest.fixture(autouse=True)
def server(nothing_left: None, shared_folder: Path) -> Iterator[None]:
    with warm_server(shared_folder):
        yield


def start(master: str, task: str) -> subprocess.Popen[str]:
    """The application, with the same modules as this process."""
    here = [str(APPLICATION.parent), *(path for path in sys.path if path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(here)}
    command = [sys.executable, str(APPLICATION), master, task]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def by_snowmelt() -> dict[str, list[list[Any]]]:
    """What the application computes, in Snowmelt's SQL."""
    sold, cost = pa.Table.from_pylist(sales()), pa.Table.from_pylist(prices())
    rows = "array_agg(named_struct('g', g, 'n', n, 'amount', amount))"
    costs = "array_agg(named_struct('g', g, 'price', price))"
    asked = {
        "grade": "select n, grade(amount, name) v from sold order by n",
        "middle": "select g, middle(array_agg(amount)) v from sold group by g order by g",
        "of all": "select middle(array_agg(amount)) v from sold where n > 5",
        "best": f"select best({rows}) v from sold group by g",
        "priced": f"""
            select priced(s.v, c.v) v
            from (select g, {rows} v from sold group by g) s
            full join (select g, {costs} v from cost group by g) c on s.g = c.g""",
    }
    found = {}
    for name, sql in asked.items():
        tables = {"sold": sold, "cost": cost} if name == "priced" else {"sold": sold}
        table = sm.sql(sql, udfs=[grade, middle, best, priced], **tables).arrow()
        values = [list(row.values()) for row in table.to_pylist()]
        if name in ("best", "priced"):
            # Lists of rows, in the order of the application.
            values = sorted(list(row.values()) for one in values for row in one[0])
        found[name] = values
    return found


def test_functions_of_rows_and_groups_give_what_snowmelt_gives(master: str) -> None:
    application = start(master, "answers")
    out, _ = application.communicate(timeout=300)
    assert application.returncode == 0
    found = json.loads(out)
    assert found.pop("executors") == WORKERS
    assert found == by_snowmelt()
    assert [value for g, value in found["middle"]][5] is None, "the group with a null"
    assert len(found["priced"]) == 4, "a price without sales is a group as well"


def waiting() -> list[Path]:
    """The threads of calls that do not end."""
    found = []
    # `Path.glob` fails where a process ends while its folder is listed; `glob.glob` leaves it out.
    for path in map(Path, glob.glob("/proc/[0-9]*/task/[0-9]*/comm")):  # noqa: PTH207
        try:
            if path.read_text().strip() == WAITS:
                found.append(path)
        except OSError:
            continue
    return found


def test_the_end_of_an_application_ends_its_instances(master: str) -> None:
    application = start(master, "waits")
    try:
        wait_for("a call of each worker", lambda: len(waiting()) == WORKERS, seconds=180)
    finally:
        application.send_signal(signal.SIGKILL)
        application.communicate(timeout=60)
    wait_for("the instances to end", lambda: not waiting(), seconds=120)
