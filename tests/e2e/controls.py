"""Several controls that share one etcd, on this machine."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import join_token
from conftest import Snowmelt, wait_for

from common.paths import SNOWMELT


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def etcd(folder: Path) -> Iterator[str]:
    """The location of a server of etcd with this folder."""
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    listen = ["--listen-client-urls", client, "--advertise-client-urls", client]
    others = ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    others += ["--initial-cluster", f"e={peer}"]
    with (folder / "etcd.log").open("w") as log:
        server = subprocess.Popen(
            ["etcd", "--name", "e", "--data-dir", str(folder / "etcd"), *listen, *others],
            stdout=log,
            stderr=log,
        )
    try:
        yield client.replace("http://", "etcd://")
    finally:
        server.kill()
        server.wait()


@dataclass
class Controls:
    """Controls by name, and the processes of hosts."""

    controls: dict[str, Snowmelt]
    listen: dict[str, str]
    folder: Path
    # Options with which each control is started besides.
    more: dict[str, list[str]] = field(default_factory=dict)
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
    folder: Path, names: list[str], more: dict[str, list[str]] | None = None
) -> Iterator[Controls]:
    """Controls on one etcd and one shared folder: the first one leads."""
    with etcd(folder) as location:
        store = {
            "SNOWMELT_STORE_URL": location,
            "SNOWMELT_STORE_FOLDER": str(folder / "shared"),
        }
        made = {name: Snowmelt(folder / name, dict(store)) for name in names}
        for control in made.values():
            control.folder.mkdir()
        listen = {name: f"127.0.0.1:{free_port()}" for name in names}
        cluster = Controls(made, listen, folder, more or {})
        try:
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


def replaced(cluster: Controls, old: str) -> tuple[str, float]:
    """Waits until another control leads, and returns it with the time that it took."""
    begun = time.monotonic()

    def other() -> str | None:
        leads = [n for n in cluster.controls if n != old and "leads since" in cluster.store(n)]
        return leads[0] if leads else None

    return str(wait_for("another leader", other, pause=0.05)), time.monotonic() - begun
