"""Functions of a platform on another host, over TLS: equal answers, and what goes wrong."""

import json
import pickle
import signal
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import PYTHON, SERVER_USER, Snowmelt, wait_for
from suites import client_of

import snowmelt as sm
from snowmelt.engines import Remote, remote
from snowmelt.engines import duckdb as in_duckdb
from snowmelt.engines import pandas as in_pandas

# Of the two ends of a link between this host and a network namespace.
NAMESPACE, LINK = "sm-client", "sm-link"
HERE, THERE = "10.213.77.1", "10.213.77.2"

REQUEST, FAILURE = 18, 5


@sm.udf
def grade(amount: float, name: str | None) -> str | None:
    return None if name is None else f"{name}:{round(amount * 2)}"


@sm.udf(batch="arrow")
def doubled(n: int) -> int:
    import pyarrow.compute as pc

    return pc.multiply(n, 2)  # type: ignore[no-any-return]


@sm.udf(timeout="2s", memory="128MiB")
def fails(n: int) -> int:
    import os
    import time

    if n == 1:
        raise ValueError("one")
    if n == 2:
        os._exit(3)
    if n == 3:
        time.sleep(600)
    if n == 4:
        return len(bytearray(1 << 30))
    return n


# A program of an engine: it calls a function that waits, says what came of it, and calls again.
ENGINE = """
import sys, threading
import pyarrow as pa
import snowmelt as sm
from snowmelt.engines import Remote, remote

@sm.udf(timeout="10m")
def waits(n: int) -> int:
    import time
    time.sleep(n)
    return n

called = remote(waits)
assert called(pa.array([0])).to_pylist() == [0]
print("ready", flush=True)
try:
    called(pa.array([600]))
except sm.Error as error:
    print(error.code, flush=True)
for _ in sys.stdin:
    try:
        print(called(pa.array([0])).to_pylist(), flush=True)
    except sm.Error as error:
        print(error.code, flush=True)
"""


