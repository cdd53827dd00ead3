"""Worlds of an hour each (docs/worlds.md), as many as SOAK_WORLDS says; only `make soak` runs this."""

from __future__ import annotations

import os

import pytest

from tests.world.runs import run

WORLDS = int(os.environ.get("SOAK_WORLDS", "20"))
FIRST = int(os.environ.get("SOAK_FIRST_SEED", "200000"))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + WORLDS))
def test_a_world_of_an_hour_keeps_the_contract(seed: int) -> None:
    verdict = run(seed, length=120, seconds=3600)
    assert verdict.ok, (seed, verdict.problems)
