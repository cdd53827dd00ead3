"""A copy of a running query that is run to its end: what its windows hold now, as the answer they would give if the inputs ended here.

`take` copies state and what waits in the queues while no operator of the query runs and no row enters (the caller sees to both), so
the copy stands at one point in arrival order. `Fork.finish` may then run anywhere: it shares nothing with the running query but
immutable rows. What it answers is exactly what the query has not yet answered about the rows up to that point.

Of a query that gives changes the copy answers with the rows that stand: all that was given with '+' and not taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from millstream.engine.data.errors import InvalidDefinition, Unsupported
from millstream.engine.data.graph import EdgeId, LogId, OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train, empty_train
from millstream.engine.data.types import DataType
from millstream.engine.data.watermarks import TIME_MAX, jump_track
from millstream.engine.flow.cursors import Cursor, LogNode
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.running import ALL_ROWS, RunningOperator, emitted
from millstream.engine.language import recipes
from millstream.engine.operators.build import build_operator, kind_of
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.runtime.blueprint import Blueprint
from millstream.engine.state.forms import Buffer, state_record
from millstream.engine.synopses.shared_aggregate import SharedAggregate

Deliver = Callable[[Train], None]
Belonging = tuple[recipes.Recipe | None, tuple[tuple[DataType, ...], ...], int]


@dataclass(frozen=True, slots=True)
class _Input:
    log: LogId
    edge: EdgeId
    position: int
    from_seq: int
    waiting: tuple[Train, ...]


@dataclass(frozen=True, slots=True)
class _Output:
    log: LogId
    schema: Schema
    hi: int
    watermark_us: int
    idle: bool
    ended: bool
    quiet: bool


@dataclass(frozen=True, slots=True)
class _Piece:
    id: OperatorId
    recipe: recipes.Recipe
    state: bytes
    belongs_to: Belonging
    inputs: tuple[_Input, ...]
    outputs: tuple[_Output, ...]
    shared: bool


@state_record("operator_state", 1)
@dataclass(frozen=True, slots=True)
class OperatorState:
    """What a running operator was asked and what it held, and where W stands on each of its outputs and whether that is idle.

    `recipe`, and the types of its inputs' columns, say what the state belongs to; of an operator without state they are None and ().
    """

    recipe: recipes.Recipe | None
    inputs: tuple[tuple[DataType, ...], ...]
    snapshot: Buffer
    outputs: tuple[tuple[int, bool], ...]


class Fork:
    """The copy. `at` is the arrival number of the first row that it does not know of."""

    def __init__(self, pieces: Sequence[_Piece], parts: Sequence[tuple[OperatorId, ...]], external: Sequence[_Output], at: int) -> None:
        self._pieces = pieces
        self._parts = parts
        self._external = external
        self.at = at

    def finish(self, *, changes: bool = False) -> list[Train]:
        """Run the copy to the end of its inputs and return the result trains.

        `changes`: the query gives changes, so its standing rows are wanted. Unsupported where its operators do not know them.
        """
        answer: list[Train] = []
        last = self._parts[-1]
        logs, operators = self._built(lambda piece: answer.append if piece.id in last else None)
        ends = [logs[o.log] for o in self._external if not o.ended]
        producer = _Ended(self.at + len(ends))
        for output in self._external:
            logs[output.log].producer = producer
        for place, log in enumerate(ends):
            seq = self.at + place
            track = jump_track(log.hi, seq + 1, log.watermark_us, seq, TIME_MAX)
            log.push(LogNode(empty_train(log.schema, log.hi, seq + 1, track, ended=True), log))
        if changes:
            self._stand(operators)
        else:
            for operator in operators:
                _run(operator)
        return [t for t in answer if t.rows]

    def advance(self) -> tuple[list[list[OperatorState]], dict[str, int]]:
        """Work off what waits and return the states then, a list a blueprint, and the result rows that this gave, by query."""
        given: dict[str, int] = {}

        def counted(piece: _Piece) -> Callable[[Train], None]:
            name = piece.recipe.query if isinstance(piece.recipe, recipes.SinkRecipe) else ""

            def count(train: Train) -> None:
                given[name] = given.get(name, 0) + train.rows

            return count

        if not any(given.waiting for piece in self._pieces for given in piece.inputs):  # what was copied is what holds
            kept = {piece.id: _kept_state(piece) for piece in self._pieces}
            return [[kept[id_] for id_ in part] for part in self._parts], given
        logs, operators = self._built(counted)
        producer = _Ended(self.at)
        for output in self._external:
            logs[output.log].producer = producer
        states = {o.id: _state_of(o, p, changed=_run(o)) for o, p in zip(operators, self._pieces, strict=True)}
        return [[states[id_] for id_ in part] for part in self._parts], given

    def _built(self, deliver: Callable[[_Piece], Deliver | None]) -> tuple[dict[LogId, OutputLog], list[RunningOperator]]:
        logs, cursors = self._filled_logs()
        return logs, [_operator(piece, logs, cursors, deliver) for piece in self._pieces]

    def _filled_logs(self) -> tuple[dict[LogId, OutputLog], dict[EdgeId, Cursor]]:
        readers: dict[LogId, list[_Input]] = {}
        for piece in self._pieces:
            for given in piece.inputs:
                readers.setdefault(given.log, []).append(given)
        logs: dict[LogId, OutputLog] = {}
        cursors: dict[EdgeId, Cursor] = {}
        for output in (*self._external, *(o for p in self._pieces for o in p.outputs)):
            logs[output.log] = _filled_log(output, readers.get(output.log, []), cursors)
        return logs, cursors

    def _stand(self, operators: list[RunningOperator]) -> None:
        """Fold what waits, then put the standing rows of the operator that gives changes through what follows it.

        Of several it is the one that takes what all others give.
        """
        givers = [o for o, p in zip(operators, self._pieces, strict=True) if _gives_changes(p.recipe)]
        after = operators[operators.index(givers[-1]) + 1 :] if givers else []
        standing = None
        if givers and _feeds_all(givers, operators) and not any(o.logic.stateful and o.outputs for o in after):
            for operator in operators[: operators.index(givers[-1]) + 1]:
                _run(operator)
            log = givers[-1].outputs[0]
            standing = _knowing(givers[-1], operators).logic.standing(log.hi, log.watermark_us)
        if standing is None:
            raise Unsupported(
                "the query's operators do not know which rows of these changes are current",
                hint="name the query, and FETCH SELECT * FROM its name",
            )
        for operator in after:
            for cursor in operator.inputs:
                while cursor.take(ALL_ROWS) is not None:
                    """What was given before is part of the standing rows."""
        log.push(LogNode(standing, log))
        for operator in after:
            _run(operator)


def take(blueprints: Sequence[Blueprint], at: int) -> Fork:
    """Copy the queries of these blueprints (those whose rows others read first), as of the arrival number `at`.

    No operator of them may run meanwhile, and no row enter.
    """
    pieces = {operator.id: _piece(operator) for blueprint in blueprints for operator in blueprint.operators}
    inside = {o.log for p in pieces.values() for o in p.outputs}
    external: dict[LogId, _Output] = {}
    for blueprint in blueprints:
        for operator in blueprint.operators:
            for cursor in operator.inputs:
                if cursor.log.id not in inside:
                    external.setdefault(cursor.log.id, _output(cursor.log))
    parts = [tuple(operator.id for operator in blueprint.operators) for blueprint in blueprints]
    return Fork(tuple(pieces.values()), parts, tuple(external.values()), at)


def restore(blueprint: Blueprint, states: Sequence[OperatorState]) -> None:
    """Let operators that were attached anew take up what `advance` gave. InvalidDefinition when the plan is another one."""
    if [_belongs_to(o) for o in blueprint.operators] != [(s.recipe, s.inputs, len(s.outputs)) for s in states]:
        raise InvalidDefinition("the plan has other operators than the one whose state was kept")
    found = [operator.logic.read(state.snapshot) for operator, state in zip(blueprint.operators, states, strict=True)]
    for operator, fields, state in zip(blueprint.operators, found, states, strict=True):
        operator.restore(state.snapshot, fields)
        for log, (watermark_us, idle) in zip(operator.outputs, state.outputs, strict=True):
            log.watermark_us, log.idle = watermark_us, idle


def _kept_state(piece: _Piece) -> OperatorState:
    recipe, inputs, _ = piece.belongs_to
    return OperatorState(recipe, inputs, piece.state, tuple((output.watermark_us, output.idle) for output in piece.outputs))


def _state_of(operator: RunningOperator, piece: _Piece, *, changed: bool) -> OperatorState:
    """Return what an operator of the copy holds; what it was copied from is as good where it had nothing to do."""
    recipe, inputs, _ = piece.belongs_to
    snapshot = operator.logic.snapshot() if changed else piece.state
    return OperatorState(recipe, inputs, snapshot, tuple((log.watermark_us, log.idle) for log in operator.outputs))


def _belongs_to(operator: RunningOperator) -> Belonging:
    """Return what an operator's state depends on: its recipe, save for a condition that it asks of each row, and the types it reads."""
    outputs = len(operator.outputs)
    if not operator.logic.state_fields:
        return None, (), outputs
    recipe = operator.recipe
    if isinstance(recipe, recipes.KeyedJoinRecipe):
        recipe = replace(recipe, residual=None)
    if isinstance(recipe, recipes.MatchRecipe):
        recipe = replace(recipe, spec=replace(recipe.spec, conditions=()))
    if isinstance(recipe, recipes.TableSubqueryRecipe):
        recipe = replace(recipe, steps=())  # they make nothing that is kept
    return recipe, tuple(tuple(field.type for field in cursor.log.schema.fields) for cursor in operator.inputs), outputs


