"""A result's latency counts from the arrival of the item that caused it, through every operator and however trains are cut.

The item is the one whose arrival number the result carries, which K15 holds fixed. So no result looks older than the oldest row it depends
on, and none younger than the row, tick or mark that let it go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.train import Train

from tests.property.test_coming_and_going import Author, Played, Way
from tests.support.engine_run import SECOND, SqlEngine

CREATES = (
    "CREATE STREAM a (ts TIMESTAMP, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts",
    "CREATE STREAM b (ts TIMESTAMP, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts",
)


@dataclass(frozen=True)
class Witnessed(Way):
    """A way that notes when each arrival number came in from outside."""

    arrived: dict[int, int] = field(default_factory=dict)

    def engine(self, create: list[str]) -> SqlEngine:
        engine = super().engine(create)
        ingress = engine.network.ingress
        for name in ("push", "control"):
            setattr(ingress, name, self._noted(getattr(ingress, name)))
        return engine

    def _noted(self, enter: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, arrival_ns: int, **more: Any) -> Any:
            entered = enter(*given, arrival_ns=arrival_ns, **more)
            self.arrived.update(dict.fromkeys(range(entered.lo, entered.hi), arrival_ns))
            return entered

        return noted


def arrivals(trains: list[Train]) -> list[tuple[int, int]]:
    """Return the arrival number and the arrival time that each result carries."""
    return [pair for t in trains for pair in zip(t.seq.array().tolist(), t.arrival.at(t.seq.array()).tolist(), strict=True)]


def check(seed: int, way: Witnessed) -> None:
    history = Author(seed).write()
    played = Played(history, way)
    emitted = Counter[int]()
    for receipt in played.engine.receipts:
        for emission in receipt.emissions:
            emitted.update(dict(zip(emission.arrivals_ns, emission.counts, strict=True)))
    for name, trains in played.engine.results.items():
        for number, arrived_ns in arrivals(trains):
            assert arrived_ns == way.arrived[number], (name, history.texts()[name], number)
    assert emitted <= Counter(at for trains in played.engine.results.values() for _, at in arrivals(trains))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6))
def test_every_result_carries_the_arrival_of_the_item_that_caused_it(seed: int) -> None:
    check(seed, Witnessed())
    check(seed, Witnessed(seed, sharing=True, train=3))
    check(seed, Witnessed(seed, sharing=True, fuse=False, train=2))


@pytest.mark.parametrize(
    ("text", "rows", "caused_by"),
    [
        # The left row waits until the right side has passed its time: the row that arrived in fourth place, not the start of the clock.
        ("SELECT x.v AS v, y.v AS o FROM a AS x ASOF JOIN b AS y ON x.k = y.k", [("b", 1), ("a", 2), ("b", 2), ("b", 3)], [3]),
        ("SELECT x.v AS v, y.v AS o FROM a AS x JOIN b AS y ON x.k = y.k WITHIN 1 SECOND", [("b", 1), ("a", 2), ("a", 9)], [1]),
        ("SELECT x.v AS v, y.v AS o FROM a AS x LEFT JOIN b AS y ON x.k = y.k WITHIN 1 SECOND", [("a", 2), ("b", 9), ("a", 9)], [2, 2]),
        # WHERE drops the row that closes the window; it is the cause all the same.
        ("SELECT window_end, COUNT(*) AS n FROM a [RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE v < 5", [("a", 1), ("a", 7), ("a", 8)], [1]),
        ("SELECT v FROM a WHERE v > 1 UNION ALL SELECT v FROM b", [("a", 1), ("b", 2), ("a", 3)], [1, 2]),
    ],
)
def test_which_row_causes_a_result(text: str, rows: list[tuple[str, int]], caused_by: list[int]) -> None:
    for work_each in (True, False):
        engine = SqlEngine(*CREATES)
        engine.select(text)
        came: list[int] = []
        for stream, at in rows:
            engine.put(stream, [(at * SECOND, 1, at, 0.5)])
            came.append(engine._now)
            if work_each:
                engine.work()
        engine.work()
        assert [at for _, at in arrivals(engine.results["q"])] == [came[place] for place in caused_by]
