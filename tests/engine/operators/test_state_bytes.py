"""What operators say of their state's bytes against what is really there: the bounds on memory rest on it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from millstream.engine.operators.contract import Operator

from tests.support.engine_run import SqlEngine

ROWS = 12_000
SECOND = 1_000_000
CREATES = (
    "CREATE STREAM a (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts DELAY 1 HOUR",
    "CREATE STREAM b (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts",
    "CREATE STREAM c (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts",
    "CREATE TABLE w (k BIGINT, n TEXT, PRIMARY KEY (k))",
)
UNDERSTATED_MAX = 1.25  # times: more really held than said
SLACK_BYTES = 200 * 1024  # what does not grow with rows

QUERIES = {
    "join": "SELECT x.k, y.t FROM b AS x JOIN c AS y ON x.k = y.k AND x.v = y.v WITHIN 1 HOUR",
    "left join of texts": "SELECT x.k, y.t FROM b AS x LEFT JOIN c AS y ON x.t = y.t WITHIN 1 HOUR",
    "as-of join": "SELECT x.k, y.t FROM b AS x ASOF JOIN c AS y ON x.k = y.k",
    "table join": "SELECT b.k, w.n FROM b JOIN w ON b.k = w.k",
    "subquery of a table": "SELECT k FROM b WHERE EXISTS (SELECT 1 FROM w WHERE w.k = b.k AND n <> t)",
    "subquery of a window": "SELECT k FROM b [RANGE 1 HOUR SLIDE 1 HOUR] WHERE v IN (SELECT v FROM c [RANGE 1 HOUR SLIDE 1 HOUR])",
    "distinct": "SELECT DISTINCT t FROM b",
    "distinct in windows": "SELECT DISTINCT k, t FROM b [RANGE 1 HOUR SLIDE 1 HOUR]",
    "groups by text": "SELECT t, COUNT(*) AS n FROM b GROUP BY t",
    "groups by number": "SELECT k, SUM(v) AS n, MIN(v) AS m FROM b GROUP BY k",
    "groups at the end": "SELECT t, COUNT(*) AS n, MAX(v) AS m FROM b GROUP BY t EMIT FINAL",
    "tumbling groups": "SELECT t, SUM(v) AS n FROM b [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY t",
    "hopping groups": "SELECT k, SUM(v) AS n FROM b [RANGE 1 HOUR SLIDE 10 MINUTES] GROUP BY k",
    "collected": "SELECT k, ARRAY_AGG(v) AS n FROM b [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k",
    "collected texts": "SELECT STRING_AGG(t) AS n FROM b [RANGE 1 HOUR SLIDE 1 HOUR]",
    "medians": "SELECT k, MEDIAN(v) AS n FROM b [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k",
    "different values": "SELECT COUNT(DISTINCT t) AS n FROM b [RANGE 1 HOUR SLIDE 1 HOUR]",
    "sliding sums": "SELECT k, SUM(v) AS n FROM b [RANGE 1 HOUR] GROUP BY k EMIT EVERY 30 MINUTES",
    "sliding medians": "SELECT MEDIAN(v) AS n FROM b [RANGE 1 HOUR] EMIT EVERY 30 MINUTES",
    "sliding texts": "SELECT STRING_AGG(t) AS n FROM b [RANGE 1 HOUR] EMIT EVERY 50 MINUTES",
    "rows that wait": "SELECT k, SUM(v) AS n FROM a [RANGE 1 SECOND] GROUP BY k",
    "sessions": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM b [SESSION 1 HOUR] GROUP BY k",
    "sessions of values": "SELECT t, MEDIAN(v) AS n FROM b [SESSION 1 HOUR] GROUP BY t",
    "session rows": "SELECT k, t FROM b [SESSION 1 HOUR]",
    "changes of windows": "SELECT t, COUNT(*) AS n FROM b [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY t EMIT CHANGES",
    "ranks": "SELECT k, v FROM b [RANGE 1 HOUR SLIDE 1 HOUR] ORDER BY v LIMIT 9000",
    "lag": "SELECT v, LAG(v) OVER (PARTITION BY t) AS p FROM b",
    "aggregate of changes": "SELECT n, COUNT(*) AS m FROM (SELECT t, COUNT(*) AS n FROM b GROUP BY t) AS q GROUP BY n EMIT FINAL",
}


def filled(engine: SqlEngine) -> None:
    """Rows of some thirty minutes: every one has a key of its own, or one of ten."""
    for start in range(0, ROWS, 4_000):
        rows = [(i * 120_000, i % 6_000, float(i), f"text number {i:08d}") for i in range(start, start + 4_000)]
        for stream in "abc":
            engine.put(stream, rows)
        engine.put("w", [(i, f"name {i:08d}", "+") for i in range(start, start + 4_000)])
        engine.work()


def real_bytes(thing: Any, seen: set[int]) -> int:
    """Return the bytes of arrays and Python's own objects that hang on a state, each counted once."""
    if id(thing) in seen or isinstance(thing, type | str) or callable(thing):
        return sys.getsizeof(thing) if isinstance(thing, str) and id(thing) not in seen and not seen.add(id(thing)) else 0  # type: ignore[func-returns-value]
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        if thing.base is not None:
            return real_bytes(thing.base, seen) if isinstance(thing.base, np.ndarray) else int(thing.nbytes)
        return int(thing.nbytes) + (sum(real_bytes(v, seen) for v in thing.tolist()) if thing.dtype == object else 0)
    if isinstance(thing, pa.Array | pa.ChunkedArray):
        return sum(_buffer(b, seen) for b in thing.buffers()) if isinstance(thing, pa.Array) else int(thing.nbytes)
    size = sys.getsizeof(thing, 0)
    if isinstance(thing, dict):
        return size + sum(real_bytes(k, seen) + real_bytes(v, seen) for k, v in thing.items())
    if isinstance(thing, list | tuple | set | frozenset):
        return size + sum(real_bytes(v, seen) for v in thing)
    names = [*getattr(thing, "__dict__", {}), *(n for c in type(thing).__mro__ for n in getattr(c, "__slots__", ()))]
    return size + sum(real_bytes(getattr(thing, n), seen) for n in names if hasattr(thing, n))


def _buffer(buffer: Any, seen: set[int]) -> int:
    if buffer is None or buffer.address in seen:
        return 0
    seen.add(buffer.address)
    return int(buffer.size)


def state_of(logic: Operator) -> int:
    return real_bytes({name: getattr(logic, name) for name in logic.state_fields}, set())


@pytest.mark.parametrize("name", QUERIES)
def test_a_state_says_nearly_all_that_it_holds(name: str) -> None:
    engine = SqlEngine(*CREATES)
    engine.select(QUERIES[name])
    filled(engine)
    engine.rows("q")
    stateful = [o for o in engine.network.operators.values() if o.logic.state_fields]
    assert stateful
    for running in stateful:
        said, real = running.logic.state_bytes(), state_of(running.logic)
        assert real <= UNDERSTATED_MAX * said + SLACK_BYTES, (type(running.logic).__name__, said, real)
