"""What the experiments on functions in other engines share: functions, their tables, the ways to
call them, and rounds in which the ways take turns.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

import snowmelt as sm
from common.figures import median
from common.paths import BENCH
from common.server import Server
from peers import udf_functions
from snowmelt.engines import Remote

T = TypeVar("T")

ROWS = [int(n) for n in os.environ.get("SNOWMELT_BENCH_UDF_ROWS", "100000,1000000").split(",")]
# Rounds of a measurement: fewer if they take longer than this, but not less than the least.
RUNS, LEAST_RUNS = 5, 3
PATIENCE_S = float(os.environ.get("SNOWMELT_BENCH_UDF_SECONDS", "15"))
THREADS = 2
# Rows of a batch, as in the paper, and of a round that is not counted.
BATCH = 10_000
TRANSPORTS = ("socket", "shared")
# Those of other systems as well.
COMPARED = (*TRANSPORTS, "flight", "numpy", "parquet", "mlflow", "json")
# The slowest ones: a second for 10,000 rows.
TEXTS = ("mlflow", "json")
SPARK = BENCH / "peers/spark_functions.py"
DOUBLES = [float] * udf_functions.INPUTS

FOREST, FACTOR = "forest of 28 inputs", "largest prime factor"
FACTOR_OF_28, ONE = "largest prime factor of one of 28 inputs", "one of 28 inputs"
# For each function its code, the types of its arguments, and that of its result.
FUNCTIONS: dict[str, tuple[Any, list[Any], Any]] = {
    FOREST: (udf_functions.forest, DOUBLES, float),
    FACTOR: (udf_functions.largest_factor, [int], int),
    FACTOR_OF_28: (udf_functions.largest_factor_of_last, [*DOUBLES[1:], int], int),
    ONE: (udf_functions.first, DOUBLES, float),
}
# Those that all engines run with all numbers of rows.
QUERIED = (FOREST, FACTOR, ONE)
NATIVE, RELOADED = "native", "native, model for each batch"


@contextmanager
def platform(folder: Path | None = None) -> Iterator[Server]:
    """A platform in this folder, or in a new one, which the functions of this process use."""
    with tempfile.TemporaryDirectory(prefix="sm-") as name, Server(folder or Path(name)) as server:
        os.environ["SNOWMELT_SOCKET"] = str(server.socket)
        try:
            yield server
        finally:
            del os.environ["SNOWMELT_SOCKET"]


def made(
    function: Any,
    kinds: Sequence[Any],
    returns: Any,
    transport: str,
    instances: int = 1,
    *,
    packages: Sequence[str] = ("numpy",),
    mark: str = "",
    **options: Any,
) -> Remote:
    """A function over Arrow arrays, in sandboxes. Another `mark` makes it another function for the
    platform, so that it has no instance."""
    names = ", ".join(f"x{n}" for n in range(len(kinds)))
    scope = {"function": function}
    exec(f"def called({names}):\n    {mark!r}\n    return function({names})", scope)
    udf = sm.udf(
        batch="arrow", args=kinds, returns=returns, packages=packages, name="called", **options
    )
    return Remote(udf(scope["called"]), instances=instances, transport=transport)


def remote(label: str, transport: str, instances: int, mark: str = "") -> Remote:
    return made(*FUNCTIONS[label], transport, instances, mark=mark)


def natives(label: str) -> dict[str, Any]:
    """The ways to run a function in the engine itself. The paper's loads its model for each batch,
    which is only worth a name for a function with a model."""
    ways = {NATIVE: FUNCTIONS[label][0]}
    if label == FOREST:
        ways[RELOADED] = udf_functions.forest_for_each_batch
    return ways


def column_names(kinds: Sequence[Any]) -> list[str]:
    """The columns of the tables here that a function takes."""
    return ["n" if kind is int else f"x{place}" for place, kind in enumerate(kinds)]


def arguments(count: int, chunks: int = 1) -> pa.Table:
    """The columns of all functions. An engine with threads needs several chunks."""
    numbers = np.random.default_rng(2)
    columns = {f"x{n}": numbers.random(count) for n in range(udf_functions.INPUTS)}
    table = pa.table({**columns, "n": numbers.integers(1 << 17, 1 << 18, count)})
    return pa.Table.from_batches(table.to_batches(max_chunksize=-(-count // chunks)))


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@dataclass
class Taken:
    """Seconds of each run of a way."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def in_turns(
    ways: Mapping[str, Callable[[T], float]],
    table: T,
    small: T,
    cpu: Callable[[], float] = time.process_time,
    runs: int = RUNS,
) -> dict[str, Taken]:
    """Each way over the small table, which is not counted, then rounds over the table. Raises
    `RuntimeError` if ways give other answers."""
    taken, answers = {way: Taken() for way in ways}, set()
    for call in ways.values():
        call(small)
    begun = time.perf_counter()
    for turn in range(runs):
        if turn >= min(LEAST_RUNS, runs) and time.perf_counter() - begun > PATIENCE_S:
            break
        for way, call in ways.items():
            before, start = cpu(), time.perf_counter()
            answers.add(round(call(table), 3))
            taken[way].wall.append(time.perf_counter() - start)
            taken[way].cpu.append(cpu() - before)
    if max(answers) - min(answers) > 1e-9 * abs(max(answers)) + 0.002:
        raise RuntimeError(f"answers differ: {answers}")
    return taken


def ratio(taken: Mapping[str, Taken], way: str, to: str = NATIVE) -> float:
    """The time of a way as a multiple of that of another one."""
    return median(taken[way].wall) / median(taken[to].wall)


def spark(experiment: str, *rows: int, runs: int = RUNS) -> dict[tuple[str, int], dict[str, Taken]]:
    """An experiment of `peers/spark_functions.py`, by label and rows. Its processor time is without
    that of sandboxes."""
    command = [sys.executable, str(SPARK), experiment, f"{THREADS}", f"{runs}", *map(str, rows)]
    # Its workers import the native functions.
    places = [str(BENCH), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    found: dict[tuple[str, int], dict[str, Taken]] = {}
    for line in done.stdout.splitlines():
        one = json.loads(line)
        taken = {way: Taken(**times) for way, times in one["taken"].items()}
        found[one["label"], one["rows"]] = taken
    return found
