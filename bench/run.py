"""`make bench`: all experiments, and RESULTS.md with the commands that made each figure.

Experiments can be selected by name: `python bench/run.py lean idle`. Then only their sections are
printed, their plots are in bench/out/plots, and RESULTS.md is not changed.
"""

import os
import platform
import signal
import sys
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))

import apps
import handlers
import idle
import lean
import network
import pulls
import queries
import resize
import tpch
import windows
from common.figures import Section
from common.peers import versions

EXPERIMENTS = {
    "lean": lean.run,
    "network": network.run,
    "apps": apps.run,
    "handlers": handlers.run,
    "images": pulls.run,
    "resize": resize.run,
    "queries": queries.run,
    "tpch": tpch.run,
    "windows": windows.run,
    "idle": idle.run,
}


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


def page(sections: list[Section], where: str) -> str:
    promises = [promise for section in sections for promise in section.promises]
    head = Section("Bars")
    head.table(
        ["what", "bar", "measured", ""],
        [[p.what, p.bar, p.measured, "kept" if p.kept else "**missed**"] for p in promises],
    )
    intro = [
        "# Results",
        "",
        "Written by `make bench`. Medians, with the lower and upper quartile in parentheses; of two"
        " or three samples the least and the greatest in brackets; a figure alone is a single"
        " sample. Trust ratios, not absolutes.",
        "",
        f"{time.strftime('%Y-%m-%d')}: {where}.",
        "",
        f"Peers: {', '.join(versions())}.",
        "",
    ]
    return "\n".join([*intro, head.markdown(), *(section.markdown() for section in sections)])


def draw(sections: list[Section], place: Path) -> None:
    """Writes the plots without the date, so that equal data gives equal files."""
    for section in sections:
        for name, figure in section.plots.items():
            (place / "plots").mkdir(parents=True, exist_ok=True)
            figure.savefig(place / f"plots/{name}.svg", metadata={"Date": None})


def main() -> None:
    asked = sys.argv[1:] or list(EXPERIMENTS)
    if unknown := [name for name in asked if name not in EXPERIMENTS]:
        sys.exit(f"no experiment {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}")
    if os.geteuid() != 0:
        sys.exit("sandboxes and Docker need root: sudo make bench")
    # SIGTERM is handled like Ctrl-C: everything that was started is removed again.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    where, sections = machine(), []
    for name in asked:
        print(f"--- {name}", file=sys.stderr, flush=True)
        sections.append(EXPERIMENTS[name]())
    text = page(sections, where)
    print(text)
    draw(sections, BENCH / "out" if sys.argv[1:] else BENCH)
    if not sys.argv[1:]:
        (BENCH / "RESULTS.md").write_text(text)


if __name__ == "__main__":
    main()
