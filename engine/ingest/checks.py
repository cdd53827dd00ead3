"""Checks that hold for every stream whatever the rows came as: NOT NULL, a usable event time, a plausible one (K8, K12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from millstream.engine.column import Column
from millstream.engine.event_time import US_PER_DAY, US_PER_UNIT
from millstream.engine.ingest.outcome import Coerced, Reasons, Rejection
from millstream.engine.schema import StreamDefinition, TableDefinition
from millstream.engine.types import Kind

PLAUSIBLE_MIN_US = 3_652 * US_PER_DAY  # 1980: what reads earlier and after 1970 is mostly seconds taken for milliseconds
PLAUSIBLE_MAX_US = 84_006 * US_PER_DAY  # 2200
INT64_MAX = 2**63 - 1
Raw = Callable[[int], str | bytes]


def finish(columns: Sequence[Column], rows: int, definition: StreamDefinition | TableDefinition, reasons: Reasons, raw: Raw) -> Coerced:
    """Check the columns of all offered rows, then keep the good rows. `raw` gives a refused row as it came."""
    _check_not_null(columns, definition, reasons)
    if isinstance(definition, StreamDefinition):
        _check_event_time(columns, definition, reasons)
    kept = reasons.kept()
    good = list(columns) if kept is None else [c.filter(kept) for c in columns]
    count = rows if kept is None else int(np.count_nonzero(kept))
    rejected = [Rejection(i, reason, raw(i)) for i, reason in sorted(reasons.by_row.items())]
    return Coerced(good, count, rejected, _implausible(good, count, definition))


def _check_not_null(columns: Sequence[Column], definition: StreamDefinition | TableDefinition, reasons: Reasons) -> None:
    keys = definition.key if isinstance(definition, TableDefinition) else ()
    for column, field in zip(columns, definition.schema.fields, strict=True):
        if field.nullable and field.name not in keys:
            continue
        valid = column.validity()
        if valid is not None:
            reasons.add_where(~valid, f"column {field.name} is NOT NULL")


def _check_event_time(columns: Sequence[Column], definition: StreamDefinition, reasons: Reasons) -> None:
    name = definition.time.column
    position = None if name is None else definition.schema.position(name)
    if position is None:
        return
    column = columns[position]
    valid = column.validity()
    if valid is not None:
        reasons.add_where(~valid, f"event time {name} is NULL")
    scale = US_PER_UNIT.get(definition.time.unit or "us", 1) if column.type.is_integer else 1
    if scale > 1:
        limit = INT64_MAX // scale
        wide = column.values.astype(np.int64)
        reasons.add_where((wide > limit) | (wide < -limit), f"event time {name} is out of the range of TIMESTAMP")


def _implausible(columns: Sequence[Column], rows: int, definition: StreamDefinition | TableDefinition) -> list[str]:
    """Warn of event times that look like a wrong unit: a year before 1980 or after 2200 (C27)."""
    if not isinstance(definition, StreamDefinition) or definition.time.unit is None or not rows:
        return []
    position = definition.schema.position(definition.time.column or "")
    if position is None or not columns[position].type.is_integer:
        return []
    unit = definition.time.unit
    values = columns[position].values
    low, high = int(values.min()), int(values.max())
    low_us, high_us = (v // 1000 if unit == "ns" else v * US_PER_UNIT[unit] for v in (low, high))
    if PLAUSIBLE_MIN_US <= low_us and high_us <= PLAUSIBLE_MAX_US:
        return []
    shown = low if low_us < PLAUSIBLE_MIN_US else high
    return [f"implausible event time: {definition.time.column} = {shown} in UNIT {unit} lies before 1980 or after 2200; check the unit"]


def is_text_like(kind: Kind) -> bool:
    """Kinds that may come as text also where other kinds may not: their text form is exact and the usual one."""
    return kind in (Kind.TEXT, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL, Kind.DECIMAL)
