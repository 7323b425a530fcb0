"""Servers of etcd during a block, on a disk or in memory."""

import random
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType


def free_port() -> int:
    """A port that is free, and that the kernel gives to no connection until a server takes it."""
    while True:
        port = random.randrange(12_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


class EtcdServers:
    """A cluster of servers, with their data in a folder."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.clients = [free_port() for _ in range(count)]
        self.peers = [free_port() for _ in range(count)]
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The location of the store."""
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self.clients)

    def __enter__(self) -> "EtcdServers":
        peers = [f"http://127.0.0.1:{port}" for port in self.peers]
        cluster = ",".join(f"e{number}={peer}" for number, peer in enumerate(peers))
        for number, peer in enumerate(peers):
            client = f"http://127.0.0.1:{self.clients[number]}"
            command = ["etcd", "--name", f"e{number}", "--initial-cluster", cluster]
            command += ["--data-dir", str(self.folder / f"etcd-{number}")]
            command += ["--listen-client-urls", client, "--advertise-client-urls", client]
            command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            with (self.folder / f"etcd-{number}.log").open("wb") as log:
                self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _wait(self) -> None:
        endpoints = ",".join(f"127.0.0.1:{port}" for port in self.clients)
        health = ["etcdctl", f"--endpoints={endpoints}", "endpoint", "health"]
        deadline = time.monotonic() + 30
        while subprocess.run(health, capture_output=True, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise TimeoutError("etcd does not answer")
            time.sleep(0.1)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
