"""Where a plan is cut to run on many machines: each operator gets a label, and the plan is cut where the label or the key changes.

| label | which operators | where they run |
| --- | --- | --- |
| anywhere | selections, projections, unions, rows of hopping windows | where the rows are |
| by key | grouping, equi-joins, DISTINCT, rows PARTITION BY | where all rows of the key are brought |
| mergeable | COUNT, SUM, AVG, MIN, MAX over windows or none | where the rows are; their parts are merged by key |
| one place | the rest, with the reason | in one task |

A plan has at most three stages: parts without a key over each stretch of a stream; after the shuffle one part a bucket of keys; and one
part in one place behind it. Rows that leave the second stage are ordered by three columns behind those asked for (K20).
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.engine.data.schema import Field
from millstream.engine.data.types import BIGINT, TIMESTAMP
from millstream.engine.language import recipes
from millstream.engine.language.recipes import JoinKind
from millstream.engine.plan.physical import SourceNode
from millstream.feeder.spark.script import Node

ANYWHERE, BY_KEY, MERGEABLE, ONE_PLACE = "anywhere", "by key", "mergeable", "one place"
PLACE = "_pos"
ORDER = (Field("_order_end", TIMESTAMP), Field("_order_start", TIMESTAMP), Field("_order_first", BIGINT))
ORDER_OF_PAIRS = tuple(Field(f.name, BIGINT) for f in ORDER)
REST = "_rest"


@dataclass(frozen=True, slots=True)
class Exchange:
    """What runs before the shuffle and what is shuffled: a part over `streams`, told apart by the columns at `keys` of its output.

    Without `keys` all goes to one bucket. `needs_place`: the streams' rows bring their place along, in a last column.
    """

    name: str
    root: Node
    streams: tuple[str, ...]
    keys: tuple[int, ...] = ()
    needs_place: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """How a query is cut. `second` runs after the shuffle over streams named as the exchanges, `rest` in one place over REST.

    `by_window`: rows of the second stage stand in the order of their last three columns; else in order of arrival number, the last
    column breaking ties. `reason` says why it runs in one place, where it does.
    """

    label: str
    exchanges: tuple[Exchange, ...]
    second: Node | None = None
    by_window: bool = False
    rest: Node | None = None
    reason: str = ""

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that rows come to, in the order of the exchanges."""
        return tuple(dict.fromkeys(s for e in self.exchanges for s in e.streams))

    @property
    def needs_moves(self) -> bool:
        """Whether an answer, or its place, depends on which row of all moved W: an as-of join, an outer join."""
        return self.second is not None and len(self.exchanges) > 1 and _waits(self.second)


def _waits(node: Node) -> bool:
    if isinstance(node, SourceNode):
        return False
    recipe = node.recipe
    waits = isinstance(recipe, recipes.AsofJoinRecipe) or (
        isinstance(recipe, recipes.KeyedJoinRecipe) and recipe.kind is not JoinKind.INNER
    )
    return waits or any(_waits(ref.node) for ref in node.inputs)


class Uncut(Exception):
    """A part cannot be spread; the text says why."""
