"""HTTP over a unix socket, for requests to Docker and Snowmelt."""

import http.client
import socket
from pathlib import Path


class Connection(http.client.HTTPConnection):
    """One connection, kept open between requests."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))
