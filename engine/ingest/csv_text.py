"""CSV text to columns: header, quoting, line numbers, bad rows one by one (C28).

Columns go by the header's names. An empty field is NULL, a quoted empty one is the empty text. A record with too many or too few
fields, with bytes that are not UTF-8, or with a value that does not fit is refused alone; the others of its block still load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from io import BufferedIOBase, RawIOBase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from millstream.engine.data.arrow import mask_from_arrow, validity_of
from millstream.engine.data.column import Column
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.types import BIGINT, TEXT, TIMESTAMP, Kind
from millstream.engine.expressions.text_columns import parse_column
from millstream.engine.ingest.arrays import Rules, from_bytes, written_out
from millstream.engine.ingest.checks import OUT_OF_RANGE, Coerced, Converted, Failed, Reasons, instants_from_units, is_needed
from millstream.engine.ingest.coerce import Coercer, column_of
from millstream.protocol.values import arrow_functions as pc
from millstream.protocol.values.csv import CARRIAGE_RETURN, COMMA, LINE_FEED, Bounds, CsvRecord, separator_of, split_regular, tokenize

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK_BYTES = 4 * 1024 * 1024


class CsvParser:
    """Takes CSV text piece by piece: `feed` bytes as they come, then `finish`. Each gives what became of the complete records.

    The first record is the header; `on_header` may refuse it. Without `delimiter` the header tells it (`separator_of`). `index` of
    results counts records from 0 over the whole text, lines from 1. `unread` names columns that nobody will look at: they may be NULL,
    which changes nothing of what is refused.
    """

    def __init__(
        self,
        coercer: Coercer,
        *,
        delimiter: str | None = None,
        on_header: Callable[[list[str]], None] | None = None,
        unread: Collection[str] = (),
    ) -> None:
        self.coercer = coercer
        fields = coercer.schema.fields
        # Of nullable text only the bytes could be wrong, which is seen in the block as a whole.
        self._unread = {f.name for f in fields if f.name in unread and f.type == TEXT and not is_needed(f, coercer.definition)}
        self.names: list[str] | None = None
        self._on_header = on_header
        self.line = 1
        self.records = 0
        self._is_given = delimiter is not None
        self._delimiter = COMMA if delimiter is None else ord(delimiter)
        self._rest = b""
        self._buffer = bytearray()
        self._begun = False

    def feed(self, data: bytes) -> Coerced | None:
        """Take more text; None while no record of it is complete."""
        return self._take(data, final=False)

    def finish(self) -> Coerced | None:
        """Take what is left as the last record; None when nothing is."""
        return self._take(b"", final=True)

    def _take(self, data: bytes, final: bool) -> Coerced | None:
        if self.names is None:
            self._rest += data
            data = b""
            if not self._begun:
                if not final and len(self._rest) < len(BYTE_ORDER_MARK):
                    return None
                self._begun = True
                self._rest = self._rest.removeprefix(BYTE_ORDER_MARK)
            if not self._read_header(final):
                return None
        self._room(len(data))[:] = data
        return self._read_block(len(data), final)

    def read(self, file: RawIOBase | BufferedIOBase, block_bytes: int) -> Iterator[Coerced]:
        """Yield what becomes of the records of a file, which is read in blocks to its end."""
        while self.names is None and (data := file.read(block_bytes)):
            if (result := self.feed(data)) is not None:
                yield result
        while self.names is not None and (count := file.readinto(self._room(block_bytes))):
            if (result := self._read_block(count, False)) is not None:
                yield result
        if (result := self.finish()) is not None:
            yield result

    def _read_header(self, final: bool) -> bool:
        if not self._is_given:
            self._delimiter = separator_of(self._rest)
        record = next(tokenize(self._rest, self._delimiter, final), None)
        if record is None:
            return False
        if record.problem is not None:
            raise InvalidDefinition(f"the header of the CSV text cannot be read: {record.problem}", line=self.line, column=1)
        try:
            self.names = [(f or b"").decode("utf-8").strip() for f in record.fields]
        except UnicodeDecodeError as error:
            raise InvalidDefinition("the header of the CSV text is not UTF-8", line=self.line, column=1) from error
        if self._on_header is not None:
            self._on_header(self.names)
        self.line += self._rest.count(b"\n", 0, record.end)
        self._rest = self._rest[record.end :]
        return True

    def _room(self, count: int) -> memoryview:
        """Return where so many bytes go, behind the text that is left: memory that is used again, as new one for each block costs more."""
        kept = len(self._rest)
        if len(self._buffer) <= kept + count:
            self._buffer = bytearray(kept + count + 1)
        self._buffer[:kept] = self._rest
        return memoryview(self._buffer)[kept : kept + count]

    def _read_block(self, count: int, final: bool) -> Coerced | None:
        """Take the text that is left with the bytes that came behind it."""
        assert self.names is not None
        places, extra = self.coercer.match(self.names)
        text = memoryview(self._buffer)[: len(self._rest) + count]
        wanted = {name: place for name, place in places.items() if name not in self._unread}
        block = _lines(text, self._buffer, final, len(self.names), self._delimiter, sorted(wanted.values()))
        if block is None:
            block = self._located(bytes(text), final)
        else:
            places = wanted
        result: Coerced | None = None
        if block.rows:
            block.first_line = self.line
            result = self._columns(block, places, extra)
            if result.rejected and not block.data:
                block.data = bytes(text)
            shift_places(result, self.records)
            self.records += block.rows
        self.line += block.lines
        self._rest = bytes(text[block.stop :])
        return result

    def _located(self, data: bytes, final: bool) -> _Block:
        """Find the complete records one by one, so that bad ones can be told."""
        assert self.names is not None
        width = len(self.names)
        bounds = split_regular(data, self._delimiter, final)
        if bounds is not None:
            return _from_bounds(data, bounds, width, self._delimiter)
        records = list(tokenize(data, self._delimiter, final))
        return _from_records(records, data, width, len(data) if final else _consumed(records, data))

    def _columns(self, block: _Block, places: dict[str, int], extra: tuple[str, ...]) -> Coerced:
        converted: list[Converted | None] = []
        for position, column_field in enumerate(self.coercer.schema.fields):
            place = places.get(column_field.name)
            converted.append(None if place is None else self._column(block.columns[place], position))
        return self.coercer.put_together(converted, block.bad, extra, block.raw_of, block.line_of)

    def _column(self, raw: Any, position: int) -> Converted:
        """Read one column of fields."""
        type_ = self.coercer.schema.fields[position].type
        failed: Failed = {}
        try:
            texts = pc.cast(raw, pa.string())
        except pa.ArrowInvalid:
            column, failed = from_bytes(raw, TEXT, Rules())
            texts = column.values
        if self.coercer.has_format(position):
            column, odd = self.coercer.in_format(texts, position)
            return column, {**odd, **failed}
        rules = self.coercer.rules_of(position)
        if not type_.is_ordered:
            column, unread = column_of(texts, type_, rules)
            return column, {**unread, **failed}
        if type_.kind is Kind.TIMESTAMP and rules.unit is not None:
            return _in_units(texts, rules.unit, rules, failed)
        column, unread = written_out(texts, type_, rules)
        return column, {**unread, **failed}


def _in_units(texts: Any, unit: str, rules: Rules, failed: Failed) -> Converted:
    """Read a TIMESTAMP with a UNIT: digits alone are in that unit, anything else is a time written out."""
    numbers, written = parse_column(texts, BIGINT), parse_column(texts, TIMESTAMP, rules.zone, exact=not rules.unit_round)
    values, bad = instants_from_units(numbers.column.values, unit)
    index = list(numbers.failed)
    values = values.copy()
    values[index] = written.column.values[index]
    problems = {i: written.failed[i] for i in index if i in written.failed}
    if bad is not None:
        problems.update((i, OUT_OF_RANGE) for i in np.flatnonzero(bad).tolist() if i not in numbers.failed)
    return Column(TIMESTAMP, values, validity_of(texts)), {**problems, **failed}


class _Block:
    """The fields of some records, a column of text or bytes for each name that is wanted; bad records hold NULLs.

    They are the first `stop` bytes of the text, in so many lines. `places` are where records start and end; without it each is a line.
    """

    def __init__(
        self, columns: list[Any], bad: Reasons, stop: int, data: bytes = b"", places: tuple[list[int], list[int]] | None = None
    ) -> None:
        self.columns = columns
        self.bad = bad
        self.rows = bad.rows
        self.stop = stop
        self.lines = bad.rows if places is None else data.count(b"\n", 0, stop)
        self.first_line = 1
        self.data = data
        self._places = places

    def raw_of(self, index: int) -> bytes:
        """Return the record's bytes, as they were."""
        if self._places is None:
            feeds = np.flatnonzero(np.frombuffer(self.data, dtype=np.uint8) == LINE_FEED).tolist()
            self._places = [0, *(at + 1 for at in feeds)], [*feeds, len(self.data)]
        starts, ends = self._places
        return self.data[starts[index] : ends[index]].rstrip(b"\r\n")

    def line_of(self, index: int) -> int:
        """Return the 1-based line on which the record begins."""
        before = index if self._places is None else self.data.count(b"\n", 0, self._places[0][index])
        return self.first_line + before


