"""One function in other engines: native, and in sandboxes by each transport, beside what the CAGE
paper found (sections 4 and 5).

`SNOWMELT_BENCH_UDF_PARTS=memory,starts` measures only some parts.
"""

import os
import sys
from collections.abc import Callable
from functools import partial

import engine_builds
import engine_groups
import engine_memory
import engine_queries
import engine_starts
import engine_transports
from common.figures import Section
from engine_calls import platform, seconds


def queries(section: Section) -> None:
    with platform() as server:
        engine_queries.run(section, server)


def transports(section: Section) -> None:
    with platform():
        engine_transports.run(section)


def groups(section: Section) -> None:
    with platform():
        engine_groups.run(section)


PARTS: dict[str, Callable[[Section], None]] = {
    "queries": queries,
    "transports": transports,
    "groups": groups,
    "starts": engine_starts.run,
    "memory": engine_memory.run,
    "builds": engine_builds.run,
}


def run() -> Section:
    section = Section("Functions in other engines")
    asked = os.environ.get("SNOWMELT_BENCH_UDF_PARTS", ",".join(PARTS)).split(",")
    section.commands.append("python bench/run.py udfs")
    for name in asked:
        taken = seconds(partial(PARTS[name], section))
        print(f"--- udfs, {name}: {taken:.0f} s", file=sys.stderr, flush=True)
    return section