@dataclass
class Platform:
    """A server that other hosts reach."""

    snowmelt: Snowmelt
    address: tuple[str, int]
    token: str
    authority: Path
    # The options with which it was started.
    started: tuple[object, ...]

    @property
    def url(self) -> str:
        return f"https://{self.address[0]}:{self.address[1]}"

    def connect(self) -> None:
        sm.connect(self.url, token=self.token, ca=self.authority)

    def engine(self, *within: str) -> "subprocess.Popen[str]":
        """A program that is a client, when it has called its function."""
        named = {
            "SNOWMELT_URL": self.url,
            "SNOWMELT_TOKEN": self.token,
            "SNOWMELT_CA": str(self.authority),
            "PYTHONPATH": str(PYTHON),
        }
        started = subprocess.Popen(
            [*within, sys.executable, "-c", ENGINE],
            env=self.snowmelt.environ() | named,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        wait_for("its second call", lambda: self.busy() == 1)
        return started

    def busy(self) -> int:
        status = json.loads(self.snowmelt.run("status", "-o", "json").succeeded().out)
        return int(status["instances"][0])

    def tls(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self.authority)
        plain = socket.create_connection(self.address, 60)
        return context.wrap_socket(plain, server_hostname=self.address[0])

    def restart(self) -> None:
        self.snowmelt.run("down").succeeded()
        self.snowmelt.run("up", *self.started).succeeded()

    def ask(
        self, method: str, path: str, token: str | None, more: str = "", text: str = ""
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer to a request with a text."""
        given = "" if token is None else f"Authorization: Bearer {token}\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{given}{more}\r\n"
        with self.tls() as connected:
            connected.sendall((head + text).encode())
            said = b""
            while part := connected.recv(1 << 16):
                said += part
        status, _, body = said.partition(b"\r\n\r\n")
        return int(status.split()[1]), json.loads(body) if body else None


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A certificate for both addresses of these tests, its key, and its authority."""
    certificate, key, authority = (folder / name for name in ("cert.pem", "key.pem", "ca.pem"))
    authority_key = folder / "ca-key.pem"
    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl(*new, "-subj", "/CN=authority", "-keyout", authority_key, "-out", authority)
    names = f"subjectAltName=IP:127.0.0.1,IP:{HERE}"
    by = ("-CA", authority, "-CAkey", authority_key, "-addext", "basicConstraints=CA:FALSE")
    at = ("-subj", "/CN=platform", "-addext", names)
    openssl(*new, *at, *by, "-keyout", key, "-out", certificate)
    if SERVER_USER:
        # The server reads it again.
        key.chmod(0o644)
    return certificate, key, authority


@contextmanager
def served(
    snowmelt: Snowmelt, folder: Path, host: str = "127.0.0.1", more: tuple[object, ...] = ()
) -> Iterator[Platform]:
    certificate, key, authority = certificates(folder)
    with socket.create_server((host, 0)) as free:
        port = free.getsockname()[1]
    token = snowmelt.run("token", "new", "acme").succeeded().out.strip()
    at = ("--tls-listen", f"{host}:{port}", "--tls-cert", certificate, "--tls-key", key, *more)
    snowmelt.run("up", *at).succeeded()
    try:
        yield Platform(snowmelt, (host, port), token, authority, at)
    finally:
        sm.connect(None)
        snowmelt.run("down", "--grace", "0s").succeeded()
        log = (snowmelt.folder / "state" / "snowmelt.log").read_text()
        assert token not in log


@pytest.fixture
def platform(alone: Snowmelt, tmp_path: Path) -> Iterator[Platform]:
    with served(alone, tmp_path) as platform:
        yield platform


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def namespace(nothing_left: None) -> Iterator[str]:
    """A network namespace with a link to this host, as another host would have."""
    run("ip", "netns", "add", NAMESPACE)
    try:
        run("ip", "link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", NAMESPACE)
        run("ip", "addr", "add", f"{HERE}/30", "dev", LINK)
        run("ip", "link", "set", LINK, "up")
        run("ip", "-n", NAMESPACE, "addr", "add", f"{THERE}/30", "dev", LINK)
        run("ip", "-n", NAMESPACE, "link", "set", LINK, "up")
        yield NAMESPACE
    finally:
        # Its end of the link ends with it, and the other end with that.
        run("ip", "netns", "del", NAMESPACE)
        wait_for("the link to end", lambda: not Path(f"/sys/class/net/{LINK}").exists())


def test_engines_of_other_hosts_have_the_same_answers(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    amounts = [n / 4 for n in range(20_000)]
    names = [None if n % 13 == 0 else f"row {n}" for n in range(20_000)]
    expected = [grade(amount, name) for amount, name in zip(amounts, names, strict=True)]
    table = pa.table({"n": range(20_000), "amount": amounts, "name": names})
    platform.connect()
    assert grade.register() == 1
    # By name, and sent with each lease.
    for function in ("grade", grade):
        with duckdb.connect() as connection:
            in_duckdb.register(connection, function)
            connection.register("t", table)
            rows = connection.sql("select n, grade(amount, name) from t").fetchall()
        assert [value for _, value in sorted(rows)] == expected
    frame = table.to_pandas()
    called = in_pandas.call("grade", frame["amount"], frame["name"])
    assert [None if pd.isna(value) else value for value in called] == expected
    # On the platform's own machine.
    monkeypatch.setenv("SNOWMELT_TENANT", "acme")
    sm.connect(None)
    with client_of(platform.snowmelt.folder / "state" / "snowmelt.sock"):
        local = remote("grade")(pa.array(amounts), pa.array(names))
    sm.connect(None)
    assert local.to_pylist() == expected


def test_batches_of_many_megabytes_are_relayed(platform: Platform) -> None:
    platform.connect()
    with Remote(doubled, instances=2) as called:
        array = pa.array(np.arange(2_000_000))
        assert called(array) == pa.array(np.arange(2_000_000) * 2)
    text = pa.array(["x" * (1 << 20)] * 40)
    assert remote(grade)(pa.array([1.0] * 40), text).to_pylist() == [f"{'x' * (1 << 20)}:2"] * 40


def test_a_function_is_pickled_for_other_machines(platform: Platform) -> None:
    platform.connect()
    pickled = pickle.dumps(remote(doubled))
    program = "import pickle, sys, pyarrow as pa\ncalled = pickle.load(sys.stdin.buffer)\n"
    program += "print(called(pa.array([4])).to_pylist())\ncalled.close()"
    # It has neither the platform's variables nor its certificates.
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickled,
        env={"PATH": "/usr/bin", "PYTHONPATH": str(PYTHON)},
        capture_output=True,
        timeout=120,
    )
    assert done.stdout == b"[8]\n", done.stderr.decode()


def test_a_function_that_fails_is_told_as_on_one_machine(platform: Platform) -> None:
    platform.connect()
    called = remote(fails)
    codes = {1: "SM-0201", 2: "SM-0210", 3: "SM-0212", 4: "SM-0213"}
    for n, code in codes.items():
        with pytest.raises(sm.FunctionError) as failed:
            called(pa.array([n]))
        assert failed.value.code == code, str(failed.value)
        assert called(pa.array([7])).to_pylist() == [7]
    with pytest.raises(sm.Error) as refused:
        remote(doubled, transport="flight")
    assert refused.value.code == "SM-0110"


def test_only_a_valid_token_over_a_trusted_connection_is_served(platform: Platform) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"token": platform.token, "ca": None}, "SM-0516"),
        ({"token": "snowmelt-0", "ca": platform.authority}, "SM-0515"),
        ({"token": None, "ca": platform.authority}, "SM-0515"),
    ]
    for given, code in cases:
        with pytest.raises(sm.Error) as refused:
            sm.connect(platform.url, **given)
        assert refused.value.code == code, str(refused.value)
        assert "snowmelt-0" not in str(refused.value)
    for url in (platform.url.replace("https", "http"), "https://127.0.0.1", "127.0.0.1:1"):
        with pytest.raises(sm.Error) as refused:
            sm.connect(url, token=platform.token)
        assert refused.value.code == "SM-0110"
    with socket.create_connection(platform.address, 60) as plain:
        plain.sendall(b"GET /v1/udfs HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in plain.recv(4096)
    # A token that is withdrawn.
    platform.connect()
    platform.snowmelt.run("token", "revoke", platform.token.split("-")[1]).succeeded()
    with pytest.raises(sm.Error) as refused:
        remote("grade")
    assert refused.value.code == "SM-0515"


def test_what_belongs_to_the_machine_or_to_other_tenants_is_not_served(
    platform: Platform, tmp_path: Path
) -> None:
    code = tmp_path / "f.py"
    code.write_text("def handler(event):\n    return event\n")
    for tenant in ("acme", "default"):
        platform.snowmelt.run("fn", "deploy", tenant, code, "--tenant", tenant).succeeded()
    status, listed = platform.ask("GET", "/v1/functions", platform.token)
    assert (status, [function["name"] for function in listed]) == (200, ["acme"])
    assert platform.ask("GET", "/v1/functions/default", platform.token)[0] == 404
    status, refused = platform.ask(
        "GET", "/v1/functions", platform.token, "snowmelt-tenant: default\r\n"
    )
    assert (status, refused["code"]) == (403, "SM-0513")
    for method, path in (
        ("POST", "/v1/packages"),
        ("GET", "/v1/hosts"),
        ("POST", "/v1/shutdown"),
    ):
        status, refused = platform.ask(method, path, platform.token)
        assert (status, refused["code"]) == (404, "SM-0508"), path
    status, refused = platform.ask("GET", "/v1/functions", None)
    assert (status, refused["code"]) == (401, "SM-0515")
    platform.connect()
    with pytest.raises(sm.Error) as refused_path:
        sm.sql("select count(*) from '/etc/passwd'").collect()
    assert refused_path.value.code == "SM-0121", str(refused_path.value)


def test_a_renewed_certificate_is_shown_without_a_restart(
    platform: Platform, tmp_path: Path
) -> None:
    old = platform.authority
    renewed = tmp_path / "renewed"
    renewed.mkdir()
    certificate, key, authority = certificates(renewed)
    log = platform.snowmelt.folder / "state" / "snowmelt.log"
    # Whoever renews writes one file after the other.
    certificate.replace(tmp_path / "cert.pem")
    wait_for("the refusal", lambda: "do not fit each other" in log.read_text())
    with platform.tls():
        pass
    key.replace(tmp_path / "key.pem")
    platform.authority = authority

    def is_trusted() -> bool:
        try:
            platform.tls().close()
        except ssl.SSLCertVerificationError:
            return False
        return True

    wait_for("the new certificate", is_trusted)
    assert platform.ask("GET", "/v1/functions", platform.token)[0] == 200
    platform.authority = old
    assert not is_trusted()


def test_malformed_frames_end_their_lease_only(platform: Platform) -> None:
    asked = json.dumps({"runs": {"registered": {"name": "nothing"}}}).encode()
    cases = [
        (struct.pack("<IBxxx", 2, REQUEST) + b"{}", "SM-0507"),
        (struct.pack("<IBxxx", 0, 99), "SM-0507"),
        (b"\xff" * 8, "SM-0507"),
        (struct.pack("<IBxxx", len(asked), REQUEST) + asked, "SM-0220"),
    ]
    head = "GET /v1/leases HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: snowmelt\r\n"
    head += f"Authorization: Bearer {platform.token}\r\n\r\n"
    for sent, code in cases:
        with platform.tls() as connected:
            connected.sendall(head.encode() + sent)
            said = b""
            while part := connected.recv(4096):
                said += part
        status, _, frame = said.partition(b"\r\n\r\n")
        assert b" 101 " in status, said
        length, kind = struct.unpack_from("<IBxxx", frame)
        report = json.loads(frame[8 : 8 + length])
        assert (kind, report["code"]) == (FAILURE, code), report
    platform.connect()
    assert remote(doubled)(pa.array([4])).to_pylist() == [8]


def test_an_instance_ends_with_its_client(platform: Platform) -> None:
    engine = platform.engine()
    engine.send_signal(signal.SIGKILL)
    engine.wait(60)
    wait_for("the instance to end", lambda: platform.busy() == 0)


def test_a_server_that_ends_is_an_error_of_the_call(platform: Platform) -> None:
    engine = platform.engine()
    assert engine.stdin is not None and engine.stdout is not None
    platform.snowmelt.run("down", "--grace", "0s").succeeded()
    assert engine.stdout.readline() == "SM-0503\n"
    engine.stdin.write("again\n")
    engine.stdin.flush()
    assert engine.stdout.readline() == "SM-0503\n"
    engine.communicate(timeout=60)
    assert engine.returncode == 0


def test_a_host_that_is_cut_off_is_an_error_and_the_engine_goes_on(
    namespace: str, alone: Snowmelt, tmp_path: Path
) -> None:
    with served(alone, tmp_path, HERE) as platform:
        engine = platform.engine("ip", "netns", "exec", namespace)
        assert engine.stdin is not None and engine.stdout is not None
        run("ip", "link", "set", LINK, "down")
        # The function sleeps for ten minutes, so nothing else ends the call.
        assert engine.stdout.readline() == "SM-0503\n"
        wait_for("the instance to end", lambda: platform.busy() == 0)
        run("ip", "link", "set", LINK, "up")
        engine.stdin.write("again\n")
        engine.stdin.flush()
        assert engine.stdout.readline() == "[0]\n"
        engine.communicate(timeout=60)
        assert engine.returncode == 0
