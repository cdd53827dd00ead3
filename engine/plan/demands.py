"""What a query asks of the rows that it reads: which columns, and what holds of all rows that can matter to a finite one.

Rows that a query filters out still move W. So rows may be left out only where nothing but the query's own rows tells when windows close:
one stream, of which each row knows the W that it met, and answers that leave when they are final.
"""

from __future__ import annotations

from typing import Any

from millstream.engine.data.records import dataclass
from millstream.engine.data.types import Kind
from millstream.engine.expressions.comparison import MIRRORED
from millstream.engine.expressions.ir import Call, Cast, ColumnRef, Expression, Literal, columns_used
from millstream.engine.language.recipes import EmitKind
from millstream.engine.plan.logical import Aggregate, Filter, LogicalQuery, Node, Project, RelationToStream, Scan, walk_plan

_INTEGERS = (Kind.INT, Kind.BIGINT)
_ORDERED = (*_INTEGERS, Kind.TIMESTAMP, Kind.DATE, Kind.TEXT)  # not DOUBLE: statistics of Parquet leave NaN out, which is the greatest


@dataclass(frozen=True, slots=True)
class Demand:
    """A column whose value must lie within bounds, which are included and in storage form; None: without a bound."""

    position: int
    least: Any = None
    greatest: Any = None

    def may_hold(self, least: Any, greatest: Any) -> bool:
        """Whether one of several values may be within, by the least and greatest of them."""
        return (self.least is None or greatest >= self.least) and (self.greatest is None or least <= self.greatest)


def demands_of(query: LogicalQuery) -> tuple[Demand, ...]:
    """Return what holds of all rows that the answer is made of; empty where all rows must be read."""
    nodes = walk_plan(query.root)
    if sum(isinstance(node, Scan) for node in nodes) != 1 or not all(_closes_by_its_rows(node) for node in nodes):
        return ()
    found: dict[int, Demand] = {}
    for node in nodes:
        if isinstance(node, Filter) and _is_over_scan(node):
            for demand in _of(node.condition):
                known = found.get(demand.position)
                found[demand.position] = demand if known is None else _both(known, demand)
    return tuple(found.values())


def columns_read(query: LogicalQuery) -> dict[str, set[int]]:
    """Return the positions of the columns that a query looks at, by stream; nobody would see if the others were NULL."""
    found: dict[str, set[int]] = {}
    _note_read(query.root, set(range(len(query.root.attributes))), found)
    return found


def _note_read(node: Node, wanted: set[int], found: dict[str, set[int]]) -> None:
    if isinstance(node, Scan):
        found.setdefault(node.stream, set()).update(wanted)
    elif isinstance(node, Filter):
        _note_read(node.input, wanted | columns_used(node.condition), found)
    elif isinstance(node, Project):
        _note_read(node.input, {position for e in node.expressions for position in columns_used(e)}, found)
    else:
        for below in node.inputs:
            _note_read(below, set(range(len(below.attributes))), found)


def _closes_by_its_rows(node: Node) -> bool:
    if isinstance(node, Aggregate):
        return node.emit.kind is EmitKind.FINAL and not node.emit.empty
    return not isinstance(node, RelationToStream)


def _is_over_scan(node: Node) -> bool:
    while isinstance(node, Filter):
        node = node.input
    return isinstance(node, Scan)


def _both(one: Demand, other: Demand) -> Demand:
    least = [d.least for d in (one, other) if d.least is not None]
    greatest = [d.greatest for d in (one, other) if d.greatest is not None]
    return Demand(one.position, max(least, default=None), min(greatest, default=None))


def _of(condition: Expression) -> list[Demand]:
    """Return what follows from a condition that is true."""
    if not isinstance(condition, Call):
        return []
    if condition.function == "and":
        return [demand for part in condition.arguments for demand in _of(part)]
    column = _column(condition.arguments[0])
    values = [_constant(a) for a in condition.arguments[1:]]
    if column is None and condition.function in MIRRORED:
        column, values = _column(condition.arguments[1]), [_constant(condition.arguments[0])]
        return _compared(MIRRORED[condition.function], column, values)
    return _compared(condition.function, column, values)


def _compared(function: str, column: ColumnRef | None, constants: list[Literal | None]) -> list[Demand]:
    if column is None or not constants or not all(c is not None and _comparable(column, c) for c in constants):
        return []
    values = [c.value for c in constants if c is not None]
    at = column.position
    if function in ("=", "in"):
        return [Demand(at, min(values), max(values))]
    if function == "between":
        return [Demand(at, values[0], values[1])]
    if function in (">", ">="):
        return [Demand(at, values[0])]
    return [Demand(at, None, values[0])] if function in ("<", "<=") else []


def _column(expression: Expression) -> ColumnRef | None:
    if isinstance(expression, Cast) and expression.type.kind is Kind.BIGINT and expression.argument.type.is_integer:
        expression = expression.argument  # a widening that changes no value
    return expression if isinstance(expression, ColumnRef) and expression.type.kind in _ORDERED else None


def _constant(expression: Expression) -> Literal | None:
    return expression if isinstance(expression, Literal) and expression.value is not None else None


def _comparable(column: ColumnRef, constant: Literal) -> bool:
    kinds = column.type.kind, constant.type.kind
    return kinds[0] is kinds[1] or all(kind in _INTEGERS for kind in kinds)