def shift_places(result: Coerced, before: int) -> None:
    """Count places from the start of the text and not of the block."""
    result.rejected = [replace(r, index=r.index + before) for r in result.rejected]
    if result.index is not None:
        result.index = result.index + before


def _consumed(records: list[CsvRecord], data: bytes) -> int:
    """Return where the first incomplete record begins."""
    return records[-1].end if records else 0


def field_count_problem(found: int, wanted: int) -> str:
    """Return the reason for a record with the wrong number of fields."""
    return f"{found} field{'' if found == 1 else 's'} where the header has {wanted}"


def _lines(text: memoryview, buffer: bytearray, final: bool, width: int, delimiter: int, wanted: Sequence[int]) -> _Block | None:
    """Make a block of the complete records of the text at the start of a buffer, where each is a line with all its fields; else None.

    Arrow finds them then, and makes columns of text only of the fields at `wanted`. Nothing is in quotes, and all is UTF-8.
    """
    size = len(text)
    stop = buffer.rfind(b"\n", 0, size) + 1
    if final and stop < size:
        buffer[size : size + 1] = b"\n"
        stop = size + 1
    if width == 1 or not stop or buffer.startswith(BYTE_ORDER_MARK) or buffer.find(b'"', 0, stop) >= 0:
        return None
    codes = np.frombuffer(buffer, dtype=np.uint8, count=stop)
    if (buffer.find(b"\r", 0, stop) >= 0 and not _returns_end_lines(codes)) or not _is_utf8(codes):
        return None
    columns = _arrow_fields(memoryview(buffer)[:stop], width, delimiter, wanted, are_lines=True)
    read = [column for column in columns or () if column is not None]
    if columns is None or _have_an_empty_row(read):
        return None
    block = _Block(columns, Reasons(len(read[0])), min(stop, size))
    block.lines -= stop > size
    return block


