"""Functions over TEXT: by Arrow's kernels when all arguments but the first are constants, else row by row.

Lengths and positions count code points. NULL in any argument gives NULL (CONCAT and CONCAT_WS pass NULLs over). ValueError in a row
is a row error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data import limits
from millstream.engine.data.allowance import claim, claim_grown
from millstream.engine.data.arrow import mask_from_arrow, validity_of
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.types import TEXT, DataType, Kind
from millstream.engine.expressions import text_functions as by_row
from millstream.engine.expressions.ir import Call, Expression
from millstream.engine.expressions.kernel import (
    Compiler,
    EvaluationContext,
    Kernel,
    KernelRows,
    always_null,
    constant_value,
    is_constant,
    is_null_literal,
)
from millstream.protocol.values import arrow_functions as pc

ArrowFunction = Callable[[Any], Any]
# From the constant arguments to a function of the Arrow array of the first one; None: these constants need the way row by row.
PLACE_MAX = 2**31  # beyond the end of every text, and within the integers of Arrow's options
Maker = Callable[..., ArrowFunction | None]


def _substring(start: int, length: int | None = None) -> ArrowFunction | None:
    if length is not None and length < 0:
        return None
    begin, end = min(start - 1, PLACE_MAX), None if length is None else min(start - 1 + length, PLACE_MAX)
    if end is not None and end <= max(begin, 0):
        return _empty
    return lambda texts: pc.utf8_slice_codeunits(texts, max(begin, 0), end)


def _empty(texts: Any) -> Any:
    return pc.utf8_slice_codeunits(texts, 0, 0)


def _left(count: int) -> ArrowFunction:
    return _empty if count == 0 else lambda texts: pc.utf8_slice_codeunits(texts, 0, max(min(count, PLACE_MAX), -PLACE_MAX))


def _right(count: int) -> ArrowFunction:
    return _empty if count == 0 else lambda texts: pc.utf8_slice_codeunits(texts, max(min(-count, PLACE_MAX), -PLACE_MAX), None)


def _replace(search: str, replacement: str) -> ArrowFunction | None:
    if search == "":
        return lambda texts: texts
    if len(replacement.encode()) > len(search.encode()):
        return None  # row by row, where the size is checked
    return lambda texts: pc.replace_substring(texts, search, replacement)


def _trimmer(trim: str) -> Maker:
    return lambda characters=" ": (lambda texts: getattr(pc, trim)(texts, characters)) if characters else (lambda texts: texts)


def _part_kernel(inner: Kernel, delimiter: str, part: int) -> Kernel:
    """Return the kernel of SPLIT_PART; the delimiter is not empty, and parts count from 1, or from the end."""

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        texts = inner(rows, context).values
        lists = context.split(texts, delimiter)
        offsets = np.asarray(lists.offsets)[: len(texts) + 1].astype(np.int64)  # a part may have any number
        counts = np.diff(offsets)
        place = part - 1 if part > 0 else counts + part
        inside = (place >= 0) & (place < counts)
        chosen = lists.values.take(pa.array(offsets[:-1] + np.where(inside, place, 0), mask=~inside))
        return Column(TEXT, pc.if_else(pc.is_valid(texts), chosen.fill_null(""), None))

    return kernel


def _strpos(part: str) -> ArrowFunction:
    def find(texts: Any) -> Any:
        found = pc.find_substring(texts, part)
        if pc.sum(pc.binary_length(texts)).as_py() == pc.sum(pc.utf8_length(texts)).as_py():
            return pc.add(found, 1)  # bytes are code points
        return pa.array([None if t is None else t.find(part) + 1 for t in texts.to_pylist()], pa.int64())

    return find


def _repeat(count: int) -> ArrowFunction | None:
    if count <= 0:
        return _empty
    return None  # row by row, where the size is checked


FAST: dict[str, Maker] = {
    "upper": lambda: pc.utf8_upper,
    "lower": lambda: pc.utf8_lower,
    "initcap": lambda: pc.utf8_title,
    "reverse": lambda: pc.utf8_reverse,
    "length": lambda: pc.utf8_length,
    "octet_length": lambda: pc.binary_length,
    "trim": _trimmer("utf8_trim"),
    "ltrim": _trimmer("utf8_ltrim"),
    "rtrim": _trimmer("utf8_rtrim"),
    "substring": _substring,
    "left": _left,
    "right": _right,
    "repeat": _repeat,
    "replace": _replace,
    "strpos": _strpos,
    "starts_with": lambda prefix: lambda texts: pc.starts_with(texts, prefix),
    "ends_with": lambda suffix: lambda texts: pc.ends_with(texts, suffix),
    "contains": lambda part: lambda texts: pc.match_substring(texts, part),
}


def build_string_function(call: Call, compiler: Compiler) -> Kernel:
    """Build a function of TEXT by its name."""
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(call.type)
    first, *others = call.arguments
    if call.function == "split_part" and all(map(is_constant, others)):
        delimiter, part = map(constant_value, others)
        if delimiter and part:
            return _part_kernel(compiler.kernel(first), delimiter, part)
    maker = FAST.get(call.function)
    if maker is not None and all(is_constant(a) for a in others):
        made = maker(*(constant_value(a) for a in others))
        if made is not None:
            return _arrow_kernel(made, compiler.kernel(first), call.type)
    return row_by_row(by_row.FUNCTIONS[call.function], call.arguments, call.type, compiler)


def _arrow_kernel(function: ArrowFunction, inner: Kernel, type_: DataType) -> Kernel:
    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        return from_arrow_result(function(inner(rows, context).values), type_)

    return kernel


def from_arrow_result(array: Any, type_: DataType) -> Column:
    """Return what an Arrow kernel gave as a column of TEXT, BYTES, BOOLEAN, INT or BIGINT."""
    if type_.is_arrow:
        return Column(type_, array)
    if type_.kind is Kind.BOOLEAN:
        return Column(type_, mask_from_arrow(array), validity_of(array))
    valid = validity_of(array)
    filled = array if valid is None else array.fill_null(0)
    return Column(type_, np.asarray(filled).astype(np.int32 if type_.kind is Kind.INT else np.int64), valid)


def row_by_row(function: Callable[..., Any], arguments: tuple[Expression, ...], type_: DataType, compiler: Compiler) -> Kernel:
    """Return the kernel that calls a Python function once a row; NULL in gives NULL out."""
    kernels = [compiler.kernel(a) for a in arguments]

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        inputs = [as_list(k(rows, context)) for k in kernels]
        results: list[Any] = []
        problems: dict[str, list[int]] = {}
        size = told = 0
        for position, values in enumerate(zip(*inputs, strict=True)):
            try:
                results.append(None if None in values else function(*values))
            except ValueError as error:
                problems.setdefault(str(error), []).append(position)
                results.append(None)
            if type_.is_arrow and (made := results[-1]) is not None:
                size += len(made)
                if size - told > limits.CLAIM_BYTES_MIN:
                    claim_grown(told, size, "a function of texts or bytes")
                    told = size
        for reason, positions in problems.items():
            bad = np.zeros(rows.rows, dtype=np.bool_)
            bad[positions] = True
            context.fail(bad, reason)
        return from_arrow_result(pa.array(results, _RESULTS[type_.kind]), type_)

    return kernel


_RESULTS: dict[Kind, Any] = {
    Kind.TEXT: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
}


def as_list(column: Column) -> list[Any]:
    """Return the values as Python objects, None for NULL."""
    if column.type.is_arrow:
        values: list[Any] = column.values.to_pylist()
        return values
    values = column.values.tolist()
    if column.valid is None:
        return values
    return [v if ok else None for v, ok in zip(values, column.valid.tolist(), strict=True)]


def build_join(call: Call, compiler: Compiler) -> Kernel:
    """`||` (NULL when any side is), CONCAT (NULLs passed over), CONCAT_WS(separator, …)."""
    handling = "emit_null" if call.function == "||" else "skip"
    if any(is_null_literal(a) for a in call.arguments) and call.function == "||":
        return always_null(TEXT)
    arguments = call.arguments
    separator: Expression | None = None
    if call.function == "concat_ws":
        separator, *rest = arguments
        arguments = tuple(rest)
        if is_null_literal(separator):
            return always_null(TEXT)
    parts = [_text_operand(a, compiler) for a in arguments]
    between = (lambda rows, context: "") if separator is None else _text_operand(separator, compiler)

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        arrays = [p(rows, context) for p in parts]
        if not any(isinstance(a, pa.Array) for a in arrays):
            arrays[0] = pa.array([arrays[0]] * rows.rows, pa.string())
        joint = between(rows, context)
        size = _joined_bytes([*arrays, *[joint] * (len(arrays) - 1)], rows.rows)
        claim(size, "a text that is put together")
        too_long = _too_long([*arrays, *[joint] * (len(arrays) - 1)], rows.rows) if size > by_row.TEXT_BYTES_MAX else None
        if too_long is not None:
            context.fail(too_long, by_row.TOO_LONG)
            arrays = [pc.if_else(too_long, "", a) for a in arrays]
        if handling == "skip":
            arrays = _never_all_null(arrays)
        joined = pc.binary_join_element_wise(*arrays, joint, null_handling=handling)
        return Column(TEXT, joined if too_long is None else pc.if_else(too_long, None, joined))

    return kernel


def _joined_bytes(parts: list[Any], rows: int) -> int:
    """Return about how many bytes the parts are together; a constant is there once a row."""
    return sum(Column(TEXT, p).nbytes() if isinstance(p, pa.Array) else rows * len(str(p)) for p in parts)


def _too_long(parts: list[Any], rows: int) -> Mask | None:
    """Return at which rows the parts together are longer than a text may be, None for none."""
    lengths = np.zeros(rows, dtype=np.int64)
    for part in parts:
        found = pc.binary_length(part)
        lengths += np.asarray(found.fill_null(0)) if isinstance(part, pa.Array) else found.as_py()
    bad: Mask = lengths > by_row.TEXT_BYTES_MAX
    return bad if bad.any() else None


def _never_all_null(arrays: list[Any]) -> list[Any]:
    """Put an empty text where every part is NULL, since Arrow's skipping join leaves such a row out of its result."""
    if not all(isinstance(a, pa.Array) and a.null_count for a in arrays):
        return arrays
    missing = functools.reduce(pc.and_, [pc.is_null(a) for a in arrays])
    return [pc.if_else(missing, "", arrays[0]), *arrays[1:]]


def _text_operand(expression: Expression, compiler: Compiler) -> Callable[[KernelRows, EvaluationContext], Any]:
    """Give a constant to Arrow as a scalar, so that it is not repeated for every row."""
    if is_constant(expression):
        scalar = pa.scalar(constant_value(expression), pa.string())
        return lambda rows, context: scalar
    inner = compiler.kernel(expression)
    return lambda rows, context: inner(rows, context).values
