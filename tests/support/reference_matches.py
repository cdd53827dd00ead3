"""MATCH_RECOGNIZE (K27) the slow way: every way through the pattern is tried, in the order in which the pattern prefers them.

Conditions and measures are functions of what a row can see (`Seen`); beside each stands its SQL, so that tests draw both at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
NEVER = 2**63 - 2  # the moment of what only the end of the stream decides


@dataclass(frozen=True)
class Seen:
    """The rows of a partition, where the match begins, and the variables of its rows so far."""

    rows: list[Row]
    start: int
    mapped: tuple[str, ...]
    subsets: dict[str, tuple[str, ...]]
    within: int | None
    number: int = 0

    def places(self, variable: str | None = None) -> list[int]:
        names = None if variable is None else self.subsets.get(variable, (variable,))
        return [self.start + i for i, v in enumerate(self.mapped) if names is None or v in names]

    def values(self, column: str, variable: str | None = None) -> list[Any]:
        return [self.rows[p][column] for p in self.places(variable)]

    def first(self, column: str, variable: str | None = None, offset: int = 0, back: int = 0) -> Any:
        found = self.places(variable)
        return self._at(found[offset] - back, column) if offset < len(found) else None

    def last(self, column: str, variable: str | None = None, offset: int = 0, back: int = 0) -> Any:
        found = self.places(variable)
        return self._at(found[-1 - offset] - back, column) if offset < len(found) else None

    def next(self, column: str, offset: int = 1) -> Any:
        place = self.start + len(self.mapped) - 1
        if place + offset >= len(self.rows):
            return None
        late = self.within is not None and self.rows[place + offset]["ts"] - self.rows[place]["ts"] > self.within
        return None if late else self.rows[place + offset][column]

    def _at(self, place: int, column: str) -> Any:
        return self.rows[place][column] if place >= 0 else None

    def sum(self, column: str, variable: str | None = None) -> Any:
        known = [v for v in self.values(column, variable) if v is not None]
        return sum(known) if known else None

    def mean(self, column: str, variable: str | None = None) -> Any:
        known = [v for v in self.values(column, variable) if v is not None]
        return sum(known) / len(known) if known else None

    def least(self, column: str, variable: str | None = None) -> Any:
        return min((v for v in self.values(column, variable) if v is not None), default=None)

    def greatest(self, column: str, variable: str | None = None) -> Any:
        return max((v for v in self.values(column, variable) if v is not None), default=None)


Condition = Callable[[Seen], bool | None]
Pattern = tuple[Any, ...]
"""("row", name), ("then", parts), ("or", parts), ("times", part, least, most or None, reluctant)."""


def written(pattern: Pattern, outer: bool = True) -> str:
    """Return the text of a pattern."""
    kind = pattern[0]
    if kind == "row":
        return str(pattern[1])
    if kind == "times":
        _, part, least, most, reluctant = pattern
        marks = {(0, None): "*", (1, None): "+", (0, 1): "?"}
        mark = marks.get((least, most), f"{{{least},{'' if most is None else most}}}")
        return f"({written(part)}){mark}{'?' if reluctant else ''}"
    text = (" " if kind == "then" else " | ").join(written(part, False) for part in pattern[1])
    return text if outer else f"({text})"


@dataclass(frozen=True)
class Question:
    """A whole MATCH_RECOGNIZE, but for its measures."""

    pattern: Pattern
    define: dict[str, Condition]
    within: int | None = None
    skip: tuple[str, str | None] = ("past", None)  # past, next, first, last
    subsets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ahead: int = 0  # rows that NEXT looks ahead


@dataclass
class Match:
    """A match: its partition's rows, its first row, the variables of its rows, when it is known, its number."""

    rows: list[Row]
    start: int
    mapped: tuple[str, ...]
    moment: int
    number: int

    def seen(self, question: Question, upto: int | None = None) -> Seen:
        return Seen(self.rows, self.start, self.mapped[:upto], question.subsets, question.within, self.number)

    @property
    def first(self) -> Row:
        return self.rows[self.start]


def timely(rows: Sequence[Row], delay: int) -> list[Row]:
    """Return the rows that are not late, in order of time, ties by arrival."""
    watermark, kept = None, []
    for n, row in enumerate(rows):
        if watermark is None or row["ts"] >= watermark:
            kept.append({**row, "n": n})
        watermark = row["ts"] - delay if watermark is None else max(watermark, row["ts"] - delay)
    return sorted(kept, key=lambda row: (row["ts"], row["n"]))


