"""The engine's side of shared memory with an instance; `_runtime/shared.py` has the rules."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Any

from ._runtime.shared import KEPT, RANGE, SIZES, Shared

# More than the largest batch that is sent at once, and its header. Pages exist once they are used.
_ARGUMENT_BYTES = 20 << 20
_RESULT_BYTES = 20 << 20

# Below this size a message on the socket costs less.
LEAST_BYTES = 64 << 10

# In `linux/fcntl.h`; Python has names for them from some version on.
_F_ADD_SEALS = 1033
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1, 2, 4


class SharedMemory:
    """Memory for the batches of one lease."""

    def __init__(self) -> None:
        """Raises `OSError`."""
        self.descriptor = os.memfd_create("snowmelt-batches", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, _ARGUMENT_BYTES + _RESULT_BYTES)
            fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_SEAL)
            self._shared = Shared(self.descriptor, _ARGUMENT_BYTES, _RESULT_BYTES)
        except BaseException:
            os.close(self.descriptor)
            raise

    @property
    def offer(self) -> bytes:
        """What the instance is told, beside the descriptor."""
        return SIZES.pack(*self._shared.sizes)

    def sent(self) -> None:
        """The instance has the descriptor, and this side its mapping."""
        os.close(self.descriptor)
        self.descriptor = -1

    def write(self, batch: Any) -> bytes | None:
        """The frame for a batch that was written, or None if it does not fit."""
        written = self._shared.arguments.write(batch)
        return None if written is None else RANGE.pack(*written, 0)

    def read(self, payload: bytes | bytearray) -> tuple[bytes, bool]:
        """The bytes of an answer, copied because the instance could change them while they are
        checked, and whether the function keeps its arguments."""
        offset, length, flags = RANGE.unpack(payload)
        return bytes(self._shared.results.read(offset, length)), bool(flags & KEPT)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            if self.descriptor >= 0:
                os.close(self.descriptor)
