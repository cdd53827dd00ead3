"""WITH (history = 'held'): which queries can begin with windows whose first rows came before them.

Such a query answers windows that it sees whole and no others, so that its answers are those of a query that had always been there. That
can be said of GROUP BY over windows made of panes whose rows come one by one from the streams.
"""

from __future__ import annotations

from millstream.engine.data.errors import Unsupported
from millstream.engine.language.recipes import (
    AggregateRecipe,
    EmitKind,
    ProjectRecipe,
    RankRecipe,
    SelectRecipe,
    SplitRecipe,
    TopRecipe,
    UnionRecipe,
    WindowKind,
)
from millstream.engine.plan.physical import PhysicalNode, PhysicalQuery, SourceNode

PANED = (WindowKind.HOPPING, WindowKind.CUMULATE)
ROW_BY_ROW = (SelectRecipe, ProjectRecipe, SplitRecipe, UnionRecipe)
WINDOW_BY_WINDOW = (*ROW_BY_ROW, TopRecipe, RankRecipe)


def check_history(query: PhysicalQuery) -> None:
    """Raise Unsupported, naming what is in the way, unless every row of the answer comes from one whole window."""
    if query.options.history:
        _check(query.root)


def _check(node: PhysicalNode | SourceNode) -> None:
    if isinstance(node, SourceNode):
        raise _refused("rows that are in no window are answered as they come")
    if isinstance(node.recipe, AggregateRecipe):
        _check_aggregate(node.recipe)
        below = [ref.node for ref in node.inputs]
        while below:
            one = below.pop()
            if isinstance(one, PhysicalNode) and not isinstance(one.recipe, ROW_BY_ROW):
                raise _refused("its windows do not hold the rows of streams as they come")
            below += [ref.node for ref in one.inputs] if isinstance(one, PhysicalNode) else []
        return
    if not isinstance(node.recipe, WINDOW_BY_WINDOW):
        raise _refused("it keeps rows beside those of its windows")
    for ref in node.inputs:
        _check(ref.node)


def _check_aggregate(recipe: AggregateRecipe) -> None:
    if recipe.window is None or recipe.window.kind not in PANED:
        raise _refused("its windows are not made of panes")
    if recipe.emit.kind is not EmitKind.FINAL or recipe.emit.empty:
        raise _refused("it asks for other answers than final ones of windows with rows")
    if recipe.live is not None or recipe.retracts is not None:
        raise _refused("its windows are over a change log")


def _refused(why: str) -> Unsupported:
    return Unsupported(
        f"history = 'held' is not for this query: {why}",
        hint="it is for GROUP BY over hopping, tumbling and cumulating windows, EMIT FINAL",
    )
