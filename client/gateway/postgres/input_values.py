"""Values that a peer sends, in PostgreSQL's text or binary form: as literals of a statement, and as values to publish.

Every literal is checked or quoted, so a value can never become a part of the statement.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
import uuid
from decimal import Decimal, InvalidOperation
from typing import Any

from millstream.client.gateway.postgres import limits
from millstream.client.gateway.postgres.output_values import EPOCH_DAYS, EPOCH_US
from millstream.client.gateway.postgres.sqlstates import DATETIME_OVERFLOW, INVALID_BINARY, INVALID_TEXT, UNSUPPORTED, PgError
from millstream.client.gateway.postgres.types import type_of_oid
from millstream.protocol.types import ColumnType

DIGITS_MAX = 400  # of a number, as in the language
_ESCAPED_BYTES = re.compile(r"(?:[^\\]|\\(?:[0-3][0-7]{2}|\\))*", re.DOTALL)
_INTEGER = re.compile(r"\s*[+-]?\d{1,400}\s*", re.ASCII)
_TRUE, _FALSE = {"t", "true", "y", "yes", "on", "1"}, {"f", "false", "n", "no", "off", "0"}
_UNITS_US = {
    "microsecond": 1, "us": 1, "millisecond": 1_000, "ms": 1_000, "second": 1_000_000, "sec": 1_000_000, "s": 1_000_000,
    "minute": 60_000_000, "min": 60_000_000, "m": 60_000_000, "hour": 3_600_000_000, "h": 3_600_000_000, "hr": 3_600_000_000,
    "day": 86_400_000_000, "d": 86_400_000_000, "week": 604_800_000_000, "w": 604_800_000_000,
}  # fmt: skip
_PART = re.compile(r"\s*([+-]?)(?:(\d{1,19}):(\d\d)(?::(\d\d(?:\.\d{1,9})?))?|(\d{1,19}(?:\.\d{1,9})?)\s*([A-Za-z]+))\s*", re.ASCII)
_ISO = re.compile(
    r"\s*([+-]?)P(?:(\d{1,19})W)?(?:(\d{1,19})D)?(?:T(?:(\d{1,19})H)?(?:(\d{1,19})M)?(?:([+-]?\d{1,19}(?:\.\d{1,9})?)S)?)?\s*", re.ASCII
)
_EPOCH = dt.datetime(1970, 1, 1)
_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}\\]+)', re.DOTALL)


def _bad(kind: str, text: str) -> PgError:
    return PgError(INVALID_TEXT, f"{text[:40]!r} is no {kind}")


# --- binary to text ---


def text_of_binary(oid: int, data: bytes) -> str:
    """Return a value in PostgreSQL's text form. `PgError` when the bytes are none of that type, or the type is not supported."""
    kind = type_of_oid(oid)
    try:
        if kind is not None and kind.name == "LIST":
            return _array_text(data)
        found = _of_binary(oid, data)
    except (struct.error, UnicodeDecodeError, ValueError) as problem:
        raise PgError(INVALID_BINARY, f"a value of type {oid} is not in its binary form: {problem}") from None
    except OverflowError:
        raise PgError(DATETIME_OVERFLOW, "a time beyond the years 1 to 9999 must be sent as text") from None
    if found is None:
        raise PgError(UNSUPPORTED, f"parameters of type {oid} are not supported in binary form", "send it as text")
    return found


def _of_binary(oid: int, data: bytes) -> str | None:
    match oid:
        case 16:
            return "t" if struct.unpack(">?", data)[0] else "f"
        case 21 | 23 | 20 | 26:
            return str(struct.unpack({21: ">h", 23: ">i", 20: ">q", 26: ">I"}[oid], data)[0])
        case 700 | 701:
            return repr(struct.unpack(">f" if oid == 700 else ">d", data)[0])
        case 1700:
            return _numeric_text(data)
        case 25 | 1043 | 1042 | 19 | 18 | 705 | 114:
            return data.decode("utf-8")
        case 3802:
            if data[:1] != b"\x01":
                raise ValueError("jsonb of an unknown version")
            return data[1:].decode("utf-8")
        case 2950:
            return str(uuid.UUID(bytes=data))
        case 1114 | 1184:
            us = struct.unpack(">q", data)[0] + EPOCH_US
            return (_EPOCH + dt.timedelta(microseconds=us)).isoformat(" ") + ("+00" if oid == 1184 else "")
        case 17:
            return "\\x" + data.hex()
        case 1083:
            (us,) = struct.unpack(">q", data)
            if not 0 <= us < _UNITS_US["day"]:
                raise ValueError("a time of day beyond the day")
            return (_EPOCH + dt.timedelta(microseconds=us)).time().isoformat()
        case 1082:
            return (_EPOCH + dt.timedelta(days=struct.unpack(">i", data)[0] + EPOCH_DAYS)).date().isoformat()
        case 1186:
            us, days, months = struct.unpack(">qii", data)
            if months:
                raise PgError(UNSUPPORTED, "an INTERVAL of months has no fixed length", "use days, or add months in the statement")
            return f"{us + days * _UNITS_US['day']} microseconds"
    return None


