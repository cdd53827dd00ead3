"""Random queries: the SQL and the rows it must give, over feeds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.property.oracle import windows
from tests.property.oracle.aggregates import Aggregate, Near, random_aggregate, random_pair
from tests.property.oracle.expressions import Columns, Expr, Maker
from tests.property.oracle.feeds import Event, Feed, Row
from tests.property.oracle.functions import FunctionMaker
from tests.property.oracle.values import BYTES, SECOND, TIME, TIMESTAMP, TYPES, Order, key_of
from tests.property.oracle.windows import Seen

ZONES = ("America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo", "Europe/Berlin", "UTC")


@dataclass
class Expected:
    """A query and its answer: `rows` in order unless `ordered` is false, `late` where it can be said, `sums` when changes add up.

    `name` is that of a query among the definitions. With `added` the answer is a change log, and `rows` are what it adds up to.
    """

    sql: str
    rows: list[list[Any]]
    ordered: bool = True
    late: int | None = None
    sums: bool = False
    shape: str = ""
    name: str = ""
    added: bool = False


@dataclass
class Window:
    """A window in brackets, how it evaluates a feed for a key and a condition, and whether it has bounds."""

    sql: str
    see: Callable[[Feed, Callable[[Row], Any], Callable[[Row], bool]], list[Seen]]
    bounded: bool
    kind: str
    keys: tuple[str, ...] | None = None
    where_allowed: bool = True
    assign: Callable[[int], list[tuple[int, int]]] | None = None


def seconds(n: int) -> str:
    return f"{n} SECONDS"


def random_window(choice: random.Random, feed: Feed, kind: str | None = None) -> Window:
    """A window over a feed, sizes a few seconds."""
    kind = kind or choice.choice(
        [
            "tumbling",
            "hopping",
            "hopping",
            "sliding",
            "rows",
            "partition",
            "rows slide",
            "session",
            "session max",
            "cumulate",
            "now",
            "none",
        ]
    )
    size, slide = choice.randint(1, 12), choice.randint(1, 12)
    if kind in ("tumbling", "hopping"):
        return hopping_window(choice, kind, size, slide)
    if kind == "zoned":
        return zoned_window(choice)
    if kind == "cumulate":
        return cumulating_window(choice)
    if kind == "sliding":
        return Window(f"[RANGE {seconds(size)}]", lambda f, k, w: windows.sliding(f, size * SECOND, k, w), False, kind)
    if kind == "now":
        return Window("[NOW]", lambda f, k, w: windows.sliding(f, 1, k, w), False, kind)
    if kind == "rows":
        return Window(f"[ROWS {size}]", lambda f, k, w: windows.counted(f, size, k, w, lambda r: None), False, kind)
    if kind == "partition":
        name = choice.choice([n for n, t in feed.columns if t in ("TEXT", "INT", "DOUBLE", "BOOLEAN")] or ["n"])
        return Window(
            f"[PARTITION BY {name} ROWS {size}]",
            lambda f, k, w: windows.counted(f, size, k, w, lambda r: key_of(r[name])),
            False,
            kind,
            (name,),
        )
    if kind == "rows slide":
        slide = choice.randint(2, 5)
        return Window(
            f"[ROWS {size} SLIDE {slide}]", lambda f, k, w: windows.counted(f, size, k, w, lambda r: None, slide), False, kind, (), False
        )
    if kind == "session":
        return Window(f"[SESSION {seconds(size)}]", lambda f, k, w: windows.sessions(f, size * SECOND, k), True, kind)
    if kind == "session max":
        most = choice.randint(1, 20)
        return Window(
            f"[SESSION {seconds(size)} MAX {seconds(most)}]",
            lambda f, k, w: windows.sessions(f, size * SECOND, k, most * SECOND),
            True,
            kind,
        )
    return Window("", lambda f, k, w: windows.whole(f), False, "none")


def hopping_window(choice: random.Random, kind: str, size: int, slide: int) -> Window:
    """A window of a fixed length and step in seconds, sometimes with an offset."""
    slide = size if kind == "tumbling" else slide
    offset = choice.choice([0, 0, 1, -3, 5])
    sql = f"RANGE {seconds(size)} SLIDE {seconds(slide)}" + (f" OFFSET {seconds(offset)}" if offset else "")
    assign = windows.hopping(size * SECOND, slide * SECOND, offset * SECOND)
    return Window(f"[{sql}]", lambda f, k, w: windows.closing(f, assign), True, kind, assign=assign)


def zoned_window(choice: random.Random) -> Window:
    """A window of whole hours, days or weeks of a time zone."""
    size, slide, text = choice.choice(
        [
            (86_400, 86_400, "1 DAY"),
            (604_800, 604_800, "1 WEEK"),
            (172_800, 86_400, "2 DAYS"),
            (3_600, 3_600, "1 HOUR"),
            (18_000, 7_200, "5 HOURS"),
            (25_200, 25_200, "7 HOURS"),
        ]
    )
    step = {86_400: "1 DAY", 604_800: "1 WEEK", 7_200: "2 HOURS"}.get(slide, text)
    zone = choice.choice(ZONES)
    assign = windows.zoned(size, slide, zone)
    return Window(
        f"[RANGE {text} SLIDE {step} TIME ZONE '{zone}']", lambda f, k, w: windows.closing(f, assign), True, "zoned", assign=assign
    )


def cumulating_window(choice: random.Random) -> Window:
    """A window that grows in steps to its full length."""
    step, times = choice.randint(1, 4), choice.randint(1, 4)
    assign = windows.cumulative(step * SECOND, step * times * SECOND)
    return Window(
        f"CUMULATE(TABLE {{}}, DESCRIPTOR(ts), {seconds(step)}, {seconds(step * times)})",
        lambda f, k, w: windows.closing(f, assign),
        True,
        "cumulate",
        assign=assign,
    )


@dataclass
class Grouped:
    """The parts of SELECT … GROUP BY, to be put over any item."""

    select: str
    tail: str
    columns: Columns
    answer: Callable[[Feed], list[tuple[int, int, Row]]]
    rows_filtered: bool


@dataclass
class _Asked:
    """What a grouped query asks of each evaluation of its window."""

    window: Window
    keys: list[str]
    items: list[Aggregate]
    where: Expr | None
    having: Expr | None
    outer: Expr | None
    prefix: str

    def passes(self, row: Row) -> bool:
        return self.where is None or self.where.value(row) is True

    def key(self, row: Row) -> Any:
        return tuple(key_of(row[k]) for k in self.keys)

    def answer(self, feed: Feed) -> list[tuple[int, int, Row]]:
        """Return (arrival number, time, row) of each result."""
        return [(seen.seq, seen.time, row) for seen in self.window.see(feed, self.key, self.passes) for row in self._rows(seen)]

    def _rows(self, seen: Seen) -> Iterator[Row]:
        groups: dict[Any, list[tuple[int, int, Row]]] = {}
        for one in sorted(seen.rows, key=lambda r: r[1]):
            if self.passes(one[2]):
                groups.setdefault(self.key(one[2]), []).append(one)
        for own, members in groups.items():
            if seen.named is None or own in seen.named:
                values = {k: members[0][2][k] for k in self.keys}
                rows = [r for _, _, r in sorted(members, key=lambda r: r[:2])]
                inner = values | {item.sql: item.value(rows) for item in self.items}
                if self.having is None or self.having.value(inner) is True:
                    yield self._shown(seen, values, inner)

    def _shown(self, seen: Seen, values: Row, inner: Row) -> Row:
        shown = ({"window_start": seen.start, "window_end": seen.end} if self.window.bounded else {}) | values
        shown |= {f"{self.prefix}x{i}": inner[item.sql] for i, item in enumerate(self.items)}
        return shown | ({f"{self.prefix}y": self.outer.value(inner)} if self.outer is not None else {})


def random_grouped(choice: random.Random, columns: Columns, window: Window, *, plain: bool = False, prefix: str = "") -> Grouped:
    """Random keys, aggregates, WHERE and HAVING over a window."""
    maker = Maker(choice, columns)
    names = [n for n, t in columns if n not in ("ts", "n")]
    free = choice.sample(names, choice.choice([0, 0, 1, 1, 2]) if len(names) > 1 else 0)
    keys = free if window.keys is None else list(window.keys)
    where = maker.condition(2) if window.where_allowed and choice.random() < 0.4 else None
    items = [random_aggregate(choice, maker, plain) for _ in range(choice.randint(1, 4))]
    known = dict(columns)
    usable = [(i.sql, i.type) for i in items if i.type in TYPES] + [(k, known[k]) for k in keys if known[k] in TYPES]
    over = Maker(choice, usable)
    having = over.condition(1) if usable and choice.random() < 0.2 else None
    outer = over.make(choice.choice(usable)[1], 1) if usable and choice.random() < 0.3 else None
    asked = _Asked(window, keys, items, where, having, outer, prefix)
    bounds = ["window_start", "window_end"] if window.bounded else []
    select = [*bounds, *keys, *(f"{item.sql} AS {prefix}x{i}" for i, item in enumerate(items))]
    select += [f"{outer.sql} AS {prefix}y"] if outer is not None else []
    tail = (f" WHERE {where.sql}" if where is not None else "") + (f" GROUP BY {', '.join(keys)}" if keys else "")
    tail += f" HAVING {having.sql}" if having is not None else ""
    out: Columns = [(b, TIMESTAMP) for b in bounds] + [(k, known[k]) for k in keys if known[k] in TYPES]
    out += [(f"{prefix}x{i}", item.type) for i, item in enumerate(items)]
    out += [(f"{prefix}y", outer.type)] if outer is not None else []
    return Grouped(", ".join(select), tail, out, asked.answer, where is not None)


def from_item(window: Window, feed: Feed, alias: str = "") -> str:
    """The item of FROM for a feed in a window."""
    if window.kind == "cumulate":
        return window.sql.format(feed.sql) + alias
    return f"{feed.sql} {window.sql}{alias}"


def grouped_query(choice: random.Random, feed: Feed, window: Window | None = None, *, alias: str = "", ordered: bool = True) -> Expected:
    """SELECT … FROM feed [window] GROUP BY …, EMIT FINAL."""
    window = window or random_window(choice, feed)
    parts = random_grouped(choice, feed.columns, window, plain=window.kind == "none" or not ordered)
    fresh = Feed(feed.sql, feed.columns, feed.events)
    rows = [list(r.values()) for _, _, r in parts.answer(fresh)]
    emit = " EMIT FINAL" if window.kind == "none" else ""
    late = fresh.late if not parts.rows_filtered and window.kind != "none" else None
    sql = f"SELECT {parts.select} FROM {from_item(window, feed, alias)}{parts.tail}{emit}"
    sums = window.kind in ("tumbling", "hopping", "zoned", "session", "none", "cumulate")
    return Expected(sql, rows, ordered, late, sums, window.kind)


def selection(choice: random.Random, feed: Feed, *, ordered: bool = True) -> Expected:
    """Projections of random expressions behind a random WHERE."""
    maker = Maker(choice, feed.columns)
    outputs = [maker.make(choice.choice(TYPES)) for _ in range(choice.randint(1, 4))]
    where = maker.condition(2) if choice.random() < 0.6 else None
    rows = [[o.value(r) for o in outputs] for r in feed.rows() if where is None or where.value(r) is True]
    tail = f" WHERE {where.sql}" if where is not None else ""
    select = ", ".join(f"{o.sql} AS x{i}" for i, o in enumerate(outputs))
    return Expected(f"SELECT {select} FROM {feed.sql}{tail}", rows, ordered, 0 if ordered else None, False, "selection")


def functions_query(choice: random.Random, feed: Feed) -> Expected:
    """Calls of functions, in the select list, in WHERE and as keys."""
    maker = FunctionMaker(choice, feed.columns)
    outputs = [maker.any() for _ in range(choice.randint(1, 4))]
    plain = [o for o in outputs if o.type in TYPES]
    if plain and choice.random() < 0.3:
        return _counted_by(feed, plain[0])
    where = Maker(choice, feed.columns).condition(1) if choice.random() < 0.3 else None
    return _selected(feed, outputs, where, "functions")


def bytes_and_times_query(choice: random.Random, feed: Feed) -> Expected:
    """Expressions of BYTES, TIME and months, in the select list and as keys."""
    maker = Maker(choice, feed.columns)
    outputs = [maker.make(choice.choice([BYTES, TIME, TIMESTAMP]), 2) for _ in range(choice.randint(1, 4))]
    if choice.random() < 0.3:
        return _counted_by(feed, outputs[0])
    return _selected(feed, outputs, maker.condition(2) if choice.random() < 0.5 else None, "bytes and times")


def _selected(feed: Feed, outputs: list[Expr], where: Expr | None, shape: str) -> Expected:
    rows = [[o.value(r) for o in outputs] for r in feed.rows() if where is None or where.value(r) is True]
    select = ", ".join(f"{o.sql} AS x{i}" for i, o in enumerate(outputs))
    return Expected(f"SELECT {select} FROM {feed.sql}{f' WHERE {where.sql}' if where is not None else ''}", rows, shape=shape)


def _counted_by(feed: Feed, key: Expr) -> Expected:
    """How often each value of an expression came."""
    counts: dict[Any, list[Any]] = {}
    for row in feed.rows():
        value = key.value(row)
        counts.setdefault(key_of(value), [value, 0])[1] += 1
    sql = f"SELECT {key.sql} AS k, COUNT(*) AS n FROM {feed.sql} GROUP BY {key.sql} EMIT FINAL"
    return Expected(sql, list(counts.values()), False, None, True, "counted by an expression")


def whole_query(choice: random.Random, feed: Feed) -> Expected:
    """Aggregates of everything, at the end."""
    return grouped_query(choice, feed, random_window(choice, feed, "none"))


def pairs_in_windows(choice: random.Random, feed: Feed) -> Expected:
    """Aggregates of two arguments and of an order of their own, in windows of every kind that has bounds."""
    window = random_window(choice, feed, choice.choice(["tumbling", "hopping", "session", "cumulate", "sliding", "rows"]))
    maker = Maker(choice, feed.columns)
    keys = choice.sample([n for n, _ in feed.columns if n not in ("ts", "n")], choice.choice([0, 1]))
    items = [random_pair(choice, maker) for _ in range(choice.randint(1, 3))]
    answer = _Asked(window, keys, items, None, None, None, "").answer(Feed("", feed.columns, feed.events))
    select = [*keys, *(f"{item.sql} AS x{i}" for i, item in enumerate(items))]
    rows = [[row[n] for n in (*keys, *(f"x{i}" for i in range(len(items))))] for _, _, row in answer]
    tail = f" GROUP BY {', '.join(keys)}" if keys else ""
    return Expected(f"SELECT {', '.join(select)} FROM {from_item(window, feed)}{tail}", rows, shape=f"pairs in {window.kind}")


def distinct_query(choice: random.Random, feed: Feed) -> Expected:
    """SELECT DISTINCT of some columns, of the whole stream or of each window."""
    names = choice.sample([n for n, _ in feed.columns if n not in ("ts", "n")], 2)
    if choice.random() < 0.5:
        seen, rows = set(), []
        for row in feed.rows():
            key = tuple(key_of(row[n]) for n in names)
            if key not in seen:
                seen.add(key)
                rows.append([row[n] for n in names])
        return Expected(f"SELECT DISTINCT {', '.join(names)} FROM {feed.sql}", rows, shape="distinct")
    window = random_window(choice, feed, choice.choice(["tumbling", "hopping"]))
    rows = []
    for one in window.see(Feed("", feed.columns, feed.events), key_of, bool):
        found: dict[Any, list[Any]] = {}
        for _, _, row in sorted(one.rows, key=lambda r: r[1]):
            found.setdefault(tuple(key_of(row[n]) for n in names), [one.start, *(row[n] for n in names)])
        rows += list(found.values())
    return Expected(f"SELECT DISTINCT window_start, {', '.join(names)} FROM {feed.sql} {window.sql}", rows, shape="distinct in window")


def ranked(rows: list[Row], name: str, down: bool) -> list[Row]:
    """By a column, equal values by arrival; NULLs last ascending, first descending."""
    given = sorted((r for r in rows if r[name] is not None), key=lambda r: Order(r[name]))
    empty = [r for r in rows if r[name] is None]
    if not down:
        return given + empty
    values: list[Order] = []
    for row in reversed(given):
        if not values or values[-1] != Order(row[name]):
            values.append(Order(row[name]))
    return empty + [r for v in values for r in rows if r[name] is not None and Order(r[name]) == v]


def top_query(choice: random.Random, feed: Feed) -> Expected:
    """ORDER BY … LIMIT k of each window."""
    window = random_window(choice, feed, choice.choice(["tumbling", "hopping"]))
    name = choice.choice([n for n, t in feed.columns if t in ("INT", "BIGINT", "DOUBLE", "TEXT")])
    limit, ties, down = choice.randint(1, 4), choice.random() < 0.5, choice.random() < 0.5
    rows, fresh = [], Feed("", feed.columns, feed.events)
    for one in window.see(fresh, key_of, bool):
        whole = ranked([r for _, _, r in sorted(one.rows, key=lambda r: r[1])], name, down)
        cut = whole[:limit]
        if ties and cut:
            cut += [r for r in whole[limit:] if key_of(r[name]) == key_of(cut[-1][name])]
        rows += [[r["n"], r[name]] for r in cut]
    tail = f"{' DESC' if down else ''} LIMIT {limit}{' WITH TIES' if ties else ''}"
    return Expected(f"SELECT n, {name} FROM {feed.sql} {window.sql} ORDER BY {name}{tail}", rows, late=fresh.late, shape="top")


def lag_query(choice: random.Random, feed: Feed) -> Expected:
    """LAG over partitions, in event-time order."""
    name = choice.choice([n for n, t in feed.columns if n not in ("ts",)])
    by = choice.choice([n for n, t in feed.columns if t in ("TEXT", "INT", "DOUBLE", "BOOLEAN") and n != "n"])
    back = choice.randint(1, 3)
    kept, _ = windows._timely(Feed("", feed.columns, feed.events))
    members: dict[Any, list[Row]] = {}
    rows = []
    for _, _, row in kept:
        mine = members.setdefault(key_of(row[by]), [])
        rows.append([row["n"], mine[-back][name] if len(mine) >= back else None])
        mine.append(row)
    return Expected(f"SELECT n, LAG({name}, {back}) OVER (PARTITION BY {by}) AS p FROM {feed.sql}", rows, shape="lag")


def hopped_rows(choice: random.Random, feed: Feed) -> Expected:
    """A selection over a window of time gives each row once a window."""
    window = random_window(choice, feed, choice.choice(["tumbling", "hopping", "session", "cumulate"]))
    rows: list[list[Any]] = []
    if window.kind == "session":
        for one in window.see(Feed("", feed.columns, feed.events), lambda r: None, bool):
            rows += [[one.start, one.end, r["n"]] for _, _, r in sorted(one.rows, key=lambda r: r[:2])]
    else:
        assert window.assign is not None
        for event in feed.events:  # a selection: at once, in order of arrival, never late
            rows += [[*bounds, r["n"]] for t, r in event.rows for bounds in sorted(window.assign(t), key=lambda b: (b[1], b[0]))]
    return Expected(f"SELECT window_start, window_end, n FROM {from_item(window, feed)}", rows, shape=f"rows of {window.kind}")


def derived(choice: random.Random, feed: Feed) -> tuple[str, Feed] | None:
    """The windows' aggregates of a feed as a query and a feed of its own; None when there are none that expressions can read."""
    window = random_window(choice, feed, choice.choice(["tumbling", "hopping", "session"]))
    parts = random_grouped(choice, feed.columns, window, plain=True, prefix=choice.choice("uvwxyz") + str(choice.randint(1, 99)))
    keep = [(n, t) for n, t in parts.columns if t in TYPES and not n.startswith("window")]
    if len(keep) < 2:
        return None
    select = parts.select.replace("window_start", "window_start AS ws", 1).replace("window_end", "window_end AS we", 1)
    out = Feed("", [*keep, ("ws", TIMESTAMP), ("we", TIMESTAMP)])
    made: dict[int, list[tuple[int, Row]]] = {}
    for seq, time, row in parts.answer(Feed("", feed.columns, feed.events)):
        row["ws"], row["we"] = row.pop("window_start"), row.pop("window_end")
        made.setdefault(seq, []).append((time, row))
    out.events = [Event(e.seq, made.get(e.seq, []), e.watermark) for e in feed.events]
    return f"SELECT {select} FROM {from_item(window, feed)}{parts.tail}", out


