"""A second opinion on windows and joins: the rules K2–K6 and K13 row by row, over plain Python values and whole seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Row = dict[str, Any]
SECOND = 1_000_000


@dataclass
class Answers:
    """Result rows in K20's order, and how many rows were late."""

    rows: list[list[Any]] = field(default_factory=list)
    late: int = 0


def key_of(value: Any) -> Any:
    """K7: one zero, one NaN; NULL is a value of its own."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def plain(value: Any) -> Any:
    """Return a value as JSON shows it."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else "Infinity" if value == math.inf else "-Infinity" if value == -math.inf else value
    return value


def _least(values: list[Any], sign: int) -> Any:
    if not values:
        return None
    if any(isinstance(v, float) and math.isnan(v) for v in values):
        return math.nan
    return max(values, key=lambda v: v * sign) + 0 if isinstance(values[0], int) else max(values, key=lambda v: v * sign) + 0.0


def _middle(values: list[int]) -> Any:
    ordered = sorted(values)
    if not ordered:
        return None
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _given(rows: Iterable[Row], name: str) -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


AGGREGATES: dict[str, Callable[[list[Row]], Any]] = {
    "COUNT(*)": len,
    "COUNT(i)": lambda rows: len(_given(rows, "i")),
    "SUM(i)": lambda rows: sum(v) if (v := _given(rows, "i")) else None,
    "AVG(i)": lambda rows: float(Fraction(sum(v), len(v))) if (v := _given(rows, "i")) else None,
    "MIN(d)": lambda rows: _least(_given(rows, "d"), -1),
    "MAX(d)": lambda rows: _least(_given(rows, "d"), 1),
    "MAX(i)": lambda rows: max(_given(rows, "i"), default=None),
    "COUNT(DISTINCT d)": lambda rows: len({key_of(v) for v in _given(rows, "d")}),
    "FIRST(i)": lambda rows: rows[0]["i"],
    "LAST(k)": lambda rows: rows[-1]["k"],
    "ARRAY_AGG(i)": lambda rows: [row["i"] for row in rows],
    "MEDIAN(i)": lambda rows: _middle(_given(rows, "i")),
    "COUNT(*) FILTER (WHERE i > 0)": lambda rows: len([v for v in _given(rows, "i") if v > 0]),
}


@dataclass(frozen=True)
class Grouped:
    """What a grouped query asks: keys, aggregates, WHERE."""

    keys: tuple[str, ...]
    aggregates: tuple[str, ...]
    where: Callable[[Row], bool]

    def answer(self, rows: Sequence[Row], *bounds: int) -> list[list[Any]]:
        """One result row a group, by the first arrival of the group; values in event-time order."""
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in sorted(rows, key=lambda r: r["n"]):
            groups.setdefault(tuple(key_of(row[k]) for k in self.keys), []).append(row)
        result = []
        for key, members in groups.items():
            ordered = sorted(members, key=lambda r: (r["ts"], r["n"]))
            values = [AGGREGATES[a](ordered) for a in self.aggregates]
            shown = [[plain(v) for v in x] if isinstance(x, list) else plain(x) for x in values]
            result.append([*bounds, *(plain(k) for k in key), *shown])
        return result


