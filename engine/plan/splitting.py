"""WITH (split = n): an operator with keys becomes n operators, each of which has a part of the keys, and one that merges what they put out.

Each part reads all rows of the stream and drops those of other keys, so that the parts need nothing of one another and may run in
different workers. What they put out bears the order of the whole operator's results (K20) in columns of its own: the arrival number of
a row, or the least one of a group. The merge sorts by them, so the answers are the same bytes (K15).

That needs rows of which no two have the same arrival number: those of streams, behind selections and projections alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Field, Schema, StreamDefinition
from millstream.engine.data.types import BIGINT, BOOLEAN
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, walk
from millstream.engine.expressions.user_functions import user_function_of
from millstream.engine.language import recipes
from millstream.engine.language.recipes import AggregateRecipe, JoinKind, JoinRecipe, OverRecipe, PartRecipe, ProjectRecipe, WindowKind
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.join_binder import moved
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.engine.plan.rules.rewriting import substituted

ARRIVAL = "arrival number"  # a name for people: columns are found by position
_WINDOWS = (WindowKind.HOPPING, WindowKind.CUMULATE, WindowKind.SESSION)
_NOT_SPLIT: dict[type[recipes.Recipe], str] = {
    recipes.LagRecipe: "LAG",
    recipes.MatchRecipe: "MATCH_RECOGNIZE",
    recipes.AsofJoinRecipe: "an ASOF join",
    recipes.TableJoinRecipe: "a join with a table",
    recipes.DistinctRecipe: "DISTINCT",
    recipes.WindowRecipe: "what reads rows of windows",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How an operator is split: the keys of each input, what each part does, the columns that order what the parts put out."""

    keys: tuple[tuple[int, ...], ...]
    recipe: recipes.Recipe
    order: recipes.Order
    hidden: tuple[int, ...]


def split_by_key(root: PhysicalNode | SourceNode, parts: int) -> tuple[PhysicalNode | SourceNode, tuple[str, ...]]:
    """Return a plan in which the operators nearest to the streams are split, and sentences that say which. Unsupported where none is."""
    splitting = _Splitting(parts)
    made = splitting.node(root)
    if not splitting.notes:
        why = splitting.reasons[0] if splitting.reasons else "no operator of it has keys"
        raise Unsupported(
            f"option split: this query cannot be split by key, as {why}",
            hint="it is for GROUP BY over windows with EMIT FINAL, for OVER with PARTITION BY and for joins of streams",
        )
    return made, tuple(splitting.notes)


def check_split(root: PhysicalNode | SourceNode, catalog: Catalog) -> None:
    """Refuse to split what reads a derived stream, whose rows share arrival numbers, or one that is closed when it is idle."""
    below = [root]
    while below:
        node = below.pop()
        if isinstance(node, SourceNode):
            continue
        below += [ref.node for ref in node.inputs]
        if not isinstance(node.recipe, PartRecipe):
            continue
        source = _stream_below(node)
        found = catalog.find(source.stream)
        if not isinstance(found, StreamDefinition):
            raise Unsupported(
                f"option split: this query cannot be split by key, as {source.stream} is a derived stream",
                hint="split the query that makes it, or read its streams",
            )
        if found.time.idle_flush:
            raise Unsupported(
                f"option split: this query cannot be split by key, as {source.stream} closes windows when it is idle (FLUSH)",
                hint="leave the option out",
            )


def _stream_below(node: PhysicalNode | SourceNode) -> SourceNode:
    while isinstance(node, PhysicalNode):
        node = node.inputs[0].node
    return node


