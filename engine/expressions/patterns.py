"""LIKE, ILIKE, REGEXP_LIKE, REGEXP_REPLACE and REGEXP_EXTRACT.

A constant pattern is translated once; LIKE without inner wildcards becomes a test of equality, prefix, suffix or part. A pattern
from a column is translated once for each different pattern. Regular expressions are RE2's, which cannot run away; a match may lie
anywhere in the text. A bad constant pattern is a TypeProblem where it is bound (`check_patterns`), one from a column a row error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import mask_from_arrow
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BOOLEAN, TEXT
from millstream.engine.expressions.ir import Call
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
from millstream.protocol.values import arrow_functions as pc

Test = Callable[[Any], Any]  # Arrow string array -> Arrow bool array
PATTERN_FUNCTIONS = frozenset(("like", "ilike", "regexp_like", "regexp_replace", "regexp_extract"))
ANY_RUN, ANY_ONE = "%", "_"
# A group, named or not; else what has a bracket that is none: a quoted run, an escaped sign, a class, a group that takes nothing.
_GROUPS = re.compile(r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\(\?P?<(?P<name>\w+)>|\(\?|(?P<group>\()", re.DOTALL)
_SPECIAL = re.compile(r"([\\.^$|()\[\]{}*+?])")


def like_parts(pattern: str, escape: str) -> list[str | tuple[str]]:
    """Return the pattern as literal texts and wildcards, the latter as 1-tuples; ValueError when it ends in the escape character."""
    parts: list[str | tuple[str]] = []
    text, i = "", 0
    while i < len(pattern):
        character = pattern[i]
        if escape and character == escape:
            i += 1
            if i == len(pattern):
                raise ValueError("LIKE pattern ends with its escape character")
            text += pattern[i]
        elif character in (ANY_RUN, ANY_ONE):
            parts += [text, (character,)] if text else [(character,)]
            text = ""
        else:
            text += character
        i += 1
    return [*parts, text] if text else parts


def like_test(pattern: str, escape: str, ignore_case: bool) -> Test:
    """Return the test of a LIKE pattern; ValueError when it is none."""
    parts = like_parts(pattern, escape)
    if not ignore_case:
        simple = _simple_test(parts)
        if simple is not None:
            return simple
    regex = "".join(_SPECIAL.sub(r"\\\1", p) if isinstance(p, str) else {"%": ".*", "_": "."}[p[0]] for p in parts)
    full = f"(?s{'i' if ignore_case else ''})^(?:{regex})$"
    return lambda texts: pc.match_substring_regex(texts, full)


def _simple_test(parts: list[str | tuple[str]]) -> Test | None:
    run = (ANY_RUN,)
    match parts:
        case []:
            return lambda texts: pc.equal(texts, "")
        case [str(text)]:
            return lambda texts: pc.equal(texts, text)
        case [str(text), wild] if wild == run:
            return lambda texts: pc.starts_with(texts, text)
        case [wild, str(text)] if wild == run:
            return lambda texts: pc.ends_with(texts, text)
        case [first, str(text), last] if first == last == run:
            return lambda texts: pc.match_substring(texts, text)
    return None


def regex_flags(flags: str) -> str:
    """Return RE2's spelling of PostgreSQL's flags: i (ignore case), c (heed it), s (dot takes newlines), m or n (lines)."""
    found = ""
    for flag in flags:
        if flag not in "icsmn":
            raise ValueError(f"unknown regular expression flag {flag!r} (use i, c, s, m)")
        if flag == "c":
            found = found.replace("i", "")
        elif (flag := "m" if flag == "n" else flag) not in found:
            found += flag
    return f"(?{found})" if found else ""


def regex_test(pattern: str, flags: str = "") -> Test:
    """Return the test of a regular expression; ValueError when it is none."""
    full = regex_flags(flags) + pattern
    check_regex(full)
    return lambda texts: pc.match_substring_regex(texts, full)


def check_regex(pattern: str) -> None:
    """Raise ValueError when RE2 does not take the pattern."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise ValueError(f"bad regular expression: {error}") from error


def check_patterns(call: Call) -> None:
    """Raise TypeProblem for a constant pattern, flag or replacement that is none."""
    if not any(is_null_literal(a) for a in call.arguments):
        if call.function == "regexp_replace":
            _replacing(call)
        elif call.function == "regexp_extract":
            _extracting(call)
        elif is_constant(call.arguments[1]):
            _constant_test(call)
        else:
            _maker(call)


def build_pattern(call: Call, compiler: Compiler) -> Kernel:
    """Build LIKE, ILIKE or REGEXP_LIKE."""
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(BOOLEAN)
    text, pattern, *_ = call.arguments
    inner = compiler.kernel(text)
    test = test_of_all_rows(call)
    if test is None:
        return _varying_pattern(inner, compiler.kernel(pattern), _maker(call))

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        texts = inner(rows, context)
        return Column(BOOLEAN, mask_from_arrow(test(texts.values)), texts.validity())

    return kernel


def test_of_all_rows(call: Call) -> Test | None:
    """Return the test of a constant pattern.

    None for a column, and for a bad pattern: one that was written as a constant was refused where it was bound, so a rule put it in the
    place of a column, and its rows fail as they do without the rule.
    """
    if not is_constant(call.arguments[1]) or any(is_null_literal(a) for a in call.arguments):
        return None
    try:
        return _maker(call)(constant_value(call.arguments[1]))
    except ValueError:
        return None


