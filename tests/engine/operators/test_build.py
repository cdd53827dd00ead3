"""The table from recipes to operators names what is there."""

from __future__ import annotations

import pytest
from millstream.engine.operators import build
from millstream.engine.operators.contract import Operator

PLACES = sorted({*build._OF_ANY_INPUT.values(), *build._OF_INPUTS.values(), *build._OF_ONE_INPUT.values()})


@pytest.mark.parametrize("place", PLACES)
def test_every_place_in_the_table_has_an_operator(place: str) -> None:
    assert issubclass(build.load(place), Operator)
