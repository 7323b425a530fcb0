"""EXPLAIN COST against what the queries of TPC-H then use: requests, bytes and seconds.

    python bench/costs.py data/tpch/sf1 --workers 2 --operators

Run it on a quiet machine: seconds depend on what else runs. `--operators` also prints processor
nanoseconds for each row of input, by operator: the constants of `crates/plan/src/cost/work.rs`.
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import snowmelt as sm
from common.paths import CHECKOUT

QUERIES = sorted((CHECKOUT / "tests" / "tpch").glob("q*.sql"))


def measured(sql: str, tables: dict[str, Any], workers: int, runs: int) -> dict[str, Any]:
    """The profile of the run with the least processor time."""
    profiles = []
    for _ in range(runs):
        query = sm.sql(sql, workers=workers, udfs=[], progress=False, **tables)
        query.collect()
        assert query.profile is not None
        profiles.append(query.profile)
    return min(profiles, key=lambda profile: profile["totals"]["cpu_seconds"])


def estimated(sql: str, tables: dict[str, Any], workers: int) -> dict[str, Any]:
    """The row `total` of EXPLAIN COST, with the seconds of the stages alone."""
    query = sm.sql(f"explain cost {sql}", workers=workers, udfs=[], progress=False, **tables)
    rows = query.collect().to_pylist()
    stages = [row for row in rows if row["part"].startswith("stage")]
    total: dict[str, Any] = rows[-1]
    total["stage_cpu"] = sum(row["cpu_seconds"] for row in stages)
    total["stage_held"] = sum(row["function_seconds"] for row in stages)
    return total


def by_operator(profile: dict[str, Any], sums: dict[str, list[float]]) -> None:
    """Adds the nanoseconds and the rows of input of each operator."""
    operators = profile["operators"]
    for index, operator in enumerate(operators):
        inputs = []
        for below in operators[index + 1 :]:
            if below["depth"] <= operator["depth"]:
                break
            if below["depth"] == operator["depth"] + 1:
                inputs.append(below["rows"])
        name = operator["name"].split(":")[0]
        rows = sum(inputs) if inputs else operator["rows"]
        sums[name][0] += operator["compute_nanos"]
        sums[name][1] += rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--operators", action="store_true")
    arguments = parser.parse_args()
    tables = {path.name: path for path in sorted(arguments.folder.iterdir()) if path.is_dir()}
    tables = {name: path for name, path in tables.items() if not name.startswith(".")}
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    print("estimate, measured, ratio: CPU s, function-seconds, MiB exchanged")
    for file in QUERIES:
        sql = file.read_text()
        # Not those in texts.
        words = set(re.findall(r"\w+", re.sub("'[^']*'", "", sql.lower())))
        used = {name: path for name, path in tables.items() if name in words}
        profile = measured(sql, used, arguments.workers, arguments.runs)
        estimate = estimated(sql, used, arguments.workers)
        totals = profile["totals"]
        cpu, held = totals["cpu_seconds"], totals["function_seconds"]
        by_operator(profile, sums)
        pairs = [
            (estimate["stage_cpu"], cpu),
            (estimate["stage_held"], held),
            (estimate["bytes_exchanged"] / 2**20, totals["bytes_exchanged"] / 2**20),
        ]
        cells = [f"{before:8.2f} {after:8.2f} {before / after:6.2f}" for before, after in pairs]
        print(f"{file.stem:5}", *cells, sep="  ")
    if arguments.operators:
        for name, (nanos, rows) in sorted(sums.items(), key=lambda item: -item[1][0]):
            print(
                f"{name:28} {nanos / 1e9:8.2f} s {rows:14,.0f} rows {nanos / max(rows, 1):8.1f} ns"
            )


if __name__ == "__main__":
    main()
