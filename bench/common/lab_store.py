"""An S3 server on a host of a lab: what the other hosts read crosses the links of both."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from . import s3
from .lab import Lab
from .paths import BENCH

GONE_WITHIN_S = 30


def remove(lab: Lab, host: str) -> None:
    """Takes a host out of the cluster. Its network stays."""
    lab.lab("fail", host, "--how", "kill")
    deadline = time.monotonic() + GONE_WITHIN_S
    while host in lab.joined():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{host} is still a host of the cluster")
        time.sleep(0.2)


@contextmanager
def running(lab: Lab, host: str, bucket: str, tables: Mapping[str, Path]) -> Iterator[s3.Store]:
    """A server on a host that does not belong to the cluster, with a folder of the bucket for each
    table."""
    [address] = (state["address"] for state in lab.states() if state["name"] == host)
    inside = lab.inside(host)
    with (
        tempfile.TemporaryDirectory(prefix="sm-s3-", dir="/tmp") as folder,
        s3.started(Path(folder), address.rpartition(":")[0], inside, lab.environment) as server,
    ):
        # In a process of its own, because this one is not in the network of the lab.
        program = [*inside, sys.executable, "-m", __name__, server.store.endpoint, bucket]
        program += [f"{name}={place.resolve()}" for name, place in tables.items()]
        subprocess.run(program, env=lab.environment, cwd=BENCH, check=True)
        lab.others[host] = server.process.pid
        yield server.store
        del lab.others[host]


def _fill(endpoint: str, bucket: str, tables: list[str]) -> None:
    store = s3.Store(endpoint)
    s3.wait(store, bucket)
    for table in tables:
        name, _, place = table.partition("=")
        fs.copy_files(
            place,
            f"{bucket}/{name}",
            source_filesystem=fs.LocalFileSystem(),
            destination_filesystem=store.files(),
        )


if __name__ == "__main__":
    _fill(sys.argv[1], sys.argv[2], sys.argv[3:])
