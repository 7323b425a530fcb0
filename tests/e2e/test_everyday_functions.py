"""Everyday functions have DuckDB's answers, or an error that names what to write instead.

`docs/reference/sql-functions.md` has the list, which `UPDATE_SQL_FUNCTIONS=1` writes.
"""

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from conftest import Snowmelt
from everyday_functions import DIFFERENT, FAMILIES

from common.paths import CHECKOUT

DOCUMENT = CHECKOUT / "docs/reference/sql-functions.md"
BEGIN = "| function | example | here |\n|---|---|---|\n"
TABLES = "with t(k) as (values (1), (2), (3)), u(a, b) as (values ('x', 1), ('y', 3)) "

CALLS = [call for calls in FAMILIES.values() for call in calls]


# Plans each call, and prints the hints of those that have no plan.
PROGRAM = """
import json, sys
import snowmelt as sm
found = {}
for call in json.loads(CALLS):
    try:
        sm.sql(f"explain {TABLES} select {call} as c", workers=1).rows()
        found[call] = None
    except sm.Error as error:
        assert error.code in ("SM-0101", "SM-0102", "SM-0107"), (call, error)
        found[call] = error.hint or error.message
print(json.dumps(found))
"""


def test_everyday_functions(snowmelt: Snowmelt, tmp_path: Path) -> None:
    values = f"CALLS, TABLES = {json.dumps(CALLS)!r}, {TABLES!r}\n"
    instead = json.loads(snowmelt.python(values + PROGRAM).succeeded().out)
    there = [call for call in CALLS if instead[call] is None]
    ours = _ours(snowmelt, there, tmp_path)
    theirs = duckdb.connect().execute(TABLES + _select(there)).fetchone()
    assert theirs is not None
    wrong = {
        call: (our, their)
        for call, our, their in zip(there, ours, theirs, strict=True)
        if not _same(our, DIFFERENT[call][0] if call in DIFFERENT else their)
    }
    assert not wrong
    _check_document(instead | {call: text for call, (_, text) in DIFFERENT.items()})


def _select(calls: list[str]) -> str:
    return "select " + ", ".join(f"{call} as c{n}" for n, call in enumerate(calls))


def _ours(snowmelt: Snowmelt, calls: list[str], folder: Path) -> list[Any]:
    answer = folder / "answer.parquet"
    snowmelt.run("sql", TABLES + _select(calls), "--workers", 1, "-O", answer).succeeded()
    table: pa.Table = pq.read_table(answer)
    assert table.num_rows == 1
    return [column[0].as_py() for column in table.columns]


def _same(our: Any, their: Any) -> bool:
    if isinstance(our, (int, float)) and isinstance(their, (int, float)):
        return math.isclose(our, their, rel_tol=1e-12)
    if isinstance(our, list) and isinstance(their, list):
        return len(our) == len(their) and all(map(_same, our, their))
    # Numbers with a point are decimals in one of the two.
    return bool(our == their) or str(our) == str(their)


def _name(call: str) -> str:
    """The function of a call, or the whole expression."""
    found = re.search(r"([a-z][a-z_0-9]*)\(", call.removeprefix("(select "))
    return found[1] if found else call


def _check_document(instead: dict[str, str | None]) -> None:
    parts = []
    for family, calls in FAMILIES.items():
        rows = [f"| `{_name(c)}` | `{c}` | {instead[c] or 'as in DuckDB'} |" for c in calls]
        parts.append(f"## {family[0].upper()}{family[1:]}\n\n{BEGIN}" + "\n".join(rows) + "\n")
    head = DOCUMENT.read_text().split("\n## ")[0]
    text = head + "\n" + "\n".join(parts)
    if os.environ.get("UPDATE_SQL_FUNCTIONS"):
        DOCUMENT.write_text(text)
    assert DOCUMENT.read_text() == text, "write it with UPDATE_SQL_FUNCTIONS=1"


def test_a_file_is_summarized_by_its_location(snowmelt: Snowmelt, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": [1, None, 5], "s": ["b", "a", "b"]}), path)
    rows = snowmelt.rows(f"summarize '{path}'", "--workers", 1)
    assert [(r["column_name"], r["min"], r["max"], r["approx_unique"]) for r in rows] == [
        ("n", "1", "5", 2),
        ("s", "a", "b", 2),
    ]
    assert [r["count"] for r in rows] == [3, 3]
    named = snowmelt.rows("show tables", "--table", f"t={path}")
    assert named == [{"name": "t", "location": str(path)}]
