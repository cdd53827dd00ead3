"""Other plans of a query that give the same answers, from what its operators were measured to do (Pajjuri 2004, 3.4).

    selection order     each run of selections, and of joins with tables (join_orders.py), by (s - 1) / c, least first; a selection that is
                        several conditions joined by AND is taken apart where one of them is dear, so that each is measured by itself and
                        the dear one sees fewer rows
    alternative plan    what the rewrites make of the plan, where they were switched off and nothing in it keeps state

Only conditions that cannot fail on a row change places: the order of others decides on which rows they fail (K8). What a run is
expected to cost is Σ c_i · s_1 … s_(i-1), as if conditions were independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from millstream.engine.data.records import dataclass
from millstream.engine.expressions.bounds import is_cheap
from millstream.engine.expressions.build import conjuncts
from millstream.engine.expressions.ir import Expression
from millstream.engine.language.recipes import Recipe, SelectRecipe
from millstream.engine.plan.join_orders import Run, can_move, change_runs, ordered, rebuilt
from millstream.engine.plan.logical import Filter, LogicalQuery, Node, Project, Scan, Split, TableJoin, TableScan, Union, walk_plan
from millstream.engine.plan.lower import lower
from millstream.engine.plan.physical import PhysicalQuery
from millstream.engine.plan.plan import optimise
from millstream.engine.plan.rules.rewriting import bottom_up
from millstream.engine.plan.rules.selection_reordering import rank as guessed_rank
from millstream.engine.plan.text import attribute_names, expression_text

ROWS_MIN = 1_000
"""Rows an operator must have taken before its selectivity counts as measured."""

STATELESS = (Scan, Filter, Project, Split, Union)


@dataclass(frozen=True, slots=True)
class Did:
    """What an operator did over a while: rows in and out, and the time it took (ns)."""

    rows_in: int
    rows_out: int
    cost_ns: int

    def __add__(self, other: Did) -> Did:
        """Return both together."""
        return Did(self.rows_in + other.rows_in, self.rows_out + other.rows_out, self.cost_ns + other.cost_ns)

    @property
    def selectivity(self) -> float:
        """Rows out by rows in."""
        return self.rows_out / max(1, self.rows_in)

    @property
    def cost(self) -> float:
        """Time a row, ns."""
        return self.cost_ns / max(1, self.rows_in)

    @property
    def rank(self) -> float:
        """(s - 1) / c: the least goes first."""
        return (self.selectivity - 1.0) / max(self.cost, 1e-3)


NOTHING = Did(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the operators of a query did: by their recipes, and the joins with tables by the table's name."""

    operators: Mapping[Recipe, Did] = field(default_factory=dict)
    lookups: Mapping[str, Did] = field(default_factory=dict)

    @property
    def cost_ns(self) -> int:
        """The time all of them took."""
        return sum(one.cost_ns for one in self.operators.values())

    def of(self, node: Filter | TableJoin) -> Did:
        """Return what the operator of a node did."""
        if isinstance(node, Filter):
            return self.operators.get(SelectRecipe(node.schema, node.condition), NOTHING)
        assert isinstance(node.right, TableScan)
        return self.lookups.get(node.right.table, NOTHING)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan: its `key` among the plans of the query, its kind, the share of the query's cost it should save (None: not known), why."""

    key: str
    kind: str
    saving: float | None
    why: str
    root: Node


def alternatives(root: Node, measured: Measured, *, rewritten: bool = True) -> list[Alternative]:
    """Return the plans that may be better than the one with this root. `rewritten`: the planner's rewrites have been applied to it."""
    found = [_by_rank(root, measured), _taken_apart(root)]
    if not rewritten and all(isinstance(node, STATELESS) for node in walk_plan(root)):
        other, applied = optimise(root)
        if other != root:
            found.append(Alternative("rewritten", "alternative plan", None, f"the rewrites {', '.join(applied)} apply", other))
    return [one for one in found if one is not None]


def physical_of(query: LogicalQuery, root: Node) -> PhysicalQuery:
    """Return the physical plan of a query with another root of the same rows."""
    return lower(replace(query, root=root))


def _by_rank(root: Node, measured: Measured) -> Alternative | None:
    """Every run in the order of its ranks; steps that few rows reached stay behind the others, in their order."""
    saved, told = 0.0, list[str]()

    def change(run: Run) -> Node | None:
        nonlocal saved
        did = [measured.of(step.node) for step in run.steps]
        known = [one.rows_in >= ROWS_MIN for one in did]
        order = ordered(run, lambda i: did[i].rank if known[i] else 0.0)
        if sum(known) < 2 or order == list(range(len(order))):
            return None
        saved += did[0].rows_in * (expected_cost(did) - expected_cost([did[i] for i in order]))
        told.extend(f"{_text(run.steps[i].node)} keeps {did[i].selectivity:.2g} at {did[i].cost:.3g} ns a row" for i in order if known[i])
        return rebuilt(run, order)

    other = change_runs(root, change)
    if other == root:
        return None
    return Alternative(key_of(other), "selection order", saved / max(1, measured.cost_ns), ", ".join(told), other)


def _taken_apart(root: Node) -> Alternative | None:
    """Selections of several conditions, one of them dear, as one selection a condition, in the order that is guessed."""

    def change(node: Node) -> Node:
        if not isinstance(node, Filter) or not can_move(node.condition):
            return node
        parts = conjuncts(node.condition)
        if len(parts) == 1 or all(is_cheap(part) for part in parts):
            return node
        single = sorted((replace(node, condition=part) for part in parts), key=guessed_rank)
        below = node.input
        for step in single:
            below = replace(step, input=below)
        return below

    other = bottom_up(root, change)
    if other == root:
        return None
    return Alternative(key_of(other), "selection order", None, "conditions joined by AND can be measured and ordered one by one", other)


def expected_cost(steps: Sequence[Did]) -> float:
    """Return what a row is expected to cost that passes these steps in this order, in ns: Σ c_i · s_1 … s_(i-1)."""
    cost, left = 0.0, 1.0
    for step in steps:
        cost += left * step.cost
        left *= step.selectivity
    return cost


def key_of(root: Node) -> str:
    """Return the order of the selections and joins with tables of a plan, as text, the first to run first."""
    return ", ".join(_text(node) for node in walk_plan(root) if isinstance(node, Filter | TableJoin))


def _text(node: Filter | TableJoin) -> str:
    if isinstance(node, TableJoin):
        return f"join with {node.right.table}" if isinstance(node.right, TableScan) else "join"
    return _condition_text(node.condition, node.input)


def _condition_text(condition: Expression, below: Node) -> str:
    return expression_text(condition, attribute_names(below.attributes))
