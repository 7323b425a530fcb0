"""The engine's side of a lease, with a real instance and a platform of one thread."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer import Instance

from snowmelt._lease import Lease, Lost
from snowmelt._runtime import frames
from snowmelt._runtime.frames import Connection, ProtocolError
from snowmelt._runtime.shared import Shared
from snowmelt._server import Server
from snowmelt._shared_memory import SharedMemory
from snowmelt.errors import Error

SOURCE = """
import numpy as np, pyarrow as pa, pyarrow.compute as pc, snowmelt as sm
kept = []

@sm.udf
def same(x: sm.Array[float]) -> sm.Array[float]:
    return x

@sm.udf
def keeps(x: sm.Array[float]) -> sm.Array[float]:
    kept.append(x)
    # Of all batches so far: a batch that was overwritten would give another sum.
    return pa.array([sum(pc.sum(k).as_py() for k in kept)] * len(x), pa.float64())

@sm.udf
def text(x: sm.Array[float]) -> sm.Array[str]:
    return pa.array(["x" * 1000] * len(x))

@sm.udf
def same_or_null(x: float | None) -> float | None:
    return float("nan") if x == -1 else x

@sm.udf
def sleeps(x: float) -> float:
    import time
    time.sleep(x)
    return x

@sm.udf
def fails(x: sm.Array[float]) -> sm.Array[float]:
    if x[0].as_py() == 7:
        raise ValueError("seven")
    return x
