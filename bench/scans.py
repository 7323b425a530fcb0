"""Scans of Parquet files on S3: Q6 of TPC-H against a client that only reads the same ranges, the
sizes of workers and their files (Lambada, Figure 10), and push-downs (Figure 11)."""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from common import plots, s3
from common.asked import Run, ask, environment, platform
from common.figures import Section, median, short, spread
from common.paths import CHECKOUT, scratch, tpch
from common.ranges import needed
from scan_throughput import behind_link, on_loopback

SCALE = os.environ.get("SNOWMELT_BENCH_SCANS_SCALE", "1")
# The paper has 320 files and up to as many workers.
FILES = int(os.environ.get("SNOWMELT_BENCH_SCANS_FILES", "16"))
FILES_EACH = [8, 4, 2, 1]
MEMORY = ["256MiB", "512MiB", "1GiB", "2GiB"]
RUNS = 3
WORKERS = 2
BUCKET = "scans"
Q1 = (CHECKOUT / "demo/queries/q1.sql").read_text()
Q6 = (CHECKOUT / "demo/queries/q6.sql").read_text()
Q6_COLUMNS = ["l_quantity", "l_extendedprice", "l_discount", "l_shipdate"]


def split(table: Any, folder: Path) -> None:
    """Files of the same number of rows, each with one row group."""
    folder.mkdir()
    rows = -(-table.num_rows // FILES)
    for number in range(FILES):
        part = table.slice(number * rows, rows)
        file = folder / f"{number:04}.parquet"
        pq.write_table(part, file, compression="zstd", compression_level=1, row_group_size=rows)


def upload(store: s3.Store, folder: Path) -> None:
    """The table as generated, which is by the key, and sorted by the date as in the paper."""
    table = ds.dataset(tpch(SCALE, ["lineitem"]) / "lineitem").to_table()
    for name, rows in (("by-key", table), ("by-date", table.sort_by("l_shipdate"))):
        split(rows, folder / name)
        fs.copy_files(
            str(folder / name),
            f"{BUCKET}/{name}",
            source_filesystem=fs.LocalFileSystem(),
            destination_filesystem=store.files(),
        )


def location(name: str) -> str:
    return f"s3://{BUCKET}/{name}/"


def requests(section: Section, store: s3.Store, folder: Path) -> None:
    """Requests and bytes of Q6, counted by the store, against what the columns need. A platform of
    its own, which has kept no footer yet."""
    wanted = needed(folder / "by-key", BUCKET, Q6_COLUMNS)
    with scratch() as own, platform(own) as processes, environment(store.variables):
        options = {"memory": "512MiB", "lineitem": location("by-key")}

        def counted(sql: str) -> tuple[Run, Counter[str]]:
            before = store.requests()
            run = ask(sql, processes, workers=FILES, **options)
            return run, store.requests() - before

        first, at_first = counted(Q6)
        plan, _ = counted(f"explain cost {Q6}")
        later, at_later = counted(Q6)
    # Planning reads each footer in one request, and tasks are sent it.
    least = len(wanted.ranges)
    rows = [
        ["its columns and footers, first query", least + FILES, "", ""],
        requests_of("first query", first, at_first),
        ["its columns, later query", least, "", f"{wanted.bytes / 1e6:.2f}"],
        requests_of("later query", later, at_later),
    ]
    total = plan.answer.to_pylist()[-1]
    megabytes = f"{total['bytes_read'] / 1e6:.2f}"
    rows.append(["later query, by EXPLAIN COST", total["reads"], total["lists"], megabytes])
    section.say(
        f"Requests and bytes of Q6 with a worker for each of {FILES} files, by the profile; in"
        " brackets those that the store has counted. A footer is read by the first query over a"
        " file, and kept."
    )
    section.table(["", "GET and HEAD", "LIST", "MB of the scan"], rows)
    found = (at_first["read"], at_later["read"], total["reads"])
    section.promise(
        "reads of Q6 on S3, counted by the store, against what its columns and footers need",
        "equal, and as EXPLAIN COST says",
        f"{found[0]} of {least + FILES}; with kept footers {found[1]} of {least};"
        f" EXPLAIN COST {found[2]}",
        found == (least + FILES, least, least),
    )
    more = (later.profile["totals"]["progress"]["bytes_read"] / wanted.bytes - 1) * 100
    section.promise(
        "bytes that Q6 reads from S3 against its column chunks",
        "at most 15 % more: gaps below 1 MiB are read, because each saves a request",
        f"{more:.2f} % more",
        more <= 15,
    )


def requests_of(name: str, run: Run, counted: Counter[str]) -> list[str]:
    """Those of the profile, and those of the store in brackets."""
    bill = run.profile["cost"]["requests"]
    read = run.profile["totals"]["progress"]["bytes_read"]
    reads = bill["scan_reads"] + bill["plan_reads"]
    return [
        name,
        f"{reads} [{counted['read']}]",
        f"{bill['lists']} [{counted['list']}]",
        f"{read / 1e6:.2f}",
    ]


@dataclass
class Configured:
    """Q1 with workers of one size, each with some files."""

    cold: Run
    hot: list[Run]

    @staticmethod
    def dollars(run: Run) -> float:
        return float(run.profile["cost"]["functions"]["total"]) * 1000


def configurations(section: Section, store: s3.Store, folder: Path) -> None:
    """Figure 10. A platform for each size, so that its first query finds no worker."""
    found: dict[tuple[str, int], Configured] = {}
    for memory in MEMORY:
        for each in FILES_EACH:
            with platform(folder) as processes, environment(store.variables):
                options = {"workers": max(FILES // each, 1), "lineitem": location("by-key")}
                runs = [ask(Q1, processes, memory=memory, **options) for _ in range(RUNS + 1)]
                found[memory, each] = Configured(runs[0], runs[1:])
    section.say(
        f"Q1 with workers of several sizes, each with F of the {FILES} files (Figure 10). *cold*:"
        f" the first query of a platform. Hot runs are medians of {RUNS}. Dollars are those of the"
        " profile as functions, for 1,000 queries. Unlike on AWS, a worker's share of the"
        " processors does not depend on its memory, and all share two."
    )
    rows = [
        [
            memory,
            each,
            max(FILES // each, 1),
            short(of.cold.wall),
            spread([run.wall for run in of.hot]),
            spread([run.cpu for run in of.hot]),
            f"{of.dollars(of.cold):.3f}",
            f"{median([of.dollars(run) for run in of.hot]):.3f}",
        ]
        for (memory, each), of in found.items()
    ]
    head = ["memory", "F", "workers", "cold, s", "hot, s", "hot, CPU s", "cold, $", "hot, $"]
    section.table(head, rows)
    curves = {
        memory: [
            (
                median([Configured.dollars(run) for run in found[memory, each].hot]),
                median([run.wall for run in found[memory, each].hot]),
            )
            for each in FILES_EACH
        ]
        for memory in MEMORY
    }
    section.plot(
        "scans-workers",
        f"Q1 on S3: time against cost by the memory of a worker; points of a line from left to"
        f" right are F = {', '.join(map(str, FILES_EACH))} files for each worker",
        plots.progress("$ for 1,000 queries (as functions)", "s (median, hot)", curves),
    )


def full(folder: Path) -> str:
    """A query that needs every column. Without its filter it would be answered by statistics."""
    [first, *_] = sorted(folder.iterdir())
    names = pq.ParquetFile(first).schema_arrow.names
    columns = ", ".join(f"max({name}) as {name}" for name in names)
    return f"select {columns} from lineitem where l_orderkey + l_partkey > 0"


PROJECTED = (
    "select sum(l_extendedprice * l_discount) as revenue, sum(l_quantity) as quantity,"
    " max(l_shipdate) as shipped from lineitem"
)


def push_downs(section: Section, store: s3.Store, folder: Path) -> None:
    """Figure 11: a worker for each file, in the order of their time."""
    cases: dict[str, tuple[str, str]] = {
        "all columns": (full(folder / "by-key"), "by-key"),
        "Q1, 7 columns": (Q1, "by-date"),
        "4 columns": (PROJECTED, "by-key"),
        "Q6, files by key": (Q6, "by-key"),
        "Q6, files by date": (Q6, "by-date"),
    }
    runs: dict[str, list[Run]] = {name: [] for name in cases}
    with platform(folder) as processes, environment(store.variables):
        for round_ in range(RUNS + 1):
            for name, (sql, table) in cases.items():
                options = {"workers": FILES, "memory": "512MiB", "lineitem": location(table)}
                runs[name] += [ask(sql, processes, **options)][: round_ > 0]
    rows = []
    for name, found in runs.items():
        stage = found[-1].profile["stages"][0]
        progress = found[-1].profile["totals"]["progress"]
        rows.append(
            [
                name,
                stage["tasks"],
                f"{stage['bytes_read'] / 1e6:.1f}",
                progress["store_reads"],
                spread([run.wall for run in found]),
                spread([run.cpu for run in found]),
                f"{median([Configured.dollars(run) for run in found]):.3f}",
            ]
        )
    section.say(
        f"Push-downs (Figure 11): as many workers of 512 MiB as files, at most {FILES}. *by date*"
        " is sorted by l_shipdate as in the paper: a file whose statistics contradict the filter is"
        " not opened, and no worker is started for it; the paper's workers start, read the footer"
        " and end."
    )
    head = ["", "tasks", "MB read", "reads of tasks", "s", "CPU s", "$ for 1,000 queries"]
    section.table(head, rows)
    section.plot(
        "scans-push-downs",
        "Processing time of the workers, each line in ascending order",
        plots.ranked("workers", "ms", {name: processing(found) for name, found in runs.items()}),
    )
    promise_push_downs(section, runs)


def processing(runs: list[Run]) -> list[float]:
    """Milliseconds that each worker of the scan ran, in the run with the median time."""
    run = sorted(runs, key=lambda run: run.wall)[len(runs) // 2]
    lanes = [lane for lane in run.profile["lanes"] if lane["stage"] == 0]
    return sorted(
        (lane["done_us"] - max(lane["began_us"], lane["ready_us"])) / 1e3 for lane in lanes
    )


def promise_push_downs(section: Section, runs: dict[str, list[Run]]) -> None:
    def read(name: str) -> int:
        return int(runs[name][-1].profile["stages"][0]["bytes_read"])

    fewer = read("all columns") / read("4 columns")
    section.promise(
        "bytes of a scan of 4 columns against one of all 16",
        "at least 2 times fewer",
        f"{fewer:.2f} times fewer",
        fewer >= 2,
    )
    tasks = {name: found[-1].profile["stages"][0]["tasks"] for name, found in runs.items()}
    share = tasks["Q6, files by date"] / tasks["Q6, files by key"] * 100
    section.promise(
        "workers that Q6 starts on files sorted by date",
        "at most 30 % of the files (the year is 15 % of the rows)",
        f"{share:.0f} %",
        share <= 30,
    )


def run() -> Section:
    section = Section("Scans from S3")
    section.say(
        f"lineitem of TPC-H at scale factor {SCALE} in {FILES} files of one row group on SeaweedFS,"
        " which shares the two processors of this machine with the engine. Processor time is that"
        " of the platform and its sandboxes, without SeaweedFS."
    )
    section.commands.append(
        f"SNOWMELT_BENCH_SCANS_SCALE={SCALE} SNOWMELT_BENCH_SCANS_FILES={FILES}"
        " python bench/run.py scans"
    )
    section.commands.append(
        f"snowmelt sql -f demo/queries/q6.sql --table lineitem={location('by-key')}"
        f" --workers {WORKERS} --memory 512MiB"
    )
    with scratch() as folder, s3.running(BUCKET) as store:
        upload(store, folder)
        on_loopback(section, store, folder / "by-key", Q6_COLUMNS)
        requests(section, store, folder)
        configurations(section, store, folder)
        push_downs(section, store, folder)
        behind_link(section, folder / "by-key", Q6_COLUMNS)
    return section
