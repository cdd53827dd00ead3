"""Windows in a plan: a window as written to a WindowSpec over an item's attributes, and the window joined with the aggregate above it
(K17).

The window's node goes, its bounds become the aggregate's.

Between the two stand filters and projections. Over a RANGE window a filter may act before or after the window is formed, the answer is
the same; in a ROWS window or a session a row that WHERE drops keeps its place, so the condition becomes a column `live`.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.data.calendar import US_PER_DAY
from millstream.engine.data.errors import InvalidDefinition, TypeProblem, UnknownName, Unsupported
from millstream.engine.data.nearest import near_or_listed
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BOOLEAN, TEXT, TIMESTAMP
from millstream.engine.expressions import build
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.build import text_constant
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal, columns_used, transform
from millstream.engine.language.column_types import checked_zone
from millstream.engine.language.recipes import WindowKind, WindowSpec
from millstream.engine.language.statements import Place, WindowClause
from millstream.engine.plan.catalog import TimeOffset
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.logical import Aggregate, Attribute, Attributes, Filter, Node, Project, Role, Window, check_append_only
from millstream.engine.plan.scope import Scope
from sqlglot import exp

US_PER_WEEK = 7 * US_PER_DAY

# The extent depends on which rows there are, so that WHERE and joins must not come first (K17).
FORMED_FIRST = (WindowKind.ROWS, WindowKind.SESSION)
# Without an aggregate each row comes once per window, with the window's bounds.
PER_WINDOW = (WindowKind.HOPPING, WindowKind.CUMULATE, WindowKind.SESSION)
# Windows that end at an instant, whose join is a bound on the difference of the times (K2).
AT_INSTANT = (WindowKind.SLIDING, WindowKind.NOW, WindowKind.UNBOUNDED)


@dataclass(frozen=True, slots=True)
class Fused:
    """The input of a windowed aggregate without the window's node.

    `mapping` gives the new position of each old one (bounds have none); `spec.partition` holds positions in `node`.
    """

    node: Node
    mapping: dict[int, int]
    spec: WindowSpec
    live: int | None = None


def window_below(node: Node) -> Window | None:
    """Return the window whose columns the node passes on, through filters and projections; None when there is none."""
    while isinstance(node, Filter | Project):
        node = node.input
    return node if isinstance(node, Window) else None


def fuse(aggregate: Aggregate) -> Fused:
    """Return the aggregate's input without the window, which must stand below it."""
    return _fused(aggregate.input)


def _fused(node: Node) -> Fused:
    if isinstance(node, Window):
        return Fused(node.input, {i: i for i in range(len(node.input.attributes))}, node.spec)
    if isinstance(node, Filter):
        return _filter(node)
    if isinstance(node, Project):
        return _project(node)
    raise AssertionError(f"{type(node).__name__} between an aggregate and its window")


def _remapped(expression: Expression, mapping: dict[int, int]) -> Expression:
    if not columns_used(expression) <= mapping.keys():
        raise Unsupported("the window's bounds cannot stand below an aggregate", hint="use them beside the aggregate or in HAVING")
    return transform(expression, lambda e: replace(e, position=mapping[e.position]) if isinstance(e, ColumnRef) else e)


def _filter(node: Filter) -> Fused:
    below = _fused(node.input)
    condition = _remapped(node.condition, below.mapping)
    if below.spec.kind not in FORMED_FIRST:
        kept = Filter(attributes=below.node.attributes, input=below.node, condition=condition, hints=node.hints)
        return replace(below, node=kept)
    if below.live is not None:
        condition = build.call("and", [ColumnRef(BOOLEAN, below.live, "live"), condition])
    width = len(below.node.attributes)
    attributes = (*below.node.attributes, Attribute("live", BOOLEAN))
    passed = tuple(a.reference(i) for i, a in enumerate(below.node.attributes))
    marked = Project(attributes=attributes, input=below.node, expressions=(*passed, condition))
    return replace(below, node=marked, live=width)


def _project(node: Project) -> Fused:
    below = _fused(node.input)
    expressions: list[Expression] = []
    attributes: list[Attribute] = []
    mapping: dict[int, int] = {}
    for position, (expression, attribute) in enumerate(zip(node.expressions, node.attributes, strict=True)):
        if isinstance(expression, ColumnRef) and expression.position not in below.mapping:
            continue  # a bound of the window passed through
        mapping[position] = len(expressions)
        remapped = _remapped(expression, below.mapping)
        if below.live is not None and may_fail(remapped):  # what WHERE drops is not evaluated, so that nothing fails there (K8)
            remapped = build.case([(ColumnRef(BOOLEAN, below.live, "live"), remapped)], None)
        expressions.append(remapped)
        attributes.append(attribute)

    def carried(position: int) -> int:
        reference = below.node.attributes[position].reference(position)
        if reference not in expressions:
            expressions.append(reference)
            attributes.append(below.node.attributes[position])
        return expressions.index(reference)

    partition = tuple(carried(p) for p in below.spec.partition)
    live = None if below.live is None else carried(below.live)
    projected = Project(attributes=tuple(attributes), input=below.node, expressions=tuple(expressions), hints=node.hints)
    return Fused(projected, mapping, replace(below.spec, partition=partition), live)


def _at(place: Place) -> dict[str, int]:
    return {"line": place.line, "column": place.column}


