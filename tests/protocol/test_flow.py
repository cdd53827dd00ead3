"""Credits: both ends reach the same figures, nothing passes without credit, and nobody waits for ever."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.protocol import limits
from millstream.protocol import messages as m
from millstream.protocol.codec import Encoder
from millstream.protocol.connection import RowsChunk
from millstream.protocol.errors import LocalProtocolError, RemoteProtocolError
from millstream.protocol.flow import Refill, Window
from millstream.protocol.framing import build_frame

from tests.support.conversations import COLUMNS
from tests.support.pairs import Pair, joined


def test_a_frame_may_overdraw_once_and_then_waits() -> None:
    window = Window(1, 10)
    assert window.allows(5)
    window.spend(5, 1000)
    assert not window.is_open
    window.grant(4, 5000)
    assert not window.is_open
    window.grant(1, 0)
    assert window.is_open


def test_a_frame_without_rows_needs_bytes_only() -> None:
    window = Window(0, 1)
    assert window.allows(0)
    assert not window.allows(1)


def test_credit_beyond_63_bits_is_refused() -> None:
    window = Window(1, 1)
    assert not window.grant(limits.NUMBER_MAX, 0)
    assert (window.rows, window.bytes) == (1, 1)


@given(st.integers(1, 1000), st.integers(1, 100_000), st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40_000)), max_size=60))
def test_sender_and_receiver_never_block_each_other(rows_window: int, bytes_window: int, frames: list[tuple[int, int]]) -> None:
    window, refill = Window(rows_window, bytes_window), Refill(rows_window, bytes_window)
    for rows, bytes_ in frames:
        assert window.allows(rows), "all frames were dealt with, so there must be credit"
        window.spend(rows, bytes_)
        granted = refill.done(rows, bytes_)
        if granted is not None:
            window.grant(*granted)
        assert window.rows <= rows_window
        assert window.bytes <= bytes_window
        assert 2 * window.rows > rows_window - 1, "at least half is open again"


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["row", "rows", "credit"]), max_size=40), st.integers(1, 5), st.integers(1, 400))
def test_both_ends_keep_the_same_figures(steps: list[str], rows_credit: int, bytes_credit: int) -> None:
    pair = Pair()
    pair.client_says(m.OpenChannel(1, "s"))
    pair.server_says(m.ChannelOpened(1, 1, COLUMNS, rows_credit, bytes_credit))
    arrived = 0
    for step in steps:
        window = pair.client.channel_window(1)
        assert window is not None
        if step == "credit":
            pair.server_says(m.Credit(channel=1, rows=2, bytes=70))
        else:
            number = pair.client.next_number(1)
            message = m.Row(1, number, [1, 2.0]) if step == "row" else m.Rows(1, number, [[1, 2.0], [2, 3.0]])
            if window.is_open:
                arrived += sum(len(e.values) for e in pair.client_says(message) if isinstance(e, RowsChunk | m.Rows))
            else:
                with pytest.raises(LocalProtocolError, match="without credit") as caught:
                    pair.client.send(message)
                assert caught.value.code == "flow"
        theirs = pair.server.channel_window(1)
        assert theirs is not None
        assert (window.rows, window.bytes) == (theirs.rows, theirs.bytes)
        assert arrived <= rows_credit + 2 * steps.count("credit") + 1


def test_a_peer_that_ignores_credit_is_refused() -> None:
    pair = Pair()
    pair.client_says(m.OpenChannel(1, "s"))
    pair.server_says(m.ChannelOpened(1, 1, COLUMNS, 1, 1000))
    pair.client_says(m.Row(1, 1, [1, 1.0]))
    greedy = joined(build_frame(Encoder().encode(m.Row(1, 2, [1, 1.0])), None, 1000)[0])
    with pytest.raises(RemoteProtocolError, match="without credit") as caught:
        list(pair.server.receive_data(greedy))
    assert caught.value.code == "flow"


def test_results_need_the_subscribers_credit() -> None:
    pair = Pair()
    pair.client_says(m.Subscribe(1, "q", format="msgpack", rows_credit=1, bytes_credit=1000))
    pair.server_says(m.Subscribed(1, 1, COLUMNS))
    pair.server_says(m.Result(1, 2, values=[[1, 1.0], [2, 2.0]]))
    with pytest.raises(LocalProtocolError, match="without credit"):
        pair.server.send(m.Result(1, 1, values=[[3, 3.0]]))
    assert pair.server_says(m.Result(1, 0, meta={"watermark_us": 5})), "progress needs no row credit"
    pair.client_says(m.Credit(subscription=1, rows=2))
    assert pair.server_says(m.Result(1, 1, values=[[3, 3.0]]))


def ask_and_answer(pair: Pair, request: int, answer: m.Reply) -> None:
    pair.client_says(m.Statement(request, "SHOW STREAMS"))
    pair.server_says(answer)


def test_answers_with_tables_take_credit_of_the_connection_from_version_2_on() -> None:
    pair = Pair()
    half = bytes(limits.ANSWER_CREDIT_BYTES // 2)
    ask_and_answer(pair, 1, m.Reply(1, payload=half))
    assert pair.server.may_answer
    ask_and_answer(pair, 2, m.Reply(2, payload=half))
    assert not pair.server.may_answer
    ask_and_answer(pair, 3, m.Reply(3, notices=["stream s created"]))  # carries no table
    pair.client_says(m.Statement(4, "SHOW STREAMS"))
    with pytest.raises(LocalProtocolError, match="without credit") as caught:
        pair.server.send(m.Reply(4, values=[[1]]))
    assert caught.value.code == "flow"
    pair.client_says(m.Credit(bytes=1_000))
    assert pair.server.may_answer
    assert len(pair.server_says(m.Reply(4, values=[[1]]))) == 1
    first, second = pair.client._dialogue.answers, pair.server._dialogue.answers
    assert first is not None
    assert second is not None
    assert first.bytes == second.bytes


def test_answers_to_version_1_have_no_credit() -> None:
    pair = Pair(version=1)
    for request in range(1, 4):
        ask_and_answer(pair, request, m.Reply(request, payload=bytes(limits.ANSWER_CREDIT_BYTES)))
    assert pair.server.may_answer
    with pytest.raises(LocalProtocolError, match="needs either channel or subscription"):
        pair.client.send(m.Credit(bytes=1))


def test_a_server_that_answers_without_credit_is_refused() -> None:
    pair = Pair()
    pair.client_says(m.Statement(1, "SHOW STREAMS"), m.Statement(2, "SHOW STREAMS"))
    pair.server_says(m.Reply(1, payload=bytes(limits.ANSWER_CREDIT_BYTES)))
    assert pair.server._dialogue.answers is not None
    pair.server._dialogue.answers.bytes = 1
    with pytest.raises(RemoteProtocolError, match="without credit"):
        pair.server_says(m.Reply(2, values=[[1]]))
