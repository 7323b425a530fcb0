"""Memory of many tasks with one large model: in sandboxes that share it, in sandboxes that do not,
and in native processes.

The issue behind it: sixteen tasks of an engine with a model of 500 MB have it sixteen times.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import snowmelt as sm
from common.figures import Section
from common.paths import BENCH
from common.processes import memory_below
from common.server import Server
from engine_calls import made, platform
from peers.model_holder import model as native_model
from snowmelt.engines import Remote

TASKS = 16
MODEL_MB = int(os.environ.get("SNOWMELT_BENCH_MODEL_MB", "500"))
MODEL_BYTES = MODEL_MB * 1_000_000
# The bar: all sandboxes and zygotes together, in copies of the model.
MAX_COPIES = 1.2
HOLDER = BENCH / "peers/model_holder.py"
MIB = 1 << 20


@dataclass(frozen=True)
class Held:
    """The memory of tasks that have used their model."""

    tasks: int
    bytes: int
    # Until all of them have answered.
    seconds: float
    models: int
    # Memory of the zygotes that have run a shared set-up.
    zygotes: int = 0

    @property
    def copies(self) -> float:
        """The total, in models."""
        return self.bytes / MODEL_BYTES

    @property
    def rest(self) -> float:
        """What each task has beside the models."""
        return (self.bytes - self.models * MODEL_BYTES) / self.tasks


def function(shared: bool) -> Remote:
    """The sum of the model, which all of it is read for."""
    megabytes = MODEL_MB
    # Any: its option is newer than some platforms that are measured.
    setup: Any = sm.setup

    def load() -> Any:
        import numpy

        return numpy.random.default_rng(7).random(megabytes * 1_000_000 // 8)

    model = setup(shared=True)(load) if shared else setup(load)

    def summed(numbers: pa.Array) -> pa.Array:
        import pyarrow

        return pyarrow.array([float(model().sum())] * len(numbers))

    memory = f"{2 * MODEL_MB + 256}MB"
    return made(summed, [int], float, "auto", TASKS, mark=f"{shared}", memory=memory)


def in_sandboxes(shared: bool, wanted: float) -> Held:
    """As many leases as tasks, all at the same time."""
    with platform() as server, function(shared) as called, ThreadPoolExecutor(TASKS) as pool:
        row = pa.record_batch([pa.array([1])], schema=called.arguments)
        begun = time.perf_counter()
        leases = list(pool.map(lambda _: called.lease(), range(TASKS)))
        answers = list(pool.map(lambda lease: lease.call(row)[0].as_py(), leases))
        seconds = time.perf_counter() - begun
        if any(abs(answer - wanted) > 1e-6 * wanted for answer in answers):
            raise RuntimeError(f"answers differ from {wanted}: {answers}")
        pid, zygotes = server.status()["pid"], of_set_ups(server)
        # The server and the spawner are not the functions'.
        memory = [size for name, size in memory_below(pid).items() if name.split()[0] != "snowmelt"]
        for lease in leases:
            lease.give_back()
    return Held(TASKS, sum(memory), seconds, 1 if shared else TASKS, zygotes)


def of_set_ups(server: Server) -> int:
    top = json.loads(server.run("top", "-o", "json"))
    zygotes = top["node"]["imports"]["zygotes"]
    return sum(zygote["bytes"] for zygote in zygotes if zygote.get("set_up"))


@contextmanager
def holders(count: int) -> Iterator[list[int]]:
    """Native processes that have loaded their model."""
    command = [sys.executable, str(HOLDER), str(MODEL_MB)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            if not process.stdout.readline().startswith("ready"):
                raise RuntimeError("a native process did not load its model")
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()


def natively(count: int) -> Held:
    begun = time.perf_counter()
    with holders(count) as pids:
        seconds = time.perf_counter() - begun
        memory = [size for pid in pids for size in memory_below(pid).values()]
    return Held(count, sum(memory), seconds, count)


def room() -> int:
    """How many native processes the machine has room for, with a third of its memory left."""
    line = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line
    )
    return int(int(line.split()[1]) * 1024 * 2 / 3 / (MODEL_BYTES + 128 * MIB))


def run(section: Section) -> None:
    wanted = float(native_model(MODEL_MB).sum())
    counts = sorted({1, 4, min(TASKS, max(4, room()))})
    ways = {
        f"native, {count} process{'es' if count > 1 else ''}": natively(count) for count in counts
    }
    ways["sandboxes, `@sm.setup`"] = in_sandboxes(False, wanted)
    shared = in_sandboxes(True, wanted)
    ways["sandboxes, `@sm.setup(shared=True)`"] = shared
    one = ways["native, 1 process"].bytes
    rows = [
        [
            way,
            held.tasks,
            f"{held.bytes / MIB:,.0f}",
            f"{held.copies:.2f}",
            f"{held.bytes / one:.2f}",
            f"{held.rest / MIB:.1f}",
            f"{held.seconds:.2f}",
        ]
        for way, held in ways.items()
    ]
    section.say(
        f"Memory of tasks with a model of {MODEL_MB} MB (an array of random numbers), each of which"
        " has read all of it: the proportional set size of all sandboxes and zygotes, or of the"
        " native processes (Python with numpy and pyarrow, without their engine)."
        f" {TASKS} leases at the same time, as {TASKS} tasks of an engine have. *Copies*: the total"
        " as a multiple of the model; *of one process*: as one of the memory of a native process."
        " *Rest*: what is left of it for each task without the model,"
        f" or models. *Ready*: until all have answered, on {os.cpu_count()} cores. The zygote with"
        f" the shared model has {shared.zygotes / MIB:,.0f} MiB."
    )
    section.table(
        ["way", "tasks", "MiB", "copies", "of one process", "rest, MiB each", "ready, s"], rows
    )
    section.promise(
        f"Memory of {TASKS} tasks with a shared model of {MODEL_MB} MB",
        f"at most {MAX_COPIES} copies",
        f"{shared.copies:.2f}",
        shared.copies <= MAX_COPIES,
    )
