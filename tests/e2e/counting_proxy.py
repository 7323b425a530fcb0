"""An HTTP proxy before an S3 server that counts the requests by kind.

It passes headers on unchanged, so that signatures stay valid.
"""

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass
class Counts:
    """Requests by kind: `read`, `list` or `write`."""

    endpoint: str
    _counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str) -> None:
        with self._lock:
            self._counts[kind] += 1

    def take(self) -> Counter[str]:
        """The requests since the last call."""
        with self._lock:
            taken, self._counts = self._counts, Counter()
        return taken


def kind(method: str, path: str) -> str:
    """The kind of a request, by which it is billed."""
    if method == "GET" and "list-type" in parse_qs(urlsplit(path).query, keep_blank_values=True):
        return "list"
    return "read" if method in ("GET", "HEAD") else "write"


@contextmanager
def counting(endpoint: str) -> Iterator[Counts]:
    """A proxy before the server at `endpoint`, during the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def forward(self) -> None:
            counts.add(kind(self.command, self.path))
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            upstream = http.client.HTTPConnection(endpoint, timeout=60)
            try:
                upstream.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():
                    if name.lower() not in HOP_BY_HOP:
                        upstream.putheader(name, value)
                upstream.putheader("Content-Length", str(len(body)))
                upstream.endheaders(body)
                self.answer(upstream.getresponse())
            finally:
                upstream.close()

        def answer(self, answer: http.client.HTTPResponse) -> None:
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            # The length of what a HEAD tells about, and not of its empty body.
            length = answer.getheader("content-length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    counts = Counts(f"127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
