"""Growth curves as one picture, with matplotlib, which is imported only here and only when something is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Curve:
    """One panel: the figures called `name`, `size` along the axis, `figure` upwards."""

    name: str
    title: str
    size: str
    figure: str = "ns_each"
    label: str = "processor time, ns"


CURVES = (
    Curve("growth-queries", "a row and query", "queries"),
    Curve("growth-groups", "a row, COUNT and SUM by key", "groups"),
    Curve("growth-trains", "a row through six operators", "train"),
    Curve("growth-publishers", "a row published", "clients"),
    Curve("growth-readers", "a row delivered", "clients"),
    Curve("growth-workers", "eight queries", "workers", "rows_per_s", "rows/s"),
)


def draw(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the curves that `lines` have figures for; the ending of the name says the format."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError as problem:
        raise click.ClickException("a plot needs matplotlib (install millstream[experiments])") from problem
    shown = [(curve, points) for curve in CURVES if (points := points_of(lines, curve))]
    if not shown:
        raise click.ClickException("there are no growth curves among these figures (run the benchmark growth)")
    # A fixed salt and no date: the same figures give the same bytes.
    with mpl.rc_context({"svg.hashsalt": "millstream", "svg.fonttype": "none", "font.size": 9}):
        columns = min(3, len(shown))
        rows = -(-len(shown) // columns)
        figure, axes = pyplot.subplots(rows, columns, figsize=(3.6 * columns, 2.7 * rows), squeeze=False, layout="constrained")
        for axis in axes.flat[len(shown) :]:
            axis.set_visible(False)
        for axis, (curve, points) in zip(axes.flat, shown, strict=False):
            axis.plot(*zip(*points, strict=True), color="#1f5fa8", marker="o")
            axis.set_title(curve.title)
            axis.set_xlabel("rows a train" if curve.size == "train" else curve.size)
            axis.set_ylabel(curve.label)
            if curve.size != "workers":
                axis.set_xscale("log")
            if max(y for _, y in points) > 10 * min(y for _, y in points):
                axis.set_yscale("log")
            else:
                axis.set_ylim(bottom=0)
            axis.grid(visible=True, alpha=0.3)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {}, dpi=110)
        pyplot.close(figure)


def points_of(lines: Sequence[Mapping[str, Any]], curve: Curve) -> list[tuple[float, float]]:
    """Return (size, figure) of a curve, by size."""
    return sorted((float(line[curve.size]), float(line[curve.figure])) for line in lines if line["name"] == curve.name)
