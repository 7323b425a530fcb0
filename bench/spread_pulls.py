"""An image pulled and unpacked on several hosts at once, by containerd and through the peers of
Dragonfly, from the same registry over the same links as `spread` (FaaSNet 4.3: baseline, P2P)."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from block_images import made as images
from calibration import PAYLOAD
from common import plots
from common.figures import Section, median, short
from common.paths import BENCH, scratch
from common.results import Result
from simulated import simulate
from spread import RATE, sizes
from spreading.handler import Range
from spreading.home import Home
from spreading.lab import ImageLab, image_lab
from spreading.pulled import Pulls, by_containerd, by_dragonfly, layers, push_whole
from spreading.recorded import SCIENCE, read_by_imports

PULLS = sizes("SNOWMELT_BENCH_PULLS_HOSTS", "1,2,4")
PEERS = sizes("SNOWMELT_BENCH_DRAGONFLY_HOSTS", "1,2,4")
MANY, FASTER = 64, 13
Way = Callable[[ImageLab, Sequence[Range], Path], Pulls]


def pull(way: Way, hosts: int, ranges: Sequence[Range]) -> Pulls:
    """One lab, whose hosts have nothing of the image."""
    with scratch() as folder, image_lab(hosts, RATE, Home(folder)) as made:
        made.wait_for_hosts()
        push_whole(made)
        pulled = folder / "pulled"
        pulled.mkdir()
        return way(made, ranges, pulled)


def measure(way: Way, hosts: Sequence[int]) -> dict[int, Pulls]:
    images.make()
    ranges = read_by_imports(SCIENCE.root)
    return {number: pull(way, number, ranges) for number in hosts}


def by_trees() -> dict[int, float]:
    """Seconds of the last host, as `spread` has measured them."""
    file = BENCH / "results" / "spread.json"
    numbers = Result.read(file).numbers if file.exists() else {}
    return {int(name.rpartition("-")[2]): value for name, value in numbers.items()}


def describe(section: Section, way: str) -> None:
    section.say(
        f"The image *with scientific packages* ({sum(layers().values()) / 1e6:,.0f} MB compressed)"
        f" in its original form, from the registry of a lab: links of"
        f" {RATE.replace('mbit', ' Mbit/s')} as in *An image on many hosts at once*. {way} Then a"
        " process in the image reads what the function there reads. *half*, *last*: seconds until"
        " half of the hosts and the last one have done so. One run each; all hosts share"
        f" {os.cpu_count()} processors, which unpack."
    )


def tell(section: Section, found: dict[int, Pulls]) -> None:
    trees = by_trees()
    rows = [
        [
            hosts,
            short(median(pulls.answered)),
            short(pulls.answered[-1]),
            short(pulls.registry / 1e6),
            f"{pulls.busy:.0%}",
            short(trees[hosts]) if hosts in trees else "",
        ]
        for hosts, pulls in found.items()
    ]
    head = ["hosts", "half, s", "last, s", "registry, MB", "processors busy"]
    section.table([*head, "last by trees of Snowmelt, s"], rows)


def draw(section: Section, name: str, lines: dict[str, dict[int, float]]) -> None:
    if trees := by_trees():
        lines = {"Snowmelt by trees, lab": trees} | lines
    section.plot(
        name,
        f"Seconds until the last of many hosts behind {RATE} can run in the image (Figure 14)",
        plots.growth("hosts", "s", lines),
    )


def run_containerd() -> Section:
    section = Section("An image pulled on several hosts at once")
    describe(
        section,
        "containerd on each host pulls and unpacks it (`ctr images pull`, `ctr run`), as the"
        " paper's baseline.",
    )
    section.commands += [
        "python bench/run.py spread-pulls",
        f"snowmelt lab up --hosts 5 --link {RATE} --registry --memory 1GiB",
        "snowmelt lab exec host-2 -- ctr images pull --tlscacert FILE"
        " 192.0.2.251:5000/science:whole",
    ]
    found = measure(by_containerd, PULLS)
    tell(section, found)
    size, one = sum(layers().values()), found[min(found)]
    rate = f"{float(RATE.removesuffix('mbit')) * PAYLOAD:.2f}mbit"
    links = ["--link", rate, "--registry-link", rate]
    link_s = size * 8 * min(found) / (float(RATE.removesuffix("mbit")) * PAYLOAD * 1e6)
    tail = max(one.answered[-1] - link_s, 0.1)
    words = ["--image-size", f"{size}B", "--start-bytes", f"{size}B", "--unpack-rate", "100GB"]
    simulated = {}
    for hosts in sorted({*found, 8, 16, 32, MANY}):
        many = ["--hosts", hosts, "--strategy", "pull", *words, *links]
        done = simulate(section, *many, "--tail", f"{tail * 1000:.0f}ms")
        simulated[hosts] = done["pull"].last_start
    section.say(
        f"Computed by `snowmelt simulate` for more hosts: {short(simulated[MANY])} s for {MANY}."
        f" Its only constant is what {min(found)} host took beside the link ({short(tail)} s), as"
        " if each host had processors of its own. Real runs of more hosts would take hours."
    )
    lines = {
        "containerd, lab": {hosts: pulls.answered[-1] for hosts, pulls in found.items()},
        "pull and unpack, simulated": simulated,
    }
    draw(section, "spread-pulls", lines)
    if MANY in (trees := by_trees()):
        faster = simulated[MANY] / trees[MANY]
        section.promise(
            f"an image on {MANY} hosts of {RATE} by trees (lab) against pull and unpack"
            " (simulated)",
            f"at least {FASTER} times as fast",
            f"{faster:.0f} times ({short(trees[MANY])} and {short(simulated[MANY])} s)",
            faster >= FASTER,
        )
    return section


def run_dragonfly() -> Section:
    section = Section("An image pulled through peers of Dragonfly")
    describe(
        section,
        "Dragonfly 1.0.6, the last version without a database: `dfget` on each host fetches the"
        " layers from its supernode, which reads the registry, and from the other hosts;"
        " `umoci unpack` unpacks them. The supernode is on a host of its own behind such a link.",
    )
    section.say(
        "Kraken and Dragonfly 2 were not tried: they need servers (redis and nginx, MySQL) of"
        " their own beside the programs that the Go proxy gives."
    )
    section.commands += [
        "python bench/run.py spread-dragonfly",
        "snowmelt lab exec host-2 -- dfget --node 192.0.2.1:8002 --notbs --url BLOB --output FILE",
    ]
    found = measure(by_dragonfly, PEERS)
    tell(section, found)
    lines = {
        "Dragonfly and umoci, lab": {hosts: it.answered[-1] for hosts, it in found.items()},
    }
    draw(section, "spread-dragonfly", lines)
    trees = by_trees()
    if both := [hosts for hosts in found if hosts in trees]:
        most = max(both)
        faster = found[most].answered[-1] / trees[most]
        section.promise(
            f"an image on {most} hosts of {RATE} by trees against Dragonfly and umoci",
            "faster",
            f"{faster:.1f} times ({short(trees[most])} and {short(found[most].answered[-1])} s)",
            faster > 1,
        )
    return section
