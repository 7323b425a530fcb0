"""An image on 1 to 64 hosts at once, by trees of hosts, and with each host reading from the
registry: time to the first answer, bytes out of the registry, links over time (FaaSNet 4.3)."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calibration import PAYLOAD
from common import plots
from common.figures import Section, median, short
from common.paths import scratch
from simulated import simulate
from spreading.lab import NO_TREES, Burst, image_lab
from spreading.recorded import NAME, Recorded, record

RATE = "25mbit"


def sizes(variable: str, default: str) -> list[int]:
    return [int(size) for size in os.environ.get(variable, default).split(",")]


TREES = sizes("SNOWMELT_BENCH_SPREAD_HOSTS", "1,2,4,8,16,32,64")
ALONE = sizes("SNOWMELT_BENCH_SPREAD_ALONE", "2,4")
# So slow that also for the most hosts the links decide, and not the processors: 64 starts alone
# keep these busy for 15 s, in which links of 12 Mbit/s could carry a quarter of the bytes.
SLOW_RATE = os.environ.get("SNOWMELT_BENCH_SPREAD_SLOW", "6mbit")
WITHIN_OF_ONE, SAME_BYTES, MAX_BUSY = 1.3, 1.05, 0.8
BY_TREES, BY_ITSELF = "by trees", "each host from the registry"
# Of a handler that only reads: nothing is imported, and little is done after the last block.
OWN = ("--read-rate", "200MB", "--tail", "300ms")


def once(hosts: int, recorded: Recorded, trees: bool = True, rate: str = RATE) -> Burst:
    """The first burst of a lab: its hosts have nothing of the image."""
    settings = {} if trees else NO_TREES
    with image_lab(hosts, rate, recorded.home, **settings) as made:
        # Of the pages that it has read it keeps no more than its memory.
        made.deploy_cold({"read": NAME}, "--memory", "128MiB")
        burst = made.burst([{"read": True}] * hosts)
    read = [host["bytes"] for host in burst.tree if host["bytes"]]
    most = max(it["from_parents"] + it["from_registry"] for it in read)
    cold = [it for it in read if it["from_parents"] + it["from_registry"] > most / 2]
    if len(cold) != hosts or (not trees and any(it["from_parents"] for it in read)):
        raise RuntimeError(f"{hosts} hosts were to read the image by themselves: {burst.tree}")
    return burst


def describe(section: Section, recorded: Recorded) -> None:
    mb = recorded.image_bytes / 1e6
    section.say(
        "One function on each host of a lab, in the image *with scientific packages*"
        f" ({mb:,.0f} MB as block image). The links of the hosts and of the registry have"
        f" {_shown(RATE)} in each direction, and all hosts share"
        f" {os.cpu_count()} processors: so the function does not import the packages. It reads the"
        f" {recorded.read_bytes / 1e6:,.0f} MB of files that an import of numpy, pandas and"
        " scikit-learn has read (`mincore` of all files of the image after it), in each row."
        " No host has anything of the image; the start profile of a start on another platform is"
        " in the registry. Control's host has deployed the function and takes part in no burst."
    )
    section.say(
        "*half*, *last*: seconds from `snowmelt fn burst` until half of the handlers and the last"
        " one have read all of it. *registry, MB*: what went over its link in this time, with all"
        " headers. *MB each*: compressed blocks that a host has read. *processors busy*: the"
        " part of their time in the burst, of everything on the machine; below"
        f" {MAX_BUSY:.0%} the links decide. For the fewest and most hosts that is so with links"
        f" of {_shown(SLOW_RATE)}, which are compared. One burst each, in a lab of its own."
        f" *{BY_ITSELF}*: the same platform with trees off (`images.trees = false`)."
    )
    section.commands += [
        "python bench/run.py spread",
        f"snowmelt lab up --hosts 65 --link {RATE} --registry --memory 1GiB",
        "snowmelt lab run -- snowmelt fn burst read --events events.jsonl --hosts 64",
    ]


def _shown(rate: str) -> str:
    return rate.replace("mbit", " Mbit/s")


def row(way: str, hosts: int, burst: Burst) -> list[str]:
    times = [short(median(burst.answered)), short(burst.last)]
    moved = [short(burst.registry / 1e6), short(burst.read_each / 1e6)]
    return [way, f"{hosts}", *times, *moved, f"{burst.busy:.0%}"]


def computed(
    section: Section, way: str, each: float, of: Callable[[int], bool]
) -> dict[int, float]:
    """Seconds until the last answer in simulated time, for the sizes that are not measured."""
    rate = f"{float(RATE.removesuffix('mbit')) * PAYLOAD:.2f}mbit"
    links = ["--link", rate, "--registry-link", rate]
    size = ["--image-size", f"{each:.0f}B", "--start-bytes", f"{each:.0f}B"]
    found = {}
    for hosts in filter(of, TREES):
        words = ["--hosts", hosts, "--strategy", way, *size, *links, *OWN]
        found[hosts] = simulate(section, *words)[way].last_start
    return found


def promises(section: Section, trees: dict[int, Burst], slow: dict[int, Burst]) -> None:
    few, many = min(slow), max(slow)
    times = slow[many].last / slow[few].last
    section.promise(
        f"last of {many} hosts of {SLOW_RATE} that read an image by trees, against {few}",
        f"within {WITHIN_OF_ONE} times",
        f"{times:.2f} times ({short(slow[few].last)} and {short(slow[many].last)} s)",
        times <= WITHIN_OF_ONE,
    )
    many = max(trees)
    two = min((hosts for hosts in trees if hosts > 1), default=few)
    ratio = trees[many].registry / trees[two].registry
    section.promise(
        f"bytes out of the registry for {many} hosts against those for {two}",
        f"the same (within {SAME_BYTES - 1:.0%})",
        f"{ratio:.3g} times",
        1 / SAME_BYTES <= ratio <= SAME_BYTES,
    )
    busiest = max(slow, key=lambda hosts: slow[hosts].busy)
    section.promise(
        f"processors busy while hosts of {SLOW_RATE} read an image by trees: the links decide",
        f"below {MAX_BUSY:.0%}",
        f"{slow[busiest].busy:.0%} with {busiest} hosts",
        slow[busiest].busy < MAX_BUSY,
    )


def draw(section: Section, lines: dict[str, dict[int, float]], trees: dict[int, Burst]) -> None:
    section.plot(
        "spread",
        f"Seconds until the last of many hosts behind {RATE} has read what a start reads",
        plots.growth("hosts", "s", lines),
    )
    largest = trees[max(trees)]
    if host := largest.middle():
        section.plot(
            "spread-link",
            f"The link of a host in the middle of the trees of {max(trees)} hosts (Figure 16)",
            plots.timeline("s", "MB/s", largest.traffic.rates(host)),
        )
    section.plot(
        "spread-answers",
        "Handlers that have answered against time since the command (Figure 15)",
        plots.timeline(
            "s",
            "% of the hosts",
            {
                f"{hosts} hosts": [
                    (at, (number + 1) / hosts * 100) for number, at in enumerate(burst.answered)
                ]
                for hosts, burst in trees.items()
                if hosts >= 8 or hosts == max(trees)
            },
        ),
    )


@dataclass
class Measured:
    """Bursts by the number of their hosts."""

    recorded: Recorded
    trees: dict[int, Burst]
    alone: dict[int, Burst]
    # The fewest and the most, with slower links.
    slow: dict[int, Burst]


def measure(folder: Path) -> Measured:
    recorded = record(folder)
    return Measured(
        recorded,
        {hosts: once(hosts, recorded) for hosts in TREES},
        {hosts: once(hosts, recorded, trees=False) for hosts in ALONE},
        {
            hosts: once(hosts, recorded, rate=SLOW_RATE)
            for hosts in sorted({min(TREES), max(TREES)})
        },
    )


def run() -> Section:
    section = Section("An image on many hosts at once")
    with scratch() as folder:
        found = measure(folder)
        describe(section, found.recorded)
    trees, alone, slow = found.trees, found.alone, found.slow
    rows = [row(BY_TREES, hosts, burst) for hosts, burst in trees.items()]
    rows += [row(f"{BY_TREES}, {_shown(SLOW_RATE)}", *it) for it in slow.items()]
    rows += [row(BY_ITSELF, hosts, burst) for hosts, burst in alone.items()]
    section.table(
        ["", "hosts", "half, s", "last, s", "registry, MB", "MB each", "processors busy"], rows
    )
    each = trees[min(trees)].read_each
    stripes = computed(section, "stripes", each, lambda hosts: True)
    registry = computed(section, "registry", each, lambda hosts: hosts not in alone)
    section.say("Computed by `snowmelt simulate` for the same bytes and links, without a fit:")
    names = ["hosts", *map(str, TREES)]
    section.table(
        names,
        [
            ["by trees (stripes), s", *(short(stripes[hosts]) for hosts in TREES)],
            [BY_ITSELF + ", s", *(short(registry[n]) if n in registry else "" for n in TREES)],
        ],
    )
    lines = {f"{BY_TREES}, lab": {hosts: burst.last for hosts, burst in trees.items()}}
    lines[f"{BY_ITSELF}, lab"] = {hosts: burst.last for hosts, burst in alone.items()}
    lines[f"{BY_TREES}, simulated"] = stripes
    lines[f"{BY_ITSELF}, simulated"] = registry
    draw(section, lines, trees)
    promises(section, trees, slow)
    for hosts, burst in trees.items():
        section.numbers[f"trees-{hosts}"] = burst.last
    return section
