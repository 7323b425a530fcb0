"""Messages between ranks as in MPI (send, receive by source and tag) over plain sockets: the first
rank distributes parts of a sum, the others compute and answer.
"""

from __future__ import annotations

import pickle
import queue
import socket
import struct
import sys
import threading
from collections import defaultdict
from typing import Any

import snowmelt as sm

PORT = 6000


class Messages:
    """Sends to any rank and receives from any, in the order of each sender and tag."""

    def __init__(self) -> None:
        self.job = sm.job()
        self._server = self.job.listen(PORT)
        self._out: dict[int, socket.socket] = {}
        self._in: defaultdict[tuple[int, int], queue.SimpleQueue[Any]] = defaultdict(
            queue.SimpleQueue
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def send(self, rank: int, tag: int, value: object) -> None:
        if rank not in self._out:
            self._out[rank] = self.job.connect(rank, PORT)
        data = pickle.dumps(value)
        self._out[rank].sendall(struct.pack("!III", self.job.rank, tag, len(data)) + data)

    def receive(self, rank: int, tag: int) -> Any:
        return self._in[rank, tag].get(timeout=30)

    def _accept(self) -> None:
        while True:
            connection, _ = self._server.accept()
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        while header := connection.recv(12, socket.MSG_WAITALL):
            rank, tag, size = struct.unpack("!III", header)
            self._in[rank, tag].put(pickle.loads(connection.recv(size, socket.MSG_WAITALL)))


WORK, ANSWER, DONE = 1, 2, 3


def work(rank: int) -> int:
    """Rank 0 distributes ranges and adds up the answers; the others sum squares."""
    messages = Messages()
    others = range(1, messages.job.size)
    if rank == 0:
        for other in others:
            messages.send(other, WORK, range(other * 1000, (other + 1) * 1000))
        total = sum(messages.receive(other, ANSWER) for other in others)
        for other in others:
            messages.send(other, DONE, total)
        for other in others:
            messages.receive(other, DONE)
        return int(total)
    messages.send(0, ANSWER, sum(n * n for n in messages.receive(0, WORK)))
    total = messages.receive(0, DONE)
    # A returned function releases its address: rank 0 waits until all have received the total.
    messages.send(0, DONE, None)
    return int(total)


def main(functions: int) -> None:
    results = sm.burst(work, functions, network="job", memory="128MiB")
    expected = sum(n * n for n in range(1000, functions * 1000))
    assert results == [expected] * functions, results
    print(f"{functions} functions on {len(results.hosts)} host(s) agree on {expected:,}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
