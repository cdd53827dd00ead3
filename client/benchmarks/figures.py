"""Figures as lines of JSON or a table, and against those recorded before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

# Keys that say which figure it is, and keys of figures that are better when greater, or when smaller.
IDENTITY = (
    "name",
    "policy",
    "operators",
    "queries",
    "workers",
    "train",
    "class",
    "priority",
    "shared",
    "clients",
    "groups",
    "durability",
    "expressways",
    "speedup",
    "slots",
)
GREATER = ("rows_per_s", "ratio")
SMALLER = ("p50_ms", "p99_ms", "p9999_ms", "peak_rss_mb", "overhead", "bytes_per_row", "ns_each", "write_ms", "read_ms", "bytes")
NOISE_MIN = 0.10  # below that nothing is said to have moved: a busy machine alone does as much

_UNITS = {
    "rows_per_s": "rows/s",
    "reference_rows_per_s": "by hand/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "p9999_ms": "p99.99 ms",
    "sent_late_p99_ms": "sent late, p99 ms",
    "peak_rss_mb": "peak MB",
    "cpu_s": "CPU s",
    "bytes_per_row": "bytes/row",
    "ns_each": "CPU ns each",
    "write_ms": "write ms",
    "read_ms": "read ms",
    "copy_ms": "copy ms",
}


def rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures with four significant digits, whole numbers as they are."""
    return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in figures.items() if v is not None}


def as_json(figures: Mapping[str, Any]) -> str:
    """Return one line."""
    return json.dumps(rounded(figures))


def as_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return all lines under a header, a column for each key that any has."""
    shown = [{k: _cell(k, v) for k, v in rounded(line).items()} for line in lines]
    keys = list(dict.fromkeys(k for line in shown for k in line))
    rows = [[_UNITS.get(k, k) for k in keys], *([line.get(k, "") for k in keys] for line in shown)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(keys))]
    return "\n".join(
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    )


def _cell(key: str, value: Any) -> str:
    if key in ("noise", "overhead") and isinstance(value, float):
        return f"{value:.1%}"
    if isinstance(value, float) and value >= 1000:
        return f"{value / 1e6:.3g} M" if value >= 1e6 else f"{value / 1e3:.3g} k"
    return str(value)


def identity(figures: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells two lines apart."""
    return tuple(figures.get(k) for k in IDENTITY)


def moved(figures: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each figure that moved by more than the noise of both.

    Where there is a ratio to a reference that ran beside it, that alone is compared: speeds depend on the machine.
    """
    noise = max(NOISE_MIN, 2 * (float(figures.get("noise", 0.0)) + float(before.get("noise", 0.0))))
    told = []
    for key in (*GREATER, *SMALLER):
        old, new = before.get(key), figures.get(key)
        if not old or new is None or (key == "rows_per_s" and "ratio" in figures and "ratio" in before):
            continue
        change = new / old - 1
        if abs(change) > noise:
            better = (change > 0) == (key in GREATER)
            told.append(f"{key} {old:g} -> {new:g} ({change:+.0%}, {'better' if better else 'worse'}; noise {noise:.0%})")
    return told


def read_record(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the recorded figures by identity."""
    return {identity(line): line for line in json.loads(path.read_text("utf-8"))}


def write_record(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Record figures, replacing those of the same identity and keeping the others."""
    known = read_record(path) if path.exists() else {}
    known.update({identity(line): rounded(line) for line in lines})
    path.write_text("[\n" + ",\n".join("  " + json.dumps(line) for line in known.values()) + "\n]\n", "utf-8")


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
    """Write the curves that `lines` have figures for; the ending of the name says the format. Raises ClickException without any."""
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
