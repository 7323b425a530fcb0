"""Short queries on labs of 1, 2 and 4 hosts: what a further host adds to a query of milliseconds.

Labs take turns, so that a change of the machine's load affects all of them.
"""

import os
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from common.asked import Run, ask, environment
from common.figures import Section, median, percentile, short
from common.lab import Lab
from common.paths import CHECKOUT, tpch

SCALE = "0.01"
LABS = [int(n) for n in os.environ.get("SNOWMELT_BENCH_SHORT_HOSTS", "1,2,4").split(",")]
TURNS, RUNS = 3, int(os.environ.get("SNOWMELT_BENCH_SHORT_RUNS", "50"))
# The first queries start workers on all hosts, and fill the caches of footers.
NOT_COUNTED = 5
LINK, HOST_MEMORY, MEMORY = "1gbit", "1GiB", "128MiB"
# A task for each file, so that every host of the largest lab has one.
WORKERS = 4
BAR_MS = 10
QUERIES = {
    "count(*)": "select count(*) as n from lineitem",
    "Q6": (CHECKOUT / "tests/tpch/q06.sql").read_text(),
}
# Of a query's profile, in order; what the client waits in addition is the last step.
PHASES = ["plan", "start", "run", "merge"]
STEPS = [*PHASES, "client"]


@dataclass
class Sample:
    """One query: milliseconds in all and by step, and processor time of all hosts."""

    wall: float
    steps: dict[str, float]
    cpu: float

    @classmethod
    def of(cls, run: Run) -> "Sample":
        steps = dict.fromkeys(PHASES, 0.0)
        for phase in run.profile["phases"]:
            steps[phase["phase"]] += (phase["to_us"] - phase["from_us"]) / 1e3
        wall = run.wall * 1e3
        return cls(wall, steps | {"client": wall - sum(steps.values())}, run.cpu * 1e3)


# By query and hosts.
Samples = dict[tuple[str, int], list[Sample]]


def on_lab(lab: Lab, lineitem: Path, answers: dict[str, object], samples: Samples) -> None:
    """A turn on a lab: rounds of all queries, whose answers are the same on each lab."""
    processes = lab.processes()
    for round_ in range(NOT_COUNTED + RUNS):
        for name, sql in QUERIES.items():
            run = ask(sql, processes, workers=WORKERS, memory=MEMORY, lineitem=str(lineitem))
            if run.answer.to_pylist() != answers.setdefault(name, run.answer.to_pylist()):
                raise RuntimeError(f"{name}: {run.answer.to_pylist()}, not {answers[name]}")
            if round_ >= NOT_COUNTED:
                samples[name, len(processes)].append(Sample.of(run))


def measure() -> Samples:
    lineitem = tpch(SCALE, ["lineitem"]) / "lineitem"
    samples: Samples = defaultdict(list)
    answers: dict[str, object] = {}
    for _ in range(TURNS):
        for hosts in LABS:
            # The name of a socket may have 107 bytes only.
            with (
                tempfile.TemporaryDirectory(prefix="sm-", dir="/tmp") as folder,
                Lab(Path(folder), hosts, LINK, HOST_MEMORY) as lab,
                environment({"SNOWMELT_SOCKET": str(lab.socket)}),
            ):
                on_lab(lab, lineitem, answers, samples)
    return samples


def table(section: Section, samples: Samples) -> None:
    rows = []
    for name in QUERIES:
        for hosts in LABS:
            found = samples[name, hosts]
            walls = [sample.wall for sample in found]
            steps = [short(median([sample.steps[step] for sample in found])) for step in STEPS]
            cpu = short(median([sample.cpu for sample in found]))
            figures = [short(median(walls)), short(percentile(walls, 99)), *steps, cpu]
            rows.append([name, hosts, *figures])
    section.table(["", "hosts", "p50, ms", "p99", *STEPS, "CPU ms"], rows)


def promises(section: Section, samples: Samples) -> None:
    few, *more = LABS
    for name in QUERIES:
        least = median([sample.wall for sample in samples[name, few]])
        added = {
            hosts: median([sample.wall for sample in samples[name, hosts]]) - least
            for hosts in more
        }
        listed = ", ".join(f"{short(ms)} ms with {hosts}" for hosts, ms in added.items())
        section.promise(
            f"time that further hosts add to {name} at scale factor {SCALE}, median",
            f"at most {BAR_MS} ms",
            listed,
            all(ms <= BAR_MS for ms in added.values()),
        )


def run() -> Section:
    section = Section("Short queries on several hosts")
    section.say(
        f"`select count(*)` and TPC-H's Q6 over `lineitem` at scale factor {SCALE}, of"
        f" {WORKERS} local files that each host reads, with {WORKERS} workers of {MEMORY}, one for"
        f" each file, on labs of {', '.join(map(str, LABS))} hosts with links of 1 Gbit/s, which"
        f" share the cores of this machine. {TURNS} turns of {RUNS} rounds after {NOT_COUNTED} that"
        " are not counted, on warm workers. The steps are the phases of the query's profile,"
        " medians in milliseconds; *client* is what the SDK waits in addition to them. The answer"
        " of `count(*)` comes from the footers, so that no task runs. Processor time is that of"
        " all hosts."
    )
    hosts = ",".join(map(str, LABS))
    section.commands += [
        f"SNOWMELT_BENCH_SHORT_HOSTS={hosts} python bench/run.py short-queries",
        f"snowmelt lab up --hosts {LABS[-1]} --link {LINK} --memory {HOST_MEMORY}",
        f"snowmelt lab run -- snowmelt sql -f tests/tpch/q06.sql --workers {WORKERS}"
        f" --memory {MEMORY} --scan-task 0 --table lineitem=FOLDER",
    ]
    samples = measure()
    table(section, samples)
    promises(section, samples)
    return section
