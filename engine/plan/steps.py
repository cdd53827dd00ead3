"""Small plan-building steps that the binder of SELECT and the reader of plan objects share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BOOLEAN, TEXT
from millstream.engine.expressions.conjunctions import conjunction
from millstream.engine.expressions.ir import Expression, Literal
from millstream.engine.language.recipes import EmitSpec, WindowSpec
from millstream.engine.plan.aggregate_binder import AggregateBinder, projected
from millstream.engine.plan.logical import Aggregate, Attribute, Filter, Node, OrderKey, Project, Role, Top, Window

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

    EMIT EMPTY answers for the windows of all rows, also of those that WHERE drops (K6, K17): there it is a FILTER of each aggregate.
    """
    if not emit.empty:
        return binder.build(filtered(node, conditions), spec, emit)
    for i, pending in enumerate(binder.pending):
        parts = [*conditions, *([pending.filter] if pending.filter is not None else [])]
        binder.pending[i] = replace(pending, filter=conjunction(parts))
    return binder.build(node, spec, emit)


def project_to(node: Node, outputs: list[Output], keep_roles: bool = False) -> Project:
    """Return the projection to the outputs. Without `keep_roles` the bounds of windows become plain columns."""
    attributes = []
    for output in outputs:
        attribute = projected(node, output.expression, output.name)
        if not keep_roles and attribute.role is not Role.CHANGE:
            attribute = replace(attribute, role=Role.PLAIN)
        attributes.append(attribute)
    return Project(attributes=tuple(attributes), input=node, expressions=tuple(o.expression for o in outputs))


def split_conditions(
    conditions: Iterable[Expression], attributes: tuple[Attribute, ...], binder: AggregateBinder
) -> tuple[list[Expression], list[Expression]]:
    """Conditions of WHERE on the window's bounds alone act on whole groups and go above the aggregate; return (below, above)."""
    from millstream.engine.expressions.ir import columns_used

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
    keys = tuple(OrderKey(_column_for(k.expression, columns), k.descending, k.nulls_first) for k in order)
    partition = tuple(_column_for(node.attributes[i].reference(i), columns) for i in windows)
    inner = project_to(node, columns, keep_roles=True)
    top = Top(attributes=inner.attributes, input=inner, order=keys, limit=limit, with_ties=with_ties, partition=partition)
    return project_to(top, [Output(o.name, top.attributes[i].reference(i)) for i, o in enumerate(outputs)])


def _column_for(expression: Expression, columns: list[Output]) -> int:
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
        if len(node.inputs) != 1:
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
