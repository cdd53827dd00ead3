"""Aggregates, LEAD, FIRST_VALUE and their kin with OVER (PARTITION BY … ORDER BY the event time, frame) in a select list (K23)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from millstream.engine.aggregates.table import aggregate_of, foldable, is_aggregate
from millstream.engine.data.errors import TypeProblem, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import INTERVAL
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal
from millstream.engine.language.recipes import AggregateCall, FrameSpec, OverPart
from millstream.engine.plan.aggregate_binder import AggregateBinder, PendingAggregate
from millstream.engine.plan.catalog import TimeOffset
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.logical import Attribute, Attributes, Node, Over, Project, Role, check_append_only, passing, unique_names
from millstream.engine.plan.scope import Scope, located
from sqlglot import exp

ROWS_MAX = 2**31 - 1  # of a frame, on each side of its row
TIME_MAX_US = 2**60
RUNNING = FrameSpec(by_rank=True, preceding=None)
"""Every row up to this one."""
_BOUNDS = (Role.WINDOW_START, Role.WINDOW_END)
_PLAIN_HINT = "LEAD, LAG, FIRST_VALUE, LAST_VALUE, NTH_VALUE, ROW_NUMBER, RANK, DENSE_RANK and aggregates take OVER"


@dataclass(frozen=True, slots=True)
class PendingOver:
    """An aggregate with its frame, whose arguments and partition are still expressions over the input."""

    call: PendingAggregate
    frame: FrameSpec
    partition: tuple[Expression, ...]


Pend = Callable[[PendingOver], Expression]


class OverBinder:
    """Binds one function with OVER. `pend` notes an aggregate and returns the reference to its value."""

    def __init__(self, binder: ExpressionBinder, pend: Pend) -> None:
        self._binder = binder
        self._scope = binder.scope
        self._pend = pend

    def bind(self, node: exp.Window) -> Expression:
        """Return the value; TypeProblem or Unsupported for what has none."""
        call = _called(node)
        name = str(call.name).lower() if isinstance(call, exp.Anonymous) else ""
        if not (is_aggregate(name) or name in ("lead", "lag", "nth_value", "row_number")):
            raise Unsupported(f"{name.upper() or 'this function'} OVER ( ) is not supported", hint=_PLAIN_HINT)
        assert isinstance(call, exp.Anonymous)
        _check_no_window(self._scope.attributes, name)
        partition = tuple(self._binder.bind(key) for key in node.args.get("partition_by") or ())
        unit_us = self._order_unit_us(node, name)
        if name in ("lead", "lag"):
            return self._neighbour(call, name, partition, node)
        if name == "row_number":
            return self._noted(_call("count", [exp.Star()]), RUNNING, partition)
        frame = frame_of(node.args.get("spec"), unit_us)
        if name == "nth_value":
            return self._nth(call, frame, partition)
        return self._noted(node.this, frame, partition)

    def _noted(self, node: exp.Expr, frame: FrameSpec, partition: tuple[Expression, ...]) -> Expression:
        binder = AggregateBinder(self._scope)
        binder.aggregate(node)
        pending = binder.pending[-1]
        _check_frame(frame, _as_call(pending), pending.name)
        return self._pend(PendingOver(pending, frame, partition))

    def _order_unit_us(self, node: exp.Window, name: str) -> int | None:
        """Check that the order is that of event time; return what 1 means in its column, in µs, None where that holds no numbers."""
        order = node.args.get("order")
        keys = order.expressions if order is not None else []
        if not keys:
            if name in ("lead", "lag"):
                return None  # their order is that of event time whether it is said or not
            raise Unsupported(f"{name.upper()} OVER ( ) needs an ORDER BY", hint=f"write ORDER BY {self._time_name()}, the event time")
        bound = self._binder.bind(keys[0].this if isinstance(keys[0], exp.Ordered) else keys[0])
        attribute = self._scope.attribute(bound.position) if isinstance(bound, ColumnRef) else None
        time = None if attribute is None else attribute.time
        falls = isinstance(keys[0], exp.Ordered) and bool(keys[0].args.get("desc"))
        if len(keys) > 1 or falls or attribute is None or time is None or time.least_us != time.most_us:
            hint = f"write ORDER BY {self._time_name()}; the rows of a window are ranked by anything, with ROW_NUMBER"
            if not any(a.time is not None for a in self._scope.attributes):
                hint = "a table has no event time; join it with itself: SELECT a.x, SUM(b.v) FROM t a JOIN t b ON b.x <= a.x GROUP BY a.x"
            raise located(Unsupported(f"{name.upper()} OVER ( ) looks at rows in order of event time only", hint=hint), keys[0])
        return attribute.time_unit_us if attribute.type.is_integer else None

    def _time_name(self) -> str:
        return next((a.name for a in self._scope.attributes if a.time == TimeOffset()), "the event time")

    def _neighbour(self, call: exp.Anonymous, name: str, partition: tuple[Expression, ...], node: exp.Window) -> Expression:
        """LEAD(x [, n [, default]]), and LAG with a default: the value so many rows on."""
        if node.args.get("spec") is not None:
            raise Unsupported(f"{name.upper()} takes no frame", hint=f"write {name.upper()}(x, n) for the n-th row")
        nodes = list(call.expressions)
        if not 1 <= len(nodes) <= 3:
            raise TypeProblem(f"{name.upper()} takes 1 to 3 arguments, not {len(nodes)}")
        count = _constant(self._binder, nodes[1], f"the offset of {name.upper()}") if len(nodes) > 1 else 1
        ahead = count if name == "lead" else -count
        frame = FrameSpec(by_rank=True, preceding=-ahead, following=ahead)
        value = self._noted(_call("first", nodes[:1]), frame, partition)
        if len(nodes) < 3:
            return value
        there = self._noted(_call("count", [exp.Star()]), frame, partition)
        return build.case([(build.call(">", [there, build.integer_literal(0)]), value)], self._binder.bind(nodes[2]))

    def _nth(self, call: exp.Anonymous, frame: FrameSpec, partition: tuple[Expression, ...]) -> Expression:
        nodes = list(call.expressions)
        if len(nodes) != 2:
            raise TypeProblem(f"NTH_VALUE takes 2 arguments, not {len(nodes)}")
        place = _constant(self._binder, nodes[1], "the place of NTH_VALUE")
        listed = self._noted(_call("array_agg", nodes[:1]), frame, partition)
        return build.call("array_element", [listed, build.integer_literal(place)])


def _called(node: exp.Window) -> exp.Expr:
    call: exp.Expr = node.this
    while isinstance(call, exp.Filter | exp.WithinGroup):
        call = call.this
    return call


def _call(name: str, arguments: Sequence[exp.Expr]) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[a.copy() for a in arguments])


def _as_call(pending: PendingAggregate) -> AggregateCall:
    return AggregateCall(pending.function, (), pending.signature.result, None, pending.distinct, pending.options)


def _constant(binder: ExpressionBinder, node: exp.Expr, what: str) -> int:
    bound = binder.bind(node)
    if not isinstance(bound, Literal) or not bound.type.is_integer or bound.value is None or not 1 <= bound.value <= ROWS_MAX:
        raise TypeProblem(f"{what} must be a constant of at least 1")
    return int(bound.value)


def _check_frame(frame: FrameSpec, call: AggregateCall, name: str) -> None:
    if frame.preceding is None and not foldable([call]):
        raise Unsupported(
            f"{name.upper()} from UNBOUNDED PRECEDING is not supported, as it needs every value",
            hint="let the frame begin somewhere, as in ROWS BETWEEN 1000 PRECEDING AND CURRENT ROW",
        )


def _check_no_window(attributes: Attributes, name: str) -> None:
    """Windows answer by themselves; a frame would stand in each of them."""
    if any(a.role in _BOUNDS for a in attributes):
        hint = "leave the window out, the frame says which rows; or aggregate in the window, or number its rows with ROW_NUMBER"
        raise Unsupported(f"{name.upper()} OVER ( ) over the rows of a window is not supported", hint=hint)


# Frames ------------------------------------------------------------------------------------------------------------------


def frame_of(spec: exp.WindowSpec | None, unit_us: int | None) -> FrameSpec:
    """Return the frame that is written; without one RANGE from UNBOUNDED PRECEDING, as in SQL. `unit_us`: the worth of 1 in RANGE."""
    if spec is None:
        return FrameSpec(by_rank=False, preceding=None)
    by_rank = str(spec.args["kind"]).upper() == "ROWS"
    start = _offset(spec.args["start"], str(spec.args["start_side"]), by_rank, unit_us)
    end = _offset(spec.args["end"], str(spec.args["end_side"]), by_rank, unit_us)
    if end is None:
        side = spec.args["end_side"]
        hint = "a frame ends at CURRENT ROW, or so many rows or so much time behind or before it"
        raise Unsupported(f"a frame that ends with UNBOUNDED {side} is not supported", hint=hint)
    if start is None:
        if spec.args["start_side"] != "PRECEDING":
            raise Unsupported("a frame cannot begin with UNBOUNDED FOLLOWING", hint="write UNBOUNDED PRECEDING")
        if not by_rank and end != 0:
            raise Unsupported(
                "RANGE from UNBOUNDED PRECEDING must end at CURRENT ROW", hint="say how far back it begins, or count rows with ROWS"
            )
        return FrameSpec(by_rank, None, end)
    if end < start:
        raise TypeProblem("the frame ends before it begins", hint="write the earlier end first, as in BETWEEN 3 PRECEDING AND 1 PRECEDING")
    return FrameSpec(by_rank, -start, end)


def _offset(bound: object, side: str, by_rank: bool, unit_us: int | None) -> int | None:
    """Return where an end of a frame lies from its row, negative before it; None where it has none."""
    if bound == "CURRENT ROW":
        return 0
    if bound == "UNBOUNDED":
        return None
    assert isinstance(bound, exp.Expr)
    found = ExpressionBinder(Scope(())).bind(bound)
    size: int | None = None
    if isinstance(found, Literal) and found.value is not None:
        worth = 1 if by_rank else unit_us
        if found.type.is_integer and worth is not None:
            size = int(found.value) * worth
        elif found.type == INTERVAL and not by_rank:
            size = int(found.value)
    most = ROWS_MAX if by_rank else TIME_MAX_US
    if size is None or not 0 <= size <= most:
        what = "a whole number of rows" if by_rank else "a duration, such as INTERVAL '5 minutes'"
        raise located(TypeProblem(f"an end of {'ROWS' if by_rank else 'RANGE'} must be {what} that is not negative"), bound)
    return -size if side == "PRECEDING" else size


# The plan ----------------------------------------------------------------------------------------------------------------


def with_overs(node: Node, pending: Sequence[PendingOver]) -> tuple[Node, list[int]]:
    """Return the node with an attribute more for each aggregate, and where each stands.

    They are one operator, as a row leaves when the last of its frames is complete: what is computed of rows that have waited would see
    them in another order.
    """
    check_append_only(node, "OVER")
    width = len(node.attributes)
    extra: list[Expression] = []

    def position(expression: Expression) -> int:
        if isinstance(expression, ColumnRef):
            return expression.position
        if expression not in extra:
            extra.append(expression)
        return width + extra.index(expression)

    frames: dict[tuple[FrameSpec, tuple[int, ...]], list[int]] = {}
    calls = []
    for index, one in enumerate(pending):
        frames.setdefault((one.frame, tuple(position(e) for e in one.partition)), []).append(index)
        call = one.call
        arguments, condition = tuple(position(a) for a in call.arguments), None if call.filter is None else position(call.filter)
        calls.append(AggregateCall(call.function, arguments, call.signature.result, condition, call.distinct, call.options))
    below = node
    if extra:
        added = tuple(Attribute(f"over_{i}", e.type) for i, e in enumerate(extra))
        below = Project(attributes=node.attributes + added, input=node, expressions=(*passing(node.attributes), *extra))
    parts = [OverPart(tuple(calls[i] for i in indexes), frame, keys) for (frame, keys), indexes in frames.items()]
    order = [i for indexes in frames.values() for i in indexes]
    made = over_node(below, parts, [pending[i].call.name for i in order])
    return made, [len(below.attributes) + order.index(i) for i in range(len(pending))]


def over_node(below: Node, parts: Sequence[OverPart], names: Sequence[str]) -> Over:
    """Return the node over one that has computed all that it reads; TypeProblem or Unsupported where that cannot be."""
    for part in parts:
        for call in part.aggregates:
            _check_frame(part.frame, call, call.function)
            _check_no_window(below.attributes, call.function)
        unordered = next((t for p in part.partition if not (t := below.attributes[p].type).is_ordered), None)
        if unordered is not None:
            raise TypeProblem(f"values of the type {unordered} have no order and cannot be a key of OVER", hint="name their parts")
    calls = [call for part in parts for call in part.aggregates]
    taken = [a.name for a in below.attributes]
    names = unique_names([*taken, *names])[len(taken) :]
    answers = tuple(Attribute(n, c.type, not aggregate_of(c.function).zero_if_empty) for n, c in zip(names, calls, strict=True))
    return Over(attributes=(*_times(below.attributes, [part.frame for part in parts]), *answers), input=below, parts=tuple(parts))


def _times(attributes: Attributes, frames: Sequence[FrameSpec]) -> Attributes:
    """A row whose frame reaches beyond it leaves later, with a later event time: by so much, or nobody knows by how much."""
    if any(frame.by_rank and frame.following > 0 for frame in frames):
        return tuple(replace(a, time=None) for a in attributes)
    later = max(frame.following for frame in frames)
    if later <= 0:
        return attributes
    return tuple(a if a.time is None else replace(a, time=TimeOffset(a.time.least_us - later, a.time.most_us - later)) for a in attributes)
