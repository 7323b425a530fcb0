"""No-op sandboxes, cold, without caches: ours, container runtimes in their usual configuration, and
the bare system calls that all of them need.

Systems take turns at each concurrency, so that a change of the machine's load affects all of them.
"""

import json
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from common import plots
from common.figures import Section, median, percentile, short, spread
from common.paths import LEAN
from peers import containerd, docker, oci

CONCURRENCY = [1, 2, 5, 10, 20]
CLUTTER = 1000

# A series ends at the count or after the seconds, whichever is reached first.
COUNT, SECONDS = 2000, 4
SLOW_SECONDS = 8

Row = dict[str, Any]


@dataclass(frozen=True)
class System:
    """A system that runs `concurrency` no-ops concurrently."""

    name: str
    measure: Callable[[int], Row]
    shown: str


def drive(*arguments: str, wrap: Callable[[list[str]], list[str]] = list) -> list[Row]:
    """The output of a driver; its errors and those of its children go to our stderr."""
    command = wrap([str(LEAN), *arguments])
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _arguments(driver: str, concurrency: str, seconds: int = SECONDS) -> list[str]:
    return [driver, "--concurrency", concurrency, "--count", str(COUNT), "--seconds", str(seconds)]


def ours(name: str, driver: str, *more: str) -> System:
    """Our sandboxes, or the floor."""
    shown = " ".join([LEAN.name, *_arguments(driver, ",".join(map(str, CONCURRENCY))), *more])
    return System(name, lambda n: drive(*_arguments(driver, str(n)), *more)[0], shown)


def runtime(name: str, bundles: oci.Bundles) -> System:
    """runc or crun."""
    wrap = oci.on_one_hierarchy if name == "crun" else list

    def measure(concurrency: int) -> Row:
        arguments = [*_arguments("peer", str(concurrency)), "--", *bundles.command(name)]
        return drive(*arguments, wrap=wrap)[0]

    return System(name, measure, f"{name} run --bundle BUNDLE ID    # bench/peers/oci.py")


def ctr(daemon: containerd.Containerd) -> System:
    """containerd, by its command line."""
    words = daemon.command()

    def measure(concurrency: int) -> Row:
        return drive(*_arguments("peer", str(concurrency), SLOW_SECONDS), "--", *words)[0]

    shown = " ".join(words[words.index("run") : words.index("--fifo-dir")])
    return System("ctr", measure, f"ctr {shown} IMAGE ID    # bench/peers/containerd.py")


