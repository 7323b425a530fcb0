"""Q1 and Q6 at scale factor 1: ours with two workers, plain DataFusion, DuckDB; two threads each.

Runs of the engines take turns, so that a change of the machine's load affects all of them.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common import peers
from common.answers import difference
from common.figures import Section, median, spread
from common.paths import CHECKOUT, HELPER, SNOWMELT, shown, tpch
from common.server import Server

QUERIES = ["q1", "q6"]
RUNS = 9
THREADS = 2

# The library in a Python process; includes Python's start and an import of 0.2 s.
IMPORTED = """
import sys, duckdb
with duckdb.connect(config={"threads": int(sys.argv[1])}) as c:
    c.sql(f"create view lineitem as select * from '{sys.argv[2]}/*.parquet'")
    c.sql(open(sys.argv[3]).read()).fetchall()
"""

# CPU time is that of the whole machine, because a server's is spread over several processes: on a
# machine with other load it is too large, for all engines alike.
TICKS_MS = 1000 / os.sysconf("SC_CLK_TCK")


def busy_ms() -> float:
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) * TICKS_MS


def duckdb_command(query: Path, lineitem: Path) -> list[str]:
    """DuckDB's command line on the same query, which also prints the answer."""
    view = f"create view lineitem as select * from '{lineitem}/*.parquet';"
    words = [str(peers.duckdb_command()), "-csv", "-c", f"set threads = {THREADS};", "-c", view]
    return [*words, "-c", query.read_text()]


def milliseconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1000


def snowmelt(server: Server, query: Path, lineitem: Path, answer: Path, *more: str) -> list[str]:
    command = [str(SNOWMELT), "sql", "-f", str(query), "--table", f"lineitem={lineitem}"]
    command += ["--workers", str(THREADS), "--progress", "quiet", "-o", "arrow", "-O"]
    return [*command, str(answer), *more]


@dataclass
class Taken:
    """Milliseconds by engine, wall time and total CPU time."""

    wall: dict[str, list[float]]
    processor: dict[str, list[float]]


def measure(name: str, lineitem: Path, folder: Path, server: Server) -> Taken:
    """The first round of each is not counted."""
    query, ours = CHECKOUT / f"demo/queries/{name}.sql", folder / "ours.arrow"
    sql, tables = query.read_text(), {"lineitem": lineitem}
    plain = [str(HELPER), "datafusion", "--sql", f"@{query}", "--partitions", str(THREADS)]
    plain += ["--table", f"lineitem={lineitem}"]
    imported = [sys.executable, "-c", IMPORTED, str(THREADS), str(lineitem), str(query)]

    def process(engine: str, command: list[str]) -> None:
        environment, busy = server.environment, busy_ms()
        took = milliseconds(
            lambda: subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        )
        found[engine].append(took)
        used[engine].append(busy_ms() - busy)

    found: dict[str, list[float]] = defaultdict(list)
    used: dict[str, list[float]] = defaultdict(list)
    with peers.duck(tables, THREADS) as connection:
        for _ in range(RUNS + 1):
            command = snowmelt(server, query, lineitem, ours)
            process("snowmelt, server", command)
            process("snowmelt, embedded", [*command, "--embedded"])
            process("DataFusion, process", plain)
            process("DuckDB, command", duckdb_command(query, lineitem))
            process("DuckDB, process of Python", imported)
            found["DuckDB, in process"].append(milliseconds(lambda: connection.sql(sql).fetchall()))
    done = subprocess.run(
        [*plain, "--repeat", str(RUNS + 1)], check=True, stdout=subprocess.PIPE, text=True
    )
    found["DataFusion, in process"] = json.loads(done.stdout)["wall_ms"]
    theirs = peers.datafusion(sql, tables, THREADS, folder / "theirs.arrow").table
    if wrong := difference(peers.read_arrow(ours), theirs, ordered=True):
        raise RuntimeError(f"{name}: not the same answer: {wrong}")
    return Taken(_after_first(found), _after_first(used))


def _after_first(samples: dict[str, list[float]]) -> dict[str, list[float]]:
    return {engine: taken[1:] for engine, taken in samples.items()}


ENGINES = [
    "snowmelt, server",
    "snowmelt, embedded",
    "DataFusion, process",
    "DataFusion, in process",
    "DuckDB, command",
    "DuckDB, process of Python",
    "DuckDB, in process",
]


def run() -> Section:
    section = Section("TPC-H Q1 and Q6 at scale factor 1")
    lineitem = tpch("1", ["lineitem"]) / "lineitem"
    section.say(
        f"{RUNS} rounds after one that is not counted, {THREADS} workers or threads each, engines"
        " taking turns, answers compared. *server*: the command against `snowmelt up`, idle"
        " workers taken again. *embedded*: the command that brings its own platform and takes it"
        " away, all sandboxes cold. *DataFusion, process*: a program that does nothing but run the"
        " query. *DuckDB, command*: the program of the wheel duckdb-cli, from its start to its end."
        " *DuckDB, process of Python*: `python -c 'import duckdb; ...'`, which is mostly Python's"
        " start and the import. *in process*: the query in a process that is there already, which"
        " no command line can be. Processor time is that of the whole machine meanwhile."
    )
    section.commands += [
        f"snowmelt sql -f demo/queries/q1.sql --table lineitem={shown(lineitem)} --workers 2",
        f"snowmelt-bench datafusion --sql @demo/queries/q1.sql --partitions 2"
        f" --table lineitem={shown(lineitem)}",
    ]
    rows = {}
    with tempfile.TemporaryDirectory(prefix="sm-") as folder, Server(Path(folder)) as server:
        for name in QUERIES:
            rows[name] = measure(name, lineitem, Path(folder), server)
    section.table(
        ["", *(f"{name}, ms" for name in QUERIES), *(f"{name}, processor ms" for name in QUERIES)],
        [
            [
                engine,
                *(spread(rows[name].wall[engine]) for name in QUERIES),
                *(
                    spread(rows[name].processor[engine]) if engine in rows[name].processor else ""
                    for name in QUERIES
                ),
            ]
            for engine in ENGINES
        ],
    )
    for name in QUERIES:
        m = {engine: median(samples) for engine, samples in rows[name].wall.items()}
        used = {engine: median(samples) for engine, samples in rows[name].processor.items()}
        for kind in ("server", "embedded"):
            ratio = m[f"snowmelt, {kind}"] / m["DataFusion, process"]
            inside = m[f"snowmelt, {kind}"] / m["DataFusion, in process"]
            section.promise(
                f"{name} against a process of plain DataFusion, {kind}",
                "at most 1.3 times",
                f"{ratio:.2f} times ({inside:.2f} of its query alone)",
                ratio <= 1.3,
            )
        distance = m["snowmelt, server"] / m["DuckDB, command"]
        inside = m["snowmelt, server"] / m["DuckDB, in process"]
        processor = used["snowmelt, server"] / used["DuckDB, command"]
        section.say(
            f"{name}, server: {distance:.2f} times DuckDB's command in time, {processor:.2f} times"
            f" in processor time; {inside:.2f} times DuckDB's query alone in time."
        )
    return section
