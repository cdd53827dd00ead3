"""Names (case C39) and durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data.durations import duration_text
from millstream.engine.data.errors import EngineError, InvalidDefinition, SyntaxProblem
from millstream.engine.language.dialect import interval_text_us, scale_us
from millstream.engine.language.names import NAME_LENGTH_MAX, quote_name, validate_name
from millstream.engine.language.parse import parse_duration_text, parse_statement
from millstream.engine.language.statements import Describe


@pytest.mark.parametrize("name", ["q", "DROP", "café", "测试", "fooå", "字段1", "a b", "a-b", "x.y", "n" * NAME_LENGTH_MAX, "_", "1st"])
def test_a_good_name_is_taken(name: str) -> None:
    assert validate_name(name) == name


@pytest.mark.parametrize("name", ["", "a/b", " x ", "a\n", 'a"b', "..", ".", "n" * 1001, "a\\b", "it's", "a;b", "a\u200bb", "\ud800"])
def test_a_name_that_would_fail_somewhere_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        validate_name(name, "query name")
    assert "query name" in caught.value.message


@given(st.text(min_size=1, max_size=20))
def test_every_valid_name_comes_back_from_its_quoted_form(name: str) -> None:
    try:
        validate_name(name)
    except InvalidDefinition:
        return
    statement = parse_statement(f"DESCRIBE {quote_name(name)}")
    assert isinstance(statement, Describe)
    assert statement.name.text == name


@pytest.mark.parametrize(
    ("text", "us"),
    [
        *[("10 SECONDS", 10_000_000), ("1 second", 1_000_000), ("INTERVAL '10' SECOND", 10_000_000), ("INTERVAL '10 seconds'", 10_000_000)],
        *[("1.5 SECONDS", 1_500_000), ("2 WEEKS", 1_209_600_000_000), ("-45 MINUTES", -2_700_000_000), ("INTERVAL 5 MINUTES", 300_000_000)],
        *[("INTERVAL '1 hour 30 minutes'", 5_400_000_000), ("7 MICROSECONDS", 7), ("3 MILLISECONDS", 3_000), ("1 DAY", 86_400_000_000)],
    ],
)
def test_a_duration_in_every_spelling(text: str, us: int) -> None:
    assert parse_duration_text(text) == us


@given(st.integers(min_value=-(2**61), max_value=2**61))
def test_a_duration_reads_back_from_its_text(us: int) -> None:
    assert parse_duration_text(duration_text(us)) == us
    if us >= 0:
        assert interval_text_us(duration_text(us)) == us


@pytest.mark.parametrize("text", ["10", "SECONDS", "10 MONTHS", "1 YEAR", "ten SECONDS", "1.5 MICROSECONDS", "10 SECONDS 5"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(EngineError):
        parse_duration_text(text)


def test_a_duration_that_is_too_long_is_refused() -> None:
    with pytest.raises(SyntaxProblem, match="too long"):
        scale_us("99999999999999", 604_800_000_000)
