"""Medians, spreads and Markdown: the format of measurements in RESULTS.md."""

import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def short(value: float) -> str:
    """Three significant digits, without exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """The median with quartiles; for few samples minimum and maximum, for one the value."""
    if len(values) == 1:
        return short(values[0])
    if len(values) < 4:
        return f"{short(median(values))} [{short(min(values))} to {short(max(values))}]"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{short(middle)} ({short(low)} to {short(high)})"


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values are."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]


@dataclass
class Promise:
    """A target that a measurement has to reach."""

    what: str
    bar: str
    measured: str
    kept: bool


@dataclass
class Section:
    """One experiment: its text, its tables, and its commands."""

    title: str
    lines: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    plots: "dict[str, Figure]" = field(default_factory=dict)
    # What other experiments compare theirs with.
    numbers: dict[str, float] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self.lines += [text, ""]

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        cells = [list(map(str, head)), ["---"] * len(head), *(list(map(str, r)) for r in rows)]
        self.lines += ["| " + " | ".join(row) + " |" for row in cells] + [""]

    def plot(self, name: str, shows: str, figure: "Figure") -> None:
        """Adds a plot to the section and writes it to a file of that name."""
        figure.axes[0].set_title(textwrap.fill(shows, 70), fontsize=9)
        self.plots[name] = figure
        self.lines += [f"![{shows}](plots/{name}.svg)", ""]

    def promise(self, what: str, bar: str, measured: str, kept: bool) -> None:
        self.promises.append(Promise(what, bar, measured, kept))

    def markdown(self) -> str:
        made_by = ["Made by:", "", "```sh", *self.commands, "```", ""] if self.commands else []
        return "\n".join([f"## {self.title}", "", *self.lines, *made_by])