def hopping(rows: Sequence[Row], query: Grouped, size: int, slide: int, delay: int) -> Answers:
    """[RANGE size SLIDE slide]; WHERE before or after makes no difference, save that a late row is late all the same."""
    answers, inside, watermark = Answers(), {}, -math.inf
    for row in rows:
        windows = [s for s in range((row["ts"] - size) // slide * slide + slide, row["ts"] + 1, slide) if s <= row["ts"] < s + size]
        open_ones = [s for s in windows if s + size > watermark]
        if query.where(row):
            if windows and not open_ones:
                answers.late += 1
            for start in open_ones:
                inside.setdefault(start, []).append(row)
        watermark = max(watermark, row["ts"] - delay)
    for start in sorted(inside):
        answers.rows += query.answer(inside[start], start, start + size)
    return answers


def timely(rows: Sequence[Row], delay: int) -> tuple[list[Row], int]:
    """Rows at or above W when they came, in event-time order, and how many were below."""
    kept, late, watermark = [], 0, -math.inf
    for row in rows:
        if row["ts"] < watermark:
            late += 1
        else:
            kept.append(row)
        watermark = max(watermark, row["ts"] - delay)
    return sorted(kept, key=lambda r: (r["ts"], r["n"])), late


def sliding(rows: Sequence[Row], query: Grouped, size: int, delay: int) -> Answers:
    """[RANGE size]: at each instant the groups that received a row."""
    kept, late = timely(rows, delay)
    answers = Answers(late=late)
    for instant in sorted({r["ts"] for r in kept if query.where(r)}):
        window = [r for r in kept if instant - size < r["ts"] <= instant and query.where(r)]
        touched = {tuple(key_of(r[k]) for k in query.keys) for r in window if r["ts"] == instant}
        members = [r for r in window if tuple(key_of(r[k]) for k in query.keys) in touched]
        answers.rows += query.answer(members)
    return answers


def counted(rows: Sequence[Row], query: Grouped, size: int, delay: int) -> Answers:
    """[ROWS size]: at each row its group, in event-time order; a row that WHERE drops takes its place and no more."""
    kept, late = timely(rows, delay)
    answers = Answers(late=late)
    for place, row in enumerate(kept):
        if query.where(row):
            own = tuple(key_of(row[k]) for k in query.keys)
            window = [r for r in kept[max(0, place - size + 1) : place + 1] if query.where(r)]
            answers.rows += query.answer([r for r in window if tuple(key_of(r[k]) for k in query.keys) == own])
    return answers


def sessions(rows: Sequence[Row], query: Grouped, gap: int, delay: int) -> Answers:
    """[SESSION gap], a session per key; WHERE acts on the rows of sessions formed before it."""
    answers, watermark = Answers(), -math.inf
    open_rows: dict[tuple[Any, ...], list[Row]] = {}
    closed: list[list[Row]] = []
    for row in rows:
        mine = open_rows.setdefault(tuple(key_of(row[k]) for k in query.keys), [])
        joined = next(s for s in _split([*mine, row], gap) if row in s)
        if joined[-1]["ts"] + gap <= watermark:
            answers.late += 1
        else:
            mine.append(row)
        watermark = max(watermark, row["ts"] - delay)
        for key, members in open_rows.items():
            gone = [s for s in _split(members, gap) if s[-1]["ts"] + gap <= watermark]
            closed += gone
            open_rows[key] = [r for r in members if not any(r in s for s in gone)]
    closed += [s for members in open_rows.values() for s in _split(members, gap)]
    shown = [(s[-1]["ts"] + gap, s[0]["ts"], min(r["n"] for r in s), s) for s in closed]
    for end, start, _, members in sorted(shown, key=lambda x: x[:3]):
        answers.rows += query.answer([r for r in members if query.where(r)], start, end)
    return answers


def _split(rows: Sequence[Row], gap: int) -> list[list[Row]]:
    found: list[list[Row]] = []
    for row in sorted(rows, key=lambda r: (r["ts"], r["n"])):
        if found and row["ts"] < found[-1][-1]["ts"] + gap:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def join(arrivals: Sequence[tuple[str, Row]], within: int, delay: int, *, outer: bool) -> Answers:
    """A JOIN B ON a.k = b.k WITHIN d in the order of arrival; with `outer` the left rows without a partner come last."""
    answers = Answers()
    seen: dict[str, list[Row]] = {"a": [], "b": []}
    reached = {"a": -math.inf, "b": -math.inf}
    matched: set[int] = set()
    for side, row in arrivals:
        if row["ts"] < min(reached.values()):
            answers.late += 1
        else:
            for other in seen["b" if side == "a" else "a"]:
                if row["k"] is not None and row["k"] == other["k"] and abs(row["ts"] - other["ts"]) <= within:
                    left, right = (row, other) if side == "a" else (other, row)
                    answers.rows.append([left["n"], right["n"]])
                    matched.add(left["n"])
            seen[side].append(row)
        reached[side] = max(reached[side], row["ts"] - delay)
    if outer:
        answers.rows += [[row["n"], None] for row in seen["a"] if row["n"] not in matched]
    return answers
