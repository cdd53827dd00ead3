"""What a broken or hostile peer may send (the five-byte frame that asks for 64 GiB, and its kin): refused, within bounds."""

from __future__ import annotations

import struct
import tracemalloc

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.protocol import limits
from millstream.protocol.codec import unpack
from millstream.protocol.connection import Connection
from millstream.protocol.errors import RemoteProtocolError
from millstream.protocol.messages import Hello, Statement
from millstream.protocol.states import Role

from tests.support.pairs import Pair, joined

MEMORY_BYTES_MAX = 16 * 1024 * 1024


def frame(header: bytes, tail: bytes = b"") -> bytes:
    return struct.pack("<II", 4 + len(header) + len(tail), len(header)) + header + tail


def server_after_greeting() -> Connection:
    return Pair().server


def peak_bytes(connection: Connection, data: bytes, match: str) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match=match):
            list(connection.receive_data(data))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("header", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"])
@pytest.mark.parametrize("greeted", [False, True])
def test_five_bytes_that_ask_for_gigabytes_are_refused(header: bytes, greeted: bool) -> None:
    assert peak_bytes(Pair(greeted=greeted).server, frame(header), "header") < 100_000


def test_nested_arrays_cannot_add_up() -> None:
    count = struct.pack(">BI", 0xDD, limits.ARRAY_ITEMS_MAX)
    for levels in (200, 1000, 100_000):
        assert peak_bytes(server_after_greeting(), frame(count * levels), "msgpack") < MEMORY_BYTES_MAX


def test_a_million_empty_lists_are_refused() -> None:
    lists = b"\xdc\xff\xff" + b"\x90" * 65_535
    header = msgpack.packb({"kind": "rows", "channel": 1, "number": 1}, use_bin_type=True)
    header = b"\x84" + header[1:] + b"\xa6values" + b"\xdc\x00\x40" + lists * 64
    assert peak_bytes(server_after_greeting(), frame(header), "lists and maps") < 2 * MEMORY_BYTES_MAX + 2 * len(header)


def test_a_length_of_four_gigabytes_is_refused_before_anything_is_allocated() -> None:
    assert (
        peak_bytes(Connection(Role.SERVER), struct.pack("<I", 2**32 - 1), "frame of 4294967295 bytes is over the limit of 65536") < 100_000
    )
    assert peak_bytes(server_after_greeting(), struct.pack("<I", 2**32 - 1), f"limit of {limits.FRAME_BYTES_MAX}") < 100_000


def test_a_length_alone_allocates_little() -> None:
    server = server_after_greeting()
    tracemalloc.start()
    list(server.receive_data(struct.pack("<II", limits.FRAME_BYTES_MAX, 100)))
    server.get_buffer()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * limits.FIRST_ALLOCATION_BYTES
    assert server.partial_bytes == 8


def test_memory_follows_what_has_arrived() -> None:
    server = server_after_greeting()
    list(server.receive_data(struct.pack("<II", limits.FRAME_BYTES_MAX, 100)))
    arrived = 8
    for _ in range(40):
        view = server.get_buffer()
        count = min(len(view), 256 * 1024)
        arrived += count
        list(server.buffer_updated(count))
        assert server.allocated_bytes <= limits.ALLOCATION_GROWTH * arrived + limits.FIRST_ALLOCATION_BYTES + limits.BLOCK_BYTES_MAX


@pytest.mark.parametrize(("greeted", "limit"), [(False, limits.GREETING_FRAME_BYTES_MAX), (True, limits.FRAME_BYTES_MAX)])
def test_a_frame_one_byte_over_the_limit_is_told_the_limit(greeted: bool, limit: int) -> None:
    server = Pair(greeted=greeted).server
    assert list(server.receive_data(struct.pack("<II", limit, limits.PREFIX_BYTES))) == []
    server = Pair(greeted=greeted).server
    with pytest.raises(RemoteProtocolError, match=f"frame of {limit + 1} bytes is over the limit of {limit}") as caught:
        list(server.receive_data(struct.pack("<II", limit + 1, limits.PREFIX_BYTES)))
    assert caught.value.code == "limit"


def test_a_header_sent_byte_by_byte_is_seen_as_begun() -> None:
    server = Connection(Role.SERVER)
    data = joined(Connection(Role.CLIENT).send(Hello([1])))
    for count in range(1, len(data)):
        assert list(server.receive_data(data[count - 1 : count])) == []
        assert (server.awaiting_hello, server.partial_bytes, server.frames_received) == (True, count, 0)


@pytest.mark.parametrize(
    ("data", "name"),
    [(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"), (b"SSH-2.0-x\r\n", "SSH"), (b"\x16\x03\x01\x02\x00\x01", "TLS")],
)
def test_a_stranger_is_told_what_this_port_speaks(data: bytes, name: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"this looks like {name}"):
        list(Connection(Role.SERVER).receive_data(data))


@settings(max_examples=200)
@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_are_refused_or_wait_for_more(data: bytes, greeted: bool) -> None:
    server = Pair(greeted=greeted).server
    try:
        events = list(server.receive_data(data))
    except RemoteProtocolError:
        return
    assert events == []
    assert server.partial_bytes == len(data)


@settings(max_examples=200)
@given(st.binary(min_size=1, max_size=200))
def test_random_headers_are_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(server_after_greeting().receive_data(frame(header)))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["kind", "request", "text", "channel", "number", "values", "rows", "query"]), VALUES))
def test_random_maps_are_refused_by_name(fields: dict[str, object]) -> None:
    fields["kind"] = fields.get("kind", "row")
    with pytest.raises(RemoteProtocolError):
        list(server_after_greeting().receive_data(frame(msgpack.packb(fields))))


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"kind": "teapot"}, "unknown kind of message: 'teapot'"),
        ({}, "message without a kind"),
        ({"kind": 7}, "unknown kind of message: 7"),
        ({"kind": "statement", "request": 1}, "statement: text is missing"),
        ({"kind": "statement", "request": 1, "text": "x", "txet": 1}, "statement: unknown field 'txet'"),
        ({"kind": "statement", "request": "1", "text": "x"}, "statement: request must be a number"),
        ({"kind": "statement", "request": True, "text": "x"}, "statement: request must be a number"),
        ({"kind": "statement", "request": 2**63, "text": "x"}, "statement: request must be a number"),
        ({"kind": "statement", "request": -1, "text": "x"}, "statement: request must be a number"),
        ({"kind": "submit", "request": 1}, "needs either sql or plan"),
        ({"kind": "credit", "channel": 1, "subscription": 1}, "takes either channel or subscription"),
        ({"kind": "row", "channel": 1, "number": 1}, "row: values is missing"),
        ({"kind": "row", "channel": 1, "number": 1, "values": [], "more": 1}, "row: unknown field 'more'"),
        ({"kind": "row", "channel": 1, "number": 1, "values": []}, "channel 1 is not open"),
    ],
)
def test_a_wrong_message_is_refused_by_name(fields: dict[str, object], match: str) -> None:
    with pytest.raises(RemoteProtocolError, match=match):
        list(server_after_greeting().receive_data(frame(msgpack.packb(fields))))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"\xc7\x00\x05", "extension type 5"),
        (b"\xd6\xff\x00\x00\x00\x01", "extension"),
        (b"\xc1", "msgpack"),
        (b"\x91" * 5000 + b"\x01", "msgpack"),
        (b"\x81\x01\x02", "key"),
        (b"\x93\x01\x02\x03", "must be a map"),
        (b"\x80\x80", "msgpack"),
        (b"\x81\xa4kind\xa2\xff\xfe", "msgpack"),
    ],
)
def test_msgpack_that_is_not_ours_is_refused(data: bytes, match: str) -> None:
    with pytest.raises(RemoteProtocolError, match=match):
        list(server_after_greeting().receive_data(frame(data)))


