"""Draws panels of findings with matplotlib, which is imported only here and only when something is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.scheduler.errors import SimulationError


@dataclass(frozen=True)
class Line:
    """One curve or bar group of a panel, perhaps with error bars."""

    label: str
    x: Sequence[Any]
    y: Sequence[float]
    error: Sequence[float] | None = None
    """Half the width of the interval at each point."""


@dataclass(frozen=True)
class Panel:
    """One set of axes. `kind` is "line", "bar" or "step"."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    kind: str = "line"
    x_log: bool = False
    y_log: bool = False


# Colours that differ in lightness as well, with a marker each, so that curves can be told apart in print.
_STYLES = (
    ("#1f5fa8", "o"), ("#c8452f", "s"), ("#2f8f5b", "^"), ("#8b5fb0", "D"), ("#d99a1c", "v"), ("#4d4d4d", "P"), ("#24a3a8", "X"),
    ("#d46aa5", "<"), ("#7a8f1f", ">"), ("#8c564b", "*"),
)  # fmt: skip

# What a file of each kind would say about when it was made.
_DATES: dict[str, tuple[str, ...]] = {".svg": ("Date",), ".pdf": ("CreationDate",), ".png": ()}
_DASHES = ("-", "--", ":", "-.")
LEGEND_LINE = 0.09  # of a panel's height for each line of a legend, which must not stand on the bars


def kind_of(path: Path) -> str:
    """Return the ending of a picture's name, which says its format; raises `SimulationError` when there is no such format."""
    kind = path.suffix.lower()
    if kind not in _DATES:
        raise SimulationError(f"'{path.name}' does not say what kind of picture it is to be", hint=f"end it in {', '.join(_DATES)}")
    return kind


def draw(panels: Sequence[Panel], title: str, path: Path) -> None:
    """Write one picture with all panels. Raises `SimulationError` without matplotlib, and as `kind_of` does."""
    dates = _DATES[kind_of(path)]
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError as problem:
        raise SimulationError("a plot needs matplotlib", hint="install millstream[experiments]") from problem
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    # A fixed salt and no date: the same findings give the same bytes.
    with mpl.rc_context({"svg.hashsalt": "millstream", "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 9}):
        width, height = _size(panels)
        figure, axes = pyplot.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained")
        for index, axis in enumerate(axes.flat):
            if index < len(panels):
                _panel(axis, panels[index])
            else:
                axis.set_visible(False)
        figure.suptitle(title, fontsize=11)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata=dict.fromkeys(dates), dpi=110)
        pyplot.close(figure)


def _size(panels: Sequence[Panel]) -> tuple[float, float]:
    """Return width and height of a panel in inches: a legend of many lines stands beside the panel."""
    lines = max(len(panel.lines) for panel in panels)
    return (5.2, 3.6) if lines <= len(_STYLES) else (7.4, max(3.6, 0.6 + 0.13 * lines))


def _panel(axis: Any, panel: Panel) -> None:
    for index, line in enumerate(panel.lines):
        colour, marker = _STYLES[index % len(_STYLES)]
        dash = _DASHES[index // len(_STYLES) % len(_DASHES)]
        if panel.kind == "bar":
            width = 0.8 / len(panel.lines)
            places = [place + (index - (len(panel.lines) - 1) / 2) * width for place in range(len(line.x))]
            axis.bar(places, line.y, width, yerr=line.error, capsize=3, label=line.label, color=colour)
            axis.set_xticks(range(len(line.x)), [str(one) for one in line.x], rotation=20 if len(line.x) > 4 else 0)
        elif panel.kind == "step":
            axis.plot(line.x, line.y, label=line.label, color=colour, linewidth=0.9, linestyle=dash)
        elif line.error is not None:
            style = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.4, "linestyle": dash}
            axis.errorbar(line.x, line.y, yerr=line.error, label=line.label, capsize=2.5, elinewidth=0.9, **style)
        else:
            axis.plot(line.x, line.y, label=line.label, color=colour, marker=marker, markersize=4, linewidth=1.4, linestyle=dash)
    if panel.x_log:
        axis.set_xscale("log")
    if panel.y_log:
        axis.set_yscale("log")
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    axis.grid(visible=True, alpha=0.3)
    if len(panel.lines) > len(_STYLES):
        axis.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    elif len(panel.lines) > 1:
        if panel.kind == "bar" and not panel.y_log:
            axis.set_ylim(top=axis.get_ylim()[1] * (1.0 + LEGEND_LINE * len(panel.lines)))
        axis.legend(fontsize=7)
