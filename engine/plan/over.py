"""What stands in OVER ( ) in a select list: ROW_NUMBER, RANK, DENSE_RANK and LAG; each becomes a node that appends one attribute.

Aggregates and the functions that are made of them stand in `over_aggregates.py`.

The ranking functions rank the rows of one window among each other, so the window must be known to close: the bounds of a window below do
that, or in PARTITION BY a column of an inner query that is a bound of its windows. Without a window ROW_NUMBER numbers the rows so far,
if the query says up to which number it wants them (`running_tops.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import TypeProblem, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BIGINT, TEXT, TIMESTAMP, DataType
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal
from millstream.engine.language.recipes import OrderColumn
from millstream.engine.plan.catalog import TimeOffset
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.logical import (
    Attribute,
    Attributes,
    Lag,
    Node,
    Project,
    Rank,
    Role,
    RunningTop,
    change_position,
    check_append_only,
    lag_attribute,
    passing,
)
from millstream.engine.plan.scope import Scope
from sqlglot import exp

if TYPE_CHECKING:
    from millstream.engine.plan.over_aggregates import PendingOver

RANKS = ("row_number", "rank", "dense_rank")
_BOUNDS = (Role.WINDOW_START, Role.WINDOW_END)
Bind = Callable[[exp.Expr], Expression]


COLUMN_STEPS = 3  # of limits.WORK_MAX, for each column that is carried past a function with OVER


@dataclass(frozen=True, slots=True)
class PendingRank:
    """A ranking function whose partition and order are still expressions over the input. `order` holds (key, descending, NULLs first)."""

    function: str
    partition: tuple[Expression, ...]
    order: tuple[tuple[Expression, bool, bool], ...]

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All that it reads."""
        return (*self.partition, *(key for key, _, _ in self.order))


def is_rank(node: exp.Window) -> bool:
    """It is a ranking function that stands before OVER."""
    return isinstance(node.this, exp.Anonymous) and str(node.this.name).lower() in RANKS


def refused_over(node: exp.Window) -> Unsupported:
    """Return the error for any other function before OVER beside GROUP BY, to be raised."""
    name = node.this.name.upper() if isinstance(node.this, exp.Anonymous) else "this function"
    hint = "ROW_NUMBER, RANK and DENSE_RANK number groups; for others aggregate in a derived table: SELECT … OVER (…) FROM (SELECT …)"
    return Unsupported(f"{name} OVER ( ) beside GROUP BY is not supported", hint=hint)


def pending_rank(node: exp.Window, bind: Bind) -> PendingRank:
    """Bind `RANK() OVER (PARTITION BY … ORDER BY …)`."""
    call = node.this
    function = str(call.name).lower()
    if call.expressions:
        raise TypeProblem(f"{function.upper()} takes no arguments")
    if node.args.get("spec") is not None:
        raise Unsupported("a frame (ROWS or RANGE) in OVER is not supported", hint=f"{function.upper()} ranks whole partitions")
    partition = tuple(bind(key) for key in node.args.get("partition_by") or ())
    keys = node.args["order"].expressions if node.args.get("order") is not None else []
    if not keys and function != "row_number":
        raise TypeProblem(f"{function.upper()} needs an ORDER BY in OVER ( )", hint="without one all rows have the same rank")
    order = tuple(_order_key(key, bind) for key in keys)
    unordered = next((e.type for e in (*partition, *(key for key, _, _ in order)) if not e.type.is_ordered), None)
    if unordered is not None:
        raise TypeProblem(f"values of the type {unordered} have no order and cannot be a key of OVER", hint="name their parts")
    return PendingRank(function, partition, order)


def _order_key(key: exp.Expr, bind: Bind) -> tuple[Expression, bool, bool]:
    if not isinstance(key, exp.Ordered):
        return bind(key), False, False
    descending = bool(key.args.get("desc"))
    first = key.args.get("nulls_first")
    return bind(key.this), descending, descending if first is None else bool(first)


def rank_node(node: Node, pending: PendingRank) -> Node:
    """Return the node with one attribute more: the number of each row in its partition; without a window also the kind of a change."""
    width = len(node.attributes)
    extra: list[Expression] = []
    for expression in pending.expressions:
        if not isinstance(expression, ColumnRef) and expression not in extra:
            extra.append(expression)
    below = node
    if extra:
        added = tuple(Attribute(f"rank_of_{i}", e.type) for i, e in enumerate(extra))
        below = Project(attributes=node.attributes + added, input=node, expressions=(*passing(node.attributes), *extra))

    def position(e: Expression) -> int:
        return e.position if isinstance(e, ColumnRef) else width + extra.index(e)

    order = tuple(OrderColumn(position(key), descending, first) for key, descending, first in pending.order)
    made = ranked(below, pending.function, tuple(position(e) for e in pending.partition), order)
    if not extra:
        return made
    kept = [*range(width), *range(len(below.attributes), len(made.attributes))]
    attributes = tuple(made.attributes[i] for i in kept)
    return Project(attributes=attributes, input=made, expressions=tuple(made.attributes[i].reference(i) for i in kept))


