"""Joins: two bound items and the conditions over both, to one node (K2, K18, K19).

A one-time answer (FETCH) is planned with every input a finite set of rows that stand now. A table may then stand anywhere in FROM: where
a continuous query allows it (on the right of a join with a stream) it is joined as there, elsewhere its rows are read like those of a
stream that has ended. Two such inputs may be joined without a bound in time. Rows without an event time (those of tables, and kept results
whose time is not among their columns) take no window and no bound in time.
"""

from __future__ import annotations

from dataclasses import field, replace

from millstream.engine.data.durations import duration_text
from millstream.engine.data.errors import InvalidDefinition, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import TEXT
from millstream.engine.expressions import build
from millstream.engine.expressions.build import conjunction
from millstream.engine.expressions.ir import ColumnRef, Expression, columns_used, transform
from millstream.engine.language.recipes import JoinKind, WindowKind, WindowSpec
from millstream.engine.language.statements import Place
from millstream.engine.plan import logical
from millstream.engine.plan.catalog import TimeOffset
from millstream.engine.plan.join_conditions import Bound, JoinCondition, KeyExpressions, analyse, key_type
from millstream.engine.plan.table_windows import asks_for_missing, on_stream_alone, one_key, table_windows
from millstream.engine.plan.windows import AT_INSTANT, FORMED_FIRST, bounds_of, windowed_times
from millstream.engine.windows.assigners import LONGEST_DAY_US, US_PER_DAY

_ROWS_OF = "\x00"  # no name begins with it


def table_rows(table: str) -> str:
    """Return the name under which the rows of a table are read as a stream."""
    return _ROWS_OF + table


def table_of_rows(stream: str) -> str | None:
    """Return the table whose rows are read under this name, None for any other name."""
    return stream.removeprefix(_ROWS_OF) if stream.startswith(_ROWS_OF) else None


def as_scan(node: logical.Node) -> logical.Node:
    """Return a table's scan as one of its rows; any other node as it is."""
    return logical.Scan(attributes=node.attributes, stream=table_rows(node.table)) if isinstance(node, logical.TableScan) else node


def check_times(root: logical.Node, timeless: frozenset[str]) -> None:
    """Refuse windows and bounds in time over inputs whose rows have no event time; `timeless` names kept results that have none.

    Raises Unsupported.
    """
    for node in logical.walk_plan(root):
        bounded = isinstance(node, logical.Join) and (node.lower_us is not None or node.upper_us is not None)
        if not bounded and not isinstance(node, logical.Window | logical.AsofJoin):
            continue
        for below in logical.walk_plan(node):
            if isinstance(below, logical.Scan) and (below.stream in timeless or table_of_rows(below.stream) is not None):
                name = table_of_rows(below.stream) or below.stream
                hint = "leave the window or bound in time out" if below.stream not in timeless else "let the query select its event time"
                raise Unsupported(f"the rows of {name} have no event time, so they cannot have a window or a bound in time", hint=hint)


def is_relation(node: logical.Node) -> bool:
    """Whether an item of FROM is a table, a change log seen as one, or made of such alone."""
    if isinstance(node, logical.TableScan | logical.Relation | logical.ChangeJoin):
        return True
    return isinstance(node, logical.Project | logical.Unnest) and is_relation(node.input)


def as_relation(side: Side) -> Side:
    """Return an item that is a change log as what stands after it: for a join, whose conditions count its other columns alone."""
    if logical.change_position(side.node.attributes) is None:
        return side
    assert side.node.attributes[-1].role is logical.Role.CHANGE
    return replace(side, node=logical.Relation(attributes=side.node.attributes[:-1], input=side.node))


def as_changes(node: logical.Node) -> logical.Node:
    """Return a relation as its change log; the kind of the change comes last, any other node is as it was."""
    if not is_relation(node):
        return node
    if isinstance(node, logical.Relation):
        return node.input
    attributes = (*node.attributes, logical.Attribute("op", TEXT, False, role=logical.Role.CHANGE))
    if isinstance(node, logical.TableScan):
        return logical.TableChanges(attributes=attributes, input=node)
    if isinstance(node, logical.ChangeJoin):
        return replace(node, attributes=attributes, left=as_changes(node.left), right=as_changes(node.right))
    assert isinstance(node, logical.Project | logical.Unnest)
    below = as_changes(node.input)
    last = len(below.attributes) - 1
    if isinstance(node, logical.Project):
        return replace(node, attributes=attributes, input=below, expressions=(*node.expressions, below.attributes[last].reference(last)))
    made = replace(node, attributes=(*below.attributes, *node.attributes[last:]), input=below)
    order = [*range(last), *range(last + 1, len(made.attributes)), last]
    return logical.Project(attributes=attributes, input=made, expressions=tuple(made.attributes[i].reference(i) for i in order))


