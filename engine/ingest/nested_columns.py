"""Columns of any type from what rows come as: Python values or Arrow arrays. Nested types and JSON go part by part (K21).

Inside a nested value a number is no instant: times there are text, or Arrow's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.column import Column, null_column
from millstream.engine.data.types import DataType, Kind
from millstream.engine.expressions.nested_values import from_array, from_texts, from_values, lies_as_stored
from millstream.engine.ingest.arrays import Rules, all_unfit, convert_array, plain_array, take_same_type
from millstream.engine.ingest.checks import Converted, Failed
from millstream.engine.ingest.python_values import convert_values


def nested_column_of(source: Any, type_: DataType, rules: Rules) -> Converted:
    """Return a list of Python values (None is NULL) or an Arrow array as a column, with the rows that do not fit and why."""
    if type_.is_ordered:
        return convert_values(source, type_, rules) if isinstance(source, list) else convert_array(source, type_, rules)
    inside = replace(rules, unit=None, bare_instants=False)

    def part(below: Any, inner: DataType) -> Converted:
        return nested_column_of(below, inner, inside)

    if isinstance(source, list):
        return from_values(source, type_, part, ignore_extra=rules.ignore_extra)
    array = plain_array(source)
    if pa.types.is_null(array.type):
        return null_column(type_, len(array)), {}
    if pa.types.is_string(array.type):
        return from_texts(array, type_, part)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return _one_by_one(array, type_, rules)
    if array.type == arrow_type(type_) and lies_as_stored(type_):
        return take_same_type(array, type_)
    if type_.kind is Kind.JSON and not pa.types.is_binary(array.type):
        from millstream.protocol.values.text import json_texts

        return from_texts(json_texts(array, pa.field("", array.type)), type_, part)
    return from_array(array, type_, part, ignore_extra=rules.ignore_extra) or all_unfit(array, type_)


def _one_by_one(array: Any, type_: DataType, rules: Rules) -> Converted:
    """Take the rows of an array some of whose texts are not UTF-8."""
    values: list[Any] = []
    failed: Failed = {}
    for i in range(len(array)):
        try:
            values.append(array[i].as_py())
        except UnicodeDecodeError as error:
            failed[i] = f"invalid UTF-8 at byte {error.start}"
            values.append(None)
    column, more = nested_column_of(pa.array(values, array.type), type_, rules)
    return Column(type_, column.values), {**more, **failed}
