"""Every form of window under every EMIT, with and without an aggregate: it runs, the same for any trains, or is refused by name."""

from __future__ import annotations

import random
from typing import Any

import pytest
from millstream.engine.data.errors import EngineError

from tests.support.trains import added_up, same_for_all_trains

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts DELAY 2 MICROSECONDS"
US = "MICROSECONDS"
FORMS = {
    "tumbling": f"s [RANGE 5 {US} SLIDE 5 {US}]",
    "hopping": f"s [RANGE 6 {US} SLIDE 4 {US}]",
    "gaps": f"s [RANGE 2 {US} SLIDE 5 {US}]",
    "within": f"s [RANGE 6 {US} SLIDE WITHIN 3 {US}]",
    "zoned": "s [RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'Europe/Rome']",
    "sliding": f"s [RANGE 5 {US}]",
    "rows": "s [ROWS 3]",
    "rows slide": "s [ROWS 3 SLIDE 2]",
    "partition": "s [PARTITION BY k ROWS 2]",
    "partition slide": "s [PARTITION BY k ROWS 2 SLIDE 2]",
    "session": f"s [SESSION 3 {US}]",
    "session max": f"s [SESSION 3 {US} MAX 7 {US}]",
    "now": "s [NOW]",
    "landmark": "s [LANDMARK]",
    "unbounded": "s [UNBOUNDED]",
    "cumulate": f"CUMULATE(s, ts, 2 {US}, 6 {US})",
}
EMITS = ["EMIT FINAL", "EMIT CHANGES", f"EMIT EVERY 3 {US}", "EMIT EMPTY"]
BODIES = {
    "aggregate": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM {} GROUP BY k {}",
    "no keys": "SELECT COUNT(*) AS n, MAX(v) AS s FROM {} {}",
    "values": "SELECT k, MEDIAN(v) AS m FROM {} GROUP BY k {}",
    "rows": "SELECT k, v FROM {} {}",
    "distinct": "SELECT DISTINCT k FROM {} {}",
}
WORDS = ["ISTREAM({})", "DSTREAM({})", "RSTREAM({})", f"RSTREAM({{}} EVERY 3 {US})"]


def rows() -> list[Any]:
    dice, now, found = random.Random(3), -15, []
    for _ in range(12):
        now += dice.choice([-1, 0, 0, 1, 2, 4])
        found.append((now, dice.choice([0, 1, None]), dice.choice([0.5, -0.0, 2.0, None])))
    return found


ROWS = rows()


def ran(query: str) -> list[Any] | None:
    """The rows, or None when the query is refused with a sentence for its writer."""
    refused = ""
    try:
        return same_for_all_trains([STREAM], query, {"s": ROWS}, ((4096, 100), (3, 3)))
    except EngineError as refusal:
        refused = str(refusal)
    assert len(refused) > 20
    assert "combination" not in refused
    return None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("body", BODIES)
def test_a_window_under_any_emit_runs_or_is_refused(form: str, body: str) -> None:
    found = {emit: ran(BODIES[body].format(FORMS[form], emit).strip()) for emit in EMITS}
    final, changes = found["EMIT FINAL"], found["EMIT CHANGES"]
    if (
        final is not None
        and changes is not None
        and form in ("tumbling", "hopping", "gaps", "within", "zoned", "cumulate", "session", "session max")
    ):
        assert added_up(changes) == added_up([(*row, "+") for row in final])
    if body in ("aggregate", "no keys", "values") and form not in ("landmark", "unbounded"):
        assert final
        assert changes
        assert found[f"EMIT EVERY 3 {US}"] or form in ("rows slide", "partition slide", "session max", "session")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("word", WORDS)
def test_a_window_as_a_relation_runs_or_is_refused(form: str, word: str) -> None:
    for body in ("aggregate", "rows", "distinct"):
        inner = BODIES[body].format(FORMS[form], "").strip()
        ran(word.format(inner))
