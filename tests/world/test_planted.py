"""Faults planted into the program are found: each by the first of the seeds that finds it (docs/worlds.md has the list)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.world.planted import PLANTS
from tests.world.runs import run
from tests.world.test_world import SEEDS

PAGE = Path(__file__).parents[2] / "docs" / "worlds.md"
FOUND = {name: int(seed) for name, seed in re.findall(r"^\| (\w[^|]*?) \| (\d+) \|", PAGE.read_text(), re.MULTILINE)}


def test_the_page_lists_each_planted_fault_with_a_seed_whose_world_is_in_order_without_it() -> None:
    assert FOUND.keys() == PLANTS.keys()
    assert set(FOUND.values()) <= set(SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_a_planted_fault_is_found(name: str) -> None:
    problems = run(FOUND[name], fault=name).problems
    assert problems
    assert not [p for p in problems if "Error" in p], "the fault is an exception, which any world notices: does it still fit the program?"
