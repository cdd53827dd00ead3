"""EXPLAIN SEMANTICS and the notes on state without a bound."""

from __future__ import annotations

import pytest
from millstream.engine.plan.explain import explain_semantics

from tests.support.plans import plan


@pytest.mark.parametrize(
    ("text", "rule", "sentence"),
    [
        (
            "SELECT COUNT(*) FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS]",
            "K1",
            "10 SECONDS long, a new one every 5 SECONDS, aligned to the epoch",
        ),
        ("SELECT COUNT(*) FROM s [RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'Europe/Rome']", "K1", "23 or 25 hours"),
        ("SELECT COUNT(*) FROM s [RANGE 1 WEEK SLIDE 1 WEEK]", "K1", "begin on Thursday; TIME ZONE 'UTC' makes them begin on Monday"),
        ("SELECT COUNT(*) FROM s [RANGE 5 SECONDS SLIDE 9 SECONDS]", "K4", "in the gap between two windows is processed, not late"),
        ("SELECT COUNT(*) FROM s [RANGE 5 SECONDS]", "K2", "(t - 5 SECONDS, t]"),
        ("SELECT COUNT(*) FROM s [ROWS 5] WHERE v > 1", "K17", "still takes its place"),
        ("SELECT COUNT(*) FROM s [SESSION 5 SECONDS]", "K5", "exactly that far away starts a new one"),
        ("SELECT s.k FROM s LEFT JOIN r ON s.k = r.k WITHIN 5 SECONDS", "K2", "differ by at most 5 SECONDS, both ends included"),
        ("SELECT s.k FROM s LEFT JOIN r ON s.k = r.k WITHIN 5 SECONDS", "K6", "a NULL key matches nothing"),
        ("SELECT s.k FROM s JOIN r ON s.k IS NOT DISTINCT FROM r.k WITHIN 5 SECONDS", "K6", "lets NULL match NULL"),
        ("SELECT s.k FROM s ASOF JOIN r ON s.k = r.k", "K18", "the right side's watermark has passed its time"),
        ("SELECT s.k FROM s ASOF JOIN r ON s.k = r.k AND r.ts > s.ts", "K18", "the right side's watermark has passed the time of the row"),
        ("SELECT s.k FROM s JOIN tab ON s.k = tab.k", "K18", "place in arrival order"),
        ("SELECT v, COUNT(*) FROM s GROUP BY v", "K7", "all NaNs are one"),
        ("SELECT k, COUNT(*) FROM s GROUP BY k", "K9", "'+' and '-'"),
        ("SELECT COUNT(*) FROM s EMIT FINAL", "K9", "answers once, at the end of the stream"),
        ("SELECT COUNT(*) FROM s [LANDMARK] EMIT EVERY 5 SECONDS", "K9", "at each 5 SECONDS of event time"),
        ("SELECT k FROM s", "K20", "in order of arrival"),
    ],
)
def test_the_rules_in_force_are_named(text: str, rule: str, sentence: str) -> None:
    lines = explain_semantics(plan(text)).splitlines()
    assert any(line.startswith(f"{rule} ") and sentence in line for line in lines)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("SELECT k, COUNT(*) FROM s GROUP BY k", "grows with the number of keys"),
        ("SELECT k, COUNT(*) FROM s [UNBOUNDED] GROUP BY k EMIT CHANGES", "grows with the number of keys"),
        ("SELECT DISTINCT k FROM s", "number of different rows"),
        ("SELECT s.k FROM s JOIN r ON s.k = r.k AND r.ts > s.ts", "grows on one side"),
        ("SELECT s.k FROM s [UNBOUNDED] JOIN r [UNBOUNDED] ON s.k = r.k", "grows with both streams"),
    ],
)
def test_state_without_a_bound_is_noted(text: str, note: str) -> None:
    planned = plan(text)
    assert any(note in n for n in planned.notes)
    assert planned.notes == planned.physical.notes


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM s",
        "SELECT k, COUNT(*) FROM s [UNBOUNDED STATE 10 ROWS] GROUP BY k EMIT CHANGES",
        "SELECT s.k FROM s JOIN r ON s.k = r.k WITHIN 1 SECOND",
        "SELECT DISTINCT k FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS]",
    ],
)
def test_bounded_state_is_not_noted(text: str) -> None:
    assert plan(text).notes == ()
