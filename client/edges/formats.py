"""Messages to rows, by a format, and which part of a message fills which column; results to messages.

    columns = 'sensor = topic[1], value = payload.v, at = payload.times[0]'

A path begins with `payload` (what the format reads), `topic` (its parts between slashes, from 0), `key` or `time`. Without `columns` the
names of the payload are the columns. What cannot be read becomes a row that the stream refuses, so it goes the stream's ON ERROR way.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from millstream.client.edges.contract import ConnectorError, ConnectorOptions, Message, Unreadable
from millstream.client.errors import MillstreamError
from millstream.client.inputs import converter
from millstream.protocol.connectors import FORMATS, TEXTS, WITH_SCHEMA
from millstream.protocol.types import Column
from millstream.protocol.values import DEPTH_MAX
from millstream.protocol.values.csv import separator_of
from millstream.protocol.values.json_values import is_too_deep, not_json
from millstream.protocol.values.mapping import ColumnMap
from millstream.protocol.values.time_formats import TimeFormat

CONTENT_TYPES = {"json": "application/json", "avro": "application/avro", "protobuf": "application/protobuf"}
UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0.001}
SHOWN_BYTES_MAX = 4_096
MESSAGE_BYTES_MAX = 1 << 20
UNREADABLE = "unreadable message: "
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PATH = re.compile(r"(payload|topic|key|time)((?:\.[A-Za-z_][A-Za-z0-9_\-]*|\[[0-9]{1,4}\])*)\Z")
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_\-]*)|\[([0-9]+)\]")
_PATTERN_CHARS_MAX = 1_000
_SENT = (bool, int, float, str, bytes, Decimal, dt.date, dt.time, dt.timedelta)

Path = tuple[str | int, ...]


def parse_columns(text: str) -> dict[str, Path]:
    """Return the path of each column. ConnectorError naming the part that is none."""
    found: dict[str, Path] = {}
    for part in text.split(","):
        name, equals, path = (piece.strip() for piece in part.partition("="))
        matched = _PATH.match(path)
        if not equals or not name or matched is None:
            raise ConnectorError(f"columns: {part.strip()!r:.60} is not 'column = path', as in 'v = payload.v' or 'sensor = topic[1]'")
        if name in found:
            raise ConnectorError(f"columns: {name} is named twice")
        steps = [int(index) if index else word for word, index in _STEP.findall(matched[2])]
        found[name] = (matched[1], *steps)
    return found


def _json(value: bytes) -> Any:
    try:
        found = json.loads(value)
        if b"\\u" in value:
            json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair is no text that could be sent
        return found  # noqa: TRY300
    except UnicodeEncodeError:
        raise Unreadable("half of a surrogate pair in it") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(not_json(error) if isinstance(error, ValueError) else "not JSON: nested too deeply") from None


def _record(value: bytes, separator: str = ",") -> list[str]:
    try:
        records = list(csv.reader([value.decode("utf-8-sig")], delimiter=separator, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise Unreadable(f"not CSV ({error})") from None
    return records[0] if records else []


class _CsvReader:
    """Reads records by the names of the option `header`, else of the first line of their file, else of the stream's columns."""

    def __init__(self, header: str | None, columns: Sequence[str], paths: Mapping[str, Path] | None) -> None:
        self._columns = columns
        self._asked = [str(path[1]) for path in (paths or {}).values() if path[0] == "payload" and len(path) > 1]
        self._is_given = header is not None
        self._names = list(columns) if header is None else [name.strip() for name in header.split(",")]
        self._line: bytes | None = None
        self._separator = ","
        self._problem = ""

    def read(self, message: Message) -> dict[str, str | None]:
        assert isinstance(message.value, bytes)
        if not self._is_given and message.header is not None and message.header != self._line:
            self._take_header(message.header)
        fields, names = _record(message.value, self._separator), self._names
        if self._problem:
            raise Unreadable(self._problem)
        if len(fields) != len(names):
            raise Unreadable(
                f"{len(fields)} fields where the header has {len(names)}; header = 'a, b' names the fields: {', '.join(names)}"
            )
        return {name: field or None for name, field in zip(names, fields, strict=True)}

    def _take_header(self, line: bytes) -> None:
        self._separator = chr(separator_of(line))
        self._line, self._names, self._problem = line, [name.strip() for name in _record(line, self._separator)], ""
        missing = next((name for name in self._asked if name not in self._names), None)
        if missing is not None:
            self._problem = f"the first line of the file has no {missing}, it has {', '.join(self._names)}"
        elif not self._asked and not set(self._names) & set(self._columns):
            self._problem = f"the first line of the file names no column; header = '{', '.join(self._columns)}' says what the fields are"


