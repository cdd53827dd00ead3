"""Random queries of every kind over the streams a and b (ts, k, v, x), c (k, v, x; by arrival) and the table t (k, w)."""

from __future__ import annotations

import random

CONDITIONS = ("", " WHERE v > 3", " WHERE 3 < v AND k <> 2", " WHERE k <> 2 AND v > 3", " WHERE v > 6", " WHERE v > 100")
COMMON_AGGREGATES = (
    "COUNT(*) AS n",
    "SUM(v) AS total, COUNT(*) AS n",
    "AVG(x) AS mean, MIN(v) AS low",
    "MAX(x) AS high",
    "SUM(v * 2 + k) AS d",
    "MEDIAN(v) AS mid, FIRST(v) AS f",
    "SUM(v) FILTER (WHERE k = 1) AS part",
    "COUNT(DISTINCT v) AS different",
)
AGGREGATES = (
    *COMMON_AGGREGATES,
    "TOP(v, 2) AS best",
    "STDDEV(x) AS spread, LAST(v) AS newest",
    "ARRAY_AGG(v) AS list",
    "SUM(10 / v) AS parts",
)
WINDOWS = (
    "[RANGE 10 SECONDS SLIDE 5 SECONDS]",
    "[RANGE 4 SECONDS SLIDE 2 SECONDS]",
    "[RANGE 6 SECONDS SLIDE 6 SECONDS]",
    "[RANGE 9 SECONDS SLIDE 3 SECONDS OFFSET 1 SECOND]",
    "[RANGE 2 SECONDS SLIDE 5 SECONDS]",
    "[RANGE 7 SECONDS SLIDE 3 SECONDS]",
)
CLOSING = (*WINDOWS, "[SESSION 2 SECONDS]", "[SESSION 2 SECONDS MAX 5 SECONDS]")
SLIDING = ("[RANGE 5 SECONDS]", "[ROWS 4]", "[PARTITION BY k ROWS 2]", "[ROWS 4 SLIDE 2]", "[NOW]")
SELECTIONS = (
    "SELECT v, x FROM a WHERE v > 3",
    "SELECT k, v + 1 AS w FROM a",
    "SELECT v * 2 + k AS d, v FROM b WHERE v > 3",
    "SELECT 10 / v AS q FROM a WHERE v < 5",
    "SELECT DISTINCT k, v FROM a",
    "SELECT DISTINCT k FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS]",
    "SELECT v, LAG(v) OVER (PARTITION BY k) AS p FROM a",
    "SELECT v, LAG(v) OVER (PARTITION BY k) AS p FROM a WHERE v > 3",
    "SELECT k, v FROM a UNION ALL SELECT k, v FROM b",
    "SELECT k, v FROM a WHERE v > 6 UNION ALL SELECT k, v FROM b WHERE k = 1",
)
OTHERS = (
    "SELECT k, COUNT(*) AS n FROM a GROUP BY k EMIT FINAL",
    "SELECT k, SUM(v) AS n FROM a GROUP BY k",
    "SELECT COUNT(*) AS n, MAX(v) AS h FROM b WHERE v > 3",
    "SELECT k, COUNT(*) AS n FROM a [UNBOUNDED] GROUP BY k EMIT CHANGES",
    "SELECT n, COUNT(*) AS m FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) AS q GROUP BY n EMIT FINAL",
    "SELECT window_end, k, SUM(v) AS total FROM a [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k ORDER BY total DESC LIMIT 2",
    "SELECT k, v FROM a [RANGE 4 SECONDS SLIDE 4 SECONDS] ORDER BY v LIMIT 2",
    "ISTREAM(SELECT k, COUNT(*) AS n FROM a [RANGE 5 SECONDS] GROUP BY k)",
    "DSTREAM(SELECT k, COUNT(*) AS n FROM a [RANGE 5 SECONDS] GROUP BY k)",
    "RSTREAM(SELECT k, COUNT(*) AS n FROM a [RANGE 5 SECONDS] GROUP BY k EVERY 2 SECONDS)",
    "SELECT k, v FROM a [SESSION 2 SECONDS]",
    "SELECT window_end, COUNT(*) AS n FROM c [RANGE 4 SECONDS SLIDE 2 SECONDS]",
    "SELECT k, SUM(v) AS n FROM c [RANGE 4 SECONDS] GROUP BY k",
)
LOOKUPS = (
    "SELECT a.k AS k, a.v AS v, b.v AS o FROM a ASOF JOIN b ON a.k = b.k",
    "SELECT a.k AS k, a.v AS v, b.v AS o FROM a LEFT ASOF JOIN b ON a.k = b.k WHERE a.v > 3",
    "SELECT a.k AS k, a.v AS v, t.w AS w FROM a JOIN t ON a.k = t.k",
    "SELECT a.k AS k, a.v AS v, t.w AS w FROM a LEFT JOIN t ON a.k = t.k WHERE a.v > 3",
    "SELECT window_end, w, COUNT(*) AS n FROM (SELECT a.ts, t.w AS w FROM a JOIN t ON a.k = t.k) [RANGE 4 SECONDS SLIDE 2 SECONDS] AS u"
    " GROUP BY w",
)
BOUNDS = (
    "WITHIN 1 SECOND",
    "WITHIN 0 SECONDS",
    "WITHIN 3 SECONDS",
    "AND y.ts BETWEEN x.ts - INTERVAL '1' SECOND AND x.ts + INTERVAL '2' SECOND",
)


