"""Wrong answers that come from DataFusion itself: each is expected to be wrong.

The generator of random queries avoids them. When one becomes right, its test fails: then remove it
here, and let the generator make such queries.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt
from random_tables import write_tables
from reference import Reference
from suites import warm_server, wrong

FAULTS = {
    "NOT IN below OR ignores nulls of the subquery": (
        "select count(*) from u where dt > date '2030-01-01' or dt not in (select dt from u)"
    ),
    "NOT IN of a constant ignores nulls of the subquery": (
        "select count(*) from t where timestamp '2024-01-22 16:00:00' not in (select ts from v)"
    ),
    "INTERSECT ALL keeps each row of the left side": (
        "select count(*) from (select f from t intersect all select f from v) as o"
    ),
    "EXCEPT ALL removes each equal row of the left side": (
        "select count(*) from (select f from t except all select f from v) as o"
    ),
    "statistics do not count NaN, and a column of one number and NaN reads as that number": (
        "select * from nan"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_datafusion(alone: Snowmelt, tmp_path: Path, name: str) -> None:
    tables = write_tables(tmp_path) | {"nan": tmp_path / "nan"}
    tables["nan"].mkdir()
    values = pa.table({"k": [1, 2], "f": [float("nan"), 27.5]})
    pq.write_table(values, tables["nan"] / "part.parquet")
    with warm_server(alone.folder):
        problem = wrong(FAULTS[name], tables, 3, Reference(tables))
    assert problem is not None, "it is right now"
    assert "expected" in problem, problem
