"""Clients of other hosts are served by the control that leads, by way of any other one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import PYTHON, short_folder, wait_for
from controls import Controls, controls, free_port, replaced
from test_remote_leases import Platform, certificates
from test_remote_queries import Client

import snowmelt as sm
from snowmelt.engines import remote

CODE = "def handler(event):\n    return event * 2\n"
UDF = """
import snowmelt as sm

@sm.udf
def doubled(n: int) -> int:
    return 2 * n
"""
# A program of another engine on the machine of a control.
ENGINE = """
import pyarrow as pa
import snowmelt as sm
from snowmelt.engines import remote

@sm.udf
def doubled(n: int) -> int:
    return 2 * n

try:
    print(remote(doubled)(pa.array([21])).to_pylist())
except sm.Error as error:
    print(error.code)
"""


@sm.udf
def tripled(n: int) -> int:
    return 3 * n


@dataclass
class Doors:
    """The TLS addresses of two controls, and a key of a tenant."""

    cluster: Controls
    platforms: dict[str, Platform]

    def client(self, control: str, folder: Path) -> Client:
        folder.mkdir(exist_ok=True)
        return Client(self.platforms[control], folder)

    def says(self, control: str, path: str) -> bytes:
        """The answer to a request without a key."""
        with self.platforms[control].tls() as connected:
            connected.sendall(
                f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
            )
            said = b""
            while part := connected.recv(1 << 16):
                said += part
        return said


@pytest.fixture
def doors(machine: None) -> Iterator[Doors]:
    ports = {"one": free_port(), "two": free_port()}
    with short_folder() as folder:
        certificate, key, authority = certificates(folder)
        tls = ["--tls-cert", str(certificate), "--tls-key", str(key)]
        more = {name: ["--tls-listen", f"127.0.0.1:{port}", *tls] for name, port in ports.items()}
        with controls(folder, list(ports), more) as cluster:
            assert cluster.leader() == "one"
            leader = cluster.controls["one"]
            token = leader.run("token", "new", "acme").succeeded().out.strip()
            platforms = {
                name: Platform(cluster.controls[name], ("127.0.0.1", port), token, authority, ())
                for name, port in ports.items()
            }
            yield Doors(cluster, platforms)
            sm.connect(None)


def test_a_client_is_served_by_way_of_a_control_that_stands_by(
    doors: Doors, tmp_path: Path
) -> None:
    client = doors.client("two", tmp_path / "client")
    (client.folder / "f.py").write_text(CODE)
    (client.folder / "udf.py").write_text(UDF)
    deployed = client.run("fn", "deploy", "f", client.folder / "f.py")
    assert deployed.returncode == 0, deployed.stderr
    assert client.run("fn", "call", "f", "--data", "21").stdout.strip() == "42"
    # An answer that is a stream.
    sql = "select sum(doubled(v)) as s from range(1000) r(v)"
    assert client.rows(sql, "--udf", client.folder / "udf.py") == "s\n999000\n"
    # A connection that leaves HTTP.
    doors.platforms["two"].connect()
    called = remote(tripled)
    assert called(pa.array(range(5))).to_pylist() == [0, 3, 6, 9, 12]
    # Whose function it is is found out as at the other control.
    assert json.loads(client.run("fn", "ls", "-o", "json").stdout)[0]["tenant"] == "acme"
    stranger = Client(client.platform, client.folder, "A" * 43)
    assert stranger.run("fn", "ls").returncode != 0
    assert doors.platforms["two"].ask("GET", "/v1/functions", None)[0] == 401
    assert doors.says("two", "/readyz").endswith(b"ready\n")

    # The control that leads hangs: this one lives.
    leader = doors.cluster.status("one")["pid"]
    os.kill(leader, signal.SIGSTOP)
    try:
        assert doors.says("two", "/healthz").endswith(b"ok\n")
    finally:
        os.kill(leader, signal.SIGCONT)


def test_clients_keep_their_address_when_another_control_leads(
    doors: Doors, tmp_path: Path
) -> None:
    client = doors.client("two", tmp_path / "client")
    (client.folder / "f.py").write_text(CODE)
    assert client.run("fn", "deploy", "f", client.folder / "f.py").returncode == 0
    doors.cluster.signal("one", signal.SIGKILL)
    replaced(doors.cluster, "one")

    def calls(of: Client) -> bool:
        return of.run("fn", "call", "f", "--data", "21").stdout.strip() == "42"

    wait_for("a call of the next leader", lambda: calls(client))
    doors.cluster.up("one")
    other = doors.client("one", tmp_path / "other")
    wait_for("a call by way of the other control", lambda: calls(other))


def test_an_engine_beside_a_control_that_stands_by_is_told_so(doors: Doors) -> None:
    two = doors.cluster.controls["two"]
    done = subprocess.run(
        [sys.executable, "-c", ENGINE],
        env=two.environ() | {"PYTHONPATH": str(PYTHON)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "SM-0529", done
