"""Arrow arrays of any sensible type to a stream's column. What has the column's own Arrow type already is only looked at, not touched.

Nothing passes silently through a DOUBLE: integers go to integers with a range check, broken or large floats are refused for integers, a
decimal must fit exactly. Text is not taken for numbers or booleans (save DECIMAL, and NaN and Infinity for DOUBLE).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, column_from_arrow, validity_of
from millstream.engine.data.calendar import INT64_MAX, US_PER_DAY
from millstream.engine.data.calendar import zone as named_zone
from millstream.engine.data.column import Column, Mask, null_column
from millstream.engine.data.event_time import US_PER_UNIT
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DOUBLE, INTERVAL, TEXT, TIME, TIMESTAMP, DataType, Kind, decimal
from millstream.engine.expressions.bounds import type_bounds
from millstream.engine.expressions.casts import to_floats
from millstream.engine.expressions.decimals import as_objects
from millstream.engine.expressions.text_columns import parse_column
from millstream.engine.expressions.values import SPECIAL_DOUBLES, format_decimal, is_number, parse_value
from millstream.engine.ingest.checks import NESTED_HINT, OUT_OF_RANGE, Converted, Failed, failed_at, instants_from_units, unit_needed
from millstream.protocol.values import arrow_functions as pc

FLOAT_EXACT_MAX = 2**53  # beyond it a float no longer tells which integer was meant


@dataclass(frozen=True, slots=True)
class Rules:
    """How the times of a column are read.

    `zone`: local time of instants that name none (None: UTC). `unit`: of bare integers meant for a TIMESTAMP (None: refused).
    `unit_round`: what is finer than a microsecond may be rounded. `bare_instants`: plain integers without a unit are microseconds, or days
    for DATE.
    """

    zone: str | None = None
    unit: str | None = None
    unit_round: bool = False
    bare_instants: bool = False


def convert_array(array: Any, type_: DataType, rules: Rules) -> Converted:
    """Return an Arrow array (not chunked) as a column of `type_`, with the rows that do not fit and why."""
    array = plain_array(array)
    if array.type == arrow_type(type_):
        return take_same_type(array, type_)
    source = array.type
    if pa.types.is_null(source):
        return null_column(type_, len(array)), {}
    if pa.types.is_string(source):
        return _from_text(array, type_, rules)
    if pa.types.is_binary(source):
        return from_bytes(array, type_, rules)
    if pa.types.is_integer(source):
        return _from_integers(array, type_, rules.unit)
    if pa.types.is_floating(source):
        return _from_floats(array, type_)
    if pa.types.is_decimal(source):
        return _from_decimals(array, type_)
    if pa.types.is_timestamp(source) and type_ == TIMESTAMP:
        return _from_timestamps(array, rules)
    return _from_other(array, type_)


def plain_array(array: Any) -> Any:
    """Undo dictionaries and extensions, and bring the wide and the view forms of text and bytes to the plain ones."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = pa.DictionaryArray.from_arrays(array.indices, plain_array(array.dictionary)).dictionary_decode()
    if pa.types.is_large_string(array.type) or array.type == pa.string_view():
        return pc.cast(array, pa.string())
    if pa.types.is_large_binary(array.type) or pa.types.is_fixed_size_binary(array.type) or array.type == pa.binary_view():
        return pc.cast(array, pa.binary())
    return array


def take_same_type(array: Any, type_: DataType) -> Converted:
    """Take an array of the column's own Arrow type. Text and lists may come from anyone, so their bytes are validated."""
    if type_.kind is Kind.TEXT:
        try:
            if not _is_ascii(array):
                array.validate(full=True)
        except pa.ArrowInvalid:
            return from_bytes(array.view(pa.binary()), type_, Rules())
    elif type_.is_arrow or type_.kind is Kind.DECIMAL:
        array.validate(full=True)
    column = column_from_arrow(array, type_)
    return _within_a_day(column) if type_.kind is Kind.TIME else (column, {})


def _within_a_day(column: Column) -> Converted:
    """Refuse what Arrow takes for times of day though it is none."""
    bad: Mask = (column.values < 0) | (column.values >= US_PER_DAY)
    bad = bad if column.valid is None else bad & column.valid
    if not bad.any():
        return column, {}
    return Column(TIME, np.where(bad, 0, column.values), column.valid), failed_at(bad, "out of the range of TIME")


