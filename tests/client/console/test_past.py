"""The figures of looks: rates, latencies between two looks, rings of fifteen minutes, events."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from millstream.client.console.past import EVENTS_MAX, MEASURED, OBJECTS_MAX, SAMPLES_MAX, SHOWN, Past, latency_since, streams_read
from millstream.client.top.model import Look

BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def look(second: int, **tables: list[dict[str, Any]]) -> Look:
    return Look(float(second), BEGAN + dt.timedelta(seconds=second), tables)


def query(name: str, accepted: int = 0, results: int = 0, latency_ms: float | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "state": "running", "accepted": accepted, "results": results, "latency_ms": latency_ms, "shed": 0, **more}


def told(past: Past) -> list[str]:
    return [event["text"] for event in past.events]


def test_rates_and_latencies_are_those_since_the_look_before() -> None:
    past = Past()
    past.take(look(0, QUERIES=[query("q", 100, 10, 5.0)], STREAMS=[{"name": "s", "accepted": 100}]))
    past.take(look(2, QUERIES=[query("q", 300, 30, 7.0)], STREAMS=[{"name": "s", "accepted": 500}]))
    (row,) = past.now["queries"]
    assert (row["rows_per_s"], row["results_per_s"], row["latency_now_ms"]) == (100.0, 10.0, 8.0)
    assert (past.totals["rows_per_s"], past.totals["latency_now_ms"]) == (200.0, 8.0)
    assert past.of("queries", "q")["measures"]["latency_now_ms"] == [None, 8.0]
    assert past.of("queries", "never there") == {"times": past.of("all", "")["times"], "measures": {}}
    names = SHOWN["queries"]
    assert dict(zip(names, past.state()["tables"]["queries"][0], strict=True))["latency_now_ms"] == 8.0


@given(st.lists(st.lists(st.floats(0, 1e6), max_size=20), min_size=1, max_size=6))
def test_the_latency_between_two_looks_is_the_mean_of_the_results_between_them(batches: list[list[float]]) -> None:
    """The server tells the mean of all results so far; what came since the look before follows from two of them."""
    everything: list[float] = []
    before: dict[str, Any] = {"results": 0, "latency_ms": None}
    for batch in batches:
        everything += batch
        now = {"results": len(everything), "latency_ms": sum(everything) / len(everything) if everything else None}
        found = latency_since(now, before)
        if batch:
            assert found is not None
            assert abs(found - sum(batch) / len(batch)) <= 1e-6 * (1 + sum(everything))
        else:
            assert found is None
        before = now


def test_a_count_that_began_anew_gives_no_rate() -> None:
    past = Past()
    past.take(look(0, QUERIES=[query("q", 100, 10, 5.0)]))
    past.take(look(1, QUERIES=[query("q", 5, 1, 3.0)]))
    assert (past.now["queries"][0]["rows_per_s"], past.now["queries"][0]["latency_now_ms"]) == (None, None)


def test_the_past_is_a_ring_and_forgets_what_is_gone() -> None:
    past = Past()
    for second in range(SAMPLES_MAX + 10):
        past.take(look(second, QUERIES=[query("stays", second)] + ([query("goes", second)] if second < 5 else [])))
    kept = past.of("queries", "stays")
    assert len(kept["times"]) == len(kept["measures"]["rows_per_s"]) == SAMPLES_MAX
    assert kept["times"] == sorted(kept["times"])
    assert kept["measures"]["rows_per_s"] == [1.0] * SAMPLES_MAX
    for second in range(SAMPLES_MAX + 10, 2 * SAMPLES_MAX + 10):
        past.take(look(second))
    assert past.of("queries", "goes")["measures"] == {}
    assert past.sparks() == {}


def test_events_say_what_lies_between_two_looks() -> None:
    past = Past()
    in_use = {"name": "hnr", "in_use": True, "options": ""}
    gold = {"name": "gold", "target": 5_000, "results": 0, "latency_ms": None}
    past.take(look(0, QUERIES=[query("old"), query("q")], CLASSES=[gold], POLICIES=[{**in_use, "name": "fcfs"}]))
    assert told(past) == []
    decision = {"number": 1, "time": 1_000, "query": "q", "action": "raise weight", "reason": "late"}
    changed = [query("q", state="paused"), query("new")]
    past.take(look(1, QUERIES=changed, CLASSES=[{**gold, "results": 2, "latency_ms": 9.0}], POLICIES=[in_use], DECISIONS=[decision]))
    assert sorted(told(past)) == [
        "class gold misses its target of 5 ms",
        "optimiser, for q: raise weight (late)",
        "query new came",
        "query old is gone",
        "query q is paused",
        "the policy is hnr, before it was fcfs",
    ]
    past.take(look(2, QUERIES=changed, CLASSES=[{**gold, "results": 20, "latency_ms": 1.0}], POLICIES=[in_use], DECISIONS=[decision]))
    assert told(past)[6:] == ["class gold meets its target of 5 ms"]
    assert past.now["classes"][0]["verdict_since"] == look(2).now.timestamp() * 1_000
    past.lost(0.0, "gone")
    assert told(past)[7:] == ["the server does not answer: gone"]
    assert [event["number"] for event in past.events_after(6)] == [7, 8]


def test_what_is_kept_is_bounded() -> None:
    past = Past()
    for second in range(2):
        past.take(look(second, QUERIES=[query(f"{second}-{number}") for number in range(OBJECTS_MAX + 50)]))
    assert len(past.events) == EVENTS_MAX
    assert len(past._seen) == OBJECTS_MAX
    assert len(past._rings) <= OBJECTS_MAX * max(map(len, MEASURED.values()))
    json.dumps(past.state(), allow_nan=False)


def test_the_streams_of_a_query_are_told_over_operators_and_derived_streams() -> None:
    def operator(number: int, streams: list[str], operators: list[int], *serves: str) -> dict[str, Any]:
        return {"operator": number, "reads_streams": streams, "reads_operators": operators, "serves": list(serves)}

    rows = [
        operator(3, [], [1, 2, 99], "joined"),
        operator(1, ["b"], [], "joined", "plain"),
        operator(2, ["a"], [], "derived"),
        operator(4, [], [2], "d"),
    ]
    read = {"joined": {"a", "b"}, "plain": {"b"}, "derived": {"a"}, "d": {"a"}}
    assert streams_read(rows) == read
    past = Past()
    assert past.lacks_streams()
    past.take(look(0, QUERIES=[query("joined"), query("d")], OPERATORS=rows))
    assert [row["streams"] for row in past.now["queries"]] == ["a, b", "a"]
    assert not past.lacks_streams()
    past.take(look(1, QUERIES=[query("joined"), query("d", state="stopped")], OPERATORS=rows[:3]))
    assert [row["streams"] for row in past.now["queries"]] == ["a, b", "a"]
    past.take(look(2, QUERIES=[query("joined"), query("d", state="stopped"), query("new")]))
    assert [row["streams"] for row in past.now["queries"]] == ["a, b", "a", None]
    assert past.lacks_streams()
