"""A proxy before an S3 server that counts requests by kind, answers 503 if asked to, and tells of
each request before the server gets it.

Requests are passed on unchanged: their signature covers the host that the client has connected to.
"""

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

BUSY = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 36\r\n\r\n"
    b"<Error><Code>SlowDown</Code></Error>"
)


@dataclass
class Proxy:
    """A running proxy."""

    endpoint: str
    counted: Counter[str] = field(default_factory=Counter)
    # So many of the next requests for objects are answered with 503.
    busy: int = 0
    # Called with method and path of each request, and the port that it comes from. The request goes
    # on when it returns.
    before: Callable[[str, str, int], None] = lambda _method, _path, _port: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, method: str, target: str, port: int) -> bool:
        """Counts a request; false if it is to be answered with 503."""
        path, _, query = target.partition("?")
        self.before(method, path, port)
        is_object = "/" in path.strip("/")
        with self._lock:
            if is_object and self.busy:
                self.busy -= 1
                return False
            kind = {"GET": "read", "PUT": "write"}.get(method, "other")
            is_list = method == "GET" and ("list-type" in query or not is_object)
            self.counted["list" if is_list else kind] += 1
        return True


def _head(client: socket.socket, rest: bytes) -> tuple[bytes, bytes] | None:
    """The head of the next request and what follows it."""
    while b"\r\n\r\n" not in rest:
        more = client.recv(65536)
        if not more:
            return None
        rest += more
    head, _, rest = rest.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def _pump(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            to.sendall(data)
    with suppress(OSError):
        to.shutdown(socket.SHUT_RDWR)


def _serve(client: socket.socket, server: tuple[str, int], proxy: Proxy) -> None:
    with suppress(OSError), client, socket.create_connection(server) as upstream:
        threading.Thread(target=_pump, args=(upstream, client), daemon=True).start()
        rest = b""
        while (found := _head(client, rest)) is not None:
            head, rest = found
            length = _length(head)
            while len(rest) < length and (more := client.recv(1 << 16)):
                rest += more
            body, rest = rest[:length], rest[length:]
            method, target, *_ = head.decode("latin-1").split(" ")
            if proxy.take(method, target, client.getpeername()[1]):
                upstream.sendall(head + body)
            else:
                client.sendall(BUSY)


@contextmanager
def counting(endpoint: str) -> Iterator[Proxy]:
    """A proxy before the server at `host:port`."""
    host, port = endpoint.rsplit(":", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Proxy(f"127.0.0.1:{listener.getsockname()[1]}")

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    arguments = (client, (host, int(port)), proxy)
                    threading.Thread(target=_serve, args=arguments, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)