"""

REQUEST, REPLY = 18, 19


class Platform:
    """Leases connections to one instance; it says that an instance was lost when it is told so."""

    def __init__(self, folder: Path, instance: Instance, code: str) -> None:
        self.server = Server(str(folder / "api.sock"), None, None)
        self._instance, self._code = instance, code
        self.returned = 0
        self.timeout_ms = 60_000
        self.more: dict[str, str] = {}
        self.instances: list[Any] = []
        self.controls: list[Connection] = []
        self.reason: dict[str, Any] | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "api.lease"))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connected, _ = self._listener.accept()
            threading.Thread(target=self._lease, args=(connected,), daemon=True).start()

    def _lease(self, connected: socket.socket) -> None:
        connection = Connection(connected)
        request = json.loads(connection.expect(REQUEST))
        if self.reason is not None and self.reason["code"] == "SM-0220":
            return connection.send_json(frames.FAILURE, self.reason)
        name = request["runs"]["udf"]["name"]
        instance = self._instance.open("udf", self._code, name)
        self.instances.append(instance)
        self.controls.append(connection)
        if self.reason is not None:
            instance._socket.shutdown(socket.SHUT_RDWR)
        answer = {"start": "idle", "cold": False, "timeout_ms": self.timeout_ms, **self.more}
        reply = json.dumps(answer).encode()
        connection.send_with_descriptor(REPLY, reply, instance._socket.fileno())
        if self.reason is not None:
            return connection.send_json(frames.FAILURE, self.reason)
        if (frame := connection.receive()) is None:
            return  # The client gives the instance up.
        assert frame[0] == frames.END
        self.returned += 1
        connection.send(frames.END, b"")

    def lease(self, name: str, share_from: int | None = 0, returns: Any = None) -> Lease:
        schema = pa.schema(
            [pa.field("x", pa.float64()), pa.field("return", returns or pa.float64())]
        )
        request = {"runs": {"udf": {"source": {}, "name": name}}}
        return Lease(self.server, request, schema, share_from)


@pytest.fixture
def platform(instance: Instance, tmp_path: Path) -> Iterator[Platform]:
    # A socket's path is short.
    folder = Path(f"/tmp/sm-lease-{os.getpid()}-{threading.get_ident() % 10_000}")
    folder.mkdir()
    try:
        yield Platform(folder, instance, instance.source(SOURCE))
    finally:
        for socket_file in folder.iterdir():
            socket_file.unlink()
        folder.rmdir()


def batch(start: float, rows: int = 1000) -> pa.RecordBatch:
    column = pa.array([start + row for row in range(rows)], pa.float64())
    return pa.RecordBatch.from_arrays([column], names=["x"])


@pytest.mark.parametrize("share_from", [None, 0, 4000])
def test_batches_of_all_sizes_come_back(platform: Platform, share_from: int | None) -> None:
    lease = platform.lease("same", share_from)
    for rows in (1, 10, 1000, 3, 100_000, 1):
        assert lease.call(batch(rows, rows)) == batch(rows, rows).column(0)
    is_shared = lease._shared is not None
    assert is_shared == (share_from is not None)
    lease.give_back()
    assert platform.returned == 1


def test_an_instance_on_another_host_is_sent_all_batches(platform: Platform) -> None:
    platform.more = {"host": "host-2"}
    lease = platform.lease("same", 0)
    for rows in (1, 1000, 100_000):
        assert lease.call(batch(rows, rows)) == batch(rows, rows).column(0)
    assert lease._shared is None and lease._link.host == "host-2"
    lease.give_back()


def test_arguments_that_a_function_keeps_are_never_overwritten(platform: Platform) -> None:
    lease = platform.lease("keeps")
    total = 0.0
    for start in range(6):
        total += sum(batch(start).column(0).to_pylist())
        assert lease.call(batch(start))[0].as_py() == total
    assert lease._shared is None, "after the first batch in it was kept, the memory is not used"


def test_a_result_that_does_not_fit_is_sent(platform: Platform) -> None:
    lease = platform.lease("text", returns=pa.string())
    for rows in (10, 40_000, 10):
        answer = lease.call(batch(0, rows))
        assert len(answer) == rows and answer[rows - 1].as_py() == "x" * 1000


def test_a_batch_that_does_not_fit_is_sent(platform: Platform) -> None:
    lease = platform.lease("same")
    for rows in (10, 4_000_000, 10):
        assert len(lease.call(batch(0, rows))) == rows


def test_a_function_that_fails_takes_the_next_batch(platform: Platform) -> None:
    lease = platform.lease("fails")
    for _ in range(3):
        assert lease.call(batch(1)) == batch(1).column(0)
        with pytest.raises(Error, match="seven"):
            lease.call(batch(7))
    assert lease._shared is not None


def test_the_platform_says_why_an_instance_is_gone(platform: Platform) -> None:
    lease = platform.lease("same")
    lease.call(batch(0))
    # It is gone after a batch, or before the first one is sent.
    platform.reason = {"code": "SM-0211", "message": "`same` ran out of memory"}
    platform.instances[-1]._socket.shutdown(socket.SHUT_RDWR)
    platform.controls[-1].send_json(frames.FAILURE, platform.reason)
    with pytest.raises(Lost) as lost:
        lease.call(batch(0))
    assert lost.value.error.code == "SM-0211"
    with pytest.raises(Error) as gone:
        platform.lease("same")
    assert gone.value.code == "SM-0211"
    platform.reason = {"code": "SM-0220", "message": "no such function"}
    with pytest.raises(Error, match="no such function"):
        platform.lease("same")


def test_the_end_of_the_platform_is_told_apart_from_that_of_a_function(platform: Platform) -> None:
    lease = platform.lease("same")
    lease.call(batch(0))
    platform.controls[-1]._socket.shutdown(socket.SHUT_RDWR)
    platform.instances[-1]._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(Lost, match=r"the platform at .* has ended") as lost:
        lease.call(batch(0))
    assert lost.value.error.code == "SM-0503"
    # A call that this process cancelled says nothing of the platform.
    cancelled = platform.lease("same")
    cancelled.call(batch(0))
    cancelled.interrupt()
    with pytest.raises(Lost) as ended:
        cancelled.call(batch(0))
    assert ended.value.error.code == "SM-0210"


class Liar:
    """An instance whose answers are chosen by the test."""

    def __init__(self, lease: Lease) -> None:
        near, far = socket.socketpair()
        lease._link._socket, lease._instance = near, Connection(near)  # type: ignore[attr-defined]
        self._far = Connection(far)
        self.memory: Shared | None = None

    def answer(self, *replies: tuple[int, bytes]) -> None:
        threading.Thread(target=self._answer, args=(replies,), daemon=True).start()

    def _answer(self, replies: Any) -> None:
        while (frame := self._far.receive_with_descriptor()) is not None:
            kind, payload, descriptor = frame
            if kind == frames.SHARED:
                assert descriptor is not None
                self.memory = Shared(descriptor, *struct.unpack("<QQ", payload))
                self._far.send(frames.SHARED, b"")
                continue
            for reply in replies:
                self._far.send(*reply)


RESULT = pa.schema([pa.field("return", pa.float64(), True)])


def packed() -> bytes:
    """A valid answer whose body is compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, RESULT, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.array([1.0] * 1000)], schema=RESULT))
    _, message = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return bytes(message.serialize())


