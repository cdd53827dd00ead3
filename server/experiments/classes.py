"""Classes, load managers and DILoS on the real engine (Pham 2013, IV and V): the simulated experiments' claims on live runs.

Three classes with eleven queries each on the live engine under a load manager (Pham 2013, IV and V).

Every class has two streams, and five windowed aggregates, two window joins and four selects over them, whose first operators take a set
time a row beside their own work. How many rows a second the engine carries is measured first, by the loads that the managers' own monitor
sees while rows come (ΣL, which is 1 at the capacity); rates are multiples of that, and ΣL of each run is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from millstream.engine.data.graph import ClassId
from millstream.engine.flow.running import RunningOperator
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Result, Scale, Scenario
from millstream.scheduler.experiments.scenarios.pham import CLAIMS, FIGURES, SOURCE, STEPS, TITLES, findings, settled, setup
from millstream.scheduler.load.contract import CYCLE_NS, ClassLoad
from millstream.server.experiments.rig import LiveEngine, SteppedEngine, quick_switching

_LOAD = 1.0 / (1.0 - 0.114)
"""Rate of every stream by what the engine carries: who sheds all classes alike then has to drop what the paper's had to (table I)."""

_SECONDS: dict[str, dict[Scale, float]] = {
    "constant": {"reduced": 8.0, "medium": 30.0, "full": 120.0},
    "steps": {"reduced": 18.0, "medium": 60.0, "full": 300.0},
}
PRIORITIES: Final = (6, 3, 1)
TARGETS_MS: Final = (300, 400, 500)
_TICK_NS: Final = 100_000_000
_SELECT_US: Final = 400
_COSTS = {"select": 1.0, "aggregate": 1.5, "join": 2.0}
_BURST_ROWS = 40
_MEASURED_S: Final = 4.0
_POLICY = "cqc:k=20,train=20,schedule=1"
Rates = Sequence[Sequence[float]]
"""By class, multiples of what the engine carries on every stream of all classes, through equal stretches of time."""


def _scenario(kind: str) -> Scenario:
    steps = kind == "steps"

    def cases(scale: Scale) -> list[ExperimentCase]:
        one = _LOAD / 1_300.0
        rates = [[one * rate for rate in STEPS], [one * 1_500.0], [one * 900.0]] if steps else [[_LOAD]] * 3
        seconds = _SECONDS["steps" if steps else "constant"][scale]
        parameters = {"load": "dilos" if steps else kind, "rates": rates, "seconds": seconds, "stepped": scale == "reduced"}
        return [ExperimentCase("millstream.server.experiments.classes:classes", parameters)]

    def judge(scale: Scale, result: Callable[[ExperimentCase], Result]) -> Findings:
        (case,) = cases(scale)
        told = result(case)
        found = findings(told["classes"], CLAIMS[kind](told["classes"]))
        measured = {"capacity_rows_per_s": told["capacity"], "sum_of_loads": told["sum_of_loads"]}
        note = f"ΣL {told['sum_of_loads']:.2f}, capacity {told['capacity']:.0f} rows a second on each stream"
        claims = [replace(claim, note="; ".join(filter(None, (claim.note, note)))) for claim in found.claims]
        return replace(found, rows=[{**row, **measured} for row in found.rows], claims=claims)

    return Scenario(
        f"d-{kind}-live",
        f"{SOURCE}, {FIGURES[kind]} (live)",
        f"{TITLES[kind]}, on the real engine",
        setup(
            "Real queries over two streams a class, whose first operators take 0.4 to 0.8 ms a row; rates follow the engine's capacity, "
            "measured just before; at reduced scale in one thread on its processor time, so that other work of the machine does not count."
        ),
        cases,
        judge,
        (
            "for 1,300 tuples a second, 1.13 of the capacity, as the paper's common shedder drops 11.4%; the capacity is the rate at which "
            "the loads of the classes add up to 1, found from what they are at the rate of a burst",
            "rows arrive ten times a second, because a watermark that arrives with a shed row still passes every operator of its class",
            "the response time over time: that of the worst query of the class in the cycle, which the manager sees",
            *settled(kind, live=True),
        ),
    )


NONE, COMMON, CLASS, DILOS, STEPPED = (_scenario(kind) for kind in ("none", "common", "class", "dilos", "steps"))


