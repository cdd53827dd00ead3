"""Writes expressions down as Python source: for programs of a chain's rows or columns (`chains`), and for conditions on one run of a match.

Both know only what cannot fail, on values that are never NULL: comparisons, AND, OR, NOT, arithmetic. What they do not know, they leave
to the kernels, so there is one meaning of an expression and each program is a short way to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from millstream.engine.data.types import DataType, Kind
from millstream.engine.expressions.bounds import COMBINE
from millstream.engine.expressions.compile import between_as_and
from millstream.engine.expressions.ir import Call, Cast, ColumnRef, Expression, Literal

NODES_MAX = 200  # of all expressions: Python's own compiler has bounds, and a long program is no short way

WHOLE = frozenset((Kind.INT, Kind.BIGINT))
ChainStage = tuple[Sequence[Expression], Expression | None]
"""The columns that a stage of a chain computes, which stand behind the entering ones, and perhaps a condition."""

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_OPPOSITE = {">": "<=", ">=": "<"}


class LeftToKernels(Exception):
    """The answer might be another one than the kernels', or it is not worth a thought."""


class ProgramWriter(ABC):
    """Collects lines and the constants they name. Only names that it makes itself come into the text."""

    kinds: frozenset[Kind]

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.computed = 0
        self.reads: dict[int, None] = {}
        self._nodes = 0

    def next_computed(self) -> str:
        """Return the name of the next computed column."""
        self.computed += 1
        return f"c{self.width + self.computed - 1}"

    def text(self, expression: Expression) -> str:
        """Return the source of a folded expression; LeftToKernels where it is not known here."""
        self._nodes += 1
        if expression.type.kind not in self.kinds or self._nodes > NODES_MAX:
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
                return self.widened(self.text(argument), argument, expression.type)
        raise LeftToKernels

    def function(self, name: str, arguments: Sequence[str], names: dict[str, Any]) -> Callable[..., Any]:
        """Return what was written as a function of `arguments`; the text may use `names` besides."""
        body = "\n".join(f"    {line}" for line in self.lines)
        namespace = {**names, **self.constants}
        exec(compile(f"def {name}({', '.join(arguments)}):\n{body}\n", f"<{name}>", "exec"), namespace)
        made: Callable[..., Any] = namespace[name]
        return made

    @abstractmethod
    def compared(self, function: str, first: str, second: str) -> str:
        """Write a comparison of two values that both sides order alike."""

    @abstractmethod
    def connected(self, function: str, parts: Sequence[str]) -> str:
        """Write AND or OR."""

    @abstractmethod
    def negated(self, part: str) -> str:
        """Write NOT."""

    @abstractmethod
    def combined(self, call: Call, first: str, second: str) -> str:
        """Write `+`, `-` or `*` of whole numbers, or of DOUBLEs."""

    @abstractmethod
    def widened(self, text: str, argument: Expression, target: DataType) -> str:
        """Write a whole number as BIGINT or DOUBLE."""

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
            return self.connected(function, [self.text(a) for a in arguments])
        if function == "not":
            return self.negated(self.text(arguments[0]))
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
        return self.compared(function, self.text(left), self.text(right))

    def _double_comparison(self, function: str, left: Expression, right: Expression) -> str:
        """NaN is greater than all else (comparison.py), so for `>` and `>=` the opposite is asked."""
        if left.type.kind is not right.type.kind or not isinstance(right, Literal):
            raise LeftToKernels
        first, second = self.text(left), self.text(right)
        if function in _OPPOSITE:
            return self.negated(self.compared(_OPPOSITE[function], first, second))
        return self.compared(function, first, second)

    def _arithmetic(self, call: Call) -> str:
        kinds = {a.type.kind for a in call.arguments}
        if not (kinds == {Kind.DOUBLE} if call.type.kind is Kind.DOUBLE else kinds <= WHOLE and call.type.kind in WHOLE):
            raise LeftToKernels
        first, second = (self.text(a) for a in call.arguments)
        return self.combined(call, first, second)


def _alike(left: DataType, right: DataType) -> bool:
    return left.kind is right.kind or (left.kind in WHOLE and right.kind in WHOLE)


_COMPARISONS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class RowWriter(ProgramWriter):
    """Writes for the values of one row, as Python has them."""

    kinds = frozenset((*WHOLE, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL, Kind.DOUBLE, Kind.BOOLEAN, Kind.TEXT))

    def compared(self, function: str, first: str, second: str) -> str:
        """Write a comparison of two values."""
        return f"({first} {_COMPARISONS[function]} {second})"

    def connected(self, function: str, parts: Sequence[str]) -> str:
        """Write AND or OR."""
        return f"({f' {function} '.join(parts)})"

    def negated(self, part: str) -> str:
        """Write NOT."""
        return f"(not {part})"

    def combined(self, call: Call, first: str, second: str) -> str:
        """Write arithmetic; whole numbers have no end in Python, and what may overflow has not come here."""
        return f"({first} {call.function} {second})"

    def widened(self, text: str, argument: Expression, target: DataType) -> str:
        """Write a whole number as another kind of number."""
        return f"float({text})" if target.kind is Kind.DOUBLE else text
