"""Random MATCH_RECOGNIZE (K27): patterns, conditions, measures and rows, with what the reference says comes of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf, isnan, nan
from typing import Any

from tests.support.reference_matches import Match, Pattern, Question, Row, Seen, matches, written

NAMES = ("a", "b", "c", "d")


def compared(left: Any, sign: str, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    left, right = ((isinstance(v, float) and isnan(v), 0 if isinstance(v, float) and isnan(v) else v) for v in (left, right))
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right, "=": left == right}[sign]


def either(*parts: bool | None) -> bool:
    return any(part is True for part in parts)


def conditions(own: str, used: list[str], dice: random.Random) -> tuple[str, Callable[[Seen], bool | None], int]:
    """Return one that `own` may have: its text, its meaning, and how many rows it looks ahead."""
    n, sign = dice.randint(-2, 4), dice.choice(["<", "<=", ">", ">=", "="])
    other = dice.choice([*used, "u"])
    return dice.choice(
        [
            (f"v {sign} {n}", lambda s: compared(s.last("v"), sign, n), 0),
            (f"{own}.v {sign} {n}", lambda s: compared(s.last("v"), sign, n), 0),
            (f"v {sign} PREV(v)", lambda s: compared(s.last("v"), sign, s.last("v", back=1)), 0),
            (f"v {sign} PREV({own}.v, 2) OR PREV(v, 2) IS NULL", _or_null(sign, lambda s: s.last("v", back=2)), 0),
            (f"v {sign} NEXT(v)", lambda s: compared(s.last("v"), sign, s.next("v")), 1),
            (f"NEXT(v, 2) {sign} v OR NEXT(v) IS NULL", _ahead(sign), 2),
            ("w = 'x'", lambda s: compared(s.last("w"), "=", "x"), 0),
            (f"v + 1 {sign} {other}.v", lambda s: compared(_more(s.last("v")), sign, s.last("v", other)), 0),
            (f"v {sign} FIRST(v)", lambda s: compared(s.last("v"), sign, s.first("v")), 0),
            (f"v {sign} FIRST({other}.v, 1) OR {other}.v IS NULL", _first_or_none(sign, other), 0),
            (f"v {sign} LAST({own}.v, 1) OR COUNT({own}.*) = 1", _last_or_single(sign, own), 0),
            (f"SUM({other}.v) {sign} {n}", lambda s: compared(s.sum("v", other), sign, n), 0),
            (f"COUNT(*) <= {abs(n) + 1}", lambda s: len(s.places()) <= abs(n) + 1, 0),
            (f"AVG(v) {sign} v", lambda s: compared(s.mean("v"), sign, s.last("v")), 0),
            (f"MIN({other}.v) {sign} v", lambda s: compared(s.least("v", other), sign, s.last("v")), 0),
            (f"MAX(v) - MIN(v) <= {abs(n)}", lambda s: compared(_span(s), "<=", abs(n)), 0),
            (f"PREV(FIRST({other}.v)) {sign} v", lambda s: compared(s.first("v", other, back=1), sign, s.last("v")), 0),
            (f"w = {other}.w", lambda s: compared(s.last("w"), "=", s.last("w", other)), 0),
            (f"d {sign} {other}.d", lambda s: compared(s.last("d"), sign, s.last("d", other)), 0),
            (f"d * 2 {sign} FIRST(d) + 1", lambda s: compared(_twice(s.last("d")), sign, _more(s.first("d"))), 0),
            (
                f"{n} {sign} MAX({other}.d) OR d < 1",
                lambda s: either(compared(n, sign, _most(s.values("d", other))), compared(s.last("d"), "<", 1)),
                0,
            ),
            (f"SUM(v) FILTER (WHERE w = 'x') {sign} {n}", lambda s: compared(_summed_x(s), sign, n), 0),
        ]
    )


def _or_null(sign: str, get: Callable[[Seen], Any]) -> Callable[[Seen], bool]:
    return lambda s: either(compared(s.last("v"), sign, get(s)), get(s) is None)


def _ahead(sign: str) -> Callable[[Seen], bool]:
    return lambda s: either(compared(s.next("v", 2), sign, s.last("v")), s.next("v") is None)


def _first_or_none(sign: str, other: str) -> Callable[[Seen], bool]:
    return lambda s: either(compared(s.last("v"), sign, s.first("v", other, 1)), s.last("v", other) is None)


def _last_or_single(sign: str, own: str) -> Callable[[Seen], bool]:
    return lambda s: either(compared(s.last("v"), sign, s.last("v", own, 1)), len(s.places(own)) == 1)


def _more(value: Any) -> Any:
    return None if value is None else value + 1


def _twice(value: Any) -> Any:
    return None if value is None else value * 2


def _most(values: list[Any]) -> Any:
    return max((v for v in values if v is not None), key=lambda v: (isnan(v), v), default=None)


def _span(s: Seen) -> Any:
    return None if s.least("v") is None else s.greatest("v") - s.least("v")


def _summed_x(s: Seen) -> Any:
    known = [s.rows[p]["v"] for p in s.places() if s.rows[p]["w"] == "x" and s.rows[p]["v"] is not None]
    return sum(known) if known else None


def patterns(dice: random.Random, depth: int = 0) -> Pattern:
    if depth > 2 or dice.random() < 0.35:
        return ("row", dice.choice(NAMES))
    kind = dice.choice(["then", "then", "or", "times", "times"])
    if kind == "times":
        least, most = dice.choice([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (0, 2), (2, None)])
        return ("times", patterns(dice, depth + 1), least, most, dice.random() < 0.4)
    return (kind, [patterns(dice, depth + 1) for _ in range(dice.randint(2, 3))])


MEASURES: list[tuple[str, Callable[[Seen], Any]]] = [
    ("FIRST(v)", lambda s: s.first("v")),
    ("v", lambda s: s.last("v")),
    ("a.v", lambda s: s.last("v", "a")),
    ("LAST(b.w, 1)", lambda s: s.last("w", "b", 1)),
    ("FIRST(u.n)", lambda s: s.first("n", "u")),
    ("PREV(c.v)", lambda s: s.last("v", "c", back=1)),
    ("PREV(FIRST(v), 2)", lambda s: s.first("v", back=2)),
    ("COUNT(*)", lambda s: len(s.places())),
    ("COUNT(b.*) + COUNT(a.v)", lambda s: len(s.places("b")) + sum(v is not None for v in s.values("v", "a"))),
    ("SUM(u.v)", lambda s: s.sum("v", "u")),
    ("MIN(v)", lambda s: s.least("v")),
    ("AVG(a.v)", lambda s: s.mean("v", "a")),
    ("ARRAY_AGG(n)", lambda s: s.values("n") or None),
    ("CLASSIFIER()", lambda s: s.mapped[-1] if s.mapped else None),
    ("MATCH_NUMBER()", lambda s: s.number),
]


def random_rows(dice: random.Random, count: int) -> list[Row]:
    """Rows of the stream, some late, in order of arrival."""
    now, rows = 10, []
    for number in range(count):
        now += dice.choice([0, 1, 1, 2, 5, -1, -3])
        value, word = dice.choice([0, 1, 2, 3, 4, None]), dice.choice(["x", "y", None])
        key, real = dice.choice(["p", "p", "q", None]), dice.choice([0.5, 1.5, -0.0, nan, inf, None])
        rows.append({"ts": now, "n": number, "k": key, "v": value, "w": word, "d": real})
    return rows


COLUMNS = [("ts", "BIGINT"), ("n", "INT"), ("k", "TEXT"), ("v", "INT"), ("w", "TEXT"), ("d", "DOUBLE")]


class Case:
    """A question with its text, rows, and what comes of them."""

    def __init__(self, dice: random.Random, rows: list[Row] | None = None, delay: int | None = None) -> None:
        self.dice = dice
        pattern = patterns(dice)
        used = [name for name in NAMES if name in written(pattern)]
        define = {name: conditions(name, used, dice) for name in used if dice.random() < 0.75}
        subset = tuple(dice.sample(used, min(len(used), 2)))
        self.subsets = {"u": subset}
        self.within = dice.choice([None, 3, 6, 20])
        way = dice.choice(["past", "past", "next", "first", "last"])
        target = dice.choice([*used, "u"]) if way in ("first", "last") else None
        self.question = Question(
            pattern,
            {name: meaning for name, (_, meaning, _) in define.items()},
            self.within,
            (way, target),
            self.subsets,
            max((ahead for _, _, ahead in define.values()), default=0),
        )
        self.key = dice.choice(["k", None])
        self.delay = dice.choice([0, 2]) if delay is None else delay
        self.all_rows = dice.random() < 0.4
        self.finals = dice.random() < 0.3
        self.shows_empty = dice.random() < 0.6
        known = {*used, "u"}
        self.measures = [(t, m) for t, m in MEASURES if all(f"{name}." not in t or name in known for name in (*NAMES, "u"))]
        self.text = self._text({name: text for name, (text, _, _) in define.items()}, known)
        self.rows = random_rows(dice, dice.randint(1, 24)) if rows is None else rows

    def _text(self, define: dict[str, str], known: set[str]) -> str:
        way, target = self.question.skip
        skip = {"past": "PAST LAST ROW", "next": "TO NEXT ROW", "first": f"TO FIRST {target}", "last": f"TO LAST {target}"}[way]
        final = "FINAL " if self.finals else ""
        shown = ", ".join(f"{final}{text} AS m{i}" for i, (text, _) in enumerate(self.measures))
        per = "ALL ROWS PER MATCH" + ("" if self.shows_empty else " OMIT EMPTY MATCHES") if self.all_rows else "ONE ROW PER MATCH"
        conditions_ = ", ".join(f"{name} AS {text}" for name, text in define.items())
        return (
            f"SELECT * FROM s {'[UNBOUNDED] ' if self.within is None else ''}MATCH_RECOGNIZE ("
            f"{'PARTITION BY k ' if self.key else ''}ORDER BY ts MEASURES {shown} {per} AFTER MATCH SKIP {skip} "
            f"PATTERN ({written(self.question.pattern)}) {'' if self.within is None else f'WITHIN {self.within} SECONDS '}"
            f"SUBSET u = ({', '.join(self.subsets['u'])}) {'DEFINE ' + conditions_ if conditions_ else ''})"
        )

    @property
    def created(self) -> str:
        return f"CREATE STREAM s (ts BIGINT, n INT, k TEXT, v INT, w TEXT, d DOUBLE) TIMESTAMP BY ts UNIT s DELAY {self.delay} SECONDS"

    def wanted(self) -> list[tuple[Any, ...]]:
        seconds = [{**row, "ts": row["ts"]} for row in self.rows]
        return [row for match in matches(seconds, self.question, self.key, self.delay) for row in self._results(match)]

    def _results(self, match: Match) -> list[tuple[Any, ...]]:
        def shown(seen: Seen) -> tuple[Any, ...]:
            return tuple(meaning(seen) for _, meaning in self.measures)

        if not self.all_rows:
            return [(*((match.first[self.key],) if self.key else ()), *shown(match.seen(self.question)))]
        places = range(len(match.mapped)) if match.mapped else range(1 if self.shows_empty else 0)
        return [
            (
                *(match.rows[match.start + p][c] for c in ("ts", "n", "k", "v", "w", "d")),
                *shown(match.seen(self.question, None if self.finals or not match.mapped else p + 1)),
            )
            for p in places
        ]
