"""Queries on a lab of four hosts with links of 1 Gbit/s, and with S3 behind a link of its own:
time, processor time, and the bytes over each link against those that must cross it.

The peers are datafusion-distributed and Ballista, with their own workers on the same hosts.
"""

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import clusters, lab_store, peers, plots
from common.answers import difference
from common.asked import ask, environment, platform
from common.crossing import least_bytes
from common.figures import Section, median, short, spread
from common.lab import Lab
from common.paths import CHECKOUT, shown, tpch
from tpch import TABLES

SCALE = os.environ.get("SNOWMELT_BENCH_HOSTS_SCALE", "1")
QUERIES = [CHECKOUT / f"tests/tpch/q{number:02}.sql" for number in (1, 6, 3, 9, 18)]
HOSTS, LINK, GIGABIT = 4, "1gbit", 1e9 / 8
# A further host of the lab, which does not belong to the cluster.
STORE, BUCKET = f"host-{HOSTS + 1}", "tpch"
# Two on each host; the peers have as many threads and partitions.
THREADS = 2
WORKERS = THREADS * HOSTS
MEMORY, HOST_MEMORY = "1GiB", "4GiB"
RUNS = 3
LAB, SINGLE = f"snowmelt, {HOSTS} hosts", "snowmelt, one host"
PEERS: dict[str, Callable[[clusters.Hosts], AbstractContextManager[clusters.Cluster]]] = {
    "datafusion-distributed": clusters.distributed,
    "Ballista": clusters.ballista,
}


@dataclass
class Sample:
    """One run: seconds, bytes that each host has sent, and those that must cross."""

    wall: float
    cpu: float
    sent: dict[str, int] = field(default_factory=dict)
    # Of rows between hosts, and of the columns on S3.
    least: float = 0.0
    read: float = 0.0

    @property
    def between(self) -> int:
        """Bytes that the hosts of the cluster have sent."""
        return sum(sent for host, sent in self.sent.items() if host != STORE)

    @property
    def from_store(self) -> int:
        return self.sent.get(STORE, 0)

    @property
    def total(self) -> int:
        return sum(self.sent.values())

    @property
    def busiest(self) -> int:
        return max(self.sent.values())


Samples = dict[str, dict[str, list[Sample]]]


def counted(lab: Lab, run: Callable[[], Sample]) -> Sample:
    """A run with the bytes of each link meanwhile."""
    before = lab.sent()
    sample = run()
    sample.sent = {host: sent - before[host] for host, sent in lab.sent().items()}
    return sample


@dataclass
class Bench:
    """The processes of the platform that the SDK uses, and where the tables are."""

    processes: list[int]
    tables: dict[str, str]
    # DuckDB's answers, so that no other work falls between two runs.
    expected: dict[str, Any]

    def by_snowmelt(self, query: Path) -> Sample:
        sql = query.read_text()
        run = ask(sql, self.processes, workers=WORKERS, memory=MEMORY, **self.named(sql))
        self.check(query, run.answer)
        on_hosts = any("host" in lane for lane in run.profile["lanes"])
        least = least_bytes(run.profile, "host-1") if on_hosts else 0.0
        read = run.profile["totals"]["progress"]["bytes_read"]
        return Sample(run.wall, run.cpu, least=least, read=read)

    def by_peer(self, query: Path, cluster: clusters.Cluster, answer: Path) -> Sample:
        run = cluster.ask(query.read_text(), answer)
        self.check(query, peers.read_arrow(answer))
        return Sample(run.wall, run.cpu)

    def named(self, sql: str) -> dict[str, Any]:
        """The tables that a query names."""
        return {name: place for name, place in self.tables.items() if name in sql}

    def check(self, query: Path, answer: Any) -> None:
        if wrong := difference(answer, self.expected[query.stem], ordered=False):
            raise RuntimeError(f"{query.stem}: not the same answer: {wrong}")


def rounds(samples: Samples, engine: str, once: Callable[[Path], Sample]) -> None:
    """Runs each query; the first round of each is not counted."""
    for query in QUERIES:
        for round_ in range(RUNS + 1):
            samples[query.stem][engine] += [once(query)][: round_ > 0]
        print(f"hosts: {query.stem} by {engine} measured", file=sys.stderr)


