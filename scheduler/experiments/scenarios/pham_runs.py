"""The set-up of Pham 2013 (IV, V): three classes with eleven queries each under CQC and a load manager, in virtual time.

Five aggregates, two window joins and four selects a class, over two streams of its own. A call costs what a tuple costs, and takes all
that its class's source boxes let in, or up to a number of tuples (`train`): so an operator that is run rarely is cheaper a tuple, which is
what DILoS gains from. Costs were scaled once, so that the common shedder had to drop what the paper's had to (`LOAD`), and stay fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from millstream.engine.data.graph import NS_PER_S, ClassId, ClassNode, GraphDelta, OperatorId
from millstream.engine.data.work import WorkReceipt
from millstream.scheduler.core import CoreSettings, SchedulerCore
from millstream.scheduler.drivers.virtual import VirtualDriver
from millstream.scheduler.events import Arrived, QueryAdded
from millstream.scheduler.ledger import validate
from millstream.scheduler.load.contract import CYCLE_NS, ClassLoad
from millstream.scheduler.load.monitors import Came
from millstream.scheduler.simulation.arrivals import Times, regular
from millstream.scheduler.simulation.executor import BoxExecutor
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder, SimulatedSource
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape

CLASSES: Final = tuple(
    ClassNode(ClassId(number), f"class {number}", priority, target_ms * 1_000_000, may_shed=True)
    for number, priority, target_ms in ((1, 6.0, 300), (2, 3.0, 400), (3, 1.0, 500))
)
LOAD: Final = 1.67
"""Work a second of all three classes at 1,300 tuples a second on every stream, one tuple a call."""

RUN_POLICIES: Final = ("cqc",)
"""Of the catalogue these runs are of the policies here alone (`code_digest.py`)."""

RATE: Final = 1_300.0
START_S: Final = 16.0
"""The start of a run: headrooms and shares begin as priorities give them and take ten rounds of ten cycles to settle."""
ROUND_MS: Final = 10.0
_CALL_SHARE = 0.5  # of the cost of a call on one tuple
_JOIN_WINDOW_NS = 50_000_000
# Kind, number, cost by that of a select, outputs a tuple (of a join a pair).
_QUERIES = (("select", 4, 1.0, 0.5), ("aggregate", 5, 1.5, 0.01), ("join", 2, 2.0, 0.002))
_CURVES = ("headroom", "drop", "share", "seen_ms")
_NOTHING = (0.0, 0.0, 0.0, 0.0)

Rates = Sequence[Sequence[float]]
"""By class, the tuples a second on each of its streams through equal stretches of time."""


def classes(load: str, rates: Rates, seconds: float, slow: float = 1.0, seed: int = 1, train: int | None = None) -> Mapping[str, Any]:
    """Run the three classes; `slow` divides the rates and multiplies the costs (for quick runs), `train` None takes all that waits."""
    return _Run(load, rates, seconds, slow, seed, TrainShape(share=1.0) if train is None else TrainShape(count=train)).run()


def unit_cost_ns() -> float:
    """Return the cost of a call of a select on one tuple, by which the classes are a load of `LOAD`."""
    weight = sum(number * cost * (2.0 if kind == "join" else 1.0) for kind, number, cost, _ in _QUERIES)
    return LOAD * NS_PER_S / (len(CLASSES) * RATE * weight)


class _Run:
    def __init__(self, load: str, rates: Rates, seconds: float, slow: float, seed: int, train: TrainShape) -> None:
        self.seconds, self.slow = seconds, slow
        self.builder = NetworkBuilder()
        self.core = SchedulerCore(PolicySpec(RUN_POLICIES[0], (("k", ROUND_MS * slow),)), CoreSettings(train=train, adapt=True, load=load))
        self.executor = BoxExecutor(seed)
        self.driver = VirtualDriver(self.core, self.executor, on_splice=self.executor.splice, on_receipt=self._receipt)
        self.class_of: dict[OperatorId, int] = {}
        self.outputs: list[tuple[int, int, int]] = []
        self.samples: list[list[tuple[float, float, float, float]]] = []
        self.started: list[tuple[int, int]] = []
        streams = [self._add_class(place, node) for place, node in enumerate(CLASSES)]
        self.driver.now_ns = 0
        for place, (own, steps) in enumerate(zip(streams, rates, strict=True)):
            for number, source in enumerate(own):
                self._arrive(source, steps, seed * 100 + 10 * place + number + 1)

    def _add_class(self, place: int, node: ClassNode) -> list[SimulatedSource]:
        own = [self.builder.source(f"{node.name} {side}") for side in "ab"]
        index = 0
        for kind, count, cost, output in _QUERIES:
            for _ in range(count):
                delta = self._query(kind, cost * unit_cost_ns() * self.slow, output, own, index, node)
                self.class_of[delta.query.root] = place
                self.driver.add_query(QueryAdded(delta))
                index += 1
        return own

    def _query(self, kind: str, cost_ns: float, output: float, own: list[SimulatedSource], index: int, node: ClassNode) -> GraphDelta:
        call_ns, tuple_ns = _CALL_SHARE * cost_ns, (1.0 - _CALL_SHARE) * cost_ns
        inputs = own if kind == "join" else [own[index % 2]]
        window_ns = round(_JOIN_WINDOW_NS * self.slow) if kind == "join" else None
        box = Box(tuple_ns, output, *inputs, call_ns=call_ns, window_ns=window_ns, label=f"{node.name} {kind} {index}")
        return self.builder.query(box.label, box, Asked(class_id=node.id), (node,))

    def _arrive(self, source: SimulatedSource, steps: Sequence[float], seed: int) -> None:
        log = self.builder.log(source)
        for at_ns in _times([one / self.slow for one in steps], self.seconds, seed).tolist():
            self.driver.post(Arrived(log, 1, 1, at_ns), at_ns)

    def _receipt(self, receipt: WorkReceipt) -> None:
        for one in receipt.emissions:
            place = self.class_of[one.operator]
            self.outputs.extend((place, arrival_ns, one.finished_ns) for arrival_ns in one.arrivals_ns)

    def run(self) -> Mapping[str, Any]:
        """Run until everything is worked off and return what came of it, with a curve point a second of arrivals."""
        end_ns, cycle_ns = round(self.seconds * NS_PER_S), CYCLE_NS
        load = self.core.load
        assert load is not None
        for at_ns in range(cycle_ns, end_ns + 1, cycle_ns):
            self.driver.run_until(at_ns)
            stands = [load.standings.get(node.id) for node in CLASSES]
            self.samples.append([_NOTHING if one is None else _sample(one) for one in stands])
            if at_ns <= round(START_S * NS_PER_S):
                self.started = [(came.rows, came.shed) for came in (load.totals.get(node.id, Came()) for node in CLASSES)]
        self.driver.run_until_idle()
        validate(self.core.ledger)
        return {"classes": [self._told(place, load.totals[node.id]) for place, node in enumerate(CLASSES)]}

    def _told(self, place: int, came: Came) -> dict[str, Any]:
        rows, shed = self.started[place]
        table = np.array([(arrival, finished) for own, arrival, finished in self.outputs if own == place], dtype=np.int64).reshape(-1, 2)
        response_ms = (table[:, 1] - table[:, 0]) / 1e6
        samples = np.array([one[place] for one in self.samples]).reshape(-1, 4)
        bins = np.minimum((table[:, 0] / NS_PER_S).astype(np.int64), int(self.seconds) - 1)
        counts = np.bincount(bins, minlength=int(self.seconds))
        sums = np.bincount(bins, weights=response_ms, minlength=int(self.seconds))
        each = np.array_split(samples, int(self.seconds))
        return {
            "response_ms": float(response_ms.mean()) if len(table) else None,
            "response_ms_p99": float(np.percentile(response_ms, 99)) if len(table) else None,
            "loss": came.shed / max(1, came.rows),
            "loss_at_start": shed / max(1, rows),
            "loss_after": (came.shed - shed) / max(1, came.rows - rows),
            "by_second": {
                "response_ms": [float(total / count) if count else None for total, count in zip(sums, counts, strict=True)],
                **{name: [float(part[:, column].mean()) for part in each] for column, name in enumerate(_CURVES)},
            },
        }


def _sample(one: ClassLoad) -> tuple[float, float, float, float]:
    return one.headroom, one.drop, one.share, 0.0 if one.response_ns is None else one.response_ns / 1e6


def _times(steps: Sequence[float], seconds: float, seed: int) -> Times:
    """Return evenly spaced arrivals at rates that hold for equal stretches of time."""
    stretch = seconds / len(steps)
    parts = [
        regular(rate, int(rate * stretch), seed + 1_000 * number) + round(number * stretch * NS_PER_S) for number, rate in enumerate(steps)
    ]
    times: Times = np.concatenate(parts)
    return times