def bind_window(clause: WindowClause, node: Node, qualifier: str | None) -> Window:
    """Return the Window node over `node`; its attributes are those of the item, window_start and window_end."""
    check_append_only(node, "a window", clause.place)
    _check_descriptor(clause, node.attributes)
    _check_bounds(clause, node.attributes)
    spec = window_spec(clause, node.attributes)
    return Window(attributes=node.attributes + bounds_of(qualifier), input=node, spec=spec)


def bounds_of(qualifier: str | None) -> Attributes:
    """Return the attributes window_start and window_end of a windowed item."""
    return (
        Attribute("window_start", TIMESTAMP, False, qualifier, role=Role.WINDOW_START),
        Attribute("window_end", TIMESTAMP, False, qualifier, role=Role.WINDOW_END),
    )


def window_spec(clause: WindowClause, attributes: Attributes) -> WindowSpec:
    """Return the window's numbers; partition keys must be columns."""
    zone = checked_zone(clause.zone) if clause.zone is not None else None
    offset = clause.offset_us % clause.slide_us if clause.slide_us and zone is None else clause.offset_us
    return WindowSpec(
        clause.kind,
        range_us=clause.range_us,
        slide_us=clause.slide_us,
        offset_us=offset,
        zone=None if zone == "UTC" and _same_in_utc(clause, offset) else zone,
        slide_within=clause.slide_within,
        rows=clause.rows,
        rows_slide=clause.rows_slide,
        partition=tuple(_partition_key(key, attributes) for key in clause.partition),
        gap_us=clause.gap_us,
        max_us=clause.max_us,
        from_us=_landmark(clause),
        state_rows_max=clause.state_rows_max,
    )


def _same_in_utc(clause: WindowClause, offset: int) -> bool:
    """Whether a window under the calendar of UTC is the one without a zone: each is a part of a day, or of days that no week bounds."""
    parts = clause.range_us == clause.slide_us and clause.range_us > 0 and US_PER_DAY % clause.range_us == 0
    days = clause.range_us % US_PER_DAY == 0 and clause.slide_us % US_PER_DAY == 0 and clause.slide_us % US_PER_WEEK != 0
    return offset == 0 and (parts or days)


def _partition_key(key: exp.Expr, attributes: Attributes) -> int:
    bound = ExpressionBinder(Scope(attributes)).bind(key)
    if not isinstance(bound, ColumnRef):
        raise Unsupported("PARTITION BY takes columns", hint="compute the key in a derived table")
    return bound.position


def _landmark(clause: WindowClause) -> int | None:
    if clause.landmark is None:
        return None
    bound = ExpressionBinder(Scope(())).bind(clause.landmark)
    if isinstance(bound, Literal) and bound.type == TEXT:
        bound = text_constant(bound.value, TIMESTAMP)
    if not isinstance(bound, Literal) or bound.type != TIMESTAMP or bound.value is None:
        raise TypeProblem("LANDMARK FROM takes a constant TIMESTAMP", **_at(clause.place))  # type: ignore[arg-type]
    return int(bound.value)


def _check_bounds(clause: WindowClause, attributes: Attributes) -> None:
    """The window's bounds are columns of the item; others of their names would be taken for them."""
    clash = next((a.name for a in attributes if a.word in ("window_start", "window_end") and a.role is Role.PLAIN), None)
    if clash is not None:
        message = f"the window adds a column {clash}, and there is one already"
        raise TypeProblem(message, hint="rename yours in a derived table: FROM (SELECT … AS start_of, …) [window]", **_at(clause.place))  # type: ignore[arg-type]


def _check_descriptor(clause: WindowClause, attributes: Attributes) -> None:
    """The time column that a window function names must be the item's event time."""
    name = clause.descriptor
    if name is None:
        return
    found = next((a for a in attributes if a.name == name.text), None)
    place = _at(name.place)
    if found is None:
        hint = near_or_listed(name.text, (a.name for a in attributes), "columns")
        raise UnknownName(f"there is no column {name.text}", hint=hint, token=name.text, **place)
    if found.time is None or (found.time.least_us, found.time.most_us) != (0, 0):
        times = [a.name for a in attributes if a.time is not None and (a.time.least_us, a.time.most_us) == (0, 0)]
        hint = f"it is {times[0]}" if times else "the stream takes its time from arrival; leave the descriptor out"
        raise InvalidDefinition(f"{name.text} is not the event time", hint=hint, token=name.text, **place)


def windowed_times(window: Window) -> Attributes:
    """Return the attributes of rows that a window gives by itself, with what is known of their times.

    Rows of hopping and cumulating windows leave at once and keep their event time, which lies within the window. Rows of a session
    come when it closes, when their own time is long past.
    """
    spec, width = window.spec, len(window.input.attributes)
    if spec.kind not in (WindowKind.HOPPING, WindowKind.CUMULATE):
        return tuple(replace(a, time=None) for a in window.attributes)
    start, end = window.attributes[width : width + 2]
    known = spec.zone is None  # a local day may have 25 hours
    bounds = (
        replace(start, time=TimeOffset(1 - spec.range_us, 0) if known else None),
        replace(end, time=TimeOffset(1, spec.range_us) if known else None),
    )
    return window.input.attributes + bounds


def output_time_known(spec: WindowSpec) -> bool:
    """Windows whose result rows carry the event time window_end - 1 µs, and whose size is fixed."""
    return spec.kind in (WindowKind.HOPPING,) and spec.zone is None
