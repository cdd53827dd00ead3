"""Checks that hold for every stream whatever the rows came as: NOT NULL, keys of tables, a usable event time (K8, K12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from millstream.engine.column import Column
from millstream.engine.expressions.calendar import INT64_MIN
from millstream.engine.ingest.outcome import Coerced, Reasons, Rejection
from millstream.engine.ingest.units import OUT_OF_RANGE, beyond_range, unit_warning
from millstream.engine.schema import Field, StreamDefinition, TableDefinition
from millstream.engine.types import TIMESTAMP, Kind

DAYS_MAX = (2**63 - 1) // 86_400_000_000
RawOf = Callable[[int], bytes | str]
LineOf = Callable[[int], int]
Definition = StreamDefinition | TableDefinition


def finish(
    columns: Sequence[Column], rows: int, definition: Definition, reasons: Reasons, raw_of: RawOf, line_of: LineOf | None = None
) -> Coerced:
    """Check the columns of all offered rows, then keep the good rows. `raw_of` and `line_of` tell of a refused row how it came."""
    for column, column_field in zip(columns, definition.schema.fields, strict=True):
        _check_column(column, column_field, definition, reasons)
    if isinstance(definition, StreamDefinition):
        _check_event_time(columns, definition, reasons)
    kept = reasons.kept()
    good = list(columns) if kept is None else [c.take(kept) for c in columns]
    rejected = [
        Rejection(i, reason, as_bytes(raw_of(i)), None if line_of is None else line_of(i)) for i, reason in sorted(reasons.by_row.items())
    ]
    return Coerced(good, rows if kept is None else len(kept), rejected, _warnings(good, definition), kept)


def as_bytes(raw: bytes | str) -> bytes:
    """Return a raw row as bytes; halves of surrogate pairs are escaped."""
    return raw if isinstance(raw, bytes) else raw.encode("utf-8", "backslashreplace")


def is_needed(column_field: Field, definition: Definition) -> bool:
    """Tell whether a row without this column is a bad row."""
    if not column_field.nullable:
        return True
    if isinstance(definition, TableDefinition):
        return column_field.name in definition.key
    return column_field.name == definition.time.column


def _check_column(column: Column, column_field: Field, definition: Definition, reasons: Reasons) -> None:
    if is_needed(column_field, definition):
        valid = column.validity()
        if valid is not None:
            reasons.add_where(~valid, f"column {column_field.name} is NULL and {_why_needed(column_field)}")
    # The least int64 is kept free for "no time" (K3).
    if column_field.type == TIMESTAMP and len(column) and column.bounds()[0] == INT64_MIN:
        least = column.values == INT64_MIN
        reasons.add_where(least if column.valid is None else least & column.valid, f"column {column_field.name}: {OUT_OF_RANGE}")


def _why_needed(column_field: Field) -> str:
    return "NOT NULL" if not column_field.nullable else "every row needs it"


def _check_event_time(columns: Sequence[Column], definition: StreamDefinition, reasons: Reasons) -> None:
    """Refuse rows whose event time is in a unit or a DATE that TIMESTAMP does not reach."""
    name = definition.time.column
    position = None if name is None else definition.schema.position(name)
    if position is None:
        return
    column = columns[position]
    if column.type.kind is Kind.DATE:
        reasons.add_where(np.abs(column.values.astype(np.int64)) > DAYS_MAX, f"column {name}: {OUT_OF_RANGE}")
    elif column.type.is_integer and definition.time.unit in ("s", "ms", "us"):
        bad = beyond_range(column.values.astype(np.int64), definition.time.unit)
        reasons.add_where(bad, f"column {name}: {OUT_OF_RANGE}")


def _warnings(columns: Sequence[Column], definition: Definition) -> list[str]:
    """Look for integers that seem to be in another unit than declared."""
    if not isinstance(definition, StreamDefinition) or definition.time.unit is None or definition.time.column is None:
        return []
    position = definition.schema.position(definition.time.column)
    if position is None or not columns[position].type.is_integer:
        return []
    warning = unit_warning(columns[position].values.astype(np.int64), definition.time.column, definition.time.unit)
    return [] if warning is None else [warning]