class _Splitting:
    """Goes through one plan, each node once."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._done: dict[int, PhysicalNode | SourceNode] = {}
        self.notes: list[str] = []
        self.reasons: list[str] = []

    def node(self, node: PhysicalNode | SourceNode) -> PhysicalNode | SourceNode:
        if isinstance(node, SourceNode):
            return node
        found = self._done.get(id(node))
        if found is None:
            found = self._done[id(node)] = self._made(node)
        return found

    def _made(self, node: PhysicalNode) -> PhysicalNode:
        inputs = tuple(InputRef(self.node(ref.node), ref.output) for ref in node.inputs)
        if any(made.node is not ref.node for made, ref in zip(inputs, node.inputs, strict=True)):
            return replace(node, inputs=inputs)  # what is nearer to the streams is split
        found = _plan(node)
        if isinstance(found, Plan):
            return self._split(node, found)
        if found:
            self.reasons.append(found)
        return node

    def _split(self, node: PhysicalNode, plan: Plan) -> PhysicalNode:
        number = len(self.notes)
        chains = [_Chain(ref, keys) for ref, keys in zip(node.inputs, plan.keys, strict=True)]
        self.notes.append(f"the {_word(node.recipe)} is split {self._parts} ways by {', '.join(chains[0].names)}")
        made = [
            InputRef(replace(node, recipe=plan.recipe, inputs=tuple(chain.part(number, part, self._parts) for chain in chains)))
            for part in range(self._parts)
        ]
        kept = tuple(i for i in range(len(plan.recipe.schema)) if i not in plan.hidden)
        return PhysicalNode(recipes.KeyMergeRecipe(node.recipe.schema, len(made), plan.order, kept), tuple(made))


class _Chain:
    """The selections and projections between an operator and its stream, of which a part of the rows is to go through a copy.

    The rows of other keys are dropped at the bottom, or above the projection that computes a key, where that may fail (K8).
    """

    def __init__(self, ref: InputRef, keys: Sequence[int]) -> None:
        self._schema = _schema_of(ref)
        self.names = [self._schema.fields[key].name for key in keys]
        self._steps: list[PhysicalNode] = []
        self._keys: tuple[Expression, ...] = tuple(ColumnRef(self._schema.fields[key].type, key) for key in keys)
        while isinstance(ref.node, PhysicalNode):
            if isinstance(ref.node.recipe, ProjectRecipe):
                below = tuple(substituted(key, ref.node.recipe.columns) for key in self._keys)
                if any(map(may_fail, below)) or any(user_function_of(part) for key in below for part in walk(key)):
                    break
                self._keys = below
            self._steps.append(ref.node)
            (ref,) = ref.node.inputs
        self._below = InputRef(PhysicalNode(recipes.FanOutRecipe(_schema_of(ref)), (ref,)))

    def part(self, split: int, part: int, parts: int) -> InputRef:
        """Return one part of the rows, with the arrival number as the last column."""
        condition = Call(BOOLEAN, "key_part", self._keys, (part, parts))
        made = PhysicalNode(PartRecipe(_schema_of(self._below), condition, split, part, parts), (self._below,))
        for step in reversed(self._steps):
            made = replace(step, inputs=(InputRef(made),))
        arrival = Call(BIGINT, "arrival", ())
        recipe = made.recipe
        if isinstance(recipe, ProjectRecipe):
            return InputRef(replace(made, recipe=ProjectRecipe(_with_arrival(recipe.schema), (*recipe.columns, arrival))))
        passing = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(self._schema.fields))
        return InputRef(PhysicalNode(ProjectRecipe(_with_arrival(self._schema), (*passing, arrival)), (InputRef(made),)))


def _plan(node: PhysicalNode) -> Plan | str | None:
    """Return how an operator is split, why it is not, or None where it is none that could be."""
    recipe = node.recipe
    if not isinstance(recipe, AggregateRecipe | OverRecipe | JoinRecipe):
        word = _NOT_SPLIT.get(type(recipe))
        return None if word is None else f"{word} is not split"
    what = _word(recipe)
    if not all(_comes_from_a_stream(ref) for ref in node.inputs):
        return f"the {what} reads other rows than those of streams as they come"
    widths = [len(_schema_of(ref)) for ref in node.inputs]
    if isinstance(recipe, OverRecipe):
        return _plan_of_over(recipe, widths[0])
    if isinstance(recipe, JoinRecipe):
        return _plan_of_join(recipe, widths)
    return _plan_of_aggregate(recipe, widths[0])


def _plan_of_aggregate(recipe: AggregateRecipe, width: int) -> Plan | str:
    window, place = recipe.window, len(recipe.keys) + len(recipe.aggregates)
    if not recipe.keys:
        return "its GROUP BY has no keys"
    if window is None or window.kind not in _WINDOWS or window.slide_within:
        return "its windows are neither hopping, tumbling, cumulating nor sessions"
    if recipe.emit.kind is not recipes.EmitKind.FINAL or recipe.emit.empty or recipe.live is not None or recipe.retracts is not None:
        return "it asks for other answers than final ones of windows with rows"
    fields = recipe.schema.fields
    schema = Schema((*fields[:place], Field(ARRIVAL, BIGINT, False), *fields[place:]))
    calls = (*recipe.aggregates, recipes.AggregateCall("min", (width,), BIGINT))
    return Plan((recipe.keys,), replace(recipe, schema=schema, aggregates=calls), (place + 2, place + 1, place), (place,))


def _plan_of_over(recipe: OverRecipe, width: int) -> Plan | str:
    common = [key for key in recipe.parts[0].partition if all(key in part.partition for part in recipe.parts)]
    if not common:
        return "its OVER has no PARTITION BY, or several without a common key"
    if any(part.frame.by_rank and part.frame.following > 0 for part in recipe.parts):
        return "rows leave its OVER in an order of their own, as a frame ends so many rows behind them (ROWS … FOLLOWING, LEAD)"
    fields = recipe.schema.fields
    schema = Schema((*fields[:width], Field(ARRIVAL, BIGINT, False), *fields[width:]))
    return Plan((tuple(common),), replace(recipe, schema=schema), (recipes.EVENT_TIME, width), (width,))


def _plan_of_join(recipe: JoinRecipe, widths: Sequence[int]) -> Plan | str:
    if recipe.kind is not JoinKind.INNER:
        return "rows of an outer join that have no partner come in an order of their own"
    if not recipe.left_keys:
        return "its join has no keys"
    left, right = widths
    fields = recipe.schema.fields
    schema = Schema((*fields[:left], Field(ARRIVAL, BIGINT, False), *fields[left:], Field(f"{ARRIVAL} 2", BIGINT, False)))
    residual = None if recipe.residual is None else moved(recipe.residual, left, 1)
    arrivals = left, left + right + 1
    order = arrivals, left  # the later row's arrival number is the pair's own
    return Plan((recipe.left_keys, recipe.right_keys), replace(recipe, schema=schema, residual=residual), order, arrivals)


def _word(recipe: recipes.Recipe) -> str:
    return {AggregateRecipe: "GROUP BY", OverRecipe: "OVER", JoinRecipe: "join"}[type(recipe)]


def _comes_from_a_stream(ref: InputRef) -> bool:
    while isinstance(ref.node, PhysicalNode):
        if type(ref.node.recipe) not in (recipes.SelectRecipe, ProjectRecipe):
            return False
        (ref,) = ref.node.inputs
    return not ref.node.table


def _schema_of(ref: InputRef) -> Schema:
    return ref.node.schema if isinstance(ref.node, SourceNode) else ref.node.recipe.schema


def _with_arrival(schema: Schema) -> Schema:
    return Schema((*schema.fields, Field(ARRIVAL, BIGINT, False)))
