"""Which keeper an operator needs behind a source that sheds."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.language.recipes import (
    AggregateRecipe,
    AsofJoinRecipe,
    JoinRecipe,
    ProjectRecipe,
    Recipe,
    SelectRecipe,
    SinkRecipe,
    SplitRecipe,
    TableJoinRecipe,
    TopRecipe,
    UnionRecipe,
    WindowKind,
    WindowRecipe,
)
from millstream.engine.operators.contract import Operator
from millstream.engine.receipts.keepers import Keeper, LimitKeeper, PassOn, WindowKeeper
from millstream.engine.receipts.shared import SharedKeeper
from millstream.engine.receipts.spans import SessionBounds, WindowBounds, span_of
from millstream.engine.synopses.shared_aggregate import SharedAggregate

_JOINS = (JoinRecipe, AsofJoinRecipe, TableJoinRecipe)
_CARRIED_BY_TRAINS = (SelectRecipe, ProjectRecipe, SplitRecipe, SinkRecipe)


def lineages_of(recipe: Recipe, inputs: Sequence[int]) -> int:
    """Return how many lineages an operator's output has, given those of its inputs; none where nothing can be shed."""
    return sum(inputs) if isinstance(recipe, _JOINS) else max(inputs, default=0)


def keeper_for(recipe: Recipe, logic: Operator, inputs: Sequence[int]) -> Keeper | None:
    """Return the keeper of an operator whose inputs have so many lineages each; None where trains carry their tally by themselves."""
    if not any(inputs) or isinstance(recipe, _CARRIED_BY_TRAINS):
        return None
    if isinstance(logic, SharedAggregate):
        return SharedKeeper(logic)
    if isinstance(recipe, AggregateRecipe):
        span = span_of(recipe, logic.oldest_us)
        return PassOn() if span is None else WindowKeeper(span)
    if isinstance(recipe, WindowRecipe) and recipe.window.kind is WindowKind.SESSION and not recipe.changes:
        width = len(recipe.schema)
        return WindowKeeper(SessionBounds(width - 2, width - 1, recipe.window.gap_us, logic.oldest_us))
    if isinstance(recipe, TopRecipe) and len(recipe.partition) == 2:
        start, end = recipe.partition
        return LimitKeeper(WindowBounds(start, end), (start, end))
    if isinstance(recipe, UnionRecipe):
        return PassOn()
    return PassOn(list(inputs) if isinstance(recipe, _JOINS) else None)
