"""docs/other-systems.md holds the answers that the statements of other systems get today, and our spelling of each works."""

from __future__ import annotations

import pytest

from tests.support.other_systems import DEFINITIONS, SYSTEMS, Typed
from tests.support.other_systems_page import PAGE, answer, page
from tests.support.plans import make_catalog

EVERY = [(system, typed) for system, statements in SYSTEMS.items() for typed in statements]


@pytest.mark.parametrize(("system", "typed"), EVERY, ids=[f"{system}: {typed.theirs}" for system, typed in EVERY])
def test_a_statement_of_another_system_runs_or_is_told_what_to_write(system: str, typed: Typed) -> None:
    catalog = make_catalog(DEFINITIONS)
    said = answer(typed.theirs, catalog)
    if said is not None:
        assert "; " in said, f"{said} names no way on"
        assert "did you mean" not in said
    if typed.ours is not None:
        assert said is not None, f"it runs as it stands in {system} and here"
        assert answer(typed.ours, catalog) is None, typed.ours


def test_each_system_has_twelve() -> None:
    assert {system: len(statements) for system, statements in SYSTEMS.items()} == dict.fromkeys(SYSTEMS, 12)


def test_the_page_says_what_is_said_today() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python -m tests.support.other_systems_page"
