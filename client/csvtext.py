"""CSV as it comes: cut into records while the input is still growing, with quoting kept, because only quotes tell "" from NULL.

The rules are RFC 4180's, with the usual kindness: a byte order mark is dropped, lines may end in LF or CRLF, the last may
have no end, a quoted field may hold line ends and doubled quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
RECORD_BYTES_MAX = 16 * 1024 * 1024  # an open quote must not swallow an endless input
# A field and what ends it. Quoted: group 1. Bare: group 2. Something after a closing quote, or a quote inside a bare field: neither.
_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)')


class BadRecord(ValueError):
    """A record that is not CSV."""


Field = str | None
Record = tuple[int, list[Field] | BadRecord]


class CsvReader:
    """Feed it bytes; it gives records with the number of the line where each begins (from 1).

    A field is its text, or None if it is empty without quotes. A record that is not CSV comes as a BadRecord in its place, and
    reading goes on with the next line.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._line = 1
        self._started = False

    def feed(self, data: bytes, *, last: bool = False) -> Iterator[Record]:
        """Yield the records that are whole with `data`; with `last` also the unfinished one."""
        buffer = self._rest + data
        if not self._started and (len(buffer) >= len(_BYTE_ORDER_MARK) or last):
            self._started = True
            buffer = buffer.removeprefix(_BYTE_ORDER_MARK)
        if not self._started:
            self._rest = buffer
            return
        start = 0
        while (end := _record_end(buffer, start)) is not None:
            yield from self._record(buffer[start:end])
            start = end
        self._rest = buffer[start:]
        if last or len(self._rest) > RECORD_BYTES_MAX:
            rest, self._rest = self._rest, b""
            if rest:
                yield from self._record(rest)

    def _record(self, raw: bytes) -> Iterator[Record]:
        line = self._line
        self._line += raw.count(b"\n")
        if raw in (b"\n", b"\r\n"):
            return
        try:
            yield line, split_record(raw.decode("utf-8"))
        except UnicodeDecodeError:
            yield line, BadRecord("not UTF-8")
        except BadRecord as error:
            yield line, error


def _record_end(buffer: bytes, start: int) -> int | None:
    """Return where the record that begins at `start` ends: after the first line end that is outside quotes."""
    end = start
    while (newline := buffer.find(b"\n", end)) >= 0:
        end = newline + 1
        if buffer.count(b'"', start, end) % 2 == 0:
            return end
    return None


def split_record(text: str) -> list[Field]:
    """Return the fields of one record. BadRecord if quotes are out of place."""
    text = text.removesuffix("\n").removesuffix("\r")
    if '"' not in text:
        return [field or None for field in text.split(",")]
    fields: list[Field] = []
    at = 0
    while True:
        match = _FIELD.match(text, at)
        if match is None:
            raise BadRecord(f"field {len(fields) + 1}: a quote is out of place")
        quoted, bare, ending = match.groups()
        fields.append(quoted.replace('""', '"') if quoted is not None else bare or None)
        at = match.end()
        if ending != ",":
            if at != len(text):
                raise BadRecord(f"field {len(fields)}: a quote is out of place")
            return fields
