"""States that were written before go on: those kept of each version that was released, and those of today at any row."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass, is_dataclass
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.operators.build import build_operator
from millstream.engine.operators.contract import Operator
from millstream.engine.state.decoding import decode
from millstream.engine.state.forms import Form, StateError, form_of, known_forms

from tests.support import kept_states
from tests.support.engine_run import SqlEngine
from tests.support.kept_states import KEPT, SHARED_NAME, Archive, archives
from tests.support.states import CASES, STREAMS, goes_on, history, shared_answers, stopped, whole

MOST_BYTES = 100_000  # of an archive
OF_CHECKPOINTS = {"checkpoint", "query_state"}
OF_READERS = {"view_changes", "view_changes_recipe"}  # what reads a view needs that beside it: integration/test_materialized_views.py
OF_LARGE_GROUPS = {"top_heap"}  # of more rows than a history has: engine/operators/test_running_top.py
read = cache(kept_states.read)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("path", archives(), ids=lambda path: path.name)
def test_a_query_goes_on_from_a_state_that_is_kept_as_if_it_had_never_been_stopped(path: Path, name: str) -> None:
    kept = read(path)
    if name not in kept.queries:
        pytest.skip("the query is younger than the archive")
    query, before, after = kept.queries[name], kept.rows[: kept.cut], kept.rows[kept.cut :]
    expected = whole(query, kept.rows, kept.cut)
    given_ = stopped(query, before).given
    assert len(expected) > len(given_), "the state decides nothing"
    assert given_ + goes_on(query, kept.states[name], after) == expected


@pytest.mark.parametrize("path", archives(), ids=lambda path: path.name)
def test_queries_that_share_go_on_from_the_state_of_their_synopses(path: Path) -> None:
    kept = read(path)
    expected, _ = shared_answers(kept.rows, kept.cut, None, swap=False)
    assert all(expected.values())
    assert shared_answers(kept.rows, kept.cut, kept.states[SHARED_NAME], swap=True)[0] == expected


@pytest.mark.parametrize("path", archives(), ids=lambda path: path.name)
def test_an_archive_is_small_and_its_queries_are_still_among_ours(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    assert read(path).queries.keys() <= CASES.keys()


def test_no_form_changes_without_its_version() -> None:
    """If this fails: raise the version of what has changed, as CONTRIBUTING.md, "State and upgrades", says; then write the forms anew."""
    assert kept_states.forms_today() == json.loads((KEPT / "forms.json").read_text())


def test_the_archives_have_every_form() -> None:
    kept_states.forms_today()
    told: set[str] = set()
    for path in archives():
        for state in read(path).states.values():
            told |= forms_in(state)
    missing = kept_states.forms_today().keys() - told - OF_CHECKPOINTS - OF_READERS - OF_LARGE_GROUPS
    assert missing == set()


def forms_in(state: bytes) -> set[str]:
    """Return the names of known forms that a state tells, and those of the states in it."""
    return {name for name in kept_states.forms_today() if name.encode() in state}


def test_every_operator_with_state_has_a_form_of_its_own() -> None:
    kept_states.forms_today()
    pending, found = [Operator], []
    while pending:
        for one in pending.pop().__subclasses__():
            pending.append(one)
            if one.state_fields and not getattr(one, "__abstractmethods__", None) and one.__module__.startswith("millstream."):
                found.append(one)
    shared = [one for one in found if "state_name" not in one.__dict__ and not one.__subclasses__()]
    assert shared == []
    assert len({form_of(one).name for one in found if "state_name" in one.__dict__}) > 20


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(sorted(CASES)), st.integers(0, 2**32), st.integers(0, 119))
def test_a_query_goes_on_in_another_engine_wherever_it_was_stopped(name: str, seed: int, cut: int) -> None:
    rows, query = history(seed), CASES[name]
    before = stopped(query, rows[:cut])
    assert before.given + goes_on(query, before.state, rows[cut:]) == whole(query, rows, cut)


@dataclass
class StatesMade:
    """The digests of the states of every query over one history, and (form, attribute) of whatever was not written into them."""

    digests: list[str]
    left_out: set[tuple[str, str]]


def digests() -> list[str]:
    rows = history(11)
    states = {name: stopped(query, rows[:70]).state for name, query in CASES.items()}
    states[SHARED_NAME] = shared_answers(rows[:71], 70, None, swap=False)[1]
    return [f"{name} {hashlib.sha256(state).hexdigest()}" for name, state in states.items()]


@pytest.fixture(scope="module")
def states_made() -> StatesMade:
    """Run every query once, for two tests: that takes seconds."""
    odd: set[tuple[str, str]] = set()

    def attributes(form: Form, instance: object) -> list[object]:
        slots = {name for one in type(instance).__mro__ for name in getattr(one, "__slots__", ())}
        has = set(vars(instance)) if hasattr(instance, "__dict__") else slots
        if not is_dataclass(instance) and "from_state" not in vars(type(instance)):
            odd.update((form.name, name) for name in has - set(form.fields))
        return [getattr(instance, name) for name in form.fields]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Form, "_attributes", attributes)
        for form in known_forms():
            if form.values.__name__ == "_attributes":
                patch.setattr(form, "values", partial(attributes, form))
        return StatesMade(digests(), odd)


def test_equal_histories_give_equal_bytes_under_every_hash_seed(states_made: StatesMade) -> None:
    """Here the seed is another one, by chance or by PYTHONHASHSEED, than in the process that is started."""
    seed = "77" if os.environ.get("PYTHONHASHSEED") != "77" else "1"
    script = "from tests.engine.state.test_kept_states import digests\nprint(*digests(), sep='\\n')"
    env = {"PYTHONHASHSEED": seed, "PYTHONPATH": "."}
    there = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(there) == len(CASES) + 1
    assert there == states_made.digests


def test_states_that_were_cut_or_changed_are_refused() -> None:
    dice = random.Random(3)
    for state in newest().states.values():
        for cut in (0, 31, 32, len(state) // 2, len(state) - 1):
            with pytest.raises(StateError):
                decode(state[:cut])
        for _ in range(20):
            changed = bytearray(state)
            changed[dice.randrange(len(state))] ^= 1 << dice.randrange(8)
            with pytest.raises(StateError):
                decode(changed)


def test_changes_behind_the_check_give_an_operator_a_state_or_the_one_error() -> None:
    dice = random.Random(66)
    refused = 0
    for name, state in newest().states.items():
        if name == SHARED_NAME:
            continue
        for kept, operator in zip(decode(state)["operators"], operators_of(CASES[name]), strict=True):
            for _ in range(15 if kept.snapshot else 0):
                changed = bytearray(kept.snapshot)
                for _ in range(dice.randint(1, 3)):
                    changed[dice.randrange(32, len(changed))] = dice.choice((0, 1, 2, 127, 128, 192, 255, dice.randrange(256)))
                try:
                    operator.read(changed)
                except InvalidDefinition:
                    refused += 1
    assert refused > 100


def operators_of(query: str) -> list[Operator]:
    engine = SqlEngine(*STREAMS)
    delta = engine.select(query)
    found = [engine.network.operators[o.id] for o in delta.operators if o.id in engine.network.operators]
    return [build_operator(o.recipe, [c.log.schema for c in o.inputs]) for o in found]


def newest() -> Archive:
    return read(archives()[-1])


def test_whatever_an_instance_has_is_written_or_made_again(states_made: StatesMade) -> None:
    """An attribute that is added to a class of a state, and not to its form, would be lost with a restart."""
    assert states_made.left_out == set()
