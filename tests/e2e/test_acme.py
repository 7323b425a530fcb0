"""Certificates that the server orders by ACME and renews, from Let's Encrypt's Pebble."""

import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from socket import create_connection
from typing import Any

import pytest
from acme_authority import Authority, names_here, program
from conftest import Snowmelt, wait_for
from controls import free_port
from test_remote_leases import certificates

NAMES = ("a.example", "b.example")


class Client(HTTPConnection):
    """A client that knows the server by a name and the root of its authority."""

    def __init__(self, port: int, root: str, name: str = NAMES[0]) -> None:
        super().__init__(name, port, timeout=30)
        self._context = ssl.create_default_context(cadata=root)

    def connect(self) -> None:
        plain = create_connection(("127.0.0.1", self.port), 30)
        self.sock: ssl.SSLSocket = self._context.wrap_socket(plain, server_hostname=self.host)

    @property
    def certificate(self) -> bytes:
        shown = self.sock.getpeercert(binary_form=True)
        assert shown is not None
        return shown

    def ask(self, token: str) -> Any:
        self.request("GET", "/v1/functions", headers={"Authorization": f"Bearer {token}"})
        answer = self.getresponse()
        assert answer.status == 200
        return json.loads(answer.read())


@dataclass
class Server:
    """A server whose certificate comes from an authority."""

    snowmelt: Snowmelt
    authority: Authority
    port: int

    def up(self, **settings: object) -> None:
        at = {
            "DIRECTORY": self.authority.directory,
            "NAMES": ",".join(NAMES),
            "CONTACT": "admin@example.com",
            "CA": self.authority.folder / "ca.pem",
        } | settings
        named = {f"SNOWMELT_TLS_ACME_{name}": str(value) for name, value in at.items()}
        self.snowmelt.environment |= named
        self.snowmelt.run("up", "--tls-listen", f"127.0.0.1:{self.port}").succeeded()

    def down(self) -> None:
        self.snowmelt.run("down", "--grace", "0s").succeeded()

    def status(self) -> dict[str, Any]:
        asked = self.snowmelt.run("status", "-o", "json").succeeded()
        status: dict[str, Any] = json.loads(asked.out)["certificate"]
        return status

    def failure(self) -> dict[str, Any]:
        failure: dict[str, Any] = wait_for("a failure", lambda: self.status()["failure"])
        assert failure["code"] == "SM-0534"
        return failure

    def shows(self, name: str = NAMES[0]) -> bytes | None:
        """The certificate that a client of the authority trusts, if there is one."""
        client = Client(self.port, self.authority.root(), name)
        try:
            client.connect()
            return client.certificate
        except ssl.SSLError:
            return None
        finally:
            client.close()

    def doctor(self) -> dict[str, Any]:
        rows = json.loads(self.snowmelt.run("doctor", "-o", "json").out)
        row: dict[str, Any] = next(row for row in rows if row["name"].startswith("certificate for"))
        return row


@pytest.fixture(scope="module")
def pebble(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("pebble"))


@pytest.fixture
def server(alone: Snowmelt, tmp_path: Path, pebble: Path) -> Iterator[Server]:
    certificate, key, _ = certificates(tmp_path)
    with names_here() as dns:
        port = free_port()
        authority = Authority(pebble, tmp_path, dns, certificate, key, port)
        try:
            yield Server(alone, authority, port)
        finally:
            authority.stop()
            alone.run("down", "--grace", "0s")


