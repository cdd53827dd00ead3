"""Queries of every kind with state, histories of rows for them, and the way from one engine to another by state as bytes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from millstream.engine.language.recipes import AggregateRecipe
from millstream.engine.runtime import fork
from millstream.engine.state.decoding import decode
from millstream.engine.state.encoding import encode
from millstream.engine.synopses.shared_aggregate import SharedAggregate

from tests.support.engine_run import SqlEngine

COLUMNS = "ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT, w DECIMAL(38, 10), n DECIMAL(10, 2), b BOOLEAN, day DATE, i INT"
STREAMS = (
    *(f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts DELAY 3 MICROSECONDS" for name in "sr"),
    "CREATE TABLE m (k BIGINT, name TEXT, PRIMARY KEY (k))",
)
SOURCE_FIELDS = ("watermark_us", "last_arrival_us", "idle", "ended", "future_skew")
HOPPING, TUMBLING, SLIDING = (
    "[RANGE 12 MICROSECONDS SLIDE 4 MICROSECONDS]",
    "[RANGE 9 MICROSECONDS SLIDE 9 MICROSECONDS]",
    "[RANGE 9 MICROSECONDS]",
)
SUMS = "COUNT(*) AS a, COUNT(t) AS b, SUM(v) AS c, SUM(k) AS d, SUM(i) AS e, SUM(w) AS f, AVG(n) AS g, AVG(w) AS h"
EXTREMES = "MIN(t) AS a, MAX(w) AS b, MIN(v) AS c, MAX(day) AS d, MIN(b) AS e, MAX(i) FILTER (WHERE b) AS f, MIN(n) AS g"
MOMENTS = (
    "STDDEV(v) AS a, VARIANCE(v) AS b, STDDEV_POP(v) AS c, VAR_POP(v) AS d, GEOMEAN(v) AS e, FIRST(t) AS f, LAST(w) AS g, FIRST(i) AS h"
)
PAIRS = "ARG_MIN(t, v) AS a, ARG_MAX(v, t) AS b, ARG_MAX(w, i) AS c, CORR(v, i) AS d, BIT_XOR(i) AS e, BOOL_OR(b) AS f"
VALUES = "MEDIAN(v) AS a, PERCENTILE_DISC(i, 0.3) AS b, TOP(k, 2) AS c, COUNT(DISTINCT t) AS d, SUM(DISTINCT w) AS e, TOP(w, 2) AS f"
COLLECTED = "ARRAY_AGG(t) AS a, STRING_AGG(t, '|' ORDER BY v DESC) AS b, ARRAY_AGG(v) AS c, ARRAY_AGG(w) AS d, MODE(t) AS e"
SKETCHES = (
    "APPROX_COUNT_DISTINCT(t) AS a, APPROX_PERCENTILE(v, 0.4) AS b, APPROX_TOP_K(t, 2) AS c, APPROX_TOP_K(w, 2) AS d, "
    "APPROX_TOP_K(i, 3) AS e"
)
NESTED = (
    "(SELECT ts, {'k': k, 'l': ARRAY[t, 'x'], 'd': day} AS p, MAP {'a': v, 'b': NULL} AS q, CAST(ROW(i AS i, t AS t) AS JSON) AS j,"
    " ARRAY[b, i > 3] AS g FROM s)"
)
CASES: Mapping[str, str] = {
    **{
        f"{shape}_{kind}": f"SELECT {key}, {calls} FROM s {window} GROUP BY {key}"
        for shape, key, window in (
            ("hopping", "k", HOPPING),
            ("tumbling", "t, k", TUMBLING),
            ("sliding", "t", SLIDING),
            ("rows", "k", "[PARTITION BY k ROWS 5]"),
            ("sessions", "k", "[SESSION 4 MICROSECONDS]"),
            ("sessions_max", "t", "[SESSION 4 MICROSECONDS MAX 7 MICROSECONDS]"),
        )
        for kind, calls in (
            ("sums", SUMS),
            ("extremes", EXTREMES),
            ("moments", MOMENTS),
            ("pairs", PAIRS),
            ("values", VALUES),
            ("collected", COLLECTED),
            ("sketches", SKETCHES),
        )
    },
    **{
        f"endless_{kind}": f"SELECT w, {calls} FROM s GROUP BY w EMIT FINAL"
        for kind, calls in (
            ("sums", SUMS),
            ("extremes", EXTREMES),
            ("moments", MOMENTS),
            ("pairs", PAIRS),
            ("values", VALUES),
            ("sketches", SKETCHES),
        )
    },
    "cumulating": "SELECT k, SUM(v) AS n FROM s [CUMULATE 12 MICROSECONDS STEP 4 MICROSECONDS] GROUP BY k",
    "zone": "SELECT k, SUM(v) AS n FROM s [RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'Europe/Berlin'] GROUP BY k",
    "no_keys": f"SELECT {SUMS} FROM s {HOPPING}",
    "keys_of_all_types": f"SELECT v, w, n, b, day, i, t, COUNT(*) AS c FROM s {TUMBLING} GROUP BY v, w, n, b, day, i, t",
    "now": "SELECT k, COUNT(*) AS n FROM s [NOW] GROUP BY k",
    "rows_slide": "SELECT k, COUNT(*) AS n FROM s [ROWS 3 SLIDE 2] GROUP BY k EMIT CHANGES",
    "every": f"SELECT k, COUNT(*) AS n FROM s {HOPPING} GROUP BY k EMIT EVERY 3 MICROSECONDS",
    "empty": f"SELECT COUNT(*) AS n FROM s {TUMBLING} WHERE k = 1 EMIT EMPTY",
    "empty_keys": f"SELECT k, COUNT(*) AS n, LOCF(MAX(t)) AS h FROM s {TUMBLING} GROUP BY k EMIT EMPTY",
    "interpolated": f"SELECT k, COUNT(*) AS n, INTERPOLATE(AVG(v)) AS h FROM s {TUMBLING} GROUP BY k EMIT EMPTY",
    "landmark": "SELECT COUNT(*) AS n FROM s [LANDMARK] EMIT EVERY 5 MICROSECONDS",
    "sessions_every": "SELECT k, SUM(v) AS n FROM s [SESSION 4 MICROSECONDS] GROUP BY k EMIT EVERY 3 MICROSECONDS",
    "windows_changes": f"SELECT k, SUM(v) AS n FROM s {HOPPING} GROUP BY k EMIT CHANGES",
    "sessions_changes": "SELECT k, COUNT(*) AS n FROM s [SESSION 4 MICROSECONDS] GROUP BY k EMIT CHANGES",
    "sliding_changes": f"SELECT k, MAX(t) AS n FROM s {SLIDING} GROUP BY k EMIT CHANGES",
    "endless_changes": "SELECT t, COUNT(*) AS n FROM s GROUP BY t EMIT CHANGES",
    "bounded_changes": "SELECT t, COUNT(*) AS n FROM s [UNBOUNDED STATE 3 ROWS] GROUP BY t EMIT CHANGES",
    "retracting": "SELECT n, COUNT(*) AS groups FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) GROUP BY n",
    "session_rows": "SELECT k, v, t FROM s [SESSION 4 MICROSECONDS]",
    "distinct": "SELECT DISTINCT t, w FROM s",
    "distinct_in_windows": f"SELECT DISTINCT k, window_end FROM s {HOPPING}",
    "distinct_counts": f"SELECT DISTINCT COUNT(*) AS n FROM s {HOPPING} GROUP BY k",
    "top": f"SELECT k, v, t FROM s {TUMBLING} ORDER BY v LIMIT 2",
    "rank": f"SELECT k, v, RANK() OVER (PARTITION BY k ORDER BY v) AS r FROM s {HOPPING}",
    "running_top": "SELECT k, v, t FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, t) AS r FROM s) WHERE r <= 3",
    "running_top_numbered": "SELECT t, v, r FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY t ORDER BY v) AS r FROM s) WHERE r <= 2"
    " EMIT FINAL",
    "lag": "SELECT k, v, LAG(t) OVER (PARTITION BY k) AS before FROM s",
    "over": "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY ts) AS a, MAX(t) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING) AS b,"
    " COUNT(t) OVER (PARTITION BY t ORDER BY ts RANGE 9 MICROSECONDS PRECEDING) AS c, MEDIAN(v) OVER (ORDER BY ts ROWS 4 PRECEDING) AS d"
    " FROM s",
    "over_following": "SELECT k, v, LEAD(t, 2) OVER (PARTITION BY k ORDER BY ts) AS a, SUM(w) OVER (PARTITION BY t ORDER BY ts RANGE"
    " BETWEEN 2 MICROSECONDS PRECEDING AND 4 MICROSECONDS FOLLOWING) AS b FROM s",
    "match": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k MEASURES FIRST(t) AS a, SUM(low.v) AS b, LAST(low.w) AS c, COUNT(*) AS n"
    " AFTER MATCH SKIP TO NEXT ROW PATTERN (top low+ up) WITHIN 12 MICROSECONDS DEFINE low AS v < PREV(v), up AS v > PREV(v))",
    "match_rows": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY t MEASURES MATCH_NUMBER() AS number, CLASSIFIER() AS is_, SUM(v) AS total"
    " ALL ROWS PER MATCH PATTERN (one (two | three)+ four?) WITHIN 20 MICROSECONDS"
    " DEFINE two AS v > one.v, three AS NEXT(k) = k, four AS MAX(two.v) < v)",
    "istream": "ISTREAM(SELECT t, COUNT(*) AS n FROM s GROUP BY t)",
    "dstream": f"DSTREAM(SELECT k, t FROM s {SLIDING})",
    "dstream_rows": "DSTREAM(SELECT k, t, w FROM s [PARTITION BY k ROWS 2])",
    "rstream": f"RSTREAM(SELECT k, t FROM s {SLIDING} EVERY 4 MICROSECONDS)",
    "union": "SELECT k, t FROM s UNION ALL SELECT k, t FROM r",
    "join": "SELECT s.t AS t, s.v AS a, r.w AS b FROM s JOIN r ON s.k = r.k WITHIN 6 MICROSECONDS",
    "left_join": "SELECT s.v AS a, r.v AS b FROM s LEFT JOIN r ON s.t = r.t AND s.k = r.k WITHIN 6 MICROSECONDS",
    "full_join": "SELECT s.v AS a, r.v AS b FROM s FULL JOIN r ON s.w = r.w WITHIN 6 MICROSECONDS WHERE s.v > 0.2 OR s.v IS NULL",
    "asof": "SELECT s.v AS a, r.t AS b FROM s LEFT ASOF JOIN r ON s.k = r.k AND r.ts <= s.ts",
    "subquery_of_a_table": "SELECT v, t IN (SELECT c FROM m CROSS JOIN UNNEST(SPLIT(m.name, '')) AS x(c) WHERE m.k > 0) AS known FROM s",
    "subquery_of_a_window": f"SELECT s.v AS a, EXISTS (SELECT 1 FROM r {HOPPING} WHERE r.k = s.k AND r.v <> s.v) AS n FROM s {HOPPING}",
    "table_join": "SELECT s.v AS a, m.name AS b FROM s LEFT JOIN m ON s.k = m.k",
    "table_changes": "SELECT name, COUNT(*) AS n, MAX(k) AS h FROM m GROUP BY name",
    "change_join": "SELECT a.k AS k, b.name AS name FROM m a LEFT JOIN m b ON a.name = b.name AND a.k < b.k",
    "view": "SELECT name, COUNT(*) AS n FROM m GROUP BY name WITH (materialized = true)",
    "changing_top": "SELECT name, k, r FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY name ORDER BY k DESC) AS r FROM m) WHERE r <= 2",
    "kept_view": "SELECT k, v, t FROM s WITH (materialized = true, keep = '9 microseconds')",
    "kept_rows": "SELECT k, v, t FROM s WITH (materialized = true, keep = 7)",
    "nested": f"SELECT g, FIRST(p) AS a, LAST(q) AS b, ARRAY_AGG(j) AS c, COUNT(DISTINCT p) AS d FROM {NESTED} {SLIDING} GROUP BY g",
    "nested_join": f"SELECT x.p AS p, y.q AS q, x.j AS j FROM {NESTED} x JOIN {NESTED} y ON x.g = y.g WITHIN 6 MICROSECONDS",
    "nested_keys": f"SELECT p, q, j, COUNT(*) AS n FROM {NESTED} {TUMBLING} GROUP BY p, q, j",
    "unnest": f"SELECT item, COUNT(*) AS n FROM s {TUMBLING}, UNNEST(ARRAY[k, i]) AS u(item) GROUP BY item",
    "split": f"SELECT t, k, SUM(v) AS n, MEDIAN(w) AS m FROM s {HOPPING} GROUP BY t, k WITH (split = 3)",
    "split_join": "SELECT s.t AS t, s.v AS a, r.w AS b FROM s JOIN r ON s.k = r.k WITHIN 6 MICROSECONDS WITH (split = 2)",
    "two_steps": f"SELECT a, COUNT(*) AS n FROM (SELECT k, COUNT(*) AS a FROM s {TUMBLING} GROUP BY k) {TUMBLING} GROUP BY a",
}
SHARED = {
    "narrow": f"SELECT k, {SUMS} FROM s {HOPPING} GROUP BY k",
    "wide": "SELECT k, MEDIAN(v) AS a, APPROX_TOP_K(t, 2) AS b FROM s [RANGE 20 MICROSECONDS SLIDE 5 MICROSECONDS] GROUP BY k",
    "all": f"SELECT COUNT(*) AS n, MAX(v) AS h FROM s {TUMBLING} EMIT EMPTY",
    "late": "SELECT k, COUNT(*) AS n, SUM(v) AS t FROM s [RANGE 6 MICROSECONDS SLIDE 6 MICROSECONDS] GROUP BY k",
    "late all": "SELECT COUNT(*) AS n FROM s [RANGE 6 MICROSECONDS SLIDE 3 MICROSECONDS] EMIT EMPTY",
}
Row = tuple[str, tuple[Any, ...]]


def history(seed: int, rows: int = 120) -> list[Row]:
    """Return rows for the streams and the table, some of them late, with NULLs, in steps of few microseconds."""
    dice = random.Random(seed)
    now, made = 0, list[Row]()
    for _ in range(rows):
        now += dice.choice((-4, -1, 0, 1, 1, 2, 3, 9))
        if dice.random() < 0.06:
            made.append(("m", (dice.randrange(3), dice.choice("xyz"), dice.choice("++-"))))
            continue

        def perhaps(value: Any) -> Any:
            return None if dice.random() < 0.15 else value

        text, wide = dice.choice(("a", "ä", "", "long" * 9)), Decimal(dice.choice((1, -7, 10**27))) + Decimal(dice.randrange(9)) / 10**10
        values = (dice.randrange(3), dice.choice((0.5, -0.0, 3e300, dice.random())), text, wide, Decimal(dice.randrange(999)) / 100)
        others = (dice.random() < 0.5, dice.randrange(-3, 3), dice.randrange(-(2**31), 2**31))
        made.append((dice.choice("sssr"), (max(0, now), *(perhaps(value) for value in (*values, *others)))))
    return made


def feed(engine: SqlEngine, rows: list[Row]) -> None:
    """Let rows in, and work now and then."""
    for n, (stream, row) in enumerate(rows):
        engine.put(stream, [row])
        if n % 5 == 0:
            engine.work()
    engine.work()


@dataclass
class Stopped:
    """A query that stands still between two rows: the rows that it has given, and what it holds as bytes."""

    given: list[str]
    state: bytes


def stopped(query: str, rows: list[Row]) -> Stopped:
    """Run a query over rows, and keep what would go into a checkpoint."""
    engine = SqlEngine(*STREAMS)
    delta = engine.select(query)
    feed(engine, rows)
    at = engine.network.ingress.next_seq
    (operators,), _ = fork.take([engine.network.queries[delta.query.id].blueprint], at).advance()
    sources = {name: {field: getattr(source, field) for field in SOURCE_FIELDS} for name, source in engine.network.sources.items()}
    table = engine.network.sources["m"].table
    assert table is not None
    kept = {"at": at, "sources": sources, "table": table.content(at).columns(), "operators": operators}
    return Stopped(shown(engine), encode(kept))


def goes_on(query: str, state: bytes, rows: list[Row]) -> list[str]:
    """Return the rows that a query gives in another engine, where it goes on from a state."""
    kept = decode(state)
    engine = SqlEngine(*STREAMS)
    engine.network.ingress.advance_to(kept["at"])
    for name, fields in kept["sources"].items():
        source = engine.network.sources[name]
        for field, value in fields.items():
            setattr(source, field, value)
        source.log.watermark_us, source.log.idle, source.log.ended = source.watermark_us, source.idle, source.ended
        if source.table is not None:
            source.table.load(kept["table"])
    delta = engine.select(query)
    fork.restore(engine.network.queries[delta.query.id].blueprint, kept["operators"])
    feed(engine, rows)
    engine.end()
    engine.work()
    return shown(engine)


def whole(query: str, rows: list[Row], cut: int) -> list[str]:
    """Return the rows of a query that is never stopped; what it changes is told at the cut, too."""
    engine = SqlEngine(*STREAMS)
    engine.select(query)
    feed(engine, rows[:cut])
    feed(engine, rows[cut:])
    engine.end()
    engine.work()
    return shown(engine)


def shown(engine: SqlEngine, name: str = "q") -> list[str]:
    """Return a query's rows as text, each bit of them."""
    return [repr(row) for row in engine.rows(name)]


def shared_answers(rows: list[Row], cut: int, state: bytes | None, *, swap: bool) -> tuple[dict[str, list[str]], bytes]:
    """Return the answers of queries on two synopses, which with `swap` go on from a state at the cut; and their state there."""
    engine = SqlEngine(*STREAMS, sharing=True, fuse=False)
    for name in ("narrow", "wide", "all"):
        engine.select(SHARED[name], name)
    feed(engine, rows[: cut // 2])
    for name in ("late", "late all"):
        engine.select(SHARED[name], name)
    feed(engine, rows[cut // 2 : cut])
    found = [o for o in engine.network.operators.values() if isinstance(o.logic, SharedAggregate)]
    there = encode([o.logic.snapshot() for o in found])
    for operator, one in zip(found, decode(there if state is None else state), strict=True) if swap else ():
        assert isinstance(operator.recipe, AggregateRecipe)
        fresh = SharedAggregate(operator.recipe, operator.inputs[0].log.schema)
        fresh.schemas = operator.logic.schemas
        fresh.restore(one)
        operator.logic = fresh
    feed(engine, rows[cut:])
    engine.end()
    engine.work()
    return {name: shown(engine, name) for name in SHARED}, there
