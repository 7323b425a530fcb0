"""What is between hosts: certificates, join tokens, encryption, removed hosts; and what a host that
turned hostile can do with its certificate."""

import http.client
import json
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster import join_token
from conftest import Result, Snowmelt, wait_for

from common.paths import SNOWMELT

MARKER = "a-value-that-nobody-else-may-read"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [bound.getsockname()[1] for bound in sockets]
    for bound in sockets:
        bound.close()
    return ports


@dataclass
class Cluster:
    """Control, and hosts that it may lose."""

    control: Snowmelt
    ports: list[int]
    members: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)

    def command(self, name: str, port: int, *options: str) -> list[str]:
        at = ["--control", f"127.0.0.1:{self.ports[0]}", "--address", f"127.0.0.1:{port}"]
        return [str(SNOWMELT), "--errors", "json", "node", *at, "--name", name, *options]

    def state(self, name: str) -> Path:
        return self.control.folder / name

    def environment(self, name: str) -> dict[str, str]:
        return self.control.environ() | {"SNOWMELT_STATE": str(self.state(name))}

    def start(self, name: str, port: int, *options: str) -> None:
        self.members[name] = subprocess.Popen(
            self.command(name, port, *options),
            env=self.environment(name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(f"the host {name}", lambda: name in self.hosts())

    def hosts(self) -> list[str]:
        listed = json.loads(self.control.run("hosts", "-o", "json").succeeded().out)
        return [host["name"] for host in listed]

    def refused(self, name: str, *options: str) -> str:
        """The error of a host that does not come into the cluster."""
        port = free_ports(1)[0]
        done = subprocess.run(
            self.command(name, port, *options),
            env=self.environment(name),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode != 0
        return done.stderr

    def identity(self, name: str) -> dict[str, Any]:
        return json.loads((self.state(name) / "cluster" / "host.json").read_text())

    def end(self, name: str) -> None:
        process = self.members.pop(name)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


@contextmanager
def cluster(control: Snowmelt, *options: str) -> Iterator[Cluster]:
    made = Cluster(control, free_ports(3))
    listen = f"127.0.0.1:{made.ports[0]}"
    control.run("up", "--listen", listen, "--name", "one", *options).succeeded()
    try:
        yield made
    finally:
        for name in list(made.members):
            made.end(name)
        control.run("down")


def trusting(identity: dict[str, Any] | None, folder: Path) -> ssl.SSLContext:
    """TLS with the certificate of a host, or none."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if identity is not None:
        file = folder / "stolen.pem"
        file.write_text(identity["text"]["key"] + identity["text"]["certificate"])
        context.load_cert_chain(file)
    return context


def ask(
    context: ssl.SSLContext, port: int, method: str, path: str, body: str | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    connection.request(method, path, body=body)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def deployed(control: Snowmelt) -> None:
    code = control.folder / "echo.py"
    code.write_text("def handler(event):\n    return event\n")
    control.run("fn", "deploy", "echo", code, "--memory", "64MiB").succeeded()


def call(control: Snowmelt) -> Result:
    return control.run("fn", "call", "echo", "--data", json.dumps(MARKER)).succeeded()


@contextmanager
def recording() -> Iterator[bytearray]:
    """Everything that passes the loopback."""
    said = bytearray()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as packets:
        packets.bind(("lo", 0))
        packets.settimeout(0.2)
        over = threading.Event()

        def listen() -> None:
            while not over.is_set():
                try:
                    said.extend(packets.recv(1 << 17))
                except TimeoutError:
                    continue

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield said
        finally:
            over.set()
            thread.join()


def test_a_host_joins_with_a_token_once_and_a_hostile_one_can_do_little(alone: Snowmelt) -> None:
    with cluster(alone, "--memory", "0") as made:
        token = join_token(alone, "--name", "two")
        assert "SM-0718" in made.refused("three", "--join", token)
        assert "SM-0716" in made.refused("two", "--join", token[:-1])
        assert "SM-0704" in made.refused("two")
        short = join_token(alone, "--expires", "1ms")
        assert "SM-0717" in made.refused("two", "--join", short)
        made.start("two", made.ports[1], "--join", token)
        assert "SM-0717" in made.refused("again", "--join", token)
        file = made.state("two") / "cluster" / "host.json"
        assert file.stat().st_mode & 0o777 == 0o600
        made.start("three", made.ports[2], "--join", join_token(alone))

        deployed(alone)
        with recording() as said:
            call(alone)
        assert said and MARKER.encode() not in said

        # Without a certificate: nothing but joining, at control.
        nobody = trusting(None, alone.folder)
        status, said_why = ask(nobody, made.ports[0], "DELETE", "/v1/hosts/two")
        assert status == 401 and "SM-0704" in said_why
        status, said_why = ask(nobody, made.ports[0], "POST", "/v1/join", "{}")
        assert status >= 400 and "SM-" in said_why
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            ask(nobody, made.ports[1], "GET", "/v1/host")
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            plain = http.client.HTTPConnection("127.0.0.1", made.ports[1], timeout=20)
            plain.request("GET", "/v1/host")
            plain.getresponse()

        # With that of a host: it speaks for itself alone, gives no orders, and reads no API.
        hostile = trusting(made.identity("three"), alone.folder)
        for method, path, body in [
            ("DELETE", "/v1/hosts/two", None),
            ("POST", "/v1/hosts/two/certificate", '{"key": "", "proof": ""}'),
        ]:
            status, said_why = ask(hostile, made.ports[0], method, path, body)
            assert status >= 400 and "SM-0704" in said_why, (path, said_why)
        orders = ["/v1/host", "/v1/functions", "/v1/images/bytes", "/v1/leases"]
        for path in orders:
            status, said_why = ask(hostile, made.ports[1], "GET", path)
            assert status in (403, 404, 405), (path, status, said_why)
        for path in ["/v1/keys", "/v1/functions", "/v1/udfs", "/v1/hosts", "/metrics"]:
            status, _ = ask(hostile, made.ports[0], "GET", path)
            assert status in (404, 405), path

        # A removed host is refused, by the other hosts as well.
        alone.run("hosts", "rm", "three").succeeded()
        assert "three" not in made.hosts()
        removed = made.members.pop("three")
        _, errors = removed.communicate(timeout=30)
        assert removed.returncode == 3 and "SM-0719" in errors, errors
        assert "SM-0719" in made.refused("three")
        status, said_why = ask(hostile, made.ports[0], "DELETE", "/v1/hosts/three")
        assert "SM-0719" in said_why, said_why
        refused = lambda: "SM-0719" in ask(hostile, made.ports[1], "GET", "/v1/host")[1]  # noqa: E731
        wait_for("the other host to refuse it", refused)
        call(alone)
        made.start("three", made.ports[2], "--join", join_token(alone))


def test_certificates_are_renewed_and_hosts_start_again_with_them(alone: Snowmelt) -> None:
    alone.environment["SNOWMELT_CLUSTER_CERTIFICATE_LIFE"] = "12s"
    with cluster(alone, "--memory", "0") as made:
        token = join_token(alone)
        made.start("two", made.ports[1], "--join", token)
        deployed(alone)
        before = made.identity("two")["text"]
        renewed = lambda: made.identity("two")["text"] != before  # noqa: E731
        wait_for("another certificate", renewed)
        after = made.identity("two")["text"]
        assert after["key"] != before["key"] and after["authority"] == before["authority"]
        call(alone)
        # The same command, and one without the token.
        for options in [("--join", token), ()]:
            made.end("two")
            made.start("two", made.ports[1], *options)
            call(alone)


def test_a_closed_network_may_have_no_encryption(alone: Snowmelt) -> None:
    secret = alone.folder / "token"
    secret.write_text("0123456789abcdef")
    plain = ["--plaintext", "--token-file", str(secret)]
    alone.run("up", "--listen", "127.0.0.1:1", "--token-file", secret).failed_with("SM-0110")
    alone.run("up", "--listen", "127.0.0.1:1", "--plaintext").failed_with("SM-0110")
    with cluster(alone, "--memory", "0", *plain) as made:
        alone.run("cluster", "join-token").failed_with("SM-0110")
        alone.run("hosts", "rm", "two").failed_with("SM-0110")
        made.start("two", made.ports[1], *plain)
        deployed(alone)
        with recording() as said:
            call(alone)
        assert MARKER.encode() in said
    alone.environment["SNOWMELT_CLUSTER_PLAINTEXT"] = "true"
    checks = json.loads(alone.run("doctor", "-o", "json").out)
    found = {check["name"]: check["status"] for check in checks}
    assert found["encryption between hosts"] == "warn"