def empty_query(choice: random.Random, feed: Feed) -> Expected:
    """EMIT EMPTY: every window that meets the times of the stream, also those of which WHERE drops all rows (K6); not if rows are late."""
    size, slide = choice.randint(1, 12), choice.randint(1, 12)
    window = choice.choice([hopping_window(choice, "hopping", size, slide), cumulating_window(choice)])
    arrived = [(time, event.seq, row) for event in feed.events for time, row in event.rows]
    watermarks = [-math.inf, *(event.watermark for event in feed.events)]
    in_time = all(time >= before for event, before in zip(feed.events, watermarks, strict=False) for time, _ in event.rows)
    if not arrived or not in_time or window.assign is None:
        return grouped_query(choice, feed)
    maker = Maker(choice, feed.columns)
    where = maker.condition(2) if choice.random() < 0.6 else None
    items = [random_aggregate(choice, maker, True) for _ in range(choice.randint(1, 3))]
    times = [time for time, _, _ in arrived]
    bounds = {bound for time in range(min(times), max(times) + 1, SECOND) for bound in window.assign(time)}
    rows = []
    for start, end in sorted(bounds, key=lambda bound: (bound[1], bound[0])):
        inside = sorted((one for one in arrived if (start, end) in window.assign(one[0])), key=lambda one: one[:2])
        passing = [row for _, _, row in inside if where is None or where.value(row) is True]
        rows.append([start, end, *(item.value(passing) for item in items)])
    select = ", ".join(["window_start", "window_end", *(f"{item.sql} AS x{i}" for i, item in enumerate(items))])
    tail = "" if where is None else f" WHERE {where.sql}"
    return Expected(f"SELECT {select} FROM {from_item(window, feed)}{tail} EMIT EMPTY", rows, shape=f"empty {window.kind}")


