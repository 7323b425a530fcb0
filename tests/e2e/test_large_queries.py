"""Many rows and many files: answers are streamed with bounded memory of the server, and small files
are read by few tasks."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt
from suites import client_of

import snowmelt as sm

# The answer with many rows has more than twice as many.
MEMORY_BYTES = 64 << 20
FILES, ROWS = 10_000, 10


@pytest.fixture
def server(alone: Snowmelt) -> Iterator[int]:
    """The process of a running server."""
    alone.run("up").succeeded()
    yield int(json.loads(alone.run("status", "-o", "json").succeeded().out)["pid"])
    alone.run("down").succeeded()


def memory(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [kibibytes] = [int(line.split()[1]) for line in lines if line.startswith(f"{field}:")]
    return kibibytes << 10


def test_millions_of_rows_are_streamed_with_bounded_memory(
    alone: Snowmelt, data: Path, server: int
) -> None:
    times, columns = 50, "l_orderkey, l_extendedprice, l_shipdate, l_comment, c_custkey"
    sql = (
        f"select {columns} from '{data / 'lineitem'}',"
        f" (select c_custkey from '{data / 'customer'}' where c_custkey <= {times})"
    )
    lines = alone.rows(f"select count(*) n from '{data / 'lineitem'}'")[0]["n"] * times
    assert lines > 2_000_000
    before = memory(server, "VmRSS")
    process = alone.start("sql", sql, "-o", "csv", "--workers", 2)
    assert process.stdout is not None
    found, size = 0, 0
    while chunk := os.read(process.stdout.fileno(), 1 << 20):
        if not size:
            # A client that does not read for some time.
            time.sleep(1)
        found += chunk.count(b"\n")
        size += len(chunk)
    alone.finish(process).succeeded()
    # Beside the line with the names.
    assert found == lines + 1
    assert size > 2 * MEMORY_BYTES
    assert memory(server, "VmHWM") - before < MEMORY_BYTES


@pytest.fixture
def small_files(tmp_path: Path) -> Path:
    """A folder of many Parquet files, each with some rows."""
    folder, kinds = tmp_path / "files", 10
    folder.mkdir()
    for kind in range(kinds):
        rows = [kind * ROWS + row for row in range(ROWS)]
        table = pa.table({"a": rows, "t": [f"text {row}" for row in rows]})
        pq.write_table(table, folder / f"{kind}.parquet")
    contents = [(folder / f"{kind}.parquet").read_bytes() for kind in range(kinds)]
    for number in range(kinds, FILES):
        (folder / f"{number}.parquet").write_bytes(contents[number % kinds])
    return folder


def test_a_folder_of_many_small_files_is_read_by_few_tasks(
    alone: Snowmelt, server: int, small_files: Path
) -> None:
    workers = 4
    with client_of(alone.folder / "state" / "snowmelt.sock"):
        sql = f"select t, count(*) n, sum(a) s from '{small_files}' group by t order by s"
        query = sm.sql(sql, workers=workers, progress=False)
        found = query.collect().to_pylist()
    times = FILES // 10
    assert found == [{"t": f"text {a}", "n": times, "s": a * times} for a in range(10 * ROWS)]
    lanes = [lane for lane in (query.profile or {})["lanes"] if "worker" in lane["name"]]
    scans = [lane for lane in lanes if lane["stage"] == 0]
    assert sum(lane["progress"]["rows_read"] for lane in scans) == FILES * ROWS
    # The files of a task are read one after another: a task for each would cost a start each.
    assert 1 <= len(scans) <= workers and len(lanes) <= 2 * workers
