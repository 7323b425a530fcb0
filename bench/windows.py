"""Window functions and sorts at scale factor 1 against DuckDB: time, and processor time.

A query over all rows gives one row, so that nothing but the operator is measured.
"""

import subprocess
import tempfile
from pathlib import Path

import queries
from common import peers
from common.answers import difference
from common.figures import Section, median, spread
from common.paths import shown, tpch
from common.server import Server

RUNS = 5

QUERIES = {
    "`row_number`": """
        select sum(number * (l_linenumber + 1)) as total from (
            select l_linenumber, row_number() over (
                partition by l_suppkey order by l_extendedprice, l_orderkey, l_linenumber
            ) as number from lineitem)
    """,
    "`row_number`, few partitions": """
        select sum(number * (l_linenumber + 1)) as total from (
            select l_linenumber, row_number() over (
                partition by l_returnflag order by l_shipdate, l_orderkey, l_linenumber
            ) as number from lineitem)
    """,
    "running `sum`": """
        select max(running) as most from (
            select sum(l_quantity) over (
                partition by l_suppkey order by l_shipdate, l_orderkey, l_linenumber
                rows unbounded preceding
            ) as running from lineitem)
    """,
    "sort by two columns": """
        select l_orderkey, l_extendedprice from lineitem
        order by l_extendedprice desc, l_orderkey limit 10 offset 1000000
    """,
}


def run() -> Section:
    section = Section("Window functions and sorts at scale factor 1")
    lineitem = tpch("1", ["lineitem"]) / "lineitem"
    section.say(
        f"{RUNS} rounds after one that is not counted, {queries.THREADS} workers or threads each,"
        " engines taking turns, answers compared. *snowmelt*: the command against `snowmelt up`."
        " *DuckDB*: the program of the wheel duckdb-cli. Processor time is that of the whole"
        " machine meanwhile."
    )
    section.commands.append(
        f"snowmelt sql --workers 2 --table lineitem={shown(lineitem)} 'select … over …'"
    )
    rows = []
    with tempfile.TemporaryDirectory(prefix="sm-") as name, Server(Path(name)) as server:
        folder = Path(name)
        for label, text in QUERIES.items():
            query, answer = folder / "query.sql", folder / "ours.arrow"
            query.write_text(text)
            commands = {
                "snowmelt": queries.snowmelt(server, query, lineitem, answer),
                "DuckDB": queries.duckdb_command(query, lineitem),
            }
            taken = {engine: queries.Taken({engine: []}, {engine: []}) for engine in commands}
            for _ in range(RUNS + 1):
                for engine, command in commands.items():
                    busy = queries.busy_ms()
                    wall = queries.milliseconds(
                        lambda command=command: subprocess.run(
                            command,
                            check=True,
                            env=server.environment,
                            stdout=subprocess.DEVNULL,
                        )
                    )
                    taken[engine].wall[engine].append(wall)
                    taken[engine].processor[engine].append(queries.busy_ms() - busy)
            with peers.duck({"lineitem": lineitem}, queries.THREADS) as connection:
                theirs = connection.sql(text).arrow()
                theirs = theirs.read_all() if hasattr(theirs, "read_all") else theirs
            if wrong := difference(peers.read_arrow(answer), theirs, ordered=True):
                raise RuntimeError(f"{label}: not the same answer: {wrong}")
            wall = {engine: taken[engine].wall[engine][1:] for engine in commands}
            used = {engine: taken[engine].processor[engine][1:] for engine in commands}
            ratio = median(used["snowmelt"]) / median(used["DuckDB"])
            rows.append(
                [
                    label,
                    *(spread(wall[engine]) for engine in commands),
                    *(spread(used[engine]) for engine in commands),
                    f"{ratio:.2f}",
                ]
            )
    section.table(
        [
            "",
            "snowmelt, ms",
            "DuckDB, ms",
            "snowmelt, processor ms",
            "DuckDB, processor ms",
            "processor, ratio",
        ],
        rows,
    )
    return section
