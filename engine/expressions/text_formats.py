"""Texts of a written form: instants by a pattern, SPLIT, parts of URLs; and numbers and instants put into buckets.

Few queries have any of these, so the file is loaded by those. Patterns are constants. An instant is read by one regular expression of
Arrow and arithmetic over whole columns; URLs are taken apart once for each different text.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.allowance import claim
from millstream.engine.data.arrow import column_from_arrow
from millstream.engine.data.calendar import US_PER_DAY, US_PER_HOUR, US_PER_MINUTE, US_PER_S
from millstream.engine.data.calendar import zone as named_zone
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, DATE, DOUBLE, INT, INTERVAL, NULL, TEXT, TIMESTAMP, DataType, Kind, list_of
from millstream.engine.expressions.date_rules import check_zone, to_char
from millstream.engine.expressions.dates import PATTERN_TOKEN, Int64Array, days_of
from millstream.engine.expressions.ir import Call, Expression
from millstream.engine.expressions.kernel import (
    Compiler,
    EvaluationContext,
    Kernel,
    KernelRows,
    always_null,
    both_valid,
    constant_value,
    fail_where,
    is_constant,
    is_null_literal,
)
from millstream.engine.expressions.lists import spans
from millstream.engine.expressions.signature import Rule, Signature, expect_count, of_kind, refuse, refuse_argument
from millstream.engine.expressions.strings import from_arrow_result
from millstream.protocol.values import arrow_functions as pc

Types = tuple[DataType, ...]
Options = tuple[Any, ...]

# Field of a pattern of TO_CHAR -> (what is read, how it looks).
_NAME, _TWO = "[A-Za-z]+", r"\d{1,2}"
_READ: dict[str, tuple[str, str]] = {
    "YYYY": ("year", r"\d{4}"), "YY": ("short year", r"\d{2}"), "MM": ("month", _TWO), "FMMM": ("month", _TWO), "DD": ("day", _TWO),
    "FMDD": ("day", _TWO), "DDD": ("day of the year", r"\d{1,3}"), "HH24": ("hour", _TWO), "FMHH24": ("hour", _TWO),
    "HH12": ("hour of twelve", _TWO), "HH": ("hour of twelve", _TWO), "MI": ("minute", _TWO), "SS": ("second", _TWO),
    "MS": ("fraction", r"\d{1,3}"), "US": ("fraction", r"\d{1,6}"), **dict.fromkeys(("AM", "PM", "am", "pm"), ("half", "[AaPp][Mm]")),
    **dict.fromkeys(("Mon", "MON", "mon"), ("month by name", "[A-Za-z]{3}")), "FMMonth": ("month by name", _NAME),
    **dict.fromkeys(("Dy", "DY", "dy"), ("weekday", "[A-Za-z]{3}")), "FMDay": ("weekday", _NAME),
}  # fmt: skip
# What strftime of C and DuckDB calls a field.
_DIRECTIVES = {
    "Y": "YYYY", "y": "YY", "m": "MM", "-m": "FMMM", "d": "DD", "-d": "FMDD", "j": "DDD", "H": "HH24", "-H": "FMHH24", "I": "HH12",
    "M": "MI", "S": "SS", "f": "US", "g": "MS", "p": "AM", "b": "Mon", "B": "FMMonth", "a": "Dy", "A": "FMDay", "u": "ID", "V": "IW",
    "G": "IYYY", "F": "YYYY-MM-DD", "T": "HH24:MI:SS", "%": "%",
}  # fmt: skip


# -- rules ------------------------------------------------------------------------------------------------------------------------


def of_directives(name: str, text: str) -> str:
    """Return the pattern of TO_CHAR that a format such as '%d/%m/%Y' is; TypeProblem naming what it does not know."""
    parts = []
    for directive, other in re.findall(r"%(-?.)|([^%]+|%$)", text, re.DOTALL):
        if other and ('"' in other or other == "%"):
            raise TypeProblem(f"{name.upper()} does not know {other!r}", hint="a per cent sign is %%; a double quote cannot stand in it")
        if not other and directive not in _DIRECTIVES:
            known = ", ".join(f"%{d}" for d in _DIRECTIVES)
            raise TypeProblem(f"{name.upper()} does not know %{directive}", hint=f"use {known}; CAST reads ISO 8601 with its offset")
        parts.append(_DIRECTIVES[directive] if not other else re.sub("[A-Za-z]+", lambda m: f'"{m.group()}"', other))
    return "".join(parts)


def strftime(name: str, types: Types, options: Options) -> Signature:
    """STRFTIME(ts, '%Y-%m-%d' [, 'zone']) is TO_CHAR with the words of C."""
    _check_pattern(name, types, options)
    return to_char("to_char", types, (of_directives(name, str(options[0])), *options[1:]))


def strptime(name: str, types: Types, options: Options) -> Signature:
    """STRPTIME(text, '%d/%m/%Y' [, 'zone']) likewise."""
    _check_pattern(name, types, options)
    return parse_timestamp(name, types, (of_directives(name, str(options[0])), *options[1:]))


def parse_timestamp(name: str, types: Types, options: Options) -> Signature:
    """TO_TIMESTAMP(text, 'pattern' [, 'zone']), also PARSE_TIMESTAMP: what TO_CHAR writes."""
    _check_pattern(name, types, options)
    expect_count(name, types, 1, 1)
    of_kind(name, 0, types[0], TEXT)
    pattern_reader(str(options[0]))
    zone = (check_zone(options[1]),) if len(options) > 1 and options[1] is not None else ()
    return Signature("parse_timestamp", (TEXT,), TIMESTAMP, (str(options[0]), *zone))


def _check_pattern(name: str, types: Types, options: Options) -> None:
    if not options or options[0] is None:
        raise TypeProblem(f"{name.upper()} needs its pattern as a constant text", hint="as in TO_TIMESTAMP(t, 'DD/MM/YYYY HH24:MI')")


def split(name: str, types: Types, options: Options) -> Signature:
    """SPLIT(text, delimiter): a list; by an empty delimiter of the characters."""
    expect_count(name, types, 2, 2)
    return Signature("split", tuple(of_kind(name, i, t, TEXT) for i, t in enumerate(types)), list_of(TEXT))


def of_url(name: str, types: Types, options: Options) -> Signature:
    """URL_EXTRACT_HOST(url) and the like; URL_EXTRACT_PARAMETER(url, name)."""
    count = 2 if name == "url_extract_parameter" else 1
    expect_count(name, types, count, count)
    return Signature(name, tuple(of_kind(name, i, t, TEXT) for i, t in enumerate(types)), INT if name == "url_extract_port" else TEXT)


def width_bucket(name: str, types: Types, options: Options) -> Signature:
    """WIDTH_BUCKET(x, low, high, n): in which of n equal parts x is, 0 below and n + 1 above them."""
    expect_count(name, types, 4, 4)
    for i, type_ in enumerate(types):
        if not (type_.is_numeric or type_ == NULL) or (i == 3 and not (type_.is_integer or type_ == NULL)):
            refuse_argument(name, i, type_, "a whole number" if i == 3 else "a number")
    return Signature(name, (DOUBLE, DOUBLE, DOUBLE, BIGINT), BIGINT)


def date_bin(name: str, types: Types, options: Options) -> Signature:
    """DATE_BIN(stride, ts [, origin]) and TIME_BUCKET(width, ts [, origin or offset]): the start of the stride that ts is in."""
    expect_count(name, types, 2, 3)
    of_kind(name, 0, types[0], INTERVAL)
    for i, type_ in enumerate(types[1:], start=1):
        if type_ not in (TIMESTAMP, DATE, NULL) and not (i == 2 and name == "time_bucket" and type_ == INTERVAL):
            refuse_argument(name, i, type_, "a TIMESTAMP or DATE")
    third = (INTERVAL if types[2] == INTERVAL else TIMESTAMP,) if len(types) == 3 else ()
    return Signature(name, (INTERVAL, TIMESTAMP, *third), TIMESTAMP)


def div(name: str, types: Types, options: Options) -> Signature:
    """DIV(a, b): the quotient of whole numbers, toward zero."""
    expect_count(name, types, 2, 2)
    if not all(t.is_integer or t == NULL for t in types):
        refuse(name, types, "it divides whole numbers; write TRUNC(a / b)")
    return Signature("/", (BIGINT, BIGINT), BIGINT)


def list_extreme(name: str, types: Types, options: Options) -> Signature:
    """GREATEST(list) and LEAST(list): of its elements that are not NULL."""
    expect_count(name, types, 1, 1)
    element = types[0].element
    if types[0].kind is not Kind.LIST or element is None or not element.is_ordered:
        refuse_argument(name, 0, types[0], "a list of values that have an order")
    return Signature(name, types, element)


_URL_NAMES = ("fragment", "host", "path", "port", "protocol", "query", "parameter")
FORMAT_RULES: dict[str, Rule] = {
    "strftime": strftime,
    "strptime": strptime,
    "parse_timestamp": parse_timestamp,
    "split": split,
    **dict.fromkeys(("url_encode_param", "url_decode_param", *(f"url_extract_{part}" for part in _URL_NAMES)), of_url),
    "width_bucket": width_bucket,
    **dict.fromkeys(("date_bin", "time_bucket"), date_bin),
    "div": div,
    **dict.fromkeys(("list_greatest", "list_least"), list_extreme),
}


# -- instants ---------------------------------------------------------------------------------------------------------------------


def pattern_reader(pattern: str) -> tuple[str, list[str]]:
    """Return the regular expression of a pattern of TO_CHAR, and what its groups read; TypeProblem for what cannot be read."""
    expression, read = "^", list[str]()
    for found in PATTERN_TOKEN.finditer(pattern):
        quoted, field, plain, other = found.groups()
        if field is None and other is None:
            expression += re.escape(quoted if quoted is not None else plain)
            continue
        part = _READ.get(field or "")
        if part is None or part[0] in read:
            shown = pattern[found.start() :] if part is None else field
            hint = f"use {', '.join(_READ)}, each once; other text stands in double quotes"
            raise TypeProblem(f"TO_TIMESTAMP cannot read {shown!r}", hint=hint)
        expression += f"(?P<p{len(read)}>{part[1]})"
        read.append(part[0])
    if "year" not in read and "short year" not in read:
        raise TypeProblem(f"the pattern {pattern!r} names no year", hint="write YYYY or YY; for a time of day CAST(t AS TIME)")
    return expression + "$", read


def _build_parse(call: Call, compiler: Compiler) -> Kernel:
    if is_null_literal(call.arguments[0]):
        return always_null(call.type)
    inner = compiler.kernel(call.arguments[0])
    expression, read = pattern_reader(call.options[0])
    zone = named_zone(call.options[1]) if len(call.options) > 1 else None
    reason = f"the text is no instant written as {call.options[0]}"

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        found = pc.extract_regex(column.values, pattern=expression)
        matched = np.asarray(found.is_valid())
        parts = {what: pc.struct_field(found, [place]) for place, what in enumerate(read)}
        instants, right = _instants({what: _numbers(what, texts) for what, texts in parts.items() if what != "weekday"})
        if zone is not None:
            instants = zone.to_utc(np.where(right & matched, instants, 0))
        bad = ~(matched & right)
        return Column(TIMESTAMP, np.where(bad, 0, instants), fail_where(context, bad, column.validity(), reason))

    return kernel


_MONTHS = {name.lower(): number for names in (calendar.month_abbr, calendar.month_name) for number, name in enumerate(names) if name}


def _numbers(what: str, texts: Any) -> Int64Array:
    """Return the numbers that texts say; of one that is not there 0."""
    if what in ("month by name", "half"):
        encoded = texts.dictionary_encode()
        known = [_MONTHS.get(t.lower(), 0) if what != "half" else int(t.lower() == "pm") for t in encoded.dictionary.to_pylist()]
        places = np.asarray(encoded.indices.fill_null(len(known)))
        numbers: Int64Array = np.array([*known, 0], dtype=np.int64)[places]
        return numbers
    if what == "fraction":
        texts = pc.utf8_rpad(texts, width=6, padding="0")
    return np.asarray(texts.fill_null("0").cast(pa.int64()), dtype=np.int64)


def _instants(parts: dict[str, Int64Array]) -> tuple[Int64Array, Mask]:
    """Return the instants that parts say, and which of them there are."""
    some = next(iter(parts.values()))
    zero, one = np.zeros_like(some), np.ones_like(some)
    short = parts.get("short year", zero)
    year = parts.get("year", np.where(short < 69, 2000 + short, 1900 + short))
    month, day = parts.get("month", parts.get("month by name", one)), parts.get("day", one)
    right = (month >= 1) & (month <= 12) & (day >= 1)
    month = np.clip(month, 1, 12)
    first = days_of(year, month, one)
    after = days_of(year + month // 12, month % 12 + 1, one)
    days = first + day - 1
    right &= days < after
    if "day of the year" in parts:
        days = days_of(year, one, one) + parts["day of the year"] - 1
        right &= (parts["day of the year"] >= 1) & (days < days_of(year + 1, one, one))
    hour = parts.get("hour", zero)
    if "hour of twelve" in parts:
        twelve = parts["hour of twelve"]
        right &= (twelve >= 1) & (twelve <= 12)
        hour = twelve % 12 + 12 * parts.get("half", zero)
    minute, second = parts.get("minute", zero), parts.get("second", zero)
    right &= (hour < 24) & (minute < 60) & (second < 60)
    return days * US_PER_DAY + hour * US_PER_HOUR + minute * US_PER_MINUTE + second * US_PER_S + parts.get("fraction", zero), right


ORIGIN_OF_BUCKETS_US = 10_959 * US_PER_DAY  # Monday, 3 January 2000: TIME_BUCKET of weeks begins on Mondays


def _build_bin(call: Call, compiler: Compiler) -> Kernel:
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(call.type)
    kernels = [compiler.kernel(a) for a in call.arguments]
    by_offset = len(call.arguments) == 3 and call.arguments[2].type == INTERVAL
    default = ORIGIN_OF_BUCKETS_US if call.function == "time_bucket" else 0

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        stride, instant, *third = (k(rows, context) for k in kernels)
        valid = both_valid(stride.validity(), instant.validity())
        origin: Any = default
        if third:
            valid = both_valid(valid, third[0].validity())
            origin = third[0].values + (default if by_offset else 0)
        positive = stride.values > 0
        valid = fail_where(context, ~positive, valid, "the stride is not positive")
        width = np.where(positive, stride.values, 1)
        start = instant.values - np.mod(instant.values - np.mod(origin, width), width)
        far = start > instant.values  # it has wrapped round the least int64
        return Column(TIMESTAMP, np.where(far, 0, start), fail_where(context, far, valid, "TIMESTAMP out of range"))

    return kernel


# -- lists ------------------------------------------------------------------------------------------------------------------------


def _build_split(call: Call, compiler: Compiler) -> Kernel:
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(call.type)
    inner, delimiter = compiler.kernel(call.arguments[0]), _constant(call, 1, "delimiter")

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        claim(3 * column.nbytes(), "SPLIT")
        if delimiter:
            return column_from_arrow(pc.split_pattern(column.values, pattern=delimiter), call.type)
        encoded = column.values.dictionary_encode()
        letters = pa.array([list(text) for text in encoded.dictionary.to_pylist()], pa.list_(pa.string()))
        return column_from_arrow(letters.take(encoded.indices), call.type)

    return kernel


def _constant(call: Call, place: int, what: str) -> str:
    argument: Expression = call.arguments[place]
    if not is_constant(argument):
        raise TypeProblem(f"the {what} of {call.function.upper()} must be a constant text")
    return str(constant_value(argument))


def _build_list_extreme(call: Call, compiler: Compiler) -> Kernel:
    inner, greatest = compiler.kernel(call.arguments[0]), call.function == "list_greatest"

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        _, lengths = spans(column)
        row = np.repeat(np.arange(rows.rows, dtype=np.int64), lengths)
        elements = column_from_arrow(column.values.flatten(), call.type)
        given = elements.validity()
        places = np.flatnonzero(np.ones(len(row), dtype=np.bool_) if given is None else given)
        values = elements.take(places)
        order = places[np.lexsort((_ranks(values) if greatest else -_ranks(values), row[places]))]
        last = np.full(rows.rows, -1, dtype=np.int64)
        last[row[order]] = order  # of several the last counts
        picked = column.values.flatten().take(pa.array(np.maximum(last, 0), mask=last < 0))
        return column_from_arrow(picked, call.type)

    return kernel


def _ranks(column: Column) -> Int64Array:
    """Return integers that are ordered as the values are, NaN above all others."""
    if column.type.is_arrow:
        return np.asarray(pc.rank(column.values, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
    ranks: Int64Array = np.unique(column.values, return_inverse=True, equal_nan=True)[1].astype(np.int64)
    return ranks


# -- URLs and numbers -------------------------------------------------------------------------------------------------------------


def _build_url(call: Call, compiler: Compiler) -> Kernel:
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(call.type)
    inner = compiler.kernel(call.arguments[0])
    parameter = _constant(call, 1, "name") if len(call.arguments) == 2 else ""
    function = _url_function(call.function, parameter)
    kind = pa.int32() if call.type == INT else pa.string()

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        encoded = inner(rows, context).values.dictionary_encode()
        made, wrong = [], []
        for text in encoded.dictionary.to_pylist():
            try:
                made.append(function(text))
                wrong.append(False)
            except ValueError:
                made.append(None)
                wrong.append(True)
        claim(sum(len(t) for t in made if isinstance(t, str)) * max(1, rows.rows // max(1, len(made))), "a part of a URL")
        places = encoded.indices
        if any(wrong):
            context.fail(np.asarray(pa.array(wrong).take(places).fill_null(False)), "the text is no URL")
        return from_arrow_result(pa.array(made, kind).take(places), call.type)

    return kernel


def _url_function(name: str, parameter: str) -> Callable[[str], Any]:
    from urllib.parse import parse_qsl, quote_plus, unquote_plus, urlsplit

    def first(url: str) -> str | None:
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
        return next((value for key, value in pairs if key == parameter), None)

    functions: dict[str, Callable[[str], Any]] = {
        "url_encode_param": lambda text: quote_plus(text, safe="*").replace("~", "%7E"),  # as HTML forms do
        "url_decode_param": lambda text: unquote_plus(text, errors="strict"),
        "url_extract_fragment": lambda url: urlsplit(url).fragment or None,
        "url_extract_host": lambda url: urlsplit(url).hostname,
        "url_extract_path": lambda url: urlsplit(url).path,
        "url_extract_port": lambda url: urlsplit(url).port,
        "url_extract_protocol": lambda url: urlsplit(url).scheme or None,
        "url_extract_query": lambda url: urlsplit(url).query or None,
        "url_extract_parameter": first,
    }
    return functions[name]


def _build_width_bucket(call: Call, compiler: Compiler) -> Kernel:
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(call.type)
    kernels = [compiler.kernel(a) for a in call.arguments]

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        x, low, high, count = (k(rows, context) for k in kernels)
        valid = both_valid(both_valid(x.validity(), low.validity()), both_valid(high.validity(), count.validity()))
        a, b, n = low.values, high.values, count.values
        with np.errstate(all="ignore"):
            bad = ~(np.isfinite(a) & np.isfinite(b)) | (a == b) | (n <= 0) | np.isnan(x.values)
            span = np.where(bad, 1.0, b - a)
            part = np.where(bad, 0.0, (x.values - a) / span)
            inside = np.clip(np.floor(np.where(np.isfinite(part), part, 0.0) * n), 0, np.maximum(n - 1, 0)).astype(np.int64) + 1
        bucket = np.where(part < 0, 0, np.where(part >= 1, n + 1, inside))
        return Column(BIGINT, np.where(bad, 0, bucket), fail_where(context, bad, valid, "no such buckets"))

    return kernel


_BUILDERS: dict[str, Callable[[Call, Compiler], Kernel]] = {
    "parse_timestamp": _build_parse,
    "split": _build_split,
    "width_bucket": _build_width_bucket,
    **dict.fromkeys(("date_bin", "time_bucket"), _build_bin),
    **dict.fromkeys(("list_greatest", "list_least"), _build_list_extreme),
}


def build_format(call: Call, compiler: Compiler) -> Kernel:
    """Build one of these functions."""
    return _BUILDERS.get(call.function, _build_url)(call, compiler)
