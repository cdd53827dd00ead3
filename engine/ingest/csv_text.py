"""CSV text to columns: header, quoting, line numbers, bad rows one by one (C28).

Columns go by the header's names. An empty field is NULL, a quoted empty one is the empty text. A record with too many or too few
fields, with bytes that are not UTF-8, or with a value that does not fit is refused alone; the others of its block still load.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from millstream.engine.data.arrow import validity_of
from millstream.engine.data.column import Column
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.types import BIGINT, TEXT, TIMESTAMP, Kind
from millstream.engine.expressions.text_columns import parse_column
from millstream.engine.ingest.arrays import Rules, from_bytes, written_out
from millstream.engine.ingest.checks import OUT_OF_RANGE, Coerced, Converted, Failed, Reasons, instants_from_units
from millstream.engine.ingest.coerce import Coercer, column_of
from millstream.protocol.values import arrow_functions as pc
from millstream.protocol.values.csv import COMMA, CsvRecord, separator_of, split_regular, tokenize

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK_BYTES = 4 * 1024 * 1024


class CsvParser:
    """Takes CSV text piece by piece: `feed` bytes as they come, then `finish`. Each gives what became of the complete records.

    The first record is the header; `on_header` may refuse it. Without `delimiter` the header tells it (`separator_of`). `index` of
    results counts records from 0 over the whole text, lines from 1.
    """

    def __init__(
        self,
        coercer: Coercer,
        *,
        delimiter: str | None = None,
        on_header: Callable[[list[str]], None] | None = None,
    ) -> None:
        self.coercer = coercer
        self.names: list[str] | None = None
        self._on_header = on_header
        self.line = 1
        self.records = 0
        self._is_given = delimiter is not None
        self._delimiter = COMMA if delimiter is None else ord(delimiter)
        self._rest = b""
        self._begun = False

    def feed(self, data: bytes) -> Coerced | None:
        """Take more text; None while no record of it is complete."""
        return self._take(self._rest + data, final=False)

    def finish(self) -> Coerced | None:
        """Take what is left as the last record; None when nothing is."""
        return self._take(self._rest, final=True)

    def _take(self, data: bytes, final: bool) -> Coerced | None:
        if not self._begun:
            if not final and len(data) < len(BYTE_ORDER_MARK):
                self._rest = data
                return None
            self._begun = True
            data = data.removeprefix(BYTE_ORDER_MARK)
        self._rest = data
        if self.names is None and not self._read_header(final):
            return None
        return self._read_block(self._rest, final)

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

    def _read_block(self, data: bytes, final: bool) -> Coerced | None:
        names = self.names
        assert names is not None
        bounds = split_regular(data, self._delimiter, final)
        if bounds is None:
            records = list(tokenize(data, self._delimiter, final))
            consumed = len(data) if final else _consumed(records, data)
            block = _from_records(records, data, len(names))
        else:
            consumed = bounds.consumed
            block = _from_bounds(data, bounds, len(names), self._delimiter)
        if block is None:
            self._advance(data, consumed)
            return None
        block.first_line = self.line
        result = self._columns(block, names)
        shift_places(result, self.records)
        self.records += block.rows
        self._advance(data, consumed)
        return result

    def _advance(self, data: bytes, consumed: int) -> None:
        self.line += data.count(b"\n", 0, consumed)
        self._rest = data[consumed:]

    def _columns(self, block: _Block, names: list[str]) -> Coerced:
        places, extra = self.coercer.match(names)
        converted: list[Converted | None] = []
        for position, column_field in enumerate(self.coercer.schema.fields):
            place = places.get(column_field.name)
            converted.append(None if place is None else self._column(block.columns[place], position))
        return self.coercer.put_together(converted, block.bad, extra, block.raw_of, block.line_of)

    def _column(self, raw: Any, position: int) -> Converted:
        """Read one column of field bytes."""
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
    """The fields of some records, a column of bytes for each name; bad records hold NULLs."""

    def __init__(self, columns: list[Any], rows: int, data: bytes, starts: list[int], ends: list[int], bad: Reasons) -> None:
        self.columns = columns
        self.rows = rows
        self.bad = bad
        self.first_line = 1
        self._data = data
        self._starts = starts
        self._ends = ends

    def raw_of(self, index: int) -> bytes:
        """Return the record's bytes, as they were."""
        return self._data[self._starts[index] : self._ends[index]].rstrip(b"\r\n")

    def line_of(self, index: int) -> int:
        """Return the 1-based line on which the record begins."""
        return self.first_line + self._data.count(b"\n", 0, self._starts[index])


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


def _from_records(records: list[CsvRecord], data: bytes, width: int) -> _Block | None:
    """Make a block of tokenized records."""
    if not records:
        return None
    bad = Reasons(len(records))
    for i, record in enumerate(records):
        if record.problem is not None:
            bad.add(i, record.problem)
        elif len(record.fields) != width:
            bad.add(i, field_count_problem(len(record.fields), width))
    nothing: tuple[bytes | None, ...] = (None,) * width
    rows = [nothing if i in bad.by_row else r.fields for i, r in enumerate(records)]
    columns = [pa.array([r[c] for r in rows], pa.binary()) for c in range(width)]
    return _Block(columns, len(rows), data, [r.start for r in records], [r.end for r in records], bad)


def _from_bounds(data: bytes, bounds: Any, width: int, delimiter: int) -> _Block | None:
    """Make a block of regular records: those with the right number of fields are parsed by Arrow at once."""
    rows = len(bounds.starts)
    if rows == 0:
        return None
    bad = Reasons(rows)
    right = bounds.fields == width
    text = data[: bounds.consumed]
    if text.count(b"\r") != text.count(b"\r\n"):  # to Arrow a lone carriage return is a line end, to us it is text
        return _from_records(list(tokenize(text, delimiter, True)), data, width)
    if not right.all():
        for i in np.flatnonzero(~right).tolist():
            bad.add(i, field_count_problem(int(bounds.fields[i]), width))
        text = b"".join(data[bounds.starts[i] : bounds.ends[i]] + b"\n" for i in np.flatnonzero(right).tolist())
    starts, ends = bounds.starts.tolist(), bounds.ends.tolist()
    if not right.any():
        return _Block([pa.nulls(rows, pa.binary())] * width, rows, data, starts, ends, bad)
    columns = _arrow_fields(text, width, delimiter)
    if columns is None or len(columns[0]) != int(right.sum()):
        return _from_records(list(tokenize(data[: bounds.consumed], delimiter, True)), data, width)
    if bad.by_row:
        place = np.cumsum(right) - 1
        columns = [c.take(pa.array(place, mask=~right)) for c in columns]
    return _Block(columns, rows, data, starts, ends, bad)


def _arrow_fields(text: bytes, width: int, delimiter: int) -> list[Any] | None:
    """Parse records that all have `width` fields into columns of bytes; None when Arrow reads them otherwise."""
    names = [str(i) for i in range(width)]
    if not text.endswith(b"\n"):
        text += b"\n"  # without it Arrow takes an empty last field for a quoted one
    try:
        table = pacsv.read_csv(
            io.BytesIO(text),
            read_options=pacsv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(text) + 1, 1024)),
            parse_options=pacsv.ParseOptions(delimiter=chr(delimiter), newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()),
                check_utf8=False,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    return [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns]
