"""What the newer parts of the language cost, beside DuckDB (one thread) over the same rows: a table in Markdown.

    python -m tests.benchmarks.language_bench                 # all of them; names or parts of names choose some

Millstream's engine takes the rows in trains of 65,536 as a stream; DuckDB has them as a table. Processor time in seconds, the least of
three runs. Both must give as many rows, with the same sums.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from millstream.engine.data.arrow import column_from_arrow, column_to_arrow
from millstream.engine.data.types import BIGINT, DOUBLE, INT, JSON, TEXT, TIMESTAMP, list_of

from tests.support.engine_run import SqlEngine

ROWS, TRAIN, RUNS = 1_000_000, 65_536, 3
TYPES = (TIMESTAMP, BIGINT, DOUBLE, INT, TEXT, JSON, list_of(INT))
STREAM = "CREATE STREAM {} (ts TIMESTAMP, k BIGINT, v DOUBLE, n INT, t TEXT, j JSON, l INT[]) TIMESTAMP BY ts"
TABLE = "CREATE TABLE known (k BIGINT, most DOUBLE, PRIMARY KEY (k))"
FINE = "[RANGE 10 MILLISECONDS SLIDE 10 MILLISECONDS]"
W = "[RANGE 10 SECONDS SLIDE 10 SECONDS]"


@dataclass(frozen=True)
class Work:
    """A query of both; `sources` are the streams that it reads, `part` how much of their rows."""

    name: str
    ours: str
    theirs: str
    sources: str = "s"
    part: int = 1


WORKS = [
    Work("`v + 1` (what the reading of columns costs)", "SELECT v + 1 AS x FROM s", "SELECT v + 1 FROM s"),
    Work("`j ->> 'a'` of JSON", "SELECT j ->> 'a' AS a FROM s", "SELECT j ->> 'a' FROM s"),
    Work("`l[1]`, `CARDINALITY(l)` of lists", "SELECT l[1] AS a, CARDINALITY(l) AS b FROM s", "SELECT l[1], len(l) FROM s"),
    Work(
        "`CROSS JOIN UNNEST(l)`, a sum by item",
        f"SELECT i, COUNT(*) AS n FROM (SELECT i FROM s CROSS JOIN UNNEST(s.l) AS u(i)) {W} AS q GROUP BY i",
        "SELECT i, COUNT(*) FROM (SELECT w, UNNEST(l) AS i FROM s) GROUP BY w, i",
    ),
    Work(
        "`STRFTIME(ts, '%d/%m/%Y %H:%M')`",
        "SELECT STRFTIME(ts, '%d/%m/%Y %H:%M') AS x FROM s",
        "SELECT strftime(ts, '%d/%m/%Y %H:%M') FROM s",
    ),
    Work("`SPLIT_PART(t, '-', 2)`", "SELECT SPLIT_PART(t, '-', 2) AS x FROM s", "SELECT split_part(t, '-', 2) FROM s"),
    Work(
        "`DATE_BIN` and `WIDTH_BUCKET`",
        "SELECT DATE_BIN(INTERVAL '7 seconds', ts) AS x, WIDTH_BUCKET(n, 0, 100, 8) AS b FROM s",
        "SELECT time_bucket(INTERVAL '7 seconds', ts, TIMESTAMP '1970-01-01'), least(greatest(n * 8 // 100 + 1, 0), 9) FROM s",
    ),
    Work(
        "`GROUP BY ROLLUP (n, k)` of windows",
        f"SELECT n, k, SUM(v) AS s FROM s {W} GROUP BY ROLLUP (n, k)",
        "SELECT n, k, SUM(v) FROM s GROUP BY GROUPING SETS ((w, n, k), (w, n), (w))",
    ),
    Work(
        "`ARG_MAX(n, v)` by key of windows",
        f"SELECT k, ARG_MAX(n, v) AS x FROM s {W} GROUP BY k",
        "SELECT k, arg_max(n, v) FROM s GROUP BY w, k",
    ),
    Work("`MODE(n)` by key of windows", f"SELECT k, MODE(n) AS x FROM s {W} GROUP BY k", "SELECT k, mode(n) FROM s GROUP BY w, k"),
    Work(
        "`STRING_AGG(t, ',' ORDER BY v)` by key of windows",
        f"SELECT k, STRING_AGG(t, ',' ORDER BY v) AS x FROM s {W} GROUP BY k",
        "SELECT k, string_agg(t, ',' ORDER BY v) FROM s GROUP BY w, k",
    ),
    Work(
        "`ROW_NUMBER() … <= 3` by key, without a window",
        "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM s) WHERE r <= 3 EMIT FINAL",
        "SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) <= 3",
    ),
    Work(
        "`AVG(v) OVER (… ROWS 99 PRECEDING)`",
        "SELECT k, AVG(v) OVER (PARTITION BY k ORDER BY ts ROWS 99 PRECEDING) AS x FROM s",
        "SELECT k, AVG(v) OVER (PARTITION BY k ORDER BY ts ROWS 99 PRECEDING) FROM s",
    ),
    Work(
        "`LEAD(v) OVER (…)`",
        "SELECT k, LEAD(v) OVER (PARTITION BY k ORDER BY ts) AS x FROM s",
        "SELECT k, LEAD(v) OVER (PARTITION BY k ORDER BY ts) FROM s",
    ),
    Work(
        "`k IN (SELECT k FROM table)`",
        "SELECT k, v FROM s WHERE k IN (SELECT k FROM known WHERE most > 0.5)",
        "SELECT k, v FROM s WHERE k IN (SELECT k FROM known WHERE most > 0.5)",
    ),
    Work(
        "`v > (SELECT most FROM table WHERE k = …)`",
        "SELECT k, v FROM s WHERE v > (SELECT most FROM known WHERE known.k = s.k)",
        "SELECT k, v FROM s WHERE v > (SELECT most FROM known WHERE known.k = s.k)",
    ),
    Work(
        "`v > (SELECT AVG(v) …)` of the same window",
        f"SELECT k, v FROM s {W} WHERE v > (SELECT AVG(v) FROM s {W})",
        "SELECT k, v FROM s JOIN (SELECT w, AVG(v) AS a FROM s GROUP BY w) USING (w) WHERE v > a",
    ),
    Work(
        "`ASOF JOIN … r.ts <= s.ts`",
        "SELECT s.k, s.v, r.v AS o FROM s ASOF JOIN r ON s.k = r.k AND r.ts <= s.ts",
        "SELECT s.k, s.v, r.v FROM s ASOF JOIN r ON s.k = r.k AND r.ts <= s.ts",
        "sr",
        4,
    ),
    Work(
        "`ASOF JOIN … r.ts >= s.ts`",
        "SELECT s.k, s.v, r.v AS o FROM s ASOF JOIN r ON s.k = r.k AND r.ts >= s.ts",
        "SELECT s.k, s.v, r.v FROM s ASOF JOIN r ON s.k = r.k AND r.ts >= s.ts",
        "sr",
        4,
    ),
    Work(
        "`UNION` of windows",
        f"SELECT k, n FROM s {W} UNION SELECT k, n FROM r {W}",
        "SELECT k, n FROM (SELECT w, k, n FROM s UNION SELECT w, k, n FROM r)",
        "sr",
    ),
    Work(
        "`INTERSECT` of windows",
        f"SELECT k, n FROM s {W} INTERSECT SELECT k, n FROM r {W}",
        "SELECT k, n FROM (SELECT w, k, n FROM s INTERSECT SELECT w, k, n FROM r)",
        "sr",
    ),
    Work(
        "`EXCEPT` of windows",
        f"SELECT k, n FROM s {W} EXCEPT SELECT k, n FROM r {W}",
        "SELECT k, n FROM (SELECT w, k, n FROM s EXCEPT SELECT w, k, n FROM r)",
        "sr",
    ),
    Work(
        "`EXCEPT ALL` of windows",
        f"SELECT k, n FROM s {W} EXCEPT ALL SELECT k, n FROM r {W}",
        "SELECT k, n FROM (SELECT w, k, n FROM s EXCEPT ALL SELECT w, k, n FROM r)",
        "sr",
    ),
    Work(
        "`EMIT EMPTY` by key with LOCF, windows of 10 ms, nine of ten empty",
        f"SELECT window_end AS e, k, COUNT(*) AS n, LOCF(SUM(v)) AS x FROM s {FINE} GROUP BY k EMIT EMPTY",
        "{gaps} SELECT make_timestamp(e), k, coalesce(c, 0), last_value(x IGNORE NULLS) OVER (PARTITION BY k ORDER BY e) FROM filled",
        part=20,
    ),
    Work(
        "the same with INTERPOLATE",
        f"SELECT window_end AS e, k, COUNT(*) AS n, INTERPOLATE(SUM(v)) AS x FROM s {FINE} GROUP BY k EMIT EMPTY",
        "{gaps} SELECT make_timestamp(e), k, coalesce(c, 0), coalesce(x, x0 + (x1 - x0) * (e - e0) / (e1 - e0)) FROM (SELECT *,"
        " last_value(x IGNORE NULLS) OVER b AS x0, last_value(CASE WHEN x IS NOT NULL THEN e END IGNORE NULLS) OVER b AS e0,"
        " first_value(x IGNORE NULLS) OVER a AS x1, first_value(CASE WHEN x IS NOT NULL THEN e END IGNORE NULLS) OVER a AS e1 FROM filled"
        " WINDOW b AS (PARTITION BY k ORDER BY e), a AS (PARTITION BY k ORDER BY e ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING))",
        part=20,
    ),
]
GAPS = (
    "WITH g AS (SELECT epoch_us(ts) // 10000 AS b, k, COUNT(*) AS c, SUM(v) AS x FROM s GROUP BY ALL),"
    " span AS (SELECT k, MIN(b) AS low FROM g GROUP BY k),"
    " every AS (SELECT UNNEST(range(low, (SELECT MAX(b) + 1 FROM g))) AS b, k FROM span),"
    " filled AS (SELECT (b + 1) * 10000 AS e, k, c, x FROM every LEFT JOIN g USING (b, k))"
)


def made(seed: int) -> dict[str, Any]:
    """Return a stream's rows, by column."""
    rng = np.random.default_rng(seed)
    n = rng.integers(0, 100, ROWS)
    return {
        "ts": pa.array(np.arange(ROWS, dtype=np.int64) * 100, pa.timestamp("us", "UTC")),
        "k": pa.array(rng.integers(0, 1_000, ROWS)),
        "v": pa.array(rng.random(ROWS)),
        "n": pa.array(n.astype(np.int32)),
        "t": pa.array([f"a-{i}-c" for i in n.tolist()]),
        "j": pa.array([f'{{"a": "x{i}", "b": [{i}, 2]}}' for i in n.tolist()]),
        "l": pa.ListArray.from_arrays(np.arange(0, 2 * ROWS + 1, 2, dtype=np.int32), rng.integers(0, 50, 2 * ROWS).astype(np.int32)),
    }


