"""An authority that speaks ACME: Let's Encrypt's Pebble, and a server of DNS by which it finds all
names on this machine."""

import json
import os
import shutil
import socket
import socketserver
import ssl
import struct
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import wait_for
from controls import free_port

MODULE = Path(__file__).with_name("pebble")
PACKAGE = "github.com/letsencrypt/pebble/v2/cmd/pebble"
ADDRESS = socket.inet_aton("127.0.0.1")


def program(folder: Path) -> Path:
    """Pebble as `scripts/setup` has built it, or built now."""
    if built := shutil.which("pebble"):
        return Path(built)
    version = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True).stdout
    if (
        version.startswith(tuple(f"go1.{minor}" for minor in range(1, 21)))
        and "." not in version[4:7]
    ):
        pytest.skip("Pebble needs Go 1.25, or one that fetches it")
    made = folder / "pebble"
    subprocess.run(["go", "build", "-o", made, PACKAGE], cwd=MODULE, check=True)
    return made


class Names(socketserver.StreamRequestHandler):
    """Finds each name at 127.0.0.1. Pebble asks over TCP."""

    def handle(self) -> None:
        while len(length := self.rfile.read(2)) == 2:
            answer = _answer(self.rfile.read(int.from_bytes(length, "big")))
            self.wfile.write(len(answer).to_bytes(2, "big") + answer)


@contextmanager
def names_here() -> Iterator[str]:
    """The address of a server of DNS that finds each name on this machine."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Names) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _answer(asked: bytes) -> bytes:
    """An address for a question about one; nothing for all others."""
    end = asked.index(b"\0", 12) + 5
    question = asked[12:end]
    is_address = question[-4:] == struct.pack(">HH", 1, 1)
    head = asked[:2] + struct.pack(">HHHHH", 0x8180, 1, is_address, 0, 0)
    found = struct.pack(">HHHIH", 0xC00C, 1, 1, 1, 4) + ADDRESS if is_address else b""
    return head + question + found


@dataclass
class Authority:
    """An authority that may be down, and begins anew when it is up: with another root, and without
    accounts."""

    program: Path
    folder: Path
    dns: str
    certificate: Path
    key: Path
    # Where it finds proofs of names.
    proofs_at: int
    port: int = field(default_factory=free_port)
    management: int = field(default_factory=free_port)
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def directory(self) -> str:
        return f"https://127.0.0.1:{self.port}/dir"

    @property
    def log(self) -> str:
        return (self.folder / "pebble.log").read_text()

    @property
    def orders(self) -> int:
        return self.log.count("Added order")

    def start(self, lasts_s: int, rejected_nonces: int = 0) -> None:
        settings = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.certificate),
            "privateKey": str(self.key),
            "httpPort": 1,
            "tlsPort": self.proofs_at,
            "keyAlgorithm": "ecdsa",
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "one", "validityPeriod": lasts_s}},
        }
        config = self.folder / "pebble.json"
        config.write_text(json.dumps({"pebble": settings}))
        how = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": str(rejected_nonces)}
        with (self.folder / "pebble.log").open("a") as log:
            self._process = subprocess.Popen(
                [self.program, "-config", config, "-dnsserver", self.dns],
                env=os.environ | how,
                stdout=log,
                stderr=log,
            )
        wait_for("the authority", self._answers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def root(self) -> str:
        """The certificate of its root."""
        return self._get("/roots/0")

    def _answers(self) -> bool:
        try:
            return bool(self.root())
        except OSError:
            return False

    def _get(self, path: str) -> str:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"https://127.0.0.1:{self.management}{path}"
        with urllib.request.urlopen(url, context=context, timeout=5) as answer:
            text: str = answer.read().decode()
        return text
