"""Random queries over random streams: the answers are those of a second reading of the rules, whatever the train, policy and workers.

A few examples in `make test`; `make soak` goes on for SOAK_SECONDS with other seeds.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from millstream.server.embedded import Outcomes, Replay, run_replay

from tests.property import reference
from tests.property.reference import AGGREGATES, Answers, Grouped, Row

DEFINITIONS = """
CREATE STREAM s (ts BIGINT, n INT, k TEXT, i INT, d DOUBLE) TIMESTAMP BY ts UNIT s DELAY {delay} SECONDS;
CREATE STREAM a (ts BIGINT, n INT, k TEXT, i INT, d DOUBLE) TIMESTAMP BY ts UNIT s DELAY {delay} SECONDS;
CREATE STREAM b (ts BIGINT, n INT, k TEXT, i INT, d DOUBLE) TIMESTAMP BY ts UNIT s DELAY {delay} SECONDS;
"""
WAYS = [(1, 1, "round-robin"), (7, 3, "chain"), (4096, 1, "hnr")]  # rows of a train, orders at a time, policy
CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "": lambda row: True,
    " WHERE i > 0": lambda row: row["i"] is not None and row["i"] > 0,
    " WHERE k IS NULL OR k <> 'a'": lambda row: row["k"] is None or row["k"] != "a",
    " WHERE d IS DISTINCT FROM 1.5e0": lambda row: row["d"] != 1.5,
}
NUMBERS = [None, 0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), 1e300]
WHOLE = [None, 0, 1, -1, 5, 2147483647, -2147483648]


def rows_of(choice: random.Random, count: int) -> list[Row]:
    """Rows that drift forward, with disorder within and beyond the delay, ties, times before 1970 and awkward values."""
    now, rows = choice.choice([-30, 0, 1_000]), []
    for n in range(count):
        now += choice.choice([0, 0, 1, 1, 2, 3, -1, -2, -6, 9])
        rows.append({"ts": now, "n": n, "k": choice.choice(["a", "b", "", None]), "i": choice.choice(WHOLE), "d": choice.choice(NUMBERS)})
    return rows


def timeline(arrivals: Sequence[tuple[str, Row]]) -> str:
    shown = [{"stream": stream, "row": {k: reference.plain(v) for k, v in row.items()}} for stream, row in arrivals]
    return "".join(json.dumps(line) + "\n" for line in shown)


def run(script: str, arrivals: Sequence[tuple[str, Row]], way: tuple[int, int, str]) -> Outcomes:
    train, workers, policy = way
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arrivals.jsonl"
        path.write_text(timeline(arrivals), "utf-8")
        outcomes = run_replay(Replay(script, "random.sql", (), path, policy, workers, train))
    assert outcomes.failure is None, (outcomes.failure, script)
    return outcomes


def rows_shown(outcomes: Outcomes, name: str) -> list[list[Any]]:
    """Return the rows of one result as values of JSON, times in whole seconds."""
    (result,) = [r for r in outcomes.results if r.name == name]
    return [[_shown(v) for v in row.values()] for batch in result.batches for row in batch.to_pylist()]


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(v) for v in value]
    if hasattr(value, "timestamp"):
        return int(value.timestamp())
    return reference.plain(value)


def late_of(outcomes: Outcomes, name: str) -> int:
    words = [m.split(": ", 1)[1].split(", ") for m in outcomes.messages if m.startswith(f"{name}: ")]
    return sum(int(w.split()[0]) for part in words for w in part if w.endswith(" late") and "partly" not in w)


def grouped(choice: random.Random) -> tuple[Grouped, str, list[str]]:
    keys = choice.choice([(), ("k",), ("d",), ("k", "d")])
    aggregates = tuple(choice.sample(sorted(AGGREGATES), choice.randint(1, 4)))
    where = choice.choice(sorted(CONDITIONS))
    return Grouped(keys, aggregates, CONDITIONS[where]), where, [*keys, *(f"{a} AS x{i}" for i, a in enumerate(aggregates))]


def windowed(choice: random.Random, rows: Sequence[Row], delay: int) -> tuple[str, Answers]:
    """Return a query over a random window and what it must answer."""
    query, where, columns = grouped(choice)
    size, slide = choice.randint(1, 12), choice.randint(1, 12)
    kind = choice.choice(["hopping", "sliding", "rows", "session"])
    window, expected = {
        "hopping": lambda: (f"RANGE {size} SECONDS SLIDE {slide} SECONDS", reference.hopping(rows, query, size, slide, delay)),
        "sliding": lambda: (f"RANGE {size} SECONDS", reference.sliding(rows, query, size, delay)),
        "rows": lambda: (f"ROWS {size}", reference.counted(rows, query, size, delay)),
        "session": lambda: (f"SESSION {size} SECONDS", reference.sessions(rows, query, size, delay)),
    }[kind]()
    bounds = ["window_start", "window_end"] if kind in ("hopping", "session") else []
    group = f" GROUP BY {', '.join(query.keys)}" if query.keys else ""
    return f"SELECT {', '.join([*bounds, *columns])} FROM s [{window}]{where}{group}", expected


def check_windows(seed: int) -> None:
    """EMIT FINAL is the reference's answer in every way of running; the changes of EMIT CHANGES add up to it."""
    choice = random.Random(seed)
    delay = choice.choice([0, 2, 5])
    rows = rows_of(choice, choice.randint(0, 40))
    text, expected = windowed(choice, rows, delay)
    hops = "SLIDE" in text or "SESSION" in text
    script = DEFINITIONS.format(delay=delay) + f"{text};\n{text} EMIT CHANGES;\n"
    for way in WAYS:
        outcomes = run(script, [("s", row) for row in rows], way)
        found = rows_shown(outcomes, "q1")
        assert found == expected.rows, (seed, way, text, delay)
        assert late_of(outcomes, "q1") <= len(rows)
        if " WHERE" not in text:  # before a window of times WHERE may come first, and what it drops is late for nobody
            assert late_of(outcomes, "q1") == expected.late, (seed, way, text, delay)
        if hops:
            total: Counter[str] = Counter()
            for *values, kind in rows_shown(outcomes, "q2"):
                total[json.dumps(values)] += 1 if kind == "+" else -1
            assert +total == Counter(json.dumps(r) for r in found), (seed, way, text)
            assert not -total, (seed, way, text)