def _returns_end_lines(codes: Any) -> bool:
    """Whether every carriage return belongs to a line end: a lone one is a line end to Arrow, to us it is text."""
    return bool((codes[np.flatnonzero(codes == CARRIAGE_RETURN) + 1] == LINE_FEED).all())


def _is_utf8(codes: Any) -> bool:
    if codes.max() < 128:
        return True
    whole = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(np.array([0, len(codes)], dtype=np.int64)), pa.py_buffer(codes)]
    )
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _have_an_empty_row(columns: Sequence[Any]) -> bool:
    """Whether all columns are NULL in some row: Arrow then may have read an empty line, which is no record."""
    empty = np.ones(len(columns[0]) if columns else 0, dtype=np.bool_)
    for column in sorted(columns, key=lambda column: int(column.null_count)):
        if not column.null_count:
            return False
        empty &= ~mask_from_arrow(pc.is_valid(column))
    return bool(empty.any())


def _from_records(records: list[CsvRecord], data: bytes, width: int, stop: int) -> _Block:
    """Make a block of tokenized records."""
    bad = Reasons(len(records))
    for i, record in enumerate(records):
        if record.problem is not None:
            bad.add(i, record.problem)
        elif len(record.fields) != width:
            bad.add(i, field_count_problem(len(record.fields), width))
    nothing: tuple[bytes | None, ...] = (None,) * width
    rows = [nothing if i in bad.by_row else r.fields for i, r in enumerate(records)]
    columns = [pa.array([r[c] for r in rows], pa.binary()) for c in range(width)]
    return _Block(columns, bad, stop, data, ([r.start for r in records], [r.end for r in records]))


