"""Tables as folders of Parquet files, which are made once."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb

BENCH = Path(__file__).resolve().parents[1]
# `scripts/setup` with e2e or bench installs DuckDB's generator of TPC-DS here.
GENERATOR = Path(sys.prefix) / "tpcds"


def folders(folder: Path) -> dict[str, Path]:
    """The folders in a folder, by name."""
    return {path.name: path for path in sorted(folder.iterdir())}


def split(
    connection: duckdb.DuckDBPyConnection, table: str, folder: Path, files: int, group_rows: int
) -> None:
    """Writes a table as files of about the same number of rows."""
    (folder / table).mkdir(parents=True)
    ((count,),) = connection.execute(f"select count(*) from {table}").fetchall()
    rows = max(-(-count // files), group_rows)
    for number in range(files):
        if number and number * rows >= count:
            break
        part = f"select * from {table} limit {rows} offset {number * rows}"
        file = folder / table / f"part-{number}.parquet"
        connection.execute(f"copy ({part}) to '{file}' (row_group_size {group_rows})")


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
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


def tpcds(
    data: Path, scale: str, files: int, group_rows: int
) -> tuple[dict[str, Path], dict[str, Path]]:
    """The folders of the tables of TPC-DS, and the files of its queries, by name."""

    def make(folder: Path) -> None:
        environment = os.environ | {"PYTHONPATH": f"{GENERATOR}:{BENCH / 'common'}"}
        command = [sys.executable, str(BENCH / "common/tpcds_tables.py"), scale, str(folder)]
        subprocess.run([*command, str(files), str(group_rows)], check=True, env=environment)

    folder = made_once(data / "tpcds" / f"sf{scale}", make)
    queries = {file.stem: file for file in sorted((folder / "queries").glob("*.sql"))}
    return folders(folder / "tables"), queries
