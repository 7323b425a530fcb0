"""Writes the tables and queries of TPC-DS: `tpcds_tables.py SCALE FOLDER FILES GROUP_ROWS`.

A table has at most so many files, with at least the rows of a row group in each. The script runs in
a process of its own: the generator is an extension of an older DuckDB than the one that tests and
benchmarks compare with. PYTHONPATH has that DuckDB (tests/e2e/tpcds.txt).
"""

import sys
from pathlib import Path

import duckdb
import duckdb_extension_tpcds
from tables import split


def main(scale: str, folder: Path, files: int, group_rows: int) -> None:
    connection = duckdb.connect(config={"threads": 1})
    # The file itself: `install` would ask DuckDB's site for it.
    (extension,) = Path(duckdb_extension_tpcds.__file__).parent.rglob("tpcds.duckdb_extension")
    connection.execute(f"load '{extension}'")
    connection.execute(f"call dsdgen(sf={scale})")
    names = connection.execute("select table_name from information_schema.tables").fetchall()
    for (table,) in names:
        split(connection, table, folder / "tables", files, group_rows)
    (folder / "queries").mkdir()
    for number, text in connection.execute("from tpcds_queries()").fetchall():
        (folder / "queries" / f"q{number:02}.sql").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
