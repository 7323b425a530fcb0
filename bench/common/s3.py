"""SeaweedFS during a block: the S3 server of tests and benchmarks."""

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

WEED = shutil.which("weed") or str(Path(sys.executable).parent / "weed")
KEY, SECRET = "snowmelt-key", "snowmelt-secret-of-the-client"
UP_WITHIN_S = 120

# The server's own count of its requests, and how a request is billed.
COUNTED = re.compile(r'^SeaweedFS_s3_request_total\{.*type="(\w+)"\} (\S+)$', re.MULTILINE)
BILLED = {"GET": "read", "HEAD": "read", "PUT": "write", "POST": "write", "LIST": "list"}


@dataclass(frozen=True)
class Store:
    """A running server."""

    endpoint: str
    # Where it answers with its own metrics.
    metrics: str = ""

    def requests(self) -> Counter[str]:
        """The requests that it has answered so far, as they are billed: `read`, `write`, `list`;
        those that cost nothing, such as the removal of objects, are `other`."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found: Counter[str] = Counter()
        for kind, count in COUNTED.findall(text):
            found[BILLED.get(kind, "other")] += int(float(count))
        return found

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


def _command(folder: Path, address: str) -> tuple[Store, list[str]]:
    """The server, and the process that runs it."""
    (folder / "s3.json").write_text(json.dumps({"identities": [_identity()]}))
    master, volume, filer, s3, metrics = free_ports(5)
    command = [WEED, "server", f"-dir={folder}", f"-ip={address}", f"-ip.bind={address}"]
    command += [f"-master.port={master}", f"-volume.port={volume}", "-volume.max=0"]
    command += ["-volume.preStopSeconds=0", "-master.volumeSizeLimitMB=256"]
    command += ["-master.telemetry=false", "-filer", f"-filer.port={filer}"]
    command += ["-s3", f"-s3.port={s3}", f"-s3.config={folder / 's3.json'}"]
    command += [f"-metricsPort={metrics}", f"-metricsIp={address}", "-s3.port.iceberg=0"]
    return Store(f"{address}:{s3}", f"{address}:{metrics}"), command


def wait(store: Store, bucket: str, alive: Callable[[], bool] = lambda: True) -> None:
    """Waits until the server answers, and creates the bucket."""
    deadline = time.monotonic() + UP_WITHIN_S
    while True:
        try:
            urllib.request.urlopen(f"http://{store.endpoint}/status", timeout=2).close()
            store.files().create_dir(bucket)
            return
        except OSError as error:
            if time.monotonic() > deadline or not alive():
                raise RuntimeError(f"SeaweedFS did not come up: {error}") from error
            time.sleep(0.5)


@dataclass(frozen=True)
class Server:
    """A server that may not answer yet, and its process."""

    store: Store
    process: "subprocess.Popen[bytes]"
    log: Path


@contextmanager
def started(
    folder: Path,
    address: str = "127.0.0.1",
    inside: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """A server with its files in a folder, at this address. `inside` are the words of a command
    that runs another command in the network of the address."""
    store, command = _command(folder, address)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*inside, *command], stdout=log, stderr=log, env=environment)
    try:
        yield Server(store, process, folder / "log")
    finally:
        # An orderly shutdown takes 15 s, and the data is not needed.
        process.kill()
        process.wait(timeout=60)


@contextmanager
def running(bucket: str) -> Iterator[Store]:
    """A server with one empty bucket."""
    folder = Path(tempfile.mkdtemp(prefix="sm-s3-", dir="/tmp"))
    try:
        with started(folder) as server:
            try:
                wait(server.store, bucket, lambda: server.process.poll() is None)
            except RuntimeError as error:
                raise RuntimeError(server.log.read_text()[-2000:]) from error
            yield server.store
    finally:
        shutil.rmtree(folder)
