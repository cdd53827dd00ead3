"""Plan-building steps that the binder of SELECT and the reader of plan objects share, and when answers leave: the rules of K9."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import InvalidDefinition, TypeProblem, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BOOLEAN, TEXT
from millstream.engine.expressions.build import conjunction
from millstream.engine.expressions.ir import Expression, Literal, columns_used
from millstream.engine.language.dialect import walked
from millstream.engine.language.recipes import EmitKind, EmitSpec, OrderColumn, WindowKind, WindowSpec
from millstream.engine.language.statements import Place, SelectBody, SelectItem
from millstream.engine.plan.aggregate_binder import AggregateBinder, projected
from millstream.engine.plan.logical import (
    Aggregate,
    Attribute,
    Filter,
    Node,
    Project,
    RelationToStream,
    Role,
    SubqueryJoin,
    TableChanges,
    TableJoin,
    TableScan,
    Top,
    Union,
    Window,
    change_position,
    walk_plan,
)
from millstream.engine.plan.windows import PER_WINDOW
from sqlglot import exp

WINDOW_ROLES = (Role.WINDOW_START, Role.WINDOW_END)


@dataclass(frozen=True, slots=True)
class Output:
    """One column to be: its name and its expression over the node below."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class OrderBy:
    """An ordering key as an expression over the node below."""

    expression: Expression
    descending: bool
    nulls_first: bool


def filtered(node: Node, conditions: Iterable[Expression]) -> Node:
    """Return the node behind a filter on all conditions; itself when there is nothing to ask."""
    condition = conjunction([c for c in conditions if c != Literal(BOOLEAN, True)])
    return node if condition is None else Filter(attributes=node.attributes, input=node, condition=condition)


def aggregated(binder: AggregateBinder, node: Node, conditions: list[Expression], spec: WindowSpec | None, emit: EmitSpec) -> Aggregate:
    """Return the aggregation of the rows that WHERE lets pass.

    EMIT EMPTY without keys answers for the windows of all rows, also of those that WHERE drops (K6, K17): there it is a FILTER of each
    aggregate. Keys are those of rows that pass.
    """
    if not emit.empty or binder.keys:
        made = binder.build(filtered(node, conditions), spec, emit)
        if made.retracts is not None and emit.kind is EmitKind.EVERY:
            message = "EMIT EVERY of an aggregate over another without a window is not supported"
            raise Unsupported(message, hint="write EMIT CHANGES or EMIT FINAL, or give the inner aggregate a window")
        return made
    for i, pending in enumerate(binder.pending):
        parts = [*conditions, *([pending.filter] if pending.filter is not None else [])]
        binder.pending[i] = replace(pending, filter=conjunction(parts))
    return binder.build(node, spec, emit)


def project_to(node: Node, outputs: list[Output], keep_roles: bool = False) -> Project:
    """Return the projection to the outputs. Without `keep_roles` the bounds of windows become plain columns."""
    attributes = tuple([projected(node, o.expression, o.name, keep_roles=keep_roles) for o in outputs])
    return Project(attributes=attributes, input=node, expressions=tuple([o.expression for o in outputs]))


def split_conditions(
    conditions: Iterable[Expression], attributes: tuple[Attribute, ...], binder: AggregateBinder
) -> tuple[list[Expression], list[Expression]]:
    """Conditions of WHERE on the window's bounds alone act on whole groups and go above the aggregate; return (below, above)."""
    windows = {i for i, a in enumerate(attributes) if a.role in WINDOW_ROLES}
    below: list[Expression] = []
    above: list[Expression] = []
    for condition in conditions:
        used = columns_used(condition)
        if used & windows and not used <= windows:
            raise Unsupported(
                "a condition in WHERE cannot mix the window's bounds with other columns of an aggregated query",
                hint="compute it in a derived table, or put it in FILTER",
            )
        if used & windows:
            found = binder.over_group(condition)
            assert found is not None
            above.append(found)
        else:
            below.append(condition)
    return below, above


def top_of(node: Node, outputs: list[Output], order: list[OrderBy], limit: int, with_ties: bool, *, whole: bool = False) -> Node:
    """Return the first `limit` of `outputs` per window of the node; ordering keys and bounds ride along as hidden columns.

    `whole`: where there is no window, of all rows together once the input has ended.
    """
    windows = [i for i, a in enumerate(node.attributes) if a.role in WINDOW_ROLES]
    if not windows and not whole:
        below = window_of(node) is not None
        raise Unsupported(
            "ORDER BY … LIMIT without a window is not supported in a continuous query",
            hint="move it into the derived table that has the window"
            if below
            else "write a window after the stream's name, or FETCH SELECT for one answer now",
        )
    columns = list(outputs)
    keys = tuple(OrderColumn(column_for(k.expression, columns), k.descending, k.nulls_first) for k in order)
    partition = tuple(column_for(node.attributes[i].reference(i), columns) for i in windows)
    inner = project_to(node, columns, keep_roles=True)
    top = Top(attributes=inner.attributes, input=inner, order=keys, limit=limit, with_ties=with_ties, partition=partition)
    return project_to(top, [Output(o.name, top.attributes[i].reference(i)) for i, o in enumerate(outputs)])


