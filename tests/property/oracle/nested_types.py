"""Nested types and JSON (K21): random values, expressions over them, UNNEST; what each comes to as Python has it.

A LIST is a list, a STRUCT a dict, a MAP a list of (key, value) in the order of the keys, JSON its text in the normal form.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.property.oracle.expressions import Columns, Expr, Maker, column, literal, strict
from tests.property.oracle.feeds import Event, Feed, Row, mapped
from tests.property.oracle.queries import Expected, distinct_query, grouped_query, lag_query
from tests.property.oracle.values import BIGINT, BOOLEAN, COMMON, DOUBLE, EXTREME, INT, TEXT, key_of, random_value

PLAIN = (INT, BIGINT, DOUBLE, TEXT, BOOLEAN)
KEYS = ("a", "b", "é", "k 1", "")
JSON = "JSON"


class Nested(str):
    """The spelling of a type; `shape` is list, struct or map, `parts` its inner types by name (a list's and a map's is "")."""

    shape: str
    parts: dict[str, str]

    def __new__(cls, shape: str, parts: dict[str, str]) -> Nested:
        inner = parts.get("", "")
        listed = ", ".join(f"{name} {kind}" for name, kind in parts.items())
        made = super().__new__(cls, {"list": f"{inner}[]", "map": f"MAP(TEXT, {inner})", "struct": f"STRUCT({listed})"}[shape])
        made.shape, made.parts = shape, parts
        return made


def random_type(choice: random.Random, depth: int = 2) -> str:
    """A nested type; at depth 0 a plain one."""
    if depth == 0:
        return choice.choice(PLAIN)
    shape = choice.choice(["list", "list", "struct", "struct", "map"])
    names = ["x", "y", "z"][: choice.randint(1, 3)] if shape == "struct" else [""]
    return Nested(shape, {name: random_type(choice, choice.randint(0, depth - 1)) for name in names})


def random_part(choice: random.Random, kind: str) -> Any:
    """A value of any type, often NULL or empty."""
    if not isinstance(kind, Nested):
        return random_json(choice) if kind == JSON else random_value(choice, kind)
    if choice.random() < 0.12:
        return None
    if kind.shape == "list":
        return [random_part(choice, kind.parts[""]) for _ in range(choice.choice([0, 1, 1, 2, 3]))]
    if kind.shape == "struct":
        return {name: random_part(choice, part) for name, part in kind.parts.items()}
    return [(key, random_part(choice, kind.parts[""])) for key in sorted(choice.sample(KEYS, choice.randint(0, 3)))]


def random_json(choice: random.Random) -> str | None:
    if choice.random() < 0.12:
        return None

    def made(depth: int) -> Any:
        way = choice.choice(["plain", "list", "object", "object"]) if depth else "plain"
        if way == "list":
            return [made(depth - 1) for _ in range(choice.randint(0, 3))]
        if way == "object":
            return {key: made(depth - 1) for key in choice.sample(KEYS, choice.randint(0, 4))}
        return choice.choice([None, True, False, 0, -3, 10**25, 1.5, 1e300, -0.0, "", "a", "é", 'say "hi"'])

    top = made(2)
    return None if top is None else normal(top)


def normal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_json(value: Any, kind: str) -> Any:
    """A value as a row of JSON lines has it."""
    if value is None:
        return None
    if kind == JSON:
        return json.loads(value)
    if not isinstance(kind, Nested):
        return value if not isinstance(value, float) or math.isfinite(value) else _special(value)
    if kind.shape == "list":
        return [as_json(item, kind.parts[""]) for item in value]
    if kind.shape == "struct":
        return {name: as_json(part, kind.parts[name]) for name, part in value.items()}
    return {key: as_json(item, kind.parts[""]) for key, item in reversed(value)}


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@dataclass(frozen=True)
class _Step:
    sql: str
    type: str
    take: Callable[[Any], Any]


class NestedMaker:
    """Makes expressions over columns of nested types."""

    def __init__(self, choice: random.Random, columns: Columns) -> None:
        self.choice = choice
        self.columns = [(n, t) for n, t in columns if isinstance(t, Nested)]
        self.plain = Maker(choice, [c for c in columns if not isinstance(c[1], Nested) and c[1] != JSON])
        self.documents = [n for n, t in columns if t == JSON]

    def path(self, wanted: Callable[[str], bool] = lambda kind: True) -> Expr:
        """A column, or a part of one by some steps, of a type that is wanted."""
        for _ in range(50):
            found = column(*self.choice.choice(self.columns))
            while isinstance(found.type, Nested) and (not wanted(found.type) or self.choice.random() < 0.6):
                found = self._stepped(found)
            if wanted(found.type):
                return found
        return self.nested_constant(wanted)

    def nested_constant(self, wanted: Callable[[str], bool]) -> Expr:
        """A list of the row's own number, or whatever is wanted, made of it."""
        n = column("n", INT)
        made = [
            n,
            Expr("ARRAY[n]", Nested("list", {"": INT}), lambda row: [row["n"]]),
            Expr("{'x': n}", Nested("struct", {"x": INT}), lambda row: {"x": row["n"]}),
            Expr("MAP {'a': n}", Nested("map", {"": INT}), lambda row: [("a", row["n"])]),
        ]
        return next((e for e in made if wanted(e.type)), n)

    def _stepped(self, of: Expr) -> Expr:
        assert isinstance(of.type, Nested)
        step = self._step(of.type)
        return Expr(f"({of.sql}){step.sql}", step.type, strict(step.take, of))

    def _step(self, kind: Nested) -> _Step:
        if kind.shape == "struct":
            name = self.choice.choice(list(kind.parts))
            return _Step(f".{name}", kind.parts[name], lambda v: v[name])
        if kind.shape == "list":
            place = self.choice.choice([1, 1, 2, 3, 0, 9])
            return _Step(f"[{place}]", kind.parts[""], lambda v: v[place - 1] if 1 <= place <= len(v) else None)
        key = self.choice.choice(KEYS)
        return _Step(f"['{key}']", kind.parts[""], lambda v: dict(v).get(key))

    def any(self) -> Expr:
        """An expression that reads or makes nested values or JSON."""
        makers = [self.path, self.path, self._size, self._contains, self._equal, self._made, self._text, self._chosen, self._entries]
        if self.documents:
            makers += [self._json, self._json]
        return self.choice.choice(makers)()

    def _size(self) -> Expr:
        of = self.path(lambda k: isinstance(k, Nested) and k.shape != "struct")
        return Expr(f"CARDINALITY({of.sql})", BIGINT, strict(len, of))

    def _contains(self) -> Expr:
        of = self.path(lambda k: isinstance(k, Nested) and k.shape == "list" and not isinstance(k.parts[""], Nested))
        assert isinstance(of.type, Nested)
        kind = of.type.parts[""]
        wanted = literal(self.choice.choice([*COMMON[kind], *EXTREME[kind]]), kind)
        sql = f"ARRAY_CONTAINS({of.sql}, CAST({wanted.sql} AS {kind}))"

        def value(items: list[Any], one: Any) -> bool | None:
            found = any(i is not None and key_of(i) == key_of(one) for i in items)
            return True if found else None if None in items else False

        return Expr(sql, BOOLEAN, strict(value, of, wanted))

    def _equal(self) -> Expr:
        a = self.path(lambda k: isinstance(k, Nested))
        b = self.path(lambda k: k == a.type) if self.choice.random() < 0.7 else a
        b = b if b.type == a.type else a
        if self.choice.random() < 0.5:
            return Expr(f"({a.sql} = {b.sql})", BOOLEAN, strict(lambda x, y: key_of(x) == key_of(y), a, b))
        return Expr(f"({a.sql} IS DISTINCT FROM {b.sql})", BOOLEAN, lambda row: key_of(a.value(row)) != key_of(b.value(row)))

    def _made(self) -> Expr:
        kind = self.choice.choice(PLAIN)
        a, b = self.plain.make(kind, 1), self.plain.make(kind, 1)
        both = BIGINT if BIGINT in (a.type, b.type) else a.type
        way = self.choice.choice(["list", "struct", "map", "joined"])
        if way == "list":
            return Expr(f"ARRAY[{a.sql}, {b.sql}]", Nested("list", {"": both}), lambda row: [a.value(row), b.value(row)])
        if way == "struct":
            kinds = {"p": a.type, "q": b.type}
            return Expr(f"ROW({a.sql} AS p, {b.sql} AS q)", Nested("struct", kinds), lambda row: {"p": a.value(row), "q": b.value(row)})
        if way == "map":
            sql = f"MAP {{'z': {a.sql}, 'a': {b.sql}}}"
            return Expr(sql, Nested("map", {"": both}), lambda row: [("a", b.value(row)), ("z", a.value(row))])
        one = self.path(lambda k: isinstance(k, Nested) and k.shape == "list")
        return Expr(f"ARRAY_CONCAT({one.sql}, {one.sql})", one.type, strict(lambda v: v + v, one))

    def _entries(self) -> Expr:
        of = self.path(lambda k: isinstance(k, Nested) and k.shape == "map")
        assert isinstance(of.type, Nested)
        if self.choice.random() < 0.5:
            return Expr(f"MAP_KEYS({of.sql})", Nested("list", {"": TEXT}), strict(lambda v: [key for key, _ in v], of))
        return Expr(f"MAP_VALUES({of.sql})", Nested("list", of.type.parts), strict(lambda v: [item for _, item in v], of))

    def _text(self) -> Expr:
        of = self.path(lambda k: isinstance(k, Nested))
        way = self.choice.choice(["text", "json", "back"])
        if way == "back":
            return Expr(f"CAST(CAST({of.sql} AS TEXT) AS {of.type})", of.type, of.value)
        target = "TEXT" if way == "text" else "JSON"
        return Expr(f"CAST({of.sql} AS {target})", target, strict(lambda v: json_form(v, of.type), of))

    def _chosen(self) -> Expr:
        a = self.path(lambda k: isinstance(k, Nested))
        b = self.path(lambda k: k == a.type)
        b = b if b.type == a.type else a
        when = self.plain.condition(1)
        if self.choice.random() < 0.5:
            return Expr(f"COALESCE({a.sql}, {b.sql})", a.type, lambda row: x if (x := a.value(row)) is not None else b.value(row))
        sql = f"CASE WHEN {when.sql} THEN {a.sql} ELSE {b.sql} END"
        return Expr(sql, a.type, lambda row: a.value(row) if when.value(row) else b.value(row))

    def _json(self) -> Expr:
        name = self.choice.choice(self.documents)
        steps: list[str | int] = [self.choice.choice([*KEYS[:4], 0, 1, -1]) for _ in range(self.choice.randint(1, 2))]
        way = self.choice.choice(["->", "->>", "#>>", "value", "query", "typeof", "length", "cast"])
        if way in ("value", "query"):
            steps = [s for s in steps if s != -1] or [0]
        arrows = "".join(f" -> {_quoted(s)}" for s in steps[:-1])
        reach: Callable[[Row], Any] = lambda row: _reached(row[name], steps)  # noqa: E731
        if way == "->":
            return Expr(f"({name}{arrows} -> {_quoted(steps[-1])})", JSON, lambda row: None if (v := reach(row)) is MISSING else normal(v))
        if way == "->>":
            return Expr(f"({name}{arrows} ->> {_quoted(steps[-1])})", TEXT, lambda row: _as_text(reach(row)))
        if way == "#>>":
            braces = "{" + ",".join(str(s) for s in steps) + "}"
            return Expr(f"({name} #>> '{braces}')", TEXT, lambda row: _as_text(_reached(row[name], [str(s) for s in steps])))
        path = "$" + "".join(f"[{s}]" if isinstance(s, int) else f'."{s}"' for s in steps)
        if way == "value":
            sql = f"JSON_VALUE({name}, '{path}')"
            return Expr(sql, TEXT, lambda row: None if isinstance(v := reach(row), list | dict) else _as_text(v))
        if way == "query":
            return Expr(f"JSON_QUERY({name}, '{path}')", JSON, lambda row: normal(v) if isinstance(v := reach(row), list | dict) else None)
        whole: Callable[[Row], Any] = lambda row: MISSING if row[name] is None else json.loads(row[name])  # noqa: E731
        if way == "typeof":
            return Expr(f"JSON_TYPEOF({name})", TEXT, lambda row: _type_name(whole(row)))
        if way == "length":
            return Expr(f"JSON_ARRAY_LENGTH({name})", BIGINT, lambda row: len(v) if isinstance(v := whole(row), list) else None)
        return Expr(f"CAST({name} AS TEXT)", TEXT, lambda row: row[name])


