"""Run the selections of a query in the order of (s - 1) / c as measured: the most rows dropped for the least cost goes first."""

from __future__ import annotations

from typing import Final

from millstream.scheduler.optimiser.contract import Facts, PlanChoice, Proposal, Subject, UsePlan

KIND: Final = "selection order"

SAVING_MIN: Final = 0.1
"""A plan that is expected to save less than this share of the cost is not worth the change."""


def reorder_selections(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose the orders that are expected to save enough, the best first; those whose effect nobody knows come last."""
    return plans_of(query, KIND)


def plans_of(query: Subject, kind: str) -> list[Proposal]:
    """Return proposals for the plans of a kind, the greatest expected saving first."""
    worth = [one for one in query.choices if one.kind == kind and (one.saving is None or one.saving >= SAVING_MIN)]
    worth.sort(key=lambda one: -1.0 if one.saving is None else one.saving, reverse=True)
    return [Proposal(UsePlan(query.id, kind, query.plan, one.key), _reason(one)) for one in worth if one.key != query.plan]


def _reason(one: PlanChoice) -> str:
    expected = "its effect is not known" if one.saving is None else f"it should save {one.saving:.0%} of the query's cost"
    return f"{one.why}; {expected}"