def ranked(node: Node, function: str, partition: tuple[int, ...], order: tuple[OrderColumn, ...], limit: int | None = None) -> Node:
    """Return the node that numbers rows; the bounds of the windows below always part rows. `limit` is for rows without a window."""
    bounds = tuple(i for i, a in enumerate(node.attributes) if a.role in _BOUNDS)
    change = change_position(node.attributes)
    if change is not None and (bounds or function != "row_number"):
        check_append_only(node, function.upper())
    if change is not None:
        return _changing_top(node, partition, order, limit, change)
    whole = tuple(dict.fromkeys((*partition, *bounds)))
    closing = _closing(node.attributes, whole)
    number = Attribute(function, BIGINT, closing is None)
    if closing is None:
        if function != "row_number":
            raise Unsupported(
                f"{function.upper()} OVER ( ) without a window is not supported",
                hint="write [RANGE w SLIDE s] after the stream's name, or PARTITION BY window_end of an inner aggregate; "
                "ROW_NUMBER() <= n works without a window",
            )
        # A row's time is no longer its own: it goes when another comes.
        own = tuple(replace(a, time=None, time_unit_us=1) for a in node.attributes)
        attributes = (*own, number, Attribute("op", TEXT, False, role=Role.CHANGE))
        return RunningTop(attributes=attributes, input=node, order=order, partition=whole, limit=limit)
    end, shift_us = closing
    attributes = (*node.attributes, number)
    return Rank(attributes=attributes, input=node, function=function, order=order, partition=whole, closing=end, shift_us=shift_us)


def _changing_top(node: Node, partition: tuple[int, ...], order: tuple[OrderColumn, ...], limit: int | None, change: int) -> RunningTop:
    """Number what stands after a change log. Rows that the order does not tell apart stand by their other columns: a row that has come
    again is not known from one that never went.
    """
    used = {*partition, change, *(key.position for key in order)}
    rest = tuple(OrderColumn(i) for i in range(len(node.attributes)) if i not in used)
    own = tuple(replace(a, time=None, time_unit_us=1, role=Role.PLAIN) for a in node.attributes)
    attributes = (*own, Attribute("row_number", BIGINT, True), Attribute("op", TEXT, False, role=Role.CHANGE))
    return RunningTop(attributes=attributes, input=node, order=(*order, *rest), partition=partition, limit=limit, retracts=change)


