"""Weighted round-robin (Pajjuri 2004, 4.1.2): a leaf weighs 2, so that with trains of two it takes four of six tuples in its first turn."""

import pytest

from tests.scheduler.policies.test_round_robin import run


def test_a_leaf_takes_more_in_its_turn() -> None:
    assert run("weighted-round-robin:train=2") == [("a", 4), ("b", 2), ("a", 2), ("b", 2), ("b", 2)]


@pytest.mark.parametrize(("leaf", "first"), [(1, 2), (3, 6)])
def test_the_weight_is_an_option(leaf: int, first: int) -> None:
    assert run(f"weighted-round-robin:train=2,leaf={leaf}")[0] == ("a", first)


def test_a_quantum_of_time_is_weighed_as_well() -> None:
    # 2 ns are two tuples of cost 1, of a leaf four.
    assert run("weighted-round-robin:quantum=2e-6") == [("a", 4), ("b", 2), ("a", 2), ("b", 2), ("b", 2)]