MISSING = object()


def _quoted(step: str | int) -> str:
    return f"'{step}'" if isinstance(step, str) else str(step)


def _reached(text: str | None, steps: list[Any]) -> Any:
    value: Any = MISSING if text is None else json.loads(text)
    for step in steps:
        if isinstance(value, dict) and isinstance(step, str) and step in value:
            value = value[step]
        elif isinstance(value, list):
            place = step if isinstance(step, int) else int(step) if step.lstrip("-").isascii() and step.lstrip("-").isdigit() else None
            value = value[place] if place is not None and -len(value) <= place < len(value) else MISSING
        else:
            return MISSING
    return value


def _as_text(value: Any) -> str | None:
    return None if value is MISSING or value is None else value if isinstance(value, str) else normal(value)


def _type_name(value: Any) -> str | None:
    if value is MISSING:
        return None
    names = {type(None): "null", bool: "boolean", str: "string", int: "number", float: "number", dict: "object", list: "array"}
    return names[type(value)]


def json_form(value: Any, kind: str) -> str:
    """The text of a nested value, members in the order of the type's parts, of a map in that of the keys."""
    if value is None:
        return "null"
    if not isinstance(kind, Nested):
        return normal(_special(value) if isinstance(value, float) and not math.isfinite(value) else value)
    if kind.shape == "list":
        return "[" + ", ".join(json_form(item, kind.parts[""]) for item in value) + "]"
    pairs = value.items() if kind.shape == "struct" else value
    return "{" + ", ".join(f"{normal(k)}: {json_form(v, kind.parts.get(k, kind.parts.get('', '')))}" for k, v in pairs) + "}"