def _closing(attributes: Attributes, partition: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the column of a partition that says when it is complete, and what to add to it to have that W; None where none does."""
    for position in partition:
        if attributes[position].role is Role.WINDOW_END:
            return position, 0
    for position in partition:
        attribute = attributes[position]
        time = attribute.time
        is_bound = time is not None and time != TimeOffset() and time.least_us == time.most_us
        if time is not None and is_bound and attribute.type == TIMESTAMP and attribute.time_unit_us == 1:
            return position, 1 - time.least_us
    return None


@dataclass(frozen=True, slots=True)
class PendingLag:
    """LAG with its arguments still expressions over the input."""

    value: Expression
    offset: int
    partition: tuple[Expression, ...]


class LagBinder(ExpressionBinder):
    """Binds a select list that may hold LAG and ranks. Each gets a position after the scope's attributes; `extend` makes it real."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.pending: list[PendingLag | PendingRank | PendingOver] = []

    def over(self, node: exp.Window) -> Expression:
        """Bind LAG(x [, n]) OVER (PARTITION BY k, … [ORDER BY the event time]), a ranking function, or what has a frame."""
        call = node.this
        if is_rank(node) and not self._numbers_all(node):
            return self._pended(pending_rank(node, self.bind), BIGINT, str(call.name).lower())
        if not isinstance(call, exp.Anonymous) or call.name.lower() != "lag" or len(call.expressions) > 2:
            from millstream.engine.plan.over_aggregates import OverBinder  # which builds on the binder of aggregates, and that on this file

            return OverBinder(self, lambda pending: self._pended(pending, pending.call.signature.result, pending.call.name)).bind(node)
        if node.args.get("spec") is not None:
            raise Unsupported("LAG takes no frame", hint="write LAG(x, n) for the n-th row")
        self._check_order(node.args.get("order"))
        pending = PendingLag(*self._arguments(call), tuple(self.bind(k) for k in node.args.get("partition_by") or ()))
        return self._pended(pending, pending.value.type, "lag")

    def _numbers_all(self, node: exp.Window) -> bool:
        """Whether it is ROW_NUMBER in order of event time where there are no windows: that is a running count."""
        if str(node.this.name).lower() != "row_number" or any(a.role in _BOUNDS for a in self.scope.attributes):
            return False
        keys = node.args["order"].expressions if node.args.get("order") is not None else []
        if len(keys) != 1 or not isinstance(keys[0], exp.Ordered) or keys[0].args.get("desc"):
            return False
        bounds = {a.time for a in self.scope.attributes if a.time not in (None, TimeOffset())}
        partition = [self.bind(key) for key in node.args.get("partition_by") or ()]
        if any(isinstance(key, ColumnRef) and self.scope.attribute(key.position).time in bounds for key in partition):
            return False
        bound = self.bind(keys[0].this)
        return isinstance(bound, ColumnRef) and self.scope.attribute(bound.position).time == TimeOffset()

    def _pended(self, pending: PendingLag | PendingRank | PendingOver, type_: DataType, name: str) -> ColumnRef:
        if pending not in self.pending:
            self.pending.append(pending)
        return ColumnRef(type_, len(self.scope.attributes) + self.pending.index(pending), name)

    def _arguments(self, call: exp.Anonymous) -> tuple[Expression, int]:
        nodes = list(call.expressions)
        if not 1 <= len(nodes) <= 2:
            raise TypeProblem(f"LAG takes 1 to 3 arguments, not {len(nodes)}")
        offset = self.bind(nodes[1]) if len(nodes) == 2 else None
        if offset is None:
            return self.bind(nodes[0]), 1
        if not isinstance(offset, Literal) or not offset.type.is_integer or offset.value is None or offset.value < 1:
            raise TypeProblem("the offset of LAG must be a constant of at least 1")
        return self.bind(nodes[0]), int(offset.value)

    def _check_order(self, order: exp.Order | None) -> None:
        for key in order.expressions if order is not None else ():
            bound = self.bind(key.this)
            time = self.scope.attribute(bound.position).time if isinstance(bound, ColumnRef) else None
            if time != TimeOffset() or key.args.get("desc"):
                raise Unsupported("LAG looks back in order of event time only", hint="leave ORDER BY out")

    def extend(self, node: Node) -> Node:
        """Return the node with one attribute more for each function that was bound."""
        if any(isinstance(p, PendingLag) for p in self.pending):
            check_append_only(node, "LAG")
        width = len(node.attributes)
        places: list[int] = []
        overs: list[PendingOver] = []
        for pending in self.pending:
            spend(COLUMN_STEPS * len(node.attributes))
            if not isinstance(pending, PendingLag | PendingRank):
                overs.append(pending)
                continue
            places.append(len(node.attributes))
            if isinstance(pending, PendingRank):
                node = rank_node(node, pending)
                if len(self.pending) > 1 and change_position(node.attributes) is not None:
                    message = "ROW_NUMBER() OVER ( ) without a window beside another function with OVER is not supported"
                    raise Unsupported(message, hint="compute the others in a derived table, and number its rows")
                continue
            attributes = node.attributes
            value, partition = pending.value, pending.partition
            extra = [e for e in (value, *partition) if not isinstance(e, ColumnRef)]
            below: Node = node
            if extra:
                added = tuple(Attribute(f"lag_of_{i}", e.type) for i, e in enumerate(extra))
                below = Project(attributes=attributes + added, input=node, expressions=(*passing(attributes), *extra))

            def position(e: Expression, base: int = len(attributes), extra: list[Expression] = extra) -> int:
                return e.position if isinstance(e, ColumnRef) else base + extra.index(e)

            made: Node = Lag(
                attributes=(*below.attributes, lag_attribute(below.attributes, value.type)),
                input=below,
                value=position(value),
                offset=pending.offset,
                partition=tuple(position(k) for k in partition),
            )
            if extra:
                kept = [*range(len(attributes)), len(made.attributes) - 1]
                made = Project(
                    attributes=tuple(made.attributes[i] for i in kept),
                    input=made,
                    expressions=tuple(made.attributes[i].reference(i) for i in kept),
                )
            node = made
        return self._with_overs(node, overs, width, places) if overs else node

    def _with_overs(self, node: Node, overs: list[PendingOver], width: int, places: list[int]) -> Node:
        """Add what has a frame, and put all that was added in the order in which it was bound."""
        from millstream.engine.plan.over_aggregates import with_overs

        node, found = with_overs(node, overs)
        others, framed = iter(places), iter(found)
        order = [next(others) if isinstance(p, PendingLag | PendingRank) else next(framed) for p in self.pending]
        kept = [*range(width), *order]
        if kept == list(range(len(node.attributes))):
            return node
        attributes = tuple(node.attributes[i] for i in kept)
        return Project(attributes=attributes, input=node, expressions=tuple(node.attributes[i].reference(i) for i in kept))
