"""Exchanges alone: a query that reads a few columns, splits all rows by a key, and adds them up.

Media: files by descriptor, hosts of a lab, and objects on S3 in one to three levels, with and
without write combining. Requests are counted by the store and compared with the paper's model;
exchanges by files are compared with plain DataFusion, which repartitions inside one process.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from common import plots, s3
from common.asked import Run, ask, environment, platform
from common.figures import Section, median, short, spread
from common.lab import Lab
from common.paths import HELPER, scratch, tpch
from exchange_model import WAYS, Requests, Way, simulated, table_2, worker_dollars

SCALE = os.environ.get("SNOWMELT_BENCH_EXCHANGE_SCALE", "1")
WORKERS = [
    int(n) for n in os.environ.get("SNOWMELT_BENCH_EXCHANGE_WORKERS", "16,64,256").split(",")
]
# The number of partitions and threads of plain DataFusion.
PLAIN = WORKERS[0]
RUNS = 3
# A way that needs more requests is left out: SeaweedFS answers a few hundred a second here.
MAX_REQUESTS = int(os.environ.get("SNOWMELT_BENCH_EXCHANGE_REQUESTS", "20000"))
BUCKET = "exchange"
PLACES = [f"s3://{BUCKET}/{name}/" for name in "abcd"]
HOSTS, LINK = 4, "10gbit"

KEYS = ["l_orderkey", "l_linenumber"]
VALUES = ["l_partkey", "l_suppkey", "l_quantity", "l_extendedprice"]
# All pairs of keys differ, so all rows are exchanged and no group is made smaller before.
GROUPS = ", ".join(f"max({column}) as {column}" for column in VALUES)
SUMS = ", ".join(f"sum({column}) as {column}" for column in VALUES)
SPLIT = f"select {', '.join(KEYS)}, {GROUPS} from lineitem group by {', '.join(KEYS)}"
QUERY = f"select count(*) as n, {SUMS} from ({SPLIT})"
# The same columns and sums, with nothing to exchange.
SCAN = f"select count(*) as n, sum(l_orderkey + l_linenumber) as keys, {SUMS} from lineitem"


def memory(workers: int) -> str:
    """8 GiB together, so that the tasks of a stage all run at once, but what one needs at least: it
    peaks at 70 MiB with 256 partitions."""
    return f"{max(8192 // workers, 72)}MiB"


@dataclass
class Data:
    """The table, and the answer that every way must give."""

    folder: Path
    answer: list[dict[str, Any]]


def write(folder: Path) -> Data:
    """The columns of lineitem in a file for each of the most workers, all of the same size."""
    source = ds.dataset(tpch(SCALE, ["lineitem"]) / "lineitem")
    table = source.to_table(columns=[*KEYS, *VALUES])
    files = max(WORKERS)
    rows = -(-table.num_rows // files)
    (folder / "lineitem").mkdir()
    for number in range(files):
        part = table.slice(number * rows, rows)
        pq.write_table(part, folder / f"lineitem/{number:04}.parquet", compression="zstd")
    sums = {column: pc.sum(table[column]).as_py() for column in VALUES}
    return Data(folder / "lineitem", [{"n": table.num_rows, **sums}])


@dataclass
class Measured:
    """One way with one number of workers."""

    runs: list[Run] = field(default_factory=list)
    scans: list[Run] = field(default_factory=list)
    # Requests that the store has counted.
    counted: Requests | None = None

    @property
    def gigabytes(self) -> float:
        """Of the rows, counted once for all levels."""
        return int(self.runs[0].profile["stages"][0]["bytes_sent"]) / 1e9

    @property
    def wall(self) -> list[float]:
        return [run.wall for run in self.runs]

    @property
    def cpu_per_gigabyte(self) -> float:
        """Processor seconds beyond those of the scan, for each GB."""
        more = median([run.cpu for run in self.runs]) - median([run.cpu for run in self.scans])
        return more / self.gigabytes

    def dollars(self, part: str) -> float:
        return median([run.profile["cost"]["functions"][part] for run in self.runs])


def checked(data: Data, workers: int, processes: Sequence[int], **options: Any) -> Run:
    """A run whose answer is right, and in which each stage had a task for each worker."""
    run = ask(
        QUERY, processes, workers=workers, memory=memory(workers), exchange_task=1,
        lineitem=data.folder, **options,
    )  # fmt: skip
    if run.answer.to_pylist() != data.answer:
        raise RuntimeError(f"{options}: {run.answer.to_pylist()}, expected {data.answer}")
    tasks = {stage["tasks"] for stage in run.profile["stages"]}
    if tasks != {workers}:
        raise RuntimeError(f"{options}: stages of {tasks} tasks, not of {workers}")
    return run


def scan(data: Data, workers: int, processes: Sequence[int]) -> Run:
    limit = memory(workers)
    return ask(SCAN, processes, workers=workers, memory=limit, lineitem=data.folder)


def plain(data: Data, section: Section) -> tuple[float, float]:
    """Seconds of plain DataFusion, wall and processor, the second of two runs in a process."""
    words = ["datafusion", "--partitions", str(PLAIN), "--repeat", "2"]
    words += ["--table", f"lineitem={data.folder}", "--sql", QUERY]
    done = subprocess.run([HELPER, *words], check=True, stdout=subprocess.PIPE, text=True)
    if not any("snowmelt-bench" in command for command in section.commands):
        section.commands.append(f"snowmelt-bench datafusion --partitions {PLAIN} --sql '{QUERY}'")
    report = json.loads(done.stdout)
    return report["wall_ms"][-1] / 1000, report["cpu_ms"][-1] / 1000


@dataclass
class Results:
    """By way and number of workers."""

    files: dict[int, Measured] = field(default_factory=dict)
    hosts: dict[int, Measured] = field(default_factory=dict)
    objects: dict[tuple[Way, int], Measured] = field(default_factory=dict)
    plain_wall: list[float] = field(default_factory=list)
    plain_cpu: list[float] = field(default_factory=list)


def by_files(data: Data, results: Results, processes: list[int], section: Section) -> None:
    """Plain DataFusion takes turns with the runs of as many workers."""
    for workers in WORKERS:
        found = results.files[workers] = Measured()
        for round_ in range(RUNS + 1):
            run = checked(data, workers, processes, exchange="files")
            scanned = scan(data, workers, processes)
            if workers == PLAIN:
                wall, cpu = plain(data, section)
            if round_ == 0:
                continue
            found.runs.append(run)
            found.scans.append(scanned)
            if workers == PLAIN:
                results.plain_wall.append(wall)
                results.plain_cpu.append(cpu)


def by_hosts(data: Data, results: Results, lab: Lab) -> None:
    processes = lab.processes()
    for workers in WORKERS:
        found = results.hosts[workers] = Measured()
        for round_ in range(RUNS + 1):
            run = checked(data, workers, processes, exchange="hosts")
            scanned = scan(data, workers, processes)
            if round_:
                found.runs.append(run)
                found.scans.append(scanned)


def by_objects(data: Data, results: Results, processes: list[int], store: s3.Store) -> None:
    """One run of each way, after one that starts workers with a network."""

    def run(way: Way, workers: int) -> Run:
        options = {"exchange_levels": way.levels, "exchange_combining": way.combining}
        places = {"exchange": "objects", "exchange_locations": PLACES}
        return checked(data, workers, processes, **options, **places)

    for workers in WORKERS:
        run(Way(1, True) if workers < 64 else Way(2, True), workers)
        for way in WAYS:
            if simulated(way, workers).total > MAX_REQUESTS:
                continue
            before = store.requests()
            found = Measured([run(way, workers)], results.files[workers].scans)
            counted = store.requests()
            reads, writes = (counted[kind] - before[kind] for kind in ("read", "write"))
            found.counted = Requests(reads, writes)
            results.objects[way, workers] = found
            print(f"exchange: {way.name}, {workers} workers measured", file=sys.stderr)


def measure(section: Section) -> Results:
    results = Results()
    with scratch() as folder:
        data = write(folder)
        with platform(folder) as processes, s3.running(BUCKET) as store:
            by_files(data, results, processes, section)
            with environment(store.variables):
                by_objects(data, results, processes, store)
        # The name of a socket may have 107 bytes only.
        with (
            tempfile.TemporaryDirectory(prefix="sm-", dir="/tmp") as place,
            Lab(Path(place), HOSTS, LINK, "5GiB") as lab,
            environment({"SNOWMELT_SOCKET": str(lab.socket)}),
        ):
            by_hosts(data, results, lab)
    return results


def line(name: str, workers: int, found: Measured) -> list[str]:
    return [
        name,
        f"{workers}",
        spread(found.wall),
        short(found.gigabytes / median(found.wall)),
        short(found.cpu_per_gigabyte),
        "" if found.counted is None else f"{found.counted.reads:,.0f}",
        "" if found.counted is None else f"{found.counted.writes:,.0f}",
        f"{found.dollars('requests') * 1000:.4f}",
        f"{found.dollars('total') * 1000:.3f}",
    ]


def table(section: Section, results: Results) -> None:
    rows = []
    for workers in WORKERS:
        rows.append(line("files", workers, results.files[workers]))
        rows.append(line(f"{HOSTS} hosts", workers, results.hosts[workers]))
        for way in WAYS:
            if (way, workers) in results.objects:
                rows.append(line(way.name, workers, results.objects[way, workers]))
                continue
            needs = simulated(way, workers)
            left_out = [f"({needs.reads:,.0f})", f"({needs.writes:,.0f})"]
            rows.append([way.name, f"{workers}", "left out", "", "", *left_out, "", ""])
    per_gigabyte = median(results.plain_cpu) / results.files[PLAIN].gigabytes
    rate = results.files[PLAIN].gigabytes / median(results.plain_wall)
    head = ["", "workers", "s", "GB/s", "CPU s for each GB, without the scan", "GET", "PUT"]
    head += ["requests, $ for 1,000 queries", "functions, $ for 1,000 queries"]
    section.table(head, rows)
    section.say(
        f"Plain DataFusion, {PLAIN} partitions and threads in one process:"
        f" {spread(results.plain_wall)} s, {short(rate)} GB/s,"
        f" {short(per_gigabyte)} CPU s for each GB with the scan."
    )


def baseline(section: Section) -> None:
    """What the one-level exchange of PyWren and Locus needs, by the model."""
    rows = []
    for workers in sorted({*WORKERS, 1024, 4096}):
        requests = {way: table_2(way, workers) for way in WAYS}
        least, most = (worker_dollars(workers, *load) for load in ((1, 100 * 2**20), (3, 2**30)))
        dollars = [f"{requests[way].dollars:.3g}" for way in WAYS]
        rows.append([f"{workers:,}", *dollars, f"{least:.2g} to {most:.2g}"])
    section.say(
        "Dollars for the requests by the paper's Table 2 and prices, with its range for the workers"
        " (one scan of 100 MiB each to three of 1 GiB each). `1l` is the exchange of PyWren and"
        " Locus:"
    )
    section.table(["workers", *(way.name for way in WAYS), "workers, $"], rows)


def draw(section: Section, results: Results) -> None:
    counts = [2**power for power in range(4, 13)]
    model = {way.name: {n: table_2(way, n).total for n in counts} for way in WAYS}
    points: dict[str, dict[int, float]] = {way.name: {} for way in WAYS}
    for (way, workers), found in results.objects.items():
        if found.counted is not None:
            points[way.name][workers] = found.counted.total
    section.plot(
        "exchange-requests",
        "Requests of one exchange by objects (GET and PUT), against the number of workers: lines by"
        " the paper's Table 2, points counted by the store",
        plots.model("workers", "requests", model, points),
    )
    times: dict[str, list[float | None]] = {
        "files": [median(results.files[n].wall) for n in WORKERS],
        f"{HOSTS} hosts": [median(results.hosts[n].wall) for n in WORKERS],
    }
    for way in WAYS:
        found_of = [results.objects.get((way, n)) for n in WORKERS]
        times[way.name] = [None if found is None else median(found.wall) for found in found_of]
    section.plot(
        "exchange-time",
        "Time of the query by the medium of its exchange",
        plots.bars("s (median)", [f"{n} workers" for n in WORKERS], times),
    )


def promises(section: Section, results: Results) -> None:
    wrong = [
        f"{way.name} with {workers}: {found.counted}, expected {simulated(way, workers)}"
        for (way, workers), found in results.objects.items()
        if found.counted != simulated(way, workers)
    ]
    section.promise(
        f"requests of {len(results.objects)} exchanges by objects, counted by the store,"
        " against the paper's algorithm",
        "equal",
        "; ".join(wrong) or "equal",
        not wrong,
    )
    files = results.files[PLAIN]
    # Of each round: the engines take turns.
    ratio = [ours / plain for ours, plain in zip(files.wall, results.plain_wall, strict=True)]
    cpu = [run.cpu / plain for run, plain in zip(files.runs, results.plain_cpu, strict=True)]
    section.promise(
        f"exchange by files, {PLAIN} workers, against plain DataFusion in one process",
        "at most 1.3 times",
        f"{spread(ratio)} times ({spread(cpu)} in processor time)",
        median(ratio) <= 1.3,
    )
    most = max(n for way, n in results.objects if way == Way(1, False))
    one, two = (results.objects[Way(*way), most] for way in ((1, False), (2, True)))
    fewer, bar = one.dollars("requests") / two.dollars("requests"), 10 if most >= 64 else 2
    section.promise(
        f"dollars for requests of PyWren's and Locus's exchange against two levels combined,"
        f" {most} workers",
        f"at least {bar} times",
        f"{fewer:.3g} times",
        fewer >= bar,
    )


def run() -> Section:
    section = Section("Exchanges alone")
    section.say(
        f"`{QUERY}` on lineitem at scale factor {SCALE}, {max(WORKERS)} files: no two rows have the"
        " same keys, so all rows of the six columns are exchanged, and each of as many tasks adds"
        " up its partition. The workers have 8 GiB together, but at least 64 MiB each. *files*"
        " are granted by descriptor, *hosts* are those of a lab with links of"
        f" {LINK.removesuffix('gbit')} Gbit/s on this machine, *1l* to *3l-wc* are objects on"
        " SeaweedFS on this machine, by the names of the paper: levels, and write combining."
        f" Medians of {RUNS} runs after one that is not counted; a single one by objects, and none"
        f" for more than {MAX_REQUESTS:,} requests (SNOWMELT_BENCH_EXCHANGE_REQUESTS), because"
        " this store answers a few hundred a second. GB are those of the exchanged rows, once for"
        " all levels; GB/s are of the whole query. Processor time is that of the platform and its"
        " sandboxes, less a query that adds up the same columns without an exchange and without"
        " groups; that of SeaweedFS is not in it. Dollars are those of the profile, by the shipped"
        " prices."
    )
    section.commands.append(
        f"SNOWMELT_BENCH_EXCHANGE_SCALE={SCALE}"
        f" SNOWMELT_BENCH_EXCHANGE_WORKERS={','.join(map(str, WORKERS))}"
        " python bench/run.py exchange"
    )
    section.commands.append(
        f"snowmelt sql --workers {PLAIN} --memory {memory(PLAIN)} --exchange files"
        f" --exchange-task 1 '{QUERY}'"
    )
    results = measure(section)
    table(section, results)
    baseline(section)
    draw(section, results)
    promises(section, results)
    return section
