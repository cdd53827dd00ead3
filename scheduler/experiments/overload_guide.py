"""A picture of each way to manage load, for docs/overload.md: three classes, the lowest of which gets five times its input for a while.

One set-up for all, that of the experiments on Pham 2013: eleven queries a class under `cqc`, in virtual time. Class 3 rises from 600 to
3,000 tuples a second on each of its streams through the middle third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.scheduler.experiments.scenarios.pham_claims import TARGETS_MS
from millstream.scheduler.experiments.scenarios.pham_runs import classes
from millstream.scheduler.load.names import NAMES
from millstream.scheduler.simulation.errors import SimulationError

SECONDS = 30.0
SLOW = 8.0
"""Divides the rates and multiplies the costs, so that a picture takes seconds to compute."""

RATES = ((600.0, 600.0, 600.0), (600.0, 600.0, 600.0), (600.0, 3_000.0, 600.0))
_COLOURS = ("#1f5fa8", "#2f8f5b", "#c8452f")

Told = Sequence[Mapping[str, Any]]
"""What `pham_runs.classes` tells of each class."""


def run_modes(progress: Callable[[str], None], seconds: float = SECONDS, slow: float = SLOW) -> dict[str, Told]:
    """Run every load manager."""
    found: dict[str, Told] = {}
    for name in NAMES:
        progress(name)
        found[name] = classes(name, RATES, seconds, slow)["classes"]
    return found


def draw_modes(found: Mapping[str, Told], folder: Path) -> Iterator[Path]:
    """Draw a picture a load manager: response time and what is dropped, over the time of arrival."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError as problem:
        raise SimulationError("a plot needs matplotlib", hint="install millstream[experiments]") from problem
    folder.mkdir(parents=True, exist_ok=True)
    for name, told in found.items():
        with mpl.rc_context({"font.size": 7}):
            figure, axes = pyplot.subplots(1, 2, figsize=(5.4, 1.9), layout="constrained")
            _responses(axes[0], told)
            _drops(axes[1], told)
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=96, metadata={"Software": None})
            pyplot.close(figure)
        yield path


def _responses(axis: Any, told: Told) -> None:
    for place, one in enumerate(told):
        points = [(second, value) for second, value in enumerate(one["by_second"]["response_ms"]) if value]
        label = f"class {place + 1}, target {TARGETS_MS[place]:.0f} ms"
        axis.step([second for second, _ in points], [value for _, value in points], color=_COLOURS[place], linewidth=1.0, label=label)
    axis.set_yscale("log")
    axis.set_title("response time, ms", fontsize=7)
    axis.legend(fontsize=5.5)
    _finish(axis)


def _drops(axis: Any, told: Told) -> None:
    for place, one in enumerate(told):
        values = [100.0 * value for value in one["by_second"]["drop"]]
        label = f"class {place + 1}: {100.0 * one['loss']:.1f}% in all"
        axis.step(range(len(values)), values, color=_COLOURS[place], linewidth=1.0, label=label)
    axis.set_ylim(-3, 103)
    axis.set_title("dropped, % of input", fontsize=7)
    axis.legend(fontsize=5.5)
    _finish(axis)


def _finish(axis: Any) -> None:
    axis.set_xlabel("time of arrival, s", fontsize=7)
    axis.grid(visible=True, alpha=0.3)
