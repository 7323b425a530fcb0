"""All 22 queries of TPC-H, with one, few and many workers, have DuckDB's answers."""

from pathlib import Path

import pytest
from analytics import TPCH_QUERIES
from conftest import Snowmelt
from reference import Reference
from suites import WORKERS, failures, report, warm_server, wrong

QUERIES = {file.stem: file.read_text() for file in sorted(TPCH_QUERIES.glob("q*.sql"))}


@pytest.mark.parametrize("workers", WORKERS)
def test_answers_to_tpch(
    alone: Snowmelt, tables: dict[str, Path], reference: Reference, workers: int
) -> None:
    assert len(QUERIES) == 22
    with warm_server(alone.folder):
        found = failures(QUERIES, lambda sql: wrong(sql, tables, workers, reference))
    assert not found, report(found, QUERIES, workers)
