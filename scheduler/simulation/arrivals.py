"""Arrival times of one stream, from a seed: int64 columns of ns that never step back. Everything is made in columns.

poisson     independent exponential gaps
regular     equal gaps
on-off      many sources that are on and off for Pareto periods of shape α; their sum is self-similar with a Hurst parameter of
            (3 − α) / 2, 0.8 for the default α = 1.4 (Willinger, Taqqu, Sherman, Wilson 1997)
trace       the gaps of a carried or given trace, scaled to a rate where one is asked for
burst       any of these with every n consecutive tuples moved to the time of the first (Sharaf 2007, 4.4.2), or n at a time with
            the gaps between (Carney 2005, 3.4.4)
steps       Poisson with a rate that changes at stated times (Pajjuri 2004, 6.5)
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping, Sequence
from importlib import resources
from types import MappingProxyType

import numpy as np
from millstream.engine.data.graph import NS_PER_S
from millstream.engine.data.records import dataclass
from millstream.scheduler.errors import SimulationError
from numpy.typing import NDArray

Times = NDArray[np.int64]

PARETO_SHAPE = 1.4
ON_OFF_SOURCES = 50


def _from_gaps(gaps_ns: NDArray[np.float64]) -> Times:
    return np.cumsum(gaps_ns).round().astype(np.int64)


def _mean_gap_ns(rate: float) -> float:
    if not rate > 0:
        raise SimulationError(f"a rate of {rate} tuples a second is not positive")
    return NS_PER_S / rate


def poisson(rate: float, count: int, seed: int) -> Times:
    """Return `count` arrivals at `rate` a second."""
    return _from_gaps(np.random.default_rng(seed).exponential(_mean_gap_ns(rate), count))


def regular(rate: float, count: int, seed: int = 0) -> Times:
    """Return `count` arrivals with equal gaps; the seed sets the phase of the first within one gap."""
    gap = _mean_gap_ns(rate)
    phase = np.random.default_rng(seed).uniform(0.0, gap) if seed else gap
    return (phase + gap * np.arange(count)).round().astype(np.int64)


def steps(rates: Sequence[tuple[float, float]], seed: int, count: int | None = None) -> Times:
    """Return Poisson arrivals under rates that hold for a time each: pairs of (tuples a second, seconds); the last may go on.

    With `count` the last rate holds until so many tuples have come.
    """
    chance = np.random.default_rng(seed)
    parts: list[NDArray[np.float64]] = []
    start = 0.0
    made = 0
    for position, (rate, seconds) in enumerate(rates):
        final = position == len(rates) - 1 and count is not None
        if final:
            assert count is not None
            times = start + np.cumsum(chance.exponential(_mean_gap_ns(rate), max(0, count - made)))
        else:
            span = seconds * NS_PER_S
            times = np.sort(start + chance.uniform(0.0, span, chance.poisson(rate * seconds)))
            start += span
        parts.append(times)
        made += len(times)
    joined = np.concatenate(parts).round().astype(np.int64)
    return joined if count is None else joined[:count]


def on_off(
    rate: float, count: int, seed: int, *, shape: float = PARETO_SHAPE, sources: int = ON_OFF_SOURCES, period_tuples: float = 10.0
) -> Times:
    """Return the first `count` arrivals of `sources` on/off sources, scaled to a mean of `rate` a second.

    A source sends at a constant pace while it is on; on and off periods are Pareto with `shape` and equal means, an on period holds
    `period_tuples` tuples on the average. SimulationError for a shape that is not between 1 and 2, or when the sources made too few.
    """
    if not 1.0 < shape < 2.0:
        raise SimulationError(f"a Pareto shape of {shape} is not between 1 and 2")
    chance = np.random.default_rng(seed)
    # In units of one gap of a sending source. Twice the tuples are made, so that the first `count` in time are complete.
    horizon = 2.5 * 2.0 * count / sources + 20.0 * period_tuples
    scale = period_tuples * (shape - 1.0) / shape
    parts = [_one_source(chance, shape, scale, horizon, period_tuples) for _ in range(sources)]
    times = np.sort(np.concatenate(parts))[:count]
    if len(times) < count:
        raise SimulationError(f"{sources} on/off sources made only {len(times)} of {count} tuples", hint="use more sources")
    span = _mean_gap_ns(rate) * count
    return ((times - times[0]) / (times[-1] - times[0]) * span).round().astype(np.int64) if count > 1 else np.zeros(count, np.int64)


def _one_source(chance: np.random.Generator, shape: float, scale: float, horizon: float, mean: float) -> NDArray[np.float64]:
    periods = int(horizon / mean) + 50
    lengths = scale * (1.0 + chance.pareto(shape, periods))
    ends = np.cumsum(lengths) - chance.uniform(0.0, 2.0 * mean)
    starts = ends - lengths
    first_on = int(chance.integers(0, 2))
    on_start, on_end = starts[first_on::2], ends[first_on::2]
    counts = np.floor(on_end - on_start + chance.uniform(0.0, 1.0, len(on_start))).astype(np.int64)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    times = np.repeat(on_start, counts) + offsets
    return np.asarray(times[(times >= 0.0) & (times < horizon)], dtype=np.float64)


def trace(name: str, count: int, *, rate: float | None = None, scale: float | None = None, skip: int = 0) -> Times:
    """Return arrivals from a carried trace, `count` after the first `skip`; scaled to a mean rate, or the gaps times `scale`."""
    gaps = gaps_ns(name)
    if skip + count > len(gaps):
        raise SimulationError(f"trace '{name}' has {len(gaps)} gaps, not {skip + count}", hint="take fewer tuples")
    return from_gaps(gaps[skip : skip + count], rate=rate, scale=scale)


def from_gaps(gaps_ns: NDArray[np.int64], *, rate: float | None = None, scale: float | None = None) -> Times:
    """Return arrivals with these gaps, scaled to a mean rate, or the gaps times `scale`."""
    gaps = gaps_ns.astype(np.float64)
    if rate is not None:
        total = gaps.sum()
        if total <= 0:
            raise SimulationError("a trace whose tuples all come at once has no rate to scale")
        gaps = gaps * (_mean_gap_ns(rate) * len(gaps) / total)
    elif scale is not None:
        gaps = gaps * scale
    return _from_gaps(gaps)


def gather(times: Times, size: int) -> Times:
    """Return the same tuples with every `size` consecutive ones at the time of the first of them."""
    if size < 1:
        raise SimulationError(f"bursts of {size} tuples cannot be")
    gathered: Times = times[np.arange(len(times)) // size * size]
    return gathered


@dataclass(frozen=True, slots=True)
class Trace:
    """A carried trace: its file, the nanoseconds of one unit of its gaps, and what it is."""

    file: str
    unit_ns: int
    summary: str


TRACES: Mapping[str, Trace] = MappingProxyType(
    {
        "dec-pkt-1": Trace("dec_pkt_1_udp_gaps_us.xz", 1_000, "wide-area UDP packets, DEC, March 1995"),
        "bc-paug89": Trace("bc_paug89_gaps_us.xz", 1_000, "Ethernet frames, Bellcore, August 1989"),
        "mavpad": Trace("mavpad_2005_02_12_gaps_s.xz", 1_000_000_000, "sensor events of a smart apartment, one day in 2005"),
    }
)


def gaps_ns(name: str) -> NDArray[np.int64]:
    """Return the gaps of a carried trace in ns; raises `SimulationError` for an unknown name."""
    trace = TRACES.get(name)
    if trace is None:
        raise SimulationError(f"unknown trace '{name}'", hint="known are " + ", ".join(TRACES))
    data = resources.files("millstream.scheduler.simulation").joinpath("data", trace.file).read_bytes()
    planes = np.frombuffer(lzma.decompress(data), dtype=np.uint8).reshape(4, -1)
    gaps = np.ascontiguousarray(planes.T).view("<u4").reshape(-1)
    return gaps.astype(np.int64) * trace.unit_ns