def test_text_that_is_not_utf8_arrives_in_rows_only_so_that_the_row_can_be_refused() -> None:
    fields = unpack(msgpack.packb({"kind": "rows", "values": [[b"\xff\xfe"]]}, use_bin_type=False))
    (text,) = fields["values"][0]
    assert text.encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_a_payload_must_begin_where_it_should() -> None:
    header = msgpack.packb({"kind": "reply", "request": 1})
    for tail, match in ((b"\x00" * 3, "do not reach"), (b"\x01" * 100, "must be zero")):
        pair = Pair()
        pair.client_says(Statement(1, "SHOW STREAMS"))
        with pytest.raises(RemoteProtocolError, match=match):
            list(pair.client.receive_data(frame(header, tail)))


def test_a_second_hello_in_the_same_read_is_refused() -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    hello = joined(client.send(Hello([1])))
    with pytest.raises(RemoteProtocolError, match="may not say hello in state greeting"):
        list(server.receive_data(hello + hello))


def statement_of(**fields: object) -> bytes:
    return bytes(msgpack.packb({"kind": "submit", "request": 1, **fields}))


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"sql": "x" * 1_000_000}, True),
        ({"plan": {"columns": ["c"] * 20_000}}, True),
        ({"plan": {"columns": [[]] * 70_000}}, False),
        ({"plan": {"a": "x" * 70_000}}, False),
        ({"plan": {"a": []}, "options": {"b": [[]] * 65_600}}, False),
        ({"plan": {"columns": [[]] * 40_000}, "options": {"b": [[]] * 40_000}}, False),
        ({"sql": "x" * 900_000, "options": {"b": [1] * 60_000}}, True),
    ],
)
def test_lists_and_maps_of_a_peer_that_sends_no_rows_are_counted_before_any_is_made(fields: dict[str, object], fits: bool) -> None:
    header = statement_of(**fields)
    unpacked = dict(unpack(header))
    if fits:
        assert unpack(header, limits.NESTED_BYTES_MAX) == unpacked
        return
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match="lists and maps of") as caught:
        unpack(header, limits.NESTED_BYTES_MAX)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.code == "limit"
    assert peak < 2 * len(header) + 1_100_000  # what walks it sets a megabyte aside; a list of each byte would take 64 times the header


@given(st.binary(max_size=3_000))
def test_a_long_header_of_any_bytes_is_refused_or_read_alike_with_the_bound(tail: bytes) -> None:
    header = b"\x84\xa4kind\xa6submit\xa7request\x01\xa3sql\xda\x04\x00" + b"x" * 1_024 + b"\xa4plan" + tail
    try:
        expected: object = unpack(header)
    except RemoteProtocolError as error:
        expected = type(error)
    try:
        found: object = unpack(header, limits.NESTED_BYTES_MAX)
    except RemoteProtocolError as error:
        found = type(error)
    assert found == expected
