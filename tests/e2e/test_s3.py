"""The same answers from S3 as from a folder, with only the client's credentials."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt
from pyarrow import fs

from common import s3

BUCKET = "e2e"


@pytest.fixture(scope="module")
def store(data: Path) -> Iterator[s3.Store]:
    """SeaweedFS with lineitem in a bucket."""
    with s3.running(BUCKET) as store:
        fs.copy_files(
            str(data / "lineitem"),
            f"{BUCKET}/lineitem",
            source_filesystem=fs.LocalFileSystem(),
            destination_filesystem=store.files(),
        )
        yield store


SQL = (
    "select l_shipmode, count(*) as n, sum(l_quantity) as q from '{}'"
    " where l_shipdate < date '1995-01-01' group by 1 order by 1"
)


@pytest.mark.parametrize("location", ["lineitem/", "lineitem/*.parquet"])
def test_answers_are_equal_to_those_from_a_folder(
    snowmelt: Snowmelt, data: Path, store: s3.Store, location: str
) -> None:
    snowmelt.environment = store.variables
    from_s3 = snowmelt.rows(SQL.format(f"s3://{BUCKET}/{location}"), "--workers", 2)
    assert from_s3 == snowmelt.rows(SQL.format(data / "lineitem"))


def test_a_function_beside_s3_has_no_network_and_no_credentials(
    snowmelt: Snowmelt, store: s3.Store, tmp_path: Path
) -> None:
    snowmelt.environment = store.variables
    file = tmp_path / "spy.py"
    file.write_text(
        "import os, socket\nimport snowmelt as sm\n\n@sm.udf\ndef spy(x: int) -> int:\n"
        "    if any('AWS' in name for name in os.environ):\n        return 1\n"
        "    try:\n        socket.create_connection(('127.0.0.1', "
        f"{store.endpoint.split(':')[1]}), 2)\n"
        "        return 2\n    except OSError:\n        return 0\n"
    )
    sql = f"select max(spy(l_linenumber)) as m from 's3://{BUCKET}/lineitem/'"
    assert snowmelt.rows(sql, "--udf", file) == [{"m": 0}]


def test_wrong_credentials_are_reported_and_not_shown(snowmelt: Snowmelt, store: s3.Store) -> None:
    wrong = {"AWS_SECRET_ACCESS_KEY": "wrong-but-still-a-secret"}
    snowmelt.environment = store.variables | wrong
    done = snowmelt.sql(SQL.format(f"s3://{BUCKET}/lineitem/"))
    done.failed_with("SM-0117", BUCKET)
    assert "wrong-but-still-a-secret" not in done.out + done.err


def test_footers_are_kept_for_the_next_query_until_an_object_is_replaced(
    snowmelt: Snowmelt, store: s3.Store
) -> None:
    def put(number: int, first: int) -> None:
        table = pa.table({"a": range(first, first + 10)})
        pq.write_table(table, f"{BUCKET}/kept/{number}.parquet", filesystem=store.files())

    def query(sql: str) -> tuple[list[dict[str, int]], str]:
        done = snowmelt.sql(sql, "--profile").succeeded()
        return [json.loads(line) for line in done.out.splitlines()], done.err

    snowmelt.environment = store.variables
    for number in range(3):
        put(number, number * 100)
    total = f"select sum(a) as s from 's3://{BUCKET}/kept/'"
    rows, profile = query(total)
    assert rows == [{"s": 3135}] and "3 reads for planning" in profile, profile
    rows, profile = query(total)
    assert rows == [{"s": 3135}] and "reads for planning" not in profile, profile
    # A filter that the kept statistics contradict: no file is opened.
    rows, profile = query(f"{total} where a > 1000")
    assert rows == [{"s": None}] and "reads by scans" not in profile, profile
    put(1, 1000)
    rows, profile = query(total)
    assert rows == [{"s": 12135}] and "1 reads for planning" in profile, profile
    # Another key may see other objects.
    snowmelt.environment = store.variables | {"AWS_ACCESS_KEY_ID": "another"}
    snowmelt.sql(total).failed_with("SM-0117", BUCKET)


def test_a_prefix_without_files(snowmelt: Snowmelt, store: s3.Store) -> None:
    snowmelt.environment = store.variables
    done = snowmelt.sql(SQL.format(f"s3://{BUCKET}/nothing/"))
    assert done.report["code"] in ("SM-0104", "SM-0105"), done.report


def test_a_store_that_does_not_answer(snowmelt: Snowmelt, store: s3.Store) -> None:
    unused = f"http://127.0.0.1:{s3.free_ports(1)[0]}"
    snowmelt.environment = store.variables | {"AWS_ENDPOINT_URL": unused}
    snowmelt.sql(SQL.format(f"s3://{BUCKET}/lineitem/")).failed_with("SM-0108")
