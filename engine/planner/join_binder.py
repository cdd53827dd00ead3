"""Joins: two bound items and the conditions over both, to one node (K2, K18, K19)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.engine.catalog import TimeOffset
from millstream.engine.errors import InvalidDefinition, Unsupported
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import ColumnRef, Expression, columns_used, transform
from millstream.engine.language.durations import duration_text
from millstream.engine.language.syntax import Place
from millstream.engine.operators.recipes import JoinKind, WindowKind, WindowSpec
from millstream.engine.planner.expression_binder import conjunction
from millstream.engine.planner.join_conditions import Bound, JoinCondition, KeyExpressions, analyse, key_type
from millstream.engine.planner.logical import (
    AsofJoin,
    Attribute,
    Attributes,
    Join,
    KeyPair,
    Node,
    Project,
    TableJoin,
    TableScan,
    Window,
    change_position,
    passing,
)

_POINT = (WindowKind.SLIDING, WindowKind.NOW, WindowKind.UNBOUNDED)


@dataclass(frozen=True, slots=True)
class Side:
    """An item of FROM without its window, and the window. `joined` marks a join of sliding windows, which takes no further one."""

    node: Node
    spec: WindowSpec | None = None
    joined: bool = False


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What was written about a join: kind, conditions over left's then right's attributes, WITHIN, AS OF, place."""

    kind: JoinKind
    conditions: tuple[Expression, ...]
    within_us: int | None
    asof: bool
    place: Place

    def refuse(self, message: str, hint: str | None = None) -> Unsupported:
        """Return the error, to be raised."""
        return Unsupported(message, hint=hint, line=self.place.line, column=self.place.column, token="JOIN")


def make_join(left: Side, right: Side, request: JoinRequest) -> Side:
    """Return the joined item."""
    for side in (left, right):
        if change_position(side.node.attributes) is not None:
            raise request.refuse("a join over a change log is not supported", "aggregate inside a window first")
    if isinstance(left.node, TableScan):
        raise request.refuse("a table cannot stand on the left of a join", "put the stream left and the table right")
    if isinstance(right.node, TableScan):
        return Side(_table_join(left, right, request))
    if request.asof:
        return Side(_asof_join(left, right, request))
    return _stream_join(left, right, request)


# -- stream–stream ------------------------------------------------------------------------------------------------------------


def _stream_join(left: Side, right: Side, request: JoinRequest) -> Side:
    attributes = left.node.attributes + right.node.attributes
    condition = analyse(list(request.conditions), attributes, len(left.node.attributes))
    bound = condition.bound
    if request.within_us is not None:
        bound = bound.meet(Bound(-request.within_us, request.within_us))
    window = _window_bound(left, right, request)
    bound = bound.meet(window)
    if bound.is_open:
        raise InvalidDefinition(
            "a join of two streams needs a bound in time",
            hint="add WITHIN 10 SECONDS, or compare the two time columns",
            line=request.place.line,
            column=request.place.column,
            token="JOIN",
        )
    if bound.lower is not None and bound.upper is not None and bound.lower > bound.upper:
        raise InvalidDefinition(
            f"the bounds in time contradict each other: right - left would be at least {duration_text(bound.lower)} and at most "
            f"{duration_text(bound.upper)}",
            line=request.place.line,
            column=request.place.column,
            token="JOIN",
        )
    tumbling = left.spec is not None and left.spec.kind is WindowKind.HOPPING
    node = _keyed_join(left, right, request, condition, bound, tumbling)
    points = left.spec is not None and not tumbling
    return Side(node, left.spec if tumbling else None, joined=points or left.joined or right.joined)


def _window_bound(left: Side, right: Side, request: JoinRequest) -> Bound:
    """K2: two rows pair when the older is still in its window at the newer's instant; tumbling windows pair rows of one window."""
    a, b = left.spec, right.spec
    if a is None and b is None:
        return Bound()
    if a is None or b is None:
        raise request.refuse("a join with a window on one side only is not supported", "write a window on both items, or WITHIN")
    if left.joined or right.joined:
        raise request.refuse("a join of more than two windowed items is not supported", "bound the further joins with WITHIN")
    if a.kind in _POINT and b.kind in _POINT:
        return Bound(_negative(_reach(b)), _reach(a))
    if a.kind is b.kind is WindowKind.HOPPING and a == b and a.range_us == a.slide_us and a.zone is None:
        return Bound(1 - a.range_us, a.range_us - 1)
    if a.kind is b.kind is WindowKind.HOPPING:
        raise request.refuse(
            "a join of hopping, differing or zoned windows is not supported", "use the same tumbling window twice, or WITHIN"
        )
    kinds = f"{a.kind.value.upper()} and {b.kind.value.upper()}"
    raise request.refuse(f"a join of {kinds} windows is not supported", "use [RANGE d] on both items, or WITHIN d")


