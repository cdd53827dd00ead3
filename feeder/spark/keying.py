"""Operators that keep state by key: which keys all of them have in common, and so which rows are brought together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from millstream.engine.data.schema import Schema
from millstream.engine.data.types import BIGINT, TIMESTAMP
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal
from millstream.engine.language import recipes
from millstream.engine.language.recipes import AggregateCall, AggregateRecipe, EmitKind, EmitSpec, JoinKind, WindowKind
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.feeder.spark.cuts import BY_KEY, ORDER, Cut, Exchange, Uncut
from millstream.feeder.spark.nodes import (
    is_anywhere,
    is_stateless,
    joined_with_place,
    left_order,
    name_of,
    pair_order,
    projected,
    put_below,
    references,
    schema_of,
    sources_of,
    width_of,
    with_place,
)
from millstream.feeder.spark.script import Node


def keyed_cut(root: Node, top: PhysicalNode) -> Cut:
    """Bring the rows of each key together. Uncut for operators without a key in common, or whose rows only one place can order."""
    below = [ref.node for ref in top.inputs]
    _check_kept(top.recipe)
    for node in below:
        _check_below(node, top.recipe)
    keying = _Keying()
    keys = keying.keys(top)
    exchanges = []
    for number, part in enumerate(keying.roots):
        places = tuple(dict(key.sent)[number] for key in keys)
        exchanges.append(Exchange(f"x{number}", part, tuple(sources_of(part)), places))
    second = _on_exchanges(root, count())
    top_there = second
    while isinstance(top_there, PhysicalNode) and is_stateless(top_there.recipe):
        top_there = top_there.inputs[0].node
    assert isinstance(top_there, PhysicalNode)
    made, by_window = _ordered(top_there)
    extra = schema_of(made).fields[-len(ORDER) :]
    return Cut(BY_KEY, tuple(exchanges), put_below(second, top_there, made, extra), by_window)


@dataclass(frozen=True, slots=True)
class _Key:
    """A value by which rows are brought together: where it stands in the output, and in each exchange."""

    shown: frozenset[int]
    sent: tuple[tuple[int, int], ...]


class _Keying:
    """Finds the exchanges below a part and the keys that all its operators have in common."""

    def __init__(self) -> None:
        self.roots: list[Node] = []

    def keys(self, node: Node) -> list[_Key]:
        """Return the keys of a node's rows; of one that looks at single rows any column may be one."""
        if is_anywhere(node):
            number = len(self.roots)
            self.roots.append(node)
            return [_Key(frozenset((i,)), ((number, i),)) for i in range(width_of(node))]
        assert isinstance(node, PhysicalNode)
        recipe = node.recipe
        if isinstance(recipe, recipes.KeyedJoinRecipe):
            return self._joined(node, recipe)
        if len(node.inputs) != 1:
            raise Uncut("a union over operators that keep state")
        keys = self.keys(node.inputs[0].node)
        if isinstance(recipe, recipes.SelectRecipe):
            return keys
        if isinstance(recipe, recipes.ProjectRecipe):
            return _picked(keys, [c.position if isinstance(c, ColumnRef) else None for c in recipe.columns])
        kept = _picked(keys, list(_own_keys(recipe)))
        if not kept:
            raise Uncut(f"{name_of(recipe)} has no key in common with what is below it")
        return kept

    def _joined(self, node: PhysicalNode, recipe: recipes.KeyedJoinRecipe) -> list[_Key]:
        if isinstance(recipe, recipes.TableJoinRecipe):
            raise Uncut("a table is joined as it stands at each row")
        left, right = (self.keys(ref.node) for ref in node.inputs)
        width = width_of(node.inputs[0].node)
        pairs = []
        for at_left, at_right in zip(recipe.left_keys, recipe.right_keys, strict=True):
            ours = next((k for k in left if at_left in k.shown), None)
            theirs = next((k for k in right if at_right in k.shown), None)
            if ours is not None and theirs is not None:
                shown: frozenset[int] = frozenset()
                if recipe.kind in (JoinKind.INNER, JoinKind.LEFT):
                    shown |= ours.shown
                if recipe.kind in (JoinKind.INNER, JoinKind.RIGHT):
                    shown |= {width + i for i in theirs.shown}
                pairs.append(_Key(shown, (*ours.sent, *theirs.sent)))
        if not pairs:
            raise Uncut("the join has no equality between its sides")
        return pairs


def _picked(keys: list[_Key], places: Sequence[int | None]) -> list[_Key]:
    found = []
    for key in keys:
        shown = frozenset(i for i, p in enumerate(places) if p in key.shown)
        if shown:
            found.append(_Key(shown, key.sent))
    return found


def _own_keys(recipe: recipes.Recipe) -> Sequence[int | None]:
    """Return the positions in the input of the columns of which an operator keeps each value's state apart, in order of its output."""
    if isinstance(recipe, recipes.DistinctRecipe):
        return range(len(recipe.schema))
    assert isinstance(recipe, AggregateRecipe)
    if recipe.window is not None and recipe.window.kind is WindowKind.ROWS:
        return [k if k in recipe.window.partition else None for k in recipe.keys]
    return recipe.keys


