"""`sm.broadcast`: one value for all calls of a function, sent to each host once.

A function that refers to a broadcast has it as a file (`_files`), which hosts read from each other.
In an instance the file is mapped: arrays and tables in it are views of memory that all instances of
a host share, and cannot be changed.

The file: `SNOWCAST`, the length of the pickle and the number of its buffers, then their lengths
(each 8 bytes, little-endian); the pickle (protocol 5); the buffers, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import pickle
import struct
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _files
from ._collect import Collector
from ._vendor import cloudpickle
from .errors import hide_internal_frames, make

if TYPE_CHECKING:
    from ._client import Client

T = TypeVar("T")

_MAGIC = b"SNOWCAST"
_ALIGNMENT = 64

# The broadcasts that are pickled in a block, which is that of code.
pickled: Collector[Broadcast[Any]] = Collector()


class Broadcast(Generic[T]):
    """A value for functions: `value` gives it, here and in their instances.

    See docs/reference/python.md."""

    def __init__(self, digest: str, size: int, path: str | None) -> None:
        self._digest, self.size = digest, size
        # The file with it; None in an instance, where it is among the files of the function.
        self._path = path
        self._lock = threading.Lock()
        self._value: list[T] = []

    @property
    def value(self) -> T:
        """The value: in an instance it is read once, at its first use."""
        if not self._value:
            with self._lock:
                if not self._value:
                    self._value.append(_read(self._path or _path_in_instance(self._digest)))
        return self._value[0]

    def __repr__(self) -> str:
        return f"<broadcast of {self.size:,} bytes>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if not pickled.add(self):
            raise TypeError(
                "a broadcast is sent with the code of a function: refer to it there, "
                "by a global or local name, not in items, events or results"
            )
        return _received, (self._digest, self.size)


@hide_internal_frames
def broadcast(value: T) -> Broadcast[T]:
    """Makes a value available to functions that refer to the result, as `.value`. It is pickled
    now: later changes of it are not sent. Raises `Error` for what cannot be pickled."""
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> None:
        buffers.append(buffer.raw())

    try:
        pickled = cloudpickle.dumps(value, protocol=5, buffer_callback=keep)
    except Exception as error:
        reason = f"a {type(value).__name__} cannot be broadcast: {type(error).__name__}: {error}"
        raise make("SM-0204", reason) from error
    handle, path = tempfile.mkstemp(prefix="snowmelt-broadcast-")
    hasher, size = hashlib.sha256(), 0
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in _pieces(pickled, buffers):
                hasher.update(piece)
                file.write(piece)
                size += len(piece)
        if size > _files.MAX_BYTES:
            hint = "put it into a file of an image, or into object storage"
            raise make("SM-0230", f"a broadcast of {size:,} bytes is larger than 4 GiB", hint=hint)
    except BaseException:
        os.unlink(path)
        raise
    made: Broadcast[T] = Broadcast(hasher.hexdigest(), size, path)
    made._value.append(value)
    # Also at the end of the process.
    weakref.finalize(made, _remove, path)
    return made


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _pieces(pickled: bytes, buffers: list[memoryview]) -> Iterator[bytes | memoryview]:
    lengths = [len(pickled), len(buffers), *(buffer.nbytes for buffer in buffers)]
    yield _MAGIC + struct.pack(f"<{len(lengths)}Q", *lengths)
    yield pickled
    at = len(_MAGIC) + 8 * len(lengths) + len(pickled)
    for buffer in buffers:
        yield bytes(-at % _ALIGNMENT)
        yield buffer
        at += -at % _ALIGNMENT + buffer.nbytes


def _read(path: str) -> Any:
    with open(path, "rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if whole[: len(_MAGIC)] != _MAGIC:
        raise make("SM-0230", f"{path} is not a broadcast")
    length, count = struct.unpack_from("<2Q", whole, len(_MAGIC))
    lengths = struct.unpack_from(f"<{count}Q", whole, len(_MAGIC) + 16)
    at = len(_MAGIC) + 16 + 8 * count
    pickled = whole[at : at + length]
    at += length
    buffers = []
    for each in lengths:
        at += -at % _ALIGNMENT
        buffers.append(whole[at : at + each])
        at += each
    return pickle.loads(pickled, buffers=buffers)


# The broadcasts of this process by their digests: code that is loaded again does not read again.
_known: dict[str, Broadcast[Any]] = {}


def _received(digest: str, size: int) -> Broadcast[Any]:
    return _known.setdefault(digest, Broadcast(digest, size, None))


def _path_in_instance(digest: str) -> str:
    return _files.file(f"{_files.BROADCASTS}/{digest}")


def send(platform: Client, broadcasts: Iterable[Broadcast[Any]]) -> dict[str, Any]:
    """Sends those that the platform lacks, and gives the wire `FileRefs`. Raises `Error`."""
    by_digest = {each._digest: each for each in broadcasts}
    if not by_digest:
        return {}
    answer = platform.call("POST", "/v1/files", {"digests": list(by_digest)})
    for digest in answer["missing"]:
        each = by_digest[digest]
        if each._path is None:
            raise make("SM-0230", "a function sends on a broadcast that the platform has removed")
        _files.send_one(platform, each._path, digest, each.size)
    return {
        f"{_files.BROADCASTS}/{digest}": {"digest": digest, "size": each.size}
        for digest, each in by_digest.items()
    }