def nested_columns(choice: random.Random) -> Columns:
    kinds: list[str] = [random_type(choice) for _ in range(choice.randint(1, 3))]
    kinds += [JSON] if choice.random() < 0.7 else []
    return [("ts", BIGINT), ("n", INT), ("t", TEXT), *((f"c{i}", kind) for i, kind in enumerate(kinds))]


def nested_row(choice: random.Random, columns: Columns, time: int, number: int) -> Row:
    return {"ts": time, "n": number} | {name: random_part(choice, kind) for name, kind in columns[2:]}


def derived(choice: random.Random, feed: Feed) -> Feed:
    """A subquery of expressions over nested columns."""
    maker = NestedMaker(choice, feed.columns)
    outputs = [maker.any() for _ in range(choice.randint(1, 3))]
    columns: Columns = [("ts", BIGINT), ("n", INT), *((f"d{i}", o.type) for i, o in enumerate(outputs))]
    listed = "".join(f", {o.sql} AS d{i}" for i, o in enumerate(outputs))

    def change(row: Row) -> Row:
        return {"ts": row["ts"], "n": row["n"]} | {f"d{i}": o.value(row) for i, o in enumerate(outputs)}

    return mapped(feed, f"(SELECT ts, n{listed} FROM {feed.sql})", columns, change)


