"""What is over is let go of: rows with their last reader, and all of a query with its end.

Nothing that holds a train is part of a cycle, which would keep its columns until the collector comes.
"""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import millstream
import pyarrow as pa
import pytest
from millstream.engine.data.column import Column
from millstream.engine.data.train import Train
from millstream.engine.runtime.network import Network

CREATE = """
CREATE STREAM s (ts BIGINT, k TEXT, v INT) TIMESTAMP BY ts UNIT s DELAY 2 SECONDS LATE INTO late;
CREATE STREAM r (ts BIGINT, k TEXT, v INT) TIMESTAMP BY ts UNIT s DELAY 2 SECONDS;
CREATE TABLE t (k TEXT PRIMARY KEY, name TEXT);
"""
QUERIES = {
    "selection": "SELECT k, v * 2 AS w FROM s WHERE v > 3",
    "pane": "SELECT k, COUNT(*) AS n, MAX(k) AS m, FIRST(v) AS f FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "filtered": "SELECT k, LAST(v) FILTER (WHERE v > 3) AS f, ARG_MAX(k, v) AS a FROM s [RANGE 20 SECONDS] GROUP BY k",
    "kept values": "SELECT k, ARRAY_AGG(v) AS l, MEDIAN(v) AS m, APPROX_PERCENTILE(v, 0.5) AS p FROM s [RANGE 20 SECONDS] GROUP BY k",
    "session": "SELECT k, COUNT(*) AS n, LAST(k) AS l FROM s [SESSION 5 SECONDS] GROUP BY k",
    "rows": "SELECT k, SUM(v) AS n, FIRST(k) AS f FROM s [ROWS 7 SLIDE 3] GROUP BY k",
    "running": "SELECT k, COUNT(*) AS n, LAST(v) AS l FROM s GROUP BY k",
    "over": "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS 3 PRECEDING) AS n FROM s",
    "lag": "SELECT k, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS before FROM s",
    "join": "SELECT s.k, s.v, r.v AS w FROM s LEFT JOIN r ON s.k = r.k WITHIN 3 SECONDS",
    "table": "SELECT s.k, t.name FROM s JOIN t ON s.k = t.k",
    "union": "SELECT k, v FROM s UNION ALL SELECT k, v FROM r",
    "top": "SELECT k, COUNT(*) AS n FROM s [RANGE 20 SECONDS SLIDE 20 SECONDS] GROUP BY k ORDER BY n DESC, k LIMIT 1",
    "rank": "SELECT k, v, RANK() OVER (PARTITION BY window_end ORDER BY v) AS p FROM s [RANGE 20 SECONDS SLIDE 20 SECONDS]",
    "first rows": "SELECT * FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS p FROM s) WHERE p <= 2",
    "in the window": "SELECT k FROM s [RANGE 20 SECONDS SLIDE 20 SECONDS] WHERE v IN (SELECT v FROM r [RANGE 20 SECONDS SLIDE 20 SECONDS])",
    "in a table": "SELECT k, v FROM s WHERE k IN (SELECT k FROM t)",
    "except": "SELECT k, v FROM s [RANGE 20 SECONDS SLIDE 20 SECONDS] EXCEPT SELECT k, 3 FROM r [RANGE 20 SECONDS SLIDE 20 SECONDS]",
    "groupings": "SELECT k, v, COUNT(*) AS n FROM s [RANGE 20 SECONDS SLIDE 20 SECONDS] GROUP BY ROLLUP (k, v)",
}


def rows() -> pa.Table:
    return pa.table(
        {
            "ts": [n - 9 * (n % 7 == 3) for n in range(20_000)],
            "k": [f"key {n % 5}" for n in range(20_000)],
            "v": [n % 11 for n in range(20_000)],
        }
    )


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_no_cycle_holds_rows(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[Network] = []  # what a network that has ended still holds is none of those that are looked for
    begin = Network.__init__

    def noted(network: Network, *arguments: Any, **options: Any) -> None:
        begin(network, *arguments, **options)
        alive.append(network)

    monkeypatch.setattr(Network, "__init__", noted)
    given = {"s": rows(), "r": rows(), "t": pa.table({"k": ["key 1", "key 2"], "name": ["one", "two"]})}
    gc.collect()
    gc.disable()
    try:
        found = millstream.run(CREATE + query + ";", **given)
        assert found.rows()
        assert alive
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kept = Counter(type(one).__name__ for one in gc.garbage if isinstance(one, (Train, Column)))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not kept


def test_queries_that_have_ended_leave_nothing_behind() -> None:
    script = CREATE + "".join(f"CREATE QUERY q{n} AS {query};" for n, query in enumerate(QUERIES.values()))
    few = rows()[:100]
    given = {"s": few, "r": few, "t": pa.table({"k": ["key 1", "key 2"], "name": ["one", "two"]})}

    def alive() -> Counter[str]:
        for _ in range(2):
            millstream.run_script(script, **given)
        gc.collect()
        return Counter(type(one).__qualname__ for one in gc.get_objects() if str(type(one).__module__).startswith("millstream."))

    alive()  # what is loaded once
    settled = alive()
    assert alive() - settled == Counter()
