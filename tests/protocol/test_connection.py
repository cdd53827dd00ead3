"""Messages across a pair of connections: whole, byte by byte, followed by junk; and the order of row frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import pack
from typing import Any

import msgpack
import pytest
from millstream.protocol import messages as m
from millstream.protocol.connection import Connection, Event, RowsChunk
from millstream.protocol.errors import LocalProtocolError, RemoteProtocolError
from millstream.protocol.messages import KINDS, Message
from millstream.protocol.states import Role, State

from tests.support.conversations import BATCH_PAYLOAD, COLUMNS, CONVERSATION, SCHEMA_PAYLOAD
from tests.support.pairs import Pair, joined

Feed = Callable[[Connection, bytes], Iterable[Event]]


def whole(connection: Connection, data: bytes) -> Iterable[Event]:
    return connection.receive_data(data)


def byte_by_byte(connection: Connection, data: bytes) -> Iterable[Event]:
    for i in range(len(data)):
        yield from connection.receive_data(data[i : i + 1])


def through_buffer(connection: Connection, data: bytes) -> Iterable[Event]:
    while data:
        view = connection.get_buffer()
        count = min(7, len(view), len(data))
        view[:count] = data[:count]
        data = data[count:]
        yield from connection.buffer_updated(count)


def plain(event: Event) -> Message:
    """Return the message as it was sent: a chunk of one row as that row, a payload as bytes."""
    return m.Row(event.channel, event.first, event.values[0]) if isinstance(event, RowsChunk) else event


@pytest.mark.parametrize("feed", [whole, byte_by_byte, through_buffer])
def test_every_message_arrives_as_it_was_sent(feed: Feed) -> None:
    pair = Pair(greeted=False)
    for speaker, message in CONVERSATION:
        sender, receiver = (pair.client, pair.server) if speaker is Role.CLIENT else (pair.server, pair.client)
        events = list(feed(receiver, joined(sender.send(message))))
        assert [plain(event) for event in events] == [message]
        assert receiver.partial_bytes == 0
        assert sender.state is receiver.state
    assert pair.client.state is State.CLOSED


def test_the_conversation_has_every_message() -> None:
    assert {type(message) for _, message in CONVERSATION} == set(KINDS.values())


@pytest.mark.parametrize("feed", [whole, byte_by_byte])
def test_junk_after_a_message_is_refused_and_the_message_still_arrives(feed: Feed) -> None:
    for index, (speaker, message) in enumerate(CONVERSATION[:-2]):
        pair = Pair(greeted=False)
        for earlier_speaker, earlier in CONVERSATION[:index]:
            (pair.client_says if earlier_speaker is Role.CLIENT else pair.server_says)(earlier)
        sender, receiver = (pair.client, pair.server) if speaker is Role.CLIENT else (pair.server, pair.client)
        heard: list[Event] = []
        data = joined(sender.send(message)) + b"\xff" * 9
        with pytest.raises(RemoteProtocolError, match="frame of 4294967295 bytes is over the limit"):
            heard.extend(feed(receiver, data))  # extend keeps what came before the raise
        assert [plain(event) for event in heard] == [message]


def open_channel(pair: Pair, rows_credit: int = 1000, bytes_credit: int = 1_000_000) -> int:
    request = 1 + max(pair.client.open_requests, default=pair.client._dialogue._last_request)
    pair.client_says(m.OpenChannel(request, "s"))
    channel = 1 + max(pair.client.open_channels, default=0)
    pair.server_says(m.ChannelOpened(request, channel, COLUMNS, rows_credit, bytes_credit))
    return channel


def test_row_frames_of_one_read_become_one_chunk_a_channel() -> None:
    pair = Pair()
    a, b = open_channel(pair), open_channel(pair)
    events = pair.client_says(m.Row(a, 1, [1, 1.0]), m.Row(b, 1, [2, 2.0]), m.Row(a, 2, [3, 3.0]))
    assert [(e.channel, e.first, e.through, e.values) for e in events if isinstance(e, RowsChunk)] == [
        (a, 1, 2, [[1, 1.0], [3, 3.0]]),
        (b, 1, 1, [[2, 2.0]]),
    ]


def test_rows_come_before_the_message_that_followed_them() -> None:
    pair = Pair()
    channel = open_channel(pair)
    events = pair.client_says(m.Row(channel, 1, [1, 1.0]), m.Ping(5), m.Row(channel, 2, [2, 2.0]))
    assert [type(event) for event in events] == [RowsChunk, m.Ping, RowsChunk]


def test_rows_before_a_breach_are_given_first() -> None:
    pair = Pair()
    channel = open_channel(pair)
    data = joined(pair.client.send(m.Row(channel, 1, [1, 1.0]))) + b"\xff" * 4
    events = pair.server.receive_data(data)
    first = next(iter(events))
    assert isinstance(first, RowsChunk)
    assert first.values == [[1, 1.0]]
    with pytest.raises(RemoteProtocolError):
        next(iter(events))


def row_frame(**changed: Any) -> bytes:
    """Return a row frame that says anything; a member that is `...` is left out."""
    said = {"kind": "row", "channel": 1, "number": 2, "values": [2, 2.0], **changed}
    header = msgpack.packb({name: value for name, value in said.items() if value is not ...})
    return pack("<II", len(header) + 4, len(header)) + header


WRONG_ROWS = [
    {"number": 3}, {"number": 1}, {"number": True}, {"number": 2.0}, {"number": ...}, {"number": "2"}, {"channel": 7}, {"channel": True},
    {"channel": ...}, {"channel": [1]}, {"values": None}, {"values": "ab"}, {"values": ...}, {"more": 1}, {"values": ..., "value": []},
]  # fmt: skip


def breach_of(pair: Pair, reads: Iterable[bytes]) -> tuple[str, str, list[list[Any]]]:
    """Return code and message of what broke the rules, and the rows that were given before."""
    taken: list[list[Any]] = []
    try:
        for read in reads:
            for event in pair.server.receive_data(read):
                assert isinstance(event, RowsChunk)
                taken += event.values
    except RemoteProtocolError as error:
        return error.code, error.message, taken
    raise AssertionError("no rule was broken")


@pytest.mark.parametrize("wrong", WRONG_ROWS, ids=str)
def test_a_row_that_follows_others_is_held_to_the_rules_of_one_that_comes_alone(wrong: dict[str, Any]) -> None:
    frames = [row_frame(number=1), row_frame(**wrong)]
    found = []
    for reads in ([b"".join(frames)], frames):
        pair = Pair()
        open_channel(pair)
        found.append(breach_of(pair, reads))
    assert found[0] == found[1]
    assert found[0][2] == [[2, 2.0]]


@pytest.mark.parametrize(("rows", "size_bytes"), [(3, 1_000_000), (1000, 100)])
def test_rows_sent_together_take_their_credit_one_by_one(rows: int, size_bytes: int) -> None:
    pair = Pair()
    open_channel(pair, rows, size_bytes)
    code, message, taken = breach_of(pair, [b"".join(row_frame(number=number) for number in range(1, 11))])
    assert (code, "without credit" in message) == ("flow", True)
    assert len(taken) == min(rows, -(-size_bytes // len(row_frame())))


def test_long_and_short_rows_and_rows_of_several_channels_keep_their_order() -> None:
    pair = Pair()
    a, b = open_channel(pair), open_channel(pair)
    said = [(a, 1, "x"), (a, 2, "y" * 2_000), (a, 3, "z"), (b, 1, "x"), (b, 2, "y"), (a, 4, "x" * 1_100), (a, 5, "y")]
    data = b"".join(row_frame(channel=channel, number=number, values=[text]) for channel, number, text in said)
    for at in (len(data), len(data) // 2, len(data) - 3):
        other = Pair()
        open_channel(other)
        open_channel(other)
        events = [*other.server.receive_data(data[:at]), *other.server.receive_data(data[at:])]
        for channel in (a, b):
            chunks = [event for event in events if isinstance(event, RowsChunk) and event.channel == channel]
            assert [row for chunk in chunks for row in chunk.values] == [[text] for one, _, text in said if one == channel]
            assert sum(chunk.frame_bytes for chunk in chunks) == sum(
                len(row_frame(channel=one, number=number, values=[text])) for one, number, text in said if one == channel
            )
        assert other.server.frames_received == pair.server.frames_received + len(said)


def test_numbers_of_a_channel_must_rise_by_one() -> None:
    pair = Pair()
    channel = open_channel(pair)
    with pytest.raises(LocalProtocolError, match="number 2 follows 0"):
        pair.client.send(m.Row(channel, 2, [1, 1.0]))
    assert pair.client_says(m.Row(channel, 1, [1, 1.0])), "a refused message must change nothing"


def test_a_train_needs_its_schema_first() -> None:
    pair = Pair()
    channel = open_channel(pair)
    with pytest.raises(LocalProtocolError, match="before its channel_schema"):
        pair.client.send(m.Train(channel, 1, 2, BATCH_PAYLOAD))
    pair.client_says(m.ChannelSchema(channel, SCHEMA_PAYLOAD))
    assert pair.client_says(m.Train(channel, 1, 2, BATCH_PAYLOAD))


def test_request_numbers_are_never_used_again() -> None:
    pair = Pair()
    pair.client_says(m.Statement(3, "SHOW STREAMS"))
    pair.server_says(m.Reply(3))
    for number in (3, 2):
        with pytest.raises(LocalProtocolError, match="request numbers rise"):
            pair.client.send(m.Statement(number, "SHOW STREAMS"))


def test_an_answer_must_fit_its_request() -> None:
    pair = Pair()
    pair.client_says(m.Statement(1, "SHOW STREAMS"))
    with pytest.raises(LocalProtocolError, match="no answer to statement"):
        pair.server.send(m.Subscribed(1, 1, COLUMNS))
    with pytest.raises(LocalProtocolError, match="no request 2"):
        pair.server.send(m.Reply(2))


def test_rows_under_way_to_a_channel_the_server_closed_are_no_breach() -> None:
    pair = Pair()
    channel = open_channel(pair)
    under_way = joined(pair.client.send(m.Row(channel, 1, [1, 1.0])))
    pair.server_says(m.ChannelClosed(channel, "closed", "stream s was dropped"))
    assert list(pair.server.receive_data(under_way)) == []
    with pytest.raises(LocalProtocolError, match="is not open"):
        pair.client.send(m.Row(channel, 2, [1, 1.0]))


def test_credit_under_way_to_a_subscription_that_ended_is_no_breach() -> None:
    pair = Pair()
    pair.client_says(m.Subscribe(1, "q", rows_credit=1, bytes_credit=1))
    pair.server_says(m.Subscribed(1, 1, COLUMNS))
    under_way = joined(pair.client.send(m.Credit(subscription=1, rows=1)))
    pair.server_says(m.End(1, "dropped"))
    assert list(pair.server.receive_data(under_way)) == []


def test_large_payloads_are_handed_over_uncopied_and_arrive_aligned() -> None:
    pair = Pair()
    channel = open_channel(pair)
    pair.client_says(m.ChannelSchema(channel, SCHEMA_PAYLOAD))
    column = bytearray(300_000)
    buffers = pair.client.send(m.Train(channel, 1, 2, [memoryview(column), b"tail"]))
    assert any(isinstance(buffer, memoryview) and buffer.obj is column for buffer in buffers)
    (event,) = pair.server.receive_data(joined(buffers))
    assert isinstance(event, m.Train)
    assert isinstance(event.payload, memoryview)
    assert bytes(event.payload) == bytes(column) + b"tail"


def test_a_frame_cut_by_the_end_of_the_connection_is_reported() -> None:
    pair = Pair()
    list(pair.server.receive_data(joined(pair.client.send(m.Ping(1)))[:-1]))
    assert pair.server.partial_bytes > 0
    with pytest.raises(RemoteProtocolError, match="of a frame"):
        pair.server.receive_eof()


def test_the_announced_frame_limit_binds_the_client() -> None:
    pair = Pair(greeted=False)
    pair.client_says(m.Hello([1]))
    pair.server_says(m.Welcome(1, limits={"frame_bytes_max": 65_536}))
    with pytest.raises(LocalProtocolError, match="over the limit of 65536") as caught:
        pair.client.send(m.Statement(1, "x" * 70_000))
    assert caught.value.code == "limit"
    assert pair.client_says(m.Statement(1, "SHOW STREAMS"))
