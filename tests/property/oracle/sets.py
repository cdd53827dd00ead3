"""Random UNION, INTERSECT and EXCEPT over windows, and several groupings of a window at once (K26)."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

from tests.property.oracle.aggregates import random_aggregate
from tests.property.oracle.expressions import Maker
from tests.property.oracle.feeds import Feed
from tests.property.oracle.queries import Expected, Window, _Asked, cumulating_window, from_item, hopping_window, random_window
from tests.property.oracle.values import TYPES, key_of
from tests.property.oracle.windows import closing


def set_query(choice: random.Random, a: Feed, b: Feed) -> Expected:
    """Two or three SELECTs of one window each, and what stands between them."""
    size, slide = choice.randint(1, 12), choice.randint(1, 12)
    kinds = [hopping_window(choice, "tumbling", size, slide), hopping_window(choice, "hopping", size, slide), cumulating_window(choice)]
    window = choice.choice(kinds)
    types = choice.choices(sorted({t for _, t in a.columns if t in TYPES}), k=choice.randint(1, 2))
    sql, rows = _branch(choice, window, choice.choice([a, b]), types)
    words = []
    for _ in range(choice.choice([1, 1, 2])):
        word = choice.choice(
            ["UNION", "EXCEPT", "EXCEPT ALL"] if words else ["UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
        )
        words.append(word)
        text, others = _branch(choice, window, choice.choice([a, b]), types)
        sql = f"{sql} {word} {text}"
        rows = _combined(word, rows, others)
    return Expected(
        sql, [list(values) for equal in rows.values() for values in equal], False, shape=f"{' '.join(words)} of a {window.kind} window"
    )


Rows = dict[Any, list[tuple[Any, ...]]]


def _branch(choice: random.Random, window: Window, feed: Feed, types: list[str]) -> tuple[str, Rows]:
    """A SELECT, and its rows by their window and key, equal ones by arrival."""
    maker = Maker(choice, feed.columns)
    outputs = [maker.make(t, 1) for t in types]
    where = maker.condition(1) if choice.random() < 0.5 else None
    assert window.assign is not None
    rows: Rows = {}
    for one in closing(Feed("", feed.columns, feed.events), window.assign):
        for _, _, row in sorted(one.rows, key=lambda r: r[1]):
            if where is None or where.value(row) is True:
                values = tuple(o.value(row) for o in outputs)
                rows.setdefault((one.start, one.end, *map(key_of, values)), []).append(values)
    tail = f" WHERE {where.sql}" if where is not None else ""
    return f"SELECT {', '.join(f'{o.sql} AS x{i}' for i, o in enumerate(outputs))} FROM {from_item(window, feed)}{tail}", rows


def _combined(word: str, left: Rows, right: Rows) -> Rows:
    if word == "UNION":
        return {key: (left.get(key) or right.get(key, []))[:1] for key in {**right, **left}}
    if word == "EXCEPT ALL":
        return {key: values[len(right.get(key, ())) :] for key, values in left.items()}
    if word == "INTERSECT ALL":
        return {key: values[: len(right.get(key, ()))] for key, values in left.items()}
    return {key: values[:1] for key, values in left.items() if values and bool(right.get(key)) == (word == "INTERSECT")}


def groupings_query(choice: random.Random, feed: Feed) -> Expected:
    """ROLLUP, CUBE or GROUPING SETS over a window: what each grouping gives by itself, one after the other."""
    window = random_window(choice, feed, choice.choice(["tumbling", "hopping", "session", "cumulate", "none"]))
    maker = Maker(choice, feed.columns)
    keys = choice.sample([n for n, _ in feed.columns if n not in ("ts", "n")], 2)
    way = choice.choice(["ROLLUP", "CUBE", "SETS", "BESIDE"])
    if way == "SETS":
        sets = choice.sample([(), (keys[0],), (keys[1],), tuple(keys)], choice.randint(1, 3))
        text = f"GROUPING SETS ({', '.join('(' + ', '.join(s) + ')' for s in sets)})"
    elif way == "BESIDE":
        sets, text = [(keys[0], keys[1]), (keys[0],)], f"{keys[0]}, ROLLUP ({keys[1]})"
    else:
        sets = [tuple(keys), (keys[0],), ()] if way == "ROLLUP" else [c for n in (2, 1, 0) for c in combinations(keys, n)]
        text = f"{way} ({', '.join(keys)})"
    if window.kind in ("session", "none") and () in sets and way != "SETS":
        sets, text = [tuple(keys), (keys[0],)], f"GROUPING SETS (({', '.join(keys)}), {keys[0]})"
    every = list(dict.fromkeys(k for s in sets for k in s))
    where = maker.condition(2) if choice.random() < 0.3 else None
    items = [random_aggregate(choice, maker, True) for _ in range(choice.randint(1, 2))]
    bounds = ["window_start", "window_end"] if window.bounded else []
    rows = []
    for own in sets:
        asked = _Asked(window, list(own), items, where, None, None, "")
        for _, _, row in asked.answer(Feed("", feed.columns, feed.events)):
            grouped = sum(2 ** (len(every) - 1 - i) for i, k in enumerate(every) if k not in own)
            rows.append([*(row[n] for n in bounds), *(row.get(k) for k in every), *(row[f"x{i}"] for i in range(len(items))), grouped])
    select = [*bounds, *every, *(f"{item.sql} AS x{i}" for i, item in enumerate(items))]
    select.append(f"GROUPING({', '.join(every)}) AS g" if every else "0 AS g")
    tail = f" WHERE {where.sql}" if where is not None else ""
    emit = " EMIT FINAL" if window.kind == "none" else ""
    sql = f"SELECT {', '.join(select)} FROM {from_item(window, feed)}{tail} GROUP BY {text}{emit}"
    return Expected(sql, rows, False, None, True, f"{way} of a {window.kind} window")
