"""The tables of TPC-H and TPC-DS at small scale factors, in many files and row groups.

The files have several row groups each, so that 16 workers each have a part of the large tables.
"""

from pathlib import Path

import duckdb

from common import tables
from common.paths import CHECKOUT, DATA, tpch

SCALE = "0.01"
TPCH = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]
TPCH_QUERIES = CHECKOUT / "tests" / "tpch"
FILES, GROUP_ROWS = 4, 2048


def tpch_tables() -> dict[str, Path]:
    """The folders of the tables of TPC-H by name."""

    def make(folder: Path) -> None:
        generated = tpch(SCALE, TPCH, parts=4)
        with duckdb.connect(config={"threads": 1}) as connection:
            for table in TPCH:
                connection.execute(f"create view {table} as from '{generated / table}/*.parquet'")
                tables.split(connection, table, folder, FILES, GROUP_ROWS)

    return tables.folders(tables.made_once(DATA / "tpch" / f"sf{SCALE}-groups", make))


def tpcds() -> tuple[dict[str, Path], dict[str, str]]:
    """The folders of the tables of TPC-DS by name, and the text of its queries."""
    found, queries = tables.tpcds(DATA, SCALE, FILES, GROUP_ROWS)
    return found, {name: file.read_text() for name, file in queries.items()}
