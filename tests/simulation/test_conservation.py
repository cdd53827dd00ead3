"""Over random networks and arrivals: no policy loses, duplicates or reorders anything, and every unit that can run does in the end."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.graph import OperatorId
from millstream.scheduler.catalog import CATALOG
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.events import Event
from millstream.scheduler.instructions import Instruction
from millstream.scheduler.ledger import validate
from millstream.scheduler.simulation.executor import Tuple
from millstream.scheduler.simulation.world import World
from millstream.scheduler.trains import TrainShape

from tests.support.random_networks import RandomNetwork, random_network

POLICIES = [name for name in CATALOG if name != "user"]
SEEDS = st.integers(0, 100_000)
EXAMPLES = settings(max_examples=4, deadline=None, derandomize=True)


class Watched(World):
    """A world that checks the ledger after every step and notes which tuples every operator took."""

    taken: dict[OperatorId, list[Tuple]]

    def check_every_step(self) -> None:
        handle = self.core.handle

        def checked(events: Sequence[Event], now_ns: int) -> list[Instruction]:
            instructions = handle(events, now_ns)
            validate(self.core.ledger)
            return instructions

        self.core.handle = checked  # type: ignore[method-assign]


def watch(network: RandomNetwork, policy: str, core: CoreSettings, switches: Sequence[tuple[int, str]] = ()) -> Watched:
    world = Watched(policy, network.deltas, builder=network.builder, settings=core)
    world.taken = {}
    world.check_every_step()
    advance = world.executor._take

    def note(node, rows_max):  # type: ignore[no-untyped-def]
        rows = advance(node, rows_max)
        world.taken.setdefault(node.id, []).extend(row for port in rows for row in port)
        return rows

    world.executor._take = note  # type: ignore[method-assign]
    for at_ns, source, rows in network.arrivals:
        world.arrive(source, at_ns, rows=rows)
    for at_ns, other in switches:
        world.set_policy(other, at_ns)
    world.run()
    validate(world.core.ledger)
    return world


def by_operator(world: Watched) -> dict[OperatorId, Counter[Tuple]]:
    return {operator: Counter(rows) for operator, rows in world.taken.items() if rows}


def results(world: World) -> Counter[tuple[OperatorId, int]]:
    counts: Counter[tuple[OperatorId, int]] = Counter()
    for emission in world.emissions:
        for arrival_ns, count in zip(emission.arrivals_ns, emission.counts, strict=True):
            counts[emission.operator, arrival_ns] += count
    return counts


def core_settings(orders_max: int = 1, train: int = 1, budget_ns: int | None = None, rows_max: int = 1_000_000) -> CoreSettings:
    return CoreSettings(orders_max=orders_max, train=TrainShape(count=train), budget_ns=budget_ns, edge_rows_max=rows_max)


@pytest.mark.parametrize("policy", POLICIES)
@EXAMPLES
@given(seed=SEEDS, train=st.sampled_from([1, 2, 50]), workers=st.sampled_from([1, 2, 3]), budget=st.sampled_from([None, 30]))
def test_every_policy_consumes_the_same_tuples_and_empties_all_queues(
    policy: str, seed: int, train: int, workers: int, budget: int | None
) -> None:
    network = random_network(seed)
    plain = watch(network, "round-robin", core_settings())
    other = watch(random_network(seed), policy, core_settings(workers, train, budget))
    assert other.core.statistics().rows_waiting == 0
    assert other.core.idle
    assert by_operator(other) == by_operator(plain)
    assert results(other) == results(plain)


@pytest.mark.parametrize("policy", POLICIES)
@EXAMPLES
@given(seed=SEEDS, train=st.sampled_from([1, 3]))
def test_order_within_an_edge_is_kept(policy: str, seed: int, train: int) -> None:
    world = watch(random_network(seed, joins=False), policy, core_settings(train=train))
    for operator, rows in world.taken.items():
        inputs = world.core.network.inputs[world.core.network.operators.slot_of[operator]]
        if len(inputs) == 1 and world.core.network.is_source(world.core.network.edge_producer[inputs[0]]):
            assert rows == sorted(rows)


@EXAMPLES
@given(seed=SEEDS, order=st.permutations(POLICIES), step=st.integers(1, 400), workers=st.sampled_from([1, 2]))
def test_switching_at_any_point_loses_and_reorders_nothing(seed: int, order: list[str], step: int, workers: int) -> None:
    plain = watch(random_network(seed), "round-robin", core_settings())
    switches = [(step * index, name) for index, name in enumerate(order)]
    switched = watch(random_network(seed), "fcfs", core_settings(workers, 2), switches)
    assert by_operator(switched) == by_operator(plain)
    assert [report.kind for report in switched.reports].count("policy_set") == len(order)


@pytest.mark.parametrize("policy", POLICIES)
@EXAMPLES
@given(seed=SEEDS)
def test_full_queues_hold_producers_back_but_never_for_ever(policy: str, seed: int) -> None:
    plain = watch(random_network(seed), "round-robin", core_settings())
    tight = watch(random_network(seed), policy, core_settings(rows_max=1, train=2))
    assert by_operator(tight) == by_operator(plain)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_threshold_delays_the_last_rows_but_never_for_ever(policy: str) -> None:
    network = random_network(7)
    plain = watch(network, "round-robin", core_settings())
    held = watch(random_network(7), f"{policy}:tau=3", core_settings())
    assert by_operator(held) == by_operator(plain)


@pytest.mark.parametrize("policy", POLICIES)
def test_units_given_out_together_do_the_same(policy: str) -> None:
    for seed in range(6):
        plain = watch(random_network(seed), "round-robin", core_settings())
        many = watch(random_network(seed), f"{policy}:schedule=3", core_settings())
        assert by_operator(many) == by_operator(plain)
