"""Admission by hand: what a query would add, what that does to latencies, and when it is refused."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data.graph import DEFAULT_QOS, ClassId, Edge, EdgeId, GraphDelta, LogId, OperatorId, OperatorNode, QueryId, QueryNode
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.events import QueryAdded, Spliced
from millstream.scheduler.optimiser.admission import AdmissionAnswer, Candidate, ClassFacts, QueryFacts, admit
from millstream.scheduler.optimiser.prediction import AddedLoad, added_load, class_loads

MS = 1_000_000
GOLD, DUST = ClassId(1), ClassId(2)


def chain(base: int, costs: list[float], shares: list[float], *, with_source: bool, class_id: ClassId = GOLD) -> GraphDelta:
    """A chain over source 1 (log 1), its operators numbered from `base`."""
    operators, edges, log, producer = [], [], LogId(1), OperatorId(1)
    if with_source:
        operators.append(OperatorNode(OperatorId(1), "source", (), (LogId(1),)))
    for place, (cost, share) in enumerate(zip(costs, shares, strict=True)):
        number = base + place
        edges.append(Edge(EdgeId(number), log, producer, OperatorId(number)))
        operators.append(
            OperatorNode(
                OperatorId(number), "select", (EdgeId(number),), (LogId(number),), selectivity=share, cost_ns=cost, class_id=class_id
            )
        )
        log, producer = LogId(number), OperatorId(number)
    ids = (OperatorId(1), *(OperatorId(base + i) for i in range(len(costs))))
    query = QueryNode(QueryId(base), f"q{base}", ids[-1], ids, class_id)
    return GraphDelta(query, tuple(operators), tuple(edges))


def running() -> SchedulerCore:
    """One chain of 1 ms, half of it on to 2 ms."""
    core = SchedulerCore()
    delta = chain(10, [1.0 * MS, 2.0 * MS], [0.5, 1.0], with_source=True)
    core.handle([QueryAdded(delta)], 0)
    core.handle([Spliced(delta.query.id)], 0)
    assert core.view.ledger is core.ledger  # brings the sums up to date
    return core


def test_the_load_is_rate_times_expected_cost_and_a_new_query_adds_its_own() -> None:
    core = running()
    rates = {OperatorId(1): 100 / 1e9}
    # 100 tuples/s · (1 ms + 0.5 · 2 ms) = 0.2 s of work a second
    assert math.isclose(class_loads(core.network, core.estimates, rates)[GOLD], 0.2)
    added = added_load(core.network, core.estimates, rates, chain(20, [3.0 * MS, 4.0 * MS], [0.1, 1.0], with_source=False))
    # 100/s · 3 ms + 10/s · 4 ms
    assert math.isclose(added.load, 0.34)
    assert math.isclose(added.ideal_ns, 7.0 * MS)
    assert math.isclose(added.rate_per_s, 100.0)


def test_a_call_costs_less_a_tuple_the_more_tuples_come_within_a_ms() -> None:
    core = running()
    node = OperatorNode(OperatorId(30), "select", (EdgeId(30),), (LogId(30),), cost_ns=10.0, call_ns=1_000.0)
    delta = GraphDelta(
        QueryNode(QueryId(30), "q", OperatorId(30), (OperatorId(1), OperatorId(30)), GOLD),
        (node,),
        (Edge(EdgeId(30), LogId(1), OperatorId(1), OperatorId(30)),),
    )
    slow, fast = (added_load(core.network, core.estimates, {OperatorId(1): rate / 1e9}, delta).load for rate in (1_000, 100_000))
    assert math.isclose(slow, 1_000 * 1_010e-9)  # one tuple a call
    assert math.isclose(fast, 100_000 * 20e-9)  # a hundred a call


def facts(load: float, target_ms: float | None = 100.0) -> list[ClassFacts]:
    target = None if target_ms is None else int(target_ms * MS)
    return [ClassFacts(GOLD, "gold", 6.0, target, load), ClassFacts(DUST, "dust", 1.0, None, 0.1)]


SERVICE = [QueryFacts(GOLD, DEFAULT_QOS, 40.0 * MS)]


def test_latency_grows_with_the_share_that_is_left_and_a_missed_target_refuses_with_the_numbers() -> None:
    # ρ from 0.5 to 0.75: what is left halves, so 40 ms become 80 ms, within 100 ms.
    taken = admit(1.0, facts(0.4), SERVICE, Candidate(DUST, AddedLoad(0.25, MS, 1.0), DEFAULT_QOS))
    assert taken.answer is AdmissionAnswer.ACCEPTED
    assert math.isclose(taken.outlooks[0].latency_after_ns or 0.0, 80.0 * MS)
    assert math.isclose(taken.latency_ns, 4.0 * MS)  # 1 ms / (1 - 0.75)
    # ρ to 0.9: 200 ms.
    refused = admit(1.0, facts(0.4), SERVICE, Candidate(DUST, AddedLoad(0.4, MS, 1.0), DEFAULT_QOS))
    assert refused.answer is AdmissionAnswer.REFUSED
    assert refused.reasons == ("class gold would go from load 0.50 to 0.90 and miss its target of 100 ms: 200 ms expected (now 40 ms)",)


def test_more_than_the_machine_has_is_refused_even_before_anything_was_measured() -> None:
    silent = [QueryFacts(GOLD, DEFAULT_QOS, None)]
    found = admit(1.0, facts(0.4), silent, Candidate(DUST, AddedLoad(0.6, MS, 1.0), DEFAULT_QOS))
    assert found.answer is AdmissionAnswer.REFUSED
    assert "latency without bound" in found.reasons[0]


def test_a_class_without_queries_falls_below_no_target() -> None:
    found = admit(1.0, facts(0.4), [], Candidate(DUST, AddedLoad(0.6, MS, 1.0), DEFAULT_QOS))
    assert found.reasons == ()
    assert found.answer is AdmissionAnswer.REDUCED
    own = admit(1.0, facts(0.0), [], Candidate(GOLD, AddedLoad(1.2, MS, 1.0), DEFAULT_QOS))
    assert own.answer is AdmissionAnswer.REFUSED  # its first query would make it miss


def test_a_query_weighs_the_same_before_it_runs_and_before_anything_was_measured_of_it() -> None:
    core = running()
    node = OperatorNode(OperatorId(30), "select", (EdgeId(30),), (LogId(30),), cost_ns=10.0, call_ns=10_000.0, class_id=DUST)
    delta = GraphDelta(
        QueryNode(QueryId(30), "q", OperatorId(30), (OperatorId(1), OperatorId(30)), DUST),
        (node,),
        (Edge(EdgeId(30), LogId(1), OperatorId(1), OperatorId(30)),),
    )
    rates = {OperatorId(1): 200_000 / 1e9}
    before = added_load(core.network, core.estimates, rates, delta).load
    core.handle([QueryAdded(delta)], 0)
    core.handle([Spliced(delta.query.id)], 0)
    assert core.view.ledger is core.ledger
    assert math.isclose(class_loads(core.network, core.estimates, rates)[DUST], before)


def test_without_a_target_nothing_is_refused_and_the_expected_utility_is_told() -> None:
    found = admit(1.0, facts(0.4, None), SERVICE, Candidate(DUST, AddedLoad(0.4, 0.55e9, 1.0), DEFAULT_QOS))
    # 0.55 s / (1 - 0.9) = 5.5 s: half way from 1 at 1 s to 0 at 10 s
    assert found.answer is AdmissionAnswer.REDUCED
    assert math.isclose(found.utility, 0.5)


def test_a_protected_class_does_not_feel_a_lower_one() -> None:
    candidate = Candidate(DUST, AddedLoad(2.0, MS, 1.0), DEFAULT_QOS)
    assert admit(1.0, facts(0.4), SERVICE, candidate).answer is AdmissionAnswer.REFUSED
    assert admit(1.0, facts(0.4), SERVICE, candidate, protected=True).answer is AdmissionAnswer.REDUCED


def test_a_query_that_would_miss_its_own_target_is_refused() -> None:
    found = admit(1.0, facts(0.0, None), [], Candidate(DUST, AddedLoad(0.4, 10 * MS, 1.0), DEFAULT_QOS, target_ns=15 * MS))
    assert found.reasons == ("the query itself would need 20 ms and its target is 15 ms",)


@given(st.floats(0, 1.5), st.floats(0, 1.5), st.floats(0, 1.5))
def test_more_load_never_turns_a_refusal_into_an_acceptance(load: float, one: float, more: float) -> None:
    def refused(added: float) -> bool:
        return admit(1.0, facts(load), SERVICE, Candidate(DUST, AddedLoad(added, MS, 1.0), DEFAULT_QOS)).answer is AdmissionAnswer.REFUSED

    assert refused(one + more) >= refused(one)
