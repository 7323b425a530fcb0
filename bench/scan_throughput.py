"""The throughput of a scan from S3 against a client that only reads the same ranges: behind a link
of 1 Gbit/s, where the link is the bound, and on the loopback, where the processors are."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from common import lab_store, s3
from common.asked import Run, ask, environment, platform
from common.figures import Section, median, short, spread
from common.lab import Lab
from common.paths import CHECKOUT
from common.ranges import Needed, needed, read_in_network, read_ranges

Q6 = (CHECKOUT / "demo/queries/q6.sql").read_text()
BUCKET = "scans"
ROUNDS = 5
CONCURRENT = [2, 8, 32]
WORKERS = [2, 16]
MEMORY = "512MiB"
LINK, HOST, STORE = "1gbit", "host-1", "host-2"
# So many copies of the files behind the link, because one is read in less than half a second.
COPIES = 4

Raw = dict[int, list[float]]
Runs = dict[int, list[Run]]


def scan_seconds(run: Run) -> float:
    """From the first worker that was asked for to the end of the last task of the scan."""
    stage = run.profile["stages"][0]
    return float(stage["to_us"] - stage["from_us"]) / 1e6


def take_turns(raw: Callable[[int], float], query: Callable[[int], Run]) -> tuple[Raw, Runs]:
    """The raw client with several requests at once, and Q6 with several workers; the first round
    is not counted."""
    reads: Raw = {concurrent: [] for concurrent in CONCURRENT}
    runs: Runs = {workers: [] for workers in WORKERS}
    for round_ in range(ROUNDS + 1):
        for concurrent, seconds in reads.items():
            seconds += [raw(concurrent)][: round_ > 0]
        for workers, found in runs.items():
            found += [query(workers)][: round_ > 0]
    return reads, runs


def on_loopback(section: Section, store: s3.Store, files: Path, columns: list[str]) -> None:
    wanted = needed(files, BUCKET, columns)
    with tempfile.TemporaryDirectory(prefix="sm-") as folder, platform(Path(folder)) as processes:

        def query(workers: int) -> Run:
            options = {"memory": MEMORY, "lineitem": f"s3://{BUCKET}/{files.name}/"}
            with environment(store.variables):
                return ask(Q6, processes, workers=workers, **options)

        raw, runs = take_turns(lambda n: read_ranges(store, wanted, n), query)
    section.say(
        "Throughput of a scan on the loopback, where all share the processors: `ranges alone` is a"
        f" client (Arrow's C++ S3 client) that reads the {len(wanted.ranges)} ranges with the"
        f" {len(columns)} columns of Q6, and drops them. The scan of Q6 is its first stage, from"
        f" the first worker that it asks for. Workers of {MEMORY}; {ROUNDS} rounds after one that"
        " is not counted, taking turns."
    )
    table(section, wanted, raw, runs)


def behind_link(section: Section, files: Path, columns: list[str]) -> None:
    # The name of a socket may have 107 bytes only.
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/tmp") as folder:
        copies = files.parent / "copies"
        copy(files, copies)
        wanted = needed(copies, BUCKET, columns)
        with Lab(Path(folder) / "lab", 2, LINK, "9GiB") as lab:
            lab_store.remove(lab, STORE)
            with lab_store.running(lab, STORE, BUCKET, {copies.name: copies}) as store:
                raw, runs = measure_behind_link(lab, store, wanted)
    section.say(
        f"The same behind a link of 1 Gbit/s: SeaweedFS is on another host of a lab, and has"
        f" {COPIES} copies of each file, {len(wanted.files)} files in all."
    )
    rate = table(section, wanted, raw, runs)
    megabytes = sum(part.length for part in wanted.ranges) / 1e6
    best = max(megabytes / median(seconds) for seconds in raw.values())
    workers = max(rate, key=lambda workers: rate[workers])
    share = rate[workers] / best * 100
    section.promise(
        "throughput of the scan of Q6 from S3 behind 1 Gbit/s against a client that only reads the"
        " ranges",
        "at least 90 %",
        f"{share:.0f} % with {workers} workers ({short(rate[workers])} of {short(best)} MB/s)",
        share >= 90,
    )


def copy(files: Path, to: Path) -> None:
    to.mkdir()
    for file in files.iterdir():
        for number in range(COPIES):
            os.link(file, to / f"{number}-{file.name}")


def measure_behind_link(lab: Lab, store: s3.Store, wanted: Needed) -> tuple[Raw, Runs]:
    def query(workers: int) -> Run:
        options = {"memory": MEMORY, "lineitem": f"s3://{BUCKET}/copies/"}
        return ask(Q6, lab.processes(), workers=workers, **options)

    inside = lab.inside(HOST)
    with environment({"SNOWMELT_SOCKET": str(lab.socket), **store.variables}):
        return take_turns(
            lambda n: read_in_network(inside, lab.environment, store, wanted, n), query
        )


def table(section: Section, wanted: Needed, raw: Raw, runs: Runs) -> dict[int, float]:
    """MB/s of Q6 by the number of workers."""
    megabytes = sum(part.length for part in wanted.ranges) / 1e6
    rows = [
        [f"ranges alone, {n} at once", spread(seconds), "", short(megabytes / median(seconds)), ""]
        for n, seconds in raw.items()
    ]
    rate = {}
    for workers, found in runs.items():
        scans = [scan_seconds(run) for run in found]
        read = median([run.profile["stages"][0]["bytes_read"] for run in found]) / 1e6
        rate[workers] = read / median(scans)
        walls, cpu = spread([run.wall for run in found]), spread([run.cpu for run in found])
        rows.append([f"Q6, {workers} workers", spread(scans), walls, short(rate[workers]), cpu])
    section.say(f"{megabytes:.0f} MB in {len(wanted.ranges)} ranges:")
    section.table(["", "scan, s", "whole query, s", "MB/s", "CPU s"], rows)
    return rate
