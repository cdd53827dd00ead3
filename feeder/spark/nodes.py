"""Nodes of a plan that is cut: what they are called, read and look at, and how columns of place and order ride along with their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import BIGINT
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal, columns_used
from millstream.engine.language import recipes
from millstream.engine.language.recipes import AggregateRecipe, WindowKind
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.engine.plan.rules.rewriting import remapped
from millstream.feeder.spark.cuts import ORDER_OF_PAIRS, PLACE, Uncut
from millstream.feeder.spark.script import Node


def sources_of(node: Node) -> dict[str, Schema]:
    """Return the streams that a part reads, left to right, with their columns."""
    if isinstance(node, SourceNode):
        return {node.stream: node.schema}
    found: dict[str, Schema] = {}
    for ref in node.inputs:
        found |= sources_of(ref.node)
    return found


def schema_of(node: Node) -> Schema:
    """Return the columns of a node's output."""
    return node.schema if isinstance(node, SourceNode) else node.recipe.schema


def width_of(node: Node) -> int:
    """Return the number of columns of a node's output."""
    return len(schema_of(node))


def is_stateless(recipe: recipes.Recipe) -> bool:
    """Whether an operator looks at one row at a time (and at W, which every row brings along)."""
    if isinstance(recipe, recipes.WindowRecipe):
        return not recipe.changes and recipe.window.kind in (WindowKind.HOPPING, WindowKind.CUMULATE)
    return isinstance(recipe, recipes.SelectRecipe | recipes.ProjectRecipe | recipes.UnionRecipe)


def is_anywhere(node: Node) -> bool:
    """Return whether all operators of a part look at one row at a time."""
    if isinstance(node, SourceNode):
        return True
    return is_stateless(node.recipe) and all(is_anywhere(ref.node) for ref in node.inputs)


def columns_read(node: Node, wanted: set[int] | None = None) -> dict[str, set[int]]:
    """Return which columns of each stream a part reads, by position; `wanted` are those of its own output, None: all."""
    wanted = set(range(width_of(node))) if wanted is None else wanted
    if isinstance(node, SourceNode):
        return {node.stream: set(wanted)}
    recipe = node.recipe
    asked: set[int] | None = None
    if isinstance(recipe, recipes.ProjectRecipe):
        asked = set[int]().union(*(columns_used(recipe.columns[i]) for i in wanted))
    elif isinstance(recipe, recipes.SelectRecipe):
        asked = wanted | columns_used(recipe.condition)
    elif isinstance(recipe, recipes.UnionRecipe):
        asked = wanted
    elif isinstance(recipe, AggregateRecipe):
        asked = {*recipe.keys, *(a for c in recipe.aggregates for a in c.arguments)}
        asked |= {c.filter for c in recipe.aggregates if c.filter is not None}
        asked |= set() if recipe.window is None else set(recipe.window.partition)
        asked |= {p for p in (recipe.live, recipe.retracts) if p is not None}
    found: dict[str, set[int]] = {}
    for ref in node.inputs:
        for stream, columns in columns_read(ref.node, asked).items():
            found.setdefault(stream, set()).update(columns)
    return found


def name_of(recipe: recipes.Recipe) -> str:
    """Return what people call an operator."""
    if isinstance(recipe, AggregateRecipe):
        calls = ", ".join(c.function.upper() for c in recipe.aggregates) or "GROUP BY"
        return f"{calls} {'' if recipe.window is None else recipe.window.kind.value + ' window '}".strip()
    words = {
        recipes.SelectRecipe: "WHERE",
        recipes.ProjectRecipe: "columns",
        recipes.UnionRecipe: "UNION ALL",
        recipes.JoinRecipe: "JOIN",
        recipes.AsofJoinRecipe: "ASOF JOIN",
        recipes.TableJoinRecipe: "table JOIN",
        recipes.SubqueryRecipe: "a subquery",
        recipes.TableSubqueryRecipe: "a subquery of a table",
        recipes.DistinctRecipe: "DISTINCT",
        recipes.UnnestRecipe: "UNNEST",
        recipes.GapFillRecipe: "EMIT EMPTY with keys",
        recipes.InterpolateRecipe: "INTERPOLATE",
        recipes.TopRecipe: "ORDER BY LIMIT",
        recipes.RankRecipe: "rank",
        recipes.RunningTopRecipe: "ROW_NUMBER without a window",
        recipes.ChangingTopRecipe: "ROW_NUMBER of changes",
        recipes.LagRecipe: "LAG",
        recipes.OverRecipe: "OVER",
        recipes.MatchRecipe: "MATCH_RECOGNIZE",
        recipes.RelationToStreamRecipe: "a relation's stream",
        recipes.WindowRecipe: "rows of a window",
        recipes.SplitRecipe: "split",
        recipes.FanOutRecipe: "a split by key",
        recipes.PartRecipe: "a split by key",
        recipes.KeyMergeRecipe: "a split by key",
        recipes.TableChangesRecipe: "changes of a table",
        recipes.ChangeJoinRecipe: "JOIN of changes",
        recipes.ViewChangesRecipe: "changes of a view",
        recipes.StandingRowsRecipe: "MATERIALIZED VIEW",
        recipes.KeptRowsRecipe: "MATERIALIZED VIEW",
    }
    return words[type(recipe)]


