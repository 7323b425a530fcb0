"""Leases of instances over the local socket: what docs/reference/functions.md shows, and faults."""

import json
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Snowmelt, wait_for

REQUEST, REPLY, CALL, RETURN, FAILURE, END = 18, 19, 3, 4, 5, 8


def send(stream: socket.socket, kind: int, payload: bytes = b"") -> None:
    stream.sendall(struct.pack("<IBxxx", len(payload), kind) + payload)


def receive(stream: socket.socket) -> tuple[int, bytes, list[int]]:
    header, descriptors, _, _ = socket.recv_fds(stream, 8, 1)
    if not header:
        raise ConnectionError("the other end has closed it")
    length, kind = struct.unpack("<IBxxx", header)
    payload = b""
    while len(payload) < length:
        payload += stream.recv(length - len(payload))
    return kind, payload, descriptors


def ask(snowmelt: Snowmelt, runs: dict[str, object]) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(60)
    stream.connect(str(snowmelt.folder / "state" / "snowmelt.lease"))
    send(stream, REQUEST, json.dumps({"runs": runs}).encode())
    return stream


def lease(snowmelt: Snowmelt, name: str) -> tuple[socket.socket, socket.socket]:
    stream = ask(snowmelt, {"function": name})
    kind, payload, descriptors = receive(stream)
    assert kind == REPLY, payload
    instance = socket.socket(fileno=descriptors[0])
    instance.settimeout(60)
    return stream, instance


def call(instance: socket.socket, event: object) -> object:
    send(instance, CALL, json.dumps({"invocation": "i", "event": event}).encode())
    kind, payload, _ = receive(instance)
    assert kind == RETURN, payload
    return json.loads(payload)


@pytest.fixture
def up(alone: Snowmelt) -> Iterator[Snowmelt]:
    alone.run("up").succeeded()
    yield alone
    alone.run("down", "--grace", "0s").succeeded()


@pytest.fixture
def counts(up: Snowmelt, tmp_path: Path) -> str:
    code = tmp_path / "counts.py"
    code.write_text(
        "calls = 0\ndef handler(event):\n    global calls\n    calls += event\n    return calls\n"
    )
    up.run("fn", "deploy", "counts", code, "--instances", 1).succeeded()
    return "counts"


def test_a_leased_instance_is_called_without_the_server(up: Snowmelt, counts: str) -> None:
    stream, instance = lease(up, counts)
    assert [call(instance, 2), call(instance, 3)] == [2, 5]
    send(stream, END)
    assert receive(stream)[0] == END
    with pytest.raises(OSError):
        call(instance, 1)
    # The function has one instance, which the lease has returned.
    assert json.loads(up.run("fn", "call", counts, "--data", "1").succeeded().out) == 6


def test_a_lease_counts_as_a_call_and_ends_with_its_client(up: Snowmelt, counts: str) -> None:
    stream, instance = lease(up, counts)
    assert call(instance, 1) == 1
    waiting = up.start("fn", "call", counts, "--data", "1")
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(timeout=1)
    stream.close()
    out, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, err
    assert json.loads(out) == 1, "an instance that was not returned is not used again"
    with pytest.raises(OSError):
        call(instance, 1)


def test_what_cannot_be_leased_is_refused(up: Snowmelt, counts: str) -> None:
    kind, payload, _ = receive(ask(up, {"function": "missing"}))
    assert (kind, json.loads(payload)["code"]) == (FAILURE, "SM-0220")
    kind, payload, _ = receive(ask(up, {"rights": "all"}))
    assert (kind, json.loads(payload)["code"]) == (FAILURE, "SM-0507")
    wait_for("the server to answer", lambda: up.run("status").code == 0)
