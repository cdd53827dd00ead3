"""What crosses between server and worker, as bytes: one msgpack value, and arrays behind it.

A message is `[segments, arrays, body]`. An array is `[segment, offset, count, dtype]`: it lies in a segment of the chunk store that both
map, or (segment -1) behind the message, at a multiple of 8 bytes. The body speaks of arrays by their numbers; what it says of trains is
below. Nothing is pickled, and nothing is written row by row.

What lies behind a message is copied, as the next message overwrites it; what lies in a segment is read where it is, and whoever reads it
says when no array over it is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.arrivals import NO_ARRIVALS, ArrivalTimes, SteppedArrivals, following_arrivals
from millstream.engine.data.chunks import address_of, text_over, text_parts
from millstream.engine.data.column import CellColumn, Column, concat_columns, null_column
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Numbers, Train
from millstream.engine.data.types import Kind
from millstream.engine.data.watermarks import ChainTrack, RowsTrack, RowTrack, StepTrack, WatermarkTrack, concat_tracks
from millstream.engine.state.decoding import decode
from millstream.engine.state.encoding import encode
from millstream.server.workers.channel import HERE

Array = npt.NDArray[Any]
PIECE = 8
TELL_HELD, TELL_STATE = 1, 2  # what a worker tells beside what comes of a call: how much the operator holds; its state
Find = Callable[[int, int], "tuple[int, int] | None"]
"""From an address and a size to the segment in which that lies, by its number, and the offset; None for other memory."""
Inputs = Sequence[Sequence[Train]]
"""The parts of each input of a call."""
_DTYPES: dict[str, np.dtype[Any]] = {}


class Writer:
    """One message in the making."""

    def __init__(self, find: Find | None = None) -> None:
        self._find = find
        self._arrays: list[tuple[int, int, int, str]] = []
        self._known: dict[tuple[int, int, str], int] = {}
        self._bodies: list[Array] = []
        self._kept: list[Any] = []  # so that no address is given out twice
        self.size = 0
        self.segments: dict[int, None] = {}
        self.tracks: Mapping[int, tuple[int, int]] = {}
        """Tracks that the reader has, by identity: the call's input, and the part of it, whose track it is."""

    def array(self, array: Array | None) -> int | None:
        """Note an array, once, and return its number."""
        if array is None:
            return None
        address, size, code = address_of(array), array.nbytes, array.dtype.str
        key = (address, size, code)
        number = self._known.get(key)
        if number is not None and array.flags.c_contiguous:
            return number
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
            key = (address_of(array), size, code)
        found = self._find(key[0], size) if self._find is not None and size else None
        if found is None:
            place = (HERE, self.size, len(array), code)
            self._bodies.append(array)
            self.size += size + -size % PIECE
        else:
            place = (*found, len(array), code)
            self.segments[found[0]] = None
        self._kept.append(array)
        number = self._known[key] = len(self._arrays)
        self._arrays.append(place)
        return number

    def mark(self) -> tuple[int, int, int]:
        """Return where the message stands, for `cut`."""
        return len(self._arrays), len(self._bodies), self.size

    def cut(self, mark: tuple[int, int, int]) -> None:
        """Leave out the arrays since then."""
        arrays, bodies, self.size = mark
        del self._arrays[arrays:], self._bodies[bodies:]
        self._known = {key: number for key, number in self._known.items() if number < arrays}

    def parts(self, body: Any) -> tuple[bytes, list[Array], int]:
        """Return the msgpack value, the arrays behind it, and how many bytes these take."""
        return msgpack.packb([list(self.segments), self._arrays, body], use_bin_type=True), self._bodies, self.size

    # --- trains ---

    def train(self, train: Train) -> list[Any]:
        """Tell a train: [rows, lo, hi, seq, time, arrival, track, marks, columns, notes, whether its source's rows are remembered]."""
        marks = int(train.ended) | (0 if train.idle is None else 2 | (4 if train.idle else 0)) | (8 if train.flush else 0)
        rows = train.rows
        columns = [self._column(train.column(i), f.type) for i, f in enumerate(train.schema.fields)] if rows else None
        return [
            rows,
            train.lo,
            train.hi,
            self._numbers(train.seq),
            self._numbers(train.time),
            self._arrival(train.arrival),
            self._track(train.track),
            marks,
            columns,
            train.notes,
            bool(train.origin),
        ]

    def rows(self, trains: Sequence[Train]) -> list[Any]:
        """Tell the rows of trains that follow one another as those of one: [rows, seq, time, columns]. All else its reader knows."""
        full = [train for train in trains if train.rows]
        if not full:
            return [0, 0, 0, None]
        if len(full) == 1:
            _, _, _, seq, time, _, _, _, columns, *_ = self.train(full[0])
            return [full[0].rows, seq, time, columns]
        numbers = [[0, self.arrays([numbers.array() for numbers in one])] for one in ([t.seq for t in full], [t.time for t in full])]
        columns = [self._joint([train.column(i) for train in full], field.type) for i, field in enumerate(full[0].schema.fields)]
        return [sum(train.rows for train in full), *numbers, columns]

    def _joint(self, columns: list[Column], type_: Any) -> list[Any]:
        """Tell columns as the one that they make."""
        first = columns[0]
        is_plain = all(type(column) is Column and column.type == type_ for column in columns)
        if not is_plain or type_.is_arrow or first.values.dtype == np.object_:
            return self._column(concat_columns(columns), type_)
        valid = None
        if any(column.valid is not None for column in columns):
            valid = self.arrays([np.ones(len(c), dtype=np.bool_) if c.valid is None else c.valid for c in columns])
        return [0, self.arrays([column.values for column in columns]), valid, None]

    def arrays(self, arrays: Sequence[Array]) -> int:
        """Note arrays of one kind as the one that they make, which is not made before it is written."""
        if arrays[0].itemsize % PIECE:
            number = self.array(np.concatenate(arrays))
            assert number is not None
            return number
        begin, count = self.size, 0
        for array in arrays:
            self._bodies.append(np.ascontiguousarray(array))
            self.size += array.nbytes
            count += len(array)
        self._arrays.append((HERE, begin, count, arrays[0].dtype.str))
        return len(self._arrays) - 1

    def _numbers(self, numbers: Numbers) -> Any:
        if numbers.is_constant:
            return numbers.start
        if numbers.is_range:
            return [numbers.start]
        return [0, self.array(numbers.array())]

    def _arrival(self, arrival: ArrivalTimes) -> Any:
        if arrival is NO_ARRIVALS:
            return None
        if arrival.is_constant:
            return [arrival.first, arrival.start_ns]
        seqs, times = arrival.steps()
        return [self.array(seqs), self.array(times), 0]

    def _track(self, track: WatermarkTrack) -> list[Any]:
        known = self.tracks.get(id(track))
        if known is not None:
            return [5, *known]
        if type(track) is RowsTrack:
            first, times, delay_us = track.given
            return [1, track.lo, track.hi, track.start, first, self.array(times), delay_us]
        if type(track) is RowTrack:
            return [2, track.lo, track.hi, track.start, *track.given]
        if type(track) is ChainTrack:
            return [4, track.lo, track.hi, track.start, track.end, [self._track(part) for part in track.parts]]
        if track.start == track.end:
            return [0, track.lo, track.hi, track.start]
        seqs, values = track.steps()
        return [3, track.lo, track.hi, track.start, self.array(seqs), self.array(values)]

    def _column(self, column: Column, type_: Any) -> list[Any]:
        if column.type != type_:
            return [3, self.bytes(encode(column, check=False))]
        if type(column) is CellColumn:
            return [1, column.cells if type(column.cells) is list else list(column.cells)]
        if type_.kind is Kind.TEXT:
            return [2, *self._text(column.values)]
        if type_.is_arrow or column.values.dtype == np.object_:
            return [3, self.bytes(encode(column, check=False))]
        return [0, self.array(column.values), self.array(column.valid), column._bounds]

    def _text(self, values: Any) -> list[Any]:
        """Tell a string array: where it lies in a segment as it stands, else as its parts."""
        if self._find is not None and not values.null_count and not values.offset:
            _, offsets, characters = values.buffers()
            if offsets is not None and self._find(offsets.address, 4) is not None:
                places = np.frombuffer(offsets, dtype=np.int32, count=len(values) + 1)
                return [len(values), None, self.array(places), self.array(np.frombuffer(characters, dtype=np.uint8))]
        return [len(values), *map(self.array, text_parts(values))]

    def bytes(self, data: Any) -> int | None:
        """Note bytes."""
        return self.array(np.frombuffer(data, dtype=np.uint8))

    def schema(self, schema: Schema) -> int | None:
        """Note a schema."""
        return self.bytes(encode(schema, check=False))


