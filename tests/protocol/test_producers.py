"""Channels of named publishers: sequence numbers are dense on both ends, bounds hold, and version 1 knows nothing of it."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.protocol import limits
from millstream.protocol import messages as m
from millstream.protocol.errors import LocalProtocolError, RemoteProtocolError

from tests.support.conversations import BATCH_PAYLOAD, COLUMNS, SCHEMA_PAYLOAD
from tests.support.pairs import Pair
from tests.support.pairs import joined as bytes_of


def opened(producer: str | None = "p", last: int | None = 6, *, version: int | None = None) -> Pair:
    pair = Pair(version=version)
    pair.client_says(m.OpenChannel(1, "s", producer))
    pair.server_says(m.ChannelOpened(1, 1, COLUMNS, rows_credit=1_000, bytes_credit=1_000_000, last=last))
    pair.client_says(m.ChannelSchema(1, SCHEMA_PAYLOAD))
    return pair


def numbered(sequences: list[int | None], start: int = 1) -> list[m.Message]:
    return [m.Rows(1, start + i, [[1, 0.5]], sequence=s) for i, s in enumerate(sequences)]


@pytest.mark.parametrize("sequences", [[7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8], [6, 7], [3], [7]])
def test_numbers_go_on_behind_the_last_or_begin_again_before_it(sequences: list[int | None]) -> None:
    assert [e.sequence for e in opened().client_says(*numbered(sequences))] == sequences


@pytest.mark.parametrize(
    ("sequences", "said"),
    [
        ([8], "sequence 8 follows 6"),
        ([0], "sequence 0 follows 6"),
        ([7, 9], "sequence 9 follows 7"),
        ([7, 7], "sequence 7 follows 7"),
        ([7, 6], "sequence 6 follows 7"),
        ([3, 5], "sequence 5 follows 3"),
        ([7, None], "rows without a sequence"),
    ],
)
def test_a_gap_a_step_back_and_a_missing_number_are_refused_by_both_ends(sequences: list[int | None], said: str) -> None:
    pair = opened()
    *good, bad = numbered(sequences)
    pair.client_says(*good)
    with pytest.raises(LocalProtocolError, match=said):
        pair.client.send(bad)
    # An end that does not look: the same frame, written by one whose channel has other numbers.
    other = opened(last=10**6)
    other.client._dialogue.channels[1].sequence = None if sequences[-1] is None else sequences[-1] - 1
    other.client._dialogue.channels[1].has_begun = True
    other.client._dialogue.channels[1].number = len(good)
    if sequences[-1] == 0:
        return
    with pytest.raises(RemoteProtocolError, match=said):
        list(pair.server.receive_data(bytes_of(other.client.send(bad))))


def test_a_row_on_a_producers_channel_and_a_number_on_another_one_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="row without a sequence"):
        opened().client.send(m.Row(1, 1, [1, 0.5]))
    with pytest.raises(LocalProtocolError, match="no producer"):
        opened(None, None).client.send(m.Rows(1, 1, [[1, 0.5]], sequence=1))
    with pytest.raises(RemoteProtocolError, match="row without a sequence"):
        list(opened().server.receive_data(bytes_of(opened(None, None).client.send(m.Row(1, 1, [1, 0.5])))))


@pytest.mark.parametrize(("producer", "last"), [("p", None), (None, 3)])
def test_last_is_told_of_producers_and_of_nobody_else(producer: str | None, last: int | None) -> None:
    with pytest.raises(LocalProtocolError, match="last is told of producers"):
        opened(producer, last)


def test_version_1_has_no_producers() -> None:
    with pytest.raises(LocalProtocolError, match="version 1 has no producers"):
        opened(version=1)
    old = Pair(version=1)
    with pytest.raises(RemoteProtocolError, match="version 1 has no producers"):
        list(old.server.receive_data(bytes_of(Pair().client.send(m.OpenChannel(1, "s", "p")))))


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "\ud800" * 100])
def test_a_name_is_bounded(name: str) -> None:
    with pytest.raises(LocalProtocolError, match="1 to 255 bytes"):
        Pair().client.send(m.OpenChannel(1, "s", name))


def test_a_name_and_a_position_may_be_as_long_as_the_limits_say() -> None:
    pair = opened("é" * 127 + "x", 0)
    kept = b"\x00" * limits.POSITION_BYTES_MAX
    (heard,) = pair.client_says(m.Train(1, 1, 2, BATCH_PAYLOAD, sequence=1, position=kept))
    assert heard.position == kept  # type: ignore[union-attr]
    with pytest.raises(LocalProtocolError, match="1025 bytes is over the limit of 1024"):
        pair.client.send(m.Train(1, 2, 2, BATCH_PAYLOAD, sequence=2, position=kept + b"x"))
    with pytest.raises(LocalProtocolError, match="needs a sequence"):
        pair.client.send(m.Rows(1, 2, [], position=b"x"))


FIELDS: dict[str, Any] = {"kind": "rows", "channel": 1, "number": 1, "values": [[1, 0.5]], "sequence": 7, "position": b"p"}
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8) | st.binary(max_size=1100),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(["sequence", "position", "number", "channel", "values"]), anything, min_size=1))
def test_whatever_a_peer_writes_in_the_fields_of_a_numbered_send_is_taken_or_refused(changes: dict[str, Any]) -> None:
    header = msgpack.packb({**FIELDS, **changes})
    frame = (4 + len(header)).to_bytes(4, "little") + len(header).to_bytes(4, "little") + header
    try:
        heard = list(opened().server.receive_data(frame))
    except RemoteProtocolError:
        return
    for message in heard:
        assert isinstance(message, m.Rows)
        assert message.sequence is not None
        assert 1 <= message.sequence <= 7
        assert len(message.position or b"") <= limits.POSITION_BYTES_MAX
