"""Bursts on up to 100,000 hosts in simulated time: nothing here is measured but the processor time.

The model and what it assumes are in docs/reference/simulate.md; `-o json` lists them too.
"""

import json
import resource
import subprocess
from dataclasses import dataclass
from typing import Any

from common import plots
from common.figures import Section, short
from common.paths import SNOWMELT

# FaaSNet 4.3: 2,500 functions on 1,000 hosts. DADI: 10,000 containers on 1,000 hosts.
FAASNET_S = 8.3
DADI_S = 4.0
WITHIN_OF_ONE = 1.3
OF_A_PULL = 13
# As `images` measures the image with scientific packages: all blocks, and those of a start.
PACKAGES = ("--image-size", "244MB", "--start-bytes", "72.8MB")
SLOW = (*PACKAGES, "--link", "25mbit", "--registry-link", "25mbit")
SIZES = (1, 2, 4, 8, 16, 32, 64)
GROWTH = (1, 10, 100, 1_000, 10_000, 100_000)


@dataclass
class Simulated:
    """The outcome of one strategy, and the seconds of processor time of its command."""

    outcome: dict[str, Any]
    cpu: float

    @property
    def last_start(self) -> float:
        return float(self.outcome["started"]["last"])

    def last(self, what: str) -> float:
        return float(self.outcome[what]["last"])

    @property
    def registry_mb(self) -> float:
        return float(self.outcome["registry_bytes"]) / 1e6


def simulate(section: Section, *arguments: object, replays: bool = False) -> dict[str, Simulated]:
    """Runs one command, whose line is added to the section: of bursts, or of a trace."""
    words = ["simulate", *map(str, arguments)]
    section.commands.append(" ".join(["snowmelt", *words]))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [SNOWMELT, *words, "-o", "json"], check=True, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    outcomes = json.loads(done.stdout)["replays" if replays else "outcomes"]
    return {outcome["strategy"]: Simulated(outcome, cpu) for outcome in outcomes}


def row(what: str, found: Simulated) -> list[str]:
    times = [found.last("arrived"), found.last_start, found.last("whole")]
    return [what, *map(short, times), short(found.registry_mb)]


HEAD = ["", "profile at all hosts, s", "last start, s", "image at all hosts, s", "registry, MB"]


def large(section: Section) -> None:
    """The paper's burst, and one with the containers of DADI's."""
    burst = simulate(section, "--hosts", 1000, "--containers", 2500)
    many = simulate(section, "--hosts", 1000, "--containers", 10000, "--strategy", "tree")
    failing = simulate(section, "--hosts", 1000, "--kill", 50, "--strategy", "tree,stripes")
    rows = [row(f"2,500 containers, {name}", found) for name, found in burst.items()]
    rows.append(row("10,000 containers, tree", many["tree"]))
    rows += [row(f"50 hosts fail, {name}", found) for name, found in failing.items()]
    section.say("1,000 hosts, links of 1 Gbit/s, an image of 758 MB of which a start reads 122:")
    section.table(HEAD, rows)
    last = burst["tree"].last_start
    section.promise(
        "simulated: 2,500 containers on 1,000 hosts by trees",
        f"under {FAASNET_S} s",
        f"{last:.2f} s",
        last < FAASNET_S,
    )
    profile = many["tree"].last("arrived")
    section.promise(
        "simulated: start profile at 1,000 hosts of 10,000 containers",
        f"under {DADI_S:.0f} s",
        f"{profile:.2f} s",
        profile < DADI_S,
    )


def growth(section: Section) -> None:
    rows = []
    for hosts in GROWTH:
        found = simulate(section, "--hosts", hosts, "--strategy", "tree")["tree"]
        rows.append([f"{hosts:,}", found.outcome["levels"], *row("", found)[1:], short(found.cpu)])
    section.say("The same with one container on each host, by the number of hosts:")
    section.table(["hosts", "levels", *HEAD[1:], "processor time of the simulation, s"], rows)


def slow(section: Section) -> None:
    """Where the network is slower than a start: the fan-out decides."""
    found = {hosts: simulate(section, *SLOW, "--hosts", hosts) for hosts in SIZES}
    names = list(found[1])
    rows = [[hosts, *(short(found[hosts][name].last_start) for name in names)] for hosts in SIZES]
    section.say(
        "Links of 25 Mbit/s, a registry as slow, the image *with scientific packages* (244 MB, of"
        " which a start reads 72.8): seconds until the last start. The link of an inner host of a"
        " tree carries the image for each of its two children; with stripes it carries one image."
    )
    section.table(["hosts", *names], rows)
    one = found[1]["tree"].last_start
    for name in ("tree", "stripes"):
        times = found[SIZES[-1]][name].last_start / one
        section.promise(
            f"simulated: last start on 64 hosts of 25 Mbit/s against one, {name}",
            f"within {WITHIN_OF_ONE} times",
            f"{times:.2f} times",
            times <= WITHIN_OF_ONE,
        )
    faster = found[SIZES[-1]]["pull"].last_start / found[SIZES[-1]]["tree"].last_start
    section.promise(
        "simulated: trees against pull and unpack on 64 hosts of 25 Mbit/s",
        f"at least {OF_A_PULL} times as fast",
        f"{faster:.0f} times",
        faster >= OF_A_PULL,
    )
    section.plot(
        "simulated-hosts",
        "Simulated seconds until the last start, by hosts behind 25 Mbit/s",
        plots.growth(
            "hosts",
            "s",
            {name: {n: found[n][name].last_start for n in SIZES} for name in names},
        ),
    )


def run() -> Section:
    section = Section("Bursts on thousands of hosts, simulated")
    section.say(
        "Computed by `snowmelt simulate`, with the trees of `crates/tree` and a model of links,"
        " starts and failures (docs/reference/simulate.md); nothing is measured but processor time."
        " What a host does by itself is taken from two measured starts of one image."
    )
    large(section)
    growth(section)
    slow(section)
    return section
