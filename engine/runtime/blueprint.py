"""All that one query needs, as planned (`Blueprint`) and in force (`RunningQuery`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from millstream.engine.data.graph import Edge, EdgeId, LogId, OperatorId, OperatorNode, QueryNode
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Train
from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.data.work import EdgeStart
from millstream.engine.flow.accounts import StreamLedger
from millstream.engine.flow.cursors import Cursor
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.running import RunningOperator
from millstream.engine.flow.shedding import ShedLog
from millstream.engine.language.recipes import KeptRowsRecipe, SinkRecipe, StandingRowsRecipe
from millstream.engine.operators.build import build_operator
from millstream.engine.operators.window_aggregate import WindowAggregate
from millstream.engine.runtime.branches import Branches
from millstream.engine.sharing.registry import Port, Shared, SharedOutput, Wire
from millstream.engine.sharing.splicing import awaken, put_in_force

if TYPE_CHECKING:
    from millstream.engine.flow.replay import PastSources


@dataclass(slots=True)
class Blueprint:
    """All that one query needs, ready to be attached.

    `operators` are all that serve it, children before parents; `used` those among them that run already. `subscriptions` are its outputs
    of shared aggregates, `offers` what others may share once it is in force, `awaken` logs that must carry progress from now on.
    """

    query: QueryNode
    root: Port
    operators: list[RunningOperator]
    wires: list[Wire]
    nodes: tuple[OperatorNode, ...]
    edges: tuple[Edge, ...]
    source_nodes: tuple[OperatorNode, ...]
    streams: frozenset[str]
    base_streams: frozenset[str]
    used: list[RunningOperator] = field(default_factory=list)
    subscriptions: list[SharedOutput] = field(default_factory=list)
    offers: list[Shared] = field(default_factory=list)
    awaken: list[OutputLog] = field(default_factory=list)
    with_state: list[Shared] = field(default_factory=list)
    history: bool = False

    @property
    def keeper(self) -> RunningOperator | None:
        """The operator that keeps the rows of a materialized view; None of another query."""
        keeps = (o for o in self.operators if o.id == self.root.producer and isinstance(o.recipe, StandingRowsRecipe | KeptRowsRecipe))
        return next(keeps, None)

    @property
    def external_logs(self) -> list[OutputLog]:
        """Logs of streams that the query reads."""
        return [w.port.log for w in self.wires if w.stream is not None] + [c.log for _, c in self.stream_cursors()]

    @property
    def ports(self) -> tuple[tuple[OperatorId, LogId], ...]:
        """New outputs of operators that run already."""
        return tuple((s.running.id, s.log.id) for s in self.subscriptions if s.running in self.used)

    def attach(
        self, at: int, is_idle: Callable[[frozenset[str]], bool], newest_us: int | None = None
    ) -> tuple[tuple[EdgeId, EdgeStart], ...]:
        """Open all cursors at the arrival number `at`; return for each edge on a log that existed before where it begins.

        `newest_us` is the greatest event time that its base streams have seen, `is_idle` tells of base streams whether all of them are
        idle at `at`: logs that this query shares may not have come so far, and what they still hold from before is not for it.
        """
        before: list[tuple[EdgeId, EdgeStart]] = []
        used = {running.id for running in self.used}
        for log in self.awaken:
            awaken(log)
        for running in self.operators:
            if running.id not in used:
                before.extend(self._attach_operator(running, used, at, is_idle, newest_us))
            for subscription in self.subscriptions:
                if subscription.running is running:
                    readers = [w.consumer for w in self.wires if w.port.log is subscription.log]
                    subscription.log.sink = readers[0] if len(readers) == 1 and isinstance(readers[0].recipe, SinkRecipe) else None
                    put_in_force(subscription, at, newest_us)
        return tuple(before)

    def _attach_operator(
        self, running: RunningOperator, used: set[OperatorId], at: int, is_idle: Callable[[frozenset[str]], bool], newest_us: int | None
    ) -> list[tuple[EdgeId, EdgeStart]]:
        before: list[tuple[EdgeId, EdgeStart]] = []
        wires = [w for w in self.wires if w.consumer is running]
        for wire in wires:
            begins = at if wire.port.keeper is None else min(at, wire.port.log.hi)  # what the view has not put out yet is to be seen
            cursor = wire.port.log.open_cursor(wire.edge, from_seq=begins)
            cursor.position = min(cursor.position, at) if is_table(wire) else max(cursor.position, at)
            running.inputs.append(cursor)
            if wire.stream is not None:
                running.external.append((wire.stream, cursor))
            if wire.stream is not None or wire.port.producer in used:
                log = wire.port.log
                before.append((wire.edge, EdgeStart(log.rows_total, log.controls_total if wire.port.source is not None else None)))
        idle = [is_idle(w.port.base_streams) for w in wires]
        watermark = running.logic.attached([w.port.log.watermark_us for w in wires], idle)
        if isinstance(running.logic, WindowAggregate):
            running.logic.began(newest_us, only_whole=self.history)
        for place, wire in enumerate(wires):
            source = wire.port.source
            if source is not None and source.table is not None:
                running.logic.preload(place, source.table.content(at))
            if wire.port.keeper is not None:
                running.logic.preload(place, standing_of(wire.port.keeper, at))
        for log in running.outputs:
            log.hi, log.watermark_us = at, watermark
            log.idle = is_idle(frozenset[str]().union(*(w.port.base_streams for w in wires)))
        return before

    def stream_cursors(self) -> list[tuple[str, Cursor]]:
        """Return the cursors on external logs with the stream's name."""
        return [pair for running in self.operators for pair in running.external]


