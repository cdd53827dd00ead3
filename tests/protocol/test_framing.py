"""The receive buffer: any frames, cut anywhere, come out as they went in; its memory stays small and is used again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.protocol import limits
from millstream.protocol.errors import LocalProtocolError
from millstream.protocol.framing import ReceiveBuffer, build_frame, payload_start

from tests.support.pairs import joined

FRAMES = st.lists(st.tuples(st.integers(1, 200), st.sampled_from([0, 1, 63, 64, 5_000, 40_000, 200_000])), min_size=1, max_size=8)


@settings(max_examples=40)
@given(FRAMES, st.lists(st.integers(1, 70_000), min_size=1, max_size=10))
def test_frames_come_out_as_they_went_in(sizes: list[tuple[int, int]], cuts: list[int]) -> None:
    sent = [(bytes([65 + i]) * header, bytes([97 + i]) * payload) for i, (header, payload) in enumerate(sizes)]
    data = b"".join(joined(build_frame(header, payload, 10_000_000)[0]) for header, payload in sent)
    buffer = ReceiveBuffer(10_000_000)
    heard: list[tuple[bytes, bytes]] = []
    turn = 0
    while data:
        view = buffer.get_buffer()
        count = min(cuts[turn % len(cuts)], len(view), len(data))
        view[:count], data, turn = data[:count], data[count:], turn + 1
        buffer.buffer_updated(count)
        while (frame := buffer.next_frame()) is not None:
            heard.append((bytes(frame[0]), bytes(frame[1] or b"")))
    assert heard == sent
    assert buffer.waiting_bytes == 0


@pytest.mark.parametrize("header_length", [1, 55, 56, 57, 119, 120, 121])
def test_a_payload_starts_at_a_multiple_of_64(header_length: int) -> None:
    start = payload_start(header_length)
    assert start % limits.PAYLOAD_ALIGNMENT_BYTES == 0
    assert 0 <= start - limits.PREFIX_BYTES - header_length < limits.PAYLOAD_ALIGNMENT_BYTES
    data = joined(build_frame(b"h" * header_length, b"payload", 1000)[0])
    assert data[start:] == b"payload"


def test_an_empty_payload_is_none() -> None:
    assert build_frame(b"h", b"", 1000) == build_frame(b"h", None, 1000) == build_frame(b"h", [b"", b""], 1000)


def test_kept_payloads_hold_only_their_own_memory() -> None:
    buffer = ReceiveBuffer(limits.FRAME_BYTES_MAX)
    view = buffer.get_buffer()
    data = joined(build_frame(b"h", b"x" * 100, 1000)[0])
    view[: len(data)] = data
    buffer.buffer_updated(len(data))
    frame = buffer.next_frame()
    assert frame is not None
    assert frame[1] is not None
    assert frame[1].obj is not view.obj
    assert len(memoryview(frame[1].obj)) == 100
    assert buffer.get_buffer().obj is view.obj, "the block is used again"


def test_an_idle_connection_holds_a_small_block_and_a_busy_one_a_bounded_one() -> None:
    buffer = ReceiveBuffer(limits.FRAME_BYTES_MAX)
    assert buffer.allocated_bytes == limits.BLOCK_BYTES_MIN
    stream = joined(build_frame(b"h" * 30_000, None, 100_000)[0]) * 40
    while stream:
        view = buffer.get_buffer()
        count = min(len(view), len(stream))
        view[:count], stream = stream[:count], stream[count:]
        buffer.buffer_updated(count)
        while buffer.next_frame() is not None:
            pass
        assert buffer.allocated_bytes <= limits.BLOCK_BYTES_MAX + limits.DIRECT_FRAME_BYTES


def test_a_payload_read_directly_is_aligned_for_every_column_type() -> None:
    numpy = pytest.importorskip("numpy")
    buffer = ReceiveBuffer(limits.FRAME_BYTES_MAX)
    data = joined(build_frame(b"h" * 77, b"x" * 100_000, 1_000_000)[0])
    while data:
        view = buffer.get_buffer()
        count = min(len(view), len(data))
        view[:count], data = data[:count], data[count:]
        buffer.buffer_updated(count)
        frame = buffer.next_frame()
    assert frame is not None
    assert numpy.frombuffer(frame[1], dtype=numpy.uint8).ctypes.data % 16 == 0


def test_a_frame_over_the_peers_limit_is_not_built() -> None:
    with pytest.raises(LocalProtocolError, match="over the limit of 100"):
        build_frame(b"h", b"x" * 101, 100)


def test_a_peer_that_has_sent_a_large_frame_whole_has_its_next_ones_memory_at_once_within_a_bound() -> None:
    large = 16 * limits.FIRST_ALLOCATION_BYTES
    buffer = ReceiveBuffer(limits.FRAME_BYTES_MAX)
    for frame_bytes, at_once in ((large, limits.FIRST_ALLOCATION_BYTES), (large, large), (8 * large, limits.PROVEN_ALLOCATION_BYTES)):
        frame = joined(build_frame(b"\x80", bytes(frame_bytes - 64), limits.FRAME_BYTES_MAX)[0])
        assert len(frame) == frame_bytes
        sent = buffer.get_buffer()
        count = min(len(sent), len(frame))
        sent[:count] = frame[:count]
        buffer.buffer_updated(count)
        del sent
        assert buffer.next_frame() is None
        assert buffer.frame_memory_bytes == at_once
        at = count
        while at < len(frame):
            view = buffer.get_buffer()
            count = min(len(view), len(frame) - at)
            view[:count] = frame[at : at + count]
            buffer.buffer_updated(count)
            at += count
        whole = buffer.next_frame()
        assert whole is not None
        assert whole[2] == frame_bytes
        assert buffer.frame_memory_bytes == 0


def test_what_has_arrived_can_be_let_go_of_at_any_byte() -> None:
    frame = joined(build_frame(b"\x80", bytes(200_000), limits.FRAME_BYTES_MAX)[0])
    for cut in (1, 7, 9, 40_000, 100_000, len(frame) - 1):
        buffer = ReceiveBuffer(limits.FRAME_BYTES_MAX)
        at = 0
        while at < cut:
            view = buffer.get_buffer()
            count = min(len(view), cut - at)
            view[:count] = frame[at : at + count]
            buffer.buffer_updated(count)
            at += count
            buffer.next_frame()
        buffer.discard()
        assert (buffer.waiting_bytes, buffer.frame_memory_bytes) == (0, 0)
        assert buffer.allocated_bytes < 16
        assert len(buffer.get_buffer()) >= 1
        assert buffer.next_frame() is None