def random_query(choice: random.Random) -> str:
    """Return one of many similar queries, so that several of them share work."""
    makers = (closing_query, closing_query, closing_query, sliding_query, join_query, join_query, join_query)
    kind = choice.randrange(len(makers) + 3)
    if kind < len(makers):
        return makers[kind](choice)
    return choice.choice((SELECTIONS, OTHERS, LOOKUPS)[kind - len(makers)])


def item_of(choice: random.Random) -> tuple[str, str]:
    """Return a stream, a part of one or a union, and its alias."""
    stream, condition, other = choice.choice("aaab"), choice.choice(CONDITIONS), choice.choice(CONDITIONS)
    part = f"SELECT ts, k, v, x FROM {stream}{condition}"
    return choice.choice(
        (
            (stream, ""),
            (stream, ""),
            (f"({part})", " AS u"),
            (f"(SELECT ts, k, v + 1 AS v, x FROM {stream}{condition})", " AS u"),
            (f"({part} UNION ALL SELECT ts, k, v, x FROM {choice.choice('ab')}{other})", " AS u"),
        )
    )


def closing_query(choice: random.Random) -> str:
    """Return aggregates over windows that close."""
    item, alias = item_of(choice)
    window, keys = choice.choice(CLOSING), choice.choice(("", "k", "k", "k, v", "v, k"))
    emits = ["", "", "", "", " EMIT CHANGES"]
    if "SESSION" not in window:
        emits += [" EMIT EVERY 2 SECONDS", "" if keys else " EMIT EMPTY"]
    having = " HAVING COUNT(*) > 1" if choice.random() < 0.2 else ""
    shown, group = (f"{keys}, ", f" GROUP BY {keys}") if keys else ("", "")
    tail = f"{choice.choice(CONDITIONS)}{group}{having}{choice.choice(emits)}"
    return f"SELECT {shown}window_end, {choice.choice(AGGREGATES)} FROM {item} {window}{alias}{tail}"


def sliding_query(choice: random.Random) -> str:
    """Return aggregates at each row or instant."""
    item, alias = item_of(choice)
    window = choice.choice(SLIDING)
    if "SLIDE" in window:
        return f"SELECT {choice.choice(AGGREGATES)} FROM {item} {window}{alias}"
    keys = "k" if "PARTITION" in window else choice.choice(("", "k"))
    shown, group = (f"{keys}, ", f" GROUP BY {keys}") if keys else ("", "")
    tail = f"{choice.choice(CONDITIONS)}{group}{choice.choice(('', '', ' EMIT CHANGES'))}"
    return f"SELECT {shown}{choice.choice(AGGREGATES)} FROM {item} {window}{alias}{tail}"


def join_query(choice: random.Random) -> str:
    """Return a join of two streams or of one with itself, by itself or under an aggregate."""
    kind = choice.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    left, right = choice.choice(("ab", "ab", "ba", "aa"))
    bound, on = choice.choice(BOUNDS), choice.choice(("x.k = y.k", "x.k = y.k", "x.k = y.k AND x.v = y.v", "x.k IS NOT DISTINCT FROM y.k"))
    extra = choice.choice(("", " AND x.v > y.v")) if bound.startswith("WITHIN") else ""
    where = choice.choice(("", " WHERE x.v > 3", " WHERE y.v > 3 AND x.k <> 2", " WHERE x.v > 100"))
    joined = f"{left} AS x {kind} {right} AS y ON {on}{extra} {bound}{where}"
    rows = f"SELECT x.k AS xk, x.v AS xv, y.v AS yv FROM {joined}"
    windowed = f"SELECT window_end, COUNT(*) AS n, SUM(xv) AS s FROM ({rows}) {choice.choice(CLOSING)} AS q"
    whole = f"SELECT COUNT(*) AS n FROM {joined} EMIT FINAL"
    return choice.choice((rows, rows, windowed, whole, f"SELECT x.k AS k, COUNT(*) AS n FROM {joined} GROUP BY x.k"))
