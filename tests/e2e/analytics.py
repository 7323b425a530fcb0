"""The tables of TPC-H and TPC-DS at small scale factors, in many files and row groups.

The files have several row groups each, so that 16 workers each have a part of the large tables.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb

from common.paths import CHECKOUT, DATA, tpch

SCALE = "0.01"
TPCH = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]
TPCH_QUERIES = CHECKOUT / "tests" / "tpch"
# `scripts/setup e2e` installs DuckDB's generator here, beside the newer DuckDB of the tests.
GENERATOR = Path(sys.prefix) / "tpcds"
FILES, GROUP_ROWS = 4, 2048


def tpch_tables() -> dict[str, Path]:
    """The folders of the tables of TPC-H by name."""

    def make(folder: Path) -> None:
        generated = tpch(SCALE, TPCH, parts=4)
        with duckdb.connect(config={"threads": 1}) as connection:
            for table in TPCH:
                connection.execute(f"create view {table} as from '{generated / table}/*.parquet'")
                split(connection, table, folder)

    return folders(_once(DATA / "tpch" / f"sf{SCALE}-groups", make))


def tpcds() -> tuple[dict[str, Path], dict[str, str]]:
    """The folders of the tables of TPC-DS by name, and the text of its queries."""

    def make(folder: Path) -> None:
        script = Path(__file__).with_name("make_tpcds.py")
        path = [GENERATOR, script.parent, CHECKOUT / "bench"]
        environment = os.environ | {"PYTHONPATH": ":".join(map(str, path))}
        command = [sys.executable, str(script), SCALE, str(folder)]
        subprocess.run(command, check=True, env=environment)

    folder = _once(DATA / "tpcds" / f"sf{SCALE}", make)
    queries = {file.stem: file.read_text() for file in sorted((folder / "queries").glob("*.sql"))}
    return folders(folder / "tables"), queries


def folders(folder: Path) -> dict[str, Path]:
    """The folders in a folder, by name."""
    return {path.name: path for path in sorted(folder.iterdir())}


def split(connection: duckdb.DuckDBPyConnection, table: str, folder: Path) -> None:
    """Writes a table as files of about the same number of rows."""
    (folder / table).mkdir(parents=True)
    ((count,),) = connection.execute(f"select count(*) from {table}").fetchall()
    rows = max(-(-count // FILES), GROUP_ROWS)
    for number in range(FILES):
        if number and number * rows >= count:
            break
        part = f"select * from {table} limit {rows} offset {number * rows}"
        file = folder / table / f"part-{number}.parquet"
        connection.execute(f"copy ({part}) to '{file}' (row_group_size {GROUP_ROWS})")


def _once(folder: Path, make: Callable[[Path], None]) -> Path:
    """A folder that is renamed into place when it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f".{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.parent / f".{folder.name}.tmp"
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(folder)
    return folder
