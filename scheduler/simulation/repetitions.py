"""Many runs of one workload: seeds, the values of a sweep, and what the runs say together as means with intervals of confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.scheduler.errors import SimulationError
from millstream.scheduler.simulation.plots import Line, Panel

POINTS_MAX = 1_000
SUFFIX = "_ci95"
"""Ends the name of a column that holds half the width of the 95% interval around the mean beside it."""

# Student's t: 97.5% of the distribution lie below, for 1, 2, … degrees of freedom.
_T = (
    *(12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139),
    *(2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963),
    *(2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407, 2.045230, 2.042272),
)
_NORMAL = 1.959964


@dataclass(frozen=True)
class Sweep:
    """What is varied, and its values in ascending order."""

    name: str
    values: tuple[float, ...]

    @classmethod
    def parse(cls, text: str, known: Sequence[str]) -> Sweep:
        """Read `load=0.5:0.95:0.05` (both ends belong to it) or `load=0.5,0.7,0.9`; raises `SimulationError` naming what is known."""
        name, equals, values = text.partition("=")
        if name not in known or not equals:
            raise SimulationError(f"'{text}' is no sweep", hint=f"write one of {', '.join(known)}, as in {known[0]}=0.5:0.95:0.05")
        if ":" in values and (values.count(":") != 2 or "," in values):
            raise SimulationError(f"'{values}' is no range to sweep {name} over", hint=f"write {name}=from:to:step, as 0.5:0.95:0.05")
        try:
            numbers = [float(one) for one in values.replace(",", ":").split(":")]
        except ValueError:
            raise SimulationError(f"'{values}' are no numbers to sweep {name} over", hint=f"write {name}=0.5:0.95:0.05") from None
        if ":" in values:
            numbers = _range(name, *numbers)
        if not all(math.isfinite(number) and number > 0 for number in numbers):
            raise SimulationError(f"a sweep of {name} takes numbers above 0, not {values}")
        return cls(name, tuple(sorted(set(numbers))))


def _range(name: str, low: float, high: float, step: float) -> list[float]:
    count = (high - low) / step if step else -1.0
    if not 0 <= count < POINTS_MAX:
        raise SimulationError(f"{name}={low:g}:{high:g}:{step:g} is no range of at most {POINTS_MAX} values", hint="write from:to:step")
    return [round(low + place * step, 12) for place in range(int(count + 1e-9) + 1)]


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of `1,2,3` or `1-10`; raises `SimulationError`."""
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise SimulationError(f"'{text}' are no seeds", hint="write 1,2,3 or 1-10")
        seeds += range(int(low), int(high or low) + 1)
    if not seeds or len(seeds) > POINTS_MAX or len(set(seeds)) < len(seeds):
        raise SimulationError(f"'{text}' are not 1 to {POINTS_MAX} different seeds", hint="write 1,2,3 or 1-10")
    return tuple(seeds)


def interval95(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95% interval by Student's t; of one value the width is NaN: it says nothing of others."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return mean, math.nan
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return mean, student_t(count - 1) * deviation / math.sqrt(count)


def student_t(freedom: int) -> float:
    """Return the 97.5% point of Student's t, to four digits."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    z, n = _NORMAL, freedom  # Abramowitz and Stegun 26.7.5, to the third term
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + terms[0] / n + terms[1] / n**2 + terms[2] / n**3


def together(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each value of `keys`, in the order of first appearance: `seeds`, and of each measure mean and half width."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [dict(zip(keys, values, strict=True)) | {"seeds": len(found)} | dict(_measures(found, keys)) for values, found in groups.items()]


def _measures(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Iterator[tuple[str, float]]:
    for name, first in rows[0].items():
        if name not in (*keys, "seed") and isinstance(first, int | float):
            mean, half_width = interval95([float(row[name]) for row in rows])
            yield name, mean
            yield name + SUFFIX, half_width


Run = Callable[[str, int, "float | None"], Mapping[str, Any]]
"""What a policy, a seed and a value of the sweep give; it may name the policy otherwise."""


def every_run(policies: Sequence[str], seeds: Sequence[int], sweep: Sweep | None, run: Run) -> list[dict[str, Any]]:
    """Return a row for every policy, value of the sweep and seed, in this order: these, then what `run` gives.

    All runs of one seed come one after the other, so that `run` may keep what it has read for a seed.
    """
    values = (None,) if sweep is None else sweep.values
    found = {}
    for seed in seeds:
        for at, value in enumerate(values):
            for place, policy in enumerate(policies):
                swept = {} if sweep is None else {sweep.name: value}
                found[place, at, seed] = {"policy": policy, **swept, "seed": seed, **run(policy, seed, value)}
    return [found[key] for key in sorted(found)]


def check_measures(chosen: Sequence[str], known: Iterable[str]) -> None:
    """Raise `SimulationError` for a measure that there is not."""
    known = list(known)
    unknown = next((name for name in chosen if name not in known), None)
    if unknown is not None:
        raise SimulationError(f"there is no measure {unknown}", hint="they are " + ", ".join(known))


# What is drawn unless other measures are asked for, with words for it.
_DRAWN = {
    "response_ms_mean": "mean response time, ms",
    "slowdown_mean": "mean slowdown",
    "memory_bytes_max": "memory in queues, bytes",
    "utility_per_application": "utility",
}


def mean_panels(rows: Sequence[Mapping[str, Any]], keys: Sequence[str], measures: Sequence[str] | None = None) -> list[Panel]:
    """Return a panel a measure for rows of `together`.

    Over the values of what varies most (of `keys`, after the policy) it has a line a policy, without such a bar a policy, and their
    intervals where there are several seeds. Raises `SimulationError` for a measure that the rows have not.
    """
    known = [name for name in rows[0] if name + SUFFIX in rows[0]]
    chosen = [name for name in _DRAWN if name in known] or known[:4] if measures is None else list(measures)
    check_measures(chosen, known)
    numeric = [key for key in keys[1:] if all(isinstance(row[key], int | float) for row in rows)]
    swept = max(numeric, key=lambda key: len({row[key] for row in rows}), default=None)
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        others = [f"{key}={row[key]}" for key in keys[1:] if key != swept]
        lines.setdefault(", ".join([row["policy"], *others]), []).append(row)
    return [_mean_panel(lines, measure, swept, alone=len(chosen) == 1) for measure in chosen]


def _mean_panel(lines: Mapping[str, Sequence[Mapping[str, Any]]], measure: str, swept: str | None, *, alone: bool) -> Panel:
    words = _DRAWN.get(measure, measure.replace("_", " "))
    made = []
    for label, rows in lines.items():
        error = None if rows[0]["seeds"] == 1 else [row[measure + SUFFIX] for row in rows]
        made.append(Line(label, [row[swept] if swept else "" for row in rows], [row[measure] for row in rows], error))
    return Panel("" if alone else words, swept or "", words, made, kind="line" if swept else "bar")
