"""Record batches of plain columns to payloads and back, without a call into Arrow for each column.

Plain is what most streams are made of: numbers, times and text without NULLs. In a payload each such column is one buffer, text two
(offsets, characters). Everything else takes the way through `batches.py`; both ways read and write the same bytes of Arrow's format.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Any

from millstream.protocol.errors import RemoteProtocolError
from millstream.protocol.flatbuffers import BatchPlaces, read_batch_head, read_batch_places

if TYPE_CHECKING:
    import pyarrow as pa
    from millstream.protocol.messages import BytesLike

OFFSET_BYTES = 4
ALIGNMENT_BYTES = 8  # of each buffer within the body, as Arrow's own writer has it
JOINED_BYTES_MAX = 64 * 1024  # below, one copy is cheaper than handing over each buffer by itself
FORMS_KEPT_MAX = 256  # of payloads of one row: texts of so many lengths
HEAD_BYTES_MAX = 64 * 1024  # of a form that is remembered: some hundreds of columns
_I64 = Struct("<q")
_U32 = Struct("<I")


def width_of(data_type: pa.DataType) -> int | None:
    """Return the bytes of a value of an Arrow type, 0 for text with offsets of 32 bits, None where columns of it are not plain."""
    import pyarrow as pa

    if pa.types.is_string(data_type):
        return 0
    kinds = pa.types
    if kinds.is_integer(data_type) or kinds.is_float32(data_type) or kinds.is_float64(data_type):
        return int(data_type.bit_width) // 8
    if kinds.is_timestamp(data_type) or kinds.is_duration(data_type) or kinds.is_date32(data_type):
        return int(data_type.bit_width) // 8
    return None


class _Layout:
    """Where the numbers stand in messages of one form: the bytes between them are the same in all of them."""

    def __init__(self, payload: memoryview, places: BatchPlaces) -> None:
        self.places = places
        self.nodes = Struct(f"<{2 * places.node_count}q")
        self.buffers = Struct(f"<{2 * places.buffer_count}q")
        numbers = sorted(
            (
                (places.rows, _I64.size),
                (places.body_bytes, _I64.size),
                (places.nodes, self.nodes.size),
                (places.buffers, self.buffers.size),
            )
        )
        starts = [0, *(at + size for at, size in numbers)]
        stops = [*(at for at, _ in numbers), places.body]
        self.overlaps = any(start > stop for start, stop in zip(starts, stops, strict=True))
        self._between = [(start, stop, bytes(payload[start:stop])) for start, stop in zip(starts, stops, strict=True)]

    def fits(self, payload: memoryview) -> bool:
        """Whether a payload has this form."""
        if len(payload) < self.places.body:
            return False
        return all(bytes(payload[start:stop]) == known for start, stop, known in self._between)


class PlainReader:
    """Payloads of one schema to the places of their buffers. `widths`: bytes of a value of each column, 0 for text (`width_of`)."""

    def __init__(self, widths: Sequence[int]) -> None:
        self._widths = tuple(widths)
        self._buffers = 2 * len(self._widths) + sum(not width for width in self._widths)
        self._layout: _Layout | None = None

    def read(self, payload: memoryview, rows: int) -> list[tuple[int, int]] | None:
        """Return (start in the payload, bytes) of the columns' buffers (text: offsets, then all characters); None unless all is plain.

        They lie one behind another within the payload and hold `rows` values each; what text offsets say has not been looked at.
        """
        layout = self._layout
        if rows < 1:
            return None
        if layout is None or not layout.fits(payload):
            layout = self._layout_of(payload, rows)
            if layout is None:
                return None
            self._layout = layout
        places = layout.places
        (body_bytes,) = _I64.unpack_from(payload, places.body_bytes)
        if _I64.unpack_from(payload, places.rows)[0] != rows or not 0 <= body_bytes <= len(payload) - places.body:
            return None
        nodes, buffers = layout.nodes.unpack_from(payload, places.nodes), layout.buffers.unpack_from(payload, places.buffers)
        if nodes != (rows, 0) * len(self._widths):
            return None
        return self._places(buffers, places.body, body_bytes, rows)

    def _layout_of(self, payload: memoryview, rows: int) -> _Layout | None:
        """Return the form of a payload that is not of the known one, None unless Arrow says that it is well-formed."""
        import pyarrow as pa

        head = read_batch_head(payload)
        if head.rows != rows or head.is_compressed or head.body_at > HEAD_BYTES_MAX:
            return None
        places = read_batch_places(payload)
        if (places.node_count, places.buffer_count) != (len(self._widths), self._buffers):
            return None
        try:
            pa.ipc.read_message(pa.py_buffer(payload))
        except (pa.ArrowException, OSError):
            return None  # refused by whoever reads it with Arrow
        layout = _Layout(payload, places)
        return None if layout.overlaps else layout

    def _places(self, buffers: tuple[int, ...], body: int, body_bytes: int, rows: int) -> list[tuple[int, int]] | None:
        found: list[tuple[int, int]] = []
        free = 0  # buffers that overlap could be many times the payload once somebody copies them
        at = 2  # past the validity of the first column, which is not looked at: the node says that there are no NULLs
        for width in self._widths:
            wanted = rows * width if width else (rows + 1) * OFFSET_BYTES
            start, size = buffers[at], buffers[at + 1]
            if start < free or size < wanted or start + size > body_bytes or start % ALIGNMENT_BYTES:
                return None
            found.append((body + start, wanted))
            free = start + size
            at += 4
            if not width:
                start, size = buffers[at - 2], buffers[at - 1]
                if start < free or size < 0 or start + size > body_bytes or start % ALIGNMENT_BYTES:
                    return None
                found.append((body + start, size))
                free = start + size
                at += 2
        return found


def _code_of(data_type: pa.DataType) -> str | None:
    """Return how `struct` writes one value of a plain type as a buffer of a batch, text as its two offsets; None for odd widths."""
    import pyarrow as pa

    if pa.types.is_float64(data_type):
        return "d"
    if pa.types.is_int64(data_type) or pa.types.is_timestamp(data_type) or pa.types.is_duration(data_type):
        return "q"
    if pa.types.is_int32(data_type) or pa.types.is_date32(data_type):
        return "i4x"
    return "ii" if pa.types.is_string(data_type) else None


class PlainWriter:
    """Buffers of plain columns to payloads of one schema, all of whose types are plain (`width_of`)."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        sample = memoryview(pa.RecordBatch.from_arrays([_one_value(field.type) for field in schema], schema=schema).serialize())
        places = read_batch_places(sample)
        self._per_column = [1 if width_of(field.type) else 2 for field in schema]
        count = len(self._per_column) + sum(self._per_column)
        if (places.node_count, places.buffer_count) != (len(schema), count):
            raise RemoteProtocolError("Arrow laid a batch out otherwise than it should")
        # The metadata is padded so that the body starts as aligned as the payload does.
        start = -(-places.body // 64) * 64
        self._head = bytearray(sample[: places.body]) + bytes(start - places.body)
        _U32.pack_into(self._head, 4, start - 8)
        self._places = places
        self._nodes = Struct(f"<{2 * places.node_count}q")
        self._buffers = Struct(f"<{2 * count}q")
        self._codes = [_code_of(field.type) for field in schema]
        self._texts = [place for place, code in enumerate(self._codes) if code == "ii"]
        self._forms: dict[tuple[int, ...], tuple[bytes, Struct]] = {}  # of payloads of one row, by the bytes of its texts

    def write_row(self, values: Sequence[Any]) -> list[BytesLike] | None:
        """Return the payload of one row of numbers and bytes of text, None where a type has no short way. It is what `write` gives."""
        lengths: tuple[int, ...] = ()
        if self._texts:
            lengths = tuple([len(values[place]) for place in self._texts])
            values = [one for value in values for one in ((0, len(value), value) if type(value) is bytes else (value,))]
        form = self._forms.get(lengths)
        if form is None:
            if None in self._codes:
                return None
            form = self._form_of(lengths)
        head, row = form
        return [head + row.pack(*values)]

    def _form_of(self, lengths: tuple[int, ...]) -> tuple[bytes, Struct]:
        left = iter(lengths)
        codes = ["<"]
        buffers: list[tuple[bytes, ...]] = []
        for code in self._codes:
            assert code is not None
            codes.append(code)
            if code == "ii":
                length = next(left)
                codes.append(f"{length}s{-length % ALIGNMENT_BYTES}x")
                buffers.append((bytes(2 * OFFSET_BYTES), bytes(length)))
            else:
                buffers.append((bytes(Struct(f"<{code.removesuffix('4x')}").size),))
        row = Struct("".join(codes))
        payload = b"".join(self.write(1, buffers))
        if len(self._forms) >= FORMS_KEPT_MAX:
            self._forms.clear()
        form = self._forms[lengths] = (payload[: len(payload) - row.size], row)
        return form

    def write(self, rows: int, buffers: Sequence[tuple[Any, ...]]) -> list[BytesLike]:
        """Return the payload in pieces. `buffers`: of each column its values, of text offsets and characters; at least one row.

        Buffers are C-contiguous; they are not copied when they are large.
        """
        numbers: list[int] = []
        pieces: list[BytesLike] = []
        at = 0
        for column in buffers:
            numbers += (at, 0)
            for buffer in column:
                view = memoryview(buffer)
                size = view.nbytes
                numbers += (at, size)
                pieces.append(view)
                at += size
                if size % ALIGNMENT_BYTES:
                    padding = ALIGNMENT_BYTES - size % ALIGNMENT_BYTES
                    pieces.append(bytes(padding))
                    at += padding
        head = bytearray(self._head)
        places = self._places
        _I64.pack_into(head, places.rows, rows)
        _I64.pack_into(head, places.body_bytes, at)
        self._nodes.pack_into(head, places.nodes, *chain.from_iterable([(rows, 0)] * len(buffers)))
        self._buffers.pack_into(head, places.buffers, *numbers)
        if at < JOINED_BYTES_MAX:
            return [b"".join((head, *pieces))]
        return [head, *(piece if isinstance(piece, bytes) else memoryview(piece).cast("B") for piece in pieces)]


def _one_value(data_type: pa.DataType) -> pa.Array:
    import pyarrow as pa

    value = pa.py_buffer(bytes(8))
    return pa.Array.from_buffers(data_type, 1, [None, value] if width_of(data_type) else [None, value, pa.py_buffer(b"")])
