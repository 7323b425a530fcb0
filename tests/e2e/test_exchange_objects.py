"""Exchanges by objects on a real S3 server: answers, requests counted before the store, faults, and
nothing left in the bucket."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt, wait_for
from pyarrow import fs
from test_endings import drivers_and_workers
from test_stages import SLOW, assert_answer_despite_kills, joined

from common import s3, s3_proxy

BUCKET = "exchange"
PLACES = [f"s3://{BUCKET}/a/", f"s3://{BUCKET}/b/"]
VARIANTS = [(levels, combining) for levels in (1, 2, 3) for combining in ("on", "off")]


@pytest.fixture(scope="module")
def store() -> Iterator[s3.Store]:
    with s3.running(BUCKET) as store:
        yield store


@pytest.fixture
def proxy(store: s3.Store) -> Iterator[s3_proxy.Proxy]:
    with s3_proxy.counting(store.endpoint) as proxy:
        yield proxy


@pytest.fixture
def client(snowmelt: Snowmelt, store: s3.Store, proxy: s3_proxy.Proxy) -> Snowmelt:
    """A command line that reaches the store through the proxy."""
    snowmelt.environment = store.variables | {"AWS_ENDPOINT_URL": f"http://{proxy.endpoint}"}
    return snowmelt


def objects(store: s3.Store) -> list[str]:
    found = store.files().get_file_info(fs.FileSelector(BUCKET, recursive=True))
    return [info.path for info in found if info.is_file]


@pytest.fixture(autouse=True)
def empty_bucket(store: s3.Store, nothing_left: None) -> Iterator[None]:
    """However a query ended, the bucket is empty soon afterwards."""
    yield
    wait_for("an empty bucket", lambda: not objects(store), pause=0.5)


def options(levels: int, combining: str) -> list[object]:
    given: list[object] = ["--exchange", "objects", "--exchange-task", "1"]
    for place in PLACES:
        given += ["--exchange-location", place]
    return [*given, "--exchange-levels", levels, "--exchange-combining", combining]


@pytest.fixture
def expected(snowmelt: Snowmelt, data: Path) -> list[dict[str, object]]:
    return snowmelt.rows(joined(data, "o_orderkey", "o_orderkey"), "--workers", 1)


@pytest.mark.parametrize(("levels", "combining"), VARIANTS)
def test_a_join_gives_the_same_answer(
    client: Snowmelt, data: Path, expected: list[dict[str, object]], levels: int, combining: str
) -> None:
    sql = joined(data, "o_orderkey", "v")
    assert client.rows(sql, "--workers", 5, *options(levels, combining)) == expected


@pytest.fixture
def keys(tmp_path: Path) -> Callable[[int], Path]:
    """A table with one row group for each task, in which all keys differ. Their order is random, so
    that all row groups have the same size."""

    def write(tasks: int) -> Path:
        path = tmp_path / "keys.parquet"
        table = pa.table({"k": np.random.default_rng(1).permutation(tasks * 2_000)})
        pq.write_table(table, path, row_group_size=2_000)
        return path

    return write


@pytest.mark.parametrize("combining", ["on", "off"])
@pytest.mark.parametrize(
    ("partitions", "side", "levels"), [(4, 4, 1), (9, 3, 2), (16, 4, 2), (27, 3, 3)]
)
def test_requests_at_the_store_are_those_of_table_2(
    client: Snowmelt,
    proxy: s3_proxy.Proxy,
    keys: Callable[[int], Path],
    partitions: int,
    side: int,
    levels: int,
    combining: str,
) -> None:
    groups = f"select k, count(*) from '{keys(partitions)}' group by k"
    sql = f"select count(*) n, sum(k) s from ({groups})"
    given = ["--workers", partitions, "--memory", "128MiB", *options(levels, combining)]
    rows = partitions * 2_000
    assert client.rows(sql, *given) == [{"n": rows, "s": rows * (rows - 1) // 2}]
    reads = levels * partitions * side
    writes = levels * partitions if combining == "on" else reads
    assert (proxy.counted["read"], proxy.counted["write"]) == (reads, writes), proxy.counted


def test_a_busy_store_changes_no_answer(
    client: Snowmelt, proxy: s3_proxy.Proxy, data: Path, expected: list[dict[str, object]]
) -> None:
    proxy.busy = 12
    sql = joined(data, "o_orderkey", "v")
    assert client.rows(sql, "--workers", 3, *options(2, "on")) == expected
    assert proxy.busy == 0


@pytest.mark.parametrize(
    ("before", "after"), [("slow(o_orderkey)", "v"), ("o_orderkey", "slow(v)")]
)
def test_workers_killed_while_they_write_or_read_give_the_same_answer(
    client: Snowmelt,
    data: Path,
    udf_file: Callable[[str], Path],
    expected: list[dict[str, object]],
    before: str,
    after: str,
) -> None:
    process = client.start(
        "sql", joined(data, before, after), "-o", "json", "--udf", udf_file(SLOW),
        "--workers", 3, "--embedded", *options(2, "on"),
    )  # fmt: skip
    assert_answer_despite_kills(client, process, expected)


@pytest.mark.parametrize("ending", ["cancelled", "driver"])
def test_a_query_that_ends_early_leaves_no_object(
    client: Snowmelt,
    store: s3.Store,
    data: Path,
    udf_file: Callable[[str], Path],
    ending: str,
) -> None:
    process = client.start(
        "sql", joined(data, "o_orderkey", "slow(v)"), "--udf", udf_file(SLOW),
        "--workers", 2, "--embedded", *options(1, "off"),
    )  # fmt: skip
    wait_for("an object", lambda: objects(store))
    if ending == "cancelled":
        process.send_signal(signal.SIGINT)
    else:
        os.kill(drivers_and_workers(process.pid)[0], signal.SIGKILL)
    assert client.finish(process).code != 0


def test_a_missing_bucket_is_named(client: Snowmelt, data: Path) -> None:
    given = ["--exchange", "objects", "--exchange-location", "s3://missing-bucket/x/"]
    done = client.sql(joined(data, "o_orderkey", "v"), *given)
    done.failed_with("SM-0105", "s3://missing-bucket/x/", "bucket does not exist")


def test_objects_need_a_location_on_s3(snowmelt: Snowmelt, tmp_path: Path) -> None:
    snowmelt.sql("select 1", "--exchange", "objects").failed_with("SM-0110", "--exchange-location")
    local = ["--exchange", "objects", "--exchange-location", tmp_path]
    snowmelt.sql("select 1", *local).failed_with("SM-0110", str(tmp_path))
    given = ["--exchange", "objects", "--exchange-location", "s3://b/", "--exchange-levels", "4"]
    snowmelt.sql("select 1", *given).failed_with("SM-0110", "1 to 3 levels")
