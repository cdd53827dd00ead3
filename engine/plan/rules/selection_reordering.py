"""Selection reordering: of several filters in a row, the one that drops most rows per unit of cost goes first.

    rank = (selectivity − 1) / cost        least first

The known rule for sequences of commutative filters; selectivity and cost are what the user declared, else a guess from the kind of
condition (equality 0.1, range 1/3, the rest 1/2) and its size.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.expressions.ir import Call, Expression, walk
from millstream.engine.plan.logical import Filter, Node
from millstream.engine.plan.rules.rewriting import bottom_up

NAME = "selection_reordering"

_GUESSES = {"=": 0.1, "is_not_distinct_from": 0.1, "is_null": 0.1, "<": 1 / 3, "<=": 1 / 3, ">": 1 / 3, ">=": 1 / 3, "between": 0.25}
_CALL_COST_US = 0.01  # a NumPy kernel's time for one row of a train; only ratios matter here


def concerns(node: Node) -> bool:
    """Tell whether two filters meet there."""
    return isinstance(node, Filter) and isinstance(node.input, Filter)


def apply(plan: Node) -> Node:
    """Return the plan with each run of filters in order of rank. Equal ranks keep their order."""
    return bottom_up(plan, _change)


def selectivity(condition: Expression) -> float:
    """Guess the share of rows that a condition keeps."""
    if not isinstance(condition, Call):
        return 0.5
    if condition.function == "and":
        product = 1.0
        for part in condition.arguments:
            product *= selectivity(part)
        return product
    if condition.function == "or":
        missed = 1.0
        for part in condition.arguments:
            missed *= 1.0 - selectivity(part)
        return 1.0 - missed
    if condition.function == "not":
        return 1.0 - selectivity(condition.arguments[0])
    return _GUESSES.get(condition.function, 0.5)


def rank(node: Filter) -> float:
    """Return (selectivity − 1) / cost."""
    kept = node.hints.selectivity if node.hints.selectivity is not None else selectivity(node.condition)
    cost = node.hints.cost_us
    if cost is None:
        cost = _CALL_COST_US * max(1, sum(isinstance(e, Call) for e in walk(node.condition)))
    return (kept - 1.0) / max(cost, 1e-9)


def _change(node: Node) -> Node:
    if not isinstance(node, Filter) or not isinstance(node.input, Filter):
        return node
    run: list[Filter] = []
    below: Node = node
    while isinstance(below, Filter):
        run.append(below)
        below = below.input
    run.reverse()  # first to run first; equal ranks keep their order
    wanted = sorted(run, key=rank)
    if wanted == run:
        return node
    for step in wanted:
        below = replace(step, input=below)
    return below
