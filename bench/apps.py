"""The applications of the Particle paper, on hosts of a lab: complete bursts of real functions.

The cost of a conventional overlay is measured separately in the same run and replaces our network's
time: other steps that may be slower on a conventional platform are not counted.
"""

from collections.abc import Callable, Sequence
from typing import Any

from common import plots
from common.figures import Section, median, short, spread
from common.lab import Lab
from common.paths import LEAN, scratch
from lean import drive

HOSTS, LINK, MEMORY = 8, "1gbit", "16GiB"
EACH = 100
BY_HOSTS = [1, 2, 4, 8]
TENANTS = [1, 2, 5]
SORTS, MIB = [50, 100], 0.5
STARTS = [10, 100, 400]
TIMES = 3

NETLINK, COMMANDS = "overlay by netlink", "overlay by `ip`"
DESIGNS = {NETLINK: "per-container-netlink", COMMANDS: "per-container-iproute2"}
# The paper's results compared with a Linux overlay that is created by commands.
BARS = {"aggregation": 2.0, "sort": 1.22, "tenants": 1.1}

Row = dict[str, Any]


class Conventional:
    """Milliseconds in which a host connects that many endpoints to an overlay, sequentially."""

    def __init__(self, section: Section) -> None:
        self._ms: dict[tuple[str, int], list[float]] = {}
        counts = sorted({EACH, *SORTS, *(count // 2 for count in STARTS)})
        for design, times in (("per-container-netlink", 3), ("per-container-iproute2", 1)):
            arguments = ["network", "--design", design, "--repeat", str(times)]
            arguments += ["--endpoints", ",".join(map(str, counts))]
            section.commands.append(" ".join([LEAN.name, *arguments]))
            for row in drive(*arguments):
                took = row["seconds"] * 1000
                self._ms.setdefault((row["design"], row["endpoints"]), []).append(took)

    def network_ms(self, name: str, endpoints: int) -> float:
        return median(self._ms[DESIGNS[name], endpoints])

    def instead(self, rows: Sequence[Row], what: str, name: str, endpoints: int) -> float:
        """A time of the rows with the time of this network instead of ours."""
        others = median([row[what] - row["network_ms"] for row in rows])
        return others + self.network_ms(name, endpoints)


class Applications:
    """The programs, with their output and the commands that were run."""

    def __init__(self, section: Section, lab: Lab) -> None:
        self.section, self._lab = section, lab
        section.commands.append(f"snowmelt lab {' '.join(lab.up)}")

    def __call__(self, name: str, **given: object) -> list[Row]:
        arguments = [f"--{option}={value}" for option, value in given.items()]
        shown = ["snowmelt lab run -- python", f"bench/applications/{name}.py", *arguments]
        self.section.commands.append(" ".join(shown))
        return self._lab.application(name, *arguments)


def _times(rows: Sequence[Row], what: str) -> str:
    return spread([row[what] for row in rows])


def aggregation(run: Applications, conventional: Conventional) -> None:
    """All to one, with the same number of functions on each host."""
    section, found = run.section, {}
    for hosts in BY_HOSTS:
        found[hosts] = run("aggregate", functions=EACH * hosts, hosts=hosts, times=TIMES)
    section.say(
        f"Aggregation: {EACH} functions on each host start, all but the first send it a short"
        " message and wait for its answer. Whole time from the request to the last answer. All"
        " hosts share this machine's cores, so times grow with the functions."
    )
    whole = {"snowmelt": [median([row["wall_ms"] for row in rows]) for rows in found.values()]}
    for name in DESIGNS:
        values = found.values()
        whole[name] = [conventional.instead(rows, "wall_ms", name, EACH) for rows in values]
    lines = [
        [
            hosts,
            EACH * hosts,
            _times(rows, "wall_ms"),
            _times(rows, "started_ms"),
            _times(rows, "network_ms"),
            rows[0]["messages"],
            *(short(whole[name][place]) for name in DESIGNS),
        ]
        for place, (hosts, rows) in enumerate(found.items())
    ]
    head = ["hosts", "functions", "ms", "of it start", "of it network", "netlink messages a host"]
    section.table([*head, *(f"ms with {name}" for name in DESIGNS)], lines)
    groups = [f"{hosts} x {EACH}" for hosts in BY_HOSTS]
    shows = "Milliseconds of an aggregation, by hosts and functions"
    section.plot("apps-aggregation", shows, plots.bars("ms", groups, whole))
    ratio = whole[COMMANDS][0] / whole["snowmelt"][0]
    _faster(section, f"aggregation of {EACH} functions", "aggregation", ratio)


def _faster(section: Section, what: str, bar: str, ratio: float) -> None:
    said = f"at least {BARS[bar]:.3g} times faster"
    section.promise(f"{what} against an {COMMANDS}", said, f"{ratio:.3g} times", ratio >= BARS[bar])


def shuffle(run: Applications, conventional: Conventional) -> None:
    """Messages against time, including the start of the functions."""
    rows = run("shuffle", senders=EACH, times=TIMES)
    middle = sorted(rows, key=lambda row: row["arrived_ms"][-1])[len(rows) // 2]
    run.section.say(
        f"Shuffle: each of {EACH} functions on a host sends a short message over a connection of"
        f" its own to each of {EACH} on another host; all start at the same time."
    )
    times: dict[str, list[float]] = {"snowmelt": middle["arrived_ms"]}
    for name in DESIGNS:
        later = conventional.network_ms(name, EACH) - middle["network_ms"]
        times[name] = [time + later for time in middle["arrived_ms"]]
    run.section.table(
        ["", "network, ms", "first message after, ms", "last message after, ms"],
        [
            [
                name,
                short(middle["network_ms"])
                if name == "snowmelt"
                else short(conventional.network_ms(name, EACH)),
                short(arrived[0]),
                short(arrived[-1]),
            ]
            for name, arrived in times.items()
        ],
    )
    drawn = {
        name: [(time, (place + 1) * 100 / len(arrived)) for place, time in enumerate(arrived)]
        for name, arrived in times.items()
    }
    run.section.plot(
        "apps-shuffle",
        f"Share of the {middle['sent']:,} messages that has arrived, against time",
        plots.progress("ms since the burst was asked for", "% arrived", drawn),
    )


def phases(row: Row, network_ms: float) -> dict[str, float]:
    """Milliseconds of a sort: a phase ends when the last function has finished it."""
    at = row["moments_ms"]
    start = at["mapping"] - row["network_ms"]
    return {
        "network": network_ms,
        "rest of the start": start,
        "map": at["cut"] - at["mapping"],
        "transfer": at["received"] - at["cut"],
        "reduce": row["wall_ms"] - at["received"],
    }


def sort(run: Applications, conventional: Conventional) -> None:
    """The total time, and its parts as in the paper's Table 5."""
    run.section.say(
        f"Map-reduce sort of random 64-bit keys in plain Python, {MIB:.3g} MiB for each mapper,"
        " 1/128 of the paper's 64 MB: mappers on one host, as many reducers on another, links of"
        f" {LINK}. The sorted keys are checked. A phase ends when the last function has ended it."
    )
    lines = []
    for mappers in SORTS:
        rows = run("sort", mappers=mappers, mib=MIB, times=TIMES)
        middle = sorted(rows, key=lambda row: row["wall_ms"])[len(rows) // 2]
        networks = {"snowmelt": middle["network_ms"]}
        networks |= {name: conventional.network_ms(name, mappers) for name in DESIGNS}
        split = {name: phases(middle, network) for name, network in networks.items()}
        whole = {name: sum(parts.values()) for name, parts in split.items()}
        for name, parts in split.items():
            shares = [f"{part / whole[name] * 100:.1f} %" for part in parts.values()]
            lines.append([f"{mappers} x {mappers}", name, short(whole[name]), *shares])
        _faster(
            run.section, f"sort {mappers} x {mappers}", "sort", whole[COMMANDS] / whole["snowmelt"]
        )
    run.section.table(["", "", "ms", *split["snowmelt"]], lines)
    by_part = {part: [split[name][part] for name in split] for part in split["snowmelt"]}
    run.section.plot(
        "apps-sort",
        f"Milliseconds of a sort of {SORTS[-1]} x {SORTS[-1]}, by what they go to",
        plots.stacked("ms", list(split), by_part),
    )


def tenants(run: Applications) -> None:
    """The same number of functions on two hosts, of one tenant or of several concurrently."""
    total, lines, middles = 2 * EACH, [], []
    for count in TENANTS:
        rows = run("aggregate", functions=total, hosts=2, tenants=count, times=TIMES)
        middles.append(median([row["wall_ms"] for row in rows]))
        lines.append([count, total // count, _times(rows, "wall_ms"), _times(rows, "network_ms")])
    run.section.say(
        f"Tenants: {total} functions on two hosts aggregate, each tenant's for itself and all at"
        " the same time (Particle Table 6). The time is that of each tenant's job."
    )
    run.section.table(["tenants", "functions of each", "ms", "of it network"], lines)
    ratio = middles[-1] / middles[0]
    run.section.promise(
        f"{TENANTS[-1]} tenants against one, {total} functions in all",
        f"at most {BARS['tenants']:.3g} times",
        f"{ratio:.3g} times",
        ratio <= BARS["tenants"],
    )


def starts(run: Applications, conventional: Conventional) -> None:
    """The network's share of a burst's start."""
    rows = run("starts", functions=",".join(map(str, STARTS)), times=TIMES)
    run.section.say(
        "A burst's start on two hosts, from the request until every function could be called, and"
        " the network's share of it: made, and all hosts reached by it."
    )
    lines, shares = [], {name: list[float | None]() for name in ("snowmelt", *DESIGNS)}
    for count in STARTS:
        with_one, without = (
            [row for row in rows if is_of(row, count, kind)] for kind in ("job", "none")
        )
        start = median([row["started_ms"] for row in with_one])
        network = median([row["network_ms"] for row in with_one])
        shares["snowmelt"].append(network / start * 100)
        for name in DESIGNS:
            whole = conventional.instead(with_one, "started_ms", name, count // 2)
            shares[name].append(conventional.network_ms(name, count // 2) / whole * 100)
        said = [f"{share[-1]:.1f} %" for share in shares.values()]
        times = [_times(with_one, "started_ms"), _times(with_one, "network_ms")]
        lines.append([count, *times, _times(without, "started_ms"), *said])
    head = ["functions", "start, ms", "of it network", "start without, ms"]
    run.section.table([*head, "share", *(f"share of an {name}" for name in DESIGNS)], lines)
    groups = [f"{count} functions" for count in STARTS]
    shows = "The network's share of a burst's start, in %, by functions"
    run.section.plot("apps-starts", shows, plots.bars("%", groups, shares))


def is_of(row: Row, functions: int, network: str) -> bool:
    return bool(row["functions"] == functions and row["network"] == network)


def run() -> Section:
    section = Section("Applications on a network of their own")
    section.say(
        f"The applications of the Particle paper as bursts on a lab of {HOSTS} hosts, which are"
        f" network namespaces with links of {LINK} and share this machine. Times of *{NETLINK}* and"
        f" *{COMMANDS}* are computed: ours, with the network's part taken out and the time put in"
        " that a host needs to connect as many endpoints one by one, measured in the same run"
        " (above: *per-container-netlink*, *per-container-iproute2*). Both hosts of a real cluster"
        " would do that at the same time, so it counts once."
    )
    conventional = Conventional(section)
    steps: list[Callable[[Applications, Conventional], None]] = [
        aggregation,
        shuffle,
        sort,
        lambda run, _: tenants(run),
        starts,
    ]
    with scratch() as folder, Lab(folder, HOSTS, LINK, MEMORY) as lab:
        applications = Applications(section, lab)
        for step in steps:
            step(applications, conventional)
    section.commands.append("snowmelt lab down")
    return section