def column_for(expression: Expression, columns: list[Output]) -> int:
    """Return the position of a column that has this value, appending a hidden one if there is none."""
    spend(len(columns))
    for i, output in enumerate(columns):
        if output.expression == expression:
            return i
    columns.append(Output(f"hidden_{len(columns)}", expression))
    return len(columns) - 1


def window_of(node: Node) -> WindowSpec | None:
    """Return the window whose rows the node carries, looking down through what keeps it."""
    while not isinstance(node, Window):
        if len(node.inputs) != 1 and not isinstance(node, SubqueryJoin):
            return None
        node = node.inputs[0]
    return node.spec


def append_only_change(node: Node) -> Node:
    """Return the rows as a change log: every one is a '+'."""
    attributes = (*node.attributes, Attribute("op", TEXT, False, role=Role.CHANGE))
    expressions: tuple[Expression, ...] = (*(a.reference(i) for i, a in enumerate(node.attributes)), Literal(TEXT, "+"))
    return Project(attributes=attributes, input=node, expressions=expressions)


def is_append_only_change(node: Node) -> bool:
    """The node is what `append_only_change` makes."""
    return isinstance(node, Project) and node.attributes[-1].role is Role.CHANGE and node.expressions[-1] == Literal(TEXT, "+")


STREAM_WORDS = {"i": "ISTREAM", "d": "DSTREAM", "r": "RSTREAM"}


def aggregate_emit(spec: WindowSpec | None, emit: EmitSpec | None, stream: str | None) -> EmitSpec:
    """Return how an aggregate emits: FINAL by default in a window, CHANGES without one. [UNBOUNDED] and [LANDMARK] never end."""
    if spec is None:
        return emit if emit is not None else EmitSpec(EmitKind.CHANGES)
    kind = spec.kind
    if stream is not None and kind in (*PER_WINDOW, WindowKind.LANDMARK):
        raise Unsupported(
            f"{STREAM_WORDS[stream]} over a {kind.value.upper()} window is not supported",
            hint="it answers once per window; leave the word out, or write EMIT CHANGES, or [RANGE d] for what holds at each instant",
        )
    if emit is not None and emit.kind is EmitKind.EVERY and spec.rows_slide > 1:
        raise Unsupported("EMIT EVERY over [ROWS n SLIDE m] is not supported", hint="leave SLIDE or EMIT EVERY out")
    endless = kind in (WindowKind.UNBOUNDED, WindowKind.LANDMARK)
    if endless and (emit is None or emit.kind is EmitKind.FINAL):
        wanted = "EMIT EVERY" if kind is WindowKind.LANDMARK else "EMIT CHANGES or EMIT EVERY"
        raise InvalidDefinition(f"[{kind.value.upper()}] needs {wanted}, as it never closes", hint=f"add {wanted.split(' or ')[0]}")
    return emit if emit is not None else EmitSpec()


def check_empty(emit: EmitSpec, has_keys: bool, spec: WindowSpec | None) -> None:
    """Refuse EMIT EMPTY where it has no meaning (K6)."""
    if not emit.empty:
        return
    if spec is None or spec.kind not in (WindowKind.HOPPING, WindowKind.CUMULATE) or emit.kind is not EmitKind.FINAL:
        raise Unsupported("EMIT EMPTY needs a tumbling or hopping window", hint="write [RANGE … SLIDE …] after the stream's name")
    if has_keys and spec.slide_within:
        raise Unsupported("EMIT EMPTY with keys and SLIDE WITHIN is not supported", hint="write SLIDE, so that the windows are known")


def check_tables(root: Node, place: Place | None = None) -> None:
    """Raise Unsupported when a table is read elsewhere than on the right of a join, or for what changes of it."""
    nodes = walk_plan(root)
    if not any(isinstance(node, TableScan) for node in nodes):
        return
    asked = {id(n) for node in nodes if isinstance(node, SubqueryJoin) for n in walk_plan(node.right)}
    reads = ((node, below) for node in nodes for below in node.inputs if isinstance(below, TableScan) and id(below) not in asked)
    if isinstance(root, TableScan) or any(not isinstance(node, TableJoin | TableChanges) for node, _ in reads):
        line, column = (place.line, place.column) if place is not None else (None, None)
        message = "a table can stand only on the right of a join here"
        hint = "in a plan object a table is the right side of a join with a stream; send a SELECT of tables as text"
        raise Unsupported(message, hint=hint, line=line, column=column)