def _piece(operator: RunningOperator) -> _Piece:
    logic = operator.logic
    if logic.stateful and not logic.state_fields and not isinstance(operator.recipe, recipes.SinkRecipe):
        raise Unsupported(f"the state of {kind_of(operator.recipe)} cannot be copied")
    inputs = tuple(_Input(c.log.id, c.edge, c.position, c.from_seq, tuple(c.waiting())) for c in operator.inputs)
    shared = isinstance(logic, SharedAggregate)
    outputs = tuple(_output(log) for log in operator.outputs)
    return _Piece(operator.id, operator.recipe, bytes(operator.snapshot()), _belongs_to(operator), inputs, outputs, shared)


def _output(log: OutputLog) -> _Output:
    return _Output(log.id, log.schema, log.hi, log.watermark_us, log.idle, log.ended, log.quiet)


class _Ended:
    """Whoever filled a log that has ended: nothing below `upto` comes any more."""

    def __init__(self, upto: int) -> None:
        self._upto = upto

    def frontier(self, log: OutputLog) -> int:
        """Return how far the copy goes."""
        return max(self._upto, log.hi)


def _filled_log(output: _Output, readers: list[_Input], cursors: dict[EdgeId, Cursor]) -> OutputLog:
    """Return a log that holds what its readers have yet to take, each standing where it stood."""
    readers = sorted(readers, key=lambda r: min(r.position, output.hi))
    first = readers[0] if readers else None
    lo = output.hi if first is None else min(first.position, output.hi)
    watermark_us = first.waiting[0].track.start if first is not None and first.waiting else output.watermark_us
    log = OutputLog(output.log, output.schema, hi=lo, watermark_us=watermark_us)
    log.idle, log.quiet = output.idle, output.quiet
    trains = list(first.waiting) if first is not None else []
    for reader in readers:
        trains = _push_below(log, trains, min(reader.position, output.hi))
        cursor = log.open_cursor(reader.edge, from_seq=reader.from_seq)
        cursor.position = reader.position
        cursors[reader.edge] = cursor
    _push_below(log, trains, output.hi)
    log.hi, log.watermark_us, log.idle, log.ended = output.hi, output.watermark_us, output.idle, output.ended
    return log


