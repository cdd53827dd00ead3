"""All workers: which operator goes where, and what each is like.

Rules of what runs where are in `scheduler/placement.py`. Here it is decided what can run in a worker at all: neither sinks, which hand
results to the server, nor what calls users' functions, which have processes of their own, nor what may be shed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from millstream.engine.data.column import Column
from millstream.engine.data.graph import OperatorId
from millstream.engine.flow.running import RunningOperator
from millstream.engine.language.recipes import AggregateRecipe, FanOutRecipe, KeyMergeRecipe, PartRecipe, SinkRecipe
from millstream.engine.operators.build import kind_of
from millstream.engine.runtime.branches import part_of
from millstream.engine.runtime.network import Network
from millstream.engine.synopses.shared_aggregate import SharedAggregate
from millstream.scheduler.placement import MOVED_BYTES_MAX, Balance, Choice, GroupLoad, Move, WorkerLoad, choose
from millstream.server.workers.operators import Part, Placed
from millstream.server.workers.process import Worker, WorkerBounds, about
from millstream.server.workers.segments import SharedSegments
from millstream.server.workers.wire import load_kernels

FADE = 0.7  # weight of the past in a worker's load


class Workers:
    """See the module's text. `on_place` hears of operators that were placed: their ids and the worker's number."""

    def __init__(self, network: Network, workers: Sequence[Worker], segments: SharedSegments) -> None:
        self._network = network
        self.segments = segments
        self.workers = list(workers)
        count = len(self.workers)
        self.on_place: Callable[[dict[OperatorId, int]], None] | None = None
        self._loads = [0.0] * (count + 1)
        self._looked: tuple[int, list[int]] | None = None
        self._balance = Balance()
        self._costs: dict[OperatorId, tuple[int, float]] = {}  # of each operator at the last look: in all, and as a part of the time
        self.moves = [0] * (count + 1)
        network.placement = self

    # --- placement ---

    def placed_rows(self, columns: Sequence[Column]) -> Sequence[Column]:
        """Let rows lie in shared memory."""
        return self.segments.placed(columns)

    def place(self, operators: Sequence[RunningOperator]) -> None:
        """Place operators that are here and idle: with those they are connected to, else where there is least to do.

        All go to one worker, save the parts of what is split by key, which go to different ones.
        """
        going: dict[Part, list[tuple[RunningOperator, bytes]]] = {}
        for running in operators:
            told = self._movable(running)
            if not isinstance(told, str):
                going.setdefault(_part(running), []).append((running, told))
        for part, members in going.items():
            choice = self._choose([running for running, _ in members], part)
            worker = self.workers[choice.worker - 1]
            for running, told in members:
                state = running.logic.snapshot() if running.logic.state_fields else b""
                running.elsewhere = Placed(worker, running, told, state, choice.why, part)
            if self.on_place is not None:
                self.on_place({running.id: worker.number for running, _ in members})

    def _choose(self, going: Sequence[RunningOperator], part: Part) -> Choice:
        queries = {query.node.id: query for running in going for query in self._network.queries_served(running.id)}
        pinned = next((query.workers for query in queries.values()), ())
        there = [o.elsewhere for query in queries.values() for o in query.blueprint.operators if isinstance(o.elsewhere, Placed)]
        beside = {one.worker.number for one in there if one.part == part}
        if part is None:
            return choose(self._worker_loads(), sorted(beside), pinned)
        allowed = [one for one in self._worker_loads() if one.number in pinned] or self._worker_loads()
        taken = {one.worker.number for one in there if one.part is not None and one.part != part and one.part[0] == part[0]}
        found = choose([one for one in allowed if one.number not in taken] or allowed, sorted(beside))
        return Choice(found.worker, f"{found.why}, as part {part[1] + 1} of {part[2]}")

    def _worker_loads(self) -> list[WorkerLoad]:
        return [WorkerLoad(w.number, self._loads[w.number], len(w.operators)) for w in self.workers]

    def _movable(self, running: RunningOperator) -> bytes | str:
        """Return what a worker must know to build an operator, or why it stays."""
        logic = running.logic
        if isinstance(running.recipe, SinkRecipe):
            return "results leave from here"
        if isinstance(running.recipe, FanOutRecipe):
            return "it hands rows on as they are"
        if isinstance(running.recipe, KeyMergeRecipe):
            return "the parts that it merges are in several workers"
        if any(q.sheds for q in self._network.queries_served(running.id)):
            return "rows of its class may be shed"
        if isinstance(logic, SharedAggregate) and logic.late_rule is not None:
            return "its periods follow the server's clock"
        if logic.stateful and not logic.state_fields:
            return f"the state of {kind_of(running.recipe)} cannot be sent"
        recipe = running.recipe
        if isinstance(logic, SharedAggregate) and isinstance(recipe, AggregateRecipe):  # a query that came later may ask for others
            recipe = replace(recipe, aggregates=logic.kept_calls)
        try:
            return about(recipe, [c.log.schema for c in running.inputs], isinstance(logic, SharedAggregate))
        except (pickle.PicklingError, TypeError, AttributeError):
            return "it calls a user's function, which has a process of its own"

    # --- moves ---

    def groups(self) -> list[list[RunningOperator]]:
        """Return the operators that are in workers, those of queries that share some together; each part of what is split by itself."""
        found: dict[int, list[RunningOperator]] = {}
        group_of: dict[OperatorId, int] = {}
        for query in list(self._network.queries.values()):
            parts: dict[Part, list[RunningOperator]] = {}
            for running in query.blueprint.operators:
                if isinstance(running.elsewhere, Placed):
                    parts.setdefault(running.elsewhere.part, []).append(running)
            for members in parts.values():
                joined = sorted({group_of[o.id] for o in members if o.id in group_of})
                name = joined[0] if joined else len(group_of)
                group = found.setdefault(name, [])
                for other in joined[1:]:
                    group += found.pop(other)
                group += [o for o in members if o.id not in group_of]
                group_of.update((o.id, name) for o in group)
        return list(found.values())

    def move(self, move: Move) -> bool:
        """Let groups go on in another worker; return whether any did. No order may run or begin meanwhile (`Runtime.still`)."""
        names, worker = set(move.names), self.workers[move.worker - 1]
        moved: dict[OperatorId, int] = {}
        try:
            for group in self.groups():
                if not names.isdisjoint(running.id for running in group):
                    self._move_group(group, worker, move.why, moved)
        finally:  # what has gone is there, even if another one could not
            if moved:
                self._network.version += 1  # chains are found anew: they know where their operators are
                if self.on_place is not None:
                    self.on_place(moved)
        return bool(moved)

    def _move_group(self, group: Sequence[RunningOperator], worker: Worker, why: str, moved: dict[OperatorId, int]) -> None:
        before = len(moved)
        for running in group:
            there = running.elsewhere
            if isinstance(there, Placed) and there.worker is not worker and there.installed.lost is None:
                there.move(worker, why)
                moved[running.id] = worker.number
        self.moves[worker.number] += len(moved) > before

    def _group_loads(self, span_ns: int) -> list[GroupLoad]:
        """Return the load of each group that may move, as it was of late."""
        costs: dict[OperatorId, tuple[int, float]] = {}
        loads: list[GroupLoad] = []
        for group in self.groups():
            load = 0.0
            for running in group:
                cost_ns = running.statistics.cost_ns
                before_ns, faded = self._costs.get(running.id, (cost_ns, 0.0))
                faded += (1.0 - FADE) * ((cost_ns - before_ns) / span_ns - faded)
                costs[running.id] = cost_ns, faded
                load += faded
            state_bytes = sum(running.held_bytes() for running in group)
            if state_bytes <= MOVED_BYTES_MAX:
                pinned = next((query.workers for query in self._network.queries_served(group[0].id)), ())
                loads.append(GroupLoad(group[0].id, worker_of(group[0]), load, pinned, state_bytes))
        self._costs = costs
        return loads

    # --- what they are like ---

    def look(self, now_ns: int) -> Move | None:
        """Note how busy each was since the last look; to be called now and then. Returns the move that is due (`move`), if one is."""
        busy = [0, *(w.busy_ns for w in self.workers)]
        due = None
        if self._looked is not None:
            before_ns, before = self._looked
            span = max(1, now_ns - before_ns)
            for number in range(1, len(busy)):
                load = (busy[number] - before[number]) / span
                self._loads[number] += (1.0 - FADE) * (load - self._loads[number])
            due = self._balance.look(self._worker_loads(), self._group_loads(span))
        self._looked = now_ns, busy
        return due

    def why(self, operator: OperatorId) -> str:
        """Return where an operator runs, and why."""
        running = self._network.operators.get(operator)
        if running is None:
            return "in the server"
        if isinstance(running.elsewhere, Placed):
            return running.elsewhere.why
        told = self._movable(running)
        return f"in the server, as {told}" if isinstance(told, str) else "in the server, until it is placed"

    def shown(self) -> list[tuple[Any, ...]]:
        """Return what SHOW WORKERS shows (`WORKER_COLUMNS`), by number."""
        by_worker: dict[int, list[RunningOperator]] = {}
        for running in list(self._network.operators.values()):
            by_worker.setdefault(worker_of(running), []).append(running)
        return [self._shown(worker, by_worker.get(worker.number, [])) for worker in self.workers]

    def _shown(self, worker: Worker, operators: Sequence[RunningOperator]) -> tuple[Any, ...]:
        queries = {q.node.id for o in operators for q in self._network.queries_served(o.id)}
        kept = sum(i.kept_bytes for i in list(worker.operators.values()))
        load_percent, state = round(100.0 * self._loads[worker.number], 1), sum(o.held_bytes() for o in operators)
        counts = len(queries), len(operators), load_percent, worker.calls, self.moves[worker.number], state, kept, worker.deaths
        return worker.number, worker.pid, *counts, worker.last_end or None

    def close(self) -> None:
        """End all processes."""
        self._network.placement = None
        for worker in self.workers:
            worker.close()
        self.segments.close()


def started(count: int, bounds: WorkerBounds) -> tuple[list[Worker], SharedSegments]:
    """Start so many workers; returns them and the segments that they share with the server. TooMany when the system starts no process."""
    from millstream.engine.runtime import crossing  # noqa: F401  which the first order would load

    load_kernels()
    segments = SharedSegments()
    return [Worker(number, bounds, segments) for number in range(1, count + 1)], segments


def _part(running: RunningOperator) -> Part:
    if isinstance(running.recipe, PartRecipe):
        found = {running.recipe}
    else:
        found = {recipe for cursor in running.inputs if (recipe := part_of(cursor)) is not None}
    parts = {(recipe.split, recipe.part, recipe.parts) for recipe in found}
    return parts.pop() if len(parts) == 1 else None


def worker_of(running: RunningOperator) -> int:
    """Return the number of the worker that an operator runs in, 0 for this process."""
    there: Any = running.elsewhere
    return there.worker.number if isinstance(there, Placed) else 0
