"""The optimiser by hand, and what holds whatever it is told: settling, undoing, barring, leaving alone what is in tolerance."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.graph import ClassId, QueryId
from millstream.scheduler.optimiser.actions import ACTIONS
from millstream.scheduler.optimiser.contract import (
    DecisionOutcome,
    Facts,
    Observation,
    PlanChoice,
    PolicyChange,
    ServiceTarget,
    SetWeight,
    Shed,
    Subject,
    TargetState,
    TargetVerdict,
    UsePlan,
)
from millstream.scheduler.optimiser.optimiser import Optimiser, OptimiserSettings, ToDo
from millstream.scheduler.spec import PolicySpec

S = 1_000_000_000
Q = QueryId(1)
SETTINGS = OptimiserSettings(settle_ns=5 * S, patience_ns=2 * S, retry_ns=60 * S)


def subject(excess: float, *, latency: bool = True, memory: bool = False, since_s: float = 0.0, **more: object) -> Subject:
    state = TargetState.MISSED if excess else TargetState.MET
    seen = Observation(0, 10e6 * (1 + excess), 100.0)
    verdict = TargetVerdict(state, int(since_s * S), excess, latency and bool(excess), memory and bool(excess), 1, seen)
    return replace(Subject(Q, "q", ClassId(0), ServiceTarget(10e6, 100.0), verdict), **more)  # type: ignore[arg-type]


def facts(*queries: Subject, policy: str = "fcfs", busy: float = 0.5) -> Facts:
    return Facts(PolicySpec.parse(policy), busy, queries)


CHOICE = PlanChoice("b, a", "selection order", 0.4, "b drops more")
OTHER = subject(0.0, id=QueryId(2), name="other")


def proposed(told: Facts) -> list[object]:
    return [p.action for propose in ACTIONS for p in propose(told, told.queries[0])]


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (facts(subject(1.0, choices=(CHOICE,))), UsePlan(Q, "selection order", "", "b, a")),
        (facts(subject(1.0), OTHER), PolicyChange("policy", PolicySpec("fcfs"), PolicySpec("hr"))),
        (facts(subject(1.0, latency=False, memory=True), OTHER), PolicyChange("policy", PolicySpec("fcfs"), PolicySpec("segment"))),
        (facts(subject(1.0, memory=True), OTHER), PolicyChange("policy", PolicySpec("fcfs"), PolicySpec("simplified-segment"))),
        (facts(subject(1.0, weight=0.25), OTHER, policy="fas"), SetWeight(Q, 0.25, 0.5)),
        (
            facts(subject(1.0), policy="weighted-round-robin"),
            PolicyChange("weights", PolicySpec("weighted-round-robin"), PolicySpec.parse("weighted-round-robin:join=6.0")),
        ),
        (
            facts(subject(1.0), policy="hr:quantum=4.0"),
            PolicyChange("quantum", PolicySpec.parse("hr:quantum=4.0"), PolicySpec.parse("hr:quantum=2.0")),
        ),
        (
            facts(subject(1.0), policy="hr:quantum=4.0", busy=0.92),
            PolicyChange("quantum", PolicySpec.parse("hr:quantum=4.0"), PolicySpec.parse("hr:quantum=8.0")),
        ),
        (facts(subject(1.0), policy="hr"), PolicyChange("train size", PolicySpec("hr"), PolicySpec.parse("hr:train=512"))),
        (facts(subject(1.0), policy="hr", busy=0.92), PolicyChange("train size", PolicySpec("hr"), PolicySpec.parse("hr:train=all"))),
        (facts(subject(1.0, may_shed=True), policy="hr:train=all", busy=1.0), Shed(ClassId(0), 0.0, 0.1)),
    ],
)
def test_each_action_proposes_itself_where_it_helps(told: Facts, wanted: object) -> None:
    assert wanted in proposed(told)


def test_a_plan_that_saves_little_a_class_that_may_not_be_shed_and_an_idle_machine_give_no_proposal() -> None:
    little = replace(CHOICE, saving=0.05)
    assert not any(isinstance(a, UsePlan) for a in proposed(facts(subject(1.0, choices=(little,)))))
    assert not any(isinstance(a, Shed) for a in proposed(facts(subject(1.0), busy=1.0)))
    assert not any(isinstance(a, Shed) for a in proposed(facts(subject(1.0, may_shed=True), busy=0.5)))
    assert not any(isinstance(a, PolicyChange) and a.kind == "policy" for a in proposed(facts(subject(1.0), OTHER, policy="cqc")))


def test_a_decision_waits_settles_and_is_kept_when_it_helped() -> None:
    optimiser = Optimiser(SETTINGS)
    missed = facts(subject(1.0, choices=(CHOICE,)))
    assert optimiser.step(missed, 1 * S) is None  # missed since 0, patience 2 s
    todo = optimiser.step(missed, 2 * S)
    assert todo is not None
    assert todo.action == UsePlan(Q, "selection order", "", "b, a")
    assert "latency 20 ms exceeds 10 ms; b drops more; it should save 40%" in todo.decision.reason
    assert optimiser.step(missed, 4 * S) is None  # settling
    better = facts(subject(0.0, plan="b, a", choices=(CHOICE,)))
    assert optimiser.step(better, 7 * S) is None
    decision = optimiser.decisions[0]
    assert (decision.outcome, decision.distance_before, decision.distance_after) == (DecisionOutcome.KEPT, 1.0, 0.0)


def test_what_made_things_worse_is_undone_and_not_tried_again_for_a_time() -> None:
    optimiser = Optimiser(SETTINGS)
    optimiser.step(facts(subject(1.0, choices=(CHOICE,)), policy="hr:train=64"), 2 * S)
    worse = facts(subject(1.5, plan="b, a", choices=(CHOICE,)), policy="hr:train=64")
    todo = optimiser.step(worse, 7 * S)
    assert todo is not None
    assert todo.undoes
    assert todo.action == UsePlan(Q, "selection order", "b, a", "")
    assert optimiser.decisions[0].outcome is DecisionOutcome.UNDONE
    back = facts(subject(1.0, choices=(CHOICE,)), policy="hr:train=64")
    assert optimiser.step(back, 11 * S) is None  # the undoing settles too
    assert optimiser.step(back, 12 * S) is None  # nothing else is left to try
    again = optimiser.step(back, 67 * S)
    assert again is not None
    assert not again.undoes


def test_a_change_that_somebody_else_replaced_is_not_taken_back() -> None:
    optimiser = Optimiser(SETTINGS)
    optimiser.step(facts(subject(1.0), OTHER), 2 * S)
    assert (
        optimiser.step(facts(subject(2.0), OTHER, policy="bsd-log"), 7 * S) is None
        or optimiser.decisions[0].outcome is DecisionOutcome.KEPT
    )
    assert optimiser.decisions[0].note == "somebody has changed it since"


def test_what_cannot_be_done_is_noted_and_another_way_is_tried_at_once() -> None:
    optimiser = Optimiser(SETTINGS)
    told = facts(subject(1.0, choices=(CHOICE,)), OTHER)
    todo = optimiser.step(told, 2 * S)
    assert todo is not None
    optimiser.failed(todo, "its operators serve other queries too", 2 * S)
    following = optimiser.step(told, 2 * S)
    assert following is not None
    assert isinstance(following.action, PolicyChange)
    assert optimiser.decisions[0].outcome is DecisionOutcome.FAILED


def test_what_was_shed_is_given_back_when_all_is_met_and_there_is_room() -> None:
    optimiser = Optimiser(SETTINGS)
    shed = subject(0.0, may_shed=True, drop_ratio=0.3)
    assert optimiser.step(facts(shed, busy=0.9), 1 * S) is None
    todo = optimiser.step(facts(shed, busy=0.5), 2 * S)
    assert todo is not None
    assert todo.action == Shed(ClassId(0), 0.3, 0.2)


def test_shedding_that_brings_nothing_is_undone_and_so_is_giving_back_too_much() -> None:
    optimiser = Optimiser(SETTINGS)
    told = facts(subject(1.0, may_shed=True), policy="hr:train=all", busy=1.0)
    todo = optimiser.step(told, 2 * S)
    assert todo is not None
    assert todo.action == Shed(ClassId(0), 0.0, 0.1)
    undoing = optimiser.step(facts(subject(0.98, may_shed=True, drop_ratio=0.1), policy="hr:train=all", busy=1.0), 7 * S)
    assert undoing is not None
    assert undoing.action == Shed(ClassId(0), 0.1, 0.0)
    giving = Optimiser(SETTINGS)
    giving.step(facts(subject(0.0, may_shed=True, drop_ratio=0.3)), 1 * S)
    undoing = giving.step(facts(subject(0.2, may_shed=True, drop_ratio=0.2)), 6 * S)
    assert undoing is not None
    assert undoing.action == Shed(ClassId(0), 0.2, 0.3)


def test_the_worst_query_goes_first_and_weight_counts() -> None:
    optimiser = Optimiser(SETTINGS)
    first, second = subject(1.0, choices=(CHOICE,)), subject(0.6, id=QueryId(2), name="heavy", weight=2.0, choices=(CHOICE,))
    todo = optimiser.step(facts(first, second), 2 * S)
    assert todo is not None
    assert todo.decision.query == "heavy"


EXCESSES = st.sampled_from((0.0, 0.0, 0.2, 0.5, 1.0, 3.0))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 4), EXCESSES, st.floats(0.0, 1.0), st.booleans(), st.booleans()), max_size=60),
    st.sampled_from(("fcfs", "hr", "fas", "weighted-round-robin", "hr:quantum=5.0")),
)
def test_never_two_changes_within_the_settling_time_nor_an_undone_one_again_nor_one_in_tolerance(
    steps: list[tuple[int, float, float, bool, bool]], policy: str
) -> None:
    optimiser = Optimiser(SETTINGS)
    now_s, done, undone = 0, list[tuple[int, ToDo]](), dict[str, int]()
    world = {"policy": PolicySpec.parse(policy), "plan": "", "weight": 0.25, "drop": 0.0}
    for seconds, excess, busy, memory, fails in steps:
        now_s += seconds
        one = subject(excess, latency=not memory or excess > 0.5, memory=memory, choices=(CHOICE,), may_shed=True)
        one = replace(one, plan=str(world["plan"]), weight=float(world["weight"]), drop_ratio=float(world["drop"]))  # type: ignore[arg-type]
        told = Facts(world["policy"], busy, (one, OTHER))  # type: ignore[arg-type]
        todo = optimiser.step(told, now_s * S)
        if todo is None:
            continue
        if fails and not todo.undoes:
            optimiser.failed(todo, "no", now_s * S)
            continue
        action, key = todo.action, f"{todo.action.kind}{getattr(todo.action, 'after', '')}"
        assert todo.undoes or excess > 0.0 or (isinstance(action, Shed) and action.after < action.before)
        assert all(now_s - at >= 5 for at, _ in done)
        assert todo.undoes or now_s >= undone.get(key, 0)
        if todo.undoes:
            undone[f"{action.kind}{todo.decision.action.after}"] = now_s + 60
        done.append((now_s, todo))
        name = {PolicyChange: "policy", UsePlan: "plan", SetWeight: "weight", Shed: "drop"}[type(action)]
        assert world[name] == action.before
        world[name] = action.after
