"""Writes the tables and queries of TPC-DS: `make_tpcds.py SCALE FOLDER`.

It runs in a process of its own: the generator is an extension of an older DuckDB than the one that
the tests compare with. PYTHONPATH has that DuckDB (tests/e2e/tpcds.txt).
"""

import sys
from pathlib import Path

import duckdb
import duckdb_extension_tpcds
from analytics import split


def main(scale: str, folder: Path) -> None:
    connection = duckdb.connect(config={"threads": 1})
    # The file itself: `install` would ask DuckDB's site for it.
    (extension,) = Path(duckdb_extension_tpcds.__file__).parent.rglob("tpcds.duckdb_extension")
    connection.execute(f"load '{extension}'")
    connection.execute(f"call dsdgen(sf={scale})")
    names = connection.execute("select table_name from information_schema.tables").fetchall()
    for (table,) in names:
        split(connection, table, folder / "tables")
    (folder / "queries").mkdir()
    for number, text in connection.execute("from tpcds_queries()").fetchall():
        (folder / "queries" / f"q{number:02}.sql").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
