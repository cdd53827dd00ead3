"""The cheap stages of a chain over a train's columns, as one Python function that calls NumPy.

Kernels are put together of functions that call functions, a dozen for a comparison, and for a train of a hundred rows these take longer
than NumPy does. So what is certain beforehand is written down once: which columns are read, which of NumPy's functions are called on
them, in which order. The function stops where it does not know on: at a column with NULLs, at a stage that is not cheap or that
`program_writer.py` does not know, and where so few rows are left that it pays to gather them first. From there the kernels go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from millstream.engine.data.column import Column, Mask, numpy_dtype
from millstream.engine.data.train import Train
from millstream.engine.data.types import DataType, Kind
from millstream.engine.expressions.compile import fold
from millstream.engine.expressions.ir import Call, Cast, Expression, Literal, walk
from millstream.engine.expressions.program_writer import WHOLE, ChainStage, LeftToKernels, ProgramWriter

COMPACT_BELOW = 8  # gather early when fewer than one row in eight is left

_KINDS = frozenset((*WHOLE, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL, Kind.DOUBLE, Kind.BOOLEAN))
_COMPARISONS = {"=": "equal", "<>": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply"}

Progress = tuple[int, Mask | None, int, list[int], list[Column]]
"""Stages done, which rows are left (None: all), how many, how many behind each stage, and the columns that were computed."""

ColumnProgram = Callable[[Train, int], Progress]


def column_program(stages: Sequence[ChainStage], width: int) -> ColumnProgram:
    """Return the function of a train and its rows, for as many stages as can be written down.

    `stages` are cheap from the first on, `width` columns enter.
    """
    writer = _ColumnWriter(width)
    done = 0
    for virtual, condition in stages:
        kept = writer.mark()
        try:
            writer.stage(done, virtual, condition)
        except LeftToKernels:
            writer.back_to(kept)
            break
        done += 1
    return writer.program(done)


class _ColumnWriter(ProgramWriter):
    """Writes the function of a train. `m` is the mask so far, `n` with a stage's place the rows that its condition leaves."""

    kinds = _KINDS

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self._masked = self._warns = False
        self._types: dict[str, DataType] = {}
        self._counts: list[str] = []  # the name of what is left behind each stage
        self._made: list[str] = []

    def mark(self) -> tuple[int, bool, bool, dict[int, None], list[str], list[str]]:
        """Return where the text stands."""
        return len(self.lines), self._masked, self._warns, dict(self.reads), list(self._counts), list(self._made)

    def back_to(self, kept: tuple[int, bool, bool, dict[int, None], list[str], list[str]]) -> None:
        """Take back what was written since."""
        lines, self._masked, self._warns, self.reads, self._counts, self._made = kept
        del self.lines[lines:]

    def stage(self, place: int, virtual: Sequence[Expression], condition: Expression | None) -> None:
        """Add a stage. The columns that it reads come first, as the stage is done in full or not at all."""
        known, stopped = dict(self.reads), self._stopped(place)
        lines = [self._computing(fold(expression)) for expression in virtual]
        left = self._counts[-1] if self._counts else "rows"
        if condition is not None:
            left = f"n{place}"
            lines += self._testing(fold(condition), left)
        self._counts.append(left)
        for position in self.reads:
            if position not in known:
                self.lines += self._reading(position, stopped)
        self.lines += lines
        if condition is not None:
            self.lines.append(f"if {left} * {COMPACT_BELOW} < rows: {self._stopped(place + 1)}")

    def _stopped(self, stages: int) -> str:
        """Return the line that gives what so many stages have made."""
        made = "".join(f"Column(type_{name}, {name}), " for name in self._made)
        mask, left = "m" if self._masked else "None", self._counts[-1] if self._counts else "rows"
        return f"return {stages}, {mask}, {left}, [{', '.join(self._counts)}], [{made}]"

    def program(self, stages: int) -> ColumnProgram:
        """Return the function that does so many stages."""
        body = ["slots = train.slots", *self.lines, self._stopped(stages)]
        self.lines = ['with errstate(all="ignore"):', *(f"    {line}" for line in body)] if self._warns else body
        names = {**_NAMES, **{f"type_{name}": type_ for name, type_ in self._types.items()}}
        return self.function("column_program", ["train", "rows"], names)

    def _reading(self, position: int, stopped: str) -> list[str]:
        return [
            f"s = slots[{position}]",
            f"if type(s) is not Column: s = train.column({position})",
            f"if s.valid is not None: {stopped}",
            f"c{position} = s.values",
        ]

    def _computing(self, expression: Expression) -> str:
        name = self.next_computed()
        if isinstance(expression, Literal):
            raise LeftToKernels
        self._warns = self._warns or any(isinstance(e, Call | Cast) and e.type.kind is Kind.DOUBLE for e in walk(expression))
        self._types[name] = expression.type
        line = f"{name} = {self.text(expression)}"
        self._made.append(name)
        return line

    def _testing(self, condition: Expression, left: str) -> list[str]:
        if isinstance(condition, Literal):
            raise LeftToKernels
        self._warns = self._warns or any(isinstance(e, Call | Cast) and e.type.kind is Kind.DOUBLE for e in walk(condition))
        text = self.text(condition)
        line = f"m = logical_and(m, {text})" if self._masked else f"m = {text}"
        self._masked = True
        return [line, f"{left} = int(count_nonzero(m))"]

    def compared(self, function: str, first: str, second: str) -> str:
        """Write a comparison of two columns, or of one with a constant."""
        return f"{_COMPARISONS[function]}({first}, {second})"

    def connected(self, function: str, parts: Sequence[str]) -> str:
        """Write AND or OR."""
        text = parts[0]
        for part in parts[1:]:
            text = f"logical_{function}({text}, {part})"
        return text

    def negated(self, part: str) -> str:
        """Write NOT."""
        return f"logical_not({part})"

    def combined(self, call: Call, first: str, second: str) -> str:
        """Write arithmetic, of whole numbers in int64; what may overflow has not come here."""
        function = _ARITHMETIC[call.function]
        if call.type.kind is Kind.DOUBLE:
            return f"{function}({first}, {second})"
        text = f"{function}({first}, {second}, dtype=int64)"
        return text if call.type.kind is Kind.BIGINT else f"{text}.astype({numpy_dtype(call.type).__name__})"

    def widened(self, text: str, argument: Expression, target: DataType) -> str:
        """Write a whole number as another kind of number."""
        if isinstance(argument, Literal):
            raise LeftToKernels
        return f"{text}.astype({numpy_dtype(target).__name__})"


_NAMES: dict[str, Any] = {
    "Column": Column,
    # Without what asks whether an argument brings a function of its own, which takes ten times as long as counting.
    "count_nonzero": getattr(np.count_nonzero, "__wrapped__", np.count_nonzero),
    "errstate": np.errstate,
    **{name: getattr(np, name) for name in (*_COMPARISONS.values(), *_ARITHMETIC.values(), "logical_and", "logical_or", "logical_not")},
    **{dtype.__name__: dtype for dtype in (np.int32, np.int64, np.float64)},
}
