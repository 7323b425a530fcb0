"""The same answers from S3 as from a folder, with the client's credentials and no others."""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Snowmelt
from pyarrow import fs

WEED = shutil.which("weed") or str(Path(sys.executable).parent / "weed")
KEY, SECRET, BUCKET = "e2e-key", "e2e-secret-of-the-client", "e2e"


def _free_ports(count: int) -> list[int]:
    # SeaweedFS listens on each port and on the one 10,000 above it.
    found: list[int] = []
    for port in range(18_000, 28_000):
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            break
    return found


@dataclass
class Store:
    endpoint: str

    @property
    def variables(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://{self.endpoint}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }


def _identity() -> dict[str, object]:
    keys = [{"accessKey": KEY, "secretKey": SECRET}]
    return {"name": "e2e", "credentials": keys, "actions": ["Admin", "Read", "Write", "List"]}


@pytest.fixture(scope="module")
def store(data: Path) -> Iterator[Store]:
    """SeaweedFS with lineitem in a bucket."""
    folder = Path(tempfile.mkdtemp(prefix="sm-s3-", dir="/tmp"))
    (folder / "s3.json").write_text(json.dumps({"identities": [_identity()]}))
    master, volume, filer, s3 = _free_ports(4)
    command = [WEED, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-master.port={master}", f"-volume.port={volume}", "-volume.max=0"]
    command += ["-volume.preStopSeconds=0", "-master.volumeSizeLimitMB=256"]
    command += ["-master.telemetry=false", "-filer", f"-filer.port={filer}"]
    command += ["-s3", f"-s3.port={s3}", f"-s3.config={folder / 's3.json'}"]
    command += ["-s3.port.iceberg=0"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        endpoint = f"127.0.0.1:{s3}"
        _wait_and_fill(endpoint, data, server, folder / "log")
        yield Store(endpoint)
    finally:
        # Its orderly end takes 15 s, for data that nobody wants.
        server.kill()
        server.wait(timeout=60)
        shutil.rmtree(folder)


def _wait_and_fill(endpoint: str, data: Path, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"http://{endpoint}/status", timeout=2).close()
            bucket = fs.S3FileSystem(
                access_key=KEY,
                secret_key=SECRET,
                endpoint_override=endpoint,
                scheme="http",
                region="us-east-1",
                allow_bucket_creation=True,
            )
            bucket.create_dir(BUCKET)
            fs.copy_files(
                str(data / "lineitem"),
                f"{BUCKET}/lineitem",
                source_filesystem=fs.LocalFileSystem(),
                destination_filesystem=bucket,
            )
            return
        except OSError as error:
            if time.monotonic() > deadline or server.poll() is not None:
                pytest.fail(f"SeaweedFS did not come up: {error}\n{log.read_text()[-2000:]}")
            time.sleep(0.5)


SQL = (
    "select l_shipmode, count(*) as n, sum(l_quantity) as q from '{}'"
    " where l_shipdate < date '1995-01-01' group by 1 order by 1"
)


@pytest.mark.parametrize("location", ["lineitem/", "lineitem/*.parquet"])
def test_answers_as_from_a_folder(
    snowmelt: Snowmelt, data: Path, store: Store, location: str
) -> None:
    snowmelt.environment = store.variables
    from_s3 = snowmelt.rows(SQL.format(f"s3://{BUCKET}/{location}"), "--workers", 2)
    assert from_s3 == snowmelt.rows(SQL.format(data / "lineitem"))


def test_a_function_beside_s3_has_no_network_and_no_credentials(
    snowmelt: Snowmelt, store: Store, tmp_path: Path
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


def test_wrong_credentials_are_told_and_not_shown(snowmelt: Snowmelt, store: Store) -> None:
    wrong = {"AWS_SECRET_ACCESS_KEY": "wrong-but-still-a-secret"}
    snowmelt.environment = store.variables | wrong
    done = snowmelt.sql(SQL.format(f"s3://{BUCKET}/lineitem/"))
    done.failed_with("SM-0108", BUCKET)
    assert "wrong-but-still-a-secret" not in done.out + done.err


def test_a_prefix_without_files(snowmelt: Snowmelt, store: Store) -> None:
    snowmelt.environment = store.variables
    done = snowmelt.sql(SQL.format(f"s3://{BUCKET}/nothing/"))
    assert done.report["code"] in ("SM-0104", "SM-0105"), done.report


def test_a_store_that_does_not_answer(snowmelt: Snowmelt, store: Store) -> None:
    nobody = f"http://127.0.0.1:{_free_ports(1)[0]}"
    snowmelt.environment = store.variables | {"AWS_ENDPOINT_URL": nobody}
    snowmelt.sql(SQL.format(f"s3://{BUCKET}/lineitem/")).failed_with("SM-0108")
