"""Rates over time: `40/s`, or a profile such as `40/s:150s,80/s:50s` that repeats; and the instants they give.

An arrival process is given in units of operational time: one row is worth `UNIT`. A profile turns units into nanoseconds since the
start by inverting its running integral, so a Poisson stream stays Poisson within each step of the profile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from millstream.feeder.errors import RateError
from numpy.typing import NDArray

NS_PER_S = 1_000_000_000
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MULTIPLES = {"": 1.0, "k": 1e3, "M": 1e6}
_UNITS_MAX = 2**62
_INSTANT_NS_MAX = 2**62


@dataclass(frozen=True, slots=True)
class Step:
    """A rate in rows per second (0 is a pause) and how long it holds, in ns; None: from then on."""

    rows_per_s: float
    duration_ns: int | None


class Profile:
    """Steps of constant rate, repeated for ever; a single step without a duration is a constant rate."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self._ends_ns = np.cumsum([step.duration_ns or 0 for step in steps], dtype=np.int64)
        masses = [round(step.rows_per_s * (step.duration_ns or 0) / NS_PER_S * UNIT) for step in steps]
        self._cycle_ns = int(self._ends_ns[-1])
        self._cycle_units = sum(masses)
        if not any(step.rows_per_s > 0 and (mass or step.duration_ns is None) for step, mass in zip(steps, masses, strict=True)):
            raise RateError("a profile needs at least one step with a rate above 0")
        if self._cycle_units >= _UNITS_MAX:
            raise RateError("a profile may not bring more than four billion rows before it repeats", hint="shorten its steps")
        self._mass_ends = np.cumsum(masses, dtype=np.int64)

    def instants_ns(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for points of operational time the ns since the start at which they are reached; non-decreasing if `units` is.

        What lies more than 146 years ahead lies at 146 years: later ones cannot be told in ns.
        """
        if self.steps[0].duration_ns is None:
            evenly = np.rint(units * (NS_PER_S / (self.steps[0].rows_per_s * UNIT)))
            return np.asarray(np.minimum(evenly, float(_INSTANT_NS_MAX)), dtype=np.int64)
        # A point that completes a step, or the whole cycle, lies at its end and not after a pause that follows: so the cycle is
        # counted from 1 to its mass, and the search takes the first step that reaches the point.
        cycles, rest = np.divmod(units - 1, self._cycle_units)
        rest += 1
        step = np.searchsorted(self._mass_ends, rest, side="left")
        ns_per_unit = np.array([NS_PER_S / (s.rows_per_s * UNIT) if s.rows_per_s else 0.0 for s in self.steps])
        before_ns = np.concatenate(([0], self._ends_ns[:-1]))[step]
        before_units = np.concatenate(([0], self._mass_ends[:-1]))[step]
        within = np.rint((rest - before_units) * ns_per_unit[step]).astype(np.int64)
        told = cycles < _INSTANT_NS_MAX // self._cycle_ns
        instants = np.where(told, cycles, 0) * self._cycle_ns + np.minimum(before_ns + within, self._ends_ns[step])
        return np.asarray(np.where(told, np.minimum(instants, _INSTANT_NS_MAX), _INSTANT_NS_MAX), dtype=np.int64)

    def rate_at(self, elapsed_ns: int) -> float:
        """Return the rate asked for, in rows per second, so long after the start."""
        if self._cycle_ns == 0:
            return self.steps[0].rows_per_s
        position = int(np.searchsorted(self._ends_ns, elapsed_ns % self._cycle_ns, side="right"))
        return self.steps[position].rows_per_s

    def __str__(self) -> str:
        """Spell the profile so that `parse_profile` reads it."""
        return ",".join(f"{step.rows_per_s!r}/s" + (f":{step.duration_ns}ns" if step.duration_ns else "") for step in self.steps)


def parse_rate(text: str) -> float:
    """Read `500`, `500/s`, `2.5k/s`, `90/min`; return rows per second."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([kM]?)\s*(?:/\s*(us|ms|s|m|min|h|d))?\s*", text)
    if match is None:
        raise RateError(f"cannot read the rate {text!r}", hint="write it as 500/s, 2k/s or 90/min")
    return float(match.group(1)) * _MULTIPLES[match.group(2)] / _SECONDS[match.group(3) or "s"]


def parse_duration_ns(text: str) -> int:
    """Read `150s`, `1.5m`, `250 ms`; return ns."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|min|h|d)\s*", text)
    if match is None:
        raise RateError(f"cannot read the duration {text!r}", hint="write it as 150s, 250ms or 2m")
    seconds_per_unit = 1e-9 if match.group(2) == "ns" else _SECONDS[match.group(2)]
    duration_ns = round(float(match.group(1)) * seconds_per_unit * NS_PER_S)
    if duration_ns == 0:
        raise RateError(f"the duration {text!r} is zero", hint="leave the step out")
    return duration_ns


def constant(rows_per_s: float) -> Profile:
    """Return the profile of one rate for ever. RateError when it is not above 0."""
    if rows_per_s <= 0:
        raise RateError("the rate must be above 0", hint="use --max to feed without pacing")
    return Profile((Step(rows_per_s, None),))


def parse_profile(text: str) -> Profile:
    """Read `40/s:150s,80/s:50s`: each step a rate and how long it holds; after the last it begins anew."""
    steps = []
    for part in text.split(","):
        rate, colon, duration = part.partition(":")
        if not colon:
            raise RateError(f"the step {part.strip()!r} of the profile has no duration", hint="write RATE:DURATION, as in 40/s:150s")
        steps.append(Step(parse_rate(rate), parse_duration_ns(duration)))
    return Profile(tuple(steps))


UNIT = 1 << 30  # one mean gap; a sum of eight billion gaps still fits an int64

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_BLOCK = 1 << 16  # gaps computed at a time when only their sum is wanted


def unit_gaps(seed: int, stream: int, start: int, stop: int) -> NDArray[np.int64]:
    """Return gaps number start to stop (excluded) of a stream: int64, mean UNIT, exponentially distributed."""
    uniform = uniforms(seed, stream, start, stop)
    gaps: NDArray[np.int64] = np.rint(-np.log(uniform) * UNIT).astype(np.int64)
    return gaps


def sum_of_gaps(seed: int, stream: int, start: int, stop: int) -> int:
    """Return the sum of gaps start to stop (excluded) without holding them all."""
    return sum(int(unit_gaps(seed, stream, at, min(at + _BLOCK, stop)).sum()) for at in range(start, stop, _BLOCK))


def uniforms(seed: int, stream: int, start: int, stop: int) -> NDArray[np.float64]:
    """Return uniform numbers in (0, 1), both ends excluded, 53 bits each."""
    key = np.uint64(stream_key(seed, stream))
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the point
        counters = np.arange(start + 1, stop + 1, dtype=np.uint64) * np.uint64(_GOLDEN) + key
    return ((_mixed(counters) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def stream_key(seed: int, stream: int) -> int:
    """Return the 64-bit key of a stream's sequence; different streams start at unrelated places."""
    return _mix(_mix(seed & _MASK) ^ _mix((stream + 1) * _GOLDEN & _MASK))


def _mix(value: int) -> int:
    return int(_mixed(np.array([value], dtype=np.uint64))[0])


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
