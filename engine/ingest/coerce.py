"""Rows as they come to the columns of a stream or table, each bad row refused alone (K8).

A `Coercer` is made once per stream or table; `coercer_for` keeps one for each definition. It takes Arrow batches,
and rows of plain values (lists in the schema's order, or maps by column name); CSV and JSON lines are read by parsers that use it.
An Arrow batch whose columns have the schema's Arrow types already passes without any work per row, save that text is checked to be
UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.column import Column, null_column
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.event_time import time_position
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import StreamDefinition, TimeRule
from millstream.engine.data.types import TIMESTAMP, DataType
from millstream.engine.ingest.arrays import Rules, convert_array, take_same_type
from millstream.engine.ingest.checks import Coerced, Converted, Definition, LineOf, RawOf, Reasons, RowChecks, is_needed
from millstream.engine.ingest.python_values import convert_values
from millstream.engine.ingest.quick import PlainColumns, QuickRows, is_plain
from millstream.protocol.values import arrow_functions as pc
from millstream.protocol.values.names import ColumnNames

if TYPE_CHECKING:
    from millstream.protocol.values.mapping import ColumnMap

MISSING = object()
COERCERS_KEPT_MAX = 1_024

# (place in the batch or None, whether it has the column's Arrow type already, the column's type, the rules for it)
_Step = tuple[int | None, bool, DataType, Rules]


@dataclass(frozen=True, slots=True)
class _ArrowPlan:
    """How batches of one Arrow schema are taken; publishers send the same schema again and again."""

    schema: Any
    steps: list[_Step]
    extra: tuple[str, ...]


def coerce_batch(batch: Any, definition: Definition, *, ignore_extra: bool = False) -> Coerced:
    """Return the rows of an Arrow record batch or table as columns of the definition's schema."""
    return coercer_for(definition, ignore_extra).arrow(batch)


@lru_cache(maxsize=COERCERS_KEPT_MAX)
def coercer_for(definition: Definition, ignore_extra: bool) -> Coercer:
    """Return the one coercer of a definition."""
    return Coercer(definition, ignore_extra=ignore_extra)


_LISTS = {list}


def column_of(source: Any, type_: DataType, rules: Rules) -> Converted:
    """Return Python values or an Arrow array as a column of any type, with the rows that do not fit and why."""
    if type_.is_ordered:
        return convert_values(source, type_, rules) if isinstance(source, list) else convert_array(source, type_, rules)
    from millstream.engine.ingest.nested_columns import nested_column_of  # most streams have plain columns

    return nested_column_of(source, type_, rules)


