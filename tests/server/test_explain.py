"""What EXPLAIN says beyond the plan: how each source's time comes about, and what a query shares."""

from __future__ import annotations

from millstream.scheduler.names import SHARING_DEFAULT, SHARING_OFF
from millstream.server.run.embedded import Replay, run_replay

SCRIPT = """
CREATE STREAM s (ts BIGINT, n INT, k TEXT) TIMESTAMP BY ts UNIT s DELAY 5 SECONDS IDLE 3 SECONDS FLUSH;
CREATE STREAM c (n INT);
CREATE STREAM d AS SELECT ts, n FROM s;
CREATE QUERY first AS SELECT k, SUM(n) AS x FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k;
CREATE QUERY second AS SELECT k, SUM(n) AS x FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k;
"""


def explained(text: str, *, sharing: bool = True) -> list[str]:
    outcomes = run_replay(Replay(SCRIPT + text, sharing=SHARING_DEFAULT if sharing else SHARING_OFF))
    assert outcomes.failure is None
    return [row["explanation"] for batch in outcomes.results[-1].batches for row in batch.to_pylist()]


def section(lines: list[str], name: str) -> list[str]:
    start = lines.index(name) + 1
    return [line.strip() for line in lines[start:] if line.startswith("  ")][
        : next((i for i, x in enumerate(lines[start:]) if x[0] != " "), 99)
    ]


def test_explain_shows_how_the_time_of_each_source_comes_about_also_in_silence() -> None:
    (line,) = section(explained("EXPLAIN first"), "Sources")
    assert line.startswith("s: TIMESTAMP BY ts UNIT s DELAY 5 SECONDS IDLE 3 SECONDS FLUSH")
    assert line.endswith("without new rows, windows close when the stream is idle")
    line, clock = section(explained("EXPLAIN SELECT n FROM c"), "Sources")
    assert line.endswith("without new rows, windows close by the clock")
    assert "arrival time never runs back" in clock
    assert f"  {clock}" in explained("EXPLAIN SEMANTICS SELECT n FROM c")
    (line,) = section(explained("EXPLAIN SEMANTICS SELECT n FROM d"), "Sources")
    assert line.startswith("s: ")


def test_explain_names_the_queries_that_an_operator_serves_too() -> None:
    assert "aggregate: with second" in section(explained("EXPLAIN first"), "Sharing")
    assert section(explained("EXPLAIN SELECT n FROM c"), "Sharing") == ["nothing"]


def test_explain_of_a_query_that_does_not_run_names_those_that_have_its_operators() -> None:
    text = "EXPLAIN SELECT k, SUM(n) AS x FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"
    assert section(explained(text), "Sharing") == ["aggregate: as in first, second"]
    assert section(explained(text, sharing=False), "Sharing") == ["nothing"]
