"""`make bench`: all experiments, and RESULTS.md with the commands that made each figure.

Experiments can be selected by name: `python bench/run.py lean idle`. Then only their sections are
printed, their plots are in bench/out/plots, and RESULTS.md is not changed. With `--keep`, what they
measure replaces their sections of RESULTS.md and their plots; the other sections stay, each with
the date and the machine of its own run.
"""

import argparse
import os
import platform
import signal
import sys
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))

import acceptance
import apps
import burst_trace
import calibration
import colocated
import engines
import entry
import exchange
import handlers
import hosts
import idle
import lean
import lean_before
import network
import paper_figures
import placements
import pulls
import queries
import resize
import scans
import short_queries
import simulated
import spread
import spread_pulls
import tpcds
import tpch
import windows
import worker_bursts
from common.figures import Section
from common.peers import versions
from common.results import Result, page

EXPERIMENTS = {
    "lean": lean.run,
    "network": network.run,
    "apps": apps.run,
    "handlers": handlers.run,
    "images": pulls.run,
    "resize": resize.run,
    "queries": queries.run,
    "tpch": tpch.run,
    "tpch-large": tpch.run_large,
    "tpcds": tpcds.run,
    "windows": windows.run,
    "exchange": exchange.run,
    "scans": scans.run,
    "hosts": hosts.run,
    "short-queries": short_queries.run,
    "bursts": worker_bursts.run,
    "placements": placements.run,
    "entry": entry.run,
    "acceptance": acceptance.run,
    "simulated": simulated.run,
    "calibration": calibration.run,
    "spread": spread.run,
    "spread-pulls": spread_pulls.run_containerd,
    "spread-dragonfly": spread_pulls.run_dragonfly,
    "trace": burst_trace.run,
    "colocated": colocated.run,
    "paper-figures": paper_figures.run,
    "udfs": engines.run,
    "idle": idle.run,
}
if lean_before.BEFORE:
    EXPERIMENTS["lean-before"] = lean_before.run


def machine() -> str:
    """The machine in one line: absolute numbers of two machines are not comparable, ratios are."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} x {model}, {memory:.0f} GiB, Linux {platform.release()},"
        f" load {load:.2f} before it began"
    )


def draw(section: Section, place: Path) -> None:
    """Writes the plots without the date, so that equal data gives equal files."""
    for name, figure in section.plots.items():
        (place / "plots").mkdir(parents=True, exist_ok=True)
        figure.savefig(place / f"plots/{name}.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmarks beside other systems.")
    parser.add_argument("names", nargs="*", choices=[[], *EXPERIMENTS], metavar="EXPERIMENT")
    parser.add_argument("--keep", action="store_true", help="write the sections into RESULTS.md")
    options = parser.parse_args()
    keep = options.keep or not options.names
    if os.geteuid() != 0:
        sys.exit("sandboxes and Docker need root: sudo make bench")
    # SIGTERM is handled like Ctrl-C: everything that was started is removed again.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = []
    for name in options.names or EXPERIMENTS:
        print(f"--- {name}", file=sys.stderr, flush=True)
        where = machine()
        section = EXPERIMENTS[name]()
        results.append(Result.of(section, time.strftime("%Y-%m-%d"), where, versions()))
        draw(section, BENCH if keep else BENCH / "out")
        if keep:
            # At once: a later experiment that fails does not take this one with it.
            results[-1].write(BENCH / "results" / f"{name}.json")
    print(page(results))
    if keep:
        (BENCH / "RESULTS.md").write_text(page(Result.read_all(BENCH / "results", EXPERIMENTS)))


if __name__ == "__main__":
    main()
