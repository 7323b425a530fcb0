"""Peers of queries on several hosts: datafusion-distributed and Ballista on the hosts of a lab.

Their programs are a package outside of the workspace, `bench/peers/clusters`, which only this
module builds.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import line_client
from .lab import Lab
from .paths import BENCH, TARGET
from .processes import cpu_seconds_below

MANIFEST = BENCH / "peers/clusters/Cargo.toml"
# A folder with programs that were built before, if it is not the one of this checkout.
BUILT = os.environ.get("SNOWMELT_BENCH_CLUSTERS")
PROGRAMS = Path(BUILT) if BUILT else TARGET
UP_WITHIN_S = 60
# The ports of the workers of datafusion-distributed; of Ballista, the shipped ones.
WORKER, SCHEDULER, FLIGHT = 9000, 50050, 50051


def build() -> None:
    """Builds the programs: the first time half an hour on two cores, afterwards a second."""
    if BUILT:
        return
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", str(MANIFEST)]
    subprocess.run([*command, "--target-dir", str(TARGET.parent)], check=True)


@dataclass(frozen=True)
class Run:
    """One query: seconds in its client, and processor seconds of the client and of all workers."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Hosts:
    """The hosts of a lab that workers run on, and what they have."""

    lab: Lab
    # Addresses by name; the client runs on the first.
    addresses: dict[str, str]
    # Where the tables are.
    tables: Mapping[str, str]
    threads: int
    memory: str
    # Variables of the S3 server and a bucket on it.
    store: Mapping[str, str]
    bucket: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return self.lab.environment | dict(self.store) | {"AWS_ALLOW_HTTP": "true"}

    def start(self, host: str, *command: str) -> "subprocess.Popen[bytes]":
        """A process in the network of a host."""
        name = "-".join([Path(command[0]).name, command[1], host])
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*self.lab.inside(host), *command],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self, port: int, server: "subprocess.Popen[bytes]", address: str) -> None:
        """Waits until a server accepts connections from the first host."""
        probe = f"import socket; socket.create_connection(('{address}', {port}), 1).close()"
        command = [*self.lab.inside(next(iter(self.addresses))), "python3", "-c", probe]
        deadline = time.monotonic() + UP_WITHIN_S
        while subprocess.run(
            command, env=self.environment, stderr=subprocess.DEVNULL, check=False
        ).returncode:
            if time.monotonic() > deadline or server.poll() is not None:
                logs = [log.read_text()[-2000:] for log in sorted(self.folder.glob("*.log"))]
                raise RuntimeError(f"{address}:{port} does not answer: {' '.join(logs)}")
            time.sleep(0.1)


@dataclass(frozen=True)
class Cluster:
    """The workers of an engine, and its client."""

    client: line_client.LineClient
    servers: "Sequence[subprocess.Popen[bytes]]"

    def ask(self, sql: str, answer: Path) -> Run:
        before = self._cpu()
        request = {"sql": sql.strip().removesuffix(";"), "answer": str(answer)}
        wall = float(self.client.ask(request)["wall"])
        return Run(wall, self._cpu() - before)

    def _cpu(self) -> float:
        processes = [self.client.process.pid, *(server.pid for server in self.servers)]
        return sum(map(cpu_seconds_below, processes))


Servers = list["subprocess.Popen[bytes]"]


@contextmanager
def _cluster(hosts: Hosts, start: Callable[[Servers], Sequence[str]]) -> Iterator[Cluster]:
    """`start` adds its servers to a list, and returns the words of the client."""
    servers: Servers = []
    with ExitStack() as stack:
        stack.callback(_end, servers)
        words = [*hosts.lab.inside(next(iter(hosts.addresses))), *start(servers)]
        words += [word for name, at in hosts.tables.items() for word in ("--table", f"{name}={at}")]
        client = stack.enter_context(line_client.started(words, hosts.environment))
        client.said()
        yield Cluster(client, servers)


def _end(servers: Servers) -> None:
    for server in servers:
        server.kill()
        server.wait()


def distributed(hosts: Hosts) -> AbstractContextManager[Cluster]:
    """datafusion-distributed: a worker on each host. The client is the coordinator."""
    program, store = str(PROGRAMS / "distributed"), f"s3://{hosts.bucket}"

    def start(servers: Servers) -> list[str]:
        words = ["--threads", f"{hosts.threads}", "--store", store]
        for host, address in hosts.addresses.items():
            listen = f"{address}:{WORKER}"
            servers.append(hosts.start(host, program, "worker", "--listen", listen, *words))
        for server, address in zip(servers, hosts.addresses.values(), strict=True):
            hosts.wait(WORKER, server, address)
        client = [program, "client", "--partitions", f"{hosts.threads}", "--store", store]
        for address in hosts.addresses.values():
            client += ["--worker", f"http://{address}:{WORKER}"]
        return client

    return _cluster(hosts, start)


def ballista(hosts: Hosts) -> AbstractContextManager[Cluster]:
    """Ballista: an executor on each host, and the scheduler on the first."""
    program = str(PROGRAMS / "ballista")

    def start(servers: Servers) -> list[str]:
        first, scheduler = next(iter(hosts.addresses.items()))
        at = ["--bind-host", scheduler, "--external-host", scheduler]
        ready = ["--min-ready-executors", f"{len(hosts.addresses)}"]
        servers.append(hosts.start(first, program, "scheduler", *at, *ready))
        hosts.wait(SCHEDULER, servers[0], scheduler)
        for host, address in hosts.addresses.items():
            words = ["--scheduler-host", scheduler, "--bind-host", address]
            words += ["--external-host", address, "--vcores", f"{hosts.threads}"]
            words += ["--memory-pool-size", hosts.memory]
            words += ["--work-dir", str(hosts.folder / f"ballista-{host}")]
            servers.append(hosts.start(host, program, "executor", *words))
        for server, address in zip(servers[1:], hosts.addresses.values(), strict=True):
            hosts.wait(FLIGHT, server, address)
        partitions = hosts.threads * len(hosts.addresses)
        at = ["--scheduler", f"df://{scheduler}:{SCHEDULER}"]
        return [program, "client", *at, "--partitions", f"{partitions}"]

    return _cluster(hosts, start)
