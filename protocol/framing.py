"""Frames: how messages are cut out of a stream of bytes, and put into it.

    u32  length       bytes that follow this number, little-endian
    u32  header length
         header       msgpack
         zeros        up to the next multiple of 64 from the start of the frame, only when there is a payload
         payload      raw, to the end of the frame; never empty when there are zeros

The receive buffer has two places. Small frames arrive in a block that is used over and over; their payloads are copied
out, so that a payload that is kept for long holds no more memory than its own. A large frame gets memory of its own as soon
as its length is known, the rest of it is read straight into it, and its payload is a view of it. So of any frame at most one
block is copied, and every payload is aligned to 16 bytes at least.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TypeAlias

from millstream.protocol import limits
from millstream.protocol.errors import LocalProtocolError, RemoteProtocolError
from millstream.protocol.messages import BytesLike, Payload

_PREFIX = Struct("<II")
_LENGTH = Struct("<I")
_ZEROS = bytes(limits.PAYLOAD_ALIGNMENT_BYTES)
# What an unrelated client would say first, and what we can tell its user.
_STRANGERS = {
    b"GET ": "this looks like HTTP",
    b"POST": "this looks like HTTP",
    b"HEAD": "this looks like HTTP",
    b"PUT ": "this looks like HTTP",
    b"SSH-": "this looks like SSH",
    b"\x16\x03\x01\x02": "this looks like TLS",
    b"\x16\x03\x01\x00": "this looks like TLS",
}


# Header, payload, length of the frame on the wire. The header is valid until the next `get_buffer`; the payload is memory of its own.
# A plain tuple, because a named one takes a third of the time that reading a row frame does.
Frame: TypeAlias = tuple[memoryview, memoryview | None, int]


def payload_start(header_length: int) -> int:
    """Return where the payload starts, in bytes from the start of the frame."""
    return -(-(limits.PREFIX_BYTES + header_length) // limits.PAYLOAD_ALIGNMENT_BYTES) * limits.PAYLOAD_ALIGNMENT_BYTES


def prefix(length: int, header_length: int) -> bytes:
    """Return the first bytes of a frame of `length` bytes in all."""
    return _PREFIX.pack(length - _LENGTH.size, header_length)


def build_frame(header: bytes, payload: Payload | None, frame_bytes_max: int) -> tuple[list[BytesLike], int]:
    """Return the buffers of a frame in order, payload buffers as they are, and the frame's length on the wire."""
    if len(header) > limits.HEADER_BYTES_MAX:
        raise LocalProtocolError(f"header of {len(header)} bytes is over the limit of {limits.HEADER_BYTES_MAX}", "limit")
    if payload is None:
        length = limits.PREFIX_BYTES + len(header)
        if length - _LENGTH.size <= frame_bytes_max:
            return [_PREFIX.pack(length - _LENGTH.size, len(header)) + header], length
    pieces, payload_length = _pieces_of(payload)
    start = payload_start(len(header)) if payload_length else limits.PREFIX_BYTES + len(header)
    length = start + payload_length
    if length - 4 > frame_bytes_max:
        raise LocalProtocolError(f"frame of {length - 4} bytes is over the limit of {frame_bytes_max}", "limit")
    padding = _ZEROS[: start - limits.PREFIX_BYTES - len(header)]
    return [_PREFIX.pack(length - _LENGTH.size, len(header)) + header + padding, *pieces], length


def _pieces_of(payload: Payload | None) -> tuple[list[BytesLike], int]:
    """Return the buffers of a payload that hold anything, and how much they hold."""
    if payload is None:
        return [], 0
    if type(payload) is list and len(payload) == 1 and type(payload[0]) is bytes and payload[0]:
        return payload, len(payload[0])
    pieces = [piece for piece in (payload if isinstance(payload, list) else [payload]) if len(piece)]
    total = 0
    for piece in pieces:
        total += len(piece) if type(piece) is bytes else memoryview(piece).nbytes
    return pieces, total


def _memory(size: int) -> memoryview:
    """Return memory that is not cleared first, as a bytearray's is: of a large frame all of it is read into, or nothing is handed on."""
    import numpy as np  # those who send small frames only need not wait for it

    return np.empty(size, np.uint8).data


