"""Queries that come and go while rows flow: the others neither lose nor gain a result, under every policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.graph import GraphDelta, OperatorId, QueryId
from millstream.scheduler.catalog import CATALOG
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.events import Event, QueryAdded, QueryRemoved
from millstream.scheduler.instructions import Instruction
from millstream.scheduler.ledger import validate
from millstream.scheduler.simulation.world import World
from millstream.scheduler.trains import TrainShape

from tests.support.random_networks import RandomNetwork, random_network

POLICIES = [name for name in CATALOG if name != "user"]


def checked(policy: str, network: RandomNetwork, deltas: Sequence[GraphDelta], orders_max: int) -> World:
    world = World(policy, deltas, builder=network.builder, settings=CoreSettings(orders_max, train=TrainShape(count=2)))
    handle = world.core.handle

    def check(events: Sequence[Event], now_ns: int) -> list[Instruction]:
        instructions = handle(events, now_ns)
        validate(world.core.ledger)
        return instructions

    world.core.handle = check  # type: ignore[method-assign]
    return world


def results(world: World, roots: set[OperatorId]) -> Counter[tuple[OperatorId, int]]:
    counts: Counter[tuple[OperatorId, int]] = Counter()
    for emission in world.emissions:
        if emission.operator in roots:
            for arrival_ns, count in zip(emission.arrivals_ns, emission.counts, strict=True):
                counts[emission.operator, arrival_ns] += count
    return counts


def served_alone(deltas: Sequence[GraphDelta], leaving: QueryId) -> tuple[OperatorId, ...]:
    others = {operator for delta in deltas if delta.query.id != leaving for operator in delta.query.operators}
    (own,) = [delta.query.operators for delta in deltas if delta.query.id == leaving]
    return tuple(operator for operator in own if operator not in others)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(seed=st.integers(0, 100_000), at_ns=st.integers(0, 1_500), orders_max=st.sampled_from([1, 2]))
def test_a_query_that_leaves_takes_nothing_with_it(policy: str, seed: int, at_ns: int, orders_max: int) -> None:
    network = random_network(seed, queries_max=5)
    deltas = network.deltas
    whole = checked("round-robin", network, deltas, 1)
    parted = checked(policy, network, deltas, orders_max)
    leaving = deltas[seed % len(deltas)].query
    gone = served_alone(deltas, leaving.id)
    for at, source, rows in network.arrivals:
        whole.arrive(source, at, rows=rows)
        if network.builder.operator(source) not in gone or at < at_ns:
            parted.arrive(source, at, rows=rows)
    parted.driver.post(QueryRemoved(leaving.id, gone), at_ns)
    whole.run()
    # Arrivals of a source that leaves stop before it does.
    parted.run()
    kept = {delta.query.root for delta in deltas if delta.query.id != leaving.id}
    assert [report.kind for report in parted.reports].count("removed") == 1
    assert results(parted, kept) == results(whole, kept)
    assert set(parted.core.network.queries) == {delta.query.id for delta in deltas} - {leaving.id}
    assert set(parted.core.estimates.ideal_of_query) <= set(parted.core.network.queries)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(seed=st.integers(0, 100_000), at_ns=st.integers(0, 1_500), orders_max=st.sampled_from([1, 2]))
def test_a_query_that_comes_disturbs_nobody_and_sees_what_arrives_after(policy: str, seed: int, at_ns: int, orders_max: int) -> None:
    network = random_network(seed, queries_max=5)
    early, late = network.deltas[:-1], network.deltas[-1]
    if not early:
        return
    whole = checked("round-robin", network, early, 1)
    grown = checked(policy, network, early, orders_max)
    known = {operator for delta in early for operator in delta.query.operators}
    for at, source, rows in network.arrivals:
        if network.builder.operator(source) in known:
            whole.arrive(source, at, rows=rows)
            grown.arrive(source, at, rows=rows)
    grown.driver.post(QueryAdded(late), at_ns)
    whole.run()
    grown.run()
    kept = {delta.query.root for delta in early}
    assert [report.kind for report in grown.reports].count("added") == len(network.deltas)
    assert results(grown, kept) == results(whole, kept)
    assert grown.core.statistics().rows_waiting == 0
