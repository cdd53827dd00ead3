"""What deciding costs: the share of run time that the scheduler's core takes while every queue is full."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

from millstream.scheduler.catalog import CATALOG
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.limits import ESTIMATE_CALLS_LIVE, ORDER_BUDGET_NS, SCHEDULE_UNITS_LIVE
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape
from millstream.server.benchmarks.contract import Figures, Kit
from millstream.server.benchmarks.embedding import Embedded

POLICIES = tuple(name for name in CATALOG if name != "user")
QUICK = ("superbox", "hr")
LARGE = (
    *("fcfs", "hr", "bsd-log", "superbox", "rr", "path-capacity", "segment", "fas", "edf-hr", "cqc", "round-robin", "rb"),
    *("slope-slack-push-through", "bucketing-push-through", "fixed-priority-push-through"),
)
"""Of the largest network one policy for each way to cut it and to find a unit: the others would take minutes and say the same."""

LARGE_OPERATORS = 10_000
OPERATORS = {100: 8, 1_000: 8, LARGE_OPERATORS: 2}
"""Operators in all, and the trains that wait before each chain when the clock starts: enough that no queue runs empty."""
CHAIN_LENGTH = 10
TRAIN = 100
CHAIN_RUNS = 800  # measured for each policy, at least


def benchmark(kit: Kit) -> Iterator[Figures]:
    """The scheduler's share of run time for 100, 1,000 and 10,000 operators in chains of ten, trains of 100 rows, by policy (`LARGE`)."""
    for operators, waiting in [(100, 4)] if kit.quick else list(OPERATORS.items()):
        saturated = Saturated(kit, operators // CHAIN_LENGTH, waiting)
        for policy in QUICK if kit.quick else LARGE if operators >= LARGE_OPERATORS else POLICIES:
            yield saturated.measure(policy)


class Saturated:
    """Chains over one stream whose queues are filled and then worked off, under one policy after the other."""

    def __init__(self, kit: Kit, chains: int, waiting: int) -> None:
        self._kit, self._chains = kit, chains
        self._name, stream, _ = kit.chain_query
        settings = CoreSettings(
            train=TrainShape(count=TRAIN),
            schedule=SCHEDULE_UNITS_LIVE,
            budget_ns=int(ORDER_BUDGET_NS * time_stretch()),
            estimate_calls=ESTIMATE_CALLS_LIVE,
            measure=True,
        )
        self._engine = Embedded(stream, policy=PolicySpec(QUICK[0]), settings=settings)
        for number in range(chains):
            self._engine.submit(_chain(self._name, number), f"chain{number}")
        self._rows = waiting * TRAIN
        self._columns = self._engine.columns(self._name, kit.chain_trains(self._rows, self._rows)[0])
        self._rounds = max(1, kit.size(CHAIN_RUNS, 160) // (chains * waiting))
        self._pushed = 0

    def measure(self, policy: str) -> Figures:
        """Return the figures of one policy, measured after as much work that is not."""
        engine, runtime = self._engine, self._engine.runtime
        runtime.set_policy(PolicySpec(policy))
        self._work_off()
        gc.collect()  # or what the policies before left behind is looked through in the midst of a decision, and counted as its time
        runtime.deciding_ns = runtime.running_ns = 0
        before = runtime.statistics()
        self._work_off()
        after = runtime.statistics()
        accounts = [account for query in engine.host.queries for account in engine.host.accounts(query)]
        self._kit.require(all(a.balances and a.queued == 0 and a.processed == self._pushed for a in accounts), "rows were left out")
        total_ns, orders = runtime.deciding_ns + runtime.running_ns, max(1, after.orders - before.orders)
        return {
            "name": "dispatch",
            "policy": policy,
            "operators": self._chains * CHAIN_LENGTH,
            "queries": self._chains,
            "train": TRAIN,
            "rows_per_s": self._rows * self._rounds * self._chains / total_ns * 1e9,
            "overhead": runtime.deciding_ns / total_ns,
            "decisions": after.decisions - before.decisions,
            "orders": orders,
            "order_us": runtime.deciding_ns / 1e3 / orders,
        }

    def _work_off(self) -> None:
        for _ in range(self._rounds):
            self._engine.push(self._name, self._columns)
            self._pushed += self._rows
            self._engine.runtime.run()
            self._engine.results.take()


def time_stretch(probe_s: float = 0.1) -> float:
    """Return how much longer than its processor time work takes now. An order's budget is a time, and here others do not count."""
    started, spent = time.perf_counter(), time.thread_time()
    while time.thread_time() - spent < probe_s:
        pass
    return max(1.0, (time.perf_counter() - started) / (time.thread_time() - spent))


def _chain(stream: str, number: int) -> dict[str, Any]:
    """Return the plan of ten operators: five times a selection and a projection, with other constants in each chain."""
    node: dict[str, Any] = {"op": "source", "stream": stream}
    for step in range(CHAIN_LENGTH // 2):
        condition = f"a <= {99 - number % 5}" if step == 0 else f"b <= {99 - step}"
        node = {"op": "select", "condition": condition, "input": node}
        node = {"op": "project", "columns": [["key", "key"], ["b", "b"], ["price", "price * 1.01"]], "input": node}
    return {"version": 1, "root": node}