# -- columns that ride along -----------------------------------------------------------------------------------------------------

_PLACE_FIELD = Field(PLACE, BIGINT)


def put_below(node: Node, top: PhysicalNode, made: Node, extra: Sequence[Field]) -> Node:
    """Put `made` (top's columns, then `extra`) in top's place and let what stands above pass the extra columns through."""
    if node is top:
        return made
    assert isinstance(node, PhysicalNode)
    below = put_below(node.inputs[0].node, top, made, extra)
    return replace(node, recipe=_passing(node.recipe, width_of(node.inputs[0].node), extra), inputs=(InputRef(below),))


def _passing(recipe: recipes.Recipe, width: int, extra: Sequence[Field]) -> recipes.Recipe:
    schema = Schema((*recipe.schema.fields, *extra))
    if isinstance(recipe, recipes.ProjectRecipe):
        passed = tuple(ColumnRef(f.type, width + i, f.name) for i, f in enumerate(extra))
        return recipes.ProjectRecipe(schema, (*recipe.columns, *passed))
    if isinstance(recipe, recipes.SelectRecipe | recipes.UnionRecipe):
        return replace(recipe, schema=schema)
    raise Uncut("rows of a window over operators that keep state")


def projected(node: Node, columns: Sequence[Expression], fields: Sequence[Field]) -> PhysicalNode:
    """Put a projection over a node."""
    return PhysicalNode(recipes.ProjectRecipe(Schema(tuple(fields)), tuple(columns)), (InputRef(node),))


def references(schema: Schema) -> list[Expression]:
    """Return a reference to each column."""
    return [ColumnRef(f.type, i, f.name) for i, f in enumerate(schema.fields)]


def with_place(node: Node) -> Node:
    """Return the node with one more column at the end: the row's place in the order of arrival, of a join that of the later row."""
    if isinstance(node, SourceNode):
        return SourceNode(node.stream, Schema((*node.schema.fields, _PLACE_FIELD)))
    recipe = node.recipe
    inputs = tuple(InputRef(with_place(ref.node)) for ref in node.inputs)
    if isinstance(recipe, recipes.WindowRecipe):
        width, full = width_of(node.inputs[0].node), len(recipe.schema)
        fields = (*recipe.schema.fields[:width], _PLACE_FIELD, *recipe.schema.fields[width:])
        made = PhysicalNode(replace(recipe, schema=Schema(fields)), inputs)
        order = [*range(width), *range(width + 1, full + 1), width]
        columns = [ColumnRef(fields[i].type, i, fields[i].name) for i in order]
        return projected(made, columns, (*recipe.schema.fields, _PLACE_FIELD))
    if isinstance(recipe, recipes.KeyedJoinRecipe):
        return joined_with_place(node, recipe, inputs, _later)
    return replace(node, recipe=_passing(recipe, width_of(node.inputs[0].node), (_PLACE_FIELD,)), inputs=inputs)


def joined_with_place(node: PhysicalNode, recipe: recipes.KeyedJoinRecipe, inputs: tuple[InputRef, ...], last: Last) -> PhysicalNode:
    """Return a join whose last columns are made of its two rows' places."""
    width, full = width_of(node.inputs[0].node), len(recipe.schema)
    shift = {i: i if i < width else i + 1 for i in range(full)}
    fields = (*recipe.schema.fields[:width], _PLACE_FIELD, *recipe.schema.fields[width:], _PLACE_FIELD)
    residual = None if recipe.residual is None else remapped(recipe.residual, shift)
    made = PhysicalNode(replace(recipe, schema=Schema(fields), residual=residual), inputs)
    columns: list[Expression] = [ColumnRef(fields[shift[i]].type, shift[i], fields[shift[i]].name) for i in range(full)]
    more, more_fields = last(ColumnRef(BIGINT, width, PLACE), ColumnRef(BIGINT, full + 1, PLACE))
    return projected(made, [*columns, *more], (*recipe.schema.fields, *more_fields))


Last = Callable[[Expression, Expression], tuple[list[Expression], Sequence[Field]]]
"""Makes the last columns of a join of the places of its two rows."""


def _later(left: Expression, right: Expression) -> tuple[list[Expression], Sequence[Field]]:
    return [build.call("greatest", [left, right])], (_PLACE_FIELD,)


def pair_order(left: Expression, right: Expression) -> tuple[list[Expression], Sequence[Field]]:
    """Pairs that one item lets go stand in the order of their earlier rows, then of the left ones."""
    return [build.call("least", [left, right]), left, Literal(BIGINT, None)], ORDER_OF_PAIRS


def left_order(left: Expression, right: Expression) -> tuple[list[Expression], Sequence[Field]]:
    """The rows of an as-of join stand in the order of the left ones."""
    return [left, Literal(BIGINT, None), Literal(BIGINT, None)], ORDER_OF_PAIRS