def ours(work: Work, rows: dict[str, dict[str, Any]], limits: dict[str, Any]) -> tuple[float, pa.Table]:
    """Run a query in the engine; return the processor time, in seconds, and the answer without the kinds of changes."""
    engine = SqlEngine(*(STREAM.format(name) for name in work.sources), TABLE)
    columns = {
        name: [column_from_arrow(array, type_) for array, type_ in zip(rows[name].values(), TYPES, strict=True)] for name in work.sources
    }
    keys = [column_from_arrow(limits["k"], BIGINT), column_from_arrow(limits["most"], DOUBLE)]
    engine.network.ingest("known", keys, arrival_ns=engine.clock_ns(), now_us=0)
    engine.select(work.ours)
    engine.work()
    began = time.process_time()
    for low in range(0, ROWS // work.part, TRAIN):
        high = min(low + TRAIN, ROWS // work.part)
        for name in work.sources:
            part = [column.slice(low, high) for column in columns[name]]
            engine.network.ingest(name, part, arrival_ns=engine.clock_ns(), now_us=0)
        engine.work()
    engine.end(*work.sources)
    engine.work()
    took = time.process_time() - began
    parts = [train for train in engine.results["q"] if train.rows]
    names = [f.name for f in parts[0].schema.fields] if parts else []
    whole = [pa.chunked_array([column_to_arrow(train.column(i)) for train in parts]) for i in range(len(names))]
    return took, pa.table(dict(zip(map(str, range(len(names))), whole, strict=True)))


def theirs(work: Work, rows: dict[str, dict[str, Any]], limits: dict[str, Any]) -> tuple[float, pa.Table]:
    """Run the query in DuckDB over tables that it has; return the processor time, in seconds, and the answer."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in work.sources:
            connection.register("given", pa.table(rows[name]).slice(0, ROWS // work.part))
            shown = "ts::TIMESTAMP AS ts, k, v, n, t, j::JSON AS j, l, epoch_us(ts) // 10000000 AS w"
            connection.execute(f"CREATE TABLE {name} AS SELECT {shown} FROM given")
        connection.register("given", pa.table(limits))
        connection.execute("CREATE TABLE known AS FROM given")
        began = time.process_time()
        answer = connection.sql(work.theirs.format(gaps=GAPS)).to_arrow_table()
        return time.process_time() - began, answer


def sums(answer: pa.Table) -> list[float]:
    """Return how many rows an answer has, and the sum of each column of numbers."""
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    numbers = [column for column in answer.columns if any(test(column.type) for test in is_number)]
    return [float(answer.num_rows), *(float(pc.sum(column.cast(pa.float64())).as_py() or 0) for column in numbers)]


def main() -> int:
    wanted = [work for work in WORKS if not sys.argv[1:] or any(part in work.name for part in sys.argv[1:])]
    rows, rng, wrong = {"s": made(1), "r": made(2)}, np.random.default_rng(3), 0
    limits = {"k": pa.array(np.arange(1_000)), "most": pa.array(rng.random(1_000))}
    print("| | rows | Millstream | DuckDB |\n| --- | --- | --- | --- |")
    for work in wanted:
        runs = [(ours(work, rows, limits), theirs(work, rows, limits)) for _ in range(RUNS)]
        (mine, one), (other, two) = (min((run[side] for run in runs), key=lambda run: run[0]) for side in (0, 1))
        same = len(sums(one)) == len(sums(two)) and all(map(lambda a, b: math.isclose(a, b, rel_tol=1e-6), sums(one), sums(two)))
        wrong += not same
        count = ROWS // work.part * len(work.sources)
        print(f"| {work.name} | {count:,} | {mine:.3f} | {other:.3f} |{'' if same else f' DIFFERS: {sums(one)} {sums(two)}'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
