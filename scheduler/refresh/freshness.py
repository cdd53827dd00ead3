"""Perceived freshness of polled copies (Carney 2005, chapter 2).

A copy of an element that changes λ times a period and is polled f times at equal distances is fresh for a share of the time

    F(f, λ) = (1 - e^(-λ/f)) / (λ/f)

What users perceive is Σ p F, p being how often an element is asked for. A poll of an element of size z costs z of the bandwidth B.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]


def freshness(polls: Column, changes: Column) -> Column:
    """Return F of each element: polls f and changes λ in a period; 0 for what is never polled, 1 for what never changes."""
    found = np.zeros(np.broadcast(polls, changes).shape)
    polled = np.broadcast_to(polls > 0.0, found.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.broadcast_to(changes / polls, found.shape)
        np.divide(-np.expm1(-ratio), ratio, out=found, where=polled & (ratio > 0.0))
    found[polled & (ratio == 0.0)] = 1.0
    return found


def perceived(access: Column, polls: Column, changes: Column) -> float:
    """Return Σ p F, a share of the time: `access` is p, which is scaled to a sum of 1."""
    return float((access * freshness(polls, changes)).sum() / access.sum())


_SMALL = 1e-3


def distinct_gain(ratio: Column) -> Column:
    """Return h(x) = 1 - (1 + x) e^(-x), by which λ ∂F/∂f at x = λ/f: it rises from 0 to 1.

    Of small x by its series, where no digit cancels.
    """
    small = np.minimum(ratio, _SMALL)
    series = small**2 * (0.5 - small / 3.0 + small**2 / 8.0 - small**3 / 30.0)
    return np.where(ratio < _SMALL, series, -np.expm1(-ratio) - ratio * np.exp(-ratio))


_RATIOS = np.geomspace(1e-9, 700.0, 8_192)
_GAIN_MIN = 1e-16
_ROOTS = np.sqrt(distinct_gain(_RATIOS))  # near 0 h is x²/2: its root is nearly straight there


def ratio_of(gain: Column) -> Column:
    """Return x with h(x) = `gain`, for gains between 0 and 1: looked up, then two steps of Newton's method.

    Gains below the table's, of copies that hardly ever change, by the series of h, which is x²/2 there.
    """
    ratio = np.interp(np.sqrt(gain), _ROOTS, _RATIOS)
    for _ in range(2):
        slope = ratio * np.exp(-ratio)
        step = np.divide(distinct_gain(ratio) - gain, slope, out=np.zeros_like(ratio), where=slope > 1e-300)
        ratio = np.maximum(ratio - step, ratio / 2.0)
    return np.where(gain < _GAIN_MIN, np.sqrt(2.0 * gain), ratio)


_RATES = np.geomspace(1e-9, 1e9, 8_192)
_FRESHNESS = -np.expm1(-_RATES) / _RATES  # it falls from 1 to 0


def polls_for(wanted: Column, changes: Column) -> Column:
    """Return the polls in a period that keep each element fresh for a share `wanted` of the time, between 0 and 1 (Carney 2005, 6.2.1).

    What never changes needs none, and where nothing is wanted (0) none are needed.
    """
    ratio = np.interp(-wanted, -_FRESHNESS, _RATES)
    for _ in range(3):  # Newton's method on F(x) = wanted, whose slope is -h(x) / x²
        with np.errstate(divide="ignore", invalid="ignore"):
            step = (-np.expm1(-ratio) / ratio - wanted) * ratio**2 / distinct_gain(ratio)
        ratio = np.maximum(ratio + np.where(np.isfinite(step), step, 0.0), ratio / 2.0)
    return np.where(wanted > 0.0, changes / ratio, 0.0)
