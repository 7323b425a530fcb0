"""Time to connect many endpoints on one host: ours, the designs of the Particle paper, the
conventional overlay, and Docker's bridge and Swarm overlay."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from common import plots
from common.figures import Section, median, short, spread
from common.paths import LEAN
from lean import drive
from peers import docker

ENDPOINTS = [10, 100, 1000, 10_000]
REPEAT = 25
# Designs whose cost is nearly constant, and those that take seconds for a thousand endpoints.
QUICK = ["floor", "snowmelt", "snowmelt-pooled"]
CONVENTIONAL = ["per-container-netlink", "per-container-netlink-moved", "shared", "batched"]
DOCKER_ENDPOINTS = [10, 100]
LANES = 10

Row = dict[str, Any]
Rows = dict[str, dict[int, list[Row]]]

BARS = {"conventional": 1000, "floor": 3, "growth": 1.2, "bind_ns": 1000, "apart": 3}


def _add(
    section: Section, rows: Rows, designs: list[str], endpoints: list[int], times: int
) -> None:
    arguments = ["network", "--design", ",".join(designs)]
    arguments += ["--endpoints", ",".join(map(str, endpoints)), "--repeat", str(times)]
    section.commands.append(" ".join([LEAN.name, *arguments]))
    for row in drive(*arguments):
        rows.setdefault(row["design"], {}).setdefault(row["endpoints"], []).append(row)


def measure(section: Section) -> Rows:
    """Rows by design and number of endpoints. Slow designs run less often."""
    rows: Rows = {}
    # The first networks of a process run with cold caches and are not counted.
    drive("network", "--design", ",".join(QUICK), "--endpoints", "10")
    _add(section, rows, QUICK, ENDPOINTS, REPEAT)
    _add(section, rows, ["consolidated"], ENDPOINTS, 3)
    _add(section, rows, CONVENTIONAL, [10, 100], 3)
    _add(section, rows, CONVENTIONAL, [1000], 1)
    _add(section, rows, ["per-container-iproute2"], [10, 100], 1)
    return rows


def seconds(rows: Rows, design: str, endpoints: int) -> float:
    return median([row["seconds"] for row in rows[design][endpoints]])


def table(section: Section, rows: Rows) -> None:
    lines = []
    for design, found in rows.items():
        for endpoints, several in found.items():
            took = spread([row["seconds"] * 1000 for row in several])
            gone = short(median([row["teardown_seconds"] * 1000 for row in several]))
            work = [f"{several[0][key]:,}" for key in ("messages", "moves")]
            lines.append([design, f"{endpoints:,}", took, *work, gone])
    head = ["", "endpoints", "ms", "messages or commands", "devices moved", "gone after, ms"]
    section.table(head, lines)


def draw(section: Section, rows: Rows, by_docker: dict[str, dict[int, float]]) -> None:
    by_time = {
        name: {n: seconds(rows, name, n) * 1000 for n in found} for name, found in rows.items()
    }
    by_time |= {name: {n: s * 1000 for n, s in f.items()} for name, f in by_docker.items()}
    section.plot(
        "network-time",
        "Milliseconds until all endpoints are connected, against their number",
        plots.growth("endpoints", "ms", by_time),
    )


def shuffle(section: Section) -> None:
    """Number of arrived messages against time, from the first system call for the network."""
    found = {}
    for design in ("snowmelt", "per-container-netlink"):
        arguments = ["shuffle", "--design", design, "--functions", "100", "--seconds", "20"]
        section.commands.append(" ".join([LEAN.name, *arguments]))
        (found[design],) = drive(*arguments)
    section.say(
        "A shuffle as in Particle 5.1: each of 100 functions on a host sends one message over a"
        " connection of its own to each of 100 on another host, one connection after the other,"
        " from the first system call for the network and for at most 20 s."
    )
    section.table(
        ["", "network, ms", "messages", "last one after, s"],
        [
            [
                name,
                short(row["network_seconds"] * 1000),
                f"{row['messages']:,} of {row['wanted']:,}",
                f"{row['arrived_seconds'][-1]:.2f}",
            ]
            for name, row in found.items()
        ],
    )
    section.say(
        "In the conventional overlay each endpoint is told ahead which hardware addresses the"
        " others have, as by the best of control planes, within the time of its network: asking by"
        " broadcast, as without one, fills the kernel's table of neighbours, 1,024 for all"
        " namespaces together, and costs a second for each answer that is lost."
    )
    lines = {}
    for name, row in found.items():
        times = row["arrived_seconds"]
        share = row["messages"] / row["wanted"] * 100 / len(times)
        points = [(time * 1000, number * share) for number, time in enumerate(times, 1)]
        lines[name] = [(row["network_seconds"] * 1000, 0.0), *points]
    section.plot(
        "network-messages",
        "Share of the messages that has arrived, against time",
        plots.progress("ms since the first system call", "% arrived", lines),
    )


def _start_all(daemon: docker.Docker, network: str, count: int) -> float:
    """Seconds until that many containers run, started several at a time as usual."""
    connections = [daemon.connection() for _ in range(LANES)]
    made: list[str] = []

    def lane(number: int) -> None:
        connection = connections[number]
        for _ in range(number, count, LANES):
            body = {
                "Image": docker.IMAGE,
                "Cmd": ["/bin/busybox", "sleep", "600"],
                "HostConfig": {**docker.LIMITS, "NetworkMode": network},
            }
            identity = json.loads(daemon.ask(connection, "POST", "/containers/create", body))["Id"]
            made.append(identity)
            daemon.ask(connection, "POST", f"/containers/{identity}/start")

    def end(number: int) -> None:
        for identity in made[number::LANES]:
            daemon.ask(connections[number], "DELETE", f"/containers/{identity}?force=1")

    with ThreadPoolExecutor(LANES) as pool:
        begun = time.perf_counter()
        list(pool.map(lane, range(LANES)))
        took = time.perf_counter() - begun
        list(pool.map(end, range(LANES)))
    return took


def _overlay(daemon: docker.Docker) -> None:
    connection = daemon.connection()
    address = {"ListenAddr": "127.0.0.1:2377", "AdvertiseAddr": "127.0.0.1"}
    daemon.ask(connection, "POST", "/swarm/init", address)
    body = {
        "Name": "overlay-of-bench",
        "Driver": "overlay",
        "Attachable": True,
        "IPAM": {"Config": [{"Subnet": "10.77.0.0/16"}]},
    }
    daemon.ask(connection, "POST", "/networks/create", body)


def by_docker(section: Section) -> dict[str, dict[int, float]]:
    """Seconds to start containers with each kind of network."""
    found: dict[str, dict[int, float]] = {}
    with docker.running() as daemon:
        _overlay(daemon)
        networks = {"none": "none", "bridge": "bridge", "Swarm overlay": "overlay-of-bench"}
        for count in DOCKER_ENDPOINTS:
            for name, network in networks.items():
                found.setdefault(f"docker, {name}", {})[count] = _start_all(daemon, network, count)
        daemon.ask(daemon.connection(), "POST", "/swarm/leave?force=1")
    section.commands.append(
        "# Docker's API: create and start, ten at a time (bench/network.py, bench/peers/docker.py)"
    )
    return found


def _docker_table(section: Section, found: dict[str, dict[int, float]]) -> None:
    plain = found["docker, none"]
    lines = [
        [name, count, f"{took:.2f}", f"{(took - plain[count]) * 1000 / count:.0f}"]
        for name, by_count in found.items()
        for count, took in by_count.items()
    ]
    section.say(
        "Whole containers, as their users start them, ten at a time. What the network adds is the"
        " difference to `none`; differences of a few tens of ms are noise."
    )
    section.table(["", "containers", "s", "more than without, ms each"], lines)


def promises(section: Section, rows: Rows) -> None:
    ours = {n: seconds(rows, "snowmelt", n) for n in ENDPOINTS}
    pooled = {n: seconds(rows, "snowmelt-pooled", n) for n in ENDPOINTS}
    floor = median([row["seconds"] for f in rows["floor"].values() for row in f])
    best = seconds(rows, "per-container-netlink", 1000)
    naive = seconds(rows, "per-container-netlink-moved", 1000)

    def promise(what: str, bar: str, ratio: float, said: str, is_kept: Callable[[], bool]) -> None:
        section.promise(what, bar, f"{ratio:.4g} times{said}", is_kept())

    faster = best / ours[1000]
    promise(
        "1,000 endpoints against the optimised conventional overlay",
        f"at least {BARS['conventional']:,} times faster",
        faster,
        f", {best / pooled[1000]:,.0f} with a configured namespace,"
        f" {naive / ours[1000]:,.0f} against the naive one",
        lambda: faster >= BARS["conventional"],
    )
    above = ours[1000] / floor
    promise(
        "1,000 endpoints against one namespace with one pair and one overlay",
        f"at most {BARS['floor']} times",
        above,
        f", {pooled[1000] / floor:.2g} with a configured namespace",
        lambda: above <= BARS["floor"],
    )
    growth = ours[10_000] / ours[1000]
    promise(
        "10,000 endpoints against 1,000",
        f"at most {BARS['growth']} times",
        growth,
        f", {rows['snowmelt'][10_000][0]['messages']} messages as against"
        f" {rows['snowmelt'][1000][0]['messages']}",
        lambda: growth <= BARS["growth"],
    )


def bind(section: Section) -> None:
    section.commands.append(f"{LEAN.name} bind")
    (row,) = drive("bind")
    free, held = row["free_ns"], row["held_ns"]
    # The minimum of each: a loaded machine adds random delays to both.
    more = min(held) - min(free)
    section.say(
        f"`bind` of a TCP socket takes {spread(free)} ns, and {spread(held)} ns for a function that"
        " is held to its address."
    )
    limit = BARS["bind_ns"]
    what = "`bind` of a function that is held to its address"
    section.promise(what, f"under {limit:,} ns more", f"{more:.0f} ns more", more < limit)


def throughput(section: Section) -> None:
    """One connection between two hosts over a link of 1 Gbit/s, with and without the overlay."""
    apart, lines = {}, []
    for mtu in (1500, 9000):
        arguments = ["throughput", "--mbit", "1000", "--mtu", str(mtu)]
        section.commands.append(" ".join([LEAN.name, *arguments]))
        (row,) = drive(*arguments)
        hosts, functions = row["hosts_mbit"], row["functions_mbit"]
        apart[mtu] = (1 - median(functions) / median(hosts)) * 100
        lines.append([mtu, spread(hosts), spread(functions), f"{apart[mtu]:.1f}"])
    section.say(
        "One TCP connection over a link shaped to 1 Gbit/s, from host to host and between two"
        " functions of a job. The overlay adds 50 bytes to each packet, which is 3.4 % of what a"
        " packet of 1,500 bytes carries and 0.6 % of one of 9,000."
    )
    section.table(["MTU of the link", "hosts, Mbit/s", "functions, Mbit/s", "% less"], lines)
    section.promise(
        "throughput between two functions against two hosts, link of MTU 9,000",
        f"at most {BARS['apart']} % less",
        f"{apart[9000]:.1f} % less; {apart[1500]:.1f} % with an MTU of 1,500",
        apart[9000] <= BARS["apart"],
    )


def run() -> Section:
    section = Section("Networks of jobs")
    section.say(
        "From the first system call until every endpoint has its address and the first one can"
        " open a connection to the last (checked, not timed). *snowmelt* makes a job's network from"
        " nothing, *snowmelt-pooled* takes a namespace that was made and configured before,"
        " as the product has for its zygotes. *floor* is one namespace, one pair of devices and one"
        " overlay by netlink. *per-container-...* have a namespace and a"
        " pair for each endpoint: by nine commands of `ip`, by netlink with devices moved to where"
        " they belong, and by netlink with devices made there, the best that this design can do."
        " *shared*, *batched* and *consolidated* are the three designs of Particle 3.1 as the"
        " paper has them. What a conventional overlay needs before its first endpoint, its bridge"
        " and its overlay device, is there already and not counted."
    )
    rows = measure(section)
    table(section, rows)
    held = [row["hold_us_each"] for row in rows["snowmelt"][1000] if "hold_us_each" in row]
    if held:
        section.say(
            "Not in these times, because it is a part of each function's own start: to hold a"
            f" function to its address takes {spread(held)} us."
        )
    found = by_docker(section)
    _docker_table(section, found)
    draw(section, rows, found)
    shuffle(section)
    promises(section, rows)
    bind(section)
    throughput(section)
    return section
