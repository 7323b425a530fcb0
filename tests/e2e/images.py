"""An image made by other tools, and a registry that stores it."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from common import debian as debian_packages

PYTHON = ("python3-minimal", "libpython3-stdlib")

# A file in the image beside the packages, which no start reads.
BALLAST_MIB = 48

# A program as in docs/reference/runtimes.md. It reads a file of the image, or a part of
# one, in pieces and returns the digest.
SERVE = """#!/usr/bin/python3
import hashlib, json, os, socket, struct, time
listener = socket.socket(fileno=int(os.environ["SNOWMELT_CHANNEL_FD"]))
def exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data
def read(event):
    digest = hashlib.sha256()
    left, most = event.get("size", 1 << 62), event.get("piece", 1 << 20)
    with open(event["read"], "rb", buffering=0) as file:
        file.seek(event.get("from", 0))
        while piece := file.read(min(left, most)):
            left -= len(piece)
            digest.update(piece)
            time.sleep(event.get("pause", 0))
    return digest.hexdigest()
while True:
    connected, _ = listener.accept()
    stream = connected.makefile("rwb")
    try:
        while True:
            length, kind = struct.unpack("<IB3x", exactly(stream, 8))
            message = json.loads(exactly(stream, length))
            if kind == 1:
                answer = (2, {})
            else:
                try:
                    answer = (4, read(message["event"]))
                except OSError as error:
                    told = f"OSError: {error}"
                    answer = (5, {"kind": "raised", "function": "read", "exception": told})
            text = json.dumps(answer[1]).encode()
            stream.write(struct.pack("<IB3x", len(text), answer[0]) + text)
            stream.flush()
    except EOFError:
        pass
"""


def bytes_below(folder: Path) -> int:
    """The bytes of all files, some of which may be removed or named meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def run(*command: object, cwd: Path | None = None) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Image:
    """An OCI layout with one image, and its file system as umoci unpacks it."""

    layout: str
    rootfs: Path
    ballast: Path
    # The same file, as functions see it.
    inside: str = "/opt/ballast"


def debian(folder: Path, ballast_mib: int = BALLAST_MIB) -> Image:
    """Two layers: the packages, and above them a file that no start reads."""
    layout, bundle, archives = folder / "layout", folder / "bundle", folder / "archives"
    image = f"{layout}:v1"
    archives.mkdir()
    run("umoci", "init", "--layout", layout)
    run("umoci", "new", "--image", image)
    run("umoci", "unpack", "--image", image, bundle)
    root = bundle / "rootfs"
    for archive in debian_packages.download(PYTHON, archives):
        run("dpkg-deb", "-x", archive, root)
    run("umoci", "repack", "--image", image, "--refresh-bundle", bundle)
    ballast = root / "opt/ballast"
    ballast.parent.mkdir(exist_ok=True)
    ballast.write_bytes(os.urandom(ballast_mib << 20))
    ballast.chmod(0o644)
    run("umoci", "repack", "--image", image, "--refresh-bundle", bundle)
    return Image(image, root, ballast)


@dataclass
class Registry:
    """A separate docker-registry on loopback."""

    folder: Path
    address: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def blob(self, digest: str) -> Path:
        """The path of a blob."""
        name = digest.removeprefix("sha256:")
        blobs = self.folder / "registry/docker/registry/v2/blobs/sha256"
        return blobs / name[:2] / name / "data"

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def json(self, path: str) -> dict[str, Any]:
        """A manifest, or None if it does not exist."""
        kinds = (
            "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"
        )
        asked = Request(f"http://{self.address}/v2/{path}", headers={"accept": kinds})
        try:
            with urlopen(asked) as answer:
                return dict(json.load(answer))
        except HTTPError as error:
            assert error.code == 404, error
            return {}

    def fetched(self) -> int:
        """Bytes that it has sent since the last call."""
        text = self.log()
        (self.folder / "log").write_text("")
        return sum(map(int, re.findall(r"http\.response\.written=(\d+)", text)))


# A user of a registry with a login, as a line of `htpasswd`: the password is `secret`.
LOGIN = "me:$2b$04$uMuHH20Fj2r/Z6o359ELZObQfTP4kp5WvwPAVBnOhxAeFMdCZkbyS"


def registry(folder: Path, address: str = "", tls: str = "", login: bool = False) -> Registry:
    """At a free port, unless an address is given; `tls` is YAML."""
    if not address:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
    config, data = folder / "registry.yml", folder / "registry"
    config.write_text(
        "version: 0.1\nlog: {level: info, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {data}}}}}\nhttp: {{addr: '{address}'{tls}}}\n"
    )
    if login:
        users = folder / "users"
        users.write_text(f"{LOGIN}\n")
        with config.open("a") as file:
            file.write(f"auth: {{htpasswd: {{realm: test, path: {users}}}}}\n")
    with (folder / "log").open("ab") as log:
        command = [shutil.which("docker-registry") or "docker-registry", "serve", str(config)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    host, port = address.split(":")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return Registry(folder, address, process)
        time.sleep(0.02)
    process.kill()
    raise AssertionError((folder / "log").read_text())
