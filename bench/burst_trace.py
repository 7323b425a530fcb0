"""Calls of eight functions that become many times as many within seconds, on a lab, with and
without trees of hosts: response times, time until they are as before, cold starts (FaaSNet 4.2)."""

import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration import PAYLOAD
from common import plots
from common.figures import Section, median, percentile, short
from common.paths import scratch
from common.processes import busy_seconds
from simulated import simulate
from spreading import small
from spreading.home import Home
from spreading.lab import NO_TREES, REGISTRY, ImageLab, image_lab
from spreading.traffic import Traffic

HOSTS, FUNCTIONS, MIB = 8, 8, 2.0
RATE = "25mbit"
# Calls a second: at the begin and the end, and in the burst.
LOW, HIGH = 1, int(os.environ.get("SNOWMELT_BENCH_TRACE_CALLS", "40"))
# Seconds before the burst, until all of it is there, of it, and after it.
BEFORE, RAMP, LASTS, AFTER = 15, 5, int(os.environ.get("SNOWMELT_BENCH_TRACE_S", "75")), 20
SLEEP_S = 1.0
# A response is as before if it takes no longer than this beside the function's own time.
NORMAL_S = 0.5
MEMORY, HOST_MEMORY = "64MiB", "2GiB"
# Instances of a function in all, and on a host: so that each function needs all hosts.
INSTANCES, PER_HOST = 16, 2
TREES, OFF = "trees", "each host from the registry"
# What a start of such a function takes beside its reads, and how fast it reads.
OWN = ("--read-rate", "100MB", "--tail", "200ms")


@dataclass
class Answer:
    """One call."""

    # Seconds since the begin of the trace at which it was due.
    at: float
    seconds: float
    cold: bool
    failed: str


@dataclass
class Replay:
    """All calls of a trace."""

    answers: list[Answer]
    registry: int
    busy: float

    @property
    def cold(self) -> int:
        return sum(answer.cold for answer in self.answers)

    @property
    def failed(self) -> list[str]:
        return [answer.failed for answer in self.answers if answer.failed]

    def back_to_normal(self) -> float:
        """Seconds from the begin of the burst until the last answer that came late."""
        late = [a for a in self.answers if a.seconds > SLEEP_S + NORMAL_S and a.at >= BEFORE]
        return max((a.at + a.seconds for a in late), default=BEFORE) - BEFORE


def rate_at(at: float) -> float:
    """Calls a second: it rises and falls in a straight line."""
    end = BEFORE + RAMP + LASTS
    if at < BEFORE or at > end + RAMP:
        return LOW
    return LOW + (HIGH - LOW) * min((at - BEFORE) / RAMP, 1, (end + RAMP - at) / RAMP)


def arrivals() -> list[tuple[float, int]]:
    """When each call is due, and its function: they take turns, and the distances are even."""
    at, found = 0.0, []
    turns = itertools.cycle(range(FUNCTIONS))
    while at < BEFORE + RAMP + LASTS + RAMP + AFTER:
        found.append((at, next(turns)))
        at += 1 / rate_at(at)
    return found


@contextmanager
def calls_of(made: ImageLab) -> Iterator[Callable[[str, Any], Any]]:
    """A call of a function by the SDK's client, by many threads."""
    os.environ["SNOWMELT_SOCKET"] = str(made.lab.socket)
    try:
        from snowmelt._client import client

        one = client()

        def call(function: str, event: Any) -> Any:
            return one.call("POST", f"/v1/functions/{function}/invocations", {"event": event})

        yield call
    finally:
        os.environ.pop("SNOWMELT_SOCKET", None)


def replay(made: ImageLab) -> Replay:
    """Calls at their times, however long earlier ones take."""
    answers: list[Answer] = []
    lock = threading.Lock()
    with (
        calls_of(made) as call,
        ThreadPoolExecutor(HIGH * 30) as pool,
        Traffic(made.lab) as traffic,
    ):
        busy, begun = busy_seconds(), time.perf_counter()

        def send(at: float, function: int) -> None:
            cold, failed = False, ""
            try:
                cold = bool(call(f"read-{function}", {"sleep": SLEEP_S})["cold"])
            except Exception as error:
                failed = str(error)
            seconds = time.perf_counter() - begun - at
            with lock:
                answers.append(Answer(at, seconds, cold, failed))

        for at, function in arrivals():
            time.sleep(max(0.0, begun + at - time.perf_counter()))
            pool.submit(send, at, function)
        pool.shutdown()
        seconds = time.perf_counter() - begun
        busy = (busy_seconds() - busy) / seconds / (os.cpu_count() or 1)
    return Replay(sorted(answers, key=lambda it: it.at), traffic.sent(REGISTRY), busy)


def once(home: Home, trees: bool) -> Replay:
    settings = {"SNOWMELT_CLUSTER_INSTANCES_PER_HOST": str(PER_HOST)}
    settings |= {} if trees else NO_TREES
    with image_lab(HOSTS, RATE, home, memory=HOST_MEMORY, **settings) as made:
        words = ["--memory", MEMORY, "--instances", INSTANCES, *small.handler.READS_AT_START]
        functions = {f"read-{number}": small.name(number) for number in range(FUNCTIONS)}
        made.deploy_cold(functions, *words)
        return replay(made)


