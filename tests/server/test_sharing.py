"""Sharing as users see it: SHOW SHARING, EXPLAIN, the switch, the periods of SLIDE WITHIN."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from millstream.engine.sharing.splicing import Periodic
from millstream.scheduler.names import SHARING_OFF, SHARINGS
from millstream.scheduler.sharing.catalog import SHARING
from millstream.server.host.sharing import late_rule, period_chooser
from millstream.server.run.embedded import Replay, ReplayOutcome, run_replay

STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s;"
QUERIES = """
CREATE QUERY two AS SELECT window_end, MAX(v) AS high FROM s [RANGE 10 SECONDS SLIDE WITHIN 2 SECONDS];
CREATE QUERY three AS SELECT window_end, MAX(v) AS high FROM s [RANGE 15 SECONDS SLIDE WITHIN 3 SECONDS];
CREATE QUERY five AS SELECT window_end, MAX(v) AS high FROM s [RANGE 30 SECONDS SLIDE WITHIN 5 SECONDS];
"""


def replayed(tmp_path: Path, script: str, sharing: str = "hybrid", rows: int = 60) -> ReplayOutcome:
    data = tmp_path / "s.csv"
    data.write_text("ts,v\n" + "".join(f"{second},{second * 7 % 31}\n" for second in range(rows)))
    outcomes = run_replay(Replay(script, inputs=(("s", data),), sharing=sharing))
    assert outcomes.failure is None
    return outcomes


def rows_of(outcomes: ReplayOutcome, name: str) -> list[dict[str, Any]]:
    (found,) = [r for r in outcomes.results if r.name == name]
    rows: list[dict[str, Any]] = [row for batch in found.batches for row in batch.to_pylist()]
    return rows


def gaps_s(outcomes: ReplayOutcome, name: str) -> set[float]:
    ends = [row["window_end"] for row in rows_of(outcomes, name)]
    return {(b - a).total_seconds() for a, b in pairwise(ends)}


def test_the_names_of_the_setting_are_the_policies_and_off() -> None:
    assert (SHARING_OFF, *SHARING) == SHARINGS


def test_hybrid_runs_slide_3_with_slide_2_and_leaves_5(tmp_path: Path) -> None:
    outcomes = replayed(tmp_path, STREAM + QUERIES)
    assert [gaps_s(outcomes, name) for name in ("two", "three", "five")] == [{2.0}, {2.0}, {5.0}]


@pytest.mark.parametrize("sharing", SHARINGS)
def test_slide_within_never_exceeds_its_bound_and_answers_are_those_of_their_windows(tmp_path: Path, sharing: str) -> None:
    outcomes = replayed(tmp_path, STREAM + QUERIES, sharing)
    for name, range_s, bound in (("two", 10, 2), ("three", 15, 3), ("five", 30, 5)):
        assert max(gaps_s(outcomes, name)) <= bound
        for row in rows_of(outcomes, name):
            end = int(row["window_end"].timestamp())
            assert row["high"] == max(t * 7 % 31 for t in range(max(0, end - range_s), min(60, end)))


def test_show_sharing_gives_each_query_its_bill_and_its_period(tmp_path: Path) -> None:
    shown = rows_of(replayed(tmp_path, STREAM + QUERIES + "SHOW SHARING;"), "SHOW SHARING;".rstrip(";"))
    assert [row["query"] for row in shown] == ["two", "three", "five"]
    assert {row["group"] for row in shown} == {shown[0]["group"]}
    assert [row["group_queries"] for row in shown] == [3, 3, 3]
    assert [row["shared"] for row in shown] == [1, 1, 1]
    assert shown[1]["why"].startswith("shortened to run with two")
    assert shown[0]["why"] == shown[2]["why"] == "as asked"


@pytest.mark.parametrize("policy", SHARINGS)
def test_only_the_late_policies_let_windows_out_and_by_the_server_s_clock(policy: str) -> None:
    rule = late_rule(policy, lambda: 5_000)
    if not policy.startswith("hybrid-late"):
        assert rule is None
        return
    assert rule is not None
    assert rule.all_due == (policy == "hybrid-late-pending")
    assert rule.age_ns(2_000) == 3_000


def test_explain_says_what_a_query_shares(tmp_path: Path) -> None:
    outcomes = replayed(tmp_path, STREAM + QUERIES + "EXPLAIN three;")
    text = "\n".join(row["explanation"] for row in rows_of(outcomes, "EXPLAIN three"))
    assert "aggregate: with five, two" in text
    assert "3 queries, panes of 1 SECOND" in text
    assert "answered every 2 SECONDS: shortened to run with two" in text


def test_with_sharing_off_no_operator_serves_two_queries(tmp_path: Path) -> None:
    shown = rows_of(replayed(tmp_path, STREAM + QUERIES + "SHOW SHARING;", SHARING_OFF), "SHOW SHARING")
    assert [row["shared"] for row in shown] == [0, 0, 0]


def test_a_derived_stream_over_a_synopsis_reaches_its_readers(tmp_path: Path) -> None:
    derived = "CREATE STREAM d AS SELECT window_end AS closed, MAX(v) AS high FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS];"
    outcomes = replayed(tmp_path, STREAM + derived + "CREATE QUERY q AS SELECT high FROM d;")
    assert [row["high"] for row in rows_of(outcomes, "q")] == [28, 29, 30, 28, 29, 30]


def test_answers_that_sort_many_values_are_not_given_more_often_than_asked() -> None:
    choose = period_chooser("hybrid")
    assert choose is not None

    def period_s(sorts: tuple[int, ...], queries: int) -> float:
        second = 1_000_000
        asked = [Periodic("two", 10 * second, 2 * second), *(Periodic(f"q{n}", 15 * second, 3 * second, sorts) for n in range(queries))]
        return choose(asked, second)["q0"].period_us / second

    assert period_s((), 20) == period_s((1_000,), 2) == 2.0
    assert period_s((1_000,), 20) == 3.0
