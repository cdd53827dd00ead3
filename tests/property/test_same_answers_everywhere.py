"""The promise of the spine: DuckDB, virtual time at any train size under any policy, and the live server over TCP give the same answer.

Virtual and live answers are compared byte by byte (as JSON lines); DuckDB's, which has no order of its own, as sorted rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from millstream.protocol.values.text import json_lines
from millstream.scheduler import catalog
from millstream.server.run.embedded import Replay, run_replay
from pyarrow import parquet

from tests.support.live_server import Harness, run

STREAMS = ("a", "b")
CREATE = "CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, x BIGINT, v DOUBLE) TIMESTAMP BY ts"

# name: (Millstream's query, DuckDB's query over tables a and b, where us is the event time in microseconds)
QUERIES = {
    "select": ("SELECT k, x FROM a WHERE x > 3 AND v < 0.8e0", "SELECT k, x FROM a WHERE x > 3 AND v < 0.8"),
    "project": ("SELECT k + 1 AS k1, v * 2e0 AS w, x % 3 AS r FROM a", "SELECT k + 1, v * 2, x % 3 FROM a"),
    "union": ("SELECT k, v FROM a UNION ALL SELECT k, v FROM b", "SELECT k, v FROM a UNION ALL SELECT k, v FROM b"),
    "tumbling": (
        "SELECT k, COUNT(*) AS n, COUNT(v) AS nv, SUM(x) AS s, MIN(v) AS lo, MAX(x) AS hi, window_start "
        "FROM a [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k",
        "SELECT k, count(*), count(v), sum(x), min(v), max(x), pane(us, 5000000) AS w FROM a GROUP BY k, w",
    ),
    "hopping": (
        "SELECT COUNT(*) AS n, SUM(x) AS s, MAX(v) AS hi, window_end FROM a [RANGE 6 SECONDS SLIDE 4 SECONDS]",
        "SELECT count(*), sum(x), max(v), pane(us, 4000000) - back * 4000000 + 6000000 AS e FROM a, range(2) AS r(back) "
        "WHERE us < pane(us, 4000000) - back * 4000000 + 6000000 GROUP BY e",
    ),
    "join": (
        "SELECT l.k, l.x AS lx, r.x AS rx FROM a AS l JOIN b AS r ON l.k = r.k WITHIN 2 SECONDS",
        "SELECT l.k, l.x, r.x FROM a l JOIN b r ON l.k = r.k AND abs(l.us - r.us) <= 2000000",
    ),
}
SPLIT_PLAN = {
    "version": 1,
    "name": "split",
    "root": {
        "op": "project",
        "columns": [["k", "k"], ["x", "x"]],
        "input": {"op": "split", "condition": "x > 4", "keep": False, "input": {"op": "source", "stream": "a"}},
    },
}
SPLIT_TRUTH = "SELECT k, x FROM a WHERE (x > 4) IS NOT TRUE"


def table(rng: np.random.Generator, rows: int) -> Any:
    """Rows in event-time order with repeated instants, NULLs and repeated keys; values that every system adds up alike."""
    times = np.sort(rng.integers(-8_000_000, 30_000_000, rows)) // 250_000 * 250_000
    missing = rng.random(rows) < 0.1
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array(rng.integers(0, 4, rows), mask=rng.random(rows) < 0.05),
            "x": pa.array(rng.integers(-5, 10, rows), mask=rng.random(rows) < 0.1),
            "v": pa.array(rng.integers(0, 64, rows) / 64.0, mask=missing),
        }
    )


def truth(tables: dict[str, Any], sql: str) -> list[list[Any]]:
    with duckdb.connect() as connection:
        # Its own // truncates towards zero, which is wrong before 1970.
        connection.execute("CREATE MACRO pane(us, width) AS us - ((us % width) + width) % width")
        for name in STREAMS:
            connection.register(f"{name}_rows", tables[name])
            connection.execute(f"CREATE VIEW {name} AS SELECT *, epoch_us(ts) AS us FROM {name}_rows")
        return sorted(([plain(v) for v in row] for row in connection.execute(sql).fetchall()), key=repr)


def plain(value: Any) -> Any:
    """Bring values of both sides to one form: numbers as floats or ints, DECIMAL(38, 0) and instants as ints."""
    if isinstance(value, str):
        return int(value) if value.lstrip("-").isdigit() else int(np.datetime64(value.removesuffix("Z"), "us").astype(np.int64))
    return value


def virtual(folder: Path, query: str, train: int, policy: str) -> list[str]:
    script = ";\n".join([*(CREATE.format(name=name) for name in STREAMS), query])
    inputs = [(name, folder / f"{name}.parquet") for name in STREAMS]
    outcomes = run_replay(Replay(script, inputs=inputs, train=train, policy=policy))
    assert outcomes.failure is None, outcomes.failure
    return [line for result in outcomes.results for batch in result.batches for line in json_lines(batch).splitlines()]


async def live(harness: Harness, tables: dict[str, Any], query: Any, train: int) -> list[str]:
    client = await harness.client()
    for name in STREAMS:
        await client.execute(CREATE.format(name=name))
    submitted = await client.submit(query, name="q")
    subscription = await client.subscribe(submitted.name)
    for name, start, stop in merged(tables, train):
        await client.publish(name, tables[name].slice(start, stop - start))
    for name in STREAMS:
        await client.finish(name)
    lines = []
    async for batch in subscription:
        lines += json_lines(batch).splitlines()
    return lines


def merged(tables: dict[str, Any], train: int) -> list[tuple[str, int, int]]:
    """The arrival order of `run`: merged by event time, ties by the order of the inputs; runs cut to `train` rows."""
    order = sorted((t.as_py(), s, i) for s, name in enumerate(STREAMS) for i, t in enumerate(tables[name].column("ts")))
    runs: list[tuple[str, int, int]] = []
    for _, source, row in order:
        name = STREAMS[source]
        if runs and runs[-1][0] == name and runs[-1][2] == row and row - runs[-1][1] < train:
            runs[-1] = (name, runs[-1][1], row + 1)
        else:
            runs.append((name, row, row + 1))
    return runs


def policies() -> list[str]:
    return [name for name in catalog.CATALOG if name != "user"]


@pytest.fixture(params=[1, 2])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    rng = np.random.default_rng(request.param)
    found = {name: table(rng, 120) for name in STREAMS}
    for name, rows in found.items():
        parquet.write_table(rows, tmp_path / f"{name}.parquet")
    return {**found, "seed": request.param}


@pytest.mark.parametrize("name", QUERIES)
def test_virtual_live_and_duckdb_agree(name: str, tables: dict[str, Any], tmp_path: Path) -> None:
    query, sql = QUERIES[name]
    expected = virtual(tmp_path, query, 4096, "round-robin")
    assert sorted(([plain(v) for v in json.loads(line).values()] for line in expected), key=repr) == truth(tables, sql)
    for train in (1, 7):
        assert virtual(tmp_path, query, train, "round-robin") == expected
    for policy in policies() if tables["seed"] == 1 else ():
        assert virtual(tmp_path, query, 7, policy) == expected, policy

    async def over_tcp(harness: Harness) -> None:
        assert await live(harness, tables, query, 7) == expected

    run(over_tcp)


def test_a_split_gives_its_other_side_live_and_agrees_with_duckdb(tables: dict[str, Any]) -> None:
    async def over_tcp(harness: Harness) -> None:
        lines = await live(harness, tables, SPLIT_PLAN, 50)
        assert sorted((list(json.loads(line).values()) for line in lines), key=repr) == truth(tables, SPLIT_TRUTH)

    run(over_tcp)