def by_second(found: Replay, value: Callable[[list[float]], float]) -> list[tuple[float, float]]:
    """A figure of the response times of the calls that were due in each second."""
    seconds: dict[int, list[float]] = defaultdict(list)
    for answer in found.answers:
        seconds[int(answer.at)].append(answer.seconds)
    return [(second + 0.5, value(times)) for second, times in sorted(seconds.items())]


def computed(section: Section, folder: Path) -> dict[str, Any]:
    """The same trace in simulated time."""
    trace = folder / "trace.csv"
    lines = (f"bench,f{f},{at + SLEEP_S:.4f},{SLEEP_S}" for at, f in arrivals())
    trace.write_text("\n".join(["app,func,end_timestamp,duration", *lines]) + "\n")
    rate = f"{float(RATE.removesuffix('mbit')) * PAYLOAD:.2f}mbit"
    size = ["--image-size", f"{MIB}MiB", "--start-bytes", f"{MIB}MiB"]
    words = ["--trace", trace, "--hosts", HOSTS, "--strategy", "stripes,registry", *size]
    words += ["--link", rate, "--registry-link", rate, "--host-memory", HOST_MEMORY]
    words += ["--memory", MEMORY, "--per-host", PER_HOST, "--patience", "10m", *OWN]
    found = simulate(section, *words, replays=True)
    section.commands[-1] = section.commands[-1].replace(str(trace), "trace.csv")
    return {name: simulated.outcome for name, simulated in found.items()}


def describe(section: Section) -> None:
    section.say(
        f"{FUNCTIONS} functions on a lab of {HOSTS} hosts behind links of"
        f" {RATE.replace('mbit', ' Mbit/s')}, the registry behind one of the same rate. Each has an"
        f" image of its own with a file of {MIB:.0f} MiB that nothing compresses, which each"
        " instance reads when it starts; they share the interpreter. No host has anything of the"
        f" images. {LOW} call a second rises within {RAMP} s to {HIGH} a second after {BEFORE} s,"
        f" for {LASTS} s, and falls back; the functions take turns, and each call sleeps for"
        f" {SLEEP_S:.0f} s. It is scaled down to what {os.cpu_count()} processors carry, which all"
        " hosts and the client share: the paper's has 400 calls a second on 1,000 machines. A host"
        f" runs at most {PER_HOST} instances of a function, so that each function needs all hosts."
        " Calls are sent at their times, however long others take; response times count from then."
        f" *{OFF}*: the same platform with trees off (`images.trees = false`)."
    )
    section.commands += [
        "python bench/run.py trace",
        f"snowmelt lab up --hosts {1 + HOSTS} --link {RATE} --registry --memory {HOST_MEMORY}",
    ]


def row(way: str, found: Replay) -> list[str]:
    burst = [answer.seconds for answer in found.answers if answer.at >= BEFORE]
    times = [median(burst), percentile(burst, 90), percentile(burst, 99), max(burst)]
    return [
        way,
        f"{len(found.answers):,} ({len(found.failed)})",
        f"{found.cold:,}",
        *map(short, times),
        short(found.back_to_normal()),
        short(found.registry / 1e6),
        f"{found.busy:.0%}",
    ]


def run() -> Section:
    section = Section("A burst of calls on a lab")
    describe(section)
    with scratch() as folder:
        home = small.make(folder, FUNCTIONS, MIB)
        found = {TREES: once(home, trees=True), OFF: once(home, trees=False)}
        outcomes = computed(section, folder)
    for way, replayed in found.items():
        if replayed.failed:
            section.say(f"The first failure with {way}: {replayed.failed[0]}")
    head = ["", "calls (failed)", "cold starts", "p50, s", "p90, s", "p99, s", "longest, s"]
    head += ["back to normal after, s", "registry, MB", "processors busy"]
    section.table(head, [row(way, replayed) for way, replayed in found.items()])
    section.say(
        "Response times are those of the calls from the begin of the burst on. *back to normal*:"
        f" seconds from then until the last answer that took {NORMAL_S} s longer than its call"
        " slept."
        " Computed by `snowmelt simulate` for the same calls, without the interpreter:"
    )
    simulated = [
        [name, it["cold_starts"], short(it["wait"]["most"]), short(it["registry_bytes"] / 1e6)]
        for name, it in outcomes.items()
    ]
    section.table(["", "cold starts", "longest wait, s", "registry, MB"], simulated)
    section.plot(
        "trace",
        f"Slowest response of each second, 1 to {HIGH} calls a second on {HOSTS} hosts (Figure 11)",
        plots.timeline("s", "s", {way: by_second(it, max) for way, it in found.items()}),
    )
    faster = found[OFF].back_to_normal() / max(found[TREES].back_to_normal(), 0.1)
    section.promise(
        f"time until responses of a burst on {HOSTS} hosts of {RATE} are as before, with trees",
        "sooner than without (in the paper 4 times)",
        f"{faster:.1f} times as soon ({short(found[TREES].back_to_normal())} and"
        f" {short(found[OFF].back_to_normal())} s)",
        faster > 1,
    )
    return section