def _from_bounds(data: bytes, bounds: Bounds, width: int, delimiter: int) -> _Block:
    """Make a block of regular records: those with the right number of fields are parsed by Arrow at once."""
    rows, stop = len(bounds.starts), bounds.consumed
    bad = Reasons(rows)
    right = bounds.fields == width
    text = data[:stop]
    if text.count(b"\r") != text.count(b"\r\n"):  # to Arrow a lone carriage return is a line end, to us it is text
        return _from_records(list(tokenize(text, delimiter, True)), data, width, stop)
    if not right.all():
        for i in np.flatnonzero(~right).tolist():
            bad.add(i, field_count_problem(int(bounds.fields[i]), width))
        text = b"".join(data[bounds.starts[i] : bounds.ends[i]] + b"\n" for i in np.flatnonzero(right).tolist())
    places = bounds.starts.tolist(), bounds.ends.tolist()
    if not right.any():
        return _Block([pa.nulls(rows, pa.binary())] * width, bad, stop, data, places)
    columns = _arrow_fields(text, width, delimiter, range(width))
    if columns is None or len(columns[0]) != int(right.sum()):
        return _from_records(list(tokenize(data[:stop], delimiter, True)), data, width, stop)
    if bad.by_row:
        place = np.cumsum(right) - 1
        columns = [c.take(pa.array(place, mask=~right)) for c in columns]
    return _Block(columns, bad, stop, data, places)


def _arrow_fields(text: bytes | memoryview, width: int, delimiter: int, wanted: Sequence[int], are_lines: bool = False) -> list[Any] | None:
    """Parse records that all have `width` fields into columns of bytes, those at `wanted`; None when Arrow reads the records otherwise.

    `are_lines`: the text is UTF-8 and the columns are too, a line end ends a record, and an empty line is a record of NULLs.
    """
    names = [str(i) for i in range(width)]
    if text[-1] != LINE_FEED:
        text = bytes(text) + b"\n"  # without it Arrow takes an empty last field for a quoted one
    asked = [names[i] for i in wanted] or names[:1]
    try:
        table = pacsv.read_csv(
            pa.BufferReader(pa.py_buffer(text)),
            read_options=pacsv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(text) + 1, 1024)),
            parse_options=pacsv.ParseOptions(delimiter=chr(delimiter), newlines_in_values=not are_lines, ignore_empty_lines=not are_lines),
            convert_options=pacsv.ConvertOptions(
                include_columns=asked,
                column_types=dict.fromkeys(asked, pa.string() if are_lines else pa.binary()),
                check_utf8=False,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    columns: list[Any] = [None] * width
    for name, column in zip(asked, table.columns, strict=True):
        columns[int(name)] = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return columns
