"""Other plans of a query that give the same answers, from what its operators were measured to do (Pajjuri 2004, 3.4).

    selection order     each run of selections by (s - 1) / c, least first; a selection that is several conditions joined by AND is
                        taken apart where one of them is dear, so that each is measured by itself and the dear one sees fewer rows
    alternative plan    what the rewrites would make of the plan, where they were switched off

Only conditions that cannot fail on a row change places: the order of others decides on which rows they fail (K8). What a run of
selections is expected to cost is Σ c_i · s_1 … s_(i-1), as if conditions were independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.ir import Expression
from millstream.engine.fused_program import is_cheap
from millstream.engine.operators.recipes import Recipe, SelectRecipe
from millstream.engine.planner.expression_binder import conjuncts
from millstream.engine.planner.logical import Filter, LogicalQuery, Node, walk_plan, with_inputs
from millstream.engine.planner.lower import lower
from millstream.engine.planner.optimise import optimise
from millstream.engine.planner.physical import PhysicalQuery
from millstream.engine.planner.rules.rewriting import is_movable
from millstream.engine.planner.rules.selection_reordering import rank as guessed_rank
from millstream.engine.planner.text import attribute_names, expression_text

ROWS_MIN = 1_000
"""Rows an operator must have taken before its selectivity counts as measured."""


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


Measured = Mapping[Recipe, Did]
"""What the operators of a query did, by their recipes."""


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
    found = [_by_rank(root, measured), _taken_apart(root, measured)]
    if not rewritten:
        other, applied = optimise(root)
        if other != root:
            found.append(Alternative("rewritten", "alternative plan", None, f"the rewrites {', '.join(applied)} apply", other))
    return [one for one in found if one is not None]


def physical_of(query: LogicalQuery, root: Node) -> PhysicalQuery:
    """Return the physical plan of a query with another root of the same rows."""
    return lower(replace(query, root=root))


def can_move(condition: Expression) -> bool:
    """Whether a condition may be asked earlier or later than it is."""
    return is_movable(condition) and not may_fail(condition)


def run_below(node: Node) -> tuple[list[Filter], Node]:
    """Return the selections that follow one another from the node down, the first to run first, and what is below them."""
    found: list[Filter] = []
    while isinstance(node, Filter) and can_move(node.condition):
        found.append(node)
        node = node.input
    return found[::-1], node


def stacked(steps: Sequence[Filter], below: Node) -> Node:
    """Return the selections on top of a node, the first one lowest."""
    for step in steps:
        below = replace(step, input=below)
    return below


def _change_runs(node: Node, change: Callable[[list[Filter]], list[Filter]]) -> Node:
    """Return the plan with every whole run of selections changed."""
    steps, below = run_below(node)
    if steps:
        wanted, under = change(steps), _change_runs(below, change)
        return node if wanted == steps and under is below else stacked(wanted, under)
    inputs = tuple(_change_runs(one, change) for one in node.inputs)
    if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
        return node
    return with_inputs(node, inputs)


def _by_rank(root: Node, measured: Measured) -> Alternative | None:
    """Every run of measured selections in the order of its ranks."""
    saved, told = 0.0, list[str]()

    def change(steps: list[Filter]) -> list[Filter]:
        nonlocal saved
        did = [_did(step, measured) for step in steps]
        known = [one for one in did if one is not None]
        if len(steps) < 2 or len(known) < len(steps):
            return steps
        order = sorted(range(len(steps)), key=lambda i: known[i].rank)
        wanted = [steps[i] for i in order]
        if wanted != steps:
            rows = known[0].rows_in
            saved += rows * (expected_cost(known) - expected_cost([known[i] for i in order]))
            told.extend(f"{_text(steps[i])} keeps {known[i].selectivity:.2g} at {known[i].cost:.3g} ns a row" for i in order)
        return wanted

    other = _change_runs(root, change)
    if other == root:
        return None
    total = sum(one.cost_ns for one in measured.values())
    return Alternative(key_of(other), "selection order", saved / max(1, total), ", ".join(told), other)


def _taken_apart(root: Node, measured: Measured) -> Alternative | None:
    """Selections of several conditions, one of them dear, as one selection a condition, in the order that is guessed."""

    def change(steps: list[Filter]) -> list[Filter]:
        found: list[Filter] = []
        for step in steps:
            parts = conjuncts(step.condition)
            if len(parts) == 1 or all(is_cheap(part) for part in parts):
                found.append(step)
                continue
            single = [replace(step, condition=part) for part in parts]
            found.extend(sorted(single, key=guessed_rank))
        return found

    other = _change_runs(root, change)
    if other == root:
        return None
    return Alternative(key_of(other), "selection order", None, "conditions joined by AND can be measured and ordered one by one", other)


def expected_cost(steps: Sequence[Did]) -> float:
    """Return what a row is expected to cost that passes these selections in this order, in ns: Σ c_i · s_1 … s_(i-1)."""
    cost, left = 0.0, 1.0
    for step in steps:
        cost += left * step.cost
        left *= step.selectivity
    return cost


def _did(step: Filter, measured: Measured) -> Did | None:
    found = measured.get(SelectRecipe(step.schema, step.condition))
    return found if found is not None and found.rows_in >= ROWS_MIN else None


def key_of(root: Node) -> str:
    """Return the order of the selections and joins of a plan, as text, the first to run first."""
    return ", ".join(_text(node) for node in walk_plan(root) if isinstance(node, Filter))


def _text(node: Filter) -> str:
    return expression_text(node.condition, attribute_names(node.input.attributes))
