"""Random subqueries in expressions (K25): what each is for a row, by looking at every row of the other side."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.property.oracle.aggregates import random_aggregate
from tests.property.oracle.expressions import Columns, Maker, Row, compared
from tests.property.oracle.feeds import Event, Feed, mapped
from tests.property.oracle.join_queries import on_text, qualified, random_keys
from tests.property.oracle.joins import on_holds
from tests.property.oracle.queries import Expected, Window, cumulating_window, grouped_query, hopping_window, random_window
from tests.property.oracle.values import BOOLEAN, TYPES
from tests.property.oracle.windows import closing


@dataclass(frozen=True)
class Subquery:
    """A subquery in an expression: its text, type, and what it is for a left row over the right ones."""

    sql: str
    type: str
    value: Callable[[Row, Sequence[Row]], Any]


def random_subquery(choice: random.Random, left: Feed, right: Feed, item: str, most: int = 2) -> Subquery:
    """One over the qualified columns of both; `item` is how its FROM names the right side."""
    keys = random_keys(choice, left, right, most)
    maker = Maker(choice, right.columns)
    plain = maker.condition(1) if choice.random() < 0.3 else None
    way = choice.choice(["in", "in", "in", "exists", "exists", "aggregate", "aggregate", "row"])
    both = Maker(choice, left.columns + right.columns).condition(1) if way != "aggregate" and choice.random() < 0.25 else None
    texts = [on_text(keys, both)] if keys or both else []
    where = " AND ".join([*texts, *([plain.sql] if plain is not None else [])])
    tail = f"FROM {item}{f' WHERE {where}' if where else ''}"

    def found(row: Row, rows: Sequence[Row]) -> list[Row]:
        return [r for r in rows if on_holds(keys, both, row, r) and (plain is None or plain.value(r) is True)]

    if way == "exists":
        return Subquery(f"EXISTS (SELECT 1 {tail})", BOOLEAN, lambda row, rows: bool(found(row, rows)))
    if way == "aggregate":
        item_ = random_aggregate(choice, maker, True)
        if item_.type in TYPES:
            return Subquery(f"(SELECT {item_.sql} {tail})", item_.type, lambda row, rows: item_.value(found(row, rows)))
    kind = choice.choice([t for _, t in right.columns if t in TYPES])
    output = maker.make(kind, 1)
    if way == "row":
        return Subquery(f"(SELECT {output.sql} {tail})", output.type, lambda row, rows: _only([output.value(r) for r in found(row, rows)]))
    value = Maker(choice, left.columns).make(kind, 1)
    negated = choice.random() < 0.5

    def contains(row: Row, rows: Sequence[Row]) -> Any:
        given = [output.value(r) for r in found(row, rows)]
        return _among(value.value(row), given, negated)

    return Subquery(f"({value.sql} {'NOT ' if negated else ''}IN (SELECT {output.sql} {tail}))", BOOLEAN, contains)


def _only(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else None


def _among(value: Any, given: list[Any], negated: bool) -> bool | None:
    """SQL:2016, 8.4: an OR of comparisons, of none false."""
    if value is not None and any(v is not None and compared("=", value, v) for v in given):
        return not negated
    if given and (value is None or None in given):
        return None
    return negated


def _condition(choice: random.Random, subquery: Subquery, maker: Maker) -> tuple[str, Callable[[Row, Sequence[Row]], Any]]:
    """A condition of WHERE made of a subquery, alone, negated or beside another."""
    sql, value = subquery.sql, subquery.value
    if subquery.type != BOOLEAN:
        other = maker.make(subquery.type, 1)
        sign = choice.choice(["=", "<>"])
        return f"{other.sql} {sign} {sql}", lambda row, rows: _compared(sign, other.value(row), value(row, rows))
    way = choice.choice(["alone", "alone", "not", "or", "and"])
    if way == "alone":
        return sql, value
    if way == "not":
        return f"NOT {sql}", lambda row, rows: None if (v := value(row, rows)) is None else not v
    other = maker.condition(1)
    if way == "and":
        return f"{other.sql} AND {sql}", lambda row, rows: other.value(row) is True and value(row, rows)
    return f"({sql} OR {other.sql})", lambda row, rows: value(row, rows) is True or other.value(row)


def _compared(sign: str, a: Any, b: Any) -> bool | None:
    return None if a is None or b is None else compared(sign, a, b)


def _parts(choice: random.Random, left: Feed, right: Feed, item: str) -> tuple[list[Subquery], str, Callable[[Row, Sequence[Row]], bool]]:
    """Subqueries of the select list, and WHERE."""
    shown = [random_subquery(choice, left, right, item) for _ in range(choice.choice([0, 1, 1, 2]))]
    if shown and choice.random() < 0.3:
        return shown, "", lambda row, rows: True
    asked = random_subquery(choice, left, right, item)
    sql, value = _condition(choice, asked, Maker(choice, left.columns))
    return shown, f" WHERE {sql}", lambda row, rows: value(row, rows) is True


def standing(changes: Sequence[tuple[int, Row]], seq: int, primary: str) -> list[Row]:
    """The rows of a table after the changes before an arrival number."""
    state: dict[Any, Row] = {}
    for at, row in changes:
        if at <= seq:
            state.pop(row[primary], None)
            if row.get("op") != "-":
                state[row[primary]] = row
    return list(state.values())


def table_subquery(choice: random.Random, a: Feed, changes: Sequence[tuple[int, Row]], columns: Columns) -> Expected:
    """A selection of a stream with subqueries over a table, perhaps under a window."""
    left, right = qualified(a, "a"), Feed("t", [(f"t.{n}", t) for n, t in columns])
    rows = [(seq, {f"t.{n}": row.get(n) for n, _ in columns} | {"op": row.get("op")}) for seq, row in changes]
    shown, where, passes = _parts(choice, left, right, "t")
    names = [n for n, _ in left.columns]
    kept: list[Event] = []
    for event in left.events:
        table = standing(rows, event.seq, "t.id")
        made = []
        for time, row in event.rows:
            if passes(row, table):
                made.append(
                    (time, {f"j{i}": row[n] for i, n in enumerate(names)} | {f"m{i}": s.value(row, table) for i, s in enumerate(shown)})
                )
        kept.append(Event(event.seq, made, event.watermark))
    select = ", ".join([*(f"{n} AS j{i}" for i, n in enumerate(names)), *(f"{s.sql} AS m{i}" for i, s in enumerate(shown))])
    out: Columns = [*((f"j{i}", t) for i, (_, t) in enumerate(left.columns)), *((f"m{i}", s.type) for i, s in enumerate(shown))]
    feed = Feed(f"(SELECT {select} FROM a{where})", out, kept)
    if choice.random() < 0.3:
        plain = [(n, t) for n, t in out if t in TYPES and n != "j0"]
        window = random_window(choice, feed, choice.choice(["tumbling", "hopping", "session"]))
        over = mapped(feed, feed.sql, plain, lambda row: {n: row[n] for n, _ in plain})
        expected = grouped_query(choice, over, window, alias=" q", ordered=False)
        return Expected(expected.sql, expected.rows, False, None, False, f"{window.kind} over a subquery")
    return Expected(feed.sql[1:-1], [list(r.values()) for r in feed.rows()], shape="subquery of a table")


def window_subquery(choice: random.Random, a: Feed, b: Feed) -> Expected:
    """The rows of a window with subqueries over the same window, of the same stream or another."""
    size, slide = choice.randint(1, 12), choice.randint(1, 12)
    kinds = [hopping_window(choice, "tumbling", size, slide), hopping_window(choice, "hopping", size, slide), cumulating_window(choice)]
    window = choice.choice(kinds)
    other = choice.choice([a, b])
    left, right = qualified(a, "x"), qualified(other, "y")
    shown, where, passes = _parts(choice, left, right, _windowed(window, other.sql, "y"))
    assert window.assign is not None
    ours, theirs = (closing(Feed("", f.columns, f.events), window.assign) for f in (left, right))
    inside = {(one.start, one.end): [r for _, _, r in sorted(one.rows, key=lambda r: r[:2])] for one in theirs}
    rows = []
    for one in sorted(ours, key=lambda o: (o.end, o.start)):
        there = inside.get((one.start, one.end), [])
        for _, _, row in sorted(one.rows, key=lambda r: r[1]):
            if passes(row, there):
                rows.append([one.start, one.end, row["x.n"], *(s.value(row, there) for s in shown)])
    select = ", ".join(["window_start", "window_end", "x.n", *(f"{s.sql} AS x{i}" for i, s in enumerate(shown))])
    return Expected(f"SELECT {select} FROM {_windowed(window, a.sql, 'x')}{where}", rows, shape=f"subquery of a {window.kind} window")


def _windowed(window: Window, name: str, alias: str) -> str:
    text = window.sql.format(name) if window.kind == "cumulate" else f"{name} {window.sql}"
    return f"{text} {alias}"