def classes(load: str, rates: Rates, seconds: float, stepped: bool = False) -> Mapping[str, Any]:
    """Measure the capacity, then run under the load manager; return what came of each class, with a curve point a second.

    `stepped` keeps to this thread and the processor time it spends (see rig.py), for machines that have other things to do.
    """
    with quick_switching():
        return loaded(load, measured_capacity(stepped), rates, seconds, stepped)


def loaded(load: str, capacity: float, rates: Rates, seconds: float, stepped: bool) -> Mapping[str, Any]:
    """Run under the load manager where the capacity is known; returns what came of each class, and the mean of ΣL."""
    with _engine(load, stepped) as engine:
        _prepare(engine)
        run = _Run(engine, capacity, rates, seconds)
        return {"capacity": capacity, "classes": run.run(), "sum_of_loads": run.sum_of_loads()}


def _engine(load: str | None, stepped: bool) -> LiveEngine:
    return SteppedEngine(_POLICY, load=load) if stepped else LiveEngine(_POLICY, load=load)


def _prepare(engine: LiveEngine) -> None:
    for number, (priority, target_ms) in enumerate(zip(PRIORITIES, TARGETS_MS, strict=True), 1):
        engine.execute(f"CREATE CLASS c{number} PRIORITY {priority} TARGET {target_ms} MILLISECONDS SHED")
        for side in "ab":
            engine.execute(f"CREATE STREAM c{number}{side} (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
        for place, (kind, text) in enumerate(_queries(number)):
            name = f"c{number}_{place}"
            engine.execute(f"CREATE QUERY {name} AS {text} WITH (class = 'c{number}')")
            engine.slow_down(_operator(engine, name, kind), round(_SELECT_US * 1e3 * _COSTS[kind]))


def _queries(number: int) -> list[tuple[str, str]]:
    """Return kind and text of the queries of a class."""
    first, second = f"c{number}a", f"c{number}b"
    found = [("select", f"SELECT v FROM {first if place % 2 else second} WHERE v % 2 = {place % 2} AND v >= {place}") for place in range(4)]
    for place in range(5):
        stream = second if place % 2 else first
        found.append(("aggregate", f"SELECT SUM(v + {place}) AS total FROM {stream} [RANGE 200 MILLISECONDS SLIDE 200 MILLISECONDS]"))
    joins = (f"SELECT l.v FROM {first} l JOIN {second} r ON l.v = r.v + {place} WITHIN 50 MILLISECONDS" for place in range(2))
    return [*found, *(("join", text) for text in joins)]


def _operator(engine: LiveEngine, query: str, kind: str) -> RunningOperator:
    identity = engine.host.queries.get(query).id
    assert identity is not None
    operators = engine.host.network.queries[identity].blueprint.operators
    found = [one for one in operators if kind in type(one.recipe).__name__.lower()]
    return found[0] if found else operators[0]


def measured_capacity(stepped: bool) -> float:
    """Return the rows a second on each of the six streams at which the loads of the classes add up to 1."""
    burst = _burst(stepped)
    sum_of_loads: float = loaded("none", burst, [[1.0]] * len(PRIORITIES), _MEASURED_S, stepped)["sum_of_loads"]
    return burst / sum_of_loads


def _burst(stepped: bool) -> float:
    """Return the rows a second on each of the six streams that are worked off when all wait: long trains, so the most there can be."""
    with _engine(None, stepped) as engine:
        _prepare(engine)
        for number, side in _streams():
            engine.push(f"c{number}{side}", engine.columns(f"c{number}{side}", _batch(0, 4, 10_000)))
        engine.settle()
        with engine.runtime.still():
            for number, side in _streams():
                engine.push(f"c{number}{side}", engine.columns(f"c{number}{side}", _batch(4, _BURST_ROWS, 10_000)))
            begin_ns = engine.clock_ns()
        engine.settle()
        return _BURST_ROWS * 1e9 / (engine.clock_ns() - begin_ns)


def _streams() -> list[tuple[int, str]]:
    return [(number, side) for number in range(1, len(PRIORITIES) + 1) for side in "ab"]


def _batch(first: int, rows: int, step_us: int, start_us: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    return pa.record_batch({"ts": pa.array([start_us + number * step_us for number in numbers]), "v": pa.array(numbers)})


class _Run:
    def __init__(self, engine: LiveEngine, capacity: float, rates: Rates, seconds: float) -> None:
        self.engine, self.capacity, self.rates, self.seconds = engine, capacity, rates, seconds
        self.sent = [0.0] * len(PRIORITIES)
        self.whole = [0] * len(PRIORITIES)
        self.samples: list[tuple[float, list[ClassLoad | None]]] = []

    def run(self) -> list[dict[str, Any]]:
        """Let rows in as time passes, look at the classes once a cycle, and tell at the end without working off what waits."""
        engine = self.engine
        began_ns = last_ns = looked_ns = engine.clock_ns()
        while (now_ns := engine.clock_ns()) < began_ns + self.seconds * 1e9:
            with engine.clock.stopped() if isinstance(engine, SteppedEngine) else nullcontext():
                self._let_in((now_ns - began_ns) / 1e9, (now_ns - last_ns) / 1e9)
                if now_ns - looked_ns >= CYCLE_NS:
                    looked_ns = now_ns
                    stands = engine.runtime.loads()
                    self.samples.append(((now_ns - began_ns) / 1e9, [stands.get(self._id(place)) for place in range(len(PRIORITIES))]))
            last_ns = now_ns
            if isinstance(engine, SteppedEngine):
                engine.advance(now_ns + _TICK_NS)
            else:
                time.sleep(max(0.0, (_TICK_NS - (engine.clock_ns() - now_ns)) / 1e9))
        return self._told()

    def sum_of_loads(self) -> float:
        """Return the mean of ΣL, without the first quarter of the time, in which costs are not known yet."""
        sums = [sum(one.load for one in stands if one is not None) for at_s, stands in self.samples if at_s >= self.seconds / 4.0]
        return sum(sums) / max(1, len(sums))

    def _id(self, place: int) -> ClassId:
        return self.engine.host.class_nodes[f"c{place + 1}"].id

    def _let_in(self, at_s: float, passed_s: float) -> None:
        for place, steps in enumerate(self.rates):
            rate = self.capacity * steps[min(len(steps) - 1, int(at_s / self.seconds * len(steps)))]
            self.sent[place] += rate * passed_s
            rows = int(self.sent[place]) - self.whole[place]
            if not rows:
                continue
            batch = _batch(self.whole[place], rows, 0, start_us=round(at_s * 1e6))
            for side in "ab":
                self.engine.push(f"c{place + 1}{side}", self.engine.columns(f"c{place + 1}{side}", batch))
            self.whole[place] += rows

    def _told(self) -> list[dict[str, Any]]:
        engine = self.engine
        measures = engine.scheduler.measures()
        assert measures is not None
        reports = measures.of_classes(engine.clock_ns())
        totals = engine.scheduler.ask(_totals)
        found = []
        for place in range(len(PRIORITIES)):
            report, (rows, shed) = reports.get(self._id(place)), totals.get(self._id(place), (0, 0))
            came = report is not None and report.outputs > 0
            found.append(
                {
                    "response_ms": report.response_ms_mean if came and report is not None else None,
                    "response_ms_p99": report.response_ms_p99 if came and report is not None else None,
                    "loss": shed / max(1, rows),
                    "by_second": self._curves(place),
                }
            )
        return found

    def _curves(self, place: int) -> dict[str, list[float | None]]:
        curves: dict[str, list[float | None]] = {"response_ms": [], "seen_ms": [], "headroom": [], "drop": [], "share": []}
        for second in range(int(self.seconds)):
            own = [stands[place] for at_s, stands in self.samples if second <= at_s < second + 1]
            known = [one for one in own if one is not None]
            late = [one.response_ns / 1e6 for one in known if one.response_ns is not None]
            for name in ("response_ms", "seen_ms"):
                curves[name].append(sum(late) / len(late) if late else None)
            for name in ("headroom", "drop", "share"):
                values = [float(getattr(one, name)) for one in known]
                curves[name].append(sum(values) / len(values) if values else 0.0)
        return curves


def _totals(core: SchedulerCore) -> dict[ClassId, tuple[int, int]]:
    assert core.load is not None
    return {one: (came.rows, came.shed) for one, came in core.load.totals.items()}