def matches(rows: Sequence[Row], question: Question, key: str | None, delay: int = 0) -> list[Match]:
    """Return all matches in the order in which they are given."""
    partitions: dict[Any, list[Row]] = {}
    for row in timely(rows, delay):
        partitions.setdefault(None if key is None else row[key], []).append(row)
    found = [m for part in partitions.values() for m in _of_partition(part, question)]
    return sorted(found, key=lambda m: (m.moment, m.first["n"]))


def _of_partition(rows: list[Row], question: Question) -> list[Match]:
    found: list[Match] = []
    begin, moment = 0, -NEVER
    while begin < len(rows):
        mapped, known = _Attempt(rows, begin, question).best()
        moment = max(moment, known)
        following = begin + 1
        if mapped is not None:
            found.append(Match(rows, begin, mapped, moment, len(found) + 1))
            way, variable = question.skip
            if way == "past":
                following = begin + max(1, len(mapped))
            elif variable is not None:
                places = Seen(rows, begin, mapped, question.subsets, question.within).places(variable)
                if places:
                    following = max(begin + 1, places[0] if way == "first" else places[-1])
        begin = following
    return found


class _Attempt:
    """The tries to find a match that begins at one row. `known` is the event time by which all is known that was looked at."""

    def __init__(self, rows: list[Row], begin: int, question: Question) -> None:
        self._rows, self._begin, self._question = rows, begin, question
        self._known = self._moment(begin)

    def best(self) -> tuple[tuple[str, ...] | None, int]:
        mapped = self._try(self._question.pattern, (), lambda done: done)
        return mapped, self._known

    def _moment(self, place: int) -> int:
        rows, within, ahead = self._rows, self._question.within, self._question.ahead
        if not ahead:
            return int(rows[place]["ts"])
        latest = NEVER if within is None else rows[place]["ts"] + within
        return min(latest, rows[place + ahead]["ts"]) if place + ahead < len(rows) else latest

    def _try(
        self, pattern: Pattern, mapped: tuple[str, ...], then: Callable[[tuple[str, ...]], tuple[str, ...] | None]
    ) -> tuple[str, ...] | None:
        kind = pattern[0]
        if kind == "row":
            return self._row(pattern[1], mapped, then)
        if kind == "then":
            if not pattern[1]:
                return then(mapped)
            head, *rest = pattern[1]
            return self._try(head, mapped, lambda done: self._try(("then", rest), done, then))
        if kind == "or":
            for part in pattern[1]:
                found = self._try(part, mapped, then)
                if found is not None:
                    return found
            return None
        return self._times(pattern, 0, mapped, then)

    def _times(
        self, pattern: Pattern, count: int, mapped: tuple[str, ...], then: Callable[[tuple[str, ...]], tuple[str, ...] | None]
    ) -> tuple[str, ...] | None:
        _, part, least, most, reluctant = pattern

        def once_more() -> tuple[str, ...] | None:
            if most is not None and count >= most:
                return None

            def after(done: tuple[str, ...]) -> tuple[str, ...] | None:
                if done == mapped and count >= least:  # it took no row, and so it was the last one
                    return then(done)
                return self._times(pattern, count + 1, done, then)

            return self._try(part, mapped, after)

        def enough() -> tuple[str, ...] | None:
            return then(mapped) if count >= least else None

        for way in (enough, once_more) if reluctant else (once_more, enough):
            found = way()
            if found is not None:
                return found
        return None

    def _row(
        self, variable: str, mapped: tuple[str, ...], then: Callable[[tuple[str, ...]], tuple[str, ...] | None]
    ) -> tuple[str, ...] | None:
        rows, within, place = self._rows, self._question.within, self._begin + len(mapped)
        limit = NEVER if within is None else rows[self._begin]["ts"] + within
        if place >= len(rows) or rows[place]["ts"] > limit:
            self._known = max(self._known, limit)
            return None
        self._known = max(self._known, self._moment(place))
        grown = (*mapped, variable)
        condition = self._question.define.get(variable)
        seen = Seen(rows, self._begin, grown, self._question.subsets, within)
        return then(grown) if condition is None or condition(seen) else None