def _is_ascii(array: Any) -> bool:
    """Tell whether a string array is sound and has no byte beyond ASCII, which needs a tenth of the time of looking at each string."""
    array.validate()  # the first and the last offset lie within the buffer
    _, offsets_buffer, bytes_buffer = array.buffers()
    if offsets_buffer is None or bytes_buffer is None:
        return len(array) == 0
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32, count=len(array) + 1, offset=4 * array.offset)
    if not bool(np.all(offsets[1:] >= offsets[:-1])):
        return False
    characters = np.frombuffer(bytes_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]
    return len(characters) == 0 or int(characters.max()) < 128


def unfit(value: object, type_: DataType) -> str:
    """Return the reason for a value that does not fit a type."""
    text = str(value)
    return f"{text if len(text) <= 40 else text[:37] + '...'} is not {type_}"


def all_unfit(array: Any, type_: DataType) -> Converted:
    """Refuse every value of an array, whose type has no place in the column's."""
    valid = validity_of(array)
    bad = np.ones(len(array), dtype=np.bool_) if valid is None else valid
    hint = f" ({NESTED_HINT})" if pa.types.is_nested(array.type) else ""
    return null_column(type_, len(array)), failed_at(bad, f"{array.type} is not {type_}{hint}")


def _from_text(array: Any, type_: DataType, rules: Rules) -> Converted:
    if type_.kind in (Kind.DECIMAL, Kind.TIMESTAMP, Kind.DATE, Kind.TIME, Kind.INTERVAL, Kind.BYTES):
        return written_out(array, type_, rules)
    if type_ == DOUBLE:
        return _special_doubles(array)
    return null_column(type_, len(array)), {i: f"text {t!r} is not {type_}" for i, t in enumerate(array.to_pylist()) if t is not None}


def _special_doubles(array: Any) -> Converted:
    """JSON has no NaN and no Infinity, so their names are taken as DOUBLEs; other text is not."""
    failed: Failed = {}
    values = np.zeros(len(array), dtype=np.float64)
    for i, text in enumerate(array.to_pylist()):
        found = None if text is None else SPECIAL_DOUBLES.get(text.strip().lower())
        if found is not None:
            values[i] = found
        elif text is not None:
            failed[i] = f"text {text!r} is not DOUBLE"
    return Column(DOUBLE, values, validity_of(array)), failed


def written_out(texts: Any, type_: DataType, rules: Rules) -> Converted:
    """Return texts as a column of `type_`: no digit is lost unless the stream says ROUND, and a bare number is no time (K12)."""
    exact = type_.kind is not Kind.TIMESTAMP or not rules.unit_round
    parsed = parse_column(texts, type_, rules.zone, exact=exact)
    if parsed.failed and type_.kind is Kind.TIMESTAMP:
        for i in parsed.failed:
            text = texts[i].as_py().strip()
            if is_number(text):
                parsed.failed[i] = unit_needed(text)
    return parsed.column, parsed.failed


def from_bytes(array: Any, type_: DataType, rules: Rules) -> Converted:
    """Return bytes that should be UTF-8 as text, and then as `type_`, which is not BYTES; rows that are not UTF-8 are named."""
    failed: Failed = {}
    texts: list[str | None] = []
    for i, value in enumerate(array.to_pylist()):
        try:
            texts.append(None if value is None else value.decode("utf-8"))
        except UnicodeDecodeError as error:
            failed[i] = f"invalid UTF-8 at byte {error.start}"
            texts.append(None)
    text = pa.array(texts, pa.string())
    if type_ == TEXT:
        return Column(TEXT, text), failed
    column, more = _from_text(text, type_, rules)
    return column, {**more, **failed}