class Coercer:
    """Brings rows into the form of one stream or table.

    Columns are matched by name (protocol/values/names.py). A missing one is NULL. A row with one that the schema does not have is a bad
    row, or with `ignore_extra` the column is named in `Coerced.ignored`. A `column_map` says of some columns which one of the input fills
    them, and how their times are written.
    """

    def __init__(self, definition: Definition, *, ignore_extra: bool = False, column_map: ColumnMap | None = None) -> None:
        self.definition = definition
        self.schema = definition.schema
        self.ignore_extra = ignore_extra
        self._map = column_map
        self._time = definition.time if isinstance(definition, StreamDefinition) else TimeRule()
        self._time_position = time_position(definition) if isinstance(definition, StreamDefinition) else None
        self._names = self.schema.names
        self._width_least = len(self._names) - (definition.added if isinstance(definition, StreamDefinition) else 0)
        self._columns = ColumnNames(self._names)
        self._plan: _ArrowPlan | None = None
        self._checks = RowChecks(definition)
        self._quick = QuickRows(self.schema, self._time_position, self._time.unit)
        self._rules = [[self._rules_for(i, bare) for i in range(len(self._names))] for bare in (False, True)]

    def field_for(self, name: str) -> str | None:
        """Return the column that an input's name means."""
        return self._columns.meant_by(name)

    def match(self, names: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
        """Return where each column stands among the input's names, and the names that mean no column.

        TypeProblem when a column is named twice, or the map names one that is not there.
        """
        if self._map is not None and self._map.sources:
            return self._mapped(names)
        try:
            return self._columns.match(names)
        except ValueError as problem:
            raise TypeProblem(str(problem)) from None

    def _mapped(self, names: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
        assert self._map is not None
        try:
            places = self._map.places(names)
        except ValueError as error:
            raise TypeProblem(str(error)) from None
        return places, tuple(name for place, name in enumerate(names) if place not in places.values())

    def has_format(self, position: int) -> bool:
        """Whether the times of a column are written in a format of their own."""
        return self._map is not None and self._names[position] in self._map.formats

    def in_format(self, array: Any, position: int) -> Converted:
        """Take an Arrow array of times in the column's own format: text, or whole numbers."""
        from millstream.protocol.values.mapping import other_format, texts_of

        assert self._map is not None
        format = self._map.formats[self._names[position]]
        type_, rules = self.schema.fields[position].type, self.rules_of(position)
        texts = texts_of(array)
        if texts is None:
            return convert_array(array, type_, rules)
        iso = format.iso(texts)
        column, failed = convert_array(iso, type_, Rules(rules.zone, None, rules.unit_round))
        odd = np.flatnonzero(np.asarray(pc.and_(pc.is_valid(texts), pc.is_null(iso)))).tolist()
        return column, failed | {i: other_format(texts[i].as_py(), format) for i in odd}

    def rules_of(self, position: int) -> Rules:
        """Return what applies to a column: the zone to all local times, a UNIT to the event time if that is a TIMESTAMP."""
        return self._rules[False][position]

    def _rules_for(self, position: int, bare_instants: bool) -> Rules:
        rule = self._time
        unit = rule.unit if position == self._time_position and self.schema.fields[position].type == TIMESTAMP else None
        return Rules(rule.zone, unit, rule.unit_round, bare_instants)

    def arrow(self, batch: Any) -> Coerced:
        """Take an Arrow RecordBatch or Table."""
        schema = batch.schema
        plan = self._plan
        if plan is None or not plan.schema.equals(schema):
            plan = self._plan = self._plan_for(schema)
        columns = batch.columns
        converted: list[Converted | None] = []
        for position, (place, same, type_, rules) in enumerate(plan.steps):
            if place is None:
                converted.append(None)
                continue
            array = columns[place]
            if isinstance(array, pa.ChunkedArray):
                array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
            if self._map is not None and self.has_format(position):
                converted.append(self.in_format(array, position))
            else:
                converted.append(take_same_type(array, type_) if same else column_of(array, type_, rules))
        rows = batch.num_rows
        return self.put_together(converted, Reasons(rows), plan.extra, lambda i: _row_as_json(batch, i))

    def plain(self, schema: Any) -> PlainColumns | None:
        """Return the short way for batches of an Arrow schema, None where its columns are not just those of this one."""
        try:
            plan = self._plan_for(schema)
        except TypeProblem:
            return None  # every batch will be told
        order = [(type_, place) for place, same, type_, _ in plan.steps if same and place is not None and is_plain(type_)]
        if plan.extra or len(order) < len(plan.steps):
            return None
        return PlainColumns(order, self._checks.are_good)

    def _plan_for(self, schema: Any) -> _ArrowPlan:
        places, extra = self.match(schema.names)
        steps: list[_Step] = []
        for position, column_field in enumerate(self.schema.fields):
            place = places.get(column_field.name)
            same = place is not None and schema.field(place).type == arrow_type(column_field.type) and column_field.type.is_ordered
            steps.append((place, same, column_field.type, self.rules_of(position)))
        return _ArrowPlan(schema, steps, extra)

    def rows(
        self,
        rows: Sequence[Any],
        reasons: Reasons | None = None,
        raw_of: RawOf | None = None,
        line_of: LineOf | None = None,
        *,
        bare_instants: bool = True,
    ) -> Coerced:
        """Take rows of plain values, each a list in the schema's order or a map. Rows in `reasons` are refused already.

        `bare_instants`: an integer is microseconds for TIMESTAMP and INTERVAL and days for DATE; without it those need text or a UNIT.
        """
        if reasons is None and bare_instants and (quick := self._quick.columns(rows)) is not None:
            return Coerced(quick, len(rows))
        reasons = Reasons(len(rows)) if reasons is None else reasons
        raw_of = raw_of or (lambda i: as_json(rows[i]))
        width = len(self._names)
        ignored: tuple[str, ...] = ()
        if set(map(type, rows)) == _LISTS and set(map(len, rows)) == {width}:
            columns = [list(column) for column in zip(*rows, strict=True)]
        else:
            columns, ignored = self._gathered(rows, reasons)
        rules = self._rules[bare_instants]
        converted: list[Converted | None] = [
            self._values(values, i, rules[i], reasons) if self.has_format(i) else column_of(values, column_field.type, rules[i])
            for i, (values, column_field) in enumerate(zip(columns, self.schema.fields, strict=True))
        ]
        # Names have been checked row by row, so none is left to refuse.
        result = self.put_together(converted, reasons, (), raw_of, line_of)
        result.ignored = ignored
        return result

    def _values(self, values: list[Any], position: int, rules: Rules, reasons: Reasons) -> Converted:
        """Take values whose times are written in a format; what is neither text nor a number is refused as ever."""
        texts = [str(v) if isinstance(v, str | int) and not isinstance(v, bool) else None for v in values]
        others = [None if text is not None else value for text, value in zip(texts, values, strict=True)]
        column, failed = self.in_format(pa.array(texts, pa.string()), position)
        _, bad = convert_values(others, self.schema.fields[position].type, rules)
        return column, failed | bad

    def _gathered(self, rows: Sequence[Any], reasons: Reasons) -> tuple[list[list[Any]], tuple[str, ...]]:
        """Return a list of values for each column; refused rows give NULLs."""
        ignored = dict[str, None]()
        maps = [self._as_map(i, row, reasons, ignored) for i, row in enumerate(rows)]
        columns: list[list[Any]] = []
        for column_field in self.schema.fields:
            found = [m.get(column_field.name, MISSING) for m in maps]
            if is_needed(column_field, self.definition):
                for i, value in enumerate(found):
                    if value is MISSING:
                        reasons.add(i, f"column {column_field.name} is missing")
            columns.append([None if v is MISSING else v for v in found])
        return columns, tuple(ignored)

    def _as_map(self, index: int, row: Any, reasons: Reasons, ignored: dict[str, None]) -> Mapping[str, Any]:
        """Return a row by column name, empty when it is refused."""
        if index in reasons.by_row:
            return {}
        if isinstance(row, Mapping):
            if self._map is not None and self._map.sources:
                try:
                    row = self._map.row(row)
                except ValueError as problem:
                    reasons.add(index, str(problem))
                    return {}
            return row if row.keys() <= self._columns.known else self._renamed(index, row, reasons, ignored)
        if not isinstance(row, list | tuple):
            reasons.add(index, f"a row is a list or a map, not {type(row).__name__}")
        elif not self._width_least <= len(row) <= len(self._names):
            reasons.add(index, f"{len(row)} values for {len(self._names)} columns")
        else:
            return dict(zip(self._names, row, strict=False))
        return {}

    def _renamed(self, index: int, row: Mapping[str, Any], reasons: Reasons, ignored: dict[str, None]) -> Mapping[str, Any]:
        """Bring keys that differ only in case to the column's name; refuse or note those that mean no column."""
        renamed: dict[str, Any] = {}
        for name, value in row.items():
            column = self.field_for(name) if isinstance(name, str) else None
            if column is not None and column not in renamed and (column == name or column not in row):
                renamed[column] = value
            elif self.ignore_extra:
                ignored[str(name)] = None
            else:
                reasons.add(index, f"there is no column {name}")
                return {}
        return renamed

    def put_together(
        self,
        converted: Sequence[Converted | None],
        reasons: Reasons,
        extra: tuple[str, ...],
        raw_of: RawOf,
        line_of: LineOf | None = None,
    ) -> Coerced:
        """Put the converted columns together (None: the input has no such column), check them, keep the good rows."""
        rows = reasons.rows
        if extra and not self.ignore_extra:
            reasons.add_where(np.ones(rows, dtype=np.bool_), f"there is no column {extra[0]}")
        columns: list[Column] = []
        for found, column_field in zip(converted, self.schema.fields, strict=True):
            if found is not None:
                reasons.add_failed(found[1], column_field.name)
                columns.append(found[0])
                continue
            columns.append(null_column(column_field.type, rows))
            if is_needed(column_field, self.definition):
                reasons.add_where(np.ones(rows, dtype=np.bool_), f"column {column_field.name} is missing")
        result = self._checks.finish(columns, rows, reasons, raw_of, line_of)
        result.ignored = extra if self.ignore_extra else ()
        return result


def as_json(row: Any) -> str:
    """Return a row of plain values as JSON, for a rejection's raw form."""
    try:
        return json.dumps(row, ensure_ascii=False, default=_readable)
    except (TypeError, ValueError, RecursionError):  # keys that JSON does not have, or nesting without end
        return repr(row)


def _readable(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _row_as_json(batch: Any, index: int) -> str:
    """Return one row of an Arrow batch as JSON; text that is not UTF-8 with its odd bytes escaped."""
    row: dict[str, Any] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        cell = array.slice(index, 1)
        row[name] = _cell(cell.combine_chunks() if isinstance(cell, pa.ChunkedArray) else cell)
    return as_json(row)


def _cell(cell: Any) -> Any:
    """Return the one value of an array; an instant or date that Python's do not reach as a bare number."""
    kind = cell.type
    if cell.null_count:
        return None
    if pa.types.is_string(kind):
        return cell.view(pa.binary())[0].as_py()
    if pa.types.is_struct(kind):
        return {part.name: _cell(array) for part, array in zip(kind, cell.flatten(), strict=True)}
    if pa.types.is_map(kind):
        from millstream.engine.expressions.nested_values import entries_of

        keys, items, _ = entries_of(cell)
        names = [str(key) for key in pc.cast(keys, pa.string()).to_pylist()]
        return {name: _cell(items.slice(i, 1)) for i, name in enumerate(names)}
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        items = cell.flatten()
        return [_cell(items.slice(i, 1)) for i in range(len(items))]
    try:
        return cell[0].as_py()
    except (OverflowError, ValueError):
        return cell.view(pa.int32() if kind.bit_width == 32 else pa.int64())[0].as_py()