@dataclass(frozen=True, slots=True)
class Side:
    """An item of FROM without its window, and the window. `joined` marks a join of sliding windows, which takes no further one,
    `per_window` a table joined with these windows of a stream, which takes no join.
    """

    node: logical.Node
    spec: WindowSpec | None = None
    joined: bool = False
    per_window: WindowSpec | None = None


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What was written about a join: kind, conditions over left's then right's attributes, WITHIN, AS OF, place.

    `bound`, `strict` and `forward` come from plan objects, which state what ON would imply. `finite`: both sides are sets of rows that
    stand now. `changes`: what changes may be joined with its like. `where` are conditions of WHERE over the same attributes, for a join
    that is all of FROM; they are applied above it in any case.
    """

    kind: JoinKind
    conditions: tuple[Expression, ...]
    within_us: int | None
    asof: bool
    place: Place
    bound: Bound = field(default_factory=Bound)
    strict: bool = False
    finite: bool = False
    where: tuple[Expression, ...] = ()
    forward: bool = False
    changes: bool = False

    def refuse(self, message: str, hint: str | None = None) -> Unsupported:
        """Return the error, to be raised."""
        return Unsupported(message, hint=hint, line=self.place.line, column=self.place.column, token="JOIN")


def make_join(left: Side, right: Side, request: JoinRequest) -> Side:
    """Return the joined item."""
    if request.changes and is_relation(left.node) and is_relation(right.node):
        return Side(_change_join(left.node, right.node, request))
    for side in (left, right):
        if isinstance(side.node, logical.TableScan):
            continue
        if is_relation(side.node):
            hint = (
                "a stream joins tables by their names: FROM s JOIN a ON … JOIN b ON …; what changes of it, as a GROUP BY in FROM, joins "
                "tables, views and its like; FETCH joins all that stands"
            )
            raise request.refuse("a join of a stream with rows that change is not supported", hint)
        logical.check_append_only(side.node, "a join", request.place, "JOIN")
    if request.finite:
        left, right = _finite_sides(left, right, request)
    if left.per_window or right.per_window:
        raise request.refuse("a further join with table LEFT JOIN stream [window] is not supported", "put that into a derived stream")
    if isinstance(left.node, logical.TableScan):
        return _table_windows(left.node, right, request)
    if isinstance(right.node, logical.TableScan):
        return Side(_table_join(left, right, request), left.spec)
    if request.asof:
        return Side(_asof_join(left, right, request), left.spec)
    return _stream_join(left, right, request)


def _finite_sides(left: Side, right: Side, request: JoinRequest) -> tuple[Side, Side]:
    """A table stays one where a continuous query could join it so; else its rows are joined like any others."""
    if isinstance(right.node, logical.TableScan) and not isinstance(left.node, logical.TableScan) and _takes_table(left, right, request):
        return left, right
    return replace(left, node=as_scan(left.node)), replace(right, node=as_scan(right.node))


def _takes_table(left: Side, right: Side, request: JoinRequest) -> bool:
    if request.kind not in (JoinKind.INNER, JoinKind.LEFT) or request.within_us is not None:
        return False
    count = len(left.node.attributes)
    condition = analyse(list(request.conditions), left.node.attributes + right.node.attributes, count)
    return bool(_left_keys(condition, count)[0])


# -- stream–stream ------------------------------------------------------------------------------------------------------------


def _stream_join(left: Side, right: Side, request: JoinRequest) -> Side:
    attributes = left.node.attributes + right.node.attributes
    condition = analyse(list(request.conditions), attributes, len(left.node.attributes))
    bound = condition.bound.meet(request.bound)
    if request.within_us is not None:
        bound = bound.meet(Bound(-request.within_us, request.within_us))
    window = _window_bound(left, right, request)
    bound = bound.meet(window)
    if bound.is_open and not request.finite and not _keeps_all(left, right):
        raise InvalidDefinition(
            "a join of two streams needs a bound in time",
            hint="add WITHIN 10 SECONDS, or compare the two time columns; [UNBOUNDED] after both keeps all rows",
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
    points = (left.spec is not None or right.spec is not None) and not tumbling
    return Side(node, left.spec if tumbling else None, joined=points or left.joined or right.joined)


def _keeps_all(left: Side, right: Side) -> bool:
    """Whether both items say [UNBOUNDED]: whoever writes that means it."""
    return all(side.spec == WindowSpec(WindowKind.UNBOUNDED) for side in (left, right))


def _window_bound(left: Side, right: Side, request: JoinRequest) -> Bound:
    """K2: two rows pair when the older is still in its window at the newer's instant; tumbling windows pair rows of one window."""
    a, b = left.spec, right.spec
    if a is None and b is None:
        return Bound()
    if left.joined or right.joined:
        raise request.refuse("a join of more than two windowed items is not supported", "bound the further joins with WITHIN")
    if a is None or b is None:
        return _one_window(a, b, request)
    if a.kind in AT_INSTANT and b.kind in AT_INSTANT:
        return Bound(_negative(_reach(b)), _reach(a))
    if a.kind is b.kind is WindowKind.HOPPING and a == b and a.range_us == a.slide_us:
        # A local day may last longer than 24 hours; the window itself is a key of the join, the bound lets its state go.
        longest = a.range_us if a.zone is None else a.range_us // US_PER_DAY * LONGEST_DAY_US or a.range_us
        return Bound(1 - longest, longest - 1)
    if a.kind is b.kind is WindowKind.HOPPING:
        raise request.refuse(
            "a join of hopping or differing windows is not supported",
            "use the same tumbling window on both items, [RANGE d] on both, or WITHIN d",
        )
    kinds = f"{a.kind.value.upper()} and {b.kind.value.upper()}"
    raise request.refuse(f"a join of {kinds} windows is not supported", "use [RANGE d] on both items, or WITHIN d")