def on_hosts(samples: Samples, paths: dict[str, Path], expected: Any, folder: Path) -> None:
    """Snowmelt and its peers on the same lab. One after the other, because the workers of a peer
    send messages also while they have nothing to do."""
    with Lab(folder / "lab", HOSTS + 1, LINK, HOST_MEMORY) as lab:
        lab_store.remove(lab, STORE)
        with lab_store.running(lab, STORE, BUCKET, paths) as store:
            tables = {name: f"s3://{BUCKET}/{name}/" for name in paths}
            with environment({"SNOWMELT_SOCKET": str(lab.socket), **store.variables}):
                bench = Bench(lab.processes(), tables, expected)
                rounds(samples, LAB, lambda query: counted(lab, lambda: bench.by_snowmelt(query)))
            for engine, start in PEERS.items():
                hosts = hosts_of(lab, tables, store.variables, folder)
                by_peer(samples, engine, start, bench, hosts)


def hosts_of(
    lab: Lab, tables: dict[str, str], store: dict[str, str], folder: Path
) -> clusters.Hosts:
    addresses = {
        state["name"]: state["address"].rpartition(":")[0]
        for state in lab.states()
        if state["name"] != STORE
    }
    return clusters.Hosts(lab, addresses, tables, THREADS, HOST_MEMORY, store, BUCKET, folder)


def by_peer(
    samples: Samples,
    engine: str,
    start: Callable[[clusters.Hosts], AbstractContextManager[clusters.Cluster]],
    bench: Bench,
    hosts: clusters.Hosts,
) -> None:
    answer = hosts.folder / "answer.arrow"
    with start(hosts) as cluster:

        def once(query: Path) -> Sample:
            return counted(hosts.lab, lambda: bench.by_peer(query, cluster, answer))

        rounds(samples, engine, once)


def on_one(samples: Samples, paths: dict[str, Path], expected: Any, folder: Path) -> None:
    """After the lab, because the SDK stays with its platform as long as that runs."""
    with platform(folder / "one") as processes:
        bench = Bench(processes, {name: str(path) for name, path in paths.items()}, expected)
        rounds(samples, SINGLE, bench.by_snowmelt)


def measure() -> Samples:
    clusters.build()
    paths = {table: tpch(SCALE, TABLES) / table for table in TABLES}
    expected = {
        query.stem: peers.duck_answer(query.read_text(), paths, THREADS).table for query in QUERIES
    }
    samples: Samples = defaultdict(lambda: defaultdict(list))
    # The name of a socket may have 107 bytes only.
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/tmp") as folder:
        on_hosts(samples, paths, expected, Path(folder))
        on_one(samples, paths, expected, Path(folder))
    return samples


def _of(found: list[Sample], value: Callable[[Sample], float]) -> float:
    return median([value(sample) for sample in found])


def table(section: Section, samples: Samples) -> None:
    rows = []
    for query, engines in samples.items():
        for engine, found in engines.items():
            line = [query, engine, spread([s.wall for s in found]), spread([s.cpu for s in found])]
            if not found[0].sent:
                rows.append([*line, *[""] * 6])
                continue
            hosts = sorted(set(found[0].sent) - {STORE})
            sent = {host: median([sample.sent[host] for sample in found]) for host in hosts}
            each = " ".join(short(sent[host] / 1e6) for host in hosts)
            between = short(_of(found, lambda s: s.between) / 1e6)
            store = short(_of(found, lambda s: s.from_store) / 1e6)
            least, read = "", ""
            if engine == LAB:
                least = short(_of(found, lambda s: s.least) / 1e6)
                read = short(_of(found, lambda s: s.read) / 1e6)
            busiest = short(_of(found, lambda s: s.busiest) / GIGABIT)
            rows.append([*line, each, between, least, store, read, busiest])
    head = ["", "", "s", "CPU s", "MB sent by each host", "MB in all", "MB that must cross"]
    head += ["MB sent by S3", "MB of its columns", "s of the busiest link"]
    section.table(head, rows)


def totals(samples: Samples, engine: str, value: Callable[[Sample], float]) -> list[float]:
    """Of all queries, by round."""
    rounds = zip(*(engines[engine] for engines in samples.values()), strict=True)
    return [sum(map(value, of_round)) for of_round in rounds]


