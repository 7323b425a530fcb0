"""The engine's side of a lease over TLS, with a real instance and a platform of one thread."""

from __future__ import annotations

import errno
import json
import pickle
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer import Instance

from snowmelt import _link, _remote_server, _server
from snowmelt._lease import Lease, Lost
from snowmelt._remote_server import RemoteServer, authority
from snowmelt._runtime import frames
from snowmelt._runtime.frames import Connection
from snowmelt.errors import Error

CERTIFICATES = Path(__file__).resolve().parents[2] / "crates/rpc/testdata"

SOURCE = """
import snowmelt as sm

@sm.udf
def same(x: sm.Array[float]) -> sm.Array[float]:
    return x
"""

REQUEST, REPLY, UNKNOWN = 18, 19, 99

Serve = Callable[[ssl.SSLSocket], None]


class Platform:
    """Serves each connection over TLS by a function of the test."""

    def __init__(self) -> None:
        self.serve: Serve = lambda _: None
        self.heads: list[bytes] = []
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://localhost:{self.listener.getsockname()[1]}"
        self.server = RemoteServer(self.url, "a-token", authority(CERTIFICATES / "authority.pem"))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self.listener.accept()
            except OSError:
                return  # The test has ended.
            threading.Thread(target=self._connection, args=(connected,), daemon=True).start()

    def _connection(self, plain: socket.socket) -> None:
        try:
            with self._tls.wrap_socket(plain, server_side=True) as connected:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += connected.recv(1)
                self.heads.append(head)
                self.serve(connected)
        except OSError:
            pass  # The client has ended the connection.

    def lease(self, timeout_ms: int = 60_000) -> Serve:
        """Leaves HTTP, and grants a lease."""

        def serve(connected: ssl.SSLSocket) -> None:
            connected.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n"
                b"upgrade: snowmelt\r\n\r\n"
            )
            control = Connection(connected)
            control.expect(REQUEST)
            control.send_json(REPLY, {"start": "idle", "cold": False, "timeout_ms": timeout_ms})

        return serve

    def leased(self) -> Lease:
        schema = pa.schema([pa.field("x", pa.float64()), pa.field("return", pa.float64())])
        return Lease(self.server, {"runs": {"udf": {"source": {}, "name": "same"}}}, schema)


@pytest.fixture
def platform() -> Iterator[Platform]:
    platform = Platform()
    yield platform
    platform.listener.close()


def batch(rows: int) -> Any:
    return pa.record_batch({"x": pa.array([float(n) for n in range(rows)])})


def asked(connected: ssl.SSLSocket) -> Connection:
    """Reads all that a first call sends: a connection that is closed before that is reset."""
    control = Connection(connected)
    for _ in ("arguments", "result", "batch"):
        control.expect(frames.RELAYED)
    return control


def relay(connected: ssl.SSLSocket, instance: socket.socket) -> None:
    """In both directions, until the client returns the instance."""
    control = Connection(connected)
    while True:
        if connected.pending() or control.has_more:
            readable: list[Any] = [connected]
        else:
            readable = select.select([connected, instance], [], [])[0]
        if instance in readable:
            control.send(frames.RELAYED, instance.recv(1000))
        if connected in readable:
            kind, payload = control.receive() or (frames.END, b"")
            if kind == frames.END:
                return control.send(frames.END, b"")
            assert kind == frames.RELAYED
            instance.sendall(payload)


def test_calls_are_relayed_and_the_instance_is_returned(
    platform: Platform, instance: Instance
) -> None:
    grant = platform.lease()
    its_own = instance.open("udf", instance.source(SOURCE), "same")
    returned = threading.Event()

    def serve(connected: ssl.SSLSocket) -> None:
        grant(connected)
        relay(connected, its_own._socket)
        returned.set()

    platform.serve = serve
    lease = platform.leased()
    for rows in (1, 10, 20_000):
        assert lease.call(batch(rows)) == batch(rows).column(0)
    assert lease.is_idle()
    lease.give_back()
    assert returned.wait(60)
    [head] = platform.heads
    assert head.startswith(b"GET /v1/leases HTTP/1.1\r\n"), head
    assert b"\r\nAuthorization: Bearer a-token\r\n" in head


def test_the_platform_says_why_an_instance_has_ended(platform: Platform) -> None:
    grant = platform.lease()

    def serve(connected: ssl.SSLSocket) -> None:
        grant(connected)
        control = asked(connected)
        # A part of an answer comes first.
        control.send(frames.RELAYED, struct.pack("<IB3x", 1000, frames.BATCH) + b"part")
        control.send_json(frames.FAILURE, {"code": "SM-0213", "message": "out of memory"})
        connected.recv(1)

    platform.serve = serve
    lease = platform.leased()
    with pytest.raises(Lost) as lost:
        lease.call(batch(1))
    assert lost.value.error.code == "SM-0213"
    assert not lease.is_idle()
    lease.end()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (struct.pack("<IB3x", 0, UNKNOWN), "SM-0507"),
        (struct.pack("<IB3x", frames.MAX_PAYLOAD_BYTES + 1, frames.RELAYED), "SM-0507"),
        (struct.pack("<IB3x", 100, frames.RELAYED) + b"cut", "SM-0503"),
        (b"\0\0", "SM-0503"),
        (b"", "SM-0503"),
    ],
)
def test_malformed_and_missing_frames_are_errors(
    platform: Platform, sent: bytes, code: str
) -> None:
    grant = platform.lease()

    def serve(connected: ssl.SSLSocket) -> None:
        grant(connected)
        asked(connected)
        connected.sendall(sent)

    platform.serve = serve
    lease = platform.leased()
    with pytest.raises(Lost) as lost:
        lease.call(batch(1))
    assert lost.value.error.code == code, str(lost.value.error)
    lease.end()


