"""Every state with every verb."""

from __future__ import annotations

import itertools

import pytest
from millstream.server.errors import IllegalMove
from millstream.server.host.lifecycle import MOVES, QueryState, Verb, next_state

ALREADY = {
    (QueryState.RUNNING, Verb.START),
    (QueryState.STOPPED, Verb.STOP),
    (QueryState.PAUSED, Verb.PAUSE),
}


@pytest.mark.parametrize(("state", "verb"), list(itertools.product(QueryState, Verb)))
def test_a_verb_moves_is_already_done_or_is_refused_by_name(state: QueryState, verb: Verb) -> None:
    if (state, verb) in MOVES:
        assert next_state("q", state, verb) is MOVES[state, verb]
    elif (state, verb) in ALREADY:
        assert next_state("q", state, verb) is None
    else:
        with pytest.raises(IllegalMove, match=f"query q is {state.value}, so it cannot {verb.value}"):
            next_state("q", state, verb)


def test_nothing_leads_out_of_dropped() -> None:
    assert not [move for move in MOVES if move[0] is QueryState.DROPPED]


def test_every_state_but_the_first_can_be_reached() -> None:
    assert set(MOVES.values()) == set(QueryState) - {QueryState.SUBMITTED}
