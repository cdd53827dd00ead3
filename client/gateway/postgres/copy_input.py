"""What a peer sends in COPY FROM STDIN, as rows: text, CSV or binary, in pieces cut anywhere."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from millstream.client.gateway.postgres import limits
from millstream.client.gateway.postgres.input_values import text_of_binary, value_of
from millstream.client.gateway.postgres.output_values import COPY_SIGNATURE
from millstream.client.gateway.postgres.sqlstates import BAD_COPY, LIMIT, PgError
from millstream.client.gateway.postgres.statements import CopyForm
from millstream.client.gateway.postgres.types import oid_of
from millstream.protocol.types import Column
from millstream.protocol.values.csv import tokenize

AT_ONCE_BYTES = 65_536  # pieces are gathered to so many bytes, so that a record in small pieces is not looked through for each of them
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)
_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class CopyInput:
    """Rows of COPY as dicts by column, with values as the publisher takes them. `PgError` for what is no row of this form."""

    def __init__(self, form: CopyForm, columns: Sequence[Column]) -> None:
        self._form = form
        self._columns = list(columns)
        self._buffer = bytearray()
        self._looked_at = 0  # bytes of the buffer that hold no whole record
        self._skip = form.header and form.name != "binary"
        self._is_begun = self._is_ended = False
        self._records = 0

    def feed(self, data: bytes, *, last: bool = False) -> list[dict[str, Any]]:
        """Return the rows that are whole with `data`, or some of them later; with `last` all."""
        self._buffer += data
        if not last and len(self._buffer) - self._looked_at < AT_ONCE_BYTES:
            return []
        found = {"text": self._text, "csv": self._csv, "binary": self._binary}[self._form.name](last)
        rows = [self._row(record) for record in found if not self._is_header()]
        self._looked_at = len(self._buffer)
        if self._looked_at > limits.COPY_BYTES_MAX:
            raise PgError(LIMIT, f"row {self._records + 1} is longer than {limits.COPY_BYTES_MAX} bytes")
        return rows

    def _is_header(self) -> bool:
        skip, self._skip = self._skip, False
        return skip

    def _row(self, record: Sequence[str | None]) -> dict[str, Any]:
        self._records += 1
        if len(record) != len(self._columns):
            raise self._bad(f"it has {len(record)} fields, not {len(self._columns)}")
        return {column.name: value_of(column.type, text) for column, text in zip(self._columns, record, strict=True)}

    def _bad(self, why: str) -> PgError:
        return PgError(BAD_COPY, f"row {self._records} of COPY cannot be read: {why}")

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as problem:
            raise PgError("22021", f"row {self._records + 1} of COPY is not UTF-8 (byte {problem.start})") from None

    def _taken(self, end: int) -> bytes:
        data = bytes(self._buffer[:end])
        del self._buffer[:end]
        return data

    def _text(self, last: bool) -> Iterator[list[str | None]]:
        end = len(self._buffer) if last else self._buffer.rfind(b"\n") + 1
        delimiter, null = self._form.delimiter.encode(), self._form.null.encode()
        lines = self._taken(end).split(b"\n")
        for line in lines if lines[-1] else lines[:-1]:
            line = line.removesuffix(b"\r")
            if line == b"\\.":
                self._is_ended = True
            if not self._is_ended:
                yield [None if field == null else self._decoded(_unescaped(field)) for field in line.split(delimiter)]

    def _csv(self, last: bool) -> Iterator[list[str | None]]:
        data, at = bytes(self._buffer), 0
        null = self._form.null.encode()
        for record in tokenize(data, ord(self._form.delimiter), last):
            at = record.end
            if record.problem is not None:
                self._records += 1
                raise self._bad(record.problem)
            if data[record.start : record.end].rstrip(b"\r\n") == b"\\.":
                self._is_ended = True
            if not self._is_ended:
                yield [None if field is None or (null and field == null) else self._decoded(field) for field in record.fields]
        del self._buffer[: len(data) if last else at]

    def _binary(self, last: bool) -> Iterator[list[str | None]]:
        data, at = bytes(self._buffer), 0
        try:
            if not self._is_begun:
                at = _binary_head(data)
                self._is_begun = True
            while not self._is_ended:
                record, at = self._binary_record(data, at)
                if record is not None:
                    yield record
        except struct.error:
            if last:
                self._records += 1
                raise self._bad("it ends too early") from None
        del self._buffer[: len(data) if self._is_ended else at]

    def _binary_record(self, data: bytes, at: int) -> tuple[list[str | None] | None, int]:
        """Return the record that begins at a place, and where the next begins; struct.error when it is not whole."""
        (count,) = struct.unpack_from(">h", data, at)
        if count == -1:
            self._is_ended = True
            return None, at + 2
        if count != len(self._columns):
            self._records += 1
            raise self._bad(f"it has {count} fields, not {len(self._columns)}")
        at += 2
        record: list[str | None] = []
        for column in self._columns:
            (length,) = struct.unpack_from(">i", data, at)
            at += 4
            if length < -1 or length > limits.COPY_BYTES_MAX:
                self._records += 1
                raise self._bad(f"a field says that it is {length} bytes long")
            if length > len(data) - at:
                raise struct.error
            record.append(None if length == -1 else text_of_binary(oid_of(column.type), data[at : at + length]))
            at += max(length, 0)
        return record, at


def _binary_head(data: bytes) -> int:
    """Return where the first record begins; struct.error when the head is not whole. `PgError` when it is none."""
    if not data.startswith(COPY_SIGNATURE[:11]) and len(data) >= 11:
        raise PgError(BAD_COPY, "this is not COPY's binary form")
    _, extension = struct.unpack_from(">iI", data, 11)
    if extension > limits.OTHER_BYTES_MAX:
        raise PgError(BAD_COPY, "the head of COPY's binary form is too long")
    if len(data) < 19 + extension:
        raise struct.error
    return 19 + int(extension)


def _unescaped(field: bytes) -> bytes:
    return _ESCAPE.sub(_unescape, field) if b"\\" in field else field


def _unescape(match: re.Match[bytes]) -> bytes:
    said = match[1]
    if said[:1] == b"x" and len(said) > 1:
        return bytes((int(said[1:], 16),))
    if said[:1] in b"01234567":
        return bytes((int(said, 8) & 0xFF,))
    return _ESCAPES.get(said, said)
