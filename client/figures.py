"""Figures for people: three digits, and a unit that keeps them short. `—` stands for what is not known."""

from __future__ import annotations

import math

UNKNOWN = "—"
_THOUSANDS = ("", "k", "M", "G", "T")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
COUNT_EXACT_MAX = 9_999
MS_PER_S, S_PER_MIN, S_PER_H, S_PER_D = 1_000.0, 60.0, 3_600.0, 86_400.0


def significant(value: float, digits: int = 3) -> str:
    """Return a number with so many digits, those before the point kept: 0.0123, 1.23, 12.3, 1234."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(decimals, 12)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, base: float, units: tuple[str, ...], gap: str) -> str:
    step = 0
    while step + 1 < len(units) and abs(float(f"{value:.3g}")) >= base:
        value /= base
        step += 1
    return f"{significant(value)}{gap}{units[step]}".rstrip()


def count(value: float | None) -> str:
    """Return a number of things: 9,999 as it is, then 12.3k, 4.56M."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) <= COUNT_EXACT_MAX else _scaled(value, 1_000.0, _THOUSANDS, "")


def rate(value: float | None) -> str:
    """Return things a second: 0/s, 0.5/s, 12.3k/s."""
    if value is None:
        return UNKNOWN
    return f"{significant(value) if abs(value) < 1_000 else _scaled(value, 1_000.0, _THOUSANDS, '')}/s"


def size(value: float | None) -> str:
    """Return bytes: 512 B, 1.5 KiB."""
    return UNKNOWN if value is None else _scaled(value, 1_024.0, _BYTES, " ")


def duration(milliseconds: float | None) -> str:
    """Return a time: 0.53 ms, 12.3 ms, 1.2 s, 3.4 min, 2 h, 5 d."""
    if milliseconds is None:
        return UNKNOWN
    if abs(milliseconds) < MS_PER_S:
        return f"{significant(milliseconds)} ms"
    seconds = milliseconds / MS_PER_S
    for unit, length in (("d", S_PER_D), ("h", S_PER_H), ("min", S_PER_MIN)):
        if abs(seconds) >= length:
            return f"{significant(seconds / length)} {unit}"
    return f"{significant(seconds)} s"


def percent(value: float | None) -> str:
    """Return a share of a hundred: 0%, 0.12%, 12.3%."""
    return UNKNOWN if value is None else f"{significant(value)}%"
