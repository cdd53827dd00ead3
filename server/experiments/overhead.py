"""Tuples, trains and superboxes on the real engine (Carney 2005, figure 3.10).

Where processor time goes on the real engine: deciding against running (Carney 2005, 3.4.5 and 4.6.4). Other processes do not count.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from millstream.scheduler.core import CoreSettings, SchedulerCore
from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, ordered
from millstream.scheduler.limits import ESTIMATE_CALLS_LIVE, ORDER_BUDGET_NS
from millstream.scheduler.simulation.plots import Line, Panel
from millstream.scheduler.spec import PolicySpec
from millstream.server.benchmarks.embedding import Embedded
from millstream.server.statements.selects import Submission, submit

_MODES = {
    "tuple at a time": "round-robin:train=1,schedule=1",
    "trains": "round-robin:train=all,schedule=1",
    "superboxes": "superbox:traversal=min-cost,train=all,schedule=1",
}
_TUPLES: dict[Scale, int] = {"reduced": 30, "medium": 300, "full": 3_000}
DEADLINES_MS = (75, 150, 225, 300)
_GROUPS = 10  # streams over which the applications of `applications` are spread: a row makes a tenth of them ready


def _case(scale: Scale, mode: str) -> ExperimentCase:
    parameters = {"policy": _MODES[mode], "trees": 4, "fan_out": 3, "depth": 3, "tuples": _TUPLES[scale]}
    return ExperimentCase("millstream.server.experiments.overhead:trees", parameters)


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_case(scale, mode) for mode in _MODES]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    found = {mode: results(_case(scale, mode)) for mode in _MODES}
    total = {mode: (one["deciding_ns"] + one["running_ns"]) / 1e9 for mode, one in found.items()}
    share = {mode: one["deciding_ns"] / (one["deciding_ns"] + one["running_ns"]) for mode, one in found.items()}
    claims = [
        Claim(
            "trains take far less time than tuple at a time (a third less at least)",
            "far below",
            ", ".join(f"{mode} {value * 1e3:.3g} ms" for mode, value in total.items()),
            total["trains"] <= 0.67 * total["tuple at a time"],
        ),
        Claim(
            "superboxes about halve the time of trains",
            "half",
            f"{total['superboxes'] / total['trains']:.2f} of it",
            total["superboxes"] <= 0.75 * total["trains"],
        ),
        ordered("the scheduler's share grows from tuples over trains to superboxes", list(share), list(share.values())),
    ]
    rows: list[Row] = [{"mode": mode, "total_s": total[mode], "deciding_share": share[mode], **one} for mode, one in found.items()]
    parts = (("running_ns", "operators and their calls"), ("deciding_ns", "scheduler"))
    lines = [Line(title, list(_MODES), [float(found[mode][name]) / 1e9 for mode in _MODES]) for name, title in parts]
    return Findings(rows, claims, [Panel("Processor time for all tuples", "", "s", lines, kind="bar", y_log=True)])


SCENARIO = Scenario(
    "c-overhead-live",
    "Carney 2005, fig. 3.10 (live)",
    "where the time goes, on the real engine",
    "Four trees of fan-out 3 and depth 3, a filter and a union a box, all tuples waiting at the start; processor time of "
    "deciding and running.",
    _cases,
    _judge,
    (
        "depth 5 by 3",
        "the work of a box is not separated from its call, because a filter of one integer costs almost nothing",
    ),
)


def _stream(name: str) -> str:
    return f"CREATE STREAM {name} (ts BIGINT, a BIGINT) TIMESTAMP BY ts UNIT us"


def _engine(policy: str, *streams: str) -> Embedded:
    """Return an engine that calls each operator by itself, as the thesis's did."""
    settings = CoreSettings(budget_ns=ORDER_BUDGET_NS, estimate_calls=ESTIMATE_CALLS_LIVE, measure=True)
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


class _Choosing:
    """Times what the selector of a core does: what is looked at, ranked and moved to choose a unit, which is what Aurora counts.

    The rest of deciding keeps the books: counts, estimates, orders and receipts.
    """

    def __init__(self, core: SchedulerCore) -> None:
        self.spent_ns = 0
        selector = core._policy.selector
        for name in ("pick", "changed", "reset"):
            setattr(selector, name, self._timed(getattr(selector, name)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.thread_time_ns

        def timed(*given: Any) -> Any:
            started = clock()
            found = function(*given)
            self.spent_ns += clock() - started
            return found

        return timed


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
    choosing = _Choosing(engine.runtime.core)
    for number in range(rounds + 1):
        if number == 1:
            gc.collect()  # what the set-up left behind is looked through in the midst of a decision otherwise
            _begin(engine)
            choosing.spent_ns = 0
        for name in streams:
            engine.push(name, columns[name])
            # Half of what it made ready waits when the next comes, as under load.
            engine.runtime.run(max(1, applications // _GROUPS // 20))
    engine.runtime.run()
    return {**_spent(engine), "choosing_ns": choosing.spent_ns}
