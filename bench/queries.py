"""Q1 and Q6 at scale factor 1: ours with two workers, plain DataFusion, DuckDB; two threads each.

Runs of the engines take turns, so that a change of the machine's load meets all of them.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from common import peers
from common.answers import difference
from common.figures import Section, median, spread
from common.places import CHECKOUT, HELPER, SNOWMELT, shown, tpch
from common.server import Server

QUERIES = ["q1", "q6"]
RUNS = 9
THREADS = 2

DUCK = """
import sys, duckdb
with duckdb.connect(config={"threads": int(sys.argv[1])}) as c:
    c.sql(f"create view lineitem as select * from '{sys.argv[2]}/*.parquet'")
    c.sql(open(sys.argv[3]).read()).fetchall()
"""


def _ms(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1000


def _snowmelt(server: Server, query: Path, lineitem: Path, answer: Path, *more: str) -> list[str]:
    command = [str(SNOWMELT), "sql", "-f", str(query), "--table", f"lineitem={lineitem}"]
    command += ["--workers", str(THREADS), "--progress", "quiet", "-o", "arrow", "-O"]
    return [*command, str(answer), *more]


def measure(name: str, lineitem: Path, folder: Path, server: Server) -> dict[str, list[float]]:
    """Milliseconds by engine; the first round of each is not counted."""
    query, ours = CHECKOUT / f"demo/queries/{name}.sql", folder / "ours.arrow"
    sql, tables = query.read_text(), {"lineitem": lineitem}
    plain = [str(HELPER), "datafusion", "--sql", f"@{query}", "--partitions", str(THREADS)]
    plain += ["--table", f"lineitem={lineitem}"]
    duck = [sys.executable, "-c", DUCK, str(THREADS), str(lineitem), str(query)]

    def process(command: list[str]) -> float:
        environment = server.environment
        return _ms(
            lambda: subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        )

    found: dict[str, list[float]] = defaultdict(list)
    with peers.duck(tables, THREADS) as connection:
        for _ in range(RUNS + 1):
            command = _snowmelt(server, query, lineitem, ours)
            found["snowmelt, server"].append(process(command))
            found["snowmelt, embedded"].append(process([*command, "--embedded"]))
            found["DataFusion, process"].append(process(plain))
            found["DuckDB, process"].append(process(duck))
            found["DuckDB, in process"].append(_ms(lambda: connection.sql(sql).fetchall()))
    done = subprocess.run(
        [*plain, "--repeat", str(RUNS + 1)], check=True, stdout=subprocess.PIPE, text=True
    )
    found["DataFusion, in process"] = json.loads(done.stdout)["wall_ms"]
    theirs = peers.datafusion(sql, tables, THREADS, folder / "theirs.arrow").table
    if wrong := difference(peers.read_arrow(ours), theirs, ordered=True):
        raise RuntimeError(f"{name}: not the same answer: {wrong}")
    return {engine: samples[1:] for engine, samples in found.items()}


ENGINES = [
    "snowmelt, server",
    "snowmelt, embedded",
    "DataFusion, process",
    "DataFusion, in process",
    "DuckDB, process",
    "DuckDB, in process",
]


def run() -> Section:
    section = Section("TPC-H Q1 and Q6 at scale factor 1")
    lineitem = tpch("1", ["lineitem"]) / "lineitem"
    section.say(
        f"{RUNS} rounds after one that is not counted, {THREADS} workers or threads each, engines"
        " taking turns, answers compared. *server*: the command against `snowmelt up`, idle"
        " workers taken again. *embedded*: the command that brings its own platform and takes it"
        " away, all sandboxes cold. *process*: a whole process of the engine. *in process*: the"
        " query in a process that is there already, which no command line can be."
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
        ["ms", *QUERIES],
        [[engine, *(spread(rows[name][engine]) for name in QUERIES)] for engine in ENGINES],
    )
    for name in QUERIES:
        m = {engine: median(samples) for engine, samples in rows[name].items()}
        for kind in ("server", "embedded"):
            ratio = m[f"snowmelt, {kind}"] / m["DataFusion, process"]
            inside = m[f"snowmelt, {kind}"] / m["DataFusion, in process"]
            section.promise(
                f"{name} against a process of plain DataFusion, {kind}",
                "at most 1.3 times",
                f"{ratio:.2f} times ({inside:.2f} of its query alone)",
                ratio <= 1.3,
            )
        distance = m["snowmelt, server"] / m["DuckDB, process"]
        inside = m["snowmelt, server"] / m["DuckDB, in process"]
        section.say(
            f"{name}: {distance:.2f} times a process of DuckDB, {inside:.2f} times its query alone."
        )
    return section
