"""A chain of selections and projections over a few rows, as one Python function of a row's values.

A row that comes alone meets a dozen calls of NumPy or Arrow in a chain, each of which takes as long whether it has one value to look at
or a thousand. So for rows whose values are still Python's own (`CellColumn`) the same expressions are written down as one function,
which takes a microsecond or two. It knows what Python and NumPy answer alike (`program_writer.py`). Where a DOUBLE becomes NaN it gives
up, as the sign of one may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from millstream.engine.data.column import CellColumn, null_column
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Selection, Slot, Train
from millstream.engine.data.types import DataType, Kind
from millstream.engine.expressions.compile import fold
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal
from millstream.engine.expressions.program_writer import ChainStage, LeftToKernels, RowWriter

ROWS_MAX = 16  # with more, the kernels cost as little

Outcome = int | tuple[Any, ...] | None
"""Of one row: the number of stages it passed, or the computed columns of one that passed all; None: ask the kernels."""

Program = Callable[..., Outcome]


class RowChain:
    """The chain over trains of a few rows. Columns that leave it are entering ones (`width` of them) or computed."""

    def __init__(self, stages: Sequence[ChainStage], columns: Sequence[Expression], width: int, schema: Schema) -> None:
        self._stages = stages
        self._columns = columns
        self._width = width
        self._schema = schema
        self._empty: list[Slot] = [null_column(f.type, 0) for f in schema.fields]
        self._program: Program | None = None
        self._reads: tuple[int, ...] = ()
        self._is_known = False  # whether there is a program: it is written when the first few rows come
        # Of each column that leaves: its place among the entering ones, or ~place among the computed ones, and its type.
        self._leaving: list[tuple[int, DataType]] = []

    def run(self, train: Train) -> tuple[Train, list[int]] | None:
        """Return what `FusedProgram.run` does; None where it cannot be told this way."""
        program = self._program
        if program is None and (program := self._write()) is None:
            return None
        entering = train.slots
        for position in self._reads:
            if type(entering[position]) is not CellColumn:
                return None
        cells = [entering[position].cells for position in self._reads]  # type: ignore[union-attr]
        if train.rows == 1:
            return self._leave_alone(train, program(*[cell for (cell,) in cells]))
        return self._leave_together(train, [program(*row) for row in zip(*cells, strict=True)])

    def _write(self) -> Program | None:
        """Write the program, once; threads that race write the same, and none sees it before all that belongs to it."""
        if self._is_known:
            return self._program
        computed: list[Expression] = []
        leaving: list[tuple[int, DataType]] = []
        for e in self._columns:
            if isinstance(e, ColumnRef) and e.position < self._width:
                leaving.append((e.position, e.type))
            else:
                leaving.append((~len(computed), e.type))
                computed.append(e)
        program, self._reads = _written(self._stages, computed, self._width)
        self._leaving = leaving
        self._program = program
        self._is_known = True
        return program

    def _leave_alone(self, train: Train, outcome: Outcome) -> tuple[Train, list[int]] | None:
        if type(outcome) is tuple:
            entering = train.slots
            slots = [entering[at] if at >= 0 else CellColumn(type_, (outcome[~at],)) for at, type_ in self._leaving]
            return train.replace_columns(self._schema, slots), [1] * len(self._stages)
        if outcome is None:
            return None
        assert type(outcome) is int
        return train.picked(_NOTHING, self._schema, self._empty), [1] * outcome + [0] * (len(self._stages) - outcome)

    def _leave_together(self, train: Train, outcomes: Sequence[Outcome]) -> tuple[Train, list[int]] | None:
        stopped = [0] * len(self._stages)
        passed: list[tuple[Any, ...]] = []
        kept: list[int] = []
        for row, outcome in enumerate(outcomes):
            if outcome is None:
                return None
            if type(outcome) is int:
                stopped[outcome] += 1
            elif type(outcome) is tuple:
                passed.append(outcome)
                kept.append(row)
        counts = [len(outcomes) - gone for gone in accumulate(stopped)]
        if not passed:
            return train.picked(_NOTHING, self._schema, self._empty), counts
        computed = list(zip(*passed, strict=True))
        selection = None if len(passed) == len(outcomes) else Selection(np.array(kept, dtype=np.int64))
        slots: list[Slot] = []
        for at, type_ in self._leaving:
            if at < 0:
                slots.append(CellColumn(type_, computed[~at]))
            else:
                slots.append(train.slot(at) if selection is None else train.deferred(at, selection))
        made = train.replace_columns(self._schema, slots) if selection is None else train.picked(selection, self._schema, slots)
        return made, counts


_NOTHING = Selection(np.empty(0, dtype=np.int64))


def _written(stages: Sequence[ChainStage], computed: Sequence[Expression], width: int) -> tuple[Program | None, tuple[int, ...]]:
    """Return the function of a row and the positions of the columns whose values it takes.

    None where an expression is left to the kernels, or none reads a column.
    """
    writer = _RowWriter(width)
    try:
        for place, (virtual, condition) in enumerate(stages):
            for expression in virtual:
                writer.compute(expression)
            if condition is not None:
                writer.test(condition, place)
        writer.leave(computed)
    except LeftToKernels:
        return None, ()
    return (writer.program(), tuple(writer.reads)) if writer.reads else (None, ())


class _RowWriter(RowWriter):
    """Writes the function of a row, a line a condition or computed column."""

    def compute(self, expression: Expression) -> str:
        """Add a column, and return its name."""
        name, folded = self.next_computed(), fold(expression)
        self.lines.append(f"{name} = {self.text(folded)}")
        if folded.type.kind is Kind.DOUBLE and not isinstance(folded, ColumnRef | Literal):
            self.lines.append(f"if {name} != {name}: return None")
        return name

    def test(self, condition: Expression, place: int) -> None:
        """Add a condition: a row that does not meet it has passed the stages before."""
        self.lines.append(f"if not {self.text(fold(condition))}: return {place}")

    def leave(self, outputs: Sequence[Expression]) -> None:
        """Add what is given for a row that has passed."""
        names = [f"c{e.position}" if isinstance(e, ColumnRef) else self.compute(e) for e in outputs]
        self.lines.append(f"return ({''.join(f'{name}, ' for name in names)})")

    def program(self) -> Program:
        """Return the function; `reads` are its arguments."""
        return self.function("row_program", [f"c{position}" for position in self.reads], {})
