"""Columns that no query looks at are not read of a CSV file: no answer, count or message shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from millstream.protocol.values.text import json_lines
from millstream.server.benchmarks.embedding import Embedded
from millstream.server.host.inputs import unread_columns
from millstream.server.run.embedded import Replay, run_replay

STREAM = "CREATE STREAM s (ts BIGINT, k TEXT, v INT, x TEXT, y TEXT) TIMESTAMP BY ts UNIT s{}"
ROWS = [(1, "a", 1, "p", "5"), (2, "b", 2, "q", "z"), (3, "a", 3, "p", None), (14, None, 4, "r", "7")]
QUERIES = {
    "SELECT ts, v FROM s": "k x y",
    "SELECT * FROM s": "",
    "SELECT v FROM s WHERE x = 'p'": "k y",
    "SELECT v, UPPER(k) AS u FROM s WHERE v > 1": "x y",
    "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k": "x y",
    "SELECT v FROM (SELECT v, CAST(y AS INT) AS n FROM s) WHERE n > 0": "k x",
    "SELECT k, LAST(x) AS x FROM s GROUP BY k": "y",
    "SELECT a.v FROM s a JOIN s b ON a.x = b.x WITHIN 5 SECONDS": "k y",
    "SELECT v FROM s WHERE v > 2 UNION ALL SELECT ts AS v FROM s WHERE y = '5'": "k x",
}


def answers(script: str, path: Path) -> list[str]:
    outcomes = run_replay(Replay(script, inputs=[("s", path)]))
    assert outcomes.failure is None
    return [*(str(json_lines(batch)) for result in outcomes.results for batch in result.batches), *outcomes.messages]


@pytest.mark.parametrize("query", list(QUERIES))
def test_answers_and_failures_are_those_over_whole_rows(query: str, tmp_path: Path) -> None:
    names = ["ts", "k", "v", "x", "y"]
    (tmp_path / "s.csv").write_text("\n".join([",".join(names), *(",".join(str(f or "") for f in row) for row in ROWS)]), "utf-8")
    (tmp_path / "s.jsonl").write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in ROWS), "utf-8")
    script = f"{STREAM.format('')}; {query};"
    found = answers(script, tmp_path / "s.csv")
    assert found == answers(script, tmp_path / "s.jsonl")
    assert len(found) > 0


@pytest.mark.parametrize("query", list(QUERIES))
def test_a_column_is_read_that_any_expression_uses(query: str) -> None:
    engine = Embedded(STREAM.format(""), query, rewrite=True)
    unread = unread_columns(engine.host, engine.host.intake("s"))
    assert [name for name in unread if name not in ("ts", "v")] == QUERIES[query].split()


@pytest.mark.parametrize(
    ("between", "query", "unread"),
    [
        ("CREATE STREAM d AS SELECT ts, k, v FROM s WHERE x <> 'q'", "SELECT ts, v FROM d", ["y"]),
        ("CREATE STREAM d AS SELECT ts, v FROM s; CREATE STREAM e AS SELECT ts, y FROM s", "SELECT ts FROM d", ["k", "x"]),
        ("CREATE STREAM d (ts BIGINT, k TEXT) TIMESTAMP BY ts UNIT s; INSERT INTO d SELECT ts, k FROM s", "SELECT * FROM d", ["x", "y"]),
        ("CREATE MATERIALIZED VIEW d AS SELECT k, COUNT(*) AS n FROM s GROUP BY k", "SELECT * FROM d", ["x", "y"]),
    ],
)
def test_what_a_stream_or_view_between_shows_is_read(between: str, query: str, unread: list[str]) -> None:
    engine = Embedded(STREAM.format(""), *between.split("; "), query, rewrite=True)
    found = unread_columns(engine.host, engine.host.intake("s"))
    assert [name for name in found if name not in ("ts", "v")] == unread


def test_what_several_queries_or_an_error_output_show_is_read() -> None:
    engine = Embedded(STREAM.format(""), "SELECT ts, v, k FROM s", "SELECT y FROM s")
    assert unread_columns(engine.host, engine.host.intake("s")) == ["x"]
    engine = Embedded(STREAM.format(" ON ERROR INTO bad"), "SELECT v FROM s")
    assert unread_columns(engine.host, engine.host.intake("s")) == []
