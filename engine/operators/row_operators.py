"""Operators that pass rows on one by one: selection, projection, split, union, unnest; and the sink at the end of a query.

Behind the first four a row of a stream still is one. They share how compiled expressions are evaluated inside an operator: the context, and
what becomes of row-level errors (K8).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
from millstream.engine.data.arrivals import latest_arrivals
from millstream.engine.data.arrow import column_from_arrow
from millstream.engine.data.column import Column, null_column, taken_or_null
from millstream.engine.data.schema import Schema
from millstream.engine.data.tally import Receipts
from millstream.engine.data.train import Int64Array, Slot, Train, empty_train, merge_trains
from millstream.engine.data.types import BIGINT, Kind
from millstream.engine.expressions.compile import compile_expression, compile_predicate
from millstream.engine.expressions.ir import ColumnRef
from millstream.engine.expressions.kernel import EvaluationContext, Kernel
from millstream.engine.language.recipes import (
    EVENT_TIME,
    FanOutRecipe,
    KeyMergeRecipe,
    ProjectRecipe,
    SelectRecipe,
    SinkRecipe,
    SplitRecipe,
    UnionRecipe,
    UnnestRecipe,
)
from millstream.engine.operators.contract import Emitter, EvaluationErrors, Operator
from millstream.engine.operators.outputs import MinimumWatermark


def context_of(train: Train) -> EvaluationContext:
    """Return the surroundings of an evaluation over a train: W just before each row, how many offered rows each stands for, its number."""
    tally = train.tally
    weights = None if tally is None else lambda: tally.weights_of(train.seq.array())
    return EvaluationContext(lambda: train.track.before(train.seq.array()), weights, train.seq.array)


def report_errors(context: EvaluationContext, train: Train, out: Emitter) -> None:
    """Pass on the rows at which operations failed."""
    for positions, reason in context.errors:
        out.errors.append(EvaluationErrors(reason, train.take(positions)))


class Select(Operator):
    """Stateless; columns of the rows kept are gathered when somebody asks for them."""

    stateful = False

    def __init__(self, recipe: SelectRecipe) -> None:
        super().__init__([recipe.schema])
        self._predicate = compile_predicate(recipe.condition)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Evaluate the condition once over the train."""
        train = inputs[0]
        if train.rows == 0:
            out.emit(train)
            return
        context = context_of(train)
        mask = self._predicate(train, context)
        if context.errors:
            report_errors(context, train, out)
        out.emit(train.select(mask))


class Project(Operator):
    """Stateless; one output column per expression."""

    stateful = False

    def __init__(self, recipe: ProjectRecipe) -> None:
        super().__init__([recipe.schema])
        self._columns: list[int | Kernel] = [e.position if isinstance(e, ColumnRef) else compile_expression(e) for e in recipe.columns]
        self._empty: list[Slot] = [null_column(f.type, 0) for f in recipe.schema.fields]

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Evaluate each expression over the train."""
        train = inputs[0]
        if train.rows == 0:
            out.emit(train.replace_columns(self.schemas[0], self._empty))
            return
        context = context_of(train)
        slots = [train.slot(c) if isinstance(c, int) else c(train, context) for c in self._columns]
        if context.errors:
            report_errors(context, train, out)
        out.emit(train.replace_columns(self.schemas[0], slots))


class Split(Operator):
    """Stateless, two outputs."""

    stateful = False

    def __init__(self, recipe: SplitRecipe) -> None:
        super().__init__([recipe.schema, recipe.schema])
        self._predicate = compile_predicate(recipe.condition)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Evaluate the condition once, send each row one way."""
        train = inputs[0]
        if train.rows == 0:
            out.emit(train, 0)
            out.emit(train, 1)
            return
        context = context_of(train)
        mask = self._predicate(train, context)
        if context.errors:
            report_errors(context, train, out)
        out.emit(train.select(mask), 0)
        out.emit(train.select(~mask), 1)


class Union(Operator):
    """Keeps only the watermark. Rows of equal arrival number come in order of the inputs."""

    state_name = "union"
    state_fields: tuple[str, ...] = ("_watermark",)

    def __init__(self, recipe: UnionRecipe) -> None:
        super().__init__([recipe.schema])
        self._watermark = MinimumWatermark(recipe.inputs)

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """Take up W where the inputs stand."""
        return self._watermark.attached(watermarks_us, idle)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Merge one interval."""
        track = self._watermark.advance(inputs)
        full = [t for t in inputs if t.rows]
        merged = self._merged(full) if full else empty_train(self.schemas[0], inputs[0].lo, inputs[0].hi, track)
        merged.track = track
        merged.arrival = latest_arrivals([t.arrival for t in inputs])
        merged.ended = all(t.ended for t in inputs)
        merged.idle = self._watermark.mark(inputs)
        merged.flush = any(t.flush for t in inputs) and self._watermark.all_idle
        out.emit(merged)

    def _merged(self, trains: Sequence[Train]) -> Train:
        """Return trains with rows as one."""
        if len(trains) == 1:
            return trains[0].replace_columns(self.schemas[0], [trains[0].slot(i) for i in range(len(self.schemas[0]))])
        order = np.argsort(np.concatenate([t.seq.array() for t in trains]), kind="stable")
        return merge_trains(trains, self.schemas[0], order)


class FanOut(Operator):
    """Stateless; the rows are not looked at."""

    stateful = False

    def __init__(self, recipe: FanOutRecipe) -> None:
        super().__init__([recipe.schema])

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Hand on."""
        out.emit(inputs[0])


