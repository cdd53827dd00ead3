"""Random joins and unions, by themselves and under selections, aggregates and windows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.property.oracle import joins, windows
from tests.property.oracle.expressions import Columns, Expr, Maker, Row
from tests.property.oracle.feeds import Feed, mapped, union
from tests.property.oracle.joins import Key
from tests.property.oracle.queries import Expected, grouped_query, random_grouped, random_window
from tests.property.oracle.queries import Window as Chosen
from tests.property.oracle.values import SECOND

NUMBERS = ("INT", "BIGINT", "DOUBLE", "DECIMAL(12,2)")


def qualified(feed: Feed, alias: str) -> Feed:
    """The feed with its columns called alias.name."""
    columns = [(f"{alias}.{n}", t) for n, t in feed.columns]
    item = feed.sql if feed.sql == alias else f"{feed.sql} {alias}"
    return mapped(feed, item, columns, lambda row: {f"{alias}.{n}": v for n, v in row.items()})


def random_keys(choice: random.Random, left: Feed, right: Feed, most: int = 2) -> list[Key]:
    """Comparisons of columns that go together: the same type, or two numeric ones."""
    pairs = [
        (a, b) for a, s in left.columns for b, t in right.columns
        if (s == t or (s in NUMBERS and t in NUMBERS)) and not a.endswith((".ts", ".n")) and not b.endswith((".ts", ".n"))
    ]  # fmt: skip
    chosen = choice.sample(pairs, min(len(pairs), choice.choice([0, 1, 1, 1, most])))
    return [Key(a, b, choice.random() < 0.2) for a, b in chosen]


def on_text(keys: Sequence[Key], residual: Expr | None) -> str:
    parts = [f"{k.left} {'IS NOT DISTINCT FROM' if k.null_safe else '='} {k.right}" for k in keys]
    return " AND ".join([*parts, *([residual.sql] if residual is not None else [])]) or "TRUE"


def random_join(
    choice: random.Random,
    left: Feed,
    right: Feed,
    kinds: Sequence[str] = ("INNER", "LEFT", "RIGHT", "FULL"),
    ways: Sequence[str] = ("within",),
) -> Feed:
    """Two feeds of qualified columns joined somehow; `sql` is the FROM clause."""
    kind = choice.choice(kinds)
    keys = random_keys(choice, left, right)
    residual = Maker(choice, left.columns + right.columns).condition(1) if choice.random() < 0.3 else None
    on = f"ON {on_text(keys, residual)}"
    a, b = left.columns[0][0], right.columns[0][0]
    d, e = choice.randint(0, 6), choice.randint(0, 6)
    way = choice.choice(ways)
    head = f"{left.sql} {kind} JOIN {right.sql}"
    if way not in ("one-sided", "between", "tumbling") and residual is None:
        on = _by_name(choice, keys, left) or on
    if way == "one-sided":
        kind, head = "INNER", f"{left.sql} JOIN {right.sql}"
        return joins.join(left, right, kind, keys, residual, lambda s, t: t <= s, (0, 0), f"{head} {on} AND {b} <= {a}")
    if way == "between":
        sql = f"{head} {on} AND {b} BETWEEN {a} - {d} AND {a} + {e}"
        reach = (e * SECOND, d * SECOND)
        return joins.join(left, right, kind, keys, residual, lambda s, t: s - reach[1] <= t <= s + reach[0], reach, sql)
    if way == "range":
        d = max(d, 1)
        sql = f"{_windowed(left, f'[RANGE {d} SECONDS]')} {kind} JOIN {_windowed(right, f'[RANGE {d} SECONDS]')} {on}"
        return joins.join(left, right, kind, keys, residual, lambda s, t: abs(s - t) < d * SECOND, (d * SECOND - 1,) * 2, sql)
    if way == "tumbling":
        d = max(d, 1) * SECOND
        window = f"[RANGE {d // SECOND} SECONDS SLIDE {d // SECOND} SECONDS]"
        sql = f"{_windowed(left, window)} {kind} JOIN {_windowed(right, window)} {on}"
        return joins.join(left, right, kind, keys, residual, lambda s, t: s // d == t // d, (d, d), sql)
    within = f"WITHIN {d} SECONDS"
    sql = f"{head} {within} {on}" if way == "before on" else f"{head} {on} {within}"
    return joins.join(left, right, kind, keys, residual, lambda s, t: abs(s - t) <= d * SECOND, (d * SECOND,) * 2, sql)


def _by_name(choice: random.Random, keys: Sequence[Key], left: Feed) -> str | None:
    """USING, where every key is an equality of columns of one name, clear on the left; both can still be called by their qualifiers."""
    names = [k.left.split(".")[1] for k in keys]
    same = all(not k.null_safe and k.right.split(".")[1] == n for k, n in zip(keys, names, strict=True))
    known = [n.split(".")[1] for n, _ in left.columns]
    same &= all(known.count(n) == 1 for n in names)
    if not names or not same or len(set(names)) != len(names) or choice.random() < 0.5:
        return None
    return f"USING ({', '.join(names)})"


def _windowed(feed: Feed, window: str) -> str:
    name, *alias = feed.sql.split(" ")
    return " ".join([name, window, *alias])


def pairs_query(choice: random.Random, joined: Feed, shape: str, *, ordered: bool, late: int | None = None) -> Expected:
    """SELECT of expressions over a join, perhaps behind WHERE."""
    maker = Maker(choice, joined.columns)
    numbers = [n for n, _ in joined.columns if n.endswith(".n") or n.startswith("t.")]
    where = maker.condition(1) if choice.random() < 0.3 else None
    outputs = [maker.make(choice.choice(NUMBERS)) for _ in range(choice.randint(0, 2))]
    passing = [r for r in joined.rows() if where is None or where.value(r) is True]
    rows = [[*(r[n] for n in numbers), *(o.value(r) for o in outputs)] for r in passing]
    select = ", ".join([*(f"{n} AS r{i}" for i, n in enumerate(numbers)), *(f"{o.sql} AS x{i}" for i, o in enumerate(outputs))])
    tail = f" WHERE {where.sql}" if where is not None else ""
    return Expected(f"SELECT {select} FROM {joined.sql}{tail}", rows, ordered, late if where is None else None, shape=shape)


def join_query(choice: random.Random, a: Feed, b: Feed) -> Expected:
    """Two streams, two copies of one, or three."""
    shape = choice.choice(["two", "two", "two", "swapped", "self", "three", "aggregate", "window"])
    left, right = qualified(a, "a"), qualified(b, "b")
    if shape == "swapped":
        left, right = right, left
    if shape == "self":
        left, right = qualified(a, "x"), qualified(a, "y")
    ways = ("within", "within", "before on", "between", "one-sided", "range", "tumbling")
    if shape in ("three", "aggregate"):  # a window on one side only is refused; an aggregate over windows is one a window
        ways = ways[:6] if shape == "aggregate" else ways[:5]
    joined = random_join(choice, left, right, ways=ways)
    if shape == "three":
        joined = random_join(choice, joined, qualified(a, "z"), ("INNER", "LEFT"), ("within", "before on"))
    inner = not any(f" {k} JOIN" in joined.sql for k in ("LEFT", "RIGHT", "FULL"))
    if shape == "aggregate":
        whole = Chosen("", lambda f, k, w: windows.whole(f), False, "none")
        parts = random_grouped(choice, joined.columns, whole, plain=True)
        rows = [list(r.values()) for _, _, r in parts.answer(joined)]
        return Expected(f"SELECT {parts.select} FROM {joined.sql}{parts.tail} EMIT FINAL", rows, False, None, True, "aggregate of a join")
    if shape == "window":
        return windowed_join(choice, joined)
    known = shape == "two" and "(" not in joined.sql  # what a condition drops before the join is late for nobody
    return pairs_query(choice, joined, f"join {shape}", ordered=inner and shape != "three", late=joined.late if known else None)


def windowed_join(choice: random.Random, joined: Feed) -> Expected:
    """A window over a subquery that joins."""
    names = [n for n, _ in joined.columns if not n.endswith(".ts")]
    renamed: Columns = [(f"j{i}", dict(joined.columns)[n]) for i, n in enumerate(names)]
    inner = ", ".join(f"{n} AS j{i}" for i, n in enumerate(names))
    feed = mapped(joined, f"(SELECT {inner} FROM {joined.sql})", renamed, lambda row: {f"j{i}": row[n] for i, n in enumerate(names)})
    window = random_window(choice, feed, choice.choice(["tumbling", "hopping", "session"]))
    expected = grouped_query(choice, feed, window, alias=" q", ordered=False)
    return Expected(expected.sql, expected.rows, False, None, False, f"{window.kind} over a join")


def union_query(choice: random.Random, a: Feed, b: Feed) -> Expected:
    """UNION ALL of parts of streams, by itself or under a window."""
    branches, texts = [], []
    for feed in choice.choices([a, b], k=choice.randint(2, 3)):
        condition = Maker(choice, feed.columns).condition(1)
        number = Maker(choice, feed.columns).make("BIGINT", 1)
        branches.append(_branch(feed, condition, number))
        texts.append(f"SELECT ts, n, {number.sql} AS v FROM {feed.sql} WHERE {condition.sql}")
    joined = union(branches, f"({' UNION ALL '.join(texts)})")
    if choice.random() < 0.5:
        return Expected(joined.sql[1:-1], [[r["ts"], r["n"], r["v"]] for r in joined.rows()], shape="union")
    window = random_window(choice, joined, choice.choice(["tumbling", "hopping", "session", "sliding", "rows"]))
    expected = grouped_query(choice, joined, window, alias=" u")
    return Expected(expected.sql, expected.rows, True, None, expected.sums, f"{window.kind} over a union")


def _branch(feed: Feed, condition: Expr, number: Expr) -> Feed:
    columns: Columns = [("ts", "BIGINT"), ("n", "INT"), ("v", "BIGINT")]
    return mapped(feed, "", columns, lambda r: {"ts": r["ts"], "n": r["n"], "v": number.value(r)} if condition.value(r) is True else None)


def table_query(choice: random.Random, a: Feed, changes: Sequence[tuple[int, Row]], columns: Columns) -> Expected:
    """A stream with a table: inner or left, on the key or another column."""
    left = qualified(a, "a")
    right = Feed("t", [(f"t.{n}", t) for n, t in columns])
    kind = choice.choice(["INNER", "LEFT"])
    keys = random_keys(choice, left, right) or [Key("a.n", "t.id")]
    residual = Maker(choice, left.columns + right.columns).condition(1) if choice.random() < 0.2 else None
    rows = [(seq, {f"t.{n}": row.get(n) for n, _ in columns} | {"op": row.get("op")}) for seq, row in changes]
    sql = f"a {kind} JOIN t ON {on_text(keys, residual)}"
    joined = joins.table_join(left, rows, kind, keys, residual, "t.id", right.columns, sql)
    if choice.random() < 0.3:
        return windowed_join(choice, joined)
    return pairs_query(choice, joined, "table join", ordered=False)


def asof_query(choice: random.Random, a: Feed, b: Feed) -> Expected:
    """The last version not later than each left row."""
    left, right = qualified(a, "a"), qualified(b, "b")
    kind = choice.choice(["", "LEFT"])
    keys = random_keys(choice, left, right, 1)
    keys = [Key(k.left, k.right) for k in keys]
    if not keys:
        return join_query(choice, a, b)
    on = on_text(keys, None)
    operator = choice.choice(["<=", "<=", "<", ">=", ">"])
    within = choice.choice([None, 0, 2, 5]) if operator in ("<=", "<") or kind == "" else choice.choice([0, 2, 5])
    sql = f"a {kind} ASOF JOIN b ON {on} AND b.ts {operator} a.ts"
    if operator == "<=":
        sql = choice.choice([sql, f"a {kind} ASOF JOIN b ON {on}", f"a {kind} JOIN b FOR SYSTEM_TIME AS OF a.ts ON {on}"])
    if within is not None:
        sql += f" WITHIN {within} SECONDS"
    joined = joins.asof(left, right, kind, keys, sql.replace("  ", " "), operator, None if within is None else within * SECOND)
    return pairs_query(choice, joined, "as-of", ordered=False, late=joined.late)


def any_value(rows: list[list[Any]]) -> list[list[Any]]:
    """Rows in an order of their own, for answers whose order the rules leave open."""
    return sorted(rows, key=repr)
