"""A query that catches up gets the share of the processor that the policy gives its class, beside live queries, and no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from millstream.engine.data.column import Column
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.engine.data.types import BIGINT
from millstream.engine.data.work import WorkOrder, WorkReceipt
from millstream.engine.flow.replay import PastRows, PastSources, Replay
from millstream.engine.language.parse import parse_script
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.plan import plan_select
from millstream.engine.runtime.executor import Executor
from millstream.engine.runtime.network import Network
from millstream.scheduler.spec import PolicySpec
from millstream.server.embedded.virtual_runtime import VirtualRuntime

LIVE, PAST = ClassId(1), ClassId(2)
ROWS, TRAIN, ROW_NS = 40_000, 100, 1_000
ROUND_NS = 10_000_000
TEXT = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us; SELECT v + 1 AS w FROM s"


class Costly:
    """Runs orders, each of which takes a time by its rows; notes how long each query has been given."""

    def __init__(self, executor: Executor, network: Network) -> None:
        self._executor, self._network = executor, network
        self.given_ns: dict[str, int] = {"live": 0, "late": 0}
        self.seen: list[dict[str, int]] = []

    def run(self, order: WorkOrder, clock_ns: Callable[[], int]) -> WorkReceipt:
        receipt = self._executor.run(order, clock_ns)
        steps = list(receipt.each_step())
        took_ns = ROW_NS * max((sum(edge.rows for edge in step.consumed) for step in steps), default=0)
        names = {query.node.name for query in self._network.queries.values() for step in steps if step.operator in query.node.operators}
        for name in names:
            self.given_ns[name] += took_ns
        self.seen.append(dict(self.given_ns))
        return replace(receipt, finished_ns=receipt.started_ns + took_ns)


@pytest.mark.parametrize(("live", "past"), [(3.0, 1.0), (1.0, 1.0), (1.0, 9.0)])
def test_a_query_that_catches_up_takes_turns_with_live_ones_as_its_class_says(live: float, past: float) -> None:
    (create, _), (select, _) = parse_script(TEXT)
    catalog = Catalog()
    catalog.add(create.definition)  # type: ignore[attr-defined]
    network = Network()
    network.create_stream(create.definition)  # type: ignore[attr-defined]
    costly = Costly(Executor(network), network)
    runtime = VirtualRuntime(costly, network, PolicySpec.parse("cqc:k=10"), lambda _: None, train=TRAIN)
    results: dict[str, list[Any]] = {"live": [], "late": []}
    sources = PastSources(0)
    for name, class_node, of_past in (("live", ClassNode(LIVE, "live", live), None), ("late", ClassNode(PAST, "past", past), sources)):
        physical = plan_select(select, catalog).physical  # type: ignore[arg-type]
        runtime.add(network.add_query(name, physical, results[name].append, class_node=class_node, past=of_past))
    values = np.arange(ROWS, dtype=np.int64)
    columns = [Column(BIGINT, values), Column(BIGINT, values)]
    runtime.arrived(network.ingest("s", columns, arrival_ns=0, now_us=0))
    stored = PastRows(values, columns, values, np.maximum(values - 1, 0), values)
    replay = Replay(sources.ingress, [(sources.sources["s"], iter([stored]))], ROWS)
    for ingested in replay.step(0) or []:
        runtime.arrived(ingested)
    runtime.run()
    assert [sum(train.rows for train in trains) for trains in results.values()] == [ROWS, ROWS]
    both = [seen for seen in costly.seen if max(seen.values()) < ROWS * ROW_NS]  # as long as both have work
    assert len(both) > ROWS // TRAIN // 2
    for seen in both:
        fair_ns = sum(seen.values()) * past / (live + past)
        assert abs(seen["late"] - fair_ns) <= ROUND_NS