def busy_ms() -> float:
    """CPU time of the whole machine so far; a tick is 10 ms."""
    with open("/proc/stat") as file:
        ticks = list(map(int, file.readline().split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) * 10.0


def dockerd(daemon: docker.Docker) -> System:
    """Docker, by its API: its command line would add 50 ms."""

    def measure(concurrency: int) -> Row:
        connections = [daemon.connection() for _ in range(concurrency)]
        daemon.no_op(connections[0])
        begun, busy = time.perf_counter(), busy_ms()

        def lane(number: int) -> list[tuple[float, float]]:
            samples = []
            while time.perf_counter() - begun < SLOW_SECONDS:
                samples.append(daemon.no_op(connections[number]))
            return samples

        with ThreadPoolExecutor(concurrency) as pool:
            samples = [s for part in pool.map(lane, range(concurrency)) for s in part]
        seconds = time.perf_counter() - begun
        return {
            "first_byte_us": sorted(first * 1e6 for first, _ in samples),
            "whole_us": sorted(whole * 1e6 for _, whole in samples),
            "per_second": len(samples) / seconds,
            "cpu_ms_each": (busy_ms() - busy) / len(samples),
        }

    about = (
        "# Docker's API: create, attach, start, first byte, wait, delete (bench/peers/docker.py)"
    )
    return System("docker", measure, about)


def measure(section: Section) -> dict[str, dict[int, Row]]:
    """Rows by system and concurrency."""
    with ExitStack() as stack:
        bundles = stack.enter_context(oci.bundles(max(CONCURRENCY)))
        containers = stack.enter_context(containerd.running())
        daemon = stack.enter_context(docker.running())
        systems = [ours("floor", "floor"), ours("floor, root", "floor", "--mount-root")]
        systems += [ours("snowmelt", "sandbox"), runtime("crun", bundles)]
        systems += [runtime("runc", bundles), ctr(containers), dockerd(daemon)]
        section.commands += [system.shown for system in systems]
        rows: dict[str, dict[int, Row]] = {system.name: {} for system in systems}
        for concurrency in CONCURRENCY:
            for system in systems:
                rows[system.name][concurrency] = system.measure(concurrency)
    return rows


def cluttered(section: Section) -> dict[str, dict[int, list[Row]]]:
    """Our sandboxes without and with other mounts and namespaces on the host, in turns."""
    counts = ["--mounts", str(CLUTTER), "--networks", str(CLUTTER)]
    arguments = _arguments("sandbox", "1,10", 2)
    section.commands.append(" ".join([LEAN.name, "clutter", *counts, "--", LEAN.name, *arguments]))

    def wrapped(command: list[str]) -> list[str]:
        return [str(LEAN), "clutter", *counts, "--", *command]

    found: dict[str, dict[int, list[Row]]] = {"without": {1: [], 10: []}, "with": {1: [], 10: []}}
    for _ in range(3):
        for kind, wrap in (("without", list), ("with", wrapped)):
            for row in drive(*arguments, wrap=wrap):
                found[kind][row["concurrency"]].append(row)
    return found


def _ms(row: Row, key: str) -> list[float]:
    return [value / 1000 for value in row[key]]


def table(section: Section, rows: dict[str, dict[int, Row]]) -> None:
    lines = []
    for concurrency in CONCURRENCY:
        for name, by_concurrency in rows.items():
            row = by_concurrency[concurrency]
            first, whole = _ms(row, "first_byte_us"), _ms(row, "whole_us")
            cells = [concurrency, name, spread(first), short(percentile(first, 99)), spread(whole)]
            lines.append([*cells, short(row["per_second"]), short(row["cpu_ms_each"])])
    head = ["at once", "", "first byte, ms", "p99", "whole life, ms", "a second", "CPU ms each"]
    section.table(head, lines)


def draw(section: Section, rows: dict[str, dict[int, Row]]) -> None:
    latency = {
        name: {n: median(_ms(row, "whole_us")) for n, row in found.items()}
        for name, found in rows.items()
    }
    rate = {name: {n: row["per_second"] for n, row in f.items()} for name, f in rows.items()}
    section.plot(
        "lean-latency",
        "Median of a no-op's whole life against how many at once",
        plots.lines("at once", "whole life, ms (median)", latency),
    )
    section.plot(
        "lean-throughput",
        "No-ops a second against how many at once",
        plots.lines("at once", "a second", rate),
    )


def promises(section: Section, rows: dict[str, dict[int, Row]]) -> None:
    def times(peer: str, concurrency: int) -> float:
        ours, theirs = rows["snowmelt"][concurrency], rows[peer][concurrency]
        return float(ours["per_second"] / theirs["per_second"])

    for peer, bar in (("docker", 150), ("crun", 5)):
        rate = times(peer, 10)
        what = f"no-op sandboxes a second against {peer}, 10 at once"
        section.promise(what, f"at least {bar} times", f"{rate:.3g} times", rate >= bar)
    for concurrency in (1, 10):
        whole = {name: median(found[concurrency]["whole_us"]) for name, found in rows.items()}
        ratio, rate = whole["snowmelt"] / whole["floor"], 1 / times("floor", concurrency)
        section.promise(
            f"no-op sandbox against the floor, {concurrency} at once",
            "at most 2 times",
            f"{ratio:.2f} times its whole life, {rate:.2f} times fewer a second"
            f" ({whole['snowmelt'] / whole['floor, root']:.2f} times that with a root by mounts)",
            max(ratio, rate) <= 2,
        )


def clutter(section: Section) -> None:
    found = cluttered(section)
    ratios, lines = [], []
    for concurrency in (1, 10):
        medians = []
        for kind in ("without", "with"):
            whole = [v for row in found[kind][concurrency] for v in _ms(row, "whole_us")]
            medians.append(median(whole))
            lines.append([concurrency, kind, spread(whole), short(percentile(whole, 99))])
        ratios.append(medians[1] / medians[0])
    section.say(
        f"The same sandboxes on a host with {CLUTTER:,} more mounts and {CLUTTER:,} live network"
        " namespaces. The mounts are in a mount namespace that the bench makes and its sandboxes"
        " take for the host's, so that none can be left behind; three turns of each."
    )
    section.table(["at once", "clutter", "whole life, ms", "p99"], lines)
    section.promise(
        f"no-op sandbox with {CLUTTER:,} other mounts and network namespaces",
        "at most 1.2 times as long",
        f"{ratios[0]:.2f} times one at a time, {ratios[1]:.2f} times with 10 at once",
        max(ratios) <= 1.2,
    )


def run() -> Section:
    section = Section("No-op sandboxes, cold")
    section.say(
        "A sandbox is made, executes a static busybox that writes one byte, and is gone; nothing"
        " is taken again and nothing is cached but files in memory. Peers run the same busybox with"
        " a read-only root, no network and 512 MiB, one core and 64 processes as limits (`ctr run`"
        " has no option for processes), each as its users run it: `docker` by the daemon's API, the"
        " others by their command line, crun and runc on what `runc spec` writes. The *floor* is"
        " one clone, in borrowed memory, into the namespaces of a sandbox and an exec: no limits,"
        " no control groups, no filter, no user ids, no scratch, and nobody to ask for it. *Floor,"
        " root* forks, and gives each child a root of four binds by mounts of its own. Processor"
        " time is that of the whole machine, because a daemon's is spread over processes."
    )
    rows = measure(section)
    table(section, rows)
    draw(section, rows)
    section.say(
        "OpenLambda with SOCK, as published (USENIX ATC '18, figure 6; eight cores of a Xeon, asked"
        " by HTTP, another machine than this one): 76 no-ops a second and 130 ms on average at 10"
        " at once, 18 times the throughput of OpenLambda with Docker."
    )
    promises(section, rows)
    clutter(section)
    return section