def _reach(spec: WindowSpec) -> int | None:
    """How much newer than a row of this window another may be: (τ − T, τ] is open on the left."""
    if spec.kind is WindowKind.UNBOUNDED:
        return None
    return 0 if spec.kind is WindowKind.NOW else spec.range_us - 1


def _negative(value: int | None) -> int | None:
    return None if value is None else -value


@dataclass(slots=True)
class _KeyedSide:
    """A side with the computed key columns appended."""

    node: Node
    positions: list[int]


def _keyed_join(left: Side, right: Side, request: JoinRequest, condition: JoinCondition, bound: Bound, tumbling: bool) -> Node:
    left_node, right_node, pairs = _with_keys(left.node, right.node, condition.keys)
    if tumbling:
        assert left.spec is not None
        left_node, right_node, pair = _same_window(left_node, right_node, left.spec)
        pairs.append(pair)
    shift = len(left_node.attributes) - len(left.node.attributes)
    residual = conjunction(condition.rest)
    if residual is not None:
        residual = _moved(residual, len(left.node.attributes), shift)
    outputs = _joined_attributes(left_node.attributes, right_node.attributes, request.kind, bound)
    join = Join(
        attributes=outputs,
        left=left_node,
        right=right_node,
        kind=request.kind,
        keys=tuple(pairs),
        lower_us=bound.lower,
        upper_us=bound.upper,
        residual=residual,
    )
    return _without_extras(join, len(left.node.attributes), len(left_node.attributes), len(right.node.attributes))


def _same_window(left: Node, right: Node, spec: WindowSpec) -> tuple[Node, Node, KeyPair]:
    """Put both sides into their windows and make the window's start a key."""
    from millstream.engine.planner.window_binder import bounds_of

    windows = [Window(attributes=n.attributes + bounds_of(None), input=n, spec=spec) for n in (left, right)]
    pair = KeyPair(len(left.attributes), len(right.attributes))
    return windows[0], windows[1], pair


def _with_keys(left: Node, right: Node, keys: list[KeyExpressions]) -> tuple[Node, Node, list[KeyPair]]:
    """Append computed and cast key columns below the join where a plain column will not do."""
    extra_left: list[Expression] = []
    extra_right: list[Expression] = []
    pairs = []
    for key in keys:
        common = key_type(key)
        a = _key_position(build.cast(key.left, common), left, extra_left)
        b = _key_position(build.cast(key.right, common), right, extra_right)
        pairs.append(KeyPair(a, b, key.null_safe))
    return _extended(left, extra_left), _extended(right, extra_right), pairs


def _key_position(expression: Expression, node: Node, extra: list[Expression]) -> int:
    if isinstance(expression, ColumnRef):
        return expression.position
    if expression not in extra:
        extra.append(expression)
    return len(node.attributes) + extra.index(expression)


def _extended(node: Node, extra: list[Expression]) -> Node:
    if not extra:
        return node
    attributes = node.attributes + tuple(Attribute(f"key_{i}", e.type) for i, e in enumerate(extra))
    return Project(attributes=attributes, input=node, expressions=(*passing(node.attributes), *extra))


def _moved(expression: Expression, start: int, by: int) -> Expression:
    """Move references at or after `start`: the left side has grown by key columns."""
    if not by:
        return expression

    def change(node: Expression) -> Expression:
        return replace(node, position=node.position + by) if isinstance(node, ColumnRef) and node.position >= start else node

    return transform(expression, change)


def _without_extras(join: Node, left: int, left_all: int, right: int) -> Node:
    keep = [*range(left), *range(left_all, left_all + right)]
    if len(keep) == len(join.attributes):
        return join
    attributes = tuple(join.attributes[i] for i in keep)
    return Project(attributes=attributes, input=join, expressions=tuple(join.attributes[i].reference(i) for i in keep))


