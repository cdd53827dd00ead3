"""UNNEST in FROM: a list or a map of the items before it becomes rows (K21)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.data.errors import EngineError, InvalidDefinition, TypeProblem, Unsupported
from millstream.engine.data.types import BIGINT, TEXT, Kind
from millstream.engine.expressions.ir import Expression
from millstream.engine.language.recipes import WindowKind
from millstream.engine.language.statements import UnnestItem
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.join_binder import Side
from millstream.engine.plan.logical import Attribute, Node, TableScan, Unnest
from millstream.engine.plan.scope import Scope


def unnested(node: Node, items: Expression, called: str | None, columns: Sequence[str], *, numbered: bool, outer: bool) -> Unnest:
    """Return the node that unfolds `items`. TypeProblem unless these are a list or a map; InvalidDefinition for too many names.

    A list gives one column: the first name, else the alias, else `unnest`. A map gives `key` and `value`; the number is `ordinality`.
    """
    type_ = items.type
    if type_.element is None:
        hint = "write UNNEST(CAST(j AS JSON[]))" if type_.kind is Kind.JSON else "the type of a list is t[], of a map MAP(TEXT, t)"
        raise TypeProblem(f"UNNEST takes a list or a map, not {type_}", hint=hint)
    is_map = type_.kind is Kind.MAP
    names = ["key", "value"] if is_map else [called or "unnest"]
    types = [TEXT, type_.element] if is_map else [type_.element]
    if numbered:
        names, types = [*names, "ordinality"], [*types, BIGINT]
    if len(columns) > len(names):
        raise InvalidDefinition(f"UNNEST gives {len(names)} columns here, not {len(columns)}")
    names[: len(columns)] = columns
    made = tuple(Attribute(name, t, True, called) for name, t in zip(names, types, strict=True))
    return Unnest(attributes=(*node.attributes, *made), input=node, items=items, numbered=numbered, outer=outer)


def unnested_side(left: Side, item: UnnestItem, *, outer: bool) -> Side:
    """Return the items before UNNEST with it on top. Its rows are in the windows of the rows that they come from."""
    place = {"line": item.place.line, "column": item.place.column, "token": "UNNEST"}
    if isinstance(left.node, TableScan):
        hint = "FETCH reads a table's rows; in a continuous query join the table to a stream first"
        raise Unsupported("UNNEST of a table is not supported here", hint=hint, **place)  # type: ignore[arg-type]
    if left.spec is not None and left.spec.kind is WindowKind.ROWS:
        hint = "write FROM (SELECT … FROM s CROSS JOIN UNNEST(…) AS t(item)) [ROWS n] to count items"
        raise Unsupported("UNNEST behind a window of [ROWS n] is not supported", hint=hint, **place)  # type: ignore[arg-type]
    bound = ExpressionBinder(Scope(left.node.attributes)).bind(item.expression)
    called = item.alias.text if item.alias else None
    columns = [name.text for name in item.columns]
    try:
        node = unnested(left.node, bound, called, columns, numbered=item.numbered, outer=outer)
    except EngineError as problem:
        problem.line, problem.column, problem.token = item.place.line, item.place.column, "UNNEST"
        raise
    return Side(node, left.spec, joined=left.joined)
