"""Rows as objects of a data class, both ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

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
    """Return a function that makes an object of a row, by name; a STRUCT becomes the data class that its field names, in a list too.

    Other columns are left out. MillstreamError (`data`) when it is no data class, or wants a column that is not there.
    """
    if not dataclasses.is_dataclass(kind):
        raise MillstreamError("data", f"{getattr(kind, '__name__', kind)} is not a data class", "write @dataclass above it")
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        hint = "define the classes that its fields name outside of functions"
        raise MillstreamError("data", f"the types of {kind.__name__} cannot be known: {error}", hint) from error
    names = [field.name for field in dataclasses.fields(kind) if field.init and field.name in columns]
    missing = [field.name for field in dataclasses.fields(kind) if _is_needed(field) and field.name not in columns]
    if missing:
        hint = f"its columns are {', '.join(columns)}"
        raise MillstreamError("data", f"{kind.__name__} wants {', '.join(missing)}, which the query does not have", hint)
    inner = [(name, made) for name in names if (made := _part_maker(hints.get(name))) is not None]

    def make(row: Mapping[str, Any]) -> Made:
        values = {name: row[name] for name in names}
        for name, made in inner:
            values[name] = made(values[name])
        return kind(**values)

    return make


def _part_maker(hint: Any) -> Callable[[Any], Any] | None:
    """Return what makes of a nested value what a field wants (`Place`, `Place | None`, `list[Place]`); None where it may stay."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        makers: dict[tuple[str, ...], Callable[[Mapping[str, Any]], Any]] = {}

        def make(value: Any) -> Any:
            if not isinstance(value, Mapping):
                return value
            names = tuple(value)
            if names not in makers:
                makers[names] = maker(hint, names)
            return makers[names](value)

        return make
    if get_origin(hint) not in (Union, UnionType, list):
        return None
    inner = next((found for found in map(_part_maker, get_args(hint)) if found is not None), None)
    if inner is None or get_origin(hint) is not list:
        return inner
    return lambda value: [inner(item) for item in value] if isinstance(value, list) else value


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