OTHER = pa.schema([pa.field("return", pa.int64(), True)])
ANSWER = (
    pa.RecordBatch.from_arrays([pa.array([1.0] * 1000)], schema=RESULT).serialize().to_pybytes()
)
SHORT = pa.RecordBatch.from_arrays([pa.array([1.0])], schema=RESULT).serialize().to_pybytes()
PACKED = packed()
ANNOUNCED = (frames.SCHEMA, RESULT.serialize().to_pybytes())


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ([(frames.BATCH, ANSWER)], "SM-0507"),
        ([ANNOUNCED, (frames.BATCH, ANSWER[:100])], "SM-0507"),
        ([ANNOUNCED, (frames.BATCH, b"\xff" * 400)], "SM-0507"),
        ([ANNOUNCED, (frames.BATCH, PACKED)], "SM-0507"),
        ([ANNOUNCED, (frames.BATCH, SHORT)], "SM-0203"),
        ([(frames.SCHEMA, OTHER.serialize().to_pybytes())], "SM-0202"),
        ([(frames.SCHEMA, b"nothing")], "SM-0507"),
        ([ANNOUNCED, (99, b"")], "SM-0507"),
        ([ANNOUNCED, (frames.SHARED_BATCH, struct.pack("<QQB", 0, 10, 0))], "SM-0507"),
    ],
)
def test_an_instance_that_lies_is_an_error(
    platform: Platform, replies: list[tuple[int, bytes]], expected: str
) -> None:
    lease = platform.lease("same", None)
    Liar(lease).answer(*replies)
    with pytest.raises((Lost, Error)) as failed:
        lease.call(batch(0))
    error = failed.value.error if isinstance(failed.value, Lost) else failed.value
    assert error.code == expected, str(error)


@pytest.mark.parametrize("place", [(1 << 40, 10), (0, 1 << 40), (20 << 20, 1), (0, 64)])
def test_ranges_outside_of_the_memory_are_an_error(
    platform: Platform, place: tuple[int, int]
) -> None:
    lease = platform.lease("same", 0)
    liar = Liar(lease)
    lease._has_schema = True
    liar.answer((frames.SHARED_BATCH, struct.pack("<QQB", *place, 0)))
    with pytest.raises(Lost) as lost:
        lease.call(batch(0))
    assert lost.value.error.code == "SM-0507"
    assert liar.memory is not None


def test_shared_memory_cannot_change_its_size() -> None:
    memory = SharedMemory()
    for size in (0, 1, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, size)


@pytest.mark.parametrize("sizes", [(0, 10), (10, 10), (1 << 62, 1 << 62)])
def test_memory_of_another_size_than_offered_is_refused(sizes: tuple[int, int]) -> None:
    memory = SharedMemory()
    with pytest.raises(ProtocolError):
        Shared(memory.descriptor, *sizes)
