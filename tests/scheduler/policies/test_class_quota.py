"""CQC by hand (Pham 2013, III-A).

Classes of priority 3 and 1, k = 10 ms: quotas 7.5 and 2.5 ms. Twelve tuples of 1 ms wait in each. The first class runs eight and is
0.5 ms in debt, the second three and is 0.5 ms in debt. In the next round the first has 7.0 ms and only four tuples left; what is left of
its quota is lost, and the second runs on: it alone has work.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.policies.class_quota import ClassQuotas
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

MS = 1_000_000
GOLD, LOW = ClassId(1), ClassId(2)
BOTH = {GOLD, LOW}


def world(policy: str = "cqc", gold_ms: float = 1.0, rows: int = 12) -> World:
    builder = NetworkBuilder()
    deltas = []
    sources = []
    for class_id, priority, cost_ms, label in ((GOLD, 3.0, gold_ms, "g"), (LOW, 1.0, 1.0, "l")):
        source = builder.source(label)
        sources.append(source)
        asked = Asked(class_id=class_id)
        deltas.append(builder.query(label, Box(cost_ms * MS, 1.0, source, label=label), asked, (ClassNode(class_id, label, priority),)))
    found = World(policy, deltas, builder=builder)
    for source in sources:
        found.arrive(source, 0, rows=rows)
    return found


def turns(world: World) -> str:
    world.run()
    return "".join(world.steps())


def test_quotas_and_negative_credit_give_the_order_by_hand() -> None:
    assert turns(world()) == "g" * 8 + "l" * 3 + "g" * 4 + "l" * 9


def test_an_order_that_overruns_by_rounds_is_paid_for_in_rounds() -> None:
    # 20 ms against a quota of 7.5: -12.5, then -5.0, then 2.5: the other class has two rounds of 2.5 ms to itself, each begun with credit.
    assert turns(world(gold_ms=20.0, rows=3)) == "g" + "l" * 3 + "gg"
    assert turns(world(gold_ms=20.0, rows=8)) == "g" + "l" * 5 + "g" + "l" * 3 + "g" * 6


def test_k_is_the_length_of_a_round() -> None:
    assert turns(world("cqc:k=4")) == "gggl" * 4 + "l" * 8  # quotas 3 and 1 ms
    with pytest.raises(PolicyError, match="k=0 is not a positive number of ms"):
        world("cqc:k=0")


def test_turns_by_themselves_grant_use_up_and_forget_quotas() -> None:
    quotas = ClassQuotas(10 * MS)
    quotas.begin({GOLD: 0.75, LOW: 0.25})
    assert quotas.turn(BOTH) == GOLD
    assert quotas.credit_ns[GOLD] == 7.5 * MS
    quotas.charge(GOLD, 7 * MS)
    assert quotas.turn(BOTH) == GOLD
    quotas.charge(GOLD, 2 * MS)
    assert quotas.turn(BOTH) == LOW
    assert quotas.credit_ns == {GOLD: -1.5 * MS, LOW: 2.5 * MS}
    assert quotas.turn({GOLD}) == GOLD  # LOW has nothing waiting: its turn is over
    assert quotas.credit_ns[GOLD] == 6.0 * MS
    assert quotas.turn({LOW}) == LOW
    assert quotas.credit_ns[LOW] == 2.5 * MS  # what was left is not saved up
    assert quotas.turn([]) is None


def test_a_debt_of_a_thousand_rounds_is_waited_for_at_once_when_nobody_else_has_work() -> None:
    quotas = ClassQuotas(10 * MS)
    quotas.begin({GOLD: 0.75, LOW: 0.25})
    assert quotas.turn({LOW}) == LOW
    quotas.charge(LOW, 10_000 * MS)
    assert quotas.turn({LOW}) == LOW
    assert 0.0 < quotas.credit_ns[LOW] <= 2.5 * MS


def test_other_shares_hold_from_the_next_turn_and_classes_that_stay_keep_their_debt() -> None:
    quotas = ClassQuotas(10 * MS)
    quotas.begin({GOLD: 0.75, LOW: 0.25})
    quotas.set_shares({GOLD: 0.5, LOW: 0.5, ClassId(9): 0.3})
    assert (quotas.quota_ns(GOLD), quotas.quota_ns(LOW)) == (5 * MS, 5 * MS)
    assert quotas.turn(BOTH) == GOLD
    quotas.charge(GOLD, 8 * MS)
    quotas.begin({GOLD: 0.6, LOW: 0.2, ClassId(9): 0.2})
    assert quotas.credit_ns == {GOLD: -3 * MS, LOW: 0.0, ClassId(9): 0.0}
    assert quotas.turn({GOLD, LOW}) == LOW
    quotas.charge(ClassId(77), 1.0)  # a class that has left
    assert ClassId(77) not in quotas.credit_ns


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.floats(0.5, 9.0), min_size=2, max_size=4), st.lists(st.floats(0.1, 30.0), min_size=4, max_size=4))
def test_whatever_orders_cost_no_class_starves_and_time_goes_by_priority(priorities: list[float], costs_ms: list[float]) -> None:
    quotas = ClassQuotas(10 * MS)
    total = sum(priorities)
    quotas.begin({ClassId(number): one / total for number, one in enumerate(priorities)})
    classes = set(quotas.shares)
    spent = dict.fromkeys(classes, 0.0)
    while sum(spent.values()) < 20_000 * MS:
        one = quotas.turn(classes)
        assert one is not None
        spent[one] += costs_ms[one] * MS
        quotas.charge(one, costs_ms[one] * MS)
    for one, share in quotas.shares.items():
        assert spent[one] / sum(spent.values()) == pytest.approx(share, abs=0.01)