def _from_integers(array: Any, type_: DataType, unit: str | None) -> Converted:
    kind = type_.kind
    valid = validity_of(array)
    if kind not in (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL) and not (kind is Kind.TIMESTAMP and unit is not None):
        mask = np.ones(len(array), dtype=np.bool_) if valid is None else valid
        failed = failed_at(mask, f"an integer is not {type_}")
        if kind is Kind.TIMESTAMP:
            failed = {i: unit_needed(array[i].as_py()) for i in failed}
        return null_column(type_, len(array)), failed
    filled = np.asarray(array if valid is None else array.fill_null(0))
    if kind is Kind.DOUBLE:
        return Column(type_, filled.astype(np.float64), valid), {}
    if kind is Kind.DECIMAL:
        return _fit_scaled(as_objects(filled) * 10**type_.scale, type_, valid)
    if kind is Kind.TIMESTAMP:
        return _from_integer_times(filled, valid, unit or "us")
    limits = type_bounds(type_)
    assert limits is not None
    bad: Mask = (filled < limits[0]) | (filled > limits[1])
    failed = {i: f"{int(filled[i])} is out of the range of {type_}" for i in np.flatnonzero(bad).tolist()} if bad.any() else {}
    values = np.where(bad, 0, filled) if failed else filled
    return Column(type_, values.astype(np.int32 if kind is Kind.INT else np.int64), valid), failed


def _from_integer_times(filled: Any, valid: Mask | None, unit: str) -> Converted:
    if filled.dtype == np.uint64 and len(filled) and int(filled.max()) > INT64_MAX:
        bad = filled > INT64_MAX
        return Column(TIMESTAMP, np.where(bad, 0, filled).astype(np.int64), valid), failed_at(bad, OUT_OF_RANGE)
    values, outside = instants_from_units(filled.astype(np.int64), unit)
    failed = {} if outside is None else failed_at(outside, OUT_OF_RANGE)
    return Column(TIMESTAMP, values, valid), failed


def _fit_scaled(scaled: Any, type_: DataType, valid: Mask | None) -> Converted:
    """Store scaled Python integers as DECIMAL; those with too many digits are named."""
    limit = 10**type_.precision - 1
    bad = np.asarray((scaled > limit) | (scaled < -limit), dtype=np.bool_)
    failed = {i: f"{format_decimal(int(scaled[i]), type_.scale)} is out of the range of {type_}" for i in np.flatnonzero(bad).tolist()}
    values = np.where(bad, 0, scaled) if failed else scaled
    return Column(type_, values if type_.is_wide else values.astype(np.int64), valid), failed


def _from_floats(array: Any, type_: DataType) -> Converted:
    valid = validity_of(array)
    values = np.asarray(array.cast(pa.float64()) if valid is None else array.cast(pa.float64()).fill_null(0.0))
    if type_ == DOUBLE:
        return Column(type_, values, valid), {}
    if type_.is_integer:
        return _whole_floats(values, type_, valid)
    if type_.kind is Kind.DECIMAL:
        return _decimals_from_floats(values.tolist(), type_, valid)
    return all_unfit(array, type_)


def _whole_floats(values: Any, type_: DataType, valid: Mask | None) -> Converted:
    limits = type_bounds(type_)
    assert limits is not None
    high = min(limits[1], FLOAT_EXACT_MAX)
    with np.errstate(invalid="ignore"):
        bad = ~((values == np.trunc(values)) & (values >= max(limits[0], -FLOAT_EXACT_MAX)) & (values <= high))
    failed = {i: unfit(values[i], type_) for i in np.flatnonzero(bad).tolist()}
    stored = np.where(bad, 0.0, values).astype(np.int32 if type_.kind is Kind.INT else np.int64)
    return Column(type_, stored, valid), failed


def _decimals_from_floats(values: list[float], type_: DataType, valid: Mask | None) -> Converted:
    """A float stands for its shortest digits."""
    failed: Failed = {}
    scaled: list[int] = []
    for i, value in enumerate(values):
        try:
            scaled.append(parse_value(repr(value), type_, exact=True) if math.isfinite(value) else _refuse(value, type_))
        except ValueError as error:
            failed[i] = str(error)
            scaled.append(0)
    stored = np.empty(len(scaled), dtype=np.object_ if type_.is_wide else np.int64)
    stored[:] = scaled
    return Column(type_, stored, valid), failed


def _refuse(value: object, type_: DataType) -> int:
    raise ValueError(unfit(value, type_))


def _from_decimals(array: Any, type_: DataType) -> Converted:
    source = array.type
    if pa.types.is_decimal256(source) or source.scale < 0 or source.scale > source.precision:
        return _from_text(pc.cast(array, pa.string()), type_, Rules())
    column = column_from_arrow(pc.cast(array, pa.decimal128(source.precision, source.scale)), decimal(source.precision, source.scale))
    if type_ == DOUBLE:
        return Column(DOUBLE, to_floats(column), column.valid), {}
    if type_.kind is not Kind.DECIMAL and not type_.is_integer:
        return all_unfit(array, type_)
    return _exact_rescale(column, type_)