def _text_reader(pattern: str | None) -> Callable[[bytes], Any]:
    if pattern is None:
        raise ConnectorError("format = 'text' needs pattern = '…', a regular expression with named groups, as in '(?P<v>[0-9]+)'")
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ConnectorError(f"pattern: {error}") from None
    if len(pattern) > _PATTERN_CHARS_MAX:
        raise ConnectorError(f"pattern: {len(pattern)} characters, {_PATTERN_CHARS_MAX} are the most")
    if not expression.groupindex:
        raise ConnectorError("pattern: name its groups after columns, as in '(?P<v>[0-9]+)'")

    def read(value: bytes) -> Any:
        try:
            matched = expression.search(value.decode())
        except UnicodeDecodeError:
            raise Unreadable("not UTF-8") from None
        if matched is None:
            raise Unreadable("does not match the pattern")
        return matched.groupdict()

    return read


class RowReader:
    """Makes rows of messages for a stream's columns."""

    def __init__(self, options: ConnectorOptions, columns: Sequence[Column]) -> None:
        form = options.text("format", "json")
        if form not in FORMATS:
            raise ConnectorError(f"there is no format {form}; there are {', '.join(FORMATS)}")
        self._csv: _CsvReader | None = None
        said = options.maybe("columns")
        self._paths = None if said is None else parse_columns(said)
        if form == "csv":
            self._csv = _CsvReader(options.maybe("header"), [column.name for column in columns], self._paths)
        elif form in WITH_SCHEMA:
            schema_reader = _schema_format(form).reader(options)
            self._read, options.growth = schema_reader.read, schema_reader.growth
        else:
            self._read = _json if form == "json" else _text_reader(options.maybe("pattern"))
        names = {column.name for column in columns}
        for name in self._paths or ():
            if name not in names:
                raise ConnectorError(f"columns: the stream has no column {name}; it has {', '.join(sorted(names))}")
        unit = options.maybe("time_unit")
        if unit is not None and unit not in UNITS_US:
            raise ConnectorError(f"time_unit must be one of {', '.join(UNITS_US)}")
        self._unit_us = None if unit is None else UNITS_US[unit]
        written = options.maybe("time_format")
        self._names = names
        self._converters = {c.name: converter(c) for c in columns} if form in ("csv", "text") else {}
        self._instants = {c.name for c in columns if c.type.name == "TIMESTAMP"}
        self._times = None if written is None else ColumnMap(formats=dict.fromkeys(self._instants, _time_format(written)))

    def rows(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return a row for each message; for one that cannot be read, one that the stream refuses with the reason and the message."""
        rows = [self._row(message) for message in messages]
        for i, reason in (self._times.bring_times(rows) if self._times is not None else {}).items():
            rows[i] = _unreadable(messages[i], reason)
        return rows

    def _row(self, message: Message) -> dict[str, Any]:
        try:
            payload = self._payload(message)
            return self._typed(self._filled(message, payload))
        except (Unreadable, OverflowError, ValueError, MillstreamError) as error:
            return _unreadable(message, str(error))

    def _filled(self, message: Message, payload: Any) -> dict[str, Any]:
        if self._paths is not None:
            return {name: _at(path, message, payload) for name, path in self._paths.items()}
        if not isinstance(payload, Mapping):
            raise Unreadable("not an object with the columns' names; say which part fills which column with columns = '…'")
        return {name: value for name, value in payload.items() if name in self._names}

    def _payload(self, message: Message) -> Any:
        if message.size > MESSAGE_BYTES_MAX:
            raise Unreadable(f"{message.size} bytes, {MESSAGE_BYTES_MAX} are the most")
        if isinstance(message.value, Mapping):
            return {name: _plain(value) for name, value in message.value.items()}
        return self._read(message.value) if self._csv is None else self._csv.read(message)

    def _typed(self, row: dict[str, Any]) -> dict[str, Any]:
        for name, value in row.items():
            if isinstance(value, str) and name in self._converters:
                row[name] = value = self._converters[name](value)
            elif self._unit_us is not None and name in self._instants and type(value) in (int, float):
                row[name] = _EPOCH + dt.timedelta(microseconds=round(value * self._unit_us))
            if isinstance(value, dict | list) and is_too_deep(value):
                raise Unreadable(f"{name} is nested deeper than {DEPTH_MAX} levels")
        return row


def _unreadable(message: Message, reason: str) -> dict[str, Any]:
    """Return a row that the stream refuses, with the reason and the message."""
    raw = message.value if isinstance(message.value, bytes) else repr(message.value).encode()
    return {f"{UNREADABLE}{reason}"[:200]: raw[:SHOWN_BYTES_MAX].decode("utf-8", "backslashreplace")}


def _time_format(text: str) -> TimeFormat:
    try:
        return TimeFormat(text)
    except ValueError as error:
        raise ConnectorError(f"time_format: {error}") from None


def _at(path: Path, message: Message, payload: Any) -> Any:
    """Return what stands at a path, None where there is nothing."""
    root, *steps = path
    if root == "topic":
        found: Any = message.topic.split("/") if steps else message.topic
    elif root == "key":
        found = None if message.key is None else message.key.decode("utf-8", "replace")
    elif root == "time":
        found = None if message.time_us is None else _EPOCH + dt.timedelta(microseconds=message.time_us)
    else:
        found = payload
    for step in steps:
        if isinstance(step, int):
            found = found[step] if isinstance(found, list) and step < len(found) else None
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _plain(value: Any) -> Any:
    """Return a value of another library as one that can be sent: those that have no type here as their text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, _SENT) else str(value)