class ReceiveBuffer:
    """Bytes not yet understood. `get_buffer` and `buffer_updated` are those of `asyncio.BufferedProtocol`.

    `frame_bytes_max` bounds a frame's length field and may be changed between frames.
    """

    __slots__ = ("_block", "_direct", "_direct_length", "_end", "_filled", "_proven", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = limits.GREETING_FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._block = bytearray(limits.BLOCK_BYTES_MIN)
        self._start = 0  # the block holds bytes from start to end
        self._end = 0
        self._direct: memoryview | None = None  # the memory of a large frame
        self._direct_length = 0  # that frame's whole length
        self._filled = 0  # how much of it has arrived
        self._proven = limits.FIRST_ALLOCATION_BYTES  # allocated at once: the largest frame that has come whole, within bounds

    @property
    def waiting_bytes(self) -> int:
        """Bytes of a frame that has begun and is not whole."""
        return self._filled if self._direct is not None else self._end - self._start

    @property
    def allocated_bytes(self) -> int:
        """Memory held at this moment."""
        return len(self._block) + self.frame_memory_bytes

    @property
    def frame_memory_bytes(self) -> int:
        """Memory that a large frame which is not whole has been given; 0 when there is none."""
        return len(self._direct) if self._direct is not None else 0

    def discard(self) -> None:
        """Let go of all that has arrived and its memory: nothing more is read."""
        self._direct = None
        self._block = bytearray(1)
        self._start = self._end = 0

    def get_buffer(self) -> memoryview:
        """Return the memory the next read should fill, at least one byte."""
        if self._direct is not None:
            return self._grown_direct(self._direct)[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._block):
            self._make_room()
        return memoryview(self._block)[self._end :]

    def buffer_updated(self, count: int) -> None:
        """Note that a read has filled `count` bytes."""
        if self._direct is not None:
            self._filled += count
        else:
            self._end += count

    def short_headers(self) -> Iterator[memoryview]:
        """Give the headers of the next frames, as `next_frame` would, up to the first that is more than a short header, or not whole."""
        if self._direct is not None:
            return
        view, end, unpack_from = memoryview(self._block), self._end, _PREFIX.unpack_from
        while (header_start := self._start + limits.PREFIX_BYTES) <= end:
            following, header_length = unpack_from(view, self._start)
            header_end = header_start + header_length
            if following != header_length + _LENGTH.size or not 0 < header_length <= limits.UNCHECKED_HEADER_BYTES or header_end > end:
                return
            self._start = header_end
            yield view[header_start:header_end]

    def next_frame(self) -> Frame | None:
        """Return the next whole frame, or None until more bytes come. RemoteProtocolError if what is there can be none."""
        if self._direct is not None:
            return self._finish_direct(self._direct) if self._filled == self._direct_length else None
        start, available = self._start, self._end - self._start
        if available < limits.PREFIX_BYTES:
            if available >= _LENGTH.size:
                self._check_length(_LENGTH.unpack_from(self._block, start)[0], start)
            return None
        following, header_length = _PREFIX.unpack_from(self._block, start)
        if not (
            header_length <= following - _LENGTH.size and 0 < header_length <= limits.HEADER_BYTES_MAX and following <= self.frame_bytes_max
        ):
            self._check_length(following, start)
            self._check_header_length(header_length, following)
        length = following + _LENGTH.size
        if length > available:
            if length > limits.DIRECT_FRAME_BYTES:
                self._begin_direct(length)
            return None
        self._start = start + length
        view = memoryview(self._block)
        header_end = start + limits.PREFIX_BYTES + header_length
        header = view[start + limits.PREFIX_BYTES : header_end]
        if header_end == start + length:
            return header, None, length
        body = self._payload_of(view[start : start + length], header_length)
        return header, memoryview(bytes(body)), length

    def _check_length(self, following: int, start: int) -> None:
        if following > self.frame_bytes_max:
            stranger = _STRANGERS.get(bytes(self._block[start : start + 4]))
            hint = f"; {stranger}, and this port speaks the Millstream protocol" if stranger else ""
            raise RemoteProtocolError(f"frame of {following} bytes is over the limit of {self.frame_bytes_max}{hint}", "limit")
        if following < _LENGTH.size + 1:
            raise RemoteProtocolError(f"frame of {following} bytes is too short to hold a header")

    @staticmethod
    def _check_header_length(header_length: int, following: int) -> None:
        if header_length > limits.HEADER_BYTES_MAX:
            raise RemoteProtocolError(f"header of {header_length} bytes is over the limit of {limits.HEADER_BYTES_MAX}", "limit")
        if header_length < 1 or header_length > following - _LENGTH.size:
            raise RemoteProtocolError(f"header of {header_length} bytes does not fit a frame of {following} bytes")

    @staticmethod
    def _payload_of(frame: memoryview, header_length: int) -> memoryview:
        start = payload_start(header_length)
        if start >= len(frame):
            raise RemoteProtocolError("bytes after the header do not reach the place where a payload starts")
        if any(frame[limits.PREFIX_BYTES + header_length : start]):
            raise RemoteProtocolError("bytes between header and payload must be zero")
        return frame[start:]

    def _make_room(self) -> None:
        """Move the begun frame to the start of the block; take a larger block when a read has filled this one."""
        waiting = self._end - self._start
        size = min(2 * len(self._block), limits.BLOCK_BYTES_MAX)
        block = bytearray(size) if size > len(self._block) else self._block
        block[:waiting] = self._block[self._start : self._end]
        self._block, self._start, self._end = block, 0, waiting

    def _begin_direct(self, length: int) -> None:
        waiting = self._end - self._start
        self._direct = _memory(min(length, self._proven))
        self._direct[:waiting] = memoryview(self._block)[self._start : self._end]
        self._direct_length, self._filled = length, waiting
        self._start = self._end = 0

    def _grown_direct(self, direct: memoryview) -> memoryview:
        if self._filled < len(direct):
            return direct
        grown = _memory(min(self._direct_length, limits.ALLOCATION_GROWTH * len(direct)))
        grown[: self._filled] = direct
        self._direct = grown
        return grown

    def _finish_direct(self, direct: memoryview) -> Frame:
        self._direct = None
        self._proven = max(self._proven, min(len(direct), limits.PROVEN_ALLOCATION_BYTES))
        view = direct.toreadonly()
        header_length = _PREFIX.unpack_from(direct)[1]
        header_end = limits.PREFIX_BYTES + header_length
        payload = self._payload_of(view, header_length) if header_end < len(direct) else None
        return view[limits.PREFIX_BYTES : header_end], payload, len(direct)