def _one_window(a: WindowSpec | None, b: WindowSpec | None, request: JoinRequest) -> Bound:
    """An item without a window is [UNBOUNDED], as in CQL: its rows stay, and meet what the other item's window holds when it comes."""
    spec = a or b
    assert spec is not None
    if spec.kind not in AT_INSTANT:
        kind = spec.kind.value.upper()
        raise request.refuse(f"a join with a {kind} window on one side only is not supported", "write a window on both items, or WITHIN")
    return Bound(None, _reach(spec)) if b is None else Bound(_negative(_reach(spec)), None)


def _reach(spec: WindowSpec) -> int | None:
    """How much newer than a row of this window another may be: (τ − T, τ] is open on the left."""
    if spec.kind is WindowKind.UNBOUNDED:
        return None
    return 0 if spec.kind is WindowKind.NOW else spec.range_us - 1


def _negative(value: int | None) -> int | None:
    return None if value is None else -value


def _keyed_join(left: Side, right: Side, request: JoinRequest, condition: JoinCondition, bound: Bound, tumbling: bool) -> logical.Node:
    keys = _keys(condition.keys)
    left_node, right_node, residual = left.node, right.node, conjunction(condition.rest)
    width = len(left.node.attributes)
    if tumbling:
        assert left.spec is not None
        left_node, right_node, key = _same_window(left_node, right_node, left.spec)
        keys.append(key)
        residual = None if residual is None else moved(residual, width, len(left_node.attributes) - width)
    join = logical.Join(
        attributes=_joined_attributes(left_node.attributes, right_node.attributes, request.kind, bound),
        left=left_node,
        right=right_node,
        kind=request.kind,
        keys=tuple(keys),
        lower_us=bound.lower,
        upper_us=bound.upper,
        residual=residual,
    )
    if not tumbling:
        return join
    keep = [*range(width), *range(width + 2, width + 2 + len(right.node.attributes))]
    attributes = tuple(join.attributes[i] for i in keep)
    return logical.Project(attributes=attributes, input=join, expressions=tuple(join.attributes[i].reference(i) for i in keep))


def _keys(found: list[KeyExpressions]) -> list[logical.JoinKey]:
    keys = []
    for key in found:
        common = key_type(key)
        keys.append(logical.JoinKey(build.cast(key.left, common), build.cast(key.right, common), key.null_safe))
    return keys


def _same_window(left: logical.Node, right: logical.Node, spec: WindowSpec) -> tuple[logical.Node, logical.Node, logical.JoinKey]:
    """Put both sides into their windows and make the window's start a key."""
    made = [logical.Window(attributes=n.attributes + bounds_of(None), input=n, spec=spec) for n in (left, right)]
    windows = [replace(w, attributes=windowed_times(w)) for w in made]
    starts = [w.attributes[-2].reference(len(w.attributes) - 2) for w in windows]
    return windows[0], windows[1], logical.JoinKey(starts[0], starts[1])


def moved(expression: Expression, start: int, by: int) -> Expression:
    """Return the expression with references at or after `start` moved by `by`."""
    if not by:
        return expression

    def change(node: Expression) -> Expression:
        return replace(node, position=node.position + by) if isinstance(node, ColumnRef) and node.position >= start else node

    return transform(expression, change)


