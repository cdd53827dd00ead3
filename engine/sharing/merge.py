"""Putting a plan on top of what runs: for each node, which running operator does the same, or most of it.

Decides, builds nothing. Operators without state can be shared at any time, as a reader that comes later is given only rows of its own
(queues.py). An operator with state is shared as long as nothing has reached it; later its state would hold rows from before the query.
Windows made of panes are the exception: their synopsis can tell (`synopses/pane_layers.py`), so a query may join it at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from millstream.engine.data.graph import ClassId
from millstream.engine.data.records import dataclass
from millstream.engine.expressions.build import conjunction
from millstream.engine.expressions.ir import ColumnRef
from millstream.engine.language.recipes import AggregateRecipe, ProjectRecipe, SelectRecipe
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.engine.sharing.containment import NormalRecipe, Part, normal_recipe, parts_of
from millstream.engine.sharing.registry import Key, Port, Registry, Shared
from millstream.engine.synopses.shared_aggregate import SharedAggregate

STACKED_MAX = 16  # ever stricter filters of as many queries: more would only pass each row from one to the next
SYNOPSIS_RECIPE = NormalRecipe(())  # the key of a synopsis: it stands for many recipes


@dataclass(slots=True)
class Placing:
    """Where a node goes: `used` running operators from the inputs up; then, unless the last of them does it all, `node` over `inputs`."""

    used: list[Shared] = field(default_factory=list)
    node: PhysicalNode | None = None
    inputs: list[Port] = field(default_factory=list)
    key: Key | None = None


class Merging:
    """Looks things up for one new query. Without `with_state` operators that keep state are left alone."""

    def __init__(self, registry: Registry, *, with_state: bool) -> None:
        self._registry = registry
        self._with_state = with_state

    def place(self, node: PhysicalNode, inputs: list[Port], class_id: ClassId) -> Placing:
        """Return where a node goes."""
        recipe = normal_recipe(node.recipe)
        if recipe is None or not inputs:
            return Placing([], node, inputs)
        used: list[Shared] = []
        parts = _parts(node)
        while True:
            key = (class_id, recipe, tuple([p.log.id for p in inputs]))
            found = self._registry.find(key, with_state=self._with_state)
            if found is not None:
                return Placing([*used, found])
            partly = self._partly(node, parts, inputs[0], class_id) if len(used) < STACKED_MAX else None
            if partly is None:
                return Placing(used, node, inputs, key)
            shared, rest = partly
            used.append(shared)
            inputs = [shared.ports[0]]
            if rest is not node:
                node, recipe, parts = rest, normal_recipe(rest.recipe), _parts(rest)
                assert recipe is not None

    def _partly(
        self, node: PhysicalNode, parts: Sequence[Part] | None, port: Port, class_id: ClassId
    ) -> tuple[Shared, PhysicalNode] | None:
        """Return a running operator that does a part of a node, and the rest: the node itself where that is all of it."""
        if parts is not None:
            looser = self._registry.looser_filter(class_id, port.log.id, parts)
            if looser is None:
                return None
            shared, left = looser
            if len(left) == len(parts) and node.selectivity is None:
                return shared, node
            condition = conjunction([expression for expression, _ in left])
            assert condition is not None
            return shared, replace(node, recipe=SelectRecipe(node.recipe.schema, condition), selectivity=None)
        if isinstance(node.recipe, ProjectRecipe):
            wider = self.wider(node.recipe, port, class_id)
            if wider is not None:
                columns = tuple(ColumnRef(c.type, place) for c, place in zip(node.recipe.columns, wider[1], strict=True))
                return wider[0], replace(node, recipe=ProjectRecipe(node.recipe.schema, columns), cost_us=None)
        return None

    def wider(self, recipe: ProjectRecipe, port: Port, class_id: ClassId) -> tuple[Shared, list[int]] | None:
        """Return a running projection over a port that computes all columns of this one, with their places; None if it only picks."""
        if all(isinstance(c, ColumnRef) for c in recipe.columns):
            return None
        return self._registry.wider_projection(class_id, port.log.id, recipe.columns)

    def synopsis(self, port: Port, recipe: AggregateRecipe, class_id: ClassId) -> Shared | None:
        """Return a running synopsis of the port's rows by these keys, in whatever order, that the recipe's window fits into."""
        for shared in self._registry.aggregates(class_id, port.log.id, recipe.keys):
            logic = shared.running.logic
            if isinstance(logic, SharedAggregate) and logic.misfit(recipe) is None:
                return shared
        return None


def _parts(node: PhysicalNode) -> Sequence[Part] | None:
    """Return the conjuncts of a filter that can hold others."""
    return parts_of(node.recipe.condition) if type(node.recipe) is SelectRecipe else None


def without_picks(node: PhysicalNode) -> tuple[AggregateRecipe, InputRef]:
    """Return an aggregate and its input without projections in between that only pick columns: all read the same rows then."""
    recipe, child = node.recipe, node.inputs[0]
    assert isinstance(recipe, AggregateRecipe)
    while isinstance(child.node, PhysicalNode) and isinstance(child.node.recipe, ProjectRecipe):
        columns = child.node.recipe.columns
        picked = [c.position for c in columns if isinstance(c, ColumnRef)]
        if len(picked) != len(columns):
            break
        recipe, child = moved(recipe, picked), child.node.inputs[0]
    return recipe, child


def moved(recipe: AggregateRecipe, places: Sequence[int]) -> AggregateRecipe:
    """Return the aggregate over an input whose columns stand at other places."""
    return replace(recipe, keys=tuple(places[k] for k in recipe.keys), aggregates=tuple(call.moved(places) for call in recipe.aggregates))


def leaves(node: PhysicalNode) -> Iterator[SourceNode]:
    """Yield the streams and tables below a node."""
    for child in node.inputs:
        if isinstance(child.node, SourceNode):
            yield child.node
        else:
            yield from leaves(child.node)
