"""All 99 queries of TPC-DS, with one, few and many workers, have DuckDB's answers.

The texts are those of DuckDB's generator, for both engines.
"""

import re
from pathlib import Path

import pytest
from analytics import tpcds
from conftest import Snowmelt
from reference import Reference
from suites import WORKERS, failures, report, warm_server, wrong

# Texts that differ from the generator's, for both engines, by query: pattern and replacement.
ADAPTED = {
    # A quotient of decimals has six digits in DataFusion and is a double in DuckDB, so the sums of
    # quotients differ.
    "q66": (r"sum\((\w+_sales)/w_warehouse_sq_ft\)", r"sum(cast(\1 as double)/w_warehouse_sq_ft)"),
}


@pytest.fixture(scope="module")
def suite() -> tuple[dict[str, Path], dict[str, str]]:
    tables, queries = tpcds()
    for name, (pattern, replacement) in ADAPTED.items():
        queries[name], count = re.subn(pattern, replacement, queries[name], flags=re.I)
        assert count, f"{name} does not have {pattern}"
    return tables, queries


@pytest.fixture(scope="module")
def reference(suite: tuple[dict[str, Path], dict[str, str]]) -> Reference:
    return Reference(suite[0])


@pytest.mark.parametrize("workers", WORKERS)
def test_answers_to_tpcds(
    alone: Snowmelt,
    suite: tuple[dict[str, Path], dict[str, str]],
    reference: Reference,
    workers: int,
) -> None:
    tables, queries = suite
    assert len(queries) == 99
    with warm_server(alone.folder):
        found = failures(queries, lambda sql: wrong(sql, tables, workers, reference))
    assert not found, report(found, queries, workers)
