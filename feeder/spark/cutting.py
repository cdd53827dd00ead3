"""Cuts a plan: spread as far as its operators allow, with what may follow over the rows of closed windows left for one place."""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.language import recipes
from millstream.engine.language.recipes import AggregateRecipe, EmitSpec, WindowKind
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.feeder.spark.cuts import ANYWHERE, ONE_PLACE, REST, Cut, Exchange, Uncut
from millstream.feeder.spark.keying import keyed_cut
from millstream.feeder.spark.merging import is_mergeable, merged_cut
from millstream.feeder.spark.nodes import is_anywhere, is_stateless, sources_of
from millstream.feeder.spark.script import Node


def cut(root: Node, in_batches: bool = False) -> Cut:
    """Return how a plan is cut; one that cannot be spread is a bucket of all rows of its streams.

    With `in_batches` for rows that come in batches, where state is kept by bucket and nothing follows it.
    """
    try:
        return _cut_for_batches(root) if in_batches else _cut(root)
    except Uncut as reason:
        exchanges = tuple(Exchange(name, SourceNode(name, schema), (name,)) for name, schema in sources_of(root).items())
        return Cut(ONE_PLACE, exchanges, root, reason=str(reason))


def _cut(root: Node) -> Cut:
    _check_sources(root)
    if is_anywhere(root):
        return Cut(ANYWHERE, (Exchange("x0", root, tuple(sources_of(root))),))
    try:
        return _spread(root)
    except Uncut as reason:
        lower = lowest_kept(root)
        if lower is None or lower is root:
            raise
        try:
            below = _spread(lower)
        except Uncut:
            raise reason from None
        if not below.by_window or not _by_bounds(lower):
            raise
        schema = lower.recipe.schema
        return replace(below, rest=_replaced(root, lower, SourceNode(REST, schema)), reason=str(reason))


def _cut_for_batches(root: Node) -> Cut:
    _check_sources(root)
    if is_anywhere(root):
        return Cut(ANYWHERE, (Exchange("x0", root, tuple(sources_of(root))),))
    return keyed_cut(root, _top(root))


def _check_sources(node: Node) -> None:
    if isinstance(node, SourceNode):
        if node.table:
            raise Uncut(f"table {node.stream} is joined as it stands at each row")
        return
    if isinstance(node.recipe, recipes.SplitRecipe) or any(ref.output for ref in node.inputs):
        raise Uncut("a split has two outputs")
    for ref in node.inputs:
        _check_sources(ref.node)


def lowest_kept(root: Node) -> PhysicalNode | None:
    """Return the lowest operator of the chain above which all may run in one place over rows of closed windows, None if there is none."""
    node: Node = root
    stateful: list[PhysicalNode] = []
    while isinstance(node, PhysicalNode):
        if is_anywhere(node) or len(node.inputs) != 1:
            break
        if not is_stateless(node.recipe):
            stateful.append(node)
        node = node.inputs[0].node
    if not stateful or not all(_may_follow(above.recipe) for above in stateful[:-1]):
        return None
    return stateful[-1]


def _may_follow(recipe: recipes.Recipe) -> bool:
    """Whether an operator's answer over rows of closed windows depends on their order and times alone, not on who closed them when."""
    if isinstance(recipe, AggregateRecipe):
        closes = recipe.window is None or recipe.window.kind in (WindowKind.HOPPING, WindowKind.CUMULATE)
        return closes and recipe.emit == EmitSpec() and recipe.retracts is None
    return isinstance(recipe, recipes.TopRecipe | recipes.RankRecipe)


def _by_bounds(node: PhysicalNode) -> bool:
    recipe = node.recipe
    return (
        isinstance(recipe, AggregateRecipe)
        and recipe.window is not None
        and recipe.window.kind in (WindowKind.HOPPING, WindowKind.CUMULATE)
    )


def _replaced(node: Node, old: PhysicalNode, new: SourceNode) -> Node:
    if node is old:
        return new
    assert isinstance(node, PhysicalNode)
    return replace(node, inputs=tuple(InputRef(_replaced(ref.node, old, new), ref.output) for ref in node.inputs))


def _spread(root: Node) -> Cut:
    """Return how a part whose top operators look at one row at a time, over one that does not, is spread; Uncut when it cannot be."""
    top = _top(root)
    if isinstance(top.recipe, AggregateRecipe) and is_mergeable(top):
        return merged_cut(root, top)
    return keyed_cut(root, top)


def _top(root: Node) -> PhysicalNode:
    """Return the topmost operator that keeps state."""
    top = root
    while isinstance(top, PhysicalNode) and is_stateless(top.recipe):
        if len(top.inputs) != 1:
            raise Uncut("a union over operators that keep state")
        top = top.inputs[0].node
    assert isinstance(top, PhysicalNode)
    return top
