"""A Spark session during a block: time and processor time of its start and of its queries."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import line_client
from .paths import BENCH
from .processes import cpu_seconds_below

PROGRAM = BENCH / "peers/spark_session.py"


@dataclass(frozen=True)
class Taken:
    """Seconds; the processor time is that of Python and of the JVM below it."""

    wall: float
    cpu: float


@dataclass
class Session:
    """A running session."""

    client: line_client.LineClient
    # From the start of the process until it answers.
    start: Taken
    version: str

    def read(self, data: Path) -> None:
        """The tables of this folder are those of the queries that follow."""
        self.client.ask({"tables": str(data)})

    def ask(self, sql: str, answer: Path | None = None) -> Taken:
        """Runs a query; `answer` gets its rows as an Arrow file."""
        request = {"sql": sql.strip().removesuffix(";")}
        if answer is not None:
            request["answer"] = str(answer)
        before = cpu_seconds_below(self.client.process.pid)
        wall = float(self.client.ask(request)["wall"])
        return Taken(wall, cpu_seconds_below(self.client.process.pid) - before)


@contextmanager
def session(threads: int, tables: Sequence[str]) -> Iterator[Session]:
    """Spark as `local[threads]` in processes of its own."""
    begun = time.perf_counter()
    command = [sys.executable, str(PROGRAM), f"{threads}", *tables]
    with line_client.started(command) as client:
        version = str(client.said()["version"])
        cpu = cpu_seconds_below(client.process.pid)
        yield Session(client, Taken(time.perf_counter() - begun, cpu), version)
