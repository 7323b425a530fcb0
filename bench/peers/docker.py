"""Debian's docker.io, with a separate data folder, socket and network namespace.

Its bridge and firewall rules stay inside that namespace, and everything is gone afterwards. It
asks the daemon's API directly, as the command line adds 50 ms of its own.
"""

import http.client
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.unix_http import Connection

from . import images, remains

# The name of its network namespace, and of the parent control group of its containers.
NAMESPACE = "snowmelt-bench-docker"
IMAGE = "snowmelt-bench:1"
LIMITS = {
    "NetworkMode": "none",
    "Memory": images.MEMORY,
    "MemorySwap": images.MEMORY,
    "NanoCpus": 1_000_000_000,
    "PidsLimit": images.PIDS,
    "ReadonlyRootfs": True,
}


@dataclass
class Docker:
    """A running daemon with one image: a static busybox."""

    folder: Path

    @property
    def api(self) -> Path:
        return self.folder / "docker.sock"

    def is_up(self) -> bool:
        try:
            self.ask(self.connection(), "GET", "/_ping")
        except (OSError, RuntimeError):
            return False
        return True

    def import_image(self, tar: bytes) -> None:
        connection = self.connection()
        repository, _, tag = IMAGE.partition(":")
        path = f"/images/create?fromSrc=-&repo={repository}&tag={tag}"
        connection.request("POST", path, tar, {"Content-Type": "application/x-tar"})
        answer = connection.getresponse()
        content = answer.read().decode()
        if answer.status != 200 or "error" in content:
            raise RuntimeError(f"the image was refused: {content}")

    def ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object = None
    ) -> bytes:
        headers = {"Content-Type": "application/json"}
        text = json.dumps(body) if body is not None else None
        connection.request(method, path, text, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {content.decode()}")
        return content

    def connection(self) -> http.client.HTTPConnection:
        return Connection(self.api)

    def no_op(self, connection: http.client.HTTPConnection) -> tuple[float, float]:
        """One container that writes a byte: seconds to that byte, seconds of its whole lifetime."""
        begun = time.perf_counter()
        body = {
            "Image": IMAGE,
            "Cmd": images.COMMAND,
            "HostConfig": LIMITS,
            "AttachStdout": True,
        }
        made = json.loads(self.ask(connection, "POST", "/containers/create", body))
        identity = made["Id"]
        stream = self._attach(identity)
        self.ask(connection, "POST", f"/containers/{identity}/start")
        stream.recv(1)
        first_byte = time.perf_counter() - begun
        stream.close()
        self.ask(connection, "POST", f"/containers/{identity}/wait")
        self.ask(connection, "DELETE", f"/containers/{identity}?force=1")
        return first_byte, time.perf_counter() - begun

    def _attach(self, identity: str) -> socket.socket:
        """The container's output, attached before its start."""
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(str(self.api))
        stream.sendall(
            f"POST /containers/{identity}/attach?stream=1&stdout=1 HTTP/1.1\r\n"
            "Host: d\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            if not (more := stream.recv(1)):
                raise RuntimeError(f"docker closed the connection: {head.decode()}")
            head += more
        return stream


def _import_image(docker: Docker) -> None:
    images.fill(docker.folder / "root")
    docker.import_image(images.layer(docker.folder / "root"))


def _wait(docker: Docker, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not docker.is_up():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"dockerd did not come up:\n{log.read_text()[-3000:]}")
        time.sleep(0.2)


@contextmanager
def _network() -> Iterator[None]:
    def delete() -> None:
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False, capture_output=True)

    delete()
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    try:
        subprocess.run(["ip", "-n", NAMESPACE, "link", "set", "lo", "up"], check=True)
        yield
    finally:
        delete()


@contextmanager
def running() -> Iterator[Docker]:
    """A daemon that runs during the block."""
    folder = Path(tempfile.mkdtemp(prefix="sm-docker-"))
    docker, log = Docker(folder), folder / "log"
    command = ["nsenter", f"--net=/run/netns/{NAMESPACE}", "dockerd"]
    command += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    command += ["--pidfile", f"{folder}/pid", "-H", f"unix://{docker.api}"]
    command += ["--cgroup-parent", f"/{NAMESPACE}", "--storage-driver", "overlay2"]
    with _network(), remains.cleaned(folder, NAMESPACE):
        with log.open("wb") as output:
            daemon = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            _wait(docker, daemon, log)
            _import_image(docker)
            yield docker
        finally:
            remains.end(daemon)