def check_is_text(options: ConnectorOptions, what: str) -> None:
    """ConnectorError when the messages of the format can be any bytes, and `what` the connector reads cannot."""
    form = options.text("format", "json")
    if form in WITH_SCHEMA:
        raise ConnectorError(f"{options.name}: {what} cannot hold a message of format {form}; there are {', '.join(TEXTS)}")


@dataclass(frozen=True, slots=True)
class _SchemaFormat:
    """The reader and the writer of a format whose library is an extra."""

    reader: Callable[[ConnectorOptions], Any]
    writer: Callable[[ConnectorOptions], Any]


def _schema_format(form: str) -> _SchemaFormat:
    """Return a format. ConnectorError when its library is not installed."""
    try:
        if form == "avro":
            from millstream.client.edges.avro import AvroReader, AvroWriter

            return _SchemaFormat(AvroReader, AvroWriter)
        from millstream.client.edges.protobuf import ProtobufReader, ProtobufWriter

        return _SchemaFormat(ProtobufReader, ProtobufWriter)
    except ImportError as error:
        raise ConnectorError(
            f"format = '{form}' needs a library that is not installed ({error}): pip install 'millstream[{form}]'"
        ) from error


def encoder(options: ConnectorOptions, formats: Sequence[str] = tuple(CONTENT_TYPES)) -> Callable[[Any], list[bytes]]:
    """Return what makes a message of each row of an Arrow batch, by the option `format`. ConnectorError when it is none of `formats`."""
    form = options.text("format", "json")
    if form not in formats:
        raise ConnectorError(f"{options.name}: this sink does not write format {form}; it writes {', '.join(formats)}")
    if form == "json":
        return json_lines
    messages: Callable[[Any], list[bytes]] = _schema_format(form).writer(options).messages
    return messages


def json_lines(batch: Any) -> list[bytes]:
    """Return the rows of an Arrow batch as JSON objects, in the form that JSON has everywhere in Millstream."""
    from millstream.protocol.values.text import json_lines

    return json_lines(batch).split(b"\n")[:-1]