def _push_below(log: OutputLog, trains: list[Train], upto: int) -> list[Train]:
    """Push the trains that end at `upto` or below it, cutting the one that reaches beyond; return the rest."""
    while trains and trains[0].lo < upto:
        train = trains.pop(0)
        if train.hi > upto:
            train, rest = train.split_at(upto)
            trains.insert(0, rest)
        log.push(LogNode(train if log.quiet else train.over(log.hi, train.hi), log))
    return trains


def _operator(
    piece: _Piece, logs: dict[LogId, OutputLog], cursors: dict[EdgeId, Cursor], deliver: Callable[[_Piece], Deliver | None]
) -> RunningOperator:
    """Build the operator with its state, its inputs and outputs."""
    schemas = [logs[i.log].schema for i in piece.inputs]
    if piece.shared and isinstance(piece.recipe, recipes.AggregateRecipe):
        logic: Operator = SharedAggregate(piece.recipe, schemas[0])
    else:
        logic = build_operator(piece.recipe, schemas, deliver(piece))
    logic.restore(piece.state)
    operator = RunningOperator(piece.id, logic, piece.recipe)
    operator.inputs += [cursors[given.edge] for given in piece.inputs]
    for output in piece.outputs:
        logs[output.log].producer = operator
        operator.outputs.append(logs[output.log])
    return operator


def _run(operator: RunningOperator) -> bool:
    """Let an operator take all that it can; return whether that was anything."""
    ran = False
    with np.errstate(all="ignore"):
        while (call := operator.begin(ALL_ROWS)) is not None:
            out = Emitter(len(operator.outputs))
            operator.logic.process([t.train for t in call.taken], out)
            operator.finish(call, emitted(operator, [t.train for t in call.taken], out))
            ran = True
    return ran


def _feeds_all(givers: Sequence[RunningOperator], operators: Sequence[RunningOperator]) -> bool:
    """Whether what these operators give goes into the last of them."""
    makers = {log.id: operator for operator in operators for log in operator.outputs}
    pending, below = [givers[-1]], set[OperatorId]()
    while pending:
        operator = pending.pop()
        below.add(operator.id)
        pending += [makers[cursor.log.id] for cursor in operator.inputs if cursor.log.id in makers]
    return all(giver.id in below for giver in givers)


def _knowing(giver: RunningOperator, operators: Sequence[RunningOperator]) -> RunningOperator:
    """Return the operator that knows the rows which stand after the changes of another: of a view the one that keeps its rows."""
    if not isinstance(giver.recipe, recipes.ViewChangesRecipe):
        return giver
    return next((o for o in operators if giver.inputs[0].log in o.outputs), giver)


_CHANGING = (
    recipes.TableChangesRecipe,
    recipes.ViewChangesRecipe,
    recipes.ChangeJoinRecipe,
    recipes.ChangingTopRecipe,
    recipes.StandingRowsRecipe,
    recipes.KeptRowsRecipe,
)


def _gives_changes(recipe: recipes.Recipe) -> bool:
    if isinstance(recipe, _CHANGING):
        return True
    if isinstance(recipe, recipes.AggregateRecipe):
        return recipe.emit.kind is recipes.EmitKind.CHANGES
    return isinstance(recipe, recipes.RunningTopRecipe) or (isinstance(recipe, recipes.WindowRecipe) and recipe.changes)