def settled(
    node: Node, emit: EmitSpec | None, stream: str | None, every_us: int | None, place: Place | None = None
) -> tuple[Node, EmitSpec]:
    """Return the plan with its emission carried out at the root, and the emission in force."""
    place = place or Place()
    if stream is not None:
        return _relation_to_stream(node, emit, stream, every_us, place)
    if change_position(node.attributes) is not None:
        if emit is None or emit.kind is EmitKind.CHANGES:
            _check_marks(node, place)
        if emit is None or emit.kind is EmitKind.CHANGES:
            return node, EmitSpec(EmitKind.CHANGES)
        if emit.kind is EmitKind.EVERY or emit.empty:
            _check_takes(node, emit, place)
        return relation(node, "f", None), emit
    if emit is None:
        return node, EmitSpec()
    if emit.kind is EmitKind.CHANGES:
        marked = append_only_change(node)
        _check_marks(marked, place)
        return marked, emit
    if emit.kind is EmitKind.EVERY or emit.empty:
        _check_takes(node, emit, place)
    return node, emit


def _check_marks(node: Node, place: Place) -> None:
    """A change log's own column `op` says what becomes of a row; another one of that name would hide it, or be hidden."""
    if any(a.name == "op" and a.role is not Role.CHANGE for a in node.attributes):
        message = "the answer is a change log, which marks its rows in a column op, and selects a column op"
        hint = "give yours another name with AS, or write EMIT FINAL"
        raise TypeProblem(message, hint=hint, line=place.line, column=place.column, token="op")


def _check_takes(node: Node, emit: EmitSpec, place: Place) -> None:
    """EVERY and EMPTY act on the outermost aggregate; only filters and projections may stand between it and the answer."""
    if all(isinstance(n, Aggregate) and n.emit == emit for n in _outermost(node)):
        return
    word = "EMIT EVERY" if emit.kind is EmitKind.EVERY else "EMIT EMPTY"
    hint = "leave it out, or put it on a query whose outermost step is the aggregate"
    raise Unsupported(f"{word} needs an aggregate whose answer it is", hint=hint, line=place.line, column=place.column, token=word)


def _outermost(node: Node) -> list[Node]:
    """Return what decides when answers leave: below projections and filters, in every branch of a union."""
    while isinstance(node, Project | Filter):
        node = node.input
    return [found for branch in node.branches for found in _outermost(branch)] if isinstance(node, Union) else [node]


def _relation_to_stream(node: Node, emit: EmitSpec | None, stream: str, every_us: int | None, place: Place) -> tuple[Node, EmitSpec]:
    at = {"line": place.line, "column": place.column, "token": STREAM_WORDS[stream]}
    if emit is not None:
        message = "EMIT inside ISTREAM, DSTREAM or RSTREAM is not supported"
        raise Unsupported(message, hint="leave EMIT out", **at)  # type: ignore[arg-type]
    change = change_position(node.attributes)
    if any(isinstance(below, TableChanges) for below in walk_plan(node)):
        message = f"{STREAM_WORDS[stream]} of a table is not supported, as its rows have no event time"
        raise Unsupported(message, hint="write EMIT CHANGES", **at)  # type: ignore[arg-type]
    if change is None:
        if stream == "i":
            return node, EmitSpec()  # every row comes once and never goes
        message = f"{STREAM_WORDS[stream]} of rows that never leave is not supported"
        raise Unsupported(message, hint="write a window after the stream's name", **at)  # type: ignore[arg-type]
    return relation(node, stream, every_us), EmitSpec()


def relation(node: Node, stream: str, every_us: int | None = None) -> RelationToStream:
    """Return what ISTREAM ('i'), DSTREAM ('d'), RSTREAM ('r') or EMIT FINAL ('f') of a change log gives."""
    change = change_position(node.attributes)
    attributes = tuple(a for i, a in enumerate(node.attributes) if i != change)
    return RelationToStream(attributes=attributes, input=node, stream=stream, every_us=every_us)


def is_grouping(node: exp.Expr) -> bool:
    """Whether it is GROUPING(k, …) of several groupings."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in ("grouping", "grouping_id")


def is_several(body: SelectBody) -> bool:
    """Whether a SELECT has several groupings, or asks GROUPING( ) of its one."""
    if not body.group_by:
        return bool(body.grouping_sets)
    nodes = [i.expression for i in body.items if isinstance(i, SelectItem)] + ([] if body.having is None else [body.having])
    return any(is_grouping(part) for node in nodes for part in walked(node))
