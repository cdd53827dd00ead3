"""Rows of Arrow tables and batches as Python values."""

from __future__ import annotations

from typing import Any


def rows_of(data: Any) -> list[dict[str, Any]]:
    """Return the rows of an Arrow table or batch as dicts; a STRUCT and a MAP are dicts too, JSON is its text.

    A TIMESTAMP or DATE outside the years 1 to 9999, which Python's have no value for, comes as ISO 8601 text: '10000-01-01T00:00:00Z'. A
    nested value that holds such comes as its JSON form.
    """
    try:
        rows: list[dict[str, Any]] = data.to_pylist(maps_as_pydicts="strict")
    except (OverflowError, ValueError):
        names = data.schema.names
        columns = [_values_of(data.select([i])) for i in range(len(names))]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def _values_of(data: Any) -> list[Any]:
    """Return the values of data of one column, as text where Python has none."""
    column = data.column(0)
    try:
        return list(column.to_pylist(maps_as_pydicts="strict"))
    except (OverflowError, ValueError):
        from millstream.protocol.values.text import display_columns

        batches = data.combine_chunks().to_batches() if hasattr(data, "combine_chunks") else [data]
        texts = [text for batch in batches for text in display_columns(batch)[0]]
        return [_value_or_text(value, text) for value, text in zip(column, texts, strict=True)]


def _value_or_text(value: Any, text: str) -> Any:
    try:
        return value.as_py(maps_as_pydicts="strict")
    except (OverflowError, ValueError):
        return text