def standing_of(keeper: RunningOperator, at: int) -> Train:
    """Return the rows of a view as '+' changes that came just before the arrival number `at`. The operator must not run meanwhile."""
    logic = keeper.logic
    if keeper.elsewhere is not None:
        logic = build_operator(keeper.recipe, [cursor.log.schema for cursor in keeper.inputs])
        logic.restore(keeper.snapshot())
    found = logic.standing(at - 1, TIME_MIN)
    assert found is not None
    return found


def is_table(wire: Wire) -> bool:
    """Whether an input is a table: of its log a query sees changes alone, so one that begins in the past stands before all of them."""
    return wire.port.source is not None and wire.port.source.table is not None


@dataclass(slots=True)
class RunningQuery:
    """A query with its operators (post-order, without sources) and the ledgers of its input streams.

    It sees rows from `from_seq` on, those below `until_seq` once another plan has taken the others over. `rows_before` are the rows that
    its operators had taken when it came. `bytes_max` is the bound on its memory where it has one of its own, `results_bytes` tells what
    its results occupy that the owner keeps. `failed`: it has ended and is about to be taken out.
    `shed_logs`: where rows are shed before it, or before a derived stream or view that it reads. `holds_up`: it reads rows before which
    nothing can be shed, so that publishers wait while it lags. `past`:
    sources of its own that it reads, None where it reads the live ones. `workers`: those that its class names, none for all.
    """

    node: QueryNode
    blueprint: Blueprint
    attached: bool = False
    from_seq: int = 0
    until_seq: int | None = None
    ledgers: dict[str, StreamLedger] = field(default_factory=dict)
    rows_before: dict[OperatorId, int] = field(default_factory=dict)
    branches: Branches | None = None
    bytes_max: int | None = None
    results_bytes: Callable[[], int] = int
    failed: bool = False
    shed_logs: tuple[ShedLog, ...] = ()
    holds_up: bool = True
    past: PastSources | None = None
    workers: tuple[int, ...] = ()

    @property
    def sheds(self) -> bool:
        """Whether rows may be shed before it, or before what it reads, in whatever class it is itself: then its results have receipts."""
        return self.blueprint.root.lineages > 0

    def abandon(self) -> None:
        """Do no more work for it, a call under way included: it is about to be taken out. From any thread."""
        self.failed = True
        for running in self.blueprint.operators:
            if running.queries <= 1:
                running.failed = True
