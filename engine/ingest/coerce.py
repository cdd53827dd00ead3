"""Rows as they come to the columns of a stream or table, each bad row refused alone (K8).

A `Coercer` is made once per schema. It takes Arrow batches, rows of Python values (lists in the schema's order, or maps), CSV, JSON lines,
and gives `Ingested`. An Arrow batch whose columns have the schema's Arrow types already passes without any work per row, save that
text is checked to be UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.arrow import arrow_type
from millstream.engine.column import Column, null_column
from millstream.engine.errors import InvalidDefinition
from millstream.engine.expressions.calendar import INT64_MIN
from millstream.engine.ingest.arrays import convert_array, take_same_type
from millstream.engine.ingest.event_time import times_of, unit_warning
from millstream.engine.ingest.python_values import convert_values
from millstream.engine.ingest.result import BadRows, Converted, Ingested, Rejection
from millstream.engine.schema import Field, Schema, TimeRule
from millstream.engine.types import DATE, TIMESTAMP, DataType, Kind

RawOf = Callable[[int], bytes]
# (place in the batch or None, whether it has the column's Arrow type already, the column's type, zone and unit)
_Step = tuple[int | None, bool, DataType, dict[str, str | None]]


@dataclass(frozen=True, slots=True)
class _ArrowPlan:
    """How batches of one Arrow schema are taken; publishers send the same schema again and again."""

    schema: Any
    steps: list[_Step]
    extra: tuple[str, ...]


class Coercer:
    """Brings rows into the form of one schema.

    `time` says how event time comes about (none: arrival). `extra` is what to do with columns the schema does not have: "ignore"
    names them in `Ingested.ignored`, "refuse" makes a row that has one a bad row.
    """

    def __init__(self, schema: Schema, time: TimeRule | None = None, *, extra: str = "ignore") -> None:
        if extra not in ("ignore", "refuse"):
            raise ValueError("extra must be 'ignore' or 'refuse'")
        self.schema = schema
        self.time = time if time is not None else TimeRule()
        self.extra = extra
        self.time_position = None if self.time.column is None else schema.position(self.time.column)
        self._names = schema.names
        self._plan: _ArrowPlan | None = None
        self._check_time_column()
        self._folded: dict[str, list[str]] = {}
        for name in self._names:
            self._folded.setdefault(name.lower(), []).append(name)

    def _check_time_column(self) -> None:
        if self.time.column is None:
            return
        if self.time_position is None:
            raise InvalidDefinition(f"there is no column {self.time.column} to take the event time from")
        type_ = self.schema.fields[self.time_position].type
        if type_.is_integer and self.time.unit is None:
            raise InvalidDefinition(f"the event time {self.time.column} is {type_} and needs a UNIT", hint="add UNIT s, ms, us or ns")
        if not type_.is_integer and type_ not in (TIMESTAMP, DATE):
            raise InvalidDefinition(f"the event time {self.time.column} cannot be {type_}")

    def field_for(self, name: str) -> str | None:
        """Return the column that an input's name means: exactly that name, else the one that differs only in case."""
        if name in self._names:
            return name
        candidates = self._folded.get(name.lower(), [])
        return candidates[0] if len(candidates) == 1 else None

    def match(self, names: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
        """Return where each column stands among the input's names, and the names that mean no column."""
        places: dict[str, int] = {}
        extra: list[str] = []
        for place, name in enumerate(names):
            column = self.field_for(name)
            if column is None or column in places:
                extra.append(name)
            else:
                places[column] = place
        return places, tuple(extra)

    def options_of(self, position: int) -> dict[str, str | None]:
        """Return the zone and unit that apply to a column: the zone to all text and local times, the unit to the event time."""
        unit = self.time.unit if position == self.time_position and self.schema.fields[position].type == TIMESTAMP else None
        return {"zone": self.time.zone, "unit": unit}

    def arrow(self, batch: Any, raw_of: RawOf | None = None) -> Ingested:
        """Take an Arrow RecordBatch or Table; columns are found by name."""
        schema = batch.schema
        plan = self._plan
        if plan is None or not plan.schema.equals(schema):
            plan = self._plan = self._plan_for(schema)
        columns = batch.columns
        converted: list[Converted | None] = []
        for place, same, type_, options in plan.steps:
            if place is None:
                converted.append(None)
                continue
            array = columns[place]
            if isinstance(array, pa.ChunkedArray):
                array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
            converted.append(take_same_type(array, type_) if same else convert_array(array, type_, **options))
        return self.finish(converted, batch.num_rows, BadRows(), plan.extra, raw_of or (lambda i: _row_as_json(batch, i)))

    def _plan_for(self, schema: Any) -> _ArrowPlan:
        places, extra = self.match(schema.names)
        steps: list[_Step] = []
        for position, column_field in enumerate(self.schema.fields):
            place = places.get(column_field.name)
            same = place is not None and schema.field(place).type == arrow_type(column_field.type)
            steps.append((place, same, column_field.type, self.options_of(position)))
        return _ArrowPlan(schema, steps, extra)

    def rows(
        self,
        rows: Sequence[Any],
        bad: BadRows | None = None,
        raw_of: RawOf | None = None,
        line_of: Callable[[int], int] | None = None,
    ) -> Ingested:
        """Take rows of Python values: maps by column name, or lists in the schema's order. Rows in `bad` are refused already."""
        bad = BadRows() if bad is None else bad
        raw_of = raw_of or (lambda i: as_json(rows[i]))
        names = self._names
        if all(type(row) is list and len(row) == len(names) for row in rows):
            values = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]
            return self.values(values, len(rows), bad, (), raw_of, line_of)
        maps = [self._as_map(i, row, bad) for i, row in enumerate(rows)]
        ignored = self._check_names(maps, bad)
        missing = object()
        columns: list[list[Any]] = []
        for column_field in self.schema.fields:
            found = [m.get(column_field.name, missing) for m in maps]
            if not column_field.nullable:
                for i, value in enumerate(found):
                    if value is missing:
                        bad.add(i, f"{column_field.name}: missing, and NOT NULL")
            columns.append([None if v is missing else v for v in found])
        return self.values(columns, len(rows), bad, ignored, raw_of, line_of)

    def _as_map(self, index: int, row: Any, bad: BadRows) -> Mapping[str, Any]:
        if isinstance(row, Mapping):
            return row
        if isinstance(row, list | tuple):
            if len(row) == len(self.schema):
                return dict(zip(self._names, row, strict=True))
            bad.add(index, f"{len(row)} values for {len(self.schema)} columns")
        else:
            bad.add(index, "a row must be a map or a list")
        return {}

    def _check_names(self, maps: list[Mapping[str, Any]], bad: BadRows) -> tuple[str, ...]:
        """Bring keys that differ only in case to the column's name; refuse or gather those that mean no column."""
        known, ignored = frozenset(self._names), dict[str, None]()
        for index, row in enumerate(maps):
            if row.keys() <= known:
                continue
            renamed: dict[str, Any] = {}
            for name, value in row.items():
                column = self.field_for(name) if isinstance(name, str) else None
                if column is not None and column not in renamed and (column == name or column not in row):
                    renamed[column] = value
                elif self.extra == "refuse":
                    bad.add(index, f"unknown column {name!r}")
                else:
                    ignored[str(name)] = None
            maps[index] = renamed
        return tuple(ignored)

    def values(
        self,
        columns: list[list[Any]],
        rows: int,
        bad: BadRows,
        ignored: tuple[str, ...],
        raw_of: RawOf,
        line_of: Callable[[int], int] | None = None,
    ) -> Ingested:
        """Take a list of Python values for each column of the schema."""
        converted: list[Converted | None] = []
        for position, (values, column_field) in enumerate(zip(columns, self.schema.fields, strict=True)):
            if bad.reasons:
                values = [None if i in bad.reasons else v for i, v in enumerate(values)]
            converted.append(convert_values(values, column_field.type, **self.options_of(position)))
        # Names were checked row by row, so none is left to refuse here.
        return self.finish(converted, rows, bad, ignored, raw_of, names_checked=True, line_of=line_of)

    def finish(
        self,
        converted: Sequence[Converted | None],
        rows: int,
        bad: BadRows,
        extra: tuple[str, ...],
        raw_of: RawOf,
        *,
        names_checked: bool = False,
        line_of: Callable[[int], int] | None = None,
    ) -> Ingested:
        """Put the converted columns together (None: the input has no such column), refuse bad rows, find event times."""
        if extra and self.extra == "refuse" and not names_checked:
            bad.add_mask(np.ones(rows, dtype=np.bool_), f"unknown column {extra[0]!r}")
        columns: list[Column] = []
        for found, column_field in zip(converted, self.schema.fields, strict=True):
            columns.append(_checked(found, column_field, rows, bad))
        times = self._event_times(columns, bad)
        warnings = self._unit_warnings(columns, times, bad)
        index = bad.keep(rows)
        if index is not None:
            columns = [c.take(index) for c in columns]
            times = None if times is None else times.take(index)
        rejected = [
            Rejection(i, bad.reasons[i], raw_of(i), None if line_of is None else line_of(i)) for i in sorted(bad.reasons)
        ]  # fmt: skip
        accepted = rows if index is None else len(index)
        ignored = extra if names_checked or self.extra == "ignore" else ()
        time_us = None if times is None else times.values
        return Ingested(columns, accepted, rejected, index, time_us, ignored, warnings)

    def _event_times(self, columns: list[Column], bad: BadRows) -> Column | None:
        """Find the event time of each row; NULL is a bad row."""
        if self.time_position is None:
            return None
        column = columns[self.time_position]
        times, failed = times_of(column, self.time)
        name = self.schema.fields[self.time_position].name
        if times.valid is not None:
            bad.add_mask(~times.valid, f"{name}: the event time is NULL")
        bad.add_all(failed, name)
        return Column(times.type, times.values)

    def _unit_warnings(self, columns: list[Column], times: Column | None, bad: BadRows) -> list[str]:
        """Look for integers that seem to be in another unit than declared."""
        if times is None or self.time.unit is None or self.time_position is None:
            return []
        column = columns[self.time_position]
        if column.type.kind not in (Kind.INT, Kind.BIGINT):
            return []
        values, instants = column.values, times.values
        if bad.reasons:
            fine = bad.keep(len(values))
            values, instants = values[fine], instants[fine]
        warning = unit_warning(values.astype(np.int64), instants, self.schema.fields[self.time_position].name, self.time.unit)
        return [] if warning is None else [warning]


