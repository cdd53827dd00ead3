"""Avro: messages of one schema, without the header of a file.

A schema is checked before a message is read by it, as the library itself sets no bounds: a record inside itself would let a message nest
as deep as it is long, and a list of nothings would let ten bytes say a billion items.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS, SchemaResolutionError
from fastavro.schema import SchemaParseException
from fastavro.validation import ValidationError
from millstream.client.edges.contract import DECODED_BYTES_MAX, ConnectorError, ConnectorOptions, Growth, Unreadable
from millstream.client.edges.schema_files import LEVELS_MAX, RECORD_BYTES, VALUE_BYTES, RegistryHeader, SchemaFile, field_bytes
from millstream.protocol.values.rows import rows_of

DECIMAL = "millstream-decimal"
DECIMAL_BYTES_MAX = 32  # of 76 digits; the library's own way takes minutes for a megabyte of digits
_BYTES_MIN = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "string": 1, "bytes": 1}
_BAD = (EOFError, IndexError, KeyError, TypeError, UnicodeDecodeError, SchemaResolutionError)


def _decimal(data: bytes, schema: Any = None, reader_schema: Any = None) -> Decimal:
    if len(data) > DECIMAL_BYTES_MAX:
        raise Unreadable(f"a decimal of {len(data)} bytes, {DECIMAL_BYTES_MAX} are the most")
    number = int.from_bytes(data, "big", signed=True)
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -schema.get("scale", 0)))


LOGICAL_READERS[f"bytes-{DECIMAL}"] = LOGICAL_READERS[f"fixed-{DECIMAL}"] = _decimal


@dataclass(frozen=True, slots=True)
class _Weight:
    """What a value takes: at least so many bytes of a message, at most so many of memory, and so many for each byte of a message."""

    least: int
    memory: int
    per_byte: float = 0.0

    @property
    def as_item(self) -> float:
        """Bytes of memory for each byte of a list of such values."""
        return max(self.per_byte, self.memory / self.least)


class AvroSchema:
    """A schema of a file that has been checked. ConnectorError names the file, and the line where there is one."""

    def __init__(self, options: ConnectorOptions) -> None:
        self._file = SchemaFile(options, "reading.avsc")
        try:
            self.raw = json.loads(self._file.content)
            self.parsed: Any = fastavro.parse_schema(self.raw)
        except json.JSONDecodeError as error:
            raise ConnectorError(f"schema: {self._file.path}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
        except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            self._file.fail(f"not an Avro schema: {_said(error)}", f'"{getattr(error, "name", None)}"')
        self._named: dict[str, _Weight | None] = {}  # None: while it is being looked at
        weight = self._weigh(self.parsed, LEVELS_MAX)
        self.growth = Growth(weight.memory, max(Growth().per_byte, weight.per_byte))
        if weight.memory > DECODED_BYTES_MAX // 2:
            self._file.fail("too many fields")

    def _weigh(self, schema: Any, levels: int) -> _Weight:
        if levels == 0:
            self._file.fail(f"types nested deeper than {LEVELS_MAX} levels")
        if isinstance(schema, list):
            parts = [self._weigh(part, levels) for part in schema]
            if not parts:
                self._file.fail("a union without types", "[]")
            per_byte = max(max(part.per_byte, part.memory / (1 + part.least)) for part in parts)
            return _Weight(1 + min(part.least for part in parts), max(part.memory for part in parts), per_byte)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self._weigh(kind, levels)
        if kind in _BYTES_MIN:
            return _Weight(_BYTES_MIN[kind], VALUE_BYTES)
        if kind in ("array", "map"):
            return self._weigh_many(schema, kind, levels)
        if not isinstance(schema, dict):
            return self._weigh_named(kind)
        name = schema["name"]
        if kind == "enum":
            self._named[name] = _Weight(1, VALUE_BYTES + max(map(len, schema["symbols"]), default=0))
        elif kind == "fixed":
            if not isinstance(schema["size"], int) or schema["size"] < 0:
                self._file.fail(f"the size of {name} is not a number of bytes", f'"{name}"')
            self._named[name] = _Weight(schema["size"], VALUE_BYTES)
        else:
            self._named[name] = None
            fields = [(field["name"], self._weigh(field["type"], levels - 1)) for field in schema["fields"]]
            memory = RECORD_BYTES + sum(field_bytes(name) + part.memory for name, part in fields)
            self._named[name] = _Weight(
                sum(part.least for _, part in fields), memory, max((part.per_byte for _, part in fields), default=0.0)
            )
        return self._weigh_named(name)

    def _weigh_many(self, schema: Any, kind: str, levels: int) -> _Weight:
        item = self._weigh(schema["items" if kind == "array" else "values"], levels - 1)
        if kind == "map":
            item = _Weight(item.least + 1, item.memory + VALUE_BYTES + field_bytes(""), item.per_byte)
        if item.least == 0:
            self._file.fail("a list whose items take no bytes: a short message could say any number of them", '"array"')
        return _Weight(1, RECORD_BYTES, item.as_item)

    def _weigh_named(self, name: str) -> _Weight:
        found = self._named[name]
        if found is None:
            self._file.fail(f"{name} has itself as a part; no type of a column does", f'"{name.rpartition(".")[2]}"')
        return found


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] if isinstance(error, SchemaParseException | ValueError) else f"{type(error).__name__} {error}"


def _for_reading(schema: Any) -> Any:
    """Return a schema by which decimals are read within bounds, and UUIDs as text."""
    schema = copy.deepcopy(schema)
    for part in _parts(schema):
        if part.get("logicalType") == "decimal":
            part["logicalType"] = DECIMAL
        elif part.get("logicalType") == "uuid":
            del part["logicalType"]
    return fastavro.parse_schema(schema)


def _branches(schema: dict[str, Any]) -> Any:
    """Return the names of types that stand in a list or map, or in a union."""
    parts = [schema.get(place) for place in ("type", "items", "values")]
    return [name for part in parts for name in (part if isinstance(part, list) else [part]) if isinstance(name, str)]


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _parts(part)
    if isinstance(schema, dict):
        yield schema


class AvroReader:
    """Reads messages."""

    def __init__(self, options: ConnectorOptions) -> None:
        schema = AvroSchema(options)
        self.growth = schema.growth
        self._bytes_max = int((DECODED_BYTES_MAX - self.growth.fixed) / self.growth.per_byte)
        self._header = RegistryHeader(options)
        self._schema = _for_reading(schema.raw)

    def read(self, value: bytes) -> Any:
        """Return the value of a message. Unreadable when it is none of the schema."""
        rest = self._header.without(value)
        if len(rest) > self._bytes_max:
            raise Unreadable(f"{len(rest)} bytes, {self._bytes_max} are the most of this schema, whose lists may have small items")
        stream = io.BytesIO(rest)
        try:
            found = fastavro.schemaless_reader(stream, self._schema, None)
        except EOFError:
            raise Unreadable("not a value of the Avro schema: it ends too early") from None
        except _BAD as error:
            raise Unreadable(f"not a value of the Avro schema ({_said(error)})") from None
        if stream.tell() != len(rest):
            raise Unreadable(f"not a value of the Avro schema: {len(rest) - stream.tell()} bytes follow it")
        return found


class AvroWriter:
    """Writes results, a record each: the columns are its fields."""

    def __init__(self, options: ConnectorOptions) -> None:
        self._schema = AvroSchema(options).parsed
        self._header = RegistryHeader(options).bytes
        if not isinstance(self._schema, dict) or self._schema["type"] != "record":
            raise ConnectorError("schema: results are records, so the schema of a sink must be of a record")
        self._fields = {field["name"] for field in self._schema["fields"]}
        # The library writes a number of any size into an int, where others would read another number.
        self._has_int = any("int" in _branches(part) for part in _parts(self._schema))

    def messages(self, batch: Any) -> list[bytes]:
        """Return a message for each row of an Arrow batch. ConnectorError naming the column that the schema does not have, or not so."""
        unknown = next((name for name in batch.schema.names if name not in self._fields), None)
        if unknown is not None:
            raise ConnectorError(f"schema: the record has no field {unknown}; its fields are {', '.join(sorted(self._fields))}")
        return [self._message(row) for row in rows_of(batch)]

    def _message(self, row: dict[str, Any]) -> bytes:
        stream = io.BytesIO(self._header)
        stream.seek(len(self._header))
        try:
            if self._has_int:
                fastavro.validation.validate(row, self._schema)
            fastavro.schemaless_writer(stream, self._schema, row, strict_allow_default=True)
        except (ValidationError, AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ConnectorError(f"a result does not fit the Avro schema: {_why(row, self._schema) or _said(error)}") from None
        return stream.getvalue()


def _why(row: dict[str, Any], schema: Any) -> str | None:
    try:
        fastavro.validation.validate(row, schema)
    except (ValidationError, AttributeError, TypeError, ValueError) as error:
        return " ".join(str(error).split())[:300]
    return None