def empty_keys_query(choice: random.Random, feed: Feed) -> Expected:
    """EMIT EMPTY with a key: from its first window on each key has a row in every window that W passes (K6).

    LOCF is the key's last value; INTERPOLATE lies between it and its next one, for which the row waits.
    """
    size, slide = choice.randint(1, 12), choice.randint(1, 12)
    window = choice.choice([hopping_window(choice, "hopping", size, slide), cumulating_window(choice)])
    names = [n for n, t in feed.columns if t in ("TEXT", "INT", "BOOLEAN") and n != "n"]
    arrived = [(time, event.seq, row) for event in feed.events for time, row in event.rows]
    watermarks = [-math.inf, *(event.watermark for event in feed.events)]
    in_time = all(time >= before for event, before in zip(feed.events, watermarks, strict=False) for time, _ in event.rows)
    if not arrived or not in_time or window.assign is None or not names:
        return grouped_query(choice, feed)
    maker, key = Maker(choice, feed.columns), choice.choice(names)
    where = maker.condition(2) if choice.random() < 0.3 else None
    items = [random_aggregate(choice, maker, True) for _ in range(choice.randint(1, 3))]
    words = [choice.choice(["", "LOCF"]) for _ in items]
    for _ in range(choice.choice([0, 0, 1, 2])):
        number = maker.make(choice.choice(["INT", "BIGINT"]), 1)
        items.append(Aggregate(f"AVG({number.sql})", "", lambda rows, number=number: _mean([number.value(r) for r in rows])))
        words.append("INTERPOLATE")
    passing = [one for one in arrived if where is None or where.value(one[2]) is True]
    times = [time for time, _, _ in arrived]
    bounds = sorted({b for time in range(min(times), max(times) + 1, SECOND) for b in window.assign(time)}, key=lambda b: (b[1], b[0]))
    filled = [b for b in bounds if any(b in window.assign(one[0]) for one in passing)]
    reach = max((w for w in watermarks if w < math.inf), default=-math.inf)
    last: dict[Any, list[Any]] = {}  # by key, in the order in which they became known
    rows = []
    for start, end in bounds:
        if not filled or ((end, start) > (filled[-1][1], filled[-1][0]) and end > reach):
            continue
        inside = [one for one in passing if (start, end) in window.assign(one[0])]
        present = list(dict.fromkeys(row[key] for _, _, row in sorted(inside, key=lambda one: one[1])))
        for value in [*present, *(k for k in last if k not in present)]:
            of_key = [row for _, _, row in sorted(inside, key=lambda one: one[:2]) if row[key] == value and type(row[key]) is type(value)]
            before = last.setdefault(value, [None] * len(items))
            found = [item.value(of_key) for item in items]
            found = [b if f is None and w == "LOCF" else f for f, b, w in zip(found, before, words, strict=True)]
            last[value] = found
            rows.append([start, end, value, *found])
    rows = _interpolated(rows, [3 + place for place, word in enumerate(words) if word == "INTERPOLATE"])
    calls = [f"{word}({item.sql})" if word else item.sql for item, word in zip(items, words, strict=True)]
    select = ", ".join(["window_start", "window_end", f"{key} AS k", *(f"{call} AS x{i}" for i, call in enumerate(calls))])
    tail = ("" if where is None else f" WHERE {where.sql}") + f" GROUP BY {key}"
    return Expected(f"SELECT {select} FROM {from_item(window, feed)}{tail} EMIT EMPTY", rows, shape=f"empty by key {window.kind}")