def _joined_attributes(left: Attributes, right: Attributes, kind: JoinKind, bound: Bound) -> Attributes:
    """Return both sides' attributes: outer sides nullable, times seen from the joined row, whose time is the later of the two."""
    left_nullable = kind in (JoinKind.RIGHT, JoinKind.FULL)
    right_nullable = kind in (JoinKind.LEFT, JoinKind.FULL)
    ahead = None if bound.upper is None else max(bound.upper, 0)  # how much later than the left row the joined one may be
    behind = None if bound.lower is None else max(-bound.lower, 0)
    return (
        *(_joined(a, left_nullable, ahead) for a in left),
        *(_joined(a, right_nullable, behind) for a in right),
    )


def _joined(attribute: Attribute, nullable: bool, lag: int | None) -> Attribute:
    time = attribute.time
    if time is not None:
        time = None if lag is None else TimeOffset(time.least_us - lag, time.most_us)
    return replace(attribute, nullable=attribute.nullable or nullable, time=time)


# -- stream–table and as-of ---------------------------------------------------------------------------------------------------


def _one_sided(left: Side, right: Side, request: JoinRequest, what: str) -> None:
    if request.kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise request.refuse(f"{request.kind.value.upper()} {what} is not supported", "only INNER and LEFT are")
    if request.within_us is not None:
        raise request.refuse(f"WITHIN has no meaning in {what}", "leave it out")
    if left.spec is not None or right.spec is not None:
        raise request.refuse(f"a window inside {what} is not supported", "join in a derived table and put the window on that")


def _table_join(left: Side, right: Side, request: JoinRequest) -> Node:
    _one_sided(left, right, request, "a join with a table")
    condition = analyse(list(request.conditions), left.node.attributes + right.node.attributes, len(left.node.attributes))
    if not condition.keys:
        raise request.refuse("a join with a table needs an equality", "write ON stream.column = table.key")
    left_node, pairs, residual = _left_keys(left, right, condition)
    outputs = _outer_right(left_node.attributes, right.node.attributes, request.kind)
    join = TableJoin(attributes=outputs, left=left_node, right=right.node, kind=request.kind, keys=tuple(pairs), residual=residual)
    return _without_extras(join, len(left.node.attributes), len(left_node.attributes), len(right.node.attributes))


def _left_keys(left: Side, right: Side, condition: JoinCondition) -> tuple[Node, list[KeyPair], Expression | None]:
    """Keys whose right side is a plain column; any other equality goes to the residual."""
    usable, rest = [], list(condition.rest)
    count = len(left.node.attributes)
    for key in condition.keys:
        if isinstance(key.right, ColumnRef) and key_type(key) == key.right.type:
            usable.append(key)
        else:
            rest.append(build.call("=", [key.left, replace_positions(key.right, count)]))
    left_node, _, pairs = _with_keys(left.node, right.node, usable)
    residual = conjunction(rest)
    if residual is not None:
        residual = _moved(residual, count, len(left_node.attributes) - count)
    return left_node, pairs, residual


def replace_positions(expression: Expression, by: int) -> Expression:
    """Return the expression with every column moved by `by`."""
    return _moved(expression, 0, by)


def _outer_right(left: Attributes, right: Attributes, kind: JoinKind) -> Attributes:
    nullable = kind is JoinKind.LEFT
    return (*left, *(replace(a, nullable=a.nullable or nullable, time=None) for a in right))


def _asof_join(left: Side, right: Side, request: JoinRequest) -> Node:
    _one_sided(left, right, request, "an as-of join")
    attributes = left.node.attributes + right.node.attributes
    count = len(left.node.attributes)
    condition = analyse(list(request.conditions), attributes, count)
    bound = condition.bound
    if bound.lower is not None or bound.upper not in (None, 0, -1):
        raise request.refuse("an as-of join takes no bound but right.time <= left.time", "leave the other bound out")
    for rest in condition.rest:
        if max(columns_used(rest), default=0) >= count:
            raise request.refuse("an as-of join takes equalities and right.time <= left.time", "put other conditions in WHERE")
    left_node, right_node, pairs = _with_keys(left.node, right.node, condition.keys)
    residual = conjunction(condition.rest)
    join = AsofJoin(
        attributes=_outer_right(left_node.attributes, right_node.attributes, request.kind),
        left=left_node,
        right=right_node,
        kind=request.kind,
        keys=tuple(pairs),
        strict=bound.upper == -1,
        residual=residual,
    )
    return _without_extras(join, count, len(left_node.attributes), len(right.node.attributes))
