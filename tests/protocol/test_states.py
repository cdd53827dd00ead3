"""The table of legal messages, walked with every message in every state from both sides."""

from __future__ import annotations

from pathlib import Path

import pytest
from millstream.protocol import messages as m
from millstream.protocol.codec import Encoder
from millstream.protocol.dialogue import Dialogue
from millstream.protocol.errors import LocalProtocolError, RemoteProtocolError
from millstream.protocol.framing import build_frame
from millstream.protocol.messages import KIND_OF, Message
from millstream.protocol.states import ANSWERS, FATAL, TRANSITIONS, Role, State, word_of

from tests.support.conversations import CONVERSATION, pair_in
from tests.support.pairs import joined
from tests.support.reference import diagram

SAMPLES: dict[str, Message] = {word_of(KIND_OF[type(message)], message): message for _, message in CONVERSATION}
SAMPLES[FATAL] = m.Failure("internal", "broken", fatal=True)


def frame_of(message: Message) -> bytes:
    buffers, _ = build_frame(Encoder().encode(message), getattr(message, "payload", None), 10_000_000)
    return joined(buffers)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("speaker", list(Role))
def test_what_the_table_does_not_list_cannot_be_said(state: State, speaker: Role, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dialogue, "apply", lambda *_args, **_keywords: True)
    for word, message in SAMPLES.items():
        pair = pair_in(state)
        end = pair.client if speaker is Role.CLIENT else pair.server
        expected = TRANSITIONS[state, speaker].get(word)
        if expected is None:
            with pytest.raises(LocalProtocolError, match="may not say"):
                end.send(message)
            assert end.state is state
        elif word != "row":  # rows have a shorter way, through the books: see test_connection
            end.send(message)
            assert end.state is expected


@pytest.mark.parametrize("state", [state for state in State if state is not State.CLOSED])
@pytest.mark.parametrize("speaker", list(Role))
def test_what_the_table_does_not_list_is_refused_when_heard(state: State, speaker: Role, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dialogue, "apply", lambda *_args, **_keywords: True)
    for word, message in SAMPLES.items():
        pair = pair_in(state)
        end = pair.server if speaker is Role.CLIENT else pair.client
        expected = TRANSITIONS[state, speaker].get(word)
        if expected is None:
            with pytest.raises(RemoteProtocolError, match=r"may not say|over the limit"):
                list(end.receive_data(frame_of(message)))
        elif word != "row":  # see above
            assert list(end.receive_data(frame_of(message))) == [message]
            assert end.state is expected


def test_a_closed_connection_hears_nothing_more() -> None:
    pair = pair_in(State.CLOSED)
    assert list(pair.server.receive_data(frame_of(m.Ping()))) == []


def test_every_state_can_be_reached_and_left() -> None:
    reached = {next_state for words in TRANSITIONS.values() for next_state in words.values()} | {State.START}
    assert reached == set(State)
    for state in set(State) - {State.CLOSED}:
        assert any(target is not state for role in Role for target in TRANSITIONS[state, role].values())


def test_every_request_has_an_answer() -> None:
    requests = {kind for kind in KIND_OF if "request" in kind.__dataclass_fields__} - set(ANSWERS.values()) - {m.Failure}
    assert requests == set(ANSWERS)


def test_the_diagram_in_the_reference_is_the_table() -> None:
    reference = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    assert diagram() in reference, "run: python -m tests.support.reference"