def _mean(values: list[Any]) -> float | None:
    known = [v for v in values if v is not None]
    return float(Fraction(sum(known), len(known))) if known else None


def _interpolated(rows: list[list[Any]], columns: list[int]) -> list[list[Any]]:
    """Fill the columns of rows (start, end, key, …) and put each where it is known: at the row of its key that brings the last of them."""
    made, moments = [list(row) for row in rows], list(range(len(rows)))
    for column in columns:
        for place, row in enumerate(rows):
            own = [p for p, other in enumerate(rows) if other[2] == row[2] and type(other[2]) is type(row[2])]
            before = [p for p in own if p < place and rows[p][column] is not None]
            behind = [p for p in own if p > place and rows[p][column] is not None]
            if row[column] is not None:
                made[place][column] = Near(row[column], 0.0)
            elif before and not behind:
                moments[place] = len(rows)
            elif before:
                (one, other), moments[place] = (before[-1], behind[0]), max(moments[place], behind[0])
                share = (row[1] - rows[one][1]) / (rows[other][1] - rows[one][1])
                low, high = rows[one][column], rows[other][column]
                made[place][column] = Near(low + (high - low) * share, 1e-9 * max(abs(low), abs(high)))
    return [made[place] for place in sorted(range(len(rows)), key=lambda place: (moments[place], place))]
