"""FaaSNet's Figures 11 to 15 and 17 in simulated time: nothing here is measured.

Of the others, `spread` measures Figure 16, `colocated` Figure 18 and `images` Figure 20 on labs.
"""

from dataclasses import dataclass
from typing import Any

from common import plots
from common.figures import Section, short
from simulated import simulate

STRATEGIES = ("stripes", "registry", "pull")
# As in the paper's Figures 14 and 15, at 1 Gbit/s; its images are smaller there than in the others.
CONCURRENT = (8, 16, 32, 64, 128)
LARGE = ("--hosts", 1000, "--containers", 2500, "--image-size", "428MB", "--start-bytes", "69MB")
GAMING_HOSTS = 200


@dataclass(frozen=True)
class Paper:
    """What FaaSNet 4.2 and 4.3 say of a figure, and ours."""

    figure: str
    what: str
    said: str
    ours: str


def windows(replay: dict[str, Any], name: str) -> list[tuple[float, float]]:
    return [(window["start"] / 60, float(window[name])) for window in replay["windows"]]


def traces(section: Section) -> list[Paper]:
    """Figures 11 to 13."""
    words = ["--every", "30s", "--strategy", ",".join(STRATEGIES)]
    iot = simulate(section, "--synthetic", "iot", "--warm", 30, *words, replays=True)
    gaming = simulate(
        section, "--synthetic", "gaming", "--hosts", GAMING_HOSTS, *words, replays=True
    )
    section.plot(
        "paper-figure-11",
        "Figure 11, simulated: longest wait of a call in each 30 s of the IoT trace (synthetic)",
        plots.timeline(
            "min", "s", {name: windows(it.outcome, "wait_most") for name, it in iot.items()}
        ),
    )
    section.plot(
        "paper-figure-12",
        "Figure 12, simulated: hosts that have the function, gaming trace (synthetic)",
        plots.timeline(
            "min", "hosts", {name: windows(it.outcome, "hosts") for name, it in gaming.items()}
        ),
    )
    points = ("least", "p50", "p90", "p99", "p999", "most")
    found = {
        f"{name}, {trace}": [float(it.outcome["provisioning"][point]) for point in points]
        for trace, replays in (("IoT", iot), ("gaming", gaming))
        for name, it in replays.items()
    }
    section.plot(
        "paper-figure-13",
        "Figure 13, simulated: seconds until a new host has started its first instance",
        plots.bars("s", ["least", "50 %", "90 %", "99 %", "99.9 %", "most"], found),
    )
    waits = {name: float(it.outcome["wait"]["most"]) for name, it in iot.items()}
    starts = iot["stripes"].outcome["provisioning"]
    levels = gaming["stripes"].outcome["levels"]
    return [
        Paper(
            "11",
            "longest response in a burst, of which 2 s are the function's",
            "6 s, from the registry 28 s",
            f"{waits['stripes'] + 2:.1f} s, from the registry {short(waits['registry'] + 2)} s",
        ),
        Paper("12", "height of the tree", "7 with 102 hosts", f"{levels} with {GAMING_HOSTS}"),
        Paper(
            "13",
            "starts of hosts, IoT",
            "6.8 to 7.9 s",
            f"{float(starts['least']):.1f} to {float(starts['most']):.1f} s",
        ),
    ]


def bursts(section: Section) -> list[Paper]:
    """Figures 14, 15 and 17."""
    words = ["--registry-link", "1gbit", "--strategy", ",".join(STRATEGIES)]
    found = {hosts: simulate(section, "--hosts", hosts, *words) for hosts in CONCURRENT}
    section.plot(
        "paper-figure-14",
        "Figure 14, simulated: seconds until the last start, a container on each host, registry of"
        " 1 Gbit/s",
        plots.growth(
            "hosts",
            "s",
            {name: {n: found[n][name].last_start for n in CONCURRENT} for name in STRATEGIES},
        ),
    )
    most = found[CONCURRENT[-1]]
    large = simulate(section, *LARGE, "--strategy", "stripes")["stripes"]
    started = {f"Figure 15: {name}": (CONCURRENT[-1], it) for name, it in most.items()}
    started["Figure 17: stripes"] = (2500, large)
    section.plot(
        "paper-figures-15-17",
        "Figures 15 and 17, simulated: containers that have started (first, half, 99 %, last)",
        plots.progress(
            "s",
            "% of the containers",
            {name: shares(it.outcome["started"], of) for name, (of, it) in started.items()},
        ),
    )
    ours = most["stripes"].last_start
    begun = most["stripes"].outcome["started"]
    first = large.outcome["started"]
    return [
        Paper(
            "14",
            "128 starts against pulls, and against reads from the registry",
            "13.4 and 5 times as fast",
            f"{most['pull'].last_start / ours:.1f} and {most['registry'].last_start / ours:.1f}"
            " times",
        ),
        Paper(
            "15",
            "128 starts",
            "5.5 to 7 s",
            f"{float(begun['first']):.1f} to {float(begun['last']):.1f} s",
        ),
        Paper(
            "17",
            "2,500 functions on 1,000 hosts, 428 MB",
            "5.1 to 8.3 s",
            f"{float(first['first']):.1f} to {float(first['last']):.1f} s",
        ),
    ]


def shares(started: dict[str, Any], containers: int) -> list[tuple[float, float]]:
    parts = {"first": 100 / containers, "half": 50.0, "most": 99.0, "last": 100.0}
    return [(float(started[name]), part) for name, part in parts.items()]


def run() -> Section:
    section = Section("The figures of FaaSNet, simulated")
    section.say(
        "Computed by `snowmelt simulate` (docs/reference/simulate.md); nothing is measured, and the"
        " traces are made up after what the paper tells of its own. *stripes*: the trees of this"
        " platform. *registry*: each host reads blocks on demand from the registry, as the paper's"
        " on-demand. *pull*: whole images, as its baseline. Starts on a host take what they take"
        " here and not on the paper's machines; figures of the paper are from its text. The bytes"
        " of a start of the 428 MB image are 16.1 % of it (FaaSNet 4.6)."
    )
    rows = [*traces(section), *bursts(section)]
    section.table(
        ["figure", "", "FaaSNet", "here, simulated"],
        [[it.figure, it.what, it.said, it.ours] for it in rows],
    )
    section.say(
        "On labs, measured: Figure 16 by the experiment `spread`, Figure 11 at a small scale by"
        " `trace`, Figure 18 by `colocated`, and Figure 20 by `images` (its plot is below)."
    )
    section.lines += ["![Figure 20, by the size of blocks](plots/images-blocks.svg)", ""]
    return section
