"""Definitions as plain dicts (for SQLite and msgpack) and back. Types are written as CREATE spells them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from millstream.engine.data import types
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.schema import Field, OnError, Schema, StreamDefinition, TableDefinition, TimeRule
from millstream.engine.data.types import DataType, Kind
from millstream.engine.language.statements import ClassDefinition

_DECIMAL = re.compile(r"DECIMAL\((\d+), (\d+)\)")


def type_from_text(text: str) -> DataType:
    """Return the type whose `str` is `text`; InvalidDefinition when there is none."""
    if text.endswith("[]"):
        return types.list_of(type_from_text(text[:-2]))
    match = _DECIMAL.fullmatch(text)
    if match:
        return types.decimal(int(match[1]), int(match[2]))
    if text in Kind.__members__ and text not in ("DECIMAL", "LIST"):
        return DataType(Kind[text])
    raise InvalidDefinition(f"the type {text!r} is unknown")


def schema_to_plain(schema: Schema) -> list[list[Any]]:
    """Return [name, type, nullable] a column."""
    return [[f.name, str(f.type), f.nullable] for f in schema.fields]


def schema_from_plain(plain: Any) -> Schema:
    """Return the schema that `schema_to_plain` wrote."""
    return Schema(tuple(Field(name, type_from_text(type_), bool(nullable)) for name, type_, nullable in plain))


def stream_to_plain(definition: StreamDefinition) -> dict[str, Any]:
    """Return a stream's definition as plain values."""
    rule = definition.time
    time = {name: getattr(rule, name) for name in TimeRule.__dataclass_fields__}
    return {
        "name": definition.name,
        "schema": schema_to_plain(definition.schema),
        "time": time,
        "late_into": definition.late_into,
        "on_error": definition.on_error.value,
        "errors_into": definition.errors_into,
        "durability": definition.durability,
        "rate_per_second_max": definition.rate_per_second_max,
    }


def stream_from_plain(plain: Mapping[str, Any]) -> StreamDefinition:
    """Return the stream that `stream_to_plain` wrote."""
    return StreamDefinition(
        plain["name"],
        schema_from_plain(plain["schema"]),
        TimeRule(**plain["time"]),
        plain["late_into"],
        OnError(plain["on_error"]),
        plain["errors_into"],
        plain["durability"],
        plain["rate_per_second_max"],
    )


def table_to_plain(definition: TableDefinition) -> dict[str, Any]:
    """Return a table's definition as plain values."""
    return {
        "name": definition.name,
        "schema": schema_to_plain(definition.schema),
        "key": list(definition.key),
        "file": definition.file,
        "durability": definition.durability,
    }


def table_from_plain(plain: Mapping[str, Any]) -> TableDefinition:
    """Return the table that `table_to_plain` wrote."""
    return TableDefinition(
        plain["name"], schema_from_plain(plain["schema"]), tuple(plain["key"]), plain["file"], plain.get("durability", "none")
    )


def class_to_plain(definition: ClassDefinition) -> dict[str, Any]:
    """Return a class as plain values."""
    return {name: getattr(definition, name) for name in ClassDefinition.__dataclass_fields__}


def class_from_plain(plain: Mapping[str, Any]) -> ClassDefinition:
    """Return the class that `class_to_plain` wrote."""
    return ClassDefinition(plain["name"], plain["priority"], plain["target_us"], plain["may_shed"])
