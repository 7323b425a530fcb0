"""All queries of TPC-DS: ours with 1, 4 and 16 workers, DuckDB and Spark.

Processor time is compared, as for TPC-H (`tpch.py`): that of the engine's own processes. The
queries are DuckDB's, of which Spark refuses some.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import peers, spark
from common.answers import difference
from common.figures import Section, median, short, spread
from common.line_client import Refused
from common.paths import DATA
from common.server import Server
from common.tables import tpcds
from tpch import CPU, THREADS, WALL, Engine, Sample, duckdb, ours, ratios

SCALE = os.environ.get("SNOWMELT_BENCH_TPCDS_SCALE", "1")
FILES, GROUP_ROWS = 8, 122880
ROUNDS = 3
# Workers, and the processor time that all queries may take, in that of DuckDB.
OURS = {1: 1.1, 4: 1.2, 16: 1.4}
# The same for each query.
WORST = 2.5
DUCKDB = "DuckDB"


def label(workers: int) -> str:
    return f"snowmelt, {workers} workers"


def measure(queries: dict[str, Path], tables: dict[str, Path]) -> dict[str, Engine]:
    """Engines take turns on each query. The first round is not counted."""
    with tempfile.TemporaryDirectory(prefix="sm-") as name, Server(Path(name)) as server:
        answer = Path(name) / "answer.arrow"
        engines = {label(n): Engine(ours(server, n, tables, answer)) for n in OURS}
        engines[DUCKDB] = Engine(duckdb(tables))
        for query, file in queries.items():
            expected = peers.duck_answer(file.read_text(), tables, THREADS).table
            for round_ in range(ROUNDS + 1):
                for engine in engines:
                    sample = engines[engine].run(file)
                    if round_ > 0:
                        engines[engine].samples[query].append(sample)
                    elif engine != DUCKDB:
                        check(query, answer, expected)
            print(f"tpcds sf{SCALE}: {query} measured", file=sys.stderr)
        return engines


def check(query: str, answer: Path, expected: Any) -> None:
    if wrong := difference(peers.read_arrow(answer), expected, ordered=False):
        raise RuntimeError(f"{query}: not the same answer: {wrong}")


def by_spark(queries: dict[str, Path], tables: dict[str, Path]) -> dict[str, Sample]:
    """Each query twice, of which the second counts; without those that Spark refuses."""
    found = {}
    with spark.session(THREADS, list(tables)) as session:
        session.read(next(iter(tables.values())).parent)
        for query, file in queries.items():
            try:
                taken = [session.ask(file.read_text()) for _ in range(2)]
            except Refused as refused:
                print(f"tpcds: Spark refuses {query}: {refused}", file=sys.stderr)
                continue
            found[query] = Sample(taken[1].wall, taken[1].cpu)
            print(f"tpcds sf{SCALE}: {query} measured with Spark", file=sys.stderr)
    return found


def show(section: Section, engines: dict[str, Engine], of_spark: dict[str, Sample]) -> None:
    names = list(engines[DUCKDB].samples)
    head = ["", *(f"{engine}, s (CPU s)" for engine in engines), "Spark, s (CPU s)"]

    def row(name: str) -> list[str]:
        cells = [f"{short(it.wall(name))} ({short(it.cpu(name))})" for it in engines.values()]
        sample = of_spark.get(name)
        return [name, *cells, f"{short(sample.wall)} ({short(sample.cpu)})" if sample else ""]

    rows = [row(name) for name in names]
    for title, value in (("all, s", WALL), ("all, CPU s", CPU)):
        of_all = [spread(engine.totals(value)) for engine in engines.values()]
        rows.append([title, *of_all, short(sum(map(value, of_spark.values())))])
    section.table(head, rows)
    for workers, bar in OURS.items():
        engine = engines[label(workers)]
        found = ratios(engine, engines[DUCKDB], CPU)
        by_query = {name: engine.cpu(name) / engines[DUCKDB].cpu(name) for name in names}
        worst = max(by_query, key=lambda name: by_query[name])
        section.promise(
            f"TPC-DS {SCALE}: processor time of all queries against DuckDB, {label(workers)}",
            f"at most {bar} times",
            f"{spread(found)} times",
            median(found) <= bar,
        )
        section.promise(
            f"TPC-DS {SCALE}: processor time of each query against DuckDB, {label(workers)}",
            f"at most {WORST} times",
            f"{worst}: {by_query[worst]:.2f} times",
            by_query[worst] <= WORST,
        )


def run() -> Section:
    tables, queries = tpcds(DATA, SCALE, FILES, GROUP_ROWS)
    section = Section("TPC-DS, all queries")
    engines = measure(queries, tables)
    of_spark = by_spark(queries, tables)
    section.say(
        f"Scale factor {SCALE}, medians of {ROUNDS} rounds after one that is not counted (of Spark"
        " the second run of each), engines taking turns, two cores,"
        f" {THREADS} threads for each engine, answers compared with DuckDB's. What is counted is as"
        f" for TPC-H. Spark answers {len(of_spark)} of {len(queries)} queries in DuckDB's form."
    )
    show(section, engines, of_spark)
    section.commands.append(f"SNOWMELT_BENCH_TPCDS_SCALE={SCALE} python bench/run.py tpcds")
    return section