def test_a_call_that_takes_too_long_ends(platform: Platform) -> None:
    grant = platform.lease(timeout_ms=200)

    def serve(connected: ssl.SSLSocket) -> None:
        grant(connected)
        while connected.recv(1 << 16):
            pass

    platform.serve = serve
    lease = platform.leased()
    with pytest.raises(Lost) as lost:
        lease.call(batch(1))
    assert lost.value.error.code == "SM-0212"
    lease.end()


def test_a_call_is_interrupted_by_another_thread(platform: Platform) -> None:
    grant, begun = platform.lease(), threading.Event()

    def serve(connected: ssl.SSLSocket) -> None:
        grant(connected)
        connected.recv(1)
        begun.set()
        while connected.recv(1 << 16):
            pass

    platform.serve = serve
    lease = platform.leased()

    def interrupt() -> None:
        begun.wait(60)
        lease.interrupt()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(Lost) as lost:
        lease.call(batch(1))
    assert lost.value.error.code == "SM-0503"
    lease.end()


def test_the_kernels_end_of_time_is_that_of_the_host(platform: Platform) -> None:
    """What `connect` sets has the kernel give up on a host that does not answer (ETIMEDOUT)."""

    class Cut:
        def readinto(self, _: Any) -> int:
            raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

        def send(self, *_: Any) -> None:
            raise TimeoutError("timed out")

    through = _link._Bytes(Cut())  # type: ignore[arg-type]
    with pytest.raises(ConnectionAbortedError):
        through.recv(8)
    assert through.error is not None
    with pytest.raises(TimeoutError):
        through.sendall(b"x")
    with platform.server.connect() as connected:
        tcp = socket.IPPROTO_TCP
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connected.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == 10_000
        assert connected.getsockopt(tcp, socket.TCP_KEEPIDLE) == 3


def test_nothing_is_sent_to_a_server_that_is_not_trusted(platform: Platform) -> None:
    for ca in (None, authority(CERTIFICATES / "other.pem")):
        with pytest.raises(Error) as refused:
            RemoteServer(platform.url, "a-token", ca).check()
        assert refused.value.code == "SM-0516", str(refused.value)
    assert platform.heads == []
    with pytest.raises(Error) as refused:
        authority(CERTIFICATES / "nothing.pem")
    assert refused.value.code == "SM-0110"


def test_a_refusal_is_the_error_of_the_server(platform: Platform) -> None:
    body = json.dumps({"code": "SM-0515", "message": "the token of the request is not accepted"})

    def serve(connected: ssl.SSLSocket) -> None:
        head = f"HTTP/1.1 401 Unauthorized\r\ncontent-length: {len(body)}\r\n\r\n"
        connected.sendall((head + body).encode())

    platform.serve = serve
    for ask in (platform.server.check, platform.server.lease, platform.leased):
        with pytest.raises(Error) as refused:
            ask()
        assert refused.value.code == "SM-0515"


def test_a_server_that_is_silent_or_speaks_no_tls_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_remote_server, "ANSWERS_WITHIN_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://localhost:{listener.getsockname()[1]}"
        with pytest.raises(Error) as silent:
            RemoteServer(url, "a-token").check()
        assert silent.value.code == "SM-0511"

        def plain() -> None:
            # The first connection is that of the check above.
            for _ in range(2):
                connected, _address = listener.accept()
                with connected:
                    connected.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        threading.Thread(target=plain, daemon=True).start()
        monkeypatch.setattr(_remote_server, "ANSWERS_WITHIN_SECONDS", 60.0)
        with pytest.raises(Error) as wrong:
            RemoteServer(url, "a-token").check()
        assert wrong.value.code == "SM-0503"
    with pytest.raises(Error) as gone:
        RemoteServer(url, "a-token").check()
    assert gone.value.code == "SM-0503"


def test_a_token_travels_only_if_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWMELT_TOKEN", "of-the-variable")
    url = "https://[::1]:7443"
    given = pickle.loads(pickle.dumps(RemoteServer(url, "given")))
    assert given.headers() == {"Authorization": "Bearer given"}
    assert (given.path, given.host) == (url, "[::1]:7443")
    pickled = pickle.dumps(RemoteServer(url))
    assert b"of-the-variable" not in pickled
    assert pickle.loads(pickled).headers() == {"Authorization": "Bearer of-the-variable"}
    monkeypatch.delenv("SNOWMELT_TOKEN")
    with pytest.raises(Error) as missing:
        pickle.loads(pickled).headers()
    assert missing.value.code == "SM-0515"


def test_the_platform_of_variables_is_used(
    monkeypatch: pytest.MonkeyPatch, platform: Platform
) -> None:
    monkeypatch.setenv("SNOWMELT_URL", platform.url)
    monkeypatch.setenv("SNOWMELT_CA", str(CERTIFICATES / "authority.pem"))
    monkeypatch.setenv("SNOWMELT_TOKEN", "a-token")
    platform.serve = lambda connected: connected.sendall(
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n[]"
    )
    _server.connect(None)
    try:
        assert _server.current().path == platform.url
        for wrong in ("http://localhost:1", "https://localhost", "localhost:1", "https://a:x"):
            with pytest.raises(Error) as refused:
                _server.connect(wrong)
            assert refused.value.code == "SM-0110"
    finally:
        monkeypatch.delenv("SNOWMELT_URL")
        _server.connect(None)
