"""Functions and UDFs in images on all hosts: the registry sends each block about once."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt, wait_for
from host_trees import Hosts, hosts
from images import Image, Registry
from suites import client_of
from test_image_builds import app, built
from test_image_trees import BALLAST, deploy
from test_images import code, digest, home, made, pushed

from snowmelt._client import client
from snowmelt.engines import remote

__all__ = ["app", "code", "home", "made", "pushed"]

NAMES = {"h1", "h2", "h3"}


@pytest.fixture
def three(alone: Snowmelt) -> Iterator[Hosts]:
    with (
        hosts(alone, ["h2", "h3"]) as cluster,
        client_of(alone.folder / "state" / "snowmelt.sock"),
    ):
        yield cluster


def trees(cluster: Hosts) -> list[dict[str, Any]]:
    return list(json.loads(cluster.control.run("tree", "-o", "json").succeeded().out))


def reading(cluster: Hosts) -> set[str]:
    """Hosts that have read blocks of an image."""
    return {
        host["host"]
        for tree in trees(cluster)
        for host in tree["hosts"]
        if host["bytes"] and host["bytes"]["from_registry"] + host["bytes"]["from_parents"] > 0
    }


def test_calls_of_a_function_in_an_image_use_its_tree(
    pushed: str, made: Image, code: Path, served: Registry, three: Hosts
) -> None:
    deploy(three, code, pushed)

    def call(path: str) -> Any:
        # More at the same time than one host has cores.
        return client().call(
            "POST", "/v1/functions/read/invocations", {"event": {"read": path, "pause": 0.01}}
        )

    def on_all_hosts() -> list[Any] | None:
        with ThreadPoolExecutor(8) as pool:
            ran = list(pool.map(call, [BALLAST] * 8))
        return ran if {one.get("host") for one in ran} == NAMES else None

    served.fetched()
    ran = wait_for("calls on all hosts", on_all_hosts, 60)
    expected = digest(made.ballast)
    assert [one["result"] for one in ran] == [expected] * 8
    once, sent = made.ballast.stat().st_size, served.fetched()
    # Each on its own would read three times as much. Control has read it before the others: one of
    # them is the root of the second stripe and reads that again.
    assert sent < once * 2, f"{sent} bytes for three hosts"
    assert reading(three) == NAMES


FUNCTION = """import snowmelt as sm

WORDS = open("/app/words").read().split()

@sm.udf
def word(n: int) -> str:
    return WORDS[n % 3]
"""
# Small inputs are read by one task.
FILES, ROWS = 12, 100_000


def test_udfs_in_an_image_run_on_all_hosts(
    alone: Snowmelt, served: Registry, app: Path, tmp_path: Path, three: Hosts
) -> None:
    (app / "words").write_text("none one two")
    name = f"{served.address}/team/spread:v1"
    built(alone, "spread:v1", app, "--python", "pyarrow", "--push", name)
    folder = tmp_path / "n"
    folder.mkdir()
    numbers = pa.table({"n": pa.array(range(ROWS))})
    for number in range(FILES):
        pq.write_table(numbers, folder / f"{number}.parquet")
    udfs = tmp_path / "udfs.py"
    udfs.write_text(FUNCTION)
    query = f"select word(n) as w, count(*) as c from '{folder}/*.parquet' group by 1 order by 1"

    counts = Counter(number % 3 for number in range(ROWS))
    words = ("none", "one", "two")
    expected = {word: FILES * counts[number] for number, word in enumerate(words)}

    def on_all_hosts() -> bool:
        asked = ("--udf", udfs, "--image", name, "--workers", "6", "-o", "json")
        lines = alone.run("sql", query, *asked).succeeded().out.splitlines()
        assert {one["w"]: one["c"] for one in map(json.loads, lines)} == expected
        return reading(three) == NAMES

    # A host that is still preparing itself keeps no task from another one.
    wait_for("tasks on all hosts", on_all_hosts, 60)

    # Instances that an engine leases are on all hosts too.
    alone.run("udf", "add", udfs, "--image", name).succeeded()
    with remote("word") as called:
        leased = [called.lease() for _ in range(3 * (os.cpu_count() or 1))]
        assert {one._link.host or "h1" for one in leased} == NAMES
        batch = pa.RecordBatch.from_arrays([pa.array([0, 1, 2])], names=["n"])
        for one in leased:
            assert one.call(batch).to_pylist() == list(words)
            one.give_back()
