r"""Where the records of CSV text lie (RFC 4180), and what their fields are: for `run` and `publish` alike.

A record ends at a line end (\n or \r\n) outside quotes. A quote opens only at the start of a field; inside quotes "" is a quote. Two
ways lead to the records: `split_regular` finds their bounds with NumPy when every quote stands where it should, `tokenize` reads
any text and says what is wrong with it. After a quote that is never closed it goes on at the next line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

QUOTE, LINE_FEED, CARRIAGE_RETURN = 34, 10, 13
COMMA = ord(",")
OTHER_SEPARATORS = b";\t|"  # of programs in countries that write 0,5; of spreadsheets; of databases
RECORD_BYTES_MAX = 64 * 1024 * 1024  # a quoted field longer than this counts as never closed

_QUOTED = re.compile(rb'"((?:[^"]|"")*+)"')


@dataclass(frozen=True, slots=True)
class CsvRecord:
    """One record found by `tokenize`: its bytes in [start, end), line end included, and its fields; or what is wrong with it.

    A field is bytes, or None when it is empty and unquoted (NULL).
    """

    start: int
    end: int
    fields: tuple[bytes | None, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The records of a block of regular CSV: start and end (line end excluded) of each, and its number of fields."""

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    fields: npt.NDArray[np.int64]
    consumed: int


def separator_of(data: bytes) -> int:
    """Return what parts the fields of text whose first line is a header: a comma, or where it has none a semicolon, a tab or a bar."""
    header = data.lstrip(b"\r\n").partition(b"\n")[0]
    return COMMA if b"," in header else next((one for one in OTHER_SEPARATORS if one in header), COMMA)


def split_regular(data: bytes, delimiter: int, final: bool) -> Bounds | None:
    """Return the bounds of the complete records in `data` (with `final` the last one needs no line end), None when irregular.

    Blank lines are no records. `consumed` is where the first incomplete record begins.
    """
    codes = np.frombuffer(data, dtype=np.uint8)
    breaks, commas = codes == LINE_FEED, codes == delimiter
    quotes = codes == QUOTE
    if quotes.any():
        inside = np.bitwise_xor.accumulate(quotes)
        if inside[-1] and final:
            return None
        if not _quotes_are_regular(codes, np.flatnonzero(quotes), delimiter):
            return None
        breaks &= ~inside
        commas &= ~inside
    ends = np.flatnonzero(breaks)
    if final and len(codes) and not breaks[-1]:
        ends = np.append(ends, len(codes))
    starts = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1] + 1)) if len(ends) else ends
    consumed = 0 if not len(ends) else min(int(ends[-1]) + 1, len(codes))
    places = np.flatnonzero(commas)
    fields = np.searchsorted(places, ends) - np.searchsorted(places, starts) + 1
    trimmed = ends - ((ends > starts) & (codes[np.maximum(ends - 1, 0)] == CARRIAGE_RETURN))
    present = trimmed > starts
    return Bounds(starts[present], trimmed[present], fields[present], consumed)


def _quotes_are_regular(codes: Any, places: Any, delimiter: int) -> bool:
    """An opening quote follows a field's start or another quote; a closing one precedes a field's end or another quote."""
    opening, closing = places[0::2], places[1::2]
    before = np.where(opening > 0, codes[opening - 1], LINE_FEED)
    fine = (before == delimiter) | (before == LINE_FEED) | (before == QUOTE)
    if not fine.all():
        return False
    last = len(codes) - 1
    after = np.where(closing < last, codes[np.minimum(closing + 1, last)], LINE_FEED)
    fine = (after == delimiter) | (after == LINE_FEED) | (after == CARRIAGE_RETURN) | (after == QUOTE)
    return bool(fine.all())


def tokenize(data: bytes, delimiter: int, final: bool) -> Iterator[CsvRecord]:
    """Yield the complete records of any CSV text one by one, bad ones with their problem. Blank lines are passed over."""
    comma = bytes((delimiter,))
    plain = re.compile(rb"[^\n" + re.escape(comma) + rb"]*")
    position = 0
    while position < len(data):
        record = _record_at(data, position, comma, plain, final)
        if record is None:
            return
        if record.fields or record.problem is not None:
            yield record
        position = record.end


def _record_at(data: bytes, start: int, comma: bytes, plain: re.Pattern[bytes], final: bool) -> CsvRecord | None:
    """Read the record that begins at `start`; None when it is not complete yet."""
    fields: list[bytes | None] = []
    position, problem = start, None
    while True:
        if data[position : position + 1] == b'"':
            match = _QUOTED.match(data, position)
            if match is None:
                return _unclosed(data, start, final)
            fields.append(match[1].replace(b'""', b'"'))
            position = match.end()
            if data[position : position + 1] not in (comma, b"\n", b"") and data[position : position + 2] != b"\r\n":
                if data[position : position + 1] == b"\r" and position + 1 == len(data):
                    position += 1
                elif b"\n" in data[start:position]:
                    return _first_line(data, start)
                else:
                    problem = problem or "text after a closing quote"
                    position = _end_of(plain, data, position)
        else:
            stop = _end_of(plain, data, position)
            fields.append(_unquoted(data, position, stop))
            position = stop
        if data[position : position + 2] == b"\r\n":
            position += 1
        mark = data[position : position + 1]
        if mark == comma:
            position += 1
        elif mark == b"\n":
            return _made(start, position + 1, fields, problem)
        else:
            return _made(start, position, fields, problem) if final else None


def _end_of(plain: re.Pattern[bytes], data: bytes, position: int) -> int:
    match = plain.match(data, position)
    assert match is not None
    return match.end()


def _unquoted(data: bytes, start: int, stop: int) -> bytes | None:
    """Return the field's bytes, without the \r of a line end; None when there are none."""
    at_line_end = stop == len(data) or data[stop : stop + 1] == b"\n"
    if at_line_end and data[start:stop].endswith(b"\r"):
        stop -= 1
    return data[start:stop] or None


def _made(start: int, end: int, fields: list[bytes | None], problem: str | None) -> CsvRecord:
    blank = len(fields) == 1 and fields[0] is None
    return CsvRecord(start, end, () if blank else tuple(fields), problem)


def _unclosed(data: bytes, start: int, final: bool) -> CsvRecord | None:
    """A quote without end: wait for more text, or give up the line and go on at the next one."""
    if not final and len(data) - start < RECORD_BYTES_MAX:
        return None
    return _first_line(data, start)


def _first_line(data: bytes, start: int) -> CsvRecord:
    """Give up only the line on which the quote opened, as what follows is most likely sound."""
    stop = data.find(b"\n", start)
    return CsvRecord(start, len(data) if stop < 0 else stop + 1, (), "a quote is never closed")
