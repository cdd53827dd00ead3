"""Functions over BYTES, and between BYTES and TEXT (K22): few queries have any, so this file is loaded by those."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.allowance import claim
from millstream.engine.data.arrow import validity_of
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, BYTES, INT, NULL, TEXT, DataType
from millstream.engine.expressions.ir import Call
from millstream.engine.expressions.kernel import (
    Builder,
    Compiler,
    EvaluationContext,
    Kernel,
    KernelRows,
    always_null,
    is_null_literal,
    null_or_fail,
)
from millstream.engine.expressions.signature import Options, Rule, Signature, Types, expect_count, refuse, refuse_argument
from millstream.engine.expressions.strings import row_by_row
from millstream.engine.expressions.text_functions import TEXT_BYTES_MAX
from millstream.protocol.values import arrow_functions as pc
from millstream.protocol.values.text import hex_digits, of_hex_texts

ENCODINGS = ("utf8", "hex", "base64")
_UTF8 = ("utf8", "utf-8")
_HINT = "write 'utf8', 'hex' or 'base64'"
TOO_LONG = "bytes too long"


# Types -------------------------------------------------------------------------------------------------------------------


def concatenation(name: str, types: Types, options: Options) -> Signature:
    """`||` of BYTES."""
    for other in types:
        if other not in (BYTES, NULL):
            refuse(name, types[:2], "both sides of || must be BYTES, or both TEXT; write ENCODE(b, 'hex') or TO_BYTES(t)")
    return Signature(name, tuple(BYTES for _ in types), BYTES)


def length(name: str, types: Types, options: Options) -> Signature:
    """LENGTH and OCTET_LENGTH of BYTES."""
    expect_count(name, types, 1, 1)
    return Signature(name, (BYTES,), BIGINT)


def substring(name: str, types: Types, options: Options) -> Signature:
    """SUBSTRING(b, from [, for]) of BYTES."""
    expect_count(name, types, 2, 3)
    return Signature(name, (BYTES, *_whole(name, types, 1)), BYTES)


def get_byte(name: str, types: Types, options: Options) -> Signature:
    """GET_BYTE(b, n), n from 0."""
    expect_count(name, types, 2, 2)
    _of(name, types, BYTES)
    return Signature(name, (BYTES, *_whole(name, types, 1)), INT)


def to_bytes(name: str, types: Types, options: Options) -> Signature:
    """TO_BYTES(text [, encoding]), DECODE(text, encoding), CONVERT_TO(text, 'UTF8'): options (encoding)."""
    _of(name, types, TEXT)
    return Signature("to_bytes", (TEXT,), BYTES, (_encoding(name, types, options),))


def from_bytes(name: str, types: Types, options: Options) -> Signature:
    """FROM_BYTES(bytes [, encoding]), ENCODE(bytes, encoding), CONVERT_FROM(bytes, 'UTF8'): options (encoding)."""
    _of(name, types, BYTES)
    return Signature("from_bytes", (BYTES,), TEXT, (_encoding(name, types, options),))


def digest(name: str, types: Types, options: Options) -> Signature:
    """MD5(x) is TEXT in digits, as in PostgreSQL; SHA1 … SHA512 are BYTES. A TEXT is taken by its UTF-8."""
    expect_count(name, types, 1, 1)
    if types[0] not in (BYTES, TEXT, NULL):
        refuse_argument(name, 0, types[0], "BYTES or TEXT", "cast it, as in CAST(x AS TEXT)")
    return Signature(name, (TEXT if types[0] == NULL else types[0],), TEXT if name == "md5" else BYTES)


def _of(name: str, types: Types, wanted: DataType) -> None:
    if not types:
        expect_count(name, types, 1, 2)
    if types[0] not in (wanted, NULL):
        hint = "TO_BYTES(t) gives the UTF-8 of a text" if wanted == BYTES else "ENCODE(b, 'hex') gives the digits of bytes"
        refuse_argument(name, 0, types[0], str(wanted), hint)


def _encoding(name: str, types: Types, options: Options) -> str:
    if len(types) != 1:
        raise TypeProblem(f"the encoding of {name.upper()} must be a constant", hint=_HINT)
    if not options and name in ("encode", "decode"):
        raise TypeProblem(f"{name.upper()} needs the encoding", hint=_HINT)
    found = str(options[0]).lower() if options else "utf8"
    found = "utf8" if found in _UTF8 else found
    if found not in ENCODINGS:
        raise TypeProblem(f"{name.upper()} does not know the encoding {options[0]!r}", hint=_HINT)
    return found


def _whole(name: str, types: Types, first: int) -> Types:
    for place, type_ in enumerate(types[first:], start=first):
        if not (type_.is_integer or type_ == NULL):
            refuse_argument(name, place, type_, "a whole number")
    return tuple(BIGINT for _ in types[first:])


DIGESTS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
BYTE_RULES: dict[str, Rule] = {
    **dict.fromkeys(("to_bytes", "decode", "convert_to"), to_bytes),
    **dict.fromkeys(("from_bytes", "encode", "convert_from"), from_bytes),
    **dict.fromkeys(DIGESTS, digest),
    "get_byte": get_byte,
    "||": concatenation,
    "substring": substring,
    **dict.fromkeys(("length", "octet_length"), length),
}


# Values ------------------------------------------------------------------------------------------------------------------


def build_byte_function(call: Call, compiler: Compiler) -> Kernel:
    """Build a function of BYTES by its name."""
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(call.type)
    return _BUILDERS[call.function](call, compiler)


def _join(call: Call, compiler: Compiler) -> Kernel:
    parts = [compiler.kernel(a) for a in call.arguments]

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        arrays = [part(rows, context).values for part in parts]
        lengths = sum((pc.fill_null(pc.binary_length(a), 0).to_numpy(zero_copy_only=False).astype(np.int64) for a in arrays), np.int64(0))
        claim(int(np.sum(lengths)), "bytes that are put together")
        bad: Mask = np.asarray(lengths > TEXT_BYTES_MAX, dtype=np.bool_)
        if bad.any():
            context.fail(bad, TOO_LONG)
            arrays[0] = pc.if_else(pa.array(~bad), arrays[0], pa.scalar(None, pa.binary()))
        return Column(BYTES, pc.binary_join_element_wise(*arrays, pa.scalar(b"", pa.binary())))

    return kernel


def _length(call: Call, compiler: Compiler) -> Kernel:
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        found = pc.binary_length(inner(rows, context).values)
        return Column(BIGINT, pc.fill_null(found, 0).to_numpy(zero_copy_only=False).astype(np.int64), validity_of(found))

    return kernel


def _substring(call: Call, compiler: Compiler) -> Kernel:
    """Positions before 1 count but hold nothing, as in PostgreSQL."""

    def part(value: bytes, start: int, size: int | None = None) -> bytes:
        if size is not None and size < 0:
            raise ValueError("negative length of SUBSTRING")
        return value[max(start - 1, 0) : None if size is None else max(start - 1 + size, 0)]

    return row_by_row(part, call.arguments, call.type, compiler)


def _get_byte(call: Call, compiler: Compiler) -> Kernel:
    def one(value: bytes, place: int) -> int:
        if not 0 <= place < len(value):
            raise ValueError(f"there is no byte {place}; the first is 0")
        return value[place]

    return row_by_row(one, call.arguments, call.type, compiler)


def _to_bytes(call: Call, compiler: Compiler) -> Kernel:
    (encoding,) = call.options
    if encoding == "base64":
        return row_by_row(_of_base64, call.arguments, call.type, compiler)
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        texts = inner(rows, context).values
        if encoding == "utf8":
            return Column(BYTES, pc.cast(texts, pa.binary()))
        found, bad = of_hex_texts(pc.binary_join_element_wise("\\x", texts, ""))
        null_or_fail(context, bad, None, "the text is not hexadecimal")
        return Column(BYTES, found)

    return kernel


def _of_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the text is not base64") from None


def _from_bytes(call: Call, compiler: Compiler) -> Kernel:
    (encoding,) = call.options
    if encoding == "base64":
        return row_by_row(lambda value: binascii.b2a_base64(value, newline=False).decode(), call.arguments, call.type, compiler)
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        values = inner(rows, context).values
        if encoding == "hex":
            return Column(TEXT, hex_digits(values))
        try:
            return Column(TEXT, pc.cast(values, pa.string()))
        except pa.ArrowInvalid:
            return _texts(values, context)

    return kernel


def _texts(values: Any, context: EvaluationContext) -> Column:
    """Return the values that are UTF-8 as TEXT, where some are not."""
    made: list[str | None] = []
    bad = np.zeros(len(values), dtype=np.bool_)
    for place, value in enumerate(values.to_pylist()):
        try:
            made.append(None if value is None else value.decode("utf-8"))
        except UnicodeDecodeError:
            bad[place] = True
            made.append(None)
    context.fail(bad, "the bytes are not UTF-8")
    return Column(TEXT, pa.array(made, pa.string()))


def _digest(call: Call, compiler: Compiler) -> Kernel:
    make = functools.partial(hashlib.new, call.function, usedforsecurity=False)
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        values = pc.cast(inner(rows, context).values, pa.binary()).to_pylist()
        found = pa.array([None if value is None else make(value).digest() for value in values], pa.binary())
        return Column(TEXT, hex_digits(found)) if call.type == TEXT else Column(BYTES, found)

    return kernel


_BUILDERS: dict[str, Builder] = {
    "||": _join,
    "length": _length,
    "octet_length": _length,
    "substring": _substring,
    "get_byte": _get_byte,
    "to_bytes": _to_bytes,
    "from_bytes": _from_bytes,
    **dict.fromkeys(DIGESTS, _digest),
}
