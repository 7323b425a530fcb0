"""Answers of other engines, in their own processes or in this one, for comparison with ours."""

import json
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.ipc
from duckdb.func import FunctionNullHandling
from duckdb.sqltypes import DuckDBPyType

from .paths import CHECKOUT, HELPER

# Name, callable, argument types, result type.
Function = tuple[str, Callable[..., str | None], list[Any], DuckDBPyType]


# Commands that print their version, and its position in the line.
COMMANDS = {
    "Docker": ["docker", "--version"],
    "containerd": ["containerd", "--version"],
    "runc": ["runc", "--version"],
    "crun": ["crun", "--version"],
    "etcd": ["etcd", "--version"],
    "Temporal": ["temporal", "--version"],
}


CLUSTERS = "bench/peers/clusters/Cargo.lock"
RESTATE = "bench/peers/restate/package.json"


def duckdb_command() -> Path:
    """DuckDB's command line: the program in the wheel `duckdb-cli`, without its Python wrapper."""
    import duckdb_cli

    return Path(duckdb_cli.__file__).parent / "duckdb"


def versions() -> list[str]:
    """The versions of all peers that are installed on this machine."""
    found = [
        f"{name} {number[0]}"
        for name, command in COMMANDS.items()
        if shutil.which(command[0])
        and (number := re.findall(r"\d+\.\d+[.\d]*", subprocess.check_output(command, text=True)))
    ]
    command = subprocess.check_output([duckdb_command(), "--version"], text=True).split()[0]
    return [
        *found,
        f"DataFusion {_locked('Cargo.lock', 'datafusion')}",
        f"datafusion-distributed {_locked(CLUSTERS, 'datafusion-distributed')}",
        f"Ballista {_locked(CLUSTERS, 'ballista')}",
        f"restate {_restate()}",
        f"Polars {version('polars')}",
        f"Spark {version('pyspark')}",
        f"DuckDB {command.removeprefix('v')} as a command",
        f"DuckDB {duckdb.__version__} as a library of Python {platform.python_version()}",
    ]


def _restate() -> str:
    """The version of restate that is installed when it is measured."""
    packages = json.loads((CHECKOUT / RESTATE).read_text())["dependencies"]
    return str(packages["@restatedev/restate-server"])


def _locked(file: str, crate: str) -> str:
    """The version of a crate in a lock file."""
    found = re.search(rf'name = "{crate}"\nversion = "([^"]+)"', (CHECKOUT / file).read_text())
    return found[1] if found else "unknown"


@dataclass(frozen=True)
class Answer:
    """An answer and the seconds that it took inside the engine's process."""

    table: pa.Table
    seconds: float


def read_arrow(path: Path) -> pa.Table:
    """An Arrow IPC file or stream as a table."""
    with pa.OSFile(str(path)) as file:
        magic = file.read(6)
        file.seek(0)
        reader = pa.ipc.open_file(file) if magic == b"ARROW1" else pa.ipc.open_stream(file)
        return reader.read_all()


def datafusion(sql: str, tables: dict[str, Path], partitions: int, answer: Path) -> Answer:
    """Plain DataFusion in one process, with as many threads as partitions."""
    command = [str(HELPER), "datafusion", f"--sql={sql}", "--partitions", str(partitions)]
    for name, folder in tables.items():
        command += ["--table", f"{name}={folder}"]
    done = subprocess.run(
        [*command, "--answer", str(answer)], check=True, stdout=subprocess.PIPE, text=True
    )
    return Answer(read_arrow(answer), json.loads(done.stdout)["wall_ms"][-1] / 1000)


def duck(tables: dict[str, Path], threads: int) -> duckdb.DuckDBPyConnection:
    """DuckDB in this process, with a view for each table."""
    connection = duckdb.connect(config={"threads": threads})
    for name, folder in tables.items():
        connection.sql(f"create view {name} as select * from '{folder}/*.parquet'")
    return connection


def duck_answer(
    sql: str,
    tables: dict[str, Path],
    threads: int,
    functions: Sequence[Function] = (),
) -> Answer:
    """DuckDB's answer, with Python functions registered in it."""
    with duck(tables, threads) as connection:
        for name, function, arguments, result in functions:
            # `special`: the function sees nulls and may return them.
            connection.create_function(
                name, function, arguments, result, null_handling=FunctionNullHandling.SPECIAL
            )
        start = time.perf_counter()
        table = connection.sql(sql).to_arrow_table()
        seconds = time.perf_counter() - start
        # Otherwise DuckDB reports at exit that its bindings still refer to it.
        for name, *_ in functions:
            connection.remove_function(name)
        return Answer(table, seconds)
