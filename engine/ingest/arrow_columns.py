"""A column from an Arrow array of whatever type a publisher has: as it stands where the type fits, cast where no value can change.

A type that can never fit is a TypeProblem for the whole batch; a value that does not fit is NULL with a reason noted for its row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from millstream.engine.arrow import arrow_type, column_from_arrow
from millstream.engine.column import Column, null_column
from millstream.engine.errors import TypeProblem
from millstream.engine.expressions.parsing import parse_column
from millstream.engine.expressions.zones import zone as named_zone
from millstream.engine.ingest.outcome import Reasons
from millstream.engine.schema import Field, TimeRule
from millstream.engine.types import Kind


def arrow_column(array: Any, field: Field, reasons: Reasons, time: TimeRule | None = None) -> Column:
    """Return a record batch's column (or a table's chunked one) as a column of the field's type."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == arrow_type(field.type):
        return _checked(column_from_arrow(array, field.type), field, reasons)
    if pa.types.is_null(array.type):
        return null_column(field.type, len(array))
    if _is_text(array.type):
        return _from_text(array, field, reasons, time)
    return _from_other(array, field, reasons, time)


def _is_text(type_: Any) -> bool:
    return any(is_(type_) for is_ in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)) or str(
        type_
    ).startswith(("string_view", "binary_view"))


def _checked(column: Column, field: Field, reasons: Reasons) -> Column:
    """The least int64 is kept free for "no time" (K3)."""
    if field.type.kind is Kind.TIMESTAMP and len(column) and int(column.values.min()) == np.iinfo(np.int64).min:
        bad = column.values == np.iinfo(np.int64).min
        if column.valid is not None:
            bad &= column.valid
        reasons.add_where(bad, f"column {field.name}: out of the range of TIMESTAMP")
    return column


def _from_text(array: Any, field: Field, reasons: Reasons, time: TimeRule | None) -> Column:
    text = as_text(array, field.name, reasons)
    if field.type.kind is Kind.TEXT:
        return Column(field.type, text)
    if field.type.kind not in (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL, Kind.DECIMAL):
        raise TypeProblem(f"column {field.name} is {field.type} and the batch has text")
    parsed = parse_column(text, field.type, time.zone if time else None, exact=True)
    for index, reason in parsed.failed.items():
        reasons.add(index, f"column {field.name}: {reason}")
    return parsed.column


def as_text(array: Any, name: str, reasons: Reasons) -> Any:
    """Return a text or binary array as Arrow strings; a value that is not valid UTF-8 is NULL with a reason noted."""
    try:
        text = array.cast(pa.string())
        text.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values = array.cast(pa.binary()).to_pylist()
        text = pa.array([_decoded(v, i, name, reasons) for i, v in enumerate(values)], type=pa.string())
    return text


def _decoded(value: bytes | None, index: int, name: str, reasons: Reasons) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        reasons.add(index, f"column {name}: not valid UTF-8")
        return None


def _from_other(array: Any, field: Field, reasons: Reasons, time: TimeRule | None) -> Column:
    kind, types = field.type.kind, pa.types
    given = array.type
    if kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL) and types.is_integer(given):
        return _cast_range(array, field, reasons)
    if (kind is Kind.DOUBLE and (types.is_floating(given) or types.is_decimal(given))) or (
        kind is Kind.DECIMAL and (types.is_decimal(given) or types.is_floating(given))
    ):
        return _cast_range(array, field, reasons)
    if kind is Kind.TIMESTAMP and types.is_timestamp(given):
        return _from_timestamps(array, field, reasons, time)
    if (kind is Kind.TIMESTAMP and types.is_date(given)) or (kind is Kind.DATE and types.is_date(given)):
        return _cast_range(array, field, reasons)
    if kind is Kind.INTERVAL and types.is_duration(given):
        return _cast_range(array, field, reasons)
    raise TypeProblem(f"column {field.name} is {field.type} and the batch has {given}", hint=f"send it as {arrow_type(field.type)}")


def _cast_range(array: Any, field: Field, reasons: Reasons) -> Column:
    """Cast at once; if some value does not fit, value by value, so that only its row is refused."""
    target = arrow_type(field.type)
    if field.type.kind is Kind.DECIMAL and pa.types.is_floating(array.type):
        # Every float has an exact decimal spelling; the shortest one that reads back is what its sender meant.
        return _from_text(pc.cast(array, pa.string()), field, reasons, None)
    try:
        return column_from_arrow(pc.cast(array, target), field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    pieces = []
    for index in range(len(array)):
        try:
            pieces.append(pc.cast(array.slice(index, 1), target))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            reasons.add(index, f"column {field.name}: {array[index].as_py()} is out of the range of {field.type}")
            pieces.append(pa.nulls(1, target))
    return column_from_arrow(pa.concat_arrays(pieces), field.type)


def _from_timestamps(array: Any, field: Field, reasons: Reasons, time: TimeRule | None) -> Column:
    """Instants of any unit; without a zone they are local time of the stream's ZONE, or UTC. Nanoseconds must be whole microseconds."""
    naive = array.type.tz is None
    if array.type.unit == "ns":
        array = _whole_microseconds(array, field, reasons, time)
    else:
        target = pa.timestamp("us", array.type.tz)
        column = _cast_range_to(array, target, field, reasons)
        array = column
    column = column_from_arrow(array.view(pa.int64()).view(pa.timestamp("us", "UTC")), field.type)
    if naive and time is not None and time.zone is not None:
        return Column(field.type, named_zone(time.zone).to_utc(column.values), column.valid)
    return _checked(column, field, reasons)


def _cast_range_to(array: Any, target: Any, field: Field, reasons: Reasons) -> Any:
    try:
        return pc.cast(array, target)
    except pa.ArrowInvalid:
        seconds = np.asarray(pc.fill_null(array.view(pa.int64()), 0))
        scale = 1_000_000 if array.type.unit == "s" else 1_000
        bad = np.abs(seconds) > (2**63 - 1) // scale
        reasons.add_where(bad, f"column {field.name}: out of the range of TIMESTAMP")
        return pc.cast(pc.if_else(pa.array(~bad), array, pa.scalar(None, array.type)), target)


def _whole_microseconds(array: Any, field: Field, reasons: Reasons, time: TimeRule | None) -> Any:
    numbers = array.view(pa.int64())
    values = np.asarray(pc.fill_null(numbers, 0))
    rounded, rest = np.floor_divide(values, 1_000), np.mod(values, 1_000)
    if time is None or not time.unit_round:
        reasons.add_where(rest != 0, f"column {field.name}: not a whole number of microseconds (UNIT ns ROUND rounds down)")
    mask = np.asarray(array.is_null().to_numpy(zero_copy_only=False)) if array.null_count else None
    return pa.array(rounded, type=pa.int64(), mask=mask)