def _exact_rescale(column: Column, type_: DataType) -> Converted:
    """Bring decimals to another scale; digits other than 0 that would be lost are refused."""
    values, valid, source = as_objects(column.values), column.valid, column.type
    drop = source.scale - type_.scale
    unit = 10 ** abs(drop)
    scaled = values * unit if drop <= 0 else values // unit
    lossy = np.asarray(scaled * unit != values, dtype=np.bool_) if drop > 0 else np.zeros(len(values), dtype=np.bool_)
    limits = type_bounds(type_)
    assert limits is not None
    outside = np.asarray((scaled < limits[0]) | (scaled > limits[1]), dtype=np.bool_)
    failed = {i: unfit(format_decimal(int(values[i]), source.scale), type_) for i in np.flatnonzero(lossy | outside).tolist()}
    if valid is not None:
        failed = {i: reason for i, reason in failed.items() if valid[i]}
    stored = np.where(lossy | outside, 0, scaled)
    dtype = np.object_ if type_.is_wide else np.int32 if type_.kind is Kind.INT else np.int64
    return Column(type_, stored.astype(dtype), valid), failed


def _from_timestamps(array: Any, rules: Rules) -> Converted:
    """Instants of another unit, or without a time zone: then local time of the stream's zone, or UTC."""
    valid = validity_of(array)
    raw = array.view(pa.int64())
    values = np.asarray(raw if valid is None else raw.fill_null(0))
    stored, bad = instants_from_units(values, array.type.unit)
    failed = {} if bad is None else failed_at(bad, OUT_OF_RANGE)
    if array.type.unit == "ns" and not rules.unit_round:
        broken = values % 1_000 != 0
        if broken.any():
            failed = failed_at(broken, "not a whole number of microseconds (TIMESTAMP BY … ROUND rounds it)")
    if array.type.tz is None and rules.zone is not None:
        stored = named_zone(rules.zone).to_utc(stored)
    return Column(TIMESTAMP, stored, valid), failed


def _from_times(array: Any, valid: Mask | None) -> Converted:
    """Times of day of another unit; a finer one must be of whole microseconds."""
    raw = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    values = np.asarray(raw if valid is None else raw.fill_null(0)).astype(np.int64)
    if array.type.unit == "ns":
        broken = values % 1_000 != 0
        column, failed = _within_a_day(Column(TIME, values // 1_000, valid))
        return column, {**failed, **failed_at(broken, "not a whole number of microseconds")} if broken.any() else failed
    scale = US_PER_UNIT[array.type.unit]
    bad = (values < 0) | (values >= US_PER_DAY // scale)
    return Column(TIME, np.where(bad, 0, values) * scale, valid), failed_at(bad, "out of the range of TIME") if bad.any() else {}


def _from_other(array: Any, type_: DataType) -> Converted:
    """Dates, times of day, durations; everything else does not fit."""
    source, valid = array.type, validity_of(array)
    if pa.types.is_date(source) and type_.kind in (Kind.DATE, Kind.TIMESTAMP):
        days = pc.cast(array, pa.date32()).view(pa.int32())
        values = np.asarray(days if valid is None else days.fill_null(0))
        if type_.kind is Kind.DATE:
            return Column(type_, values, valid), {}
        bad = np.abs(values.astype(np.int64)) > INT64_MAX // US_PER_DAY
        stored = np.where(bad, 0, values).astype(np.int64) * US_PER_DAY
        return Column(type_, stored, valid), failed_at(bad, OUT_OF_RANGE) if bad.any() else {}
    if pa.types.is_time(source) and type_ == TIME:
        return _from_times(array, valid)
    if pa.types.is_duration(source) and type_ == INTERVAL:
        raw = array.view(pa.int64())
        values, outside = instants_from_units(np.asarray(raw if valid is None else raw.fill_null(0)), source.unit)
        return Column(INTERVAL, values, valid), {} if outside is None else failed_at(outside, "out of the range of INTERVAL")
    return all_unfit(array, type_)
