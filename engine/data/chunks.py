"""Where the rows of logs lie: once, in column layout, in segments. A chunk is a segment and offsets in it.

A segment is memory that is filled from front to back and used again when nobody reads what is in it. Whoever makes the segments says
what kind of memory that is: shared memory, which other processes map (workers), or a mapped file, for rows that are not to stay in
memory (`engine/flow/spilling.py`). Columns placed here are ordinary columns whose arrays are
views, so nobody who computes with them knows of it; a chunk is freed when the last cursor has passed it and the last array over it is
gone, here and in every process that was told of it.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.arrow import unpack_bits
from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import Kind

Bytes = npt.NDArray[np.uint8]
Arrays = Sequence[npt.NDArray[Any] | None]
MakeSegment = Callable[[int, int], Bytes]
"""Makes the memory of the segment of a number, of at least so many bytes."""

ALIGNMENT = 64  # a cache line, so that no two columns share one
SEGMENT_BYTES = 4 * 1024 * 1024
ROWS_PLACED_MIN = 128  # fewer lie better as the plain values they are


@dataclass(slots=True, eq=False)
class Segment:
    """One stretch of memory. `used` is where the next chunk goes, `chunks` how many are alive here, `told` how many by whom elsewhere."""

    number: int
    memory: Bytes
    address: int
    used: int = 0
    chunks: int = 0
    told: dict[int, int] = field(default_factory=dict)

    @property
    def is_free(self) -> bool:
        """Nobody reads anything in it."""
        return not self.chunks and not any(self.told.values())


class ChunkStore:
    """Places columns. Calls of `placed`, `tell`, `untell` and `forget` must not overlap; `find` may come from any thread.

    At most `bytes_max` are in segments; beyond that rows stay where they came from, which costs whoever reads them elsewhere a copy.
    """

    def __init__(self, make: MakeSegment, bytes_max: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._make = make
        self._bytes_max = bytes_max
        self._segment_bytes = segment_bytes
        self._segments: dict[int, Segment] = {}
        self._next = 0
        self._by_address: tuple[list[int], list[Segment]] = ([], [])
        self._open: Segment | None = None
        self._gone: deque[Segment] = deque()  # of chunks whose last array is gone: noted by whatever thread let go of it
        self._alive: dict[int, weakref.ref[Bytes]] = {}  # by its own identity: what it refers to has no hash
        self.bytes_total = 0

    def placed(self, columns: Sequence[Column]) -> Sequence[Column]:
        """Return the columns as they lie in a segment now; themselves where they are few rows, or there is no room."""
        if len(columns[0]) < ROWS_PLACED_MIN:
            return columns
        parts = [None if is_nested(column) else parts_of(column) for column in columns]
        views = self.place([array for part in parts if part is not None for array in part])
        if views is None:
            return columns
        left = iter(views)
        return [
            column if part is None else column_over(column, [next(left) for _ in part]) for column, part in zip(columns, parts, strict=True)
        ]

    def place(self, arrays: Arrays) -> list[Any] | None:
        """Return arrays as they lie in a segment now, all in one chunk and None where None is; None where there is no room for them."""
        size = sum(-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays if array is not None)
        room = self.room(size) if size else None
        if room is None:
            return None
        base, at = room[2], 0
        views: list[Any] = []
        for array in arrays:
            if array is None:
                views.append(None)
                continue
            view = base[at : at + array.nbytes].view(array.dtype)
            view[:] = array
            views.append(view)
            at += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        return views

    def trim(self) -> list[int]:
        """Let go of the segments that nobody reads, and return their numbers."""
        self._count_gone()
        free = [segment.number for segment in self._segments.values() if segment.is_free]
        for number in free:
            segment = self._segments.pop(number)
            self.bytes_total -= len(segment.memory)
            if segment is self._open:
                self._open = None
        if free:
            self._order()
        return free

    def close(self) -> None:
        """Let go of all segments: the memory goes with the last array over it. There is no room any more."""
        for segment in self._segments.values():
            segment.memory = np.empty(0, np.uint8)  # the segment itself is known wherever a chunk's end is waited for
        self._segments.clear()
        self._open, self._bytes_max, self.bytes_total = None, 0, 0
        self._order()

    def room(self, size: int) -> tuple[Segment, int, Bytes] | None:
        """Return room for a chunk: its segment, where in it, and the memory; None where there is none.

        The chunk is alive as long as an array over that memory is, or somebody who was told of it reads it.
        """
        segment = self._with_room(size)
        if segment is None:
            return None
        # Not a slice: arrays over a slice would keep the whole segment's array alive, and not this one, whose end is what is watched.
        at = segment.used
        base = np.frombuffer(segment.memory.data, np.uint8, size, at)
        segment.used += -(-size // ALIGNMENT) * ALIGNMENT
        segment.chunks += 1
        self._watch(base, segment)
        return segment, at, base

    def find(self, address: int, size: int) -> tuple[Segment, int] | None:
        """Return the segment in which memory lies, and where in it; None for any other memory."""
        addresses, segments = self._by_address
        place = bisect_right(addresses, address) - 1
        if place < 0:
            return None
        segment = segments[place]
        offset = address - segment.address
        return (segment, offset) if offset + size <= len(segment.memory) else None

    def tell(self, segment: Segment, whom: int) -> None:
        """Note that somebody elsewhere is told of a chunk in a segment; who tells has an array over it."""
        segment.told[whom] = segment.told.get(whom, 0) + 1

    def untell(self, number: int, whom: int, count: int) -> None:
        """Note that somebody has let go of as many chunks as that."""
        told = self._segments[number].told
        told[whom] = max(0, told.get(whom, 0) - count)

    def forget(self, whom: int) -> None:
        """Note that somebody is gone, and reads nothing any more."""
        for segment in self._segments.values():
            segment.told.pop(whom, None)

    def _watch(self, base: Bytes, segment: Segment) -> None:
        gone, alive = self._gone, self._alive

        def let_go(reference: weakref.ref[Bytes]) -> None:
            alive.pop(id(reference), None)
            gone.append(segment)

        reference = weakref.ref(base, let_go)
        alive[id(reference)] = reference

    def _with_room(self, size: int) -> Segment | None:
        self._count_gone()
        opened = self._open
        if opened is not None and opened.is_free:
            opened.used = 0
        if opened is not None and len(opened.memory) - opened.used >= size:
            return opened
        free = [s for s in self._segments.values() if s is not opened and s.is_free and len(s.memory) >= size]
        if free:
            segment = self._open = min(free, key=lambda s: len(s.memory))  # what needs much finds the large ones free
            segment.used = 0
            return segment
        return self._made(-(-size // self._segment_bytes) * self._segment_bytes)  # round, so that others of about that size fit later

    def _made(self, size: int) -> Segment | None:
        if self.bytes_total + size > self._bytes_max:
            return None
        number = self._next
        memory = self._make(number, size)
        self._next += 1
        segment = self._open = self._segments[number] = Segment(number, memory, address_of(memory))
        self.bytes_total += len(memory)
        self._order()
        return segment

    def _order(self) -> None:
        ordered = sorted(self._segments.values(), key=lambda s: s.address)
        self._by_address = [s.address for s in ordered], ordered

    def _count_gone(self) -> None:
        while self._gone:
            self._gone.popleft().chunks -= 1


def address_of(array: npt.NDArray[Any]) -> int:
    """Return where an array begins in memory."""
    address: int = array.__array_interface__["data"][0]
    return address


def text_parts(values: Any) -> tuple[Bytes | None, npt.NDArray[np.int32], Bytes]:
    """Return validity bits, offsets and characters of the rows that a string array shows, as if it began with them."""
    rows, at = len(values), values.offset
    validity, offsets, characters = values.buffers()
    bits = None
    if values.null_count:
        bits = np.packbits(unpack_bits(validity, at, rows), bitorder="little")
    if not rows or offsets is None:
        return bits, np.zeros(rows + 1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    places = np.frombuffer(offsets, dtype=np.int32, count=at + rows + 1)[at:]
    first, last = int(places[0]), int(places[-1])
    if first:
        places = places - np.int32(first)
    text = np.empty(0, dtype=np.uint8) if characters is None else np.frombuffer(characters, dtype=np.uint8)[first:last]
    return bits, places, text


def text_over(rows: int, bits: Any, offsets: Any, characters: Any) -> Any:
    """Return the string array over such parts, which it keeps alive."""
    validity = None if bits is None else pa.py_buffer(bits)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(characters), validity)


def is_nested(column: Column) -> bool:
    """Whether a column is an Arrow array other than of text, whose parts are a message that has to be read: workers get it another way."""
    return column.type.is_arrow and column.type.kind is not Kind.TEXT


def parts_of(column: Column) -> tuple[Any, ...] | None:
    """Return the arrays of a column as they are placed; None for one that stays where it is, as it is made of objects (wide decimals)."""
    if column.type.kind is Kind.TEXT:
        return text_parts(column.values)
    if column.type.is_arrow:
        message = pa.record_batch([column.values], names=["values"]).serialize()
        return (np.frombuffer(message, dtype=np.uint8),)
    if column.values.dtype == np.object_:
        return None
    return column.values, column.valid


def column_over(column: Column, views: Sequence[Any]) -> Column:
    """Return a column over its parts as they lie elsewhere."""
    if column.type.kind is Kind.TEXT:
        return Column(column.type, text_over(len(column), *views))
    if column.type.is_arrow:
        batch = pa.ipc.read_record_batch(pa.py_buffer(views[0]), pa.schema([("values", column.values.type)]))
        return Column(column.type, batch.column(0))
    return Column(column.type, views[0], views[1], column._bounds)
