"""Joining a window in FROM with the aggregate above it: the window's node goes, its bounds become the aggregate's (K17).

Between the two stand filters and projections. Over a RANGE window a filter may act before or after the window is formed, the answer is
the same; in a ROWS window or a session a row that WHERE drops keeps its place, so the condition becomes a column `live`.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BOOLEAN
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import ColumnRef, Expression, columns_used, transform
from millstream.engine.language.recipes import WindowKind, WindowSpec
from millstream.engine.plan.logical import Aggregate, Attribute, Filter, Node, Project, Window

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
        expressions.append(_remapped(expression, below.mapping))
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
