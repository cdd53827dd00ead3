"""LAG(x [, n]) OVER (PARTITION BY …) and the ranking functions in a select list: each becomes a node that appends one attribute."""

from __future__ import annotations

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import TypeProblem, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BIGINT, DataType
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal
from millstream.engine.plan.catalog import TimeOffset
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.logical import Attribute, Lag, Node, Project, change_position, passing
from millstream.engine.plan.over import PendingRank, is_rank, pending_rank, rank_node, refused_over
from millstream.engine.plan.scope import Scope
from sqlglot import exp

COLUMN_STEPS = 3  # of limits.WORK_MAX, for each column that is carried past a function with OVER


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
        self.pending: list[PendingLag | PendingRank] = []

    def over(self, node: exp.Window) -> Expression:
        """Bind LAG(x [, n]) OVER (PARTITION BY k, … [ORDER BY the event time]), or a ranking function (`over.py`)."""
        call = node.this
        if is_rank(node):
            return self._pended(pending_rank(node, self.bind), BIGINT, str(call.name).lower())
        if not isinstance(call, exp.Anonymous) or call.name.lower() != "lag":
            raise refused_over(node)
        if node.args.get("spec") is not None:
            raise Unsupported("a frame (ROWS or RANGE) in OVER is not supported", hint="write [ROWS n] after the stream's name")
        self._check_order(node.args.get("order"))
        pending = PendingLag(*self._arguments(call), tuple(self.bind(k) for k in node.args.get("partition_by") or ()))
        return self._pended(pending, pending.value.type, "lag")

    def _pended(self, pending: PendingLag | PendingRank, type_: DataType, name: str) -> ColumnRef:
        if pending not in self.pending:
            self.pending.append(pending)
        return ColumnRef(type_, len(self.scope.attributes) + self.pending.index(pending), name)

    def _arguments(self, call: exp.Anonymous) -> tuple[Expression, int]:
        nodes = list(call.expressions)
        if not 1 <= len(nodes) <= 2:
            raise TypeProblem(f"LAG takes 1 to 2 arguments, not {len(nodes)}")
        offset = self.bind(nodes[1]) if len(nodes) == 2 else None
        if offset is None:
            return self.bind(nodes[0]), 1
        if not isinstance(offset, Literal) or not offset.type.is_integer or offset.value is None or offset.value < 1:
            raise TypeProblem("how far LAG looks back must be a constant of at least 1")
        return self.bind(nodes[0]), int(offset.value)

    def _check_order(self, order: exp.Order | None) -> None:
        for key in order.expressions if order is not None else ():
            bound = self.bind(key.this)
            time = self.scope.attribute(bound.position).time if isinstance(bound, ColumnRef) else None
            if time != TimeOffset() or key.args.get("desc"):
                raise Unsupported("LAG looks back in order of event time only", hint="leave ORDER BY out")

    def extend(self, node: Node) -> Node:
        """Return the node with one attribute more for each function that was bound."""
        if change_position(node.attributes) is not None and any(isinstance(p, PendingLag) for p in self.pending):
            raise Unsupported("LAG over a change log is not supported", hint="aggregate inside a window first")
        width = len(node.attributes)
        for index, pending in enumerate(self.pending):
            spend(COLUMN_STEPS * len(node.attributes))
            if isinstance(pending, PendingRank):
                node = rank_node(node, pending)
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
                attributes=(*below.attributes, Attribute("lag", value.type)),
                input=below,
                value=position(value),
                offset=pending.offset,
                partition=tuple(position(k) for k in partition),
            )
            if extra:
                kept = [*range(width + index), len(made.attributes) - 1]
                made = Project(
                    attributes=tuple(made.attributes[i] for i in kept),
                    input=made,
                    expressions=tuple(made.attributes[i].reference(i) for i in kept),
                )
            node = made
        return node
