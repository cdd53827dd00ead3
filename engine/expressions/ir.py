"""Bound, typed expressions: what the planner rewrites and the compiler turns into kernels.

Plain immutable data with structural equality, so that two queries' expressions can be compared (sharing, duplicate elimination).
Column references are positions in the input schema. Names in `Call` are canonical function names in lower case; operators are calls
too: "+", "-", "*", "/", "%", "neg", "=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "is_null", "is_distinct_from", "||", "like" …
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import is_not
from typing import Any

from millstream.engine.data.effort import Effort, effort_in_force, spend
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType


@dataclass(frozen=True, slots=True)
class Expression:
    """Base of the family. `type` is the type of the result."""

    type: DataType


@dataclass(frozen=True, slots=True)
class ColumnRef(Expression):
    """The value of the input column at `position`; `name` is for people only and takes no part in equality."""

    position: int
    name: str = ""

    def __eq__(self, other: object) -> bool:
        """Compare by type and position."""
        return isinstance(other, ColumnRef) and (self.position, self.type) == (other.position, other.type)

    def __hash__(self) -> int:
        """Hash as compared."""
        return hash((self.position, self.type))


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A constant in the storage form of its type (DECIMAL: scaled int; TIMESTAMP: µs; TEXT: str); None is NULL."""

    value: Any

    def __eq__(self, other: object) -> bool:
        """Compare by type and exact value: 1 and 1.0, or 0.0 and -0.0, are different constants."""
        return isinstance(other, Literal) and self.type == other.type and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        """Hash as compared."""
        return hash((self.type, repr(self.value)))


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function or operator applied to arguments. `options` are constants that belong to the function (a CAST's target …)."""

    function: str
    arguments: tuple[Expression, ...]
    options: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """CASE WHEN c THEN v … ELSE e END; a simple CASE is rewritten to comparisons by the binder."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """CAST (an impossible value is a K8 error) or TRY_CAST (it is NULL)."""

    argument: Expression
    quiet: bool = False


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct operands."""
    if isinstance(expression, Call):
        return expression.arguments
    if isinstance(expression, Cast):
        return (expression.argument,)
    if isinstance(expression, Case):
        return (*(e for branch in expression.branches for e in branch), expression.otherwise)
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and everything below it, parents first."""
    effort = effort_in_force()
    pending = [expression]
    while pending:
        node = pending.pop()
        if effort is not None:
            effort.spend()
        yield node
        if not isinstance(node, ColumnRef | Literal):  # most are, and nothing is below them
            pending.extend(reversed(children(node)))


def transform(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return the expression rebuilt from the leaves up, `change` applied to each node."""
    return _transformed(expression, change, effort_in_force())


def _transformed(expression: Expression, change: Callable[[Expression], Expression], effort: Effort | None) -> Expression:
    if effort is not None:
        effort.spend()
    if isinstance(expression, ColumnRef | Literal):  # as most are
        return change(expression)
    if isinstance(expression, Call):
        arguments = tuple([_transformed(a, change, effort) for a in expression.arguments])
        if any(map(is_not, arguments, expression.arguments)):
            expression = replace(expression, arguments=arguments)
    elif isinstance(expression, Cast):
        argument = _transformed(expression.argument, change, effort)
        if argument is not expression.argument:
            expression = replace(expression, argument=argument)
    elif isinstance(expression, Case):
        branches = tuple([(_transformed(c, change, effort), _transformed(v, change, effort)) for c, v in expression.branches])
        expression = replace(expression, branches=branches, otherwise=_transformed(expression.otherwise, change, effort))
    return change(expression)


def depth_of(expression: Expression) -> int:
    """Return how many parts of an expression stand on one another at most."""
    if isinstance(expression, ColumnRef | Literal):
        return 1
    depth, level = 0, {id(expression): expression}
    while level:
        depth += 1
        level = {id(child): child for node in level.values() for child in children(node)}
    return depth


def columns_used(expression: Expression) -> set[int]:
    """Return the positions of all input columns that the expression reads."""
    if isinstance(expression, ColumnRef):  # as most are
        spend()
        return {expression.position}
    return {e.position for e in walk(expression) if isinstance(e, ColumnRef)}
