"""Nested values from outside to columns: Python's lists and maps, and nested Arrow arrays. What fails is named with its path (K8, K21).

Both go level by level and not row by row: the items of all lists, or the parts of all structs, are one list or array that becomes one
column of the inner type. Who calls says how by `convert`, which comes back here for what is nested deeper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, column_to_arrow, validity_of
from millstream.engine.data.column import Column
from millstream.engine.data.errors import Misfit
from millstream.engine.data.types import JSON, DataType, Kind
from millstream.protocol.values import Number
from millstream.protocol.values import arrow_functions as pc
from millstream.protocol.values.json_values import json_text, read_json, whole_text
from millstream.protocol.values.names import ColumnNames

Failed = dict[int, str]
Converted = tuple[Column, Failed]
# A list of Python values, or an Arrow array, and the type wanted -> the column, and why values at some places do not fit.
Convert = Callable[[Any, DataType], Converted]


def shown(value: Any) -> str:
    """Return what a value is, for a reason."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    text = f"text {value!r}" if isinstance(value, str) and not isinstance(value, Number) else str(value)
    return text if len(text) <= 50 else text[:47] + "..."


def from_values(values: Sequence[Any], type_: DataType, convert: Convert) -> Converted:
    """Return Python values (None is NULL) as a column of a LIST, STRUCT, MAP or JSON."""
    failed: Failed = {}
    if type_.kind is Kind.JSON:
        return _documents(values)
    if type_.kind is Kind.STRUCT:
        return _structs(values, type_, convert, failed)
    return _maps(values, type_, convert, failed) if type_.kind is Kind.MAP else _lists(values, type_, convert, failed)


def from_array(array: Any, type_: DataType, convert: Convert) -> Converted | None:
    """Return a nested Arrow array as a column; None where its shape is another."""
    source = array.type
    if type_.kind is Kind.LIST and (pa.types.is_list(source) or pa.types.is_large_list(source) or pa.types.is_fixed_size_list(source)):
        assert type_.element is not None
        items, failed = convert(array.flatten(), type_.element)
        return _joined(array, items, failed, type_)
    if type_.kind is Kind.STRUCT and pa.types.is_struct(source):
        return _parts(array, type_, convert)
    if type_.kind is Kind.MAP and pa.types.is_map(source):
        return _entries(array, type_, convert)
    return None


def from_texts(texts: Any, type_: DataType, convert: Convert) -> Converted:
    """Return an Arrow string array of JSON texts as a column."""
    values: list[Any] = []
    unread: Failed = {}
    for i, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else read_json(text))
        except ValueError as error:
            unread[i] = str(error)
            values.append(None)
    column, failed = convert(values, type_)
    if type_.kind is not Kind.JSON:
        return column, {**failed, **unread}
    # To SQL a JSON null is a value.
    nulls = [i for i, value in enumerate(values) if value is None and i not in unread and texts[i].is_valid]
    if nulls:
        found = column.values.to_pylist()
        for i in nulls:
            found[i] = "null"
        column = Column(JSON, pa.array(found, pa.string()))
    return column, {**failed, **unread}


def _documents(values: Sequence[Any]) -> Converted:
    failed: Failed = {}
    found: list[str | None] = []
    for i, value in enumerate(values):
        try:
            found.append(None if value is None else json_text(value))
        except ValueError as error:
            failed[i] = str(error)
            found.append(None)
    return Column(JSON, pa.array(found, pa.string())), failed


def _lists(values: Sequence[Any], type_: DataType, convert: Convert, failed: Failed) -> Converted:
    assert type_.element is not None
    flat: list[Any] = []
    ends, missing = [0], []
    for i, value in enumerate(values):
        if isinstance(value, list | tuple):
            flat.extend(value)
        elif value is not None:
            failed[i] = f"{shown(value)} is not {type_}"
        missing.append(not isinstance(value, list | tuple))
        ends.append(len(flat))
    items, below = convert(flat, type_.element)
    offsets = np.array(ends, dtype=np.int32)
    _blame_items(below, offsets, failed)
    made = pa.ListArray.from_arrays(pa.array(offsets), column_to_arrow(items), type=arrow_type(type_), mask=_mask(missing))
    return Column(type_, made), failed


