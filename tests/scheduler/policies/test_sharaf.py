"""The ranks of Sharaf 2007, chapters 3 and 4, by examples worked out by hand.

Two queries of one operator: A costs 4 and passes all, B costs 2 and passes a quarter.

    S_A = 1, Cbar_A = T_A = 4     S_B = 1/4, Cbar_B = T_B = 2
    W_A = 6 (head arrived at 4, now 10), W_B = 10 (head arrived at 0)
"""

import pytest
from millstream.scheduler.catalog import CATALOG
from millstream.scheduler.events import Arrived
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

NOW = 10


def two_queries(policy: str) -> World:
    builder = NetworkBuilder()
    first, second = builder.source("a"), builder.source("b")
    deltas = [
        builder.query("A", Box(4, 1.0, first, label="A"), Asked(weight=0.5, deadline_ns=20, period_ns=8)),
        builder.query("B", Box(2, 0.25, second, label="B"), Asked(weight=1.0, deadline_ns=15)),
    ]
    world = World(policy, deltas, builder=builder)
    world.core.ledger.append(world.core.network.logs.slot_of[builder.log(first)], 3, 3, 4, 0)
    world.core.ledger.append(world.core.network.logs.slot_of[builder.log(second)], 2, 2, 0, 0)
    world.core.view.units.update_all()
    return world


EXPECTED = {
    "fcfs": (-4, 0),
    "srpt": (1 / 4, 1 / 2),
    "hr": (1 / 4, 1 / 8),
    "hnr": (1 / 16, 1 / 16),
    "lsf": (6 / 4, 10 / 2),
    "brt": (6 / 4, 10 / 8),
    "bsd-naive": (1 / 64 * 6, 1 / 32 * 10),
    "bsd-uniform": (1 / 64 * 6, 1 / 32 * 10),
    "bsd-log": (1 / 64 * 6, 1 / 32 * 10),
    "rb": (1 / 4, 1 / 8),
    "rr": (1 / 4, 1 / 8),
    # output_cost = cost / o_sel: 4 / 1 and 2 / (1/4).
    "ml": (-4, -8),
    # β = 1: 0.5 · (1 - 0³) / (3 · 4) and 1 · (1 - (3/4)²) / (2 · 2).
    "fas": (0.5 / 12, (1 - 0.5625) / 4),
    # Weighted HR.
    "fas:beta=0": (0.5 / 4, 1 / 8),
    # A has SLIDE 8: the boundary after 4 is 8. B has none: 0 + 15.
    "edf": (-8, -15),
}


@pytest.mark.parametrize("policy", EXPECTED)
def test_rank(policy: str) -> None:
    world = two_queries(policy)
    assert world.core.ranking is not None
    assert world.core.ranking.rank(world.core.view, NOW).tolist() == pytest.approx(EXPECTED[policy])


def test_edf_hr_runs_a_late_query_only_where_no_timely_one_suffers() -> None:
    # At 10: A (deadline 8) is late, rate 1/4; B needs 2 · 2 = 4 and has until 15: timely. A would need 12 and end at 22 > 15: B first.
    world = two_queries("edf-hr")
    assert world.core.ranking is not None
    ranks = world.core.ranking.rank(world.core.view, NOW)
    assert ranks.argmax() == 1
    # At 2 both are timely up to A: 2 + 12 > 8 is late, B may end at 6; A would end at 14 < 15, so A goes first.
    assert world.core.ranking.rank(world.core.view, 2).argmax() == 0


def test_chain_keeps_less_in_memory_than_first_come() -> None:
    def memory(policy: str) -> list[float]:
        builder = NetworkBuilder()
        source = builder.source("s")
        # "Selectivity 0.2" of the paper: what is left of a tuple is a fifth of its size; the second operator takes the rest away.
        second = Box(1_000, 1e-9, Box(1_000, 1.0, source, size=10, size_out=2, label="O1"), size=2, label="O2")
        world = World(policy, [builder.query("q", second)], builder=builder)
        operators = [builder.operator(second)]
        world.executor.outcomes[operators[0]] = (0,) * 8
        found = []
        for step in range(8):
            world.driver.post(Arrived(builder.log(source), 1, 10, step * 1_000), step * 1_000)
            world.run(step * 1_000)
            # What is being worked on since this moment is still there.
            waiting = world.core.ledger.bytes_waiting
            found.append(waiting / 10)
        return found

    assert memory("chain") == pytest.approx([1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4])
    assert memory("fcfs:level=operator") == pytest.approx([1.0, 1.2, 2.0, 2.2, 3.0, 3.2, 4.0, 4.2])


def test_chain_merges_operators_below_the_envelope() -> None:
    # Sizes 10 -> 9 (cost 1), 9 -> 1 (cost 1), 1 -> 0 (cost 2): descents 1, then 4.5 to the second point: one segment of slope 4.5.
    builder = NetworkBuilder()
    source = builder.source("s")
    first = Box(1, 1.0, source, size=10, size_out=9)
    second = Box(1, 1.0, first, size=9, size_out=1)
    world = World("chain", [builder.query("q", Box(2, 1.0, second, size=1))], builder=builder)
    assert world.core.ranking is not None
    assert world.core.ranking.rank(world.core.view, 0).tolist() == pytest.approx([4.5, 4.5, 0.5])


def test_rr_takes_queries_in_turn() -> None:
    builder = NetworkBuilder()
    source = builder.source("s")
    deltas = [builder.query(f"q{index}", Box(1 + index, 1.0, source, label=f"q{index}")) for index in range(3)]
    world = World("rr", deltas, builder=builder)
    world.arrive(source, 0, rows=2)
    world.run()
    assert world.steps() == ["q0", "q1", "q2", "q0", "q1", "q2"]


def test_ideal_time_counts_a_join_once_an_input() -> None:
    # T = C_L + C_R + 2 C_J + C_C = 3 + 5 + 2 · 7 + 2.
    builder = NetworkBuilder()
    left, right = Box(3, 1.0, builder.source("l")), Box(5, 1.0, builder.source("r"))
    delta = builder.query("q", Box(2, 1.0, Box(7, 0.1, left, right, window_ns=1_000)))
    world = World("hnr", [delta], builder=builder)
    assert world.core.view.units.count == 4
    assert world.core.estimates.ideal_of_query[delta.query.id] == 24.0


def test_every_policy_but_the_users_has_a_worked_example() -> None:
    elsewhere = {
        "round-robin", "weighted-round-robin", "path-capacity", "segment", "simplified-segment", "superbox", "chain", "edf-hr",
        "fixed-priority", "fixed-priority-push-through", "slope-slack", "slope-slack-push-through", "bucketing",
        "bucketing-push-through", "user",
    }  # fmt: skip
    assert set(CATALOG) == elsewhere | {name.partition(":")[0] for name in EXPECTED}
