"""CAST from and to nested values and JSON. To TEXT and JSON by the JSON form, level by level between nested types; and from JSON by the
values that a text or document holds, as strictly as rows are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, column_from_arrow, column_to_arrow
from millstream.engine.data.column import Column, with_nulls
from millstream.engine.data.types import BOOLEAN, TEXT, DataType, Kind
from millstream.engine.expressions.kernel import EvaluationContext, null_or_fail
from millstream.engine.expressions.nested import entries_of
from millstream.engine.expressions.nested_values import Converted, Failed, from_texts, from_values, list_array, map_array, offsets_of, shown
from millstream.engine.expressions.text_columns import parse_column
from millstream.protocol.values import Number


def of_text(column: Column, target: DataType, context: EvaluationContext, reason: str | None) -> Column:
    """Read TEXT or JSON as JSON, and its values as a type."""
    made, failed = from_texts(column.values, target, _of_values)
    if not failed:
        return made
    bad = np.zeros(len(column), dtype=np.bool_)
    bad[list(failed)] = True
    null_or_fail(context, bad, None, reason)
    return with_nulls(made, ~bad)


def _of_values(values: list[Any], type_: DataType) -> Converted:
    """Return values as JSON has them as a column."""
    if not type_.is_ordered:
        return from_values(values, type_, _of_values)
    failed: Failed = {}
    texts: list[str | None] = []
    for i, value in enumerate(values):
        is_text = isinstance(value, str) and not isinstance(value, Number)
        fits = value is None or (is_text or not isinstance(value, bool | dict | list) if type_ != BOOLEAN else isinstance(value, bool))
        if (type_ == TEXT and value is not None and not is_text) or not fits:
            failed[i] = f"{shown(value)} is not {type_}"
            texts.append(None)
        else:
            texts.append(None if value is None else str(value).lower() if value in (True, False) else str(value))
    parsed = parse_column(pa.array(texts, pa.string()), type_)
    return parsed.column, {**parsed.failed, **failed}


def between(source: DataType, target: DataType, inner: Any) -> Any:
    """Return the conversion between two nested types of the same kind; `inner` gives that of their parts."""
    if source.kind is Kind.STRUCT:
        return _structs(target, [inner(a, b) for (_, a), (_, b) in zip(source.fields, target.fields, strict=True)], source)
    assert source.element is not None
    assert target.element is not None
    return _items(source.element, target, inner(source.element, target.element))


def _structs(target: DataType, parts: list[Any], source: DataType) -> Any:
    fields = list(arrow_type(target))

    def convert(column: Column, context: EvaluationContext, reason: str | None) -> Column:
        flat = column.values.flatten()
        made = [
            column_to_arrow(part(column_from_arrow(array, type_), context, reason))
            for part, array, (_, type_) in zip(parts, flat, source.fields, strict=True)
        ]
        valid = column.validity()
        return Column(target, pa.StructArray.from_arrays(made, fields=fields, mask=None if valid is None else pa.array(~valid)))

    return convert


def _items(element: DataType, target: DataType, part: Any) -> Any:
    def convert(column: Column, context: EvaluationContext, reason: str | None) -> Column:
        array, valid = column.values, column.validity()
        keys, flat, offsets = entries_of(array) if target.kind is Kind.MAP else (None, array.flatten(), offsets_of(array))
        below = EvaluationContext()
        items = part(column_from_arrow(flat, element), below, reason)
        row = np.repeat(np.arange(len(array), dtype=np.int64), np.diff(offsets))
        context.errors.extend((np.unique(row[places]), why) for places, why in below.errors)
        if target.kind is Kind.LIST:
            return Column(target, list_array(offsets, items, target, valid))
        return Column(target, map_array(offsets, keys, items, target, None if valid is None else ~valid))

    return convert