def _joined_attributes(left: logical.Attributes, right: logical.Attributes, kind: JoinKind, bound: Bound) -> logical.Attributes:
    """Return both sides' attributes: outer sides nullable, times seen from the joined row, whose time is the later of the two."""
    left_nullable = kind in (JoinKind.RIGHT, JoinKind.FULL)
    right_nullable = kind in (JoinKind.LEFT, JoinKind.FULL)
    ahead = None if bound.upper is None else max(bound.upper, 0)  # how much later than the left row the joined one may be
    behind = None if bound.lower is None else max(-bound.lower, 0)
    return (
        *(_joined(a, left_nullable, ahead) for a in left),
        *(_joined(a, right_nullable, behind) for a in right),
    )


def _joined(attribute: logical.Attribute, nullable: bool, lag: int | None) -> logical.Attribute:
    time = attribute.time
    if time is not None:
        time = None if lag is None else TimeOffset(time.least_us - lag, time.most_us)
    return replace(attribute, nullable=attribute.nullable or nullable, time=time)


# -- of what changes ----------------------------------------------------------------------------------------------------------


def _change_join(left: logical.Node, right: logical.Node, request: JoinRequest) -> logical.Node:
    """Join two tables, or what stands after change logs (K28); `as_changes` gives it and them their kinds of changes."""
    if request.asof or request.within_us is not None:
        raise request.refuse("a join of tables takes no bound in time", "compare their columns in ON")
    condition = analyse(list(request.conditions), left.attributes + right.attributes, len(left.attributes))
    return logical.ChangeJoin(
        attributes=tuple(
            replace(a, time=None, time_unit_us=1) for a in _joined_attributes(left.attributes, right.attributes, request.kind, Bound())
        ),
        left=left,
        right=right,
        kind=request.kind,
        keys=tuple(_keys(condition.keys)),
        residual=conjunction(condition.rest),
    )


# -- stream–table and as-of ---------------------------------------------------------------------------------------------------


def _table_windows(table: logical.TableScan, right: Side, request: JoinRequest) -> Side:
    """table LEFT JOIN stream [RANGE w SLIDE s] ON table.column = stream.column [AND conditions on the stream]."""
    spec = right.spec
    if request.kind is not JoinKind.LEFT or request.asof or request.within_us is not None or isinstance(right.node, logical.TableScan):
        raise request.refuse("a table cannot stand on the left of this join", "put the stream left and the table right")
    if spec is None or spec.kind is not WindowKind.HOPPING:
        hint = "write table LEFT JOIN stream [RANGE 5 MINUTES SLIDE 5 MINUTES] ON …"
        raise request.refuse("a table on the left of a join needs a tumbling or hopping window on the stream", hint)
    count = len(table.attributes)
    condition = analyse(list(request.conditions), table.attributes + right.node.attributes, count)
    key, rest = one_key(condition.keys), on_stream_alone(condition.rest, count)
    if key is None or rest is None:
        hint = "write ON table.column = stream.column of one type, and the rest in WHERE"
        raise request.refuse("table LEFT JOIN stream takes one equality, and conditions on the stream alone", hint)
    missing_only = asks_for_missing(request.where, key, count)
    return Side(table_windows(table, right.node, spec, key, rest, missing_only=missing_only), per_window=spec)


def _one_sided(left: Side, right: Side, request: JoinRequest, what: str) -> None:
    if request.kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise request.refuse(f"{request.kind.value.upper()} {what} is not supported", "only INNER and LEFT are")
    if request.within_us is not None and not request.asof:
        raise request.refuse(f"WITHIN has no meaning in {what}", "leave it out")
    if right.spec is not None:
        raise request.refuse(f"a window on the right of {what} is not supported", "leave it out")
    if left.spec is not None and left.spec.kind in FORMED_FIRST:
        # Such a window would have to keep rows that the join drops, so it cannot be formed after it.
        kind = left.spec.kind.value.upper()
        raise request.refuse(
            f"a {kind} window on the left of {what} is not supported", "join in a derived table and put the window on that"
        )


def _table_join(left: Side, right: Side, request: JoinRequest) -> logical.Node:
    _one_sided(left, right, request, "a join with a table")
    condition = analyse(list(request.conditions), left.node.attributes + right.node.attributes, len(left.node.attributes))
    if not condition.keys:
        raise request.refuse("a join with a table needs an equality", "write ON stream.column = table.key")
    keys, rest = _left_keys(condition, len(left.node.attributes))
    return logical.TableJoin(
        attributes=_outer_right(left.node.attributes, right.node.attributes, request.kind),
        left=left.node,
        right=right.node,
        kind=request.kind,
        keys=tuple(_keys(keys)),
        residual=conjunction(rest),
    )


