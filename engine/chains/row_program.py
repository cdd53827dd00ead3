"""A chain of selections and projections over a few rows, as one Python function of a row's values.

A row that comes alone meets a dozen calls of NumPy or Arrow in a chain, each of which takes as long whether it has one value to look at
or a thousand. So for rows whose values are still Python's own (`CellColumn`) the same expressions are written down as one function,
which takes a microsecond or two. It knows only what cannot fail and what Python and NumPy answer alike, on values that are never NULL:
comparisons, AND, OR, NOT, arithmetic. What it does not know it leaves to the kernels, so there is one meaning of an expression and the
program is a short way to it. Where a DOUBLE becomes NaN it gives up, as the sign of one may differ.
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
from millstream.engine.expressions.bounds import COMBINE
from millstream.engine.expressions.compile import between_as_and, fold
from millstream.engine.expressions.ir import Call, Cast, ColumnRef, Expression, Literal

ROWS_MAX = 16  # with more, the kernels cost as little

NODES_MAX = 200  # of all expressions: Python's own compiler has bounds, and a long program is no short way

WHOLE = frozenset((Kind.INT, Kind.BIGINT))
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_OPPOSITE = {">": "<=", ">=": "<"}

ChainStage = tuple[Sequence[Expression], Expression | None]
"""The columns that a stage computes, which stand behind the entering ones, and perhaps a condition."""

_KINDS = frozenset((*WHOLE, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL, Kind.DOUBLE, Kind.BOOLEAN, Kind.TEXT))
_PYTHON = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

Outcome = int | tuple[Any, ...] | None
"""Of one row: the number of stages it passed, or the computed columns of one that passed all; None: ask the kernels."""

Program = Callable[..., Outcome]


class LeftToKernels(Exception):
    """The answer might be another one than the kernels', or it is not worth a thought."""


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


class _RowWriter:
    """Writes the function of a row, a line a condition or computed column. Only names that it makes itself come into the text."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.computed = 0
        self.reads: dict[int, None] = {}
        self._nodes = 0

    def compute(self, expression: Expression) -> str:
        """Add a column, and return its name."""
        name, folded = f"c{self.width + self.computed}", fold(expression)
        self.computed += 1
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
        arguments = ", ".join(f"c{position}" for position in self.reads)
        body = "\n".join(f"    {line}" for line in self.lines)
        namespace = dict(self.constants)
        exec(compile(f"def row_program({arguments}):\n{body}\n", "<row_program>", "exec"), namespace)
        made: Program = namespace["row_program"]
        return made

    def text(self, expression: Expression) -> str:
        """Return the source of a folded expression; LeftToKernels where it is not known here."""
        self._nodes += 1
        if expression.type.kind not in _KINDS or self._nodes > NODES_MAX:
            raise LeftToKernels
        match expression:
            case ColumnRef(position=position):
                if position < self.width:
                    self.reads[position] = None
                return f"c{position}"
            case Literal():
                return self._constant(expression)
            case Call():
                return self._call(expression)
            case Cast(argument=argument) if argument.type.kind in WHOLE and expression.type.kind in (Kind.BIGINT, Kind.DOUBLE):
                text = self.text(argument)
                return f"float({text})" if expression.type.kind is Kind.DOUBLE else text
        raise LeftToKernels

    def _constant(self, literal: Literal) -> str:
        if literal.value is None or literal.value != literal.value:
            raise LeftToKernels
        name = f"k{len(self.constants)}"
        self.constants[name] = float(literal.value) if literal.type.kind is Kind.DOUBLE else literal.value
        return name

    def _call(self, call: Call) -> str:
        function, arguments = call.function, call.arguments
        if function in ("=", "<>", "<", "<=", ">", ">="):
            return self._comparison(function, *arguments)
        if function in ("and", "or"):
            return f"({f' {function} '.join(self.text(a) for a in arguments)})"
        if function == "not":
            return f"(not {self.text(arguments[0])})"
        if function == "between":
            return self.text(between_as_and(call))
        if function in COMBINE:
            return self._arithmetic(call)
        raise LeftToKernels

    def _comparison(self, function: str, left: Expression, right: Expression) -> str:
        if isinstance(left, Literal) and not isinstance(right, Literal):
            return self._comparison(_MIRRORED[function], right, left)
        if Kind.DOUBLE in (left.type.kind, right.type.kind):
            return self._double_comparison(function, left, right)
        if not _alike(left.type, right.type):
            raise LeftToKernels
        return f"({self.text(left)} {_PYTHON[function]} {self.text(right)})"

    def _double_comparison(self, function: str, left: Expression, right: Expression) -> str:
        """NaN is greater than all else (comparison.py), so for `>` and `>=` the opposite is asked."""
        if left.type.kind is not right.type.kind or not isinstance(right, Literal):
            raise LeftToKernels
        first, second = self.text(left), self.text(right)
        if function in _OPPOSITE:
            return f"(not ({first} {_OPPOSITE[function]} {second}))"
        return f"({first} {_PYTHON[function]} {second})"

    def _arithmetic(self, call: Call) -> str:
        kinds = {a.type.kind for a in call.arguments}
        if not (kinds == {Kind.DOUBLE} if call.type.kind is Kind.DOUBLE else kinds <= WHOLE and call.type.kind in WHOLE):
            raise LeftToKernels
        first, second = (self.text(a) for a in call.arguments)
        return f"({first} {call.function} {second})"  # whole numbers have no end in Python, and what may overflow has not come here


def _alike(left: DataType, right: DataType) -> bool:
    return left.kind is right.kind or (left.kind in WHOLE and right.kind in WHOLE)
