"""Eight functions at once on 8, 4, 2 and 1 hosts of a lab: what it costs a start that others share
its host (FaaSNet 4.4, Figure 18)."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from burst_trace import calls_of
from calibration import PAYLOAD
from common import plots
from common.figures import Section, median, short, spread
from common.paths import scratch
from common.processes import busy_seconds
from spreading import small
from spreading.home import Home
from spreading.lab import image_lab

FUNCTIONS, MIB = 8, 8.0
HOSTS = (8, 4, 2, 1)
# The registry can send to all hosts at once.
RATE, REGISTRY_RATE = "100mbit", "1gbit"
# Of one function; the memory of a host is that of those that it has to take.
MEMORY_MIB = 128
RUNS = 2
MOST = 1.3


@dataclass
class Start:
    """Functions that start at the same time."""

    seconds: list[float]
    hosts: int
    busy: float


def start(home: Home, functions: int, hosts: int) -> Start:
    """Calls each function once: nothing of their images is on the hosts."""
    memory = f"{MEMORY_MIB * functions // hosts}MiB"
    link = ("--registry-link", REGISTRY_RATE)
    exactly = {"SNOWMELT_SANDBOXES_OVERCOMMIT": "1"}
    with image_lab(hosts, RATE, home, *link, memory=memory, **exactly) as made:
        words = ["--memory", f"{MEMORY_MIB}MiB", *small.handler.READS_AT_START]
        made.deploy_cold({f"read-{n}": small.name(n) for n in range(functions)}, *words)
        ready = threading.Barrier(functions)
        with calls_of(made) as call, ThreadPoolExecutor(functions) as pool:

            def once(number: int) -> tuple[float, str]:
                ready.wait()
                begun = time.perf_counter()
                ran = call(f"read-{number}", {})
                return time.perf_counter() - begun, str(ran["host"])

            busy, begun = busy_seconds(), time.perf_counter()
            found = list(pool.map(once, range(functions)))
            passed = time.perf_counter() - begun
            busy = (busy_seconds() - busy) / passed / (os.cpu_count() or 1)
    used = len({host for _, host in found})
    if used != hosts:
        raise RuntimeError(f"{functions} functions started on {used} hosts instead of {hosts}")
    return Start([seconds for seconds, _ in found], hosts, busy)


def link_s(functions: int) -> float:
    """Seconds in which a host's link carries what so many functions read of their own."""
    return functions * MIB * (1 << 20) / (float(RATE.removesuffix("mbit")) * PAYLOAD * 1e6 / 8)


def row(functions: int, starts: list[Start], one: float) -> list[str]:
    seconds = [s for it in starts for s in it.seconds]
    hosts = starts[0].hosts
    return [
        f"{functions}",
        f"{hosts}",
        spread(seconds),
        short(max(seconds)),
        f"{median(seconds) / one:.2f}",
        short(link_s(functions // hosts)),
        f"{median([it.busy for it in starts]):.0%}",
    ]


def run() -> Section:
    section = Section("Eight functions on few hosts")
    section.say(
        f"{FUNCTIONS} functions are called at the same time, on labs whose hosts have room for"
        f" exactly their share. Each has an image of its own with a file of {MIB:.0f} MiB that it"
        " reads when it starts (the paper: 75.4 MB, read on demand); they share the interpreter,"
        " and no host has anything of them. Links of the hosts:"
        f" {RATE.replace('mbit', ' Mbit/s')}; of the registry:"
        f" {REGISTRY_RATE.replace('gbit', ' Gbit/s')}. Times are from the call to its answer, of"
        f" all functions of {RUNS} labs. *of one*: the median against that of one function on one"
        " host. *link, s*: what the link of a host needs to carry these files. All hosts share"
        f" {os.cpu_count()} processors."
    )
    section.commands += [
        "python bench/run.py colocated",
        f"snowmelt lab up --hosts 5 --link {RATE} --registry --registry-link {REGISTRY_RATE}"
        f" --memory {MEMORY_MIB * 2}MiB",
    ]
    with scratch() as folder:
        home = small.make(folder, FUNCTIONS, MIB)
        alone = [start(home, 1, 1) for _ in range(RUNS)]
        found = {hosts: [start(home, FUNCTIONS, hosts) for _ in range(RUNS)] for hosts in HOSTS}
    one = median([s for it in alone for s in it.seconds])
    rows = [row(1, alone, one), *(row(FUNCTIONS, found[hosts], one) for hosts in HOSTS)]
    head = ["functions", "hosts", "start, s", "last, s", "of one", "link, s", "processors busy"]
    section.table(head, rows)
    ratios = [median([s for it in found[hosts] for s in it.seconds]) / one for hosts in HOSTS]
    section.plot(
        "colocated",
        f"{FUNCTIONS} functions on few hosts: times of the start of one on one host (Figure 18)",
        plots.bars("times", [f"{hosts} hosts" for hosts in HOSTS], {"snowmelt": ratios}),
    )
    over = [
        max(s for it in found[hosts] for s in it.seconds) / (one + link_s(FUNCTIONS // hosts - 1))
        for hosts in HOSTS
    ]
    section.promise(
        f"last of {FUNCTIONS} functions that start on few hosts, against one alone and the files of"
        " the others on the link",
        f"within {MOST} times",
        ", ".join(f"{it:.2f} on {hosts}" for it, hosts in zip(over, HOSTS, strict=True)),
        max(over) <= MOST,
    )
    return section