_WHOLE_WINDOWS = (WindowKind.HOPPING, WindowKind.CUMULATE, WindowKind.SESSION, WindowKind.SLIDING, WindowKind.NOW, WindowKind.ROWS)


def _check_kept(recipe: recipes.Recipe) -> None:
    """Raise Uncut for operators whose answers would depend on rows of other keys, or stand in an order that only one place can give."""
    if isinstance(recipe, AggregateRecipe):
        if recipe.retracts is not None:
            raise Uncut("an aggregate over changes")
        window = recipe.window
        if window is None:
            if not recipe.keys:
                raise Uncut("an aggregate without a key")
            if recipe.emit.kind is EmitKind.EVERY or recipe.emit.instants:
                raise Uncut("changes of the whole relation at each instant")
            return
        if recipe.emit != EmitSpec():
            raise Uncut("early answers of windows")
        if not recipe.keys:
            raise Uncut(f"{', '.join(c.function.upper() for c in recipe.aggregates) or 'GROUP BY'} without a key, which does not merge")
        if window.slide_within or window.rows_slide or window.kind not in _WHOLE_WINDOWS:
            raise Uncut(f"the window {window.kind.value.upper()} with what it is asked for here")
        if window.kind is WindowKind.ROWS and not set(window.partition) <= set(recipe.keys):
            raise Uncut("a window of rows over all keys")
        return
    if isinstance(recipe, recipes.DistinctRecipe) and (recipe.window is None or recipe.window.kind is not WindowKind.SESSION):
        return
    if isinstance(recipe, recipes.AsofJoinRecipe) and recipe.forward:
        raise Uncut("ASOF JOIN on >= or >, whose rows come in the order in which the right ones let them")
    if isinstance(recipe, recipes.JoinRecipe | recipes.AsofJoinRecipe):
        return
    raise Uncut(f"{name_of(recipe)} answers in an order over all keys")


def _check_below(node: Node, above: recipes.Recipe) -> None:
    """Below an aggregate or DISTINCT an inner join may stand: its rows come when their later row does, wherever that is."""
    if is_anywhere(node):
        return
    assert isinstance(node, PhysicalNode)
    if is_stateless(node.recipe):
        for ref in node.inputs:
            _check_below(ref.node, above)
        return
    inner = isinstance(node.recipe, recipes.JoinRecipe) and node.recipe.kind is JoinKind.INNER
    if not inner or not isinstance(above, AggregateRecipe):
        raise Uncut(f"{name_of(above)} over {name_of(node.recipe)}")
    for ref in node.inputs:
        _check_below(ref.node, node.recipe)


def _on_exchanges(node: Node, numbers: Iterator[int]) -> Node:
    """Put exchanges in the place of what runs before the shuffle, numbered as `_Keying` met them: a part read twice is sent twice."""
    if is_anywhere(node):
        return SourceNode(f"x{next(numbers)}", schema_of(node))
    assert isinstance(node, PhysicalNode)
    return replace(node, inputs=tuple(InputRef(_on_exchanges(ref.node, numbers)) for ref in node.inputs))


def _ordered(top: PhysicalNode) -> tuple[Node, bool]:
    """Return the operator with the three columns of its order, and whether these alone order its rows."""
    recipe = top.recipe
    if isinstance(recipe, AggregateRecipe) and recipe.emit.kind is EmitKind.FINAL:
        return _aggregate_ordered(top, recipe), True
    nothing = Literal(TIMESTAMP, None)
    if isinstance(recipe, recipes.KeyedJoinRecipe):
        inputs = tuple(InputRef(with_place(ref.node)) for ref in top.inputs)
        return joined_with_place(top, recipe, inputs, left_order if isinstance(recipe, recipes.AsofJoinRecipe) else pair_order), False
    columns = references(recipe.schema)
    return projected(top, [*columns, nothing, nothing, Literal(BIGINT, None)], (*recipe.schema.fields, *ORDER)), False


def _aggregate_ordered(top: PhysicalNode, recipe: AggregateRecipe) -> Node:
    below = with_place(top.inputs[0].node)
    width = width_of(top.inputs[0].node)
    rows = recipe.window is not None and recipe.window.kind is WindowKind.ROWS
    first = AggregateCall("last" if rows else "min", (width,), BIGINT)
    at = len(recipe.keys) + len(recipe.aggregates)
    fields = (*recipe.schema.fields[:at], ORDER[2], *recipe.schema.fields[at:])
    made = replace(recipe, schema=Schema(fields), aggregates=(*recipe.aggregates, first))
    node = PhysicalNode(made, (InputRef(below),))
    columns: list[Expression] = [ColumnRef(f.type, i if i < at else i + 1, f.name) for i, f in enumerate(recipe.schema.fields)]
    bounds: list[Expression] = [Literal(TIMESTAMP, None)] * 2
    if recipe.window is not None:
        bounds = [ColumnRef(TIMESTAMP, at + 2, "window_end"), ColumnRef(TIMESTAMP, at + 1, "window_start")]
    return projected(node, [*columns, *bounds, ColumnRef(BIGINT, at, ORDER[2].name)], (*recipe.schema.fields, *ORDER))