def _checked(found: Converted | None, column_field: Field, rows: int, bad: BadRows) -> Column:
    """Take over a column's bad rows and look for NULLs where none may be."""
    if found is None:
        if not column_field.nullable:
            bad.add_mask(np.ones(rows, dtype=np.bool_), f"{column_field.name}: missing, and NOT NULL")
        return null_column(column_field.type, rows)
    column, failed = found
    if failed:
        bad.add_all(failed, column_field.name)
    if not column_field.nullable:
        valid = column.validity()
        if valid is not None:
            bad.add_mask(~valid, f"{column_field.name}: NULL, and NOT NULL")
    if column_field.type == TIMESTAMP and len(column.values) and column.bounds()[0] == INT64_MIN:
        lowest = column.values == INT64_MIN
        bad.add_mask(lowest if column.valid is None else lowest & column.valid, f"{column_field.name}: out of the range of TIMESTAMP")
    return column


def as_json(row: Any) -> bytes:
    """Return a row of Python values as JSON, for a rejection's raw form."""
    try:
        text = json.dumps(row, ensure_ascii=False, default=_readable)
    except (TypeError, ValueError, RecursionError):  # keys that JSON does not have, or nesting without end
        text = repr(row)
    return text.encode("utf-8", "backslashreplace")


def _readable(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _row_as_json(batch: Any, index: int) -> bytes:
    """Return one row of an Arrow batch as JSON; text that is not UTF-8 with its odd bytes escaped."""
    row: dict[str, Any] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        cell = array.slice(index, 1)
        if isinstance(cell, pa.ChunkedArray):
            cell = cell.combine_chunks()
        row[name] = _cell(cell)
    return as_json(row)


def _cell(cell: Any) -> Any:
    """Return the one value of an array; an instant that Python's dates do not reach as a bare number."""
    if pa.types.is_string(cell.type):
        return cell.view(pa.binary())[0].as_py()
    try:
        return cell[0].as_py()
    except (OverflowError, ValueError):
        return cell.view(pa.int64())[0].as_py()
