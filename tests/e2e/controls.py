"""Several controls that share one etcd, on this machine."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import join_token
from conftest import Snowmelt, wait_for

from common.etcd import free_port
from common.paths import SNOWMELT


class EtcdCluster:
    """Servers of etcd with folders of their own, which are killed and started by number. These are
    in memory: on a busy disk, a server that waits for it lets leases end."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.data = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.clients = [free_port() for _ in range(count)]
        self.peers = [free_port() for _ in range(count)]
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        for number in range(count):
            self.start(number)

    def start(self, number: int) -> None:
        client = f"http://127.0.0.1:{self.clients[number]}"
        peers = [f"http://127.0.0.1:{port}" for port in self.peers]
        listen = ["--listen-client-urls", client, "--advertise-client-urls", client]
        others = ["--listen-peer-urls", peers[number]]
        others += ["--initial-advertise-peer-urls", peers[number], "--initial-cluster"]
        others.append(",".join(f"e{at}={peer}" for at, peer in enumerate(peers)))
        name = ["--name", f"e{number}", "--data-dir", f"{self.data.name}/etcd-{number}"]
        with (self.folder / f"etcd-{number}.log").open("a") as log:
            server = subprocess.Popen(["etcd", *name, *listen, *others], stdout=log, stderr=log)
        self._servers[number] = server

    def kill(self, number: int) -> None:
        server = self._servers.pop(number)
        server.kill()
        server.wait()

    def signal(self, number: int, which: int) -> None:
        self._servers[number].send_signal(which)

    def stop(self) -> None:
        for number in list(self._servers):
            self.kill(number)
        self.data.cleanup()

    def at(self, ports: list[int]) -> str:
        """The location of the store, by way of these ports."""
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in ports)


class Line:
    """A way to a port of this machine that can be cut: bytes then wait, and nobody is told."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def close(self) -> None:
        self.open()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        self._open.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            near.close()
            return
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while part := source.recv(1 << 16):
                self._open.wait()
                sink.sendall(part)
        except OSError:
            pass
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@dataclass
class Controls:
    """Controls by name, and the processes of hosts."""

    controls: dict[str, Snowmelt]
    listen: dict[str, str]
    folder: Path
    # Options with which each control is started besides.
    more: dict[str, list[str]] = field(default_factory=dict)
    # The servers of etcd, and the ways of each control to them.
    etcd: EtcdCluster | None = None
    lines: dict[str, list[Line]] = field(default_factory=dict)
    hosts: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def status(self, name: str) -> dict[str, Any]:
        done = self.controls[name].run("status", "-o", "json")
        return dict(json.loads(done.out)) if done.code == 0 else {}

    def leader(self) -> str | None:
        leads = [name for name in self.controls if "leads since" in self.store(name)]
        return leads[0] if leads else None

    def store(self, name: str) -> str:
        return str(self.status(name).get("store", ""))

    def up(self, name: str) -> None:
        options = ["--listen", self.listen[name], "--name", name, *self.more.get(name, [])]
        self.controls[name].run("up", *options).succeeded()

    def join(self, name: str) -> None:
        """Starts a host that knows the addresses of all controls, with a token of the leader."""
        token = join_token(self.controls[str(self.leader())])
        member = [str(SNOWMELT), "node", "--control", ",".join(self.listen.values())]
        member += ["--address", f"127.0.0.1:{free_port()}", "--name", name]
        state = {"SNOWMELT_STATE": str(self.folder / f"state-{name}")}
        first = next(iter(self.controls.values()))
        self.hosts.append(
            subprocess.Popen(
                [*member, "--join", token],
                env=first.environ() | state,
                stdin=subprocess.DEVNULL,
            )
        )

    def signal(self, name: str, which: int) -> None:
        """Sends a signal to the server of a control."""
        os.kill(self.status(name)["pid"], which)


@contextmanager
def controls(
    folder: Path,
    names: list[str],
    more: dict[str, list[str]] | None = None,
    servers: int = 1,
    environment: dict[str, str] | None = None,
    of_control: dict[str, dict[str, str]] | None = None,
) -> Iterator[Controls]:
    """Controls on servers of etcd and one shared folder: the first one leads."""
    etcd = EtcdCluster(folder, servers)
    lines = {name: [Line(port) for port in etcd.clients] for name in names}
    made: dict[str, Snowmelt] = {}
    cluster = Controls(made, {name: f"127.0.0.1:{free_port()}" for name in names}, folder)
    cluster.more, cluster.etcd, cluster.lines = more or {}, etcd, lines
    try:
        for name in names:
            store = {
                "SNOWMELT_STORE_URL": etcd.at([line.port for line in lines[name]]),
                "SNOWMELT_STORE_FOLDER": str(folder / "shared"),
            }
            own = (of_control or {}).get(name, {})
            made[name] = Snowmelt(folder / name, store | (environment or {}) | own)
            made[name].folder.mkdir()
            if environment:
                folder.chmod(0o755)
                made[name].for_other_users()
        for name in names:
            cluster.up(name)
        wait_for("a leader", cluster.leader)
        yield cluster
    finally:
        for host in cluster.hosts:
            host.send_signal(signal.SIGTERM)
        for host in cluster.hosts:
            host.wait(30)
        for control in made.values():
            if (control.folder / "state/snowmelt.sock").exists():
                control.run("down", "--grace", "0s")
        for each in [line for of_one in lines.values() for line in of_one]:
            each.close()
        etcd.stop()


def replaced(cluster: Controls, old: str) -> tuple[str, float]:
    """Waits until another control leads, and returns it with the time that it took."""
    begun = time.monotonic()

    def other() -> str | None:
        leads = [n for n in cluster.controls if n != old and "leads since" in cluster.store(n)]
        return leads[0] if leads else None

    return str(wait_for("another leader", other, pause=0.05)), time.monotonic() - begun
