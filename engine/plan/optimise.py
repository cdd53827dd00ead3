"""The optimiser: every rewrite once in a fixed order, repeated until none changes anything. Answers stay the same (K15)."""

from __future__ import annotations

from collections.abc import Callable

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import UnknownName
from millstream.engine.language.names import did_you_mean
from millstream.engine.plan.logical import Node, walk_plan
from millstream.engine.plan.rules import (
    constant_folding,
    duplicate_elimination,
    predicate_push_down,
    projection_merging,
    projection_pruning,
    selection_reordering,
)

Rule = Callable[[Node], Node]

# Folding first, as it makes conditions that need no work; pruning last, when it is settled who reads which column.
RULES: dict[str, Rule] = {
    constant_folding.NAME: constant_folding.apply,
    duplicate_elimination.NAME: duplicate_elimination.apply,
    predicate_push_down.NAME: predicate_push_down.apply,
    projection_merging.NAME: projection_merging.apply,
    selection_reordering.NAME: selection_reordering.apply,
    projection_pruning.NAME: projection_pruning.apply,
}
ROUNDS_MAX = 8  # each rewrite only moves things down or away, so a few rounds settle any plan


def optimise(plan: Node, *, off: frozenset[str] = frozenset()) -> tuple[Node, tuple[str, ...]]:
    """Return the rewritten plan and the names of the rewrites that changed it. `off` names those to leave out, "all" for every one."""
    unknown = sorted(off - RULES.keys() - {"all"})
    if unknown:
        raise UnknownName(f"there is no rewrite {unknown[0]}", hint=did_you_mean(unknown[0], RULES) or f"they are {', '.join(RULES)}")
    active = {} if "all" in off else {name: rule for name, rule in RULES.items() if name not in off}
    applied: list[str] = []
    for _ in range(ROUNDS_MAX):
        before = plan
        size = _size(plan)
        for name, rule in active.items():
            spend(size)  # comparing the plan with what it becomes
            changed = rule(plan)
            if changed != plan:
                plan = changed
                if name not in applied:
                    applied.append(name)
        if plan == before:
            break
    return plan, tuple(applied)


def _size(plan: Node) -> int:
    """Return how many nodes, columns and expressions a plan has."""
    nodes = walk_plan(plan)
    return sum(1 + len(node.attributes) // 4 for node in nodes)
