"""Clusters of several hosts on this machine, and a host that changes what it passes on."""

import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from conftest import Snowmelt, wait_for
from host_records import rewriter

from common.paths import SNOWMELT

# Where a host asks another one for blocks of images.
BLOCKS = b"GET /v1/images/blocks "


@dataclass
class Hosts:
    """Control is `h1`; the others are processes of their own."""

    control: Snowmelt
    token: Path
    port: int
    members: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def log(self, name: str) -> str:
        return (self.control.folder / f"{name}.log").read_text()

    def cache(self, name: str) -> Path:
        """The blocks that a host has cached."""
        return self.control.folder / name / "blocks"

    def join(self, name: str, port: int, control: int | None = None) -> None:
        """Adds a host that listens at this port, and reaches control at another than its own."""
        log = (self.control.folder / f"{name}.log").open("wb")
        at = ["--control", f"127.0.0.1:{control or self.port}", "--address", f"127.0.0.1:{port}"]
        named = ["--plaintext", "--token-file", str(self.token), "--name", name]
        state = {"SNOWMELT_STATE": str(self.control.folder / name)}
        self.members[name] = subprocess.Popen(
            [str(SNOWMELT), "node", *at, *named],
            env=self.control.environ() | state,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        wait_for(f"the host {name}", lambda: f'"{name}"' in self.listed())

    def up(self) -> None:
        """Starts control."""
        listen = ["--listen", f"127.0.0.1:{self.port}", "--plaintext"]
        named = ["--token-file", str(self.token), "--name", "h1"]
        self.control.run("up", *listen, *named).succeeded()

    def listed(self) -> str:
        return self.control.run("hosts", "-o", "json").succeeded().out

    def end(self, name: str) -> None:
        process = self.members.pop(name)
        process.send_signal(signal.SIGTERM)
        process.wait(30)

    def kill(self, name: str) -> None:
        process = self.members.pop(name)
        process.kill()
        process.wait()


@contextmanager
def hosts(control: Snowmelt, names: list[str]) -> Iterator[Hosts]:
    """Control, and hosts of these names beside it, each with a state folder of its own."""
    ports = free_ports(1 + len(names))
    token = control.folder / "token"
    token.write_text("0123456789abcdef")
    made = Hosts(control, token, ports[0])
    made.up()
    try:
        for name, port in zip(names, ports[1:], strict=True):
            made.join(name, port)
        yield made
    finally:
        for process in made.members.values():
            process.send_signal(signal.SIGTERM)
        for process in made.members.values():
            process.wait(30)
        control.run("down")


def free_ports(count: int) -> list[int]:
    """Ports of five digits that nobody listens at."""
    found: list[socket.socket] = []
    while len(found) < count:
        probe = socket.socket()
        probe.bind(("127.0.0.1", 0))
        found.append(probe)
    ports = [probe.getsockname()[1] for probe in found]
    for probe in found:
        probe.close()
    return ports


@contextmanager
def between(
    port: int, to: int, change: Callable[[bytes, bool], Callable[[bytes], bytes]]
) -> Iterator[None]:
    """A server at a port that passes on connections. `change` gets the first bytes of the client
    and gives, for each direction (to the server: true), what changes the bytes."""
    server = socket.create_server(("127.0.0.1", port))

    def pipe(
        source: socket.socket, target: socket.socket, changed: Callable[[bytes], bytes]
    ) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(changed(data))
        except OSError:
            pass
        finally:
            for end in (source, target):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def serve(client: socket.socket) -> None:
        with client:
            try:
                first = client.recv(1 << 16)
                upstream = socket.create_connection(("127.0.0.1", to))
            except OSError:
                return
            with upstream:
                upward = change(first, True)
                upstream.sendall(upward(first))
                back = threading.Thread(
                    target=pipe, args=(upstream, client, change(first, False)), daemon=True
                )
                back.start()
                pipe(client, upstream, upward)
                back.join()

    def accept() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        accepting.join()


def renames(port: int, to: int) -> Callable[[bytes, bool], Callable[[bytes], bytes]]:
    """A host behind it joins with another address."""

    def change(_: bytes, is_up: bool) -> Callable[[bytes], bytes]:
        ours, theirs = f'"127.0.0.1:{port}"'.encode(), f'"127.0.0.1:{to}"'.encode()
        assert len(ours) == len(theirs), "the length of a message stays the same"
        if not is_up:
            return lambda data: data
        return rewriter(lambda data: data.replace(ours, theirs))

    return change


def lies(after: int) -> Callable[[bytes, bool], Callable[[bytes], bytes]]:
    """Of each connection for blocks of images, the byte behind so many others is wrong."""

    def change(first: bytes, is_up: bool) -> Callable[[bytes], bytes]:
        if is_up or BLOCKS not in first:
            return lambda data: data
        passed = 0

        def wrong(data: bytes) -> bytes:
            nonlocal passed
            at, passed = after - passed, passed + len(data)
            if 0 <= at < len(data):
                return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            return data

        return wrong

    return change


def warnings(log: str, text: str) -> list[str]:
    """Lines of a log that have a text, without colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    return [line for line in plain.splitlines() if text in line]