def _structs(values: Sequence[Any], type_: DataType, convert: Convert, failed: Failed) -> Converted:
    names = ColumnNames([name for name, _ in type_.fields])
    empty: dict[str, Any] = {}
    maps: list[Mapping[str, Any]] = []
    missing = []
    for i, value in enumerate(values):
        missing.append(not isinstance(value, Mapping))
        if isinstance(value, Mapping):
            try:
                value = value if value.keys() <= names.known else _renamed(value, names)
            except ValueError as error:
                failed[i], value = str(error), empty
            maps.append(value)
            continue
        if value is not None:
            failed[i] = f"{shown(value)} is not {type_}"
        maps.append(empty)
    parts = []
    for name, part_type in type_.fields:
        part, below = convert([m.get(name) for m in maps], part_type)
        parts.append(column_to_arrow(part))
        for i, reason in below.items():
            failed.setdefault(i, Misfit(f".{name}", reason))
    return Column(type_, pa.StructArray.from_arrays(parts, fields=list(arrow_type(type_)), mask=_mask(missing))), failed


def _renamed(value: Mapping[Any, Any], names: ColumnNames) -> dict[str, Any]:
    """Return an object whose names are the parts' own; ValueError for one that means none."""
    found: dict[str, Any] = {}
    for name, part in value.items():
        meant = names.meant_by(name) if isinstance(name, str) else None
        if meant is None or (meant != name and meant in value):
            raise ValueError(f"there is no part {name}")
        found[meant] = part
    return found


class _Pairs:
    """The entries of an Arrow map: keys, and where their values lie."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        self.pairs = pairs


def _maps(values: Sequence[Any], type_: DataType, convert: Convert, failed: Failed) -> Converted:
    """The entries of each map stand in the order of their keys, so that equal maps are equal in every way."""
    assert type_.element is not None
    keys: list[str] = []
    items: list[Any] = []
    ends, missing = [0], []
    for i, value in enumerate(values):
        pairs = list(value.items()) if isinstance(value, Mapping) else value.pairs if isinstance(value, _Pairs) else None
        if pairs is None and value is not None:
            failed[i] = f"{shown(value)} is not {type_}"
        elif pairs is not None:
            try:
                pairs = _sorted(pairs)
            except ValueError as error:
                failed[i], pairs = str(error), []
            keys.extend(key for key, _ in pairs)
            items.extend(item for _, item in pairs)
        missing.append(pairs is None)
        ends.append(len(keys))
    made, below = convert(items, type_.element)
    offsets = np.array(ends, dtype=np.int32)
    _blame_items(below, offsets, failed, keys)
    return Column(type_, map_array(offsets, pa.array(keys, pa.string()), made, type_, _mask(missing))), failed


def _entries(array: Any, type_: DataType, convert: Convert) -> Converted:
    """Take the maps of an Arrow array: only keys become Python's, as other values may be some that Python does not have."""
    keys, items, offsets = entries_of(array)
    placed = list(zip(keys.to_pylist(), range(len(keys)), strict=True))
    valid = pc.is_valid(array).to_pylist()
    maps = [_Pairs(placed[start:stop]) if v else None for v, (start, stop) in zip(valid, pairwise(offsets.tolist()), strict=True)]

    def in_order(taken: list[int], element: DataType) -> Converted:
        column, unfit = convert(items, element)
        return column.take(np.array(taken, dtype=np.int64)), {at: unfit[place] for at, place in enumerate(taken) if place in unfit}

    return from_values(maps, type_, in_order)


def _sorted(pairs: list[tuple[Any, Any]]) -> list[tuple[str, Any]]:
    """Return the entries of a map in the order of their keys; ValueError for a key that is no text, or stands twice."""
    for key, _ in pairs:
        if not isinstance(key, str):
            raise ValueError(f"the key {key!r} of a map is not TEXT")  # noqa: TRY004 - a fault of the data
        whole_text(key)
    ordered = sorted(pairs, key=lambda pair: pair[0])
    twice = next((a for (a, _), (b, _) in pairwise(ordered) if a == b), None)
    if twice is not None:
        raise ValueError(f"the key {twice!r} stands twice")
    return ordered


