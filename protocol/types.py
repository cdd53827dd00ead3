"""The types of columns as they are spelled in a schema: parsed, printed, without Arrow.

Spellings: BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), TEXT, TIMESTAMP, DATE, INTERVAL, NULL, and `t[]` for a list of t.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PLAIN = ("BOOLEAN", "INT", "BIGINT", "DOUBLE", "TEXT", "TIMESTAMP", "DATE", "INTERVAL", "NULL")
DECIMAL_PRECISION_MAX = 38
LIST_DEPTH_MAX = 8
_DECIMAL = re.compile(r"DECIMAL\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type: `name` is a plain spelling, `DECIMAL` (with precision and scale) or `LIST` (with element)."""

    name: str
    precision: int = 0
    scale: int = 0
    element: ColumnType | None = None

    def __str__(self) -> str:
        """Return the spelling that `parse_type` reads."""
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision}, {self.scale})"
        return f"{self.element}[]" if self.name == "LIST" else self.name


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a schema."""

    name: str
    type: ColumnType
    nullable: bool = True


def parse_type(text: str) -> ColumnType:
    """Return the type spelled by `text`; ValueError when it is none."""
    spelled = text.strip().upper()
    depth = 0
    while spelled.endswith("[]"):
        spelled, depth = spelled[:-2].rstrip(), depth + 1
    if depth > LIST_DEPTH_MAX:
        raise ValueError(f"type {text!r} nests lists deeper than {LIST_DEPTH_MAX}")
    result = _parse_element(spelled, text)
    for _ in range(depth):
        result = ColumnType("LIST", element=result)
    return result


def _parse_element(spelled: str, text: str) -> ColumnType:
    if spelled in PLAIN:
        return ColumnType(spelled)
    match = _DECIMAL.fullmatch(spelled)
    if match is None:
        raise ValueError(f"{text!r} is not the name of a type")
    precision, scale = int(match[1]), int(match[2])
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or scale > precision:
        raise ValueError(f"type {text!r}: precision must be 1 to {DECIMAL_PRECISION_MAX} and scale 0 to precision")
    return ColumnType("DECIMAL", precision, scale)


def parse_schema(schema: list[object]) -> list[Column]:
    """Return the columns of a message's `schema`, a list of `[name, type, nullable]`; ValueError when malformed."""
    columns = []
    for entry in schema:
        match entry:
            case [str(name), str(spelled), bool(nullable)]:
                columns.append(Column(name, parse_type(spelled), nullable))
            case [str(name), str(spelled)]:
                columns.append(Column(name, parse_type(spelled)))
            case _:
                raise ValueError(f"a column is [name, type, nullable], not {entry!r}")
    return columns


def spell_schema(columns: list[Column]) -> list[list[object]]:
    """Return `columns` as a message carries them."""
    return [[column.name, str(column.type), column.nullable] for column in columns]
