"""Runs of chains told in columns do to the books what the same runs do, told one by one and with emissions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from millstream.client.benchmarks import chain_workload
from millstream.engine.chains import fused
from millstream.engine.data.work import RUN_FIELDS, ChainReceipt, ChainRuns, Emission, OrderId, StepReceipt, WorkOrder, WorkReceipt
from millstream.engine.runtime.executor import Executor
from millstream.scheduler.core import CoreSettings, SchedulerCore
from millstream.scheduler.events import WorkDone
from millstream.scheduler.ledger import _EDGE_COLUMNS, _LOG_COLUMNS, _OPERATOR_COLUMNS, validate
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.story import Story
from millstream.scheduler.trains import TrainShape
from millstream.server.benchmarks import dispatch
from millstream.server.benchmarks.embedding import Embedded

ROUNDS = 6


def told(policy: str, chains: int) -> tuple[Story, CoreSettings]:
    """Return what a core heard of chains of six and of ten operators that the engine ran, some orders cut short."""
    settings = CoreSettings(train=TrainShape(count=30), schedule=16, budget_ns=1_000_000, measure=True, record=True)
    engine = Embedded(chain_workload.STREAM, policy=PolicySpec(policy), settings=settings)
    for number in range(chains):
        engine.submit(dispatch._chain(chain_workload.NAME, number), f"ten{number}")
    engine.submit(chain_workload.PLAN, "six")
    columns = engine.columns(chain_workload.NAME, chain_workload.trains(100, 100)[0])
    for _ in range(ROUNDS):
        engine.push(chain_workload.NAME, columns)
        engine.runtime.run()
    story = engine.runtime.core.story
    assert isinstance(story, Story)
    return story, settings


def one_by_one(receipt: WorkReceipt) -> WorkReceipt:
    steps: list[Any] = []
    emissions: list[Emission] = []
    for step in receipt.steps:
        if not isinstance(step, ChainRuns):
            steps.append(step)
            continue
        steps.extend(step.receipts())
        for place, shape in enumerate(step.shapes):
            finished_ns, arrival_ns, rows = step.taken[place * RUN_FIELDS + 4 : (place + 1) * RUN_FIELDS]
            if rows:
                emissions.append(Emission(shape.operators[-1], rows, finished_ns, (arrival_ns,), (rows,)))
    emissions.extend(receipt.emissions)  # counted in this order too where they stand in columns: a second may end between them
    return replace(receipt, steps=tuple(steps), emissions=tuple(emissions))


@pytest.mark.parametrize(("policy", "chains"), [("hr", 9), ("fcfs", 3)])
def test_runs_in_columns_and_one_by_one_leave_the_same_books(policy: str, chains: int) -> None:
    story, settings = told(policy, chains)
    runs = [step for entry in story for event in entry.events if isinstance(event, WorkDone) for step in event.receipt.steps]
    assert sum(len(one.shapes) for one in runs if isinstance(one, ChainRuns)) > chains * ROUNDS // 2
    assert not any(isinstance(one, ChainReceipt) for one in runs)
    columns, single = (SchedulerCore(PolicySpec(policy), replace(settings, record=False)) for _ in range(2))
    for entry in story:
        events = [WorkDone(one_by_one(event.receipt), event.failure) if isinstance(event, WorkDone) else event for event in entry.events]
        assert columns.handle(entry.events, entry.now_ns) == single.handle(events, entry.now_ns)
    for core in (columns, single):
        validate(core.ledger)
    for name in (*_LOG_COLUMNS, *_EDGE_COLUMNS, *_OPERATOR_COLUMNS):
        assert np.array_equal(getattr(columns.ledger, name), getattr(single.ledger, name)), name
    assert columns.statistics() == single.statistics()
    slots = range(len(columns.estimates.means.known))
    assert [columns.estimates.means.of(slot) for slot in slots] == [single.estimates.means.of(slot) for slot in slots]
    assert columns.measures is not None
    assert single.measures is not None
    now_ns = 10**18
    assert columns.measures.report(now_ns) == single.measures.report(now_ns)
    assert columns.measures.of_queries(now_ns) == single.measures.of_queries(now_ns)


def test_some_runs_of_a_chain_go_step_by_step_often_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody knew what each of its operators costs."""
    monkeypatch.setattr(fused, "SAMPLED_OFTEN", 2 * fused.SAMPLE_EVERY)
    monkeypatch.setattr(fused, "SAMPLE_SELDOM", 2 * fused.SAMPLE_EVERY)
    engine = Embedded(chain_workload.STREAM, policy=PolicySpec("fcfs"), settings=CoreSettings(train=TrainShape(share=1.0), record=True))
    engine.submit(chain_workload.PLAN, "six")
    columns = engine.columns(chain_workload.NAME, chain_workload.trains(100, 100)[0])
    for _ in range(6 * fused.SAMPLE_EVERY):
        engine.push(chain_workload.NAME, columns)
        engine.runtime.run()
    story = engine.runtime.core.story
    assert isinstance(story, Story)
    orders = [event.receipt for entry in story for event in entry.events if isinstance(event, WorkDone)]
    alone = [place for place, receipt in enumerate(orders) if any(isinstance(step, StepReceipt) for step in receipt.steps)]
    assert [place // fused.SAMPLE_EVERY for place in alone] == [0, 1, 2, 4]
    assert all(place % fused.SAMPLE_EVERY == 0 for place in alone)


def test_an_order_without_steps_does_nothing() -> None:
    engine = Embedded(chain_workload.STREAM)
    engine.submit(chain_workload.PLAN, "six")
    receipt = Executor(engine.host.network).run(WorkOrder(OrderId(1), ()), lambda: 5)
    assert receipt == WorkReceipt(OrderId(1), (), (), (), 5, 5)