def map_array(offsets: Any, keys: Any, items: Column, type_: DataType, mask: Any = None) -> Any:
    """Return the Arrow map array of entries that lie one after another."""
    kind = arrow_type(type_)
    entries = pa.StructArray.from_arrays([keys, column_to_arrow(items)], fields=[kind.key_field, kind.item_field])
    validity = None if mask is None else pa.py_buffer(np.packbits(~np.asarray(mask), bitorder="little"))
    offsets = np.ascontiguousarray(offsets, dtype=np.int32)
    return pa.Array.from_buffers(kind, len(offsets) - 1, [validity, pa.py_buffer(offsets)], children=[entries])


def _mask(missing: list[bool]) -> Any:
    return pa.array(missing, pa.bool_()) if any(missing) else None


def _blame_items(below: Failed, offsets: Any, failed: Failed, keys: Sequence[str] | None = None) -> None:
    """Blame the rows in whose lists or maps items do not fit."""
    for place, reason in below.items():
        row = int(np.searchsorted(offsets, place, side="right")) - 1
        step = f"[{place - int(offsets[row]) + 1}]" if keys is None else f"[{keys[place]!r}]"
        failed.setdefault(row, Misfit(step, reason))


def offsets_of(array: Any) -> Any:
    """Return where each list or map of an Arrow array begins among all items of `flatten()`, and where the last ends."""
    if pa.types.is_map(array.type):
        whole = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset) if len(array) else np.zeros(1, np.int32)
        lengths = np.diff(whole)
        valid = validity_of(array)
        lengths = lengths if valid is None else np.where(valid, lengths, 0)
    else:
        lengths = pc.coalesce(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return np.concatenate((np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)))


def entries_of(array: Any) -> tuple[Any, Any, Any]:
    """Return the keys and values of all maps of an Arrow array, and where each map begins among them; a NULL one has none."""
    offsets = offsets_of(array)
    if array.null_count == 0:
        first, last = int(array.offsets[0].as_py()), int(array.offsets[-1].as_py())
        return array.keys.slice(first, last - first), array.items.slice(first, last - first), offsets
    starts = array.offsets.to_numpy(zero_copy_only=False)[:-1].astype(np.int64)
    lengths = np.diff(offsets)
    places = pa.array(np.repeat(starts - offsets[:-1], lengths) + np.arange(int(offsets[-1]), dtype=np.int64))
    return pc.take(array.keys, places), pc.take(array.items, places), offsets


def _joined(array: Any, items: Column, below: Failed, type_: DataType) -> Converted:
    """Put the converted items of an Arrow array's lists together again."""
    offsets = offsets_of(array)
    failed: Failed = {}
    _blame_items(below, offsets, failed)
    return Column(type_, list_array(offsets, items, type_, validity_of(array))), failed


def list_array(offsets: Any, items: Column, type_: DataType, valid: Any = None) -> Any:
    """Return the Arrow list array of items that lie one after another."""
    mask = None if valid is None else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), column_to_arrow(items), type=arrow_type(type_), mask=mask)


def _parts(array: Any, type_: DataType, convert: Convert) -> Converted:
    """Take the parts of an Arrow struct by name; one that is not there is NULL."""
    given = [part.name for part in array.type]
    try:
        places, extra = ColumnNames([name for name, _ in type_.fields]).match(given)
    except ValueError as error:
        return Column(type_, pa.nulls(len(array), arrow_type(type_))), dict.fromkeys(range(len(array)), str(error))
    valid = validity_of(array)
    failed: Failed = {}
    if extra:
        rows = range(len(array)) if valid is None else np.flatnonzero(valid).tolist()
        failed = dict.fromkeys(rows, f"there is no part {extra[0]}")
    flat = array.flatten()
    parts = []
    for name, part_type in type_.fields:
        if name not in places:
            parts.append(pa.nulls(len(array), arrow_type(part_type)))
            continue
        part, below = convert(flat[places[name]], part_type)
        parts.append(column_to_arrow(part))
        for i, reason in below.items():
            failed.setdefault(i, Misfit(f".{name}", reason))
    mask = None if valid is None else pa.array(~valid)
    return Column(type_, pa.StructArray.from_arrays(parts, fields=list(arrow_type(type_)), mask=mask)), failed


def lies_as_stored(type_: DataType) -> bool:
    """Whether an Arrow array of `arrow_type(type_)` is a column as it is: nothing in it must be looked at, and no map be sorted."""
    if type_.kind in (Kind.JSON, Kind.MAP, Kind.TIME):
        return False
    below = [type_.element] if type_.element is not None else [part for _, part in type_.fields]
    return all(lies_as_stored(part) for part in below)
