"""Columns as a user's function sees them, and its answer as a column of the declared type. Used in the function's process only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def values_of(array: Any) -> Any:
    """Return a column without NULLs as a NumPy array: numbers and truth values as such, instants, days and durations as datetime64 and
    timedelta64, texts and decimals as objects."""
    if pa.types.is_timestamp(array.type):
        return np.asarray(array.cast(pa.int64())).view("datetime64[us]")
    if pa.types.is_duration(array.type):
        return np.asarray(array.cast(pa.int64())).view("timedelta64[us]")
    if pa.types.is_date(array.type):
        return np.asarray(array.cast(pa.int32())).astype("datetime64[D]")
    if pa.types.is_string(array.type) or pa.types.is_decimal(array.type) or pa.types.is_list(array.type):
        objects = np.empty(len(array), dtype=np.object_)
        objects[:] = array.to_pylist()
        return objects
    return array.to_numpy(zero_copy_only=False)


def array_of(answer: Any, wanted: Any) -> Any:
    """Return what a function gave as an Arrow array of the wanted type; TypeError when it is no column, or none of that type.

    None and masked values are NULL, NaN is a value. Numbers may change their type only where nothing is lost.
    """
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if isinstance(answer, np.ma.MaskedArray):
        answer = pa.array(answer.data, mask=np.ma.getmaskarray(answer))
    elif isinstance(answer, np.ndarray | list | tuple):
        answer = _from_sequence(answer, wanted)
    if not isinstance(answer, pa.Array):
        raise TypeError(f"it gave {type(answer).__name__}, not a column (a NumPy array, an Arrow array or a list)")
    if answer.type == wanted:
        return answer
    if not _of_one_kind(answer.type, wanted):
        raise TypeError(f"it gave values of the type {answer.type}, not {wanted}")
    try:
        return answer.cast(wanted)
    except pa.ArrowInvalid as error:
        raise TypeError(f"its values do not fit {wanted}: {error}") from error


def _from_sequence(answer: Any, wanted: Any) -> Any:
    if isinstance(answer, np.ndarray) and answer.ndim != 1:
        raise TypeError(f"it gave an array of {answer.ndim} dimensions, not a column")
    if isinstance(answer, np.ndarray) and answer.dtype.kind in "biuf":
        return pa.array(answer)
    if isinstance(answer, np.ndarray) and answer.dtype.kind in "mM":
        unit = "D" if pa.types.is_date(wanted) else "us"
        return pa.array(answer.astype(f"{answer.dtype.kind}8[{unit}]"))
    try:
        return pa.array(answer.tolist() if isinstance(answer, np.ndarray) else list(answer), type=None if _is_number(wanted) else wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"its values are not of the type {wanted}: {error}") from error


def _is_number(type_: Any) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _of_one_kind(given: Any, wanted: Any) -> bool:
    """Numbers may stand for numbers, instants for instants; but no text for a number, and no truth value for one."""
    number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if any(is_(wanted) for is_ in number):
        return any(is_(given) for is_ in number) or pa.types.is_null(given)
    return bool(
        pa.types.is_null(given)
        or (pa.types.is_timestamp(wanted) and pa.types.is_timestamp(given))
        or (pa.types.is_duration(wanted) and pa.types.is_duration(given))
        or (pa.types.is_string(wanted) and pa.types.is_large_string(given))
    )
