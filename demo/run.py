"""`make demo`: three queries over TPC-H on eight workers, each answer checked by other engines.

Run it through the door, which builds the binary and the environment first. Everything it makes is
under `data/`: the tables once, the profile pages at each run.
"""

import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

DEMO = Path(__file__).resolve().parent
sys.path[:0] = [str(DEMO.parent / "bench"), str(DEMO)]

import pyarrow as pa
from duckdb.sqltypes import VARCHAR

from common import peers
from common.answers import difference
from common.places import CHECKOUT, DATA, SNOWMELT, shown, tpch
from common.stock import Stock

WORKERS = 8
SCALE = "1"


@dataclass(frozen=True)
class Query:
    """One of the demo's queries."""

    name: str
    title: str
    table: str
    uses_function: bool = False

    @property
    def file(self) -> Path:
        return DEMO / "queries" / f"{self.name}.sql"


QUERIES = [
    Query("q1", "TPC-H Q1: group and sum six million rows", "lineitem"),
    Query("q6", "TPC-H Q6: filter and sum", "lineitem"),
    Query("country", "your own Python function, with its own package", "customer", True),
]


def say(text: str = "") -> None:
    print(text, flush=True)


def run(query: Query, folder: Path, out: Path) -> tuple[pa.Table, float]:
    """Runs it as a user would type it; progress and profile go straight to the terminal."""
    answer, page = out / f"{query.name}.arrow", out / f"{query.name}.html"
    command = ["snowmelt", "sql", "-f", shown(query.file)]
    command += ["--table", f"{query.table}={shown(folder / query.table)}"]
    if query.uses_function:
        command += ["--udf", "demo/udfs.py", "--profile"]
    command += ["--workers", str(WORKERS), "--profile-out", shown(page)]
    command += ["-o", "arrow", "-O", shown(answer)]
    say(f"$ {shlex.join(command)}")
    start = time.perf_counter()
    code = subprocess.run([str(SNOWMELT), *command[1:]], cwd=CHECKOUT, check=False).returncode
    seconds = time.perf_counter() - start
    if code != 0:
        sys.exit(f"the query failed with exit code {code}; `snowmelt doctor` may say why")
    return peers.read_arrow(answer), seconds


def functions() -> list[peers.Function]:
    """The demo's function, for DuckDB: a decorated function stays plainly callable."""
    import udfs

    def country(phone: str) -> str | None:
        return udfs.country(phone)

    return [("country", country, [VARCHAR], VARCHAR)]


def check(query: Query, ours: pa.Table, folder: Path, out: Path) -> dict[str, float]:
    """The other engines' seconds, once their answers are known to be the same as ours."""
    sql, tables = query.file.read_text(), {query.table: folder / query.table}
    cores = os.cpu_count() or 1
    others: dict[str, peers.Answer] = {}
    if not query.uses_function:
        others["DataFusion"] = peers.datafusion(sql, tables, cores, out / "datafusion.arrow")
    known = functions() if query.uses_function else []
    others["DuckDB"] = peers.duck_answer(sql, tables, cores, known)
    for engine, answer in others.items():
        if wrong := difference(ours, answer.table, ordered=True):
            sys.exit(f"WRONG ANSWER of {query.name}, {engine} says otherwise: {wrong}")
    say(f"the same answer as {' and '.join(others)}\n")
    return {engine: answer.seconds for engine, answer in others.items()}


def table_of(seconds: dict[str, dict[str, float]]) -> str:
    engines = ["snowmelt", "DataFusion", "DuckDB"]
    lines = [f"{'seconds':<10}" + "".join(f"{engine:>12}" for engine in engines)]
    for name, row in seconds.items():
        cells = [f"{row[engine]:.2f}" if engine in row else "-" for engine in engines]
        lines.append(f"{name:<10}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    os.chdir(CHECKOUT)
    # As `. scripts/env` has it: the resolver is beside this Python.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    before = Stock()
    out = DATA / "demo"
    out.mkdir(parents=True, exist_ok=True)
    say(f"TPC-H at scale factor {SCALE} in {shown(DATA)}/tpch/sf{SCALE} (made once)")
    folder = tpch(SCALE, ["lineitem", "customer"])
    seconds: dict[str, dict[str, float]] = {}
    for query in QUERIES:
        say(f"\n== {query.title}")
        ours, wall = run(query, folder, out)
        say(ours.to_pandas().to_string(index=False, max_rows=10, na_rep="NULL"))
        seconds[query.name] = {"snowmelt": wall} | check(query, ours, folder, out)
    say(table_of(seconds))
    say("snowmelt: the whole command, its platform and sandboxes started and gone again;")
    say("the others: inside a process that is there already.\n")
    left = before.left_within(5)
    if left:
        sys.exit(f"LEFT BEHIND: {left}")
    say("nothing is left behind: no process, mount, cgroup, network namespace or file of it")
    say(f"where the time went: open {shown(out)}/country.html in a browser")
    say("next: . scripts/env, then `snowmelt --help`, and README.md")


if __name__ == "__main__":
    main()
