"""What deciding costs: the share of run time that the scheduler's core takes while every queue is full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.scheduler.core import CoreSettings
from millstream.scheduler.limits import ESTIMATE_CALLS_LIVE, ORDER_BUDGET_NS, SCHEDULE_UNITS_LIVE
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import Train as TrainShape
from millstream.server.benchmarks.contract import Figures, Kit
from millstream.server.benchmarks.embedding import Embedded

POLICIES = (
    "superbox", "hr", "bucketing-push-through", "round-robin", "fcfs", "hnr", "edf", "lsf", "bsd-log", "bsd-naive", "rb", "chain",
    "slope-slack-push-through",
)  # fmt: skip
LARGE = ("hr", "fcfs", "superbox", "bucketing-push-through", "bsd-log")  # a thousand queries take their time to come into force
CHAIN_LENGTH = 10
TRAIN = 100
WAITING_TRAINS = 8  # before each chain when the clock starts: enough that no queue runs empty


def benchmark(kit: Kit) -> Iterator[Figures]:
    """The scheduler's share of run time for 100, 1,000 and 10,000 operators in chains of ten, trains of 100 rows."""
    for policy in POLICIES[:2] if kit.quick else POLICIES:
        yield _measure(kit, 100, policy)
    if not kit.quick:
        for operators, policies in ((1_000, LARGE), (10_000, LARGE[:2])):
            for policy in policies:
                yield _measure(kit, operators, policy)


def _measure(kit: Kit, operators: int, policy: str) -> Figures:
    name, stream, _ = kit.chain_query
    settings = CoreSettings(
        train=TrainShape(count=TRAIN),
        schedule=SCHEDULE_UNITS_LIVE,
        budget_ns=ORDER_BUDGET_NS,
        estimate_calls=ESTIMATE_CALLS_LIVE,
        measure=True,
    )
    chains = operators // CHAIN_LENGTH
    engine = Embedded(stream, policy=PolicySpec(policy), settings=settings)
    for number in range(chains):
        engine.submit(_chain(name, number), f"chain{number}")
    columns = engine.columns(name, kit.chain_trains(WAITING_TRAINS * TRAIN, WAITING_TRAINS * TRAIN)[0])
    runtime = engine.runtime
    rounds = max(1, kit.size(1_600, 400) // (chains * WAITING_TRAINS))
    for measured in (False, True):
        if measured:
            runtime.deciding_ns = runtime.running_ns = 0
            before = runtime.statistics()
        for _ in range(rounds):
            engine.push(name, columns)
            runtime.run()
            engine.results.take()
    after = runtime.statistics()
    rows = chains * WAITING_TRAINS * TRAIN * rounds
    accounts = [account for query in engine.host.queries for account in engine.host.accounts(query)]
    kit.require(all(a.balances and a.queued == 0 and a.processed == 2 * rows // chains for a in accounts), "rows were left out")
    total_ns = runtime.deciding_ns + runtime.running_ns
    return {
        "name": "dispatch",
        "policy": policy,
        "operators": operators,
        "queries": chains,
        "train": TRAIN,
        "rows_per_s": rows / total_ns * 1e9,
        "overhead": runtime.deciding_ns / total_ns,
        "decisions": after.decisions - before.decisions,
        "orders": after.orders - before.orders,
        "order_us": runtime.deciding_ns / 1e3 / max(1, after.orders - before.orders),
    }


def _chain(stream: str, number: int) -> dict[str, Any]:
    """Return the plan of ten operators: five times a selection and a projection, with other constants in each chain."""
    node: dict[str, Any] = {"op": "source", "stream": stream}
    for step in range(CHAIN_LENGTH // 2):
        condition = f"a <= {99 - number % 5}" if step == 0 else f"b <= {99 - step}"
        node = {"op": "select", "condition": condition, "input": node}
        node = {"op": "project", "columns": [["key", "key"], ["b", "b"], ["price", "price * 1.01"]], "input": node}
    return {"version": 1, "root": node}
