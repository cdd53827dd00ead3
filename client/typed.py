"""Rows as objects of a data class, both ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

from millstream.client.errors import MillstreamError

Made = TypeVar("Made")


def as_map(row: Any) -> Any:
    """Return an object of a data class as a dict by its fields, those inside it too; anything else as it is."""
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {field.name: as_map(getattr(row, field.name)) for field in dataclasses.fields(row)}
    if isinstance(row, list | tuple):
        return [as_map(part) for part in row]
    if isinstance(row, dict):
        return {name: as_map(part) for name, part in row.items()}
    return row


def maker(kind: type[Made], columns: Sequence[str]) -> Callable[[Mapping[str, Any]], Made]:
    """Return a function that makes an object of a row, by name; a STRUCT becomes the data class that its field names.

    Other columns are left out. MillstreamError (`data`) when it is no data class, or wants a column that is not there.
    """
    if not dataclasses.is_dataclass(kind):
        raise MillstreamError("data", f"{getattr(kind, '__name__', kind)} is not a data class", "write @dataclass above it")
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.init and field.name in columns]
    missing = [field.name for field in dataclasses.fields(kind) if _is_needed(field) and field.name not in columns]
    if missing:
        hint = f"its columns are {', '.join(columns)}"
        raise MillstreamError("data", f"{kind.__name__} wants {', '.join(missing)}, which the query does not have", hint)
    inner = {name: hints[name] for name in names if dataclasses.is_dataclass(hints.get(name))}

    def make(row: Mapping[str, Any]) -> Made:
        values = {name: row[name] for name in names}
        for name, part in inner.items():
            if isinstance(values[name], Mapping):
                values[name] = maker(part, list(values[name]))(values[name])
        return kind(**values)

    return make


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
