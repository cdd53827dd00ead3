"""LIKE against a naive matcher, regular expressions, patterns from columns, bad patterns."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, TEXT
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.build import call
from millstream.engine.expressions.compile import compile_expression
from millstream.engine.expressions.ir import Literal
from millstream.engine.expressions.patterns import check_patterns

ALPHABET = "abA%_\\.(*é\n"


def like(text: str, pattern: str, escape: str) -> bool:
    """Match by the definition, character by character."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if escape and first == escape:
        return bool(text) and text[0] == rest[0] and like(text[1:], rest[1:], escape)
    if first == "%":
        return any(like(text[i:], rest, escape) for i in range(len(text) + 1))
    return bool(text) and first in ("_", text[0]) and like(text[1:], rest, escape)


def ends_in_escape(pattern: str, escape: str) -> bool:
    i = 0
    while i < len(pattern):
        if escape and pattern[i] == escape:
            if i + 1 == len(pattern):
                return True
            i += 1
        i += 1
    return False


@given(
    texts=st.lists(st.one_of(st.none(), st.text(st.sampled_from(ALPHABET), max_size=6)), min_size=1, max_size=8),
    pattern=st.text(st.sampled_from(ALPHABET), max_size=5),
    escape=st.sampled_from(["\\", "", "%", "a"]),
)
@settings(deadline=None, max_examples=150)
def test_like_follows_its_definition(texts: list[Any], pattern: str, escape: str, table: Any, run: Any) -> None:
    rows = table((TEXT, texts), (TEXT, [pattern] * len(texts)))
    by_constant = call("like", [rows.refs[0], Literal(TEXT, pattern), Literal(TEXT, escape)])
    by_column = call("like", rows.refs, (escape,))
    if ends_in_escape(pattern, escape):
        with pytest.raises(TypeProblem, match="escape"):
            check_patterns(by_constant)
        assert sorted(run(by_column, rows).errors) == [i for i, t in enumerate(texts) if t is not None]
        assert run(by_constant, rows) == run(by_column, rows)  # a constant that a rule put there, as one that is written is refused
        return
    wanted = [None if t is None else like(t, pattern, escape) for t in texts]
    assert run(by_constant, rows) == (wanted, {})
    assert run(by_column, rows) == (wanted, {})


def test_ilike_ignores_case(table: Any, run: Any) -> None:
    rows = table((TEXT, ["Straße", "ABC", "abd", None]))
    assert run(call("ilike", [rows.refs[0], Literal(TEXT, "aB_")]), rows).values == [False, True, True, None]
    assert run(call("ilike", [rows.refs[0], Literal(TEXT, "%RASS%")]), rows).values == [False, False, False, None]


def test_regular_expressions_match_anywhere_and_take_flags(table: Any, run: Any) -> None:
    rows = table((TEXT, ["abc", "xABCx", "a\nc", "", None]), (TEXT, ["b", "^x", "a.c", "^$", "x"]))
    text, pattern = rows.refs
    assert run(call("regexp_like", [text, Literal(TEXT, "b")]), rows).values == [True, False, False, False, None]
    assert run(call("regexp_like", [text, Literal(TEXT, "B"), Literal(TEXT, "i")]), rows).values == [True, True, False, False, None]
    assert run(call("regexp_like", [text, Literal(TEXT, "a.c"), Literal(TEXT, "s")]), rows).values == [True, False, True, False, None]
    assert run(call("regexp_like", [text, pattern]), rows).values == [True, True, False, True, None]


def test_bad_regular_expressions_are_refused_or_row_errors(table: Any, run: Any) -> None:
    rows = table((TEXT, ["a", "a", None]), (TEXT, ["(", "a", "("]))
    with pytest.raises(TypeProblem, match="bad regular expression"):
        check_patterns(call("regexp_like", [rows.refs[0], Literal(TEXT, "(?=a)")]))
    with pytest.raises(TypeProblem, match="unknown regular expression flag 'q'"):
        compile_expression(call("regexp_like", [rows.refs[0], Literal(TEXT, "a"), Literal(TEXT, "q")]))
    outcome = run(call("regexp_like", rows.refs), rows)
    assert outcome.values == [None, True, None]
    assert list(outcome.errors) == [0]
    assert may_fail(call("like", rows.refs))
    assert may_fail(call("like", [rows.refs[0], Literal(TEXT, "a\\")]))
    assert not may_fail(call("like", [rows.refs[0], Literal(TEXT, "a%")]))


def test_regexp_replace_takes_the_first_match_or_all(table: Any, run: Any) -> None:
    rows = table((TEXT, ["banana", None, ""]))
    pattern, by = Literal(TEXT, "(a)n"), Literal(TEXT, r"<\1>")
    assert run(call("regexp_replace", [rows.refs[0], pattern, by]), rows).values == ["b<a>ana", None, ""]
    assert run(call("regexp_replace", [rows.refs[0], pattern, by, Literal(TEXT, "g")]), rows).values == ["b<a><a>a", None, ""]


EXTRACTED = ("b+", "(a)(b*)", r"(?P<x>a|b)([^b]*)$", r"[(]b", r"(?:a)(b)?", r"\(a", "(?i)A(B)", "((a)b)a")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.none(), st.text("ab(B", max_size=8)), min_size=1, max_size=8), st.sampled_from(EXTRACTED), st.data())
def test_extracts_are_those_of_python(table: Any, run: Any, texts: list[str | None], pattern: str, data: st.DataObject) -> None:
    rows = table((TEXT, texts))
    compiled = re.compile(pattern)
    group = data.draw(st.integers(0, compiled.groups))
    expected = [None if t is None or (m := compiled.search(t)) is None else m[group] or "" for t in texts]
    wanted = [rows.refs[0], Literal(TEXT, pattern)]
    extract = call("regexp_extract", [*wanted, Literal(BIGINT, group)])
    assert run(extract, rows).values == expected
    assert run(call("is_null", [extract]), rows).values == [e is None for e in expected]
    assert run(call("is_not_null", [extract]), rows).values == [e is not None for e in expected]
    if not group:
        assert run(call("regexp_extract", wanted), rows).values == expected


def test_what_cannot_be_extracted_is_refused(table: Any) -> None:
    text = table((TEXT, ["a"])).refs[0]
    for arguments, message in (
        ([Literal(TEXT, "(")], "bad regular expression"),
        ([text], "must be constants"),
        ([Literal(TEXT, "(a)"), Literal(BIGINT, 2)], "the pattern has 1 groups; there is no group 2"),
        ([Literal(TEXT, "a"), Literal(BIGINT, -1)], "there is no group -1"),
    ):
        with pytest.raises(TypeProblem, match=message):
            check_patterns(call("regexp_extract", [text, *arguments]))