class KeyMerge(Union):
    """What the parts of a split operator put out, in the order of the whole one."""

    state_name = "key_merge"

    def __init__(self, recipe: KeyMergeRecipe, inputs: Sequence[Schema]) -> None:
        super().__init__(UnionRecipe(recipe.schema, recipe.inputs))
        self._schema = inputs[0]
        self._order, self._kept = recipe.order, recipe.kept

    def _merged(self, trains: Sequence[Train]) -> Train:
        merged = trains[0]
        if len(trains) > 1:
            last_first = [[_numbers(t, position) for t in trains] for position in reversed(self._order)]
            last_first.append([t.seq.array() for t in trains])
            merged = merge_trains(trains, self._schema, np.lexsort([np.concatenate(parts) for parts in last_first]))
        return merged.replace_columns(self.schemas[0], [merged.slot(i) for i in self._kept])


def _numbers(train: Train, position: int | tuple[int, ...]) -> Int64Array:
    if isinstance(position, tuple):
        least: Int64Array = np.minimum.reduce([train.column(one).values for one in position])
        return least
    found: Int64Array = train.time.array() if position == EVENT_TIME else train.column(position).values
    return found


class Unnest(Operator):
    """Stateless. The items of a row carry its arrival number and its time, in their order."""

    stateful = False

    def __init__(self, recipe: UnnestRecipe) -> None:
        super().__init__([recipe.schema])
        self._items = compile_expression(recipe.items)
        self._is_map = recipe.items.type.kind is Kind.MAP
        self._numbered, self._outer = recipe.numbered, recipe.outer
        made = (2 if self._is_map else 1) + recipe.numbered
        self._types = [f.type for f in recipe.schema.fields[-made:]]

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Repeat each row as often as it has items."""
        train = inputs[0]
        width = len(self.schemas[0]) - len(self._types)
        if train.rows == 0:
            empty: list[Slot] = [null_column(type_, 0) for type_ in self._types]
            out.emit(train.replace_columns(self.schemas[0], [*(train.slot(i) for i in range(width)), *empty]))
            return
        context = context_of(train)
        column = self._items(train, context)
        if context.errors:
            report_errors(context, train, out)
        parts, offsets = self._parts(column)
        lengths = np.diff(offsets).astype(np.int64)
        repeats = np.maximum(lengths, 1) if self._outer else lengths
        rows = np.repeat(np.arange(train.rows, dtype=np.int64), repeats)
        firsts = np.cumsum(repeats) - repeats
        place = np.arange(len(rows), dtype=np.int64) - np.repeat(firsts, repeats)  # of each within its list
        at = np.where(place < lengths[rows], place + offsets[:-1][rows], -1)
        made = [taken_or_null(part, at) for part in parts]
        if self._numbered:
            given = at >= 0
            made.append(Column(BIGINT, place + 1, None if given.all() else given))
        repeated = train.take(rows)
        out.emit(repeated.replace_columns(self.schemas[0], [*(repeated.slot(i) for i in range(width)), *made]))

    def _parts(self, column: Column) -> tuple[list[Column], np.ndarray[tuple[int], np.dtype[np.int32]]]:
        """Return the items of all lists (the keys and the values of all maps) and where each list begins among them."""
        from millstream.engine.expressions.nested_values import entries_of, offsets_of

        if self._is_map:
            keys, values, offsets = entries_of(column.values)
            return [column_from_arrow(part, t) for part, t in zip((keys, values), self._types, strict=False)], offsets
        flat = column.values.flatten()
        return [column_from_arrow(flat, self._types[0])], offsets_of(column.values)


class Sink(Operator):
    """No outputs. `deliver` gets trains with rows, and the one that ends the answer; in order, from worker threads.

    Counted as stateful, so that two workers never deliver at once.
    """

    def __init__(self, recipe: SinkRecipe, deliver: Callable[[Train], None] | None) -> None:
        super().__init__([])
        self._deliver = deliver
        self._receipts: Receipts | None = None  # from the first train on that tells what it was offered

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Deliver what has rows or ends, with its receipt where load may be shed."""
        train = inputs[0]
        if train.tally is not None:
            self._receipts = self._receipts or Receipts()
            self._receipts.add(train.tally)
        if self._receipts is not None and (train.rows or train.ended):
            notes = {**(train.notes or {}), **self._receipts.take(train.receipts)}
            train = copy.copy(train)
            train.notes = notes
        if self._deliver is not None and (train.rows or train.ended):
            self._deliver(train)