def _numeric_text(data: bytes) -> str:
    count, weight, sign, scale = struct.unpack_from(">hhHH", data)
    if sign == 0xC000:
        return "NaN"
    if sign not in (0, 0x4000) or count < 0:
        raise ValueError("numeric of an unknown sign")
    if abs(weight) * 4 > DIGITS_MAX or scale > DIGITS_MAX:
        raise ValueError(f"a number has at most {DIGITS_MAX} digits")
    groups = struct.unpack(f">{count}h", data[8:])
    if any(not 0 <= group <= 9_999 for group in groups):
        raise ValueError("a group of digits is not one")
    unscaled = int("".join(f"{group:04d}" for group in groups) or "0")
    value = Decimal(f"{'-' if sign else ''}{unscaled}E{(weight - count + 1) * 4}")
    text = f"{value:f}"
    whole, point, after = text.partition(".")
    return whole if scale == 0 else f"{whole}.{(after if point else '').ljust(scale, '0')[:scale]}"


def _array_text(data: bytes) -> str:
    dimensions, _, oid = struct.unpack_from(">iiI", data)
    if dimensions == 0:
        return "{}"
    if dimensions != 1:
        raise PgError(UNSUPPORTED, f"arrays of {dimensions} dimensions are not supported")
    inner = type_of_oid(oid)
    if inner is not None and inner.name == "LIST":  # each level would double the quotes of those inside
        raise PgError(UNSUPPORTED, "arrays of arrays are not supported")
    count, _ = struct.unpack_from(">ii", data, 12)
    at, items = 20, []
    for _ in range(count):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if length == -1:
            items.append("NULL")
            continue
        if length < 0 or at + length > len(data):
            raise ValueError("an item is longer than the array")
        text = text_of_binary(oid, data[at : at + length])
        at += length
        items.append('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
    if at != len(data):
        raise ValueError("the array is longer than its items")
    return "{" + ",".join(items) + "}"


# --- text to literals and values ---


def literal(kind: ColumnType, text: str | None) -> str:
    """Return a value in the text form as a literal of the language. `PgError` when it is no value of its type."""
    if text is None:
        return "NULL"
    if "\0" in text:
        raise PgError(INVALID_TEXT, "a text cannot have a zero byte")
    match kind.name:
        case "BOOLEAN":
            return "TRUE" if _boolean(text) else "FALSE"
        case "INT" | "BIGINT":
            return _signed(str(_integer(text)))
        case "DECIMAL":
            return _signed(_decimal(text))
        case "DOUBLE":
            return f"CAST('{_double(text)!r}' AS DOUBLE)".replace("inf", "Infinity").replace("nan", "NaN")
        case "INTERVAL":
            return f"INTERVAL '{interval_us(text)} microseconds'"
        case "BYTES":
            return f"x'{bytes_of(text).hex()}'"
        case "TIMESTAMP" | "DATE" | "TIME" | "JSON":
            return f"CAST({quoted_text(text)} AS {kind.name})"
        case "LIST" if kind.element is not None and text.lstrip().startswith("{"):
            element = kind.element
            return f"ARRAY[{', '.join(literal(element, item) for item in array_items(text))}]"
    return quoted_text(text)


def _signed(digits: str) -> str:
    """Keep a sign from meeting another one: two would begin a comment."""
    return f" {digits}" if digits.startswith("-") else digits


def quoted_text(text: str) -> str:
    """Return a text in single quotes."""
    return "'" + text.replace("'", "''") + "'"


def value_of(kind: ColumnType, text: str | None) -> Any:
    """Return a value in the text form as the publisher takes it. What does not fit stays text: the server refuses it with the row."""
    if text is None:
        return None
    try:
        match kind.name:
            case "BOOLEAN":
                return _boolean(text)
            case "INT" | "BIGINT":
                return _integer(text)
            case "DOUBLE":
                return _double(text)
            case "INTERVAL":
                return dt.timedelta(microseconds=interval_us(text))
            case "BYTES":
                return bytes_of(text)
            case "LIST" if kind.element is not None and text.lstrip().startswith("{"):
                element = kind.element
                return [value_of(element, item) for item in array_items(text)]
            case "LIST" | "STRUCT" | "MAP":
                return json.loads(text)
    except (PgError, ValueError, OverflowError, RecursionError):
        return text
    return text


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise _bad("BOOLEAN", text)
    return word in _TRUE


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise _bad("whole number", text)
    return int(text)


def _decimal(text: str) -> str:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise _bad("number", text) from None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise PgError(INVALID_TEXT, f"{text[:40]} has no place in a DECIMAL", "CAST it to DOUBLE PRECISION")
    if len(value.as_tuple().digits) + abs(exponent) > DIGITS_MAX:
        raise PgError(INVALID_TEXT, f"a number has at most {DIGITS_MAX} digits")
    return f"{value:f}"


def _double(text: str) -> float:
    try:
        found = float(text) if "_" not in text else None
    except ValueError:
        found = None
    if found is None or (math.isinf(found) and any(map(str.isdigit, text))):
        raise _bad("DOUBLE", text)
    return found


def bytes_of(text: str) -> bytes:
    r"""Return the bytes of either of PostgreSQL's forms: `\x0aff`, or characters, `\377` and `\\`. `PgError` for other texts."""
    if text[:2] in ("\\x", "\\X"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise _bad("bytea", text) from None
    if not _ESCAPED_BYTES.fullmatch(text):
        raise _bad("bytea", text)
    parts = re.split(r"\\([0-3][0-7]{2}|\\)", text)
    return b"".join(
        part.encode() if place % 2 == 0 else b"\\" if part == "\\" else bytes([int(part, 8)]) for place, part in enumerate(parts)
    )


def interval_us(text: str) -> int:
    """Return the microseconds of an INTERVAL in any of PostgreSQL's styles. `PgError` for months and years, and for other texts."""
    iso = _ISO.fullmatch(text)
    if iso is not None and any(iso.groups()[1:]):
        sign = -1 if iso[1] == "-" else 1
        parts = (iso[2], "week"), (iso[3], "day"), (iso[4], "hour"), (iso[5], "minute"), (iso[6], "second")
        return sign * sum(int(Decimal(number) * _UNITS_US[unit]) for number, unit in parts if number)
    total, at = 0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise _bad("INTERVAL", text)
        sign = -1 if part[1] == "-" else 1
        if part[2] is not None:
            total += sign * int((int(part[2]) * 3600 + int(part[3]) * 60 + Decimal(part[4] or 0)) * 1_000_000)
        else:
            unit = part[6].lower()
            us = _UNITS_US.get(unit) or _UNITS_US.get(unit.removesuffix("s"))
            if us is None:
                raise PgError(INVALID_TEXT, f"{part[6][:20]} is no unit of an INTERVAL here", "months and years have no fixed length")
            total += sign * int(Decimal(part[5]) * us)
        at = part.end()
    if not text.strip():
        raise _bad("INTERVAL", text)
    return total


def array_items(text: str) -> list[str | None]:
    """Return the items of an array in the text form, None for NULL. `PgError` when it is none, or one of arrays."""
    body = text.strip()
    if len(body) < 2 or body[0] != "{" or body[-1] != "}":
        raise _bad("array", text)
    items: list[str | None] = []
    at, end = 1, len(body) - 1
    while at < end:
        match = _ITEM.match(body, at, end)
        if match is None:
            raise _bad("array of one dimension", text)
        if match[1] is not None:
            items.append(re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL))
        else:
            word = match[2].strip()
            items.append(None if word.upper() == "NULL" else word)
        at = match.end()
        if at < end:
            if body[at] != "," or at + 1 == end:
                raise _bad("array", text)
            at += 1
    if len(items) > limits.PARAMETERS_MAX:
        raise PgError(INVALID_TEXT, f"an array has at most {limits.PARAMETERS_MAX} items")
    return items
