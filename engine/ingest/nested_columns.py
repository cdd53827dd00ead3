"""Columns of any type from what rows come as: Python values or Arrow arrays. Nested types and JSON go part by part (K21).

Inside a nested value a number is no instant: times there are text, or Arrow's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.column import null_column
from millstream.engine.data.types import DataType, Kind
from millstream.engine.expressions.nested_values import Convert, from_array, from_texts, from_values, lies_as_stored
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
        return from_values(source, type_, part)
    array = plain_array(source)
    if pa.types.is_null(array.type):
        return null_column(type_, len(array)), {}
    array, failed = _sound(array)
    column, more = _sound_column(array, type_, part)
    return column, {**more, **failed}


def _sound_column(array: Any, type_: DataType, part: Convert) -> Converted:
    if pa.types.is_string(array.type):
        return from_texts(array, type_, part)
    if array.type == arrow_type(type_) and lies_as_stored(type_):
        return take_same_type(array, type_)
    if type_.kind is Kind.JSON and not pa.types.is_binary(array.type):
        from millstream.protocol.values.text import json_texts

        try:
            texts = json_texts(array, pa.field("", array.type))
        except pa.ArrowException:  # a type inside that has no text
            return all_unfit(array, type_)
        return from_texts(texts, type_, part)
    return from_array(array, type_, part) or all_unfit(array, type_)


def _sound(array: Any) -> tuple[Any, Failed]:
    """Return an array with NULL for the rows that break the rules of its type, such as text that is not UTF-8, and why each does."""
    failed: Failed = {}
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        for i in range(len(array)):
            try:
                pa.concat_arrays([array.slice(i, 1)]).validate(full=True)
            except pa.ArrowInvalid as error:
                failed[i] = _fault(array[i], error)
    if not failed:
        return array, failed
    missing = pa.nulls(1, array.type)
    return pa.concat_arrays([missing if i in failed else array.slice(i, 1) for i in range(len(array))]), failed


def _fault(value: Any, error: pa.ArrowInvalid) -> str:
    try:
        value.as_py()
    except UnicodeDecodeError as found:
        return f"invalid UTF-8 at byte {found.start}"
    except (OverflowError, ValueError):
        pass  # an instant that Python's do not reach, which is no fault
    return str(error).splitlines()[0]
