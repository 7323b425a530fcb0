"""Bytes over the links of a lab's hosts and services during a block."""

import threading
import time
from types import TracebackType

from common.lab import Lab, link_bytes

EVERY_S = 0.5


class Traffic:
    """Reads the counters of all links twice a second."""

    def __init__(self, lab: Lab) -> None:
        self._processes = lab.running() | lab.others
        self._samples: list[tuple[float, dict[str, tuple[int, int]]]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Traffic":
        self._read()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._read()

    def sent(self, name: str) -> int:
        """Bytes that a host or service has sent."""
        return self._samples[-1][1][name][1] - self._samples[0][1][name][1]

    def rates(self, name: str) -> dict[str, list[tuple[float, float]]]:
        """MB a second that it received and sent, over the seconds since the begin."""
        found: dict[str, list[tuple[float, float]]] = {"received": [], "sent": []}
        before = self._samples[0]
        for sample in self._samples[1:]:
            seconds = sample[0] - before[0]
            at = (sample[0] + before[0]) / 2 - self._samples[0][0]
            for side, points in enumerate(found.values()):
                moved = sample[1][name][side] - before[1][name][side]
                points.append((at, moved / seconds / 1e6))
            before = sample
        return found

    def _sample(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._read()

    def _read(self) -> None:
        counters = {name: link_bytes(process) for name, process in self._processes.items()}
        self._samples.append((time.perf_counter(), counters))