def check_joins(seed: int) -> None:
    """A join is the reference's, the same with its sides swapped, and its outer form only adds rows without a partner."""
    choice = random.Random(seed)
    delay, within = choice.choice([0, 3]), choice.randint(0, 6)
    rows = rows_of(choice, choice.randint(0, 30))
    arrivals = [(choice.choice("ab"), row) for row in rows]
    join = f"ON a.k = b.k WITHIN {within} SECONDS"
    script = DEFINITIONS.format(delay=delay) + (
        f"SELECT a.n AS x, b.n AS y FROM a JOIN b {join}; SELECT a.n AS x, b.n AS y FROM b JOIN a {join};"
        f"SELECT a.n AS x, b.n AS y FROM a LEFT JOIN b {join}; SELECT a.n AS x, b.n AS y FROM b RIGHT JOIN a {join};"
        f"SELECT a.n AS x, b.n AS y FROM a, b WHERE a.k = b.k AND b.ts BETWEEN a.ts - {within} AND a.ts + {within};"
    )
    inner = reference.join(arrivals, within, delay, outer=False)
    outer = reference.join(arrivals, within, delay, outer=True)
    for way in WAYS:
        outcomes = run(script, arrivals, way)
        for name in ("q1", "q2", "q5"):
            assert rows_shown(outcomes, name) == inner.rows, (seed, way, name)
        for name in ("q3", "q4"):
            assert sorted(rows_shown(outcomes, name), key=str) == sorted(outer.rows, key=str), (seed, way, name)


def check_selections(seed: int) -> None:
    """A stream parted by a condition and put together again is the stream; the last state of a change log is EMIT FINAL."""
    choice = random.Random(seed)
    rows = rows_of(choice, choice.randint(0, 30))
    query, where, columns = grouped(choice)
    group = f" GROUP BY {', '.join(query.keys)}" if query.keys else ""
    text = f"SELECT {', '.join(columns)} FROM s{where}{group}"
    parts = " UNION ALL ".join(f"SELECT n, i FROM s WHERE {c}" for c in ("i > 0", "NOT i > 0", "(i > 0) IS NULL"))
    script = DEFINITIONS.format(delay=2) + f"{parts}; SELECT n, i FROM s; {text} EMIT FINAL; {text};"
    kept = [r for r in rows if query.where(r)]
    for way in WAYS:
        outcomes = run(script, [("s", row) for row in rows], way)
        assert rows_shown(outcomes, "q1") == rows_shown(outcomes, "q2") == [[r["n"], r["i"]] for r in rows], (seed, way)
        if not any(a.startswith(("FIRST", "LAST", "ARRAY")) for a in query.aggregates):  # their order is tested with windows
            assert rows_shown(outcomes, "q3") == query.answer(kept), (seed, way, text)
        total: Counter[str] = Counter()
        for *values, kind in rows_shown(outcomes, "q4"):
            total[json.dumps(values)] += 1 if kind == "+" else -1
        assert +total == Counter(json.dumps(r) for r in rows_shown(outcomes, "q3")), (seed, way, text)


CHECKS = [check_windows, check_joins, check_selections]


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("turn", range(8))
def test_a_random_query_is_answered_by_the_rules(check: Callable[[int], None], turn: int, seed: int) -> None:
    check(seed + turn)


@pytest.mark.soak
@pytest.mark.timeout(float(os.environ.get("SOAK_SECONDS", "600")) + 300)
def test_many_random_queries_are_answered_by_the_rules(seed: int) -> None:
    until = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "600"))
    turn = 0
    while time.monotonic() < until:
        turn += 1
        CHECKS[turn % len(CHECKS)](seed + 1_000 * turn)