def ratios(above: list[float], below: list[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]


def promises(section: Section, samples: Samples) -> None:
    names = ", ".join(samples)
    least, read = (totals(samples, LAB, value) for value in (lambda s: s.least, lambda s: s.read))
    over = ratios(totals(samples, LAB, lambda s: s.between), least)
    section.promise(
        f"bytes over the links of {HOSTS} hosts against those of the rows that must cross, {names}",
        "at most 1.15 times (headers are 1.05)",
        f"{spread(over)} times",
        median(over) <= 1.15,
    )
    over = ratios(totals(samples, LAB, lambda s: s.from_store), read)
    section.promise(
        f"bytes over the link of S3 against those of the columns that are read, {names}",
        "at most 1.15 times (headers are 1.05)",
        f"{spread(over)} times",
        median(over) <= 1.15,
    )
    for engine in PEERS:
        against(section, samples, engine, names)


def against(section: Section, samples: Samples, peer: str, names: str) -> None:
    """The bar of all three is to be ahead of the peer."""
    compared: dict[str, Callable[[Sample], float]] = {
        "time": lambda s: s.wall,
        "processor time": lambda s: s.cpu,
        "bytes over all links": lambda s: s.total,
    }
    for what, value in compared.items():
        ratio = ratios(totals(samples, LAB, value), totals(samples, peer, value))
        each = {
            query: _of(engines[LAB], value) / _of(engines[peer], value)
            for query, engines in samples.items()
        }
        listed = ", ".join(f"{query} {of:.2f}" for query, of in each.items())
        section.promise(
            f"{what} of {names} on {HOSTS} hosts against {peer}",
            "less than 1 times",
            f"{spread(ratio)} times ({listed})",
            median(ratio) < 1,
        )


def draw(section: Section, samples: Samples) -> None:
    engines = list(next(iter(samples.values())))
    bars: dict[str, list[float | None]] = {
        engine: [_of(samples[query][engine], lambda s: s.wall) for query in samples]
        for engine in engines
    }
    section.plot(
        "hosts-time",
        f"TPC-H at scale factor {SCALE} on {HOSTS} hosts with links of 1 Gbit/s, which share two"
        " cores",
        plots.bars("s (median)", list(samples), bars),
    )


def run() -> Section:
    section = Section("Queries on several hosts")
    section.say(
        f"TPC-H at scale factor {SCALE} on a lab of {HOSTS} hosts: network namespaces of this"
        " machine with links of 1 Gbit/s in each direction, so all hosts share its two cores. The"
        " tables are on SeaweedFS, behind a link of the same kind, which shares these cores too."
        f" {WORKERS} workers of {MEMORY}; medians of {RUNS} rounds after one that is not"
        " counted, one engine after the other, answers compared with DuckDB's. Bytes are those"
        " of the counters of the links, with all headers and heartbeats. *must cross*: the bytes of"
        " the rows that were read on another host than the one that wrote them, from the profile."
        " *of its columns*: the bytes that the scans asked for. *s of the busiest"
        " link*: what its bytes take at 1 Gbit/s. *one host*: the same workers on local files."
    )
    section.say(
        f"The peers have {THREADS} threads on each of the same hosts and read the same tables."
        " *datafusion-distributed* 4.0: its gRPC worker on each host with"
        f" {THREADS} partitions, otherwise with its defaults, by which a scan uses a further host"
        " only above 16 MiB for each partition. *Ballista* 55: an executor of"
        f" {THREADS} vcores and {HOST_MEMORY} on each host, the scheduler on the first,"
        f" {WORKERS} partitions, otherwise with its defaults. Time is from the SQL to the answer"
        " in a client that runs already, with its connections and the footers that it has read;"
        " processor time is that of all of their processes with the client's. Their crates are"
        " compiled like those of Snowmelt."
    )
    section.commands += [
        f"SNOWMELT_BENCH_HOSTS_SCALE={SCALE} python bench/run.py hosts",
        f"snowmelt lab up --hosts {HOSTS + 1} --link {LINK} --memory {HOST_MEMORY}",
        f"snowmelt lab run -- snowmelt sql -f tests/tpch/q06.sql --workers {WORKERS}"
        f" --memory {MEMORY} --table lineitem=s3://{BUCKET}/lineitem/"
        f"  # made from {shown(tpch(SCALE, TABLES) / 'lineitem')}",
    ]
    samples = measure()
    table(section, samples)
    draw(section, samples)
    promises(section, samples)
    return section