def _left_keys(condition: JoinCondition, count: int) -> tuple[list[KeyExpressions], list[Expression]]:
    """Keys whose right side is a plain column; any other equality goes to the residual."""
    usable, rest = [], list(condition.rest)
    for key in condition.keys:
        if isinstance(key.right, ColumnRef) and key_type(key) == key.right.type:
            usable.append(key)
        else:
            name = "is_not_distinct_from" if key.null_safe else "="
            rest.append(build.call(name, [key.left, moved(key.right, 0, count)]))
    return usable, rest


def _outer_right(left: logical.Attributes, right: logical.Attributes, kind: JoinKind) -> logical.Attributes:
    nullable = kind is JoinKind.LEFT
    return (*left, *(replace(a, nullable=a.nullable or nullable, time=None) for a in right))


@dataclass(frozen=True, slots=True)
class _Nearest:
    """Which right row an as-of join takes: looking ahead or back, not at the same time (`strict`), and how far away at most."""

    forward: bool
    strict: bool
    within_us: int | None


def _nearest(bound: Bound, request: JoinRequest, units: set[int]) -> _Nearest:
    """Read bounds on right.time - left.time as the direction of an as-of join, and how far it reaches."""
    least, most = bound.lower, bound.upper
    begins = {0: False, **dict.fromkeys(units, True)}  # times move in steps of their unit, so that `<` is `<= one step less`
    if request.forward:
        least = 0 if least is None else least
    elif most is None and (least is None or least < 0):
        most = 0  # what holds if nothing is said
    if not request.forward and most is not None and -most in begins and (least is None or least <= most):
        forward, strict, far = False, begins[-most], None if least is None else -least
    elif least is not None and least in begins and (most is None or most >= least):
        forward, strict, far = True, begins[least], most
    else:
        hint = "compare the two event times by <, <=, > or >=, and say how far away a row may be by WITHIN d"
        raise request.refuse("an as-of join takes one comparison of the two event times", hint)
    distances = [d for d in (far, request.within_us) if d is not None]
    return _Nearest(forward, request.strict or strict, min(distances) if distances else None)


def _asof_join(left: Side, right: Side, request: JoinRequest) -> logical.Node:
    _one_sided(left, right, request, "an as-of join")
    attributes = left.node.attributes + right.node.attributes
    count = len(left.node.attributes)
    condition = analyse(list(request.conditions), attributes, count)
    nearest = _nearest(condition.bound.meet(request.bound), request, {a.time_unit_us for a in attributes if a.time is not None})
    for rest in condition.rest:
        if max(columns_used(rest), default=0) >= count:
            raise request.refuse(
                "an as-of join takes equalities and one comparison of the two event times", "put other conditions in WHERE"
            )
    node, residual = left.node, conjunction(condition.rest)
    if nearest.forward and residual is not None:
        if request.kind is JoinKind.LEFT:
            hint = "put it in WHERE, or into the key: CASE WHEN condition THEN left.k END = right.k"
            raise request.refuse("LEFT ASOF JOIN on >= or > takes no condition on the left alone", hint)
        node, residual = logical.Filter(attributes=node.attributes, input=node, condition=residual), None
    if nearest.forward and nearest.within_us is None and request.kind is JoinKind.LEFT and not request.finite:
        hint = "add WITHIN 10 MINUTES, which says how far ahead a right row may be"
        raise request.refuse("LEFT ASOF JOIN on >= or > would wait for ever where no right row follows", hint)
    return logical.AsofJoin(
        attributes=_asof_attributes(node.attributes, right.node.attributes, request.kind, nearest),
        left=node,
        right=right.node,
        kind=request.kind,
        keys=tuple(_keys(condition.keys)),
        strict=nearest.strict,
        residual=residual,
        forward=nearest.forward,
        within_us=nearest.within_us,
    )


def _asof_attributes(left: logical.Attributes, right: logical.Attributes, kind: JoinKind, nearest: _Nearest) -> logical.Attributes:
    """Return both sides' attributes. Looking ahead, the joined row has the right row's time; the left's is at most `within` before."""
    if not nearest.forward:
        return _outer_right(left, right, kind)
    nullable = kind is JoinKind.LEFT
    return (*(_joined(a, False, nearest.within_us) for a in left), *(replace(a, nullable=a.nullable or nullable) for a in right))
