"""Wherever an expression may stand, a row at which it fails is counted and told, once (K8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from millstream.protocol.values.text import json_lines
from millstream.server.run.embedded import Replay, run_replay

STREAMS = """
CREATE STREAM s (ts BIGINT, k TEXT, v INT, w INT) TIMESTAMP BY ts UNIT s ON ERROR INTO broken;
CREATE STREAM r (ts BIGINT, k TEXT, v INT, w INT) TIMESTAMP BY ts UNIT s ON ERROR INTO broken;
CREATE TABLE t (k BIGINT, z INT, PRIMARY KEY (k));
"""
S = "ts,k,v,w\n1,a,1,8\n2,a,0,2\n3,a,-1,2\n4,b,0,3\n7,b,4,4\n12,a,0,5\n"
R = "ts,k,v,w\n1,a,1,8\n2,a,1,2\n3,b,1,2\n"
TUMBLING = "[RANGE 10 SECONDS SLIDE 10 SECONDS]"
ROWS = [2, 4, 6]  # rows of s with v = 0

# query: (what the run says, positions of the failed rows; None where a result has no row of its own)
PLACES = {
    "SELECT 8 / v AS x FROM s": ("3 failed rows", ROWS),
    "SELECT v FROM s WHERE 8 / v > 1": ("3 failed rows", ROWS),
    "SELECT 8 / v AS x FROM s UNION ALL SELECT w AS x FROM r": ("3 failed rows", ROWS),
    "SELECT DISTINCT 8 / v AS x FROM s": ("3 failed rows", ROWS),
    f"SELECT 8 / v AS g, COUNT(*) AS n FROM s {TUMBLING} GROUP BY 8 / v": ("3 failed rows", ROWS),
    f"SELECT SUM(8 / v) AS n FROM s {TUMBLING}": ("3 failed rows", ROWS),
    f"SELECT COUNT(*) FILTER (WHERE 8 / v > 1) AS n FROM s {TUMBLING}": ("3 failed rows", ROWS),
    "SELECT k, SUM(8 / v) AS n FROM s [SESSION 3 SECONDS] GROUP BY k": ("3 failed rows", ROWS),
    "SELECT SUM(8 / v) AS n FROM s [PARTITION BY k ROWS 2]": ("3 failed rows", ROWS),
    "SELECT SUM(8 / v) AS n FROM s [RANGE 2 SECONDS]": ("3 failed rows", ROWS),
    "SELECT LAG(8 / v) OVER (PARTITION BY k) AS n FROM s": ("3 failed rows", ROWS),
    "SELECT s.v AS x FROM s JOIN r ON 8 / s.v = r.w WITHIN 3 SECONDS": ("3 failed rows", ROWS),
    "SELECT s.v AS x FROM s LEFT JOIN t ON 8 / s.v = t.k": ("3 failed rows", ROWS),
    "SELECT s.v AS x FROM s LEFT ASOF JOIN r ON 8 / s.v = r.w": ("3 failed rows", ROWS),
    "SELECT s.v AS x FROM s LEFT ASOF JOIN r ON s.k = r.k AND 8 / s.v > 1": ("3 failed rows", ROWS),
    "SELECT s.v AS x FROM s JOIN r ON s.k = r.k AND 8 / (s.v + r.v) > 1 WITHIN 1 SECOND": ("1 failed row", [3]),
    f"SELECT k, SUM(v) AS n FROM s {TUMBLING} GROUP BY k HAVING 8 / SUM(v) > 0": ("2 failed results", [6, None]),
    f"SELECT k, 8 / SUM(v) AS n FROM s {TUMBLING} GROUP BY k": ("2 failed results", [6, None]),
    f"SELECT k FROM s {TUMBLING} GROUP BY k ORDER BY 8 / SUM(v) LIMIT 1": ("2 failed results", [6, None]),
    f"SELECT v FROM s {TUMBLING} ORDER BY 8 / v LIMIT 1": ("3 failed results", ROWS),
    f"SELECT 8 / n AS x FROM (SELECT SUM(v) AS n FROM s {TUMBLING})": ("1 failed result", [None]),
    "SELECT k, 8 / SUM(v) AS n FROM s GROUP BY k EMIT FINAL": ("1 failed result", [None]),
}


@pytest.mark.parametrize("query", list(PLACES))
@pytest.mark.parametrize("train", [1, None])
def test_a_failure_is_counted_and_told_once(query: str, train: int | None, tmp_path: Path) -> None:
    for name, rows in (("s", S), ("r", R), ("t", "k,z\n8,1\n-8,2\n")):
        (tmp_path / f"{name}.csv").write_text(rows, "utf-8")
    script = f"{STREAMS}{query}; SELECT query, reason, position FROM broken;"
    inputs = [(name, tmp_path / f"{name}.csv") for name in ("s", "r", "t")]
    outcomes = run_replay(Replay(script, inputs=inputs, train=train))
    assert outcomes.failure is None
    said, positions = PLACES[query]
    assert outcomes.messages == [f"q1: {said}"]
    told = [json.loads(line) for batch in outcomes.results[1].batches for line in json_lines(batch).splitlines()]
    assert {(row["query"], row["reason"]) for row in told} == {("q1", "division by zero")}
    assert sorted((row["position"] for row in told), key=str) == sorted(positions, key=str)
