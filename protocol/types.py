"""The types of columns as they are spelled in a schema: parsed, printed, without Arrow.

Spellings: BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), TEXT, BYTES, TIMESTAMP, DATE, TIME, INTERVAL, JSON, NULL, `t[]` for a list of t,
`STRUCT(a t, "b c" t)` for named parts and `MAP(TEXT, t)` for a map to values of t.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.protocol.values import TYPE_DEPTH_MAX

PLAIN = ("BOOLEAN", "INT", "BIGINT", "DOUBLE", "TEXT", "BYTES", "TIMESTAMP", "DATE", "TIME", "INTERVAL", "JSON", "NULL")
DECIMAL_PRECISION_MAX = 38
PARTS_MAX = 16_384  # of all STRUCTs of a type
_TOKEN = re.compile(r'\s*(?:"((?:[^"]|"")*)"|(\w+)|(\[\s*\]|[(),]))')


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type: `name` is a plain spelling, DECIMAL (with precision and scale), LIST or MAP (with element), or STRUCT (with parts)."""

    name: str
    precision: int = 0
    scale: int = 0
    element: ColumnType | None = None
    parts: tuple[tuple[str, ColumnType], ...] = ()

    def __str__(self) -> str:
        """Return the spelling that `parse_type` reads."""
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.name == "STRUCT":
            return f"STRUCT({', '.join(f'{_quoted(name)} {part}' for name, part in self.parts)})"
        if self.name == "MAP":
            return f"MAP(TEXT, {self.element})"
        return f"{self.element}[]" if self.name == "LIST" else self.name

    def depth(self) -> int:
        """Return how many types stand in one another at most, itself among them."""
        below = [part for _, part in self.parts] if self.element is None else [self.element]
        return 1 + max((part.depth() for part in below), default=0)


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name == name.lower() else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a schema."""

    name: str
    type: ColumnType
    nullable: bool = True


def parse_type(text: str) -> ColumnType:
    """Return the type spelled by `text`; ValueError when it is none."""
    reader = _TypeReader(text)
    found = reader.type(TYPE_DEPTH_MAX)
    if reader.word is not None or reader.name is not None:
        raise ValueError(f"{text!r} is not the name of a type")
    return found


class _TypeReader:
    """The words of a spelling, one after another: `word` in upper case or a sign, or `name`, in quotes; both None at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._parts = 0
        self.word: str | None = None
        self.name: str | None = None
        self._plain: str | None = None  # the word as it is written, None for a sign
        self._advance()

    def _advance(self) -> None:
        self.word = self.name = None
        if not self._text[self._at :].strip():
            return
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._problem()
        self._at = match.end()
        if match[1] is not None:
            self.name = match[1].replace('""', '"')
        else:
            self.word, self._plain = (match[2] or match[3].replace(" ", "")).upper(), match[2]

    def _problem(self) -> ValueError:
        return ValueError(f"{self._text!r} is not the name of a type")

    def _too_deep(self) -> ValueError:
        return ValueError(f"type {self._text!r} nests types deeper than {TYPE_DEPTH_MAX}")

    def _take(self, *words: str) -> str:
        if self.word not in words:
            raise self._problem()
        found = self.word
        self._advance()
        return found

    def type(self, levels: int) -> ColumnType:
        """Take a type that has at most so many levels."""
        found = self._one(levels)
        while self.word == "[]":
            self._advance()
            found = ColumnType("LIST", element=found)
            if found.depth() > levels:
                raise self._too_deep()
        return found

    def _one(self, levels: int) -> ColumnType:
        if levels == 0:
            raise self._too_deep()
        word = self._take(*PLAIN, "DECIMAL", "STRUCT", "MAP")
        if word in PLAIN:
            return ColumnType(word)
        self._take("(")
        if word == "DECIMAL":
            found = self._decimal()
        elif word == "MAP":
            self._take("TEXT")
            self._take(",")
            found = ColumnType("MAP", element=self.type(levels - 1))
        else:
            found = ColumnType("STRUCT", parts=self._struct(levels))
        self._take(")")
        return found

    def _struct(self, levels: int) -> tuple[tuple[str, ColumnType], ...]:
        parts: dict[str, ColumnType] = {}
        while not parts or self.word == ",":
            if parts:
                self._advance()
            name = self.name if self.name is not None else self._plain if self.word is not None else None
            self._parts += 1
            if name is None or name in parts or self._parts > PARTS_MAX:
                raise self._problem()
            self._advance()
            parts[name] = self.type(levels - 1)
        return tuple(parts.items())

    def _decimal(self) -> ColumnType:
        numbers = []
        for sign in (",", None):
            if self.word is None or not self.word.isdecimal() or len(self.word) > 2:
                raise self._problem()
            numbers.append(int(self.word))
            self._advance()
            if sign is not None:
                self._take(sign)
        precision, scale = numbers
        if not 1 <= precision <= DECIMAL_PRECISION_MAX or scale > precision:
            raise ValueError(f"type {self._text!r}: precision must be 1 to {DECIMAL_PRECISION_MAX} and scale 0 to precision")
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