def unfolded(choice: random.Random, feed: Feed) -> Feed:
    """A subquery with UNNEST of a list or a map."""
    of = NestedMaker(choice, feed.columns).path(lambda k: isinstance(k, Nested) and k.shape != "struct")
    assert isinstance(of.type, Nested)
    outer, numbered, is_map = choice.random() < 0.4, choice.random() < 0.5, of.type.shape == "map"
    made = [("key", TEXT), ("item", of.type.parts[""])] if is_map else [("item", of.type.parts[""])]
    made += [("place", BIGINT)] if numbered else []
    names = ", ".join(name for name, _ in made)
    join = f"LEFT JOIN UNNEST({of.sql}){' WITH ORDINALITY' if numbered else ''} AS u({names}) ON TRUE"
    sql = f"(SELECT ts, n, {names} FROM {feed.sql} {join if outer else join.replace('LEFT JOIN', 'CROSS JOIN').replace(' ON TRUE', '')})"

    def rows(row: Row) -> list[Row]:
        items = of.value(row) or []
        found = []
        for place, item in enumerate(items, start=1):
            values = [*(item if is_map else (item,)), *([place] if numbered else [])]
            found.append({"ts": row["ts"], "n": row["n"]} | dict(zip((name for name, _ in made), values, strict=True)))
        return found or ([{"ts": row["ts"], "n": row["n"]} | dict.fromkeys(name for name, _ in made)] if outer else [])

    events = [Event(e.seq, [(time, made_row) for time, row in e.rows for made_row in rows(row)], e.watermark) for e in feed.events]
    return Feed(sql, [("ts", BIGINT), ("n", INT), *made], events)


def nested_values_query(choice: random.Random, feed: Feed) -> Expected:
    """A selection of nested expressions, or a query over a subquery of them or of UNNEST."""
    way = choice.choice(["select", "select", "grouped", "grouped", "unnest", "unnest grouped", "distinct", "lag"])
    if way == "select":
        maker = NestedMaker(choice, feed.columns)
        outputs = [maker.any() for _ in range(choice.randint(1, 4))]
        where = maker.plain.condition(1) if choice.random() < 0.4 else None
        rows = [[o.value(r) for o in outputs] for r in feed.rows() if where is None or where.value(r) is True]
        tail = f" WHERE {where.sql}" if where is not None else ""
        return Expected(f"SELECT {', '.join(f'{o.sql} AS x{i}' for i, o in enumerate(outputs))} FROM {feed.sql}{tail}", rows, shape=way)
    if way == "unnest":
        inner = unfolded(choice, feed)
        names = [name for name, _ in inner.columns]
        return Expected(f"SELECT {', '.join(names)} FROM {inner.sql}", [list(row.values()) for row in inner.rows()], shape=way)
    inner = unfolded(choice, feed) if way == "unnest grouped" else derived(choice, feed)
    if way == "distinct" and len(inner.columns) > 3:
        return distinct_query(choice, inner)
    if way == "lag" and any(t in (TEXT, INT, DOUBLE, BOOLEAN) for _, t in inner.columns[2:]):
        return lag_query(choice, inner)
    query = grouped_query(choice, inner)
    if way == "unnest grouped":
        query.late = None  # counted are rows of the stream, not items
    return query