def test_a_certificate_is_ordered_renewed_and_kept(server: Server) -> None:
    # The authority is down. The server serves its own machine, and nobody else.
    server.up()
    token = server.snowmelt.run("token", "new", "acme").succeeded().out.strip()
    assert server.snowmelt.rows("select 1 + 1 as n") == [{"n": 2}]
    failure = server.failure()
    assert "a.example, b.example" in failure["message"] and "refused" in failure["message"]
    assert server.doctor()["status"] == "fail"
    with pytest.raises(ssl.SSLError):
        Client(server.port, ssl.get_server_certificate(("127.0.0.1", server.port))).connect()

    # The authority comes. Its certificates last for seconds, and it rejects a part of all nonces.
    authority = server.authority
    authority.start(lasts_s=12, rejected_nonces=20)
    first = wait_for("the first certificate", server.shows)
    opened = Client(server.port, authority.root(), NAMES[1])
    assert opened.ask(token) == []
    assert server.status()["failure"] is None and server.doctor()["status"] == "ok"

    # The authority begins anew, and knows no account. The certificate is renewed all the same.
    authority.stop()
    authority.start(lasts_s=90 * 24 * 3600)
    # An open connection goes on, with the certificate with which it began.
    last = wait_for(
        "a certificate of the new root",
        lambda: opened.ask(token) == [] and server.shows(),
        120,
    )
    assert opened.ask(token) == [] and opened.certificate == first != last
    opened.close()
    assert "less than a day" not in server.doctor()["found"]

    # One that lasts is kept and not ordered twice.
    server.down()
    folder = server.snowmelt.folder / "state" / "acme"
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert set(modes.values()) == {0o600} and folder.stat().st_mode & 0o777 == 0o700, modes
    authority.stop()
    server.up()
    authority.start(lasts_s=90 * 24 * 3600)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with create_connection(("127.0.0.1", server.port)) as plain, context.wrap_socket(plain) as kept:
        assert kept.getpeercert(binary_form=True) == last
    status = server.status()
    days = (status["order_ms"] / 1000 - time.time()) / (24 * 3600)
    assert status["failure"] is None and 58 < days <= 60, status
    metrics = server.snowmelt.run("top", "-o", "json").succeeded()
    assert 89 < json.loads(metrics.out)["certificate_days"] < 90
    log = (server.snowmelt.folder / "state" / "snowmelt.log").read_text()
    assert token not in log and "PRIVATE KEY" not in log


def test_an_authority_that_refuses_is_not_asked_again_at_once(server: Server) -> None:
    authority = server.authority
    authority.start(lasts_s=3600)
    # Something else than a directory.
    server.up(DIRECTORY=f"https://127.0.0.1:{authority.port}/nothing")
    assert "404" in server.failure()["message"]
    server.down()
    # A root that is not trusted.
    server.up(CA=server.authority.folder / "cert.pem")
    assert "certificate" in server.failure()["message"]
    server.down()

    # Proofs are looked for where this server does not listen.
    authority.stop()
    authority.proofs_at = free_port()
    authority.start(lasts_s=3600)
    server.up()
    failure = wait_for(
        "a refusal", lambda: "a.example: " in server.failure()["message"] and server.failure()
    )
    assert "port 443" in failure["hint"], failure
    assert server.shows() is None
    orders = authority.orders
    left = server.status()["order_ms"] / 1000 - time.time()
    assert left > 60, left
    # Neither is it after a start.
    server.down()
    server.up()
    assert server.status()["order_ms"] / 1000 - time.time() > 30
    assert authority.orders == orders > 0
    # With other names it is.
    server.down()
    server.up(NAMES="c.example")
    wait_for("an order of another name", lambda: authority.orders > orders)


def test_settings_that_are_wrong_are_refused(alone: Snowmelt, tmp_path: Path) -> None:
    at = ("up", "--tls-listen", f"127.0.0.1:{free_port()}")
    directory = "SNOWMELT_TLS_ACME_DIRECTORY"
    names = {"SNOWMELT_TLS_ACME_NAMES": "a.example"}
    certificate, key, _ = certificates(tmp_path)
    for environment, more, words in [
        ({directory: "http://a.example/"}, (), "not an https:// address"),
        ({directory: "https://a.example/"}, (), "1 to 100 names"),
        (names, (), "tls.acme_directory"),
        ({directory: "https://a.example/", "SNOWMELT_TLS_ACME_NAMES": "*.example"}, (), "DNS"),
        (
            {directory: "https://a.example/"} | names,
            ("--tls-cert", certificate, "--tls-key", key),
            "not from both",
        ),
    ]:
        asked = Snowmelt(alone.folder, environment)
        asked.run(*at, *more).failed_with("SM-0110", words)
