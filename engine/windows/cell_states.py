"""Which states the calls of an operator keep, and those states over cells: the rows of one group at one instant, or of one open session.

A cell is folded row after row; a window over several cells is their states merged in order of time. Equal states of several calls are
kept once. (Panes × groups are cells too, in grids: `pane_states.py`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.aggregates.contract import Rows, StateKind, null_unless
from millstream.engine.aggregates.sums import COUNTS
from millstream.engine.aggregates.table import aggregate_of
from millstream.engine.data.buffered import BufferedRows
from millstream.engine.data.column import Column, counted_rows
from millstream.engine.data.errors import Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.types import NULL, DataType
from millstream.engine.language.recipes import AggregateCall

Int64Array = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class StatePart:
    """What of its input an operator keeps a state of: the kind, the argument's column (None for COUNT(*)), the mask column of a FILTER."""

    kind: StateKind
    position: int | None
    filter: int | None
    takes_nulls: bool = False


def state_parts(call: AggregateCall, inputs: Schema) -> tuple[StatePart, ...]:
    """Return the states of a call that is kept as such, in the order in which its aggregate wants them."""
    aggregate = aggregate_of(call.function)
    position = call.arguments[0] if call.arguments else None
    if position is None and call.function != "count":
        raise Unsupported(f"{call.function.upper()} needs an argument")
    assert aggregate.states is not None
    kinds = aggregate.states(argument_type(call, inputs))
    return tuple(StatePart(kind, position, call.filter, aggregate.takes_nulls) for kind in kinds)


def argument_type(call: AggregateCall, inputs: Schema) -> DataType:
    """Return the type of a call's argument, NULL's where it has none."""
    return inputs.fields[call.arguments[0]].type if call.arguments else NULL


def counts_part(call: AggregateCall) -> StatePart | None:
    """Return what counts the rows without which a call's answer is NULL; None where its own states tell."""
    if not aggregate_of(call.function).counted:
        return None
    return StatePart(COUNTS, call.arguments[0] if call.arguments else None, call.filter)


class CellStates:
    """What is kept of each cell: `parts` says of what, an array of states for each."""

    def __init__(self, calls: Sequence[AggregateCall], inputs: Schema) -> None:
        self.parts: list[StatePart] = []
        self._inputs = inputs
        self._calls = tuple(calls)
        self._places = [[self._place(part) for part in (*state_parts(call, inputs), *_counting(call))] for call in calls]

    def _place(self, part: StatePart) -> int:
        if part not in self.parts:
            self.parts.append(part)
        return self.parts.index(part)

    def lifted(self, rows: BufferedRows, cells: Int64Array, count: int) -> list[Array]:
        """Return the states of `count` cells of rows; `cells` is the cell of each row, rising."""
        return self._folded(rows, cells, [part.kind.fresh(count) for part in self.parts])

    def continued(self, rows: BufferedRows, cells: Int64Array, count: int, carried: Int64Array, before: Sequence[Array]) -> list[Array]:
        """As `lifted`, where the cells `carried` had the states `before` already, onto which their rows are folded."""
        states = [part.kind.fresh(count) for part in self.parts]
        for state, old in zip(states, before, strict=True):
            state[carried] = old
        return self._folded(rows, cells, states)

    def _folded(self, rows: BufferedRows, cells: Int64Array, states: list[Array]) -> list[Array]:
        found: dict[tuple[int | None, int | None, bool], Rows] = {}
        for part, state in zip(self.parts, states, strict=True):
            key = (part.position, part.filter, part.takes_nulls)
            if key not in found:
                found[key] = _chosen(rows, cells, *key)
            part.kind.fold(state, found[key])
        return states

    def answer(self, states: Sequence[Array]) -> list[Column]:
        """Return the columns of the calls."""
        return [self._answer(call, [states[i] for i in places]) for call, places in zip(self._calls, self._places, strict=True)]

    def _answer(self, call: AggregateCall, states: list[Array]) -> Column:
        aggregate = aggregate_of(call.function)
        assert aggregate.answer is not None
        counts = states.pop() if aggregate.counted else None
        column = aggregate.answer(call, argument_type(call, self._inputs), states)
        return column if counts is None else null_unless(column, counts > 0)


def _counting(call: AggregateCall) -> tuple[StatePart, ...]:
    part = counts_part(call)
    return () if part is None else (part,)


def _chosen(rows: BufferedRows, cells: Int64Array, position: int | None, filter_: int | None, takes_nulls: bool) -> Rows:
    """Return the rows that count: argument not NULL and FILTER true."""
    column = None if position is None else rows.columns[position]
    mask = counted_rows(None if takes_nulls else column, None if filter_ is None else rows.columns[filter_])
    if mask is None or mask.all():
        return Rows(cells, column, lambda: (rows.time, rows.ordinal))
    kept = None if column is None else column.filter(mask)
    return Rows(cells[mask], kept, lambda: (rows.time[mask], rows.ordinal[mask]))