class Reader:
    """One message that came. `behind` is what stood behind it, `segment` finds the memory of a segment."""

    def __init__(self, head: Any, behind: Any, segment: Callable[[int], Array] | None = None) -> None:
        segments, arrays, self.body = msgpack.unpackb(head, use_list=True, strict_map_key=False)
        bases = {number: segment(number) for number in segments} if segment is not None else {}
        self._arrays = [_array(place, behind, bases) for place in arrays]

    def array(self, number: int | None) -> Any:
        """Return an array."""
        return None if number is None else self._arrays[number]

    def train(self, told: Sequence[Any], schema: Schema, origin: tuple[Train, ...] = (), inputs: Inputs = ()) -> Train:
        """Return a train; `origin` is what it remembers of its source's rows if it does, `inputs` are those of the call that it answers."""
        rows, lo, hi, seq, time, arrival, track, marks, columns, notes, remembers = told
        return Train(
            schema,
            self._slots(columns, schema),
            rows=rows,
            lo=lo,
            hi=hi,
            seq=self._numbers(seq, rows),
            time=self._numbers(time, rows),
            arrival=self._arrival(arrival),
            track=self._track(track, inputs),
            ended=bool(marks & 1),
            idle=bool(marks & 4) if marks & 2 else None,
            flush=bool(marks & 8),
            notes=notes,
            origin=origin if remembers else (),
        )

    def rows(self, told: Sequence[Any], schema: Schema, parts: Sequence[Train], origin: tuple[Train, ...]) -> Train:
        """Return the train of the rows that are left of these, which stand for all else: interval, W, arrivals and marks."""
        rows, seq, time, columns = told
        first, last = parts[0], parts[-1]
        return Train(
            schema,
            self._slots(columns, schema),
            rows=rows,
            lo=first.lo,
            hi=last.hi,
            seq=self._numbers(seq, rows),
            time=self._numbers(time, rows),
            arrival=following_arrivals([(part.arrival, part.lo, part.hi) for part in parts]),
            track=concat_tracks([part.track for part in parts]),
            ended=last.ended,
            idle=last.idle,
            flush=last.flush,
            notes=next((part.notes for part in parts if part.notes), None),
            origin=origin,
        )

    def _slots(self, told: Sequence[Any] | None, schema: Schema) -> list[Column]:
        if told is None:
            return [null_column(field.type, 0) for field in schema.fields]
        return [self._column(column, field.type) for column, field in zip(told, schema.fields, strict=True)]

    def _numbers(self, told: Any, rows: int) -> Numbers:
        if type(told) is int:
            return Numbers(rows, start=told)
        if len(told) == 1:
            return Numbers(rows, start=told[0], step=1)
        return Numbers(rows, array=self._arrays[told[1]])

    def _arrival(self, told: Any) -> ArrivalTimes:
        if told is None:
            return NO_ARRIVALS
        if len(told) == 2:
            return ArrivalTimes(told[0], told[1])
        return SteppedArrivals(self._arrays[told[0]], self._arrays[told[1]])

    def _track(self, told: Sequence[Any], inputs: Inputs) -> WatermarkTrack:
        if told[0] == 5:
            found: WatermarkTrack = inputs[told[1]][told[2]].track
            return found
        kind, lo, hi, start, *more = told
        if kind == 0:
            return WatermarkTrack(lo, hi, start, start)
        if kind == 1:
            first, times, delay_us = more
            return RowsTrack(lo, hi, start, self._arrays[times], delay_us, first=first)
        if kind == 2:
            return RowTrack(lo, hi, start, *more)
        if kind == 4:
            return ChainTrack(lo, hi, start, more[0], [self._track(part, inputs) for part in more[1]])
        return StepTrack(lo, hi, start, self._arrays[more[0]], self._arrays[more[1]])

    def _column(self, told: Sequence[Any], type_: Any) -> Column:
        kind = told[0]
        if kind == 0:
            _, values, valid, bounds = told
            return Column(type_, self._arrays[values], self.array(valid), None if bounds is None else (bounds[0], bounds[1]))
        if kind == 1:
            return CellColumn(type_, told[1])
        if kind == 2:
            _, rows, bits, offsets, characters = told
            return Column(type_, text_over(rows, self.array(bits), self._arrays[offsets], self._arrays[characters]))
        found: Column = decode(self.bytes(told[1]), check=False)
        return found

    def bytes(self, number: int) -> memoryview:
        """Return bytes."""
        return self._arrays[number].data

    def schema(self, number: int) -> Schema:
        """Return a schema."""
        found: Schema = decode(self.bytes(number), check=False)
        return found


def _array(place: Sequence[Any], behind: Any, bases: dict[int, Array]) -> Array:
    segment, offset, count, code = place
    dtype = _DTYPES.get(code)
    if dtype is None:
        dtype = _DTYPES[code] = np.dtype(code)
    if segment == HERE:
        if not count:
            return np.empty(0, dtype)
        if type(behind) is bytes:
            return np.frombuffer(behind, dtype, count, offset)
        found: Array = behind[offset : offset + count * dtype.itemsize].view(dtype)
        return found
    return bases[segment][offset : offset + count * dtype.itemsize].view(dtype)


def load_kernels() -> None:
    """Have NumPy and Arrow load what they load at their first calls: later that would seem to be the cost of the first rows."""
    pa.array(np.zeros(1)).filter(pa.array([True]))
