"""The kinds of plots: lines and bars."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

# Never opens a window; equal data gives equal files.
matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "snowmelt"
matplotlib.rcParams["font.size"] = 9

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .figures import short

# Fixed colours, the same for a system in all plots, and distinguishable with colour blindness.
COLOURS = {
    "snowmelt": "#0072b2",
    "floor": "#999999",
    "floor, root": "#56b4e9",
    "crun": "#e69f00",
    "runc": "#d55e00",
    "ctr": "#cc79a7",
    "docker": "#000000",
}
LEGEND: dict[str, Any] = {"frameon": False, "columnspacing": 1.2, "handlelength": 1}
STYLES = [
    ("#0072b2", "o-"),
    ("#d55e00", "s-"),
    ("#009e73", "^-"),
    ("#000000", "v-"),
    ("#e69f00", "o--"),
    ("#cc79a7", "s--"),
    ("#56b4e9", "^--"),
    ("#999999", "v--"),
    ("#000000", "o:"),
    ("#d55e00", "s:"),
    ("#009e73", "^:"),
    ("#0072b2", "v:"),
]
OTHERS = ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#999999"]


def _axes(width: float, unit: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.set_ylabel(unit)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.4)
    axes.set_axisbelow(True)
    return figure, axes


def lines(x: str, unit: str, series: Mapping[str, Mapping[int, float]]) -> Figure:
    """A line for each name over the same integers, on a logarithmic scale."""
    figure, axes = _axes(5.6, unit)
    for name, points in series.items():
        axes.plot(range(len(points)), list(points.values()), "o-", label=name, color=COLOURS[name])
    ticks = next(iter(series.values()))
    axes.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
    axes.set_xlabel(x)
    axes.set_yscale("log")
    _legend(axes)
    return figure


def growth(x: str, unit: str, series: Mapping[str, Mapping[int, float]]) -> Figure:
    """A line for each name, each over its own numbers, on logarithmic scales."""
    figure, axes = _axes(7.2, unit)
    styles = iter(STYLES * len(series))
    for name, points in series.items():
        colour, style = next(styles)
        xs, ys = list(points), list(points.values())
        axes.plot(xs, ys, style, label=name, color=colour, markersize=4, linewidth=1.2)
    axes.set_xlabel(x)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _legend(axes)
    return figure


def model(
    x: str,
    unit: str,
    curves: Mapping[str, Mapping[int, float]],
    measured: Mapping[str, Mapping[int, float]],
) -> Figure:
    """A curve for each name by a model, and points of the same colour that were measured, on
    logarithmic scales."""
    figure, axes = _axes(7.2, unit)
    styles = iter(STYLES * len(curves))
    for name, points in curves.items():
        colour, style = next(styles)
        axes.plot(list(points), list(points.values()), label=name, color=colour, linewidth=1.2)
        found = measured.get(name, {})
        axes.plot(list(found), list(found.values()), style[0], color=colour, markersize=5)
    axes.set_xlabel(x)
    axes.set_xscale("log", base=2)
    ticks = sorted({n for points in curves.values() for n in points})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_yscale("log")
    _legend(axes)
    return figure


Points = Mapping[str, Sequence[tuple[float, float]]]


def progress(x: str, unit: str, series: Points) -> Figure:
    """A line for each name through points in their order, x on a logarithmic scale."""
    figure, axes = _lines(x, unit, series, slice(None))
    axes.set_xscale("log")
    _legend(axes)
    return figure


def timeline(x: str, unit: str, series: Points) -> Figure:
    """A line for each name through points in their order, from 0 on linear scales."""
    figure, axes = _lines(x, unit, series, slice(1, None))
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure


def _lines(x: str, unit: str, series: Points, part: slice) -> tuple[Figure, Axes]:
    """Lines in this part of their styles, which begin with a marker."""
    figure, axes = _axes(7.2, unit)
    styles = iter(STYLES * len(series))
    for name, points in series.items():
        colour, style = next(styles)
        xs, ys = [point[0] for point in points], [point[1] for point in points]
        axes.plot(xs, ys, style[part], label=name, color=colour, markersize=3, linewidth=1.2)
    axes.set_xlabel(x)
    return figure, axes


def ranked(x: str, unit: str, series: Mapping[str, Sequence[float]]) -> Figure:
    """A line for each name through values in ascending order, each over 1, 2, 3 and so on."""
    figure, axes = _axes(7.2, unit)
    styles = iter(STYLES * len(series))
    for name, values in series.items():
        colour, style = next(styles)
        places = range(1, len(values) + 1)
        axes.plot(places, sorted(values), style, label=name, color=colour, markersize=3)
    axes.set_xlabel(x)
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure


def bars(unit: str, groups: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> Figure:
    """For each group one bar per name, side by side, with its value on top; `None`: no bar."""
    figure, axes = _axes(7.2, unit)
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        there = [(place, v) for place, v in zip(places, values, strict=True) if v is not None]
        drawn = axes.bar(
            [place for place, _ in there],
            [value for _, value in there],
            width * 0.94,
            label=name,
            color=OTHERS[number % len(OTHERS)],
        )
        axes.bar_label(drawn, fmt=short, fontsize=5.5, padding=1, rotation=90)
    axes.set_xticks(range(len(groups)), groups)
    _honest(axes, [v for values in series.values() for v in values if v is not None])
    _legend(axes, ncols=len(series))
    return figure


def stacked(unit: str, groups: Sequence[str], parts: Mapping[str, Sequence[float]]) -> Figure:
    """One stacked bar for each group."""
    figure, axes = _axes(5.6, unit)
    below = [0.0] * len(groups)
    for number, (name, values) in enumerate(parts.items()):
        drawn = axes.bar(groups, values, 0.6, bottom=below, label=name, color=OTHERS[number])
        below = [a + b for a, b in zip(below, values, strict=True)]
    axes.bar_label(drawn, [short(total) for total in below], padding=2)
    axes.set_ylim(0, max(below) * 1.3)
    _legend(axes, ncols=len(parts))
    return figure


def _honest(axes: Axes, values: Sequence[float]) -> None:
    """An axis for bars: linear from zero if all are visible, otherwise logarithmic from a power of
    ten. Leaves space above them for their values and the legend."""
    least, most = min(values), max(values)
    if least > 0 and most / least > 30:
        decade = 10.0 ** math.floor(math.log10(least * 0.99))
        axes.set_yscale("log")
        axes.set_ylim(decade, most * (most / decade) ** 0.4)
        axes.set_ylabel(f"{axes.get_ylabel()} (logarithmic)")
    else:
        axes.set_ylim(0, most * 1.45)


def _legend(axes: Axes, ncols: int = 1) -> None:
    axes.legend(loc="upper center" if ncols > 1 else "best", ncols=ncols, fontsize=7, **LEGEND)
