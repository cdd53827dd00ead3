"""Where processor time goes on the real engine: deciding against running (Carney 2005, 3.4.5 and 4.6.4). Other processes do not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.limits import ORDER_BUDGET_NS
from millstream.scheduler.spec import PolicySpec
from millstream.server.benchmarks.embedding import Embedded
from millstream.server.statements.selects import Submission, submit

DEADLINES_MS = (75, 150, 225, 300)
_GROUPS = 10  # streams over which the applications of `applications` are spread: a row makes a tenth of them ready


def _stream(name: str) -> str:
    return f"CREATE STREAM {name} (ts BIGINT, a BIGINT) TIMESTAMP BY ts UNIT us"


def _engine(policy: str, *streams: str) -> Embedded:
    """Return an engine that calls each operator by itself, as the thesis's did."""
    settings = CoreSettings(budget_ns=ORDER_BUDGET_NS, measure=True)
    return Embedded(*(_stream(name) for name in streams), policy=PolicySpec.parse(policy), settings=settings, fuse=False)


def _rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"ts": pa.array(range(count)), "a": pa.array(range(count))})


def _spent(engine: Embedded) -> Mapping[str, Any]:
    statistics, runtime = engine.runtime.statistics(), engine.runtime
    return {
        "deciding_ns": runtime.deciding_ns,
        "running_ns": runtime.running_ns,
        "orders": statistics.orders,
        "steps": statistics.steps,
        "operators": statistics.operators,
    }


def _begin(engine: Embedded) -> None:
    engine.runtime.deciding_ns = engine.runtime.running_ns = 0
    engine.results.take()


def trees(policy: str, trees: int, fan_out: int, depth: int, tuples: int) -> Mapping[str, Any]:
    """Return the time that `tuples` waiting rows take through trees of filters, unions of so many below each other."""
    engine = _engine(policy, "s")
    constants = iter(range(1_000_000, 9_000_000))

    def node(level: int) -> dict[str, Any]:
        below = {"op": "source", "stream": "s"} if level == 1 else {"op": "union", "inputs": [node(level - 1) for _ in range(fan_out)]}
        return {"op": "select", "condition": f"a < {next(constants)}", "input": below}

    for number in range(trees):
        engine.submit({"version": 1, "root": node(depth)}, f"q{number}")
    engine.push("s", engine.columns("s", _rows(1)))
    engine.runtime.run()
    _begin(engine)
    engine.push("s", engine.columns("s", _rows(tuples)))
    engine.runtime.run()
    assert engine.results.rows == trees * fan_out ** (depth - 1) * tuples
    return _spent(engine)


def applications(policy: str, applications: int, boxes: int, rounds: int) -> Mapping[str, Any]:
    """Return the time that rows take through chains with deadlines; a round is a row on each of ten streams, one after the other."""
    streams = [f"s{number}" for number in range(_GROUPS)]
    engine = _engine(policy, *streams)
    for number in range(applications):
        node: dict[str, Any] = {"op": "source", "stream": streams[number % _GROUPS]}
        for box in range(boxes):
            node = {"op": "select", "condition": f"a < {1_000_000 + number * boxes + box}", "input": node}
        deadline = DEADLINES_MS[number % len(DEADLINES_MS)]
        options = {"qos": f"0ms:1, {deadline}ms:1, {deadline + 1}ms:0"}
        submit(engine.host, Submission(plan={"version": 1, "root": node}, name=f"q{number}", options=options), engine)
    row = _rows(1)
    columns = {name: engine.columns(name, row) for name in streams}
    for number in range(rounds + 1):
        if number == 1:
            _begin(engine)
        for name in streams:
            engine.push(name, columns[name])
            # Half of what it made ready waits when the next comes, as under load.
            engine.runtime.run(max(1, applications // _GROUPS // 20))
    engine.runtime.run()
    return _spent(engine)