def _constant_test(call: Call) -> Test:
    try:
        return _maker(call)(constant_value(call.arguments[1]))
    except ValueError as error:
        raise TypeProblem(str(error)) from error


def _maker(call: Call) -> Callable[[str], Test]:
    if call.function == "regexp_like":
        flags = call.arguments[2:]
        if flags and not is_constant(flags[0]):
            raise TypeProblem("the flags of REGEXP_LIKE must be a constant")
        chosen = str(constant_value(flags[0])) if flags else ""
        try:
            regex_flags(chosen)
        except ValueError as error:
            raise TypeProblem(str(error)) from error
        return lambda pattern: regex_test(pattern, chosen)
    escape = str(call.options[0]) if call.options else "\\"
    return lambda pattern: like_test(pattern, escape, call.function == "ilike")


def _varying_pattern(texts: Kernel, patterns: Kernel, make: Callable[[str], Test]) -> Kernel:
    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        text, pattern = texts(rows, context), patterns(rows, context)
        valid: Mask | None = both_valid(text.validity(), pattern.validity())
        mask = np.zeros(rows.rows, dtype=np.bool_)
        for one in pc.unique(pattern.values).drop_null().to_pylist():
            chosen = mask_from_arrow(pc.equal(pattern.values, one)) & (True if valid is None else valid)
            try:
                test = make(one)
            except ValueError as error:
                valid = fail_where(context, chosen, valid, str(error))
                continue
            if chosen.any():
                mask[chosen] = mask_from_arrow(test(text.values.filter(pa.array(chosen))))
        return Column(BOOLEAN, mask, valid)

    return kernel


def build_regex_replace(call: Call, compiler: Compiler) -> Kernel:
    r"""Build REGEXP_REPLACE(text, pattern, replacement [, flags]): the first match, or with flag g all; \1 is the first group."""
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(TEXT)
    full, replacement, most = _replacing(call)
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        replaced = pc.replace_substring_regex(inner(rows, context).values, full, replacement, max_replacements=most)
        return Column(TEXT, replaced)

    return kernel


def _replacing(call: Call) -> tuple[str, str, int | None]:
    """Return pattern, replacement and how often; TypeProblem for what is none, or not constant."""
    if not all(is_constant(a) for a in call.arguments[1:]):
        raise TypeProblem("pattern, replacement and flags of REGEXP_REPLACE must be constants")
    pattern, replacement, *flags = (str(constant_value(a)) for a in call.arguments[1:])
    letters = flags[0] if flags else ""
    try:
        full = regex_flags(letters.replace("g", "")) + pattern
        check_regex(full)
        pc.replace_substring_regex(pa.array(["a"]), full, replacement)
    except (ValueError, pa.ArrowInvalid) as error:
        raise TypeProblem(str(error)) from error
    return full, replacement, None if "g" in letters else 1


def build_regex_extract(call: Call, compiler: Compiler) -> Kernel:
    """Build REGEXP_EXTRACT(text, pattern [, group]): the first match or a group of it, 0 the whole; NULL where nothing matches."""
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(TEXT)
    full, name = _extracting(call)
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        return Column(TEXT, pc.struct_field(pc.extract_regex(inner(rows, context).values, full), [name]))

    return kernel


def extract_is_null(call: Call, compiler: Compiler, *, wanted: bool) -> Kernel | None:
    """Return the test whether REGEXP_EXTRACT finds nothing (`wanted`), or something: nothing needs to be cut out for it. Else None."""
    if call.function != "regexp_extract" or any(is_null_literal(a) for a in call.arguments):
        return None
    full, _ = _extracting(call)
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        found = mask_from_arrow(pc.fill_null(pc.match_substring_regex(inner(rows, context).values, full), False))
        return Column(BOOLEAN, ~found if wanted else found)

    return kernel


def _extracting(call: Call) -> tuple[str, str]:
    """Return the pattern in which the wanted group alone has a name, and this name; TypeProblem for what is none, or not constant."""
    if not all(is_constant(a) for a in call.arguments[1:]):
        raise TypeProblem("pattern and group of REGEXP_EXTRACT must be constants")
    pattern, group = str(constant_value(call.arguments[1])), int(constant_value(call.arguments[2])) if len(call.arguments) > 2 else 0
    try:
        check_regex(pattern)
        full, groups = named_group(pattern, group)
        check_regex(full)
    except ValueError as error:
        raise TypeProblem(str(error)) from error
    if not 0 <= group <= groups:
        raise TypeProblem(f"the pattern has {groups} groups; there is no group {group}")
    return full, f"g{group}"


def named_group(pattern: str, wanted: int) -> tuple[str, int]:
    """Return the pattern with one group named, as Arrow takes it, 0 being the whole, and how many groups there are.

    The others take nothing: what Arrow need not cut out costs nothing.
    """
    count = 0

    def named(found: re.Match[str]) -> str:
        nonlocal count
        if not found["group"] and not found["name"]:
            return found[0]
        count += 1
        return f"(?P<g{count}>" if count == wanted else "(?:"

    inner = _GROUPS.sub(named, pattern)
    return f"(?P<g0>{inner})" if wanted == 0 else f"(?:{inner})", count
