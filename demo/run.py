"""`make demo`: three queries over TPC-H, each answer checked by DuckDB.

Run it by `make demo`, which builds the binary and the environment first. All files that it keeps
are under `data/`: the tables, created once, and the profile pages of each run. It uses a separate
platform: others on the machine are neither used nor inspected.
"""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

DEMO = Path(__file__).resolve().parent
sys.path[:0] = [str(DEMO.parent / "bench"), str(DEMO)]

import pyarrow as pa
from duckdb.sqltypes import VARCHAR

from common import peers
from common.answers import difference
from common.paths import CHECKOUT, DATA, SNOWMELT, shown, tpch
from platform_run import DemoPlatform, demo_platform

# Scale factor of TPC-H; tests use a smaller one.
SCALE = sys.argv[1] if len(sys.argv) > 1 else "1"
# Time limit for the clean-up of a platform.
GONE_WITHIN_S = 10


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
    Query("q1", "TPC-H Q1: group and sum every row", "lineitem"),
    Query("q6", "TPC-H Q6: filter and sum", "lineitem"),
    Query("country", "your own Python function, with its own package", "customer", True),
]


def say(text: str = "") -> None:
    print(text, flush=True)


@dataclass
class Demo:
    """The platform, the data, and the seconds of each query by kind of run."""

    platform: DemoPlatform
    folder: Path
    out: Path
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    def run(self, query: Query, kind: str, *more: str) -> pa.Table:
        """Runs it once, measures its time and returns its answer."""
        answer, page = self.out / f"{query.name}.arrow", self.out / f"{query.name}-{kind}.html"
        command = ["sql", "-f", shown(query.file)]
        command += ["--table", f"{query.table}={shown(self.folder / query.table)}"]
        if query.uses_function:
            command += ["--udf", "demo/udfs.py"]
        command += ["--profile-out", shown(page), "-o", "arrow", "-O", shown(answer), *more]
        if not more:
            say(f"$ snowmelt {shlex.join(command)}")
        start = time.perf_counter()
        code = self.platform.run(command, cwd=CHECKOUT)
        self.seconds.setdefault(query.name, {})[kind] = time.perf_counter() - start
        if code != 0:
            sys.exit(f"the query failed with exit code {code}; `snowmelt doctor` may say why")
        return peers.read_arrow(answer)

    def first(self, query: Query) -> None:
        """Runs it with a new platform, prints the answer and compares it with DuckDB's."""
        say(f"\n== {query.title}")
        ours = self.run(query, "install" if query.uses_function else "cold")
        say(ours.to_pandas().to_string(index=False, max_rows=10, na_rep="NULL"))
        theirs = duckdb(query, self.folder)
        if wrong := difference(ours, theirs.table, ordered=True):
            sys.exit(f"WRONG ANSWER of {query.name}, DuckDB's answer differs: {wrong}")
        self.seconds[query.name]["DuckDB"] = theirs.seconds
        say("the same answer as DuckDB's")
        if query.uses_function:
            self.run(query, "cold", "--progress", "quiet")

    def warm(self, queries: Sequence[Query]) -> None:
        """Runs each twice on a running server: the second run uses idle sandboxes."""
        with self.platform.kept():
            for query in queries:
                for _ in range(2):
                    self.run(query, "warm", "--progress", "quiet")


def duckdb(query: Query, folder: Path) -> peers.Answer:
    """DuckDB's answer, inside this process; it calls the decorated function as a plain one."""
    import udfs

    def country(phone: str) -> str | None:
        return udfs.country(phone)

    known: list[peers.Function] = [("country", country, [VARCHAR], VARCHAR)]
    tables = {query.table: folder / query.table}
    cores = os.cpu_count() or 1
    return peers.duck_answer(
        query.file.read_text(), tables, cores, known if query.uses_function else []
    )


def table_of(seconds: dict[str, dict[str, float]]) -> str:
    kinds = ["install", "cold", "warm", "DuckDB"]
    lines = [f"{'seconds':<10}" + "".join(f"{kind:>10}" for kind in kinds)]
    for name, row in seconds.items():
        cells = [f"{row[kind]:.2f}" if kind in row else "-" for kind in kinds]
        lines.append(f"{name:<10}" + "".join(f"{cell:>10}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    os.chdir(CHECKOUT)
    # As in `. scripts/env`: the resolver is beside this Python.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    out = DATA / "demo"
    out.mkdir(parents=True, exist_ok=True)
    say(f"TPC-H at scale factor {SCALE} in {shown(DATA)}/tpch/sf{SCALE} (generated once)")
    folder = tpch(SCALE, ["lineitem", "customer"])
    with demo_platform(SNOWMELT) as platform:
        demo = Demo(platform, folder, out)
        for query in QUERIES:
            demo.first(query)
        say("\n== the same with a running server (snowmelt up, snowmelt down)")
        demo.warm(QUERIES)
        say(table_of(demo.seconds))
        say("install  the whole command; packages are resolved, downloaded and unpacked first")
        say("cold     the whole command; platform and sandboxes are started and removed again")
        say("warm     the whole command with a running server and idle sandboxes")
        say("DuckDB   only the query, inside a running process\n")
        if left := platform.remaining_within(GONE_WITHIN_S):
            say("LEFT BEHIND:")
            sys.exit("\n".join(f"  {thing}" for thing in left))
    say("nothing is left behind: no process, mount, control group or file")
    say(f"profile: open {shown(out)}/country-install.html in a browser")
    say("next: . scripts/env, then `snowmelt --help`, and README.md")


if __name__ == "__main__":
    main()
