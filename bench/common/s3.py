"""SeaweedFS during a block: the S3 server of tests and benchmarks."""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

WEED = shutil.which("weed") or str(Path(sys.executable).parent / "weed")
KEY, SECRET = "snowmelt-key", "snowmelt-secret-of-the-client"
UP_WITHIN_S = 120


@dataclass(frozen=True)
class Store:
    """A running server."""

    endpoint: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of a client."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.endpoint}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def files(self) -> fs.S3FileSystem:
        """Its buckets as folders."""
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=self.endpoint,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )


def free_ports(count: int) -> list[int]:
    """Free ports of the loopback, such that the ports 10,000 above them are free as well: SeaweedFS
    also listens there."""
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


def _identity() -> dict[str, object]:
    keys = [{"accessKey": KEY, "secretKey": SECRET}]
    return {"name": "snowmelt", "credentials": keys, "actions": ["Admin", "Read", "Write", "List"]}


def _command(folder: Path) -> tuple[str, list[str]]:
    """The endpoint and the process that serves it."""
    (folder / "s3.json").write_text(json.dumps({"identities": [_identity()]}))
    master, volume, filer, s3 = free_ports(4)
    command = [WEED, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-master.port={master}", f"-volume.port={volume}", "-volume.max=0"]
    command += ["-volume.preStopSeconds=0", "-master.volumeSizeLimitMB=256"]
    command += ["-master.telemetry=false", "-filer", f"-filer.port={filer}"]
    command += ["-s3", f"-s3.port={s3}", f"-s3.config={folder / 's3.json'}"]
    return f"127.0.0.1:{s3}", [*command, "-s3.port.iceberg=0"]


def _wait(store: Store, bucket: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + UP_WITHIN_S
    while True:
        try:
            urllib.request.urlopen(f"http://{store.endpoint}/status", timeout=2).close()
            store.files().create_dir(bucket)
            return
        except OSError as error:
            if time.monotonic() > deadline or server.poll() is not None:
                text = log.read_text()[-2000:]
                raise RuntimeError(f"SeaweedFS did not come up: {error}\n{text}") from error
            time.sleep(0.5)


@contextmanager
def running(bucket: str) -> Iterator[Store]:
    """A server with one empty bucket."""
    folder = Path(tempfile.mkdtemp(prefix="sm-s3-", dir="/tmp"))
    endpoint, command = _command(folder)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        store = Store(endpoint)
        _wait(store, bucket, server, folder / "log")
        yield store
    finally:
        # An orderly shutdown takes 15 s, and the data is not needed.
        server.kill()
        server.wait(timeout=60)
        shutil.rmtree(folder)
