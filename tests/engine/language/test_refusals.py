"""What is not the language is refused with its place, its token and, where it can be, the mend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data.errors import EngineError, InvalidDefinition, SyntaxProblem, TypeProblem, UnknownName, Unsupported
from millstream.engine.language.parse import parse_script, parse_statement

CASES = [
    # text, error, part of the message, line, column
    ("SELECT a FORM s", SyntaxProblem, "'FORM' stands where .* did you mean FROM", 1, 10),
    ("SELECT a\nFROM s WHER a > 5", SyntaxProblem, "'WHER' .* did you mean WHERE", 2, 8),
    ("SELECT a FROM s GROUPED BY a", SyntaxProblem, "'GROUPED' .* did you mean GROUP BY", 1, 17),
    ("SELECT a FROM s WHERE", SyntaxProblem, "ends where a condition was expected", 1, 17),
    ("SELECT a FROM s LIMIT 5 SELECT", SyntaxProblem, "expected the end of the statement, not 'SELECT'", 1, 25),
    ("SELECT FROM s", SyntaxProblem, "expected an expression, not 'FROM'", 1, 8),
    ("SELECT (a FROM s", SyntaxProblem, r"expecting \)", 1, 11),
    ("SELECT 'abc FROM s", SyntaxProblem, "string that begins here is not closed", 1, 8),
    ('SELECT a\nFROM "s', SyntaxProblem, "quoted name that begins here is not closed", 2, 6),
    ("SELECT a FROM s [RANGE 10]", SyntaxProblem, "expected SECONDS", 1, 26),
    ("SELECT a FROM s [RANG 10 SECONDS]", SyntaxProblem, "did you mean RANGE", 1, 18),
    ("SELECT a FROM s [RANGE -1 SECONDS SLIDE -1 SECONDS]", SyntaxProblem, "RANGE must be positive, not -1 SECOND", 1, 24),
    ("SELECT a FROM s [RANGE 1 SECOND SLIDE 0 SECONDS]", SyntaxProblem, "SLIDE must be positive, not 0 SECONDS", 1, 39),
    ("SELECT a FROM s [ROWS 0]", SyntaxProblem, "ROWS must be at least 1, not 0", 1, 23),
    ("SELECT a FROM s [ROWS 99999999999999999999]", SyntaxProblem, "ROWS must be at most 4611686018427387904", 1, 23),
    ("CREATE CLASS g PRIORITY 1e400", SyntaxProblem, "PRIORITY is too great: 1e400", 1, 25),
    ("CREATE STREAM z (v INT) RATE 1e400 PER SECOND", SyntaxProblem, "RATE is too great: 1e400", 1, 30),
    ("SELECT a FROM s [SESSION 5 SECONDS", SyntaxProblem, r"ends where '\]' was expected", 1, 28),
    ("SELECT a FROM HOP(s, ts, 5 SECONDS)", SyntaxProblem, "HOP needs size", 1, 35),
    ("SELECT a FROM CUMULATE(s, ts, 3 SECONDS, 10 SECONDS)", SyntaxProblem, "must be a multiple of its step", 1, 52),
    ("SELECT a FROM tumbel(s, ts, 5 SECONDS)", SyntaxProblem, "not a table function", 1, 15),
    ("SELECT a FROM s JOIN t", SyntaxProblem, "ends where ON or USING was expected", 1, 22),
    ("SELECT a FROM s JOIN t USING k", SyntaxProblem, r"expected '\(' after USING", 1, 30),
    ("SELECT a FROM s CROSS JOIN t USING (k)", SyntaxProblem, "CROSS JOIN takes no ON", 1, 30),
    ("SELECT a FROM s NATURAL JOIN t", Unsupported, "NATURAL is not supported.*USING", 1, 17),
    ("WITH RECURSIVE x AS (SELECT a FROM s) SELECT a FROM x", Unsupported, "WITH RECURSIVE is not supported", 1, 1),
    ("SELECT a FROM s WHERE EXISTS (a)", SyntaxProblem, "EXISTS takes a subquery", 1, 31),
    ("SELECT a FROM s GROUP BY GROUPING SETS (a", SyntaxProblem, "at the end of SETS", 1, 41),
    ("SELECT a FROM s EMIT SOMETIMES", SyntaxProblem, "expected FINAL, CHANGES, EVERY", 1, 22),
    ("DSTREAM(SELECT a FROM s EVERY 5 SECONDS)", SyntaxProblem, "EVERY belongs to RSTREAM", 1, 25),
    ("SELECT a FROM s WITH (class = 'x', class = 'y')", SyntaxProblem, "option class is given twice", 1, 36),
    ("CREATE STREM s (a INT)", SyntaxProblem, "did you mean STREAM", 1, 8),
    ("CREATE OR REPLACE VIEW s AS SELECT 1", Unsupported, "CREATE OR REPLACE VIEW", 1, 1),
    ("CREATE OR REPLACE STREAM IF NOT EXISTS s (a INT)", SyntaxProblem, "contradict one another", 1, 33),
    ("ALTER TABLE t ADD COLUMN c INT", Unsupported, "ALTER TABLE is not supported.*ALTER STREAM … ADD COLUMN", 1, 1),
    ("ALTER STREAM s RENAME TO t", Unsupported, "ADD COLUMN c type is all that changes a stream", 1, 1),
    ("COMMENT ON COLUMN s.a IS 'x'", Unsupported, "COMMENT ON COLUMN is not supported", 1, 1),
    ("CREATE STREAM s (a INT, a TEXT)", InvalidDefinition, "column a is named twice", 1, 25),
    ("CREATE STREAM s ()", SyntaxProblem, "expected a column name", 1, 18),
    ("CREATE STREAM s (a INTT)", SyntaxProblem, "'INTT' is not a type.*did you mean INT", 1, 20),
    ("CREATE STREAM s (a DECIMAL)", TypeProblem, "needs its precision and scale", 1, 20),
    ("CREATE STREAM s (a DECIMAL(40, 2))", TypeProblem, "precision must be 1 to 38", 1, 20),
    ("CREATE STREAM s (a BIGINT(20))", TypeProblem, "has no length", 1, 20),
    ("CREATE STREAM s (t BIGINT) TIMESTAMP BY t", InvalidDefinition, "needs a unit.*UNIT ms", 1, 41),
    ("CREATE STREAM s (t BIGINT) TIMESTAMP BY t UNIT ns", InvalidDefinition, "whole microseconds.*ROUND", 1, 41),
    ("CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t UNIT ms", InvalidDefinition, "has no UNIT", 1, 44),
    ("CREATE STREAM s (t TEXT) TIMESTAMP BY t", InvalidDefinition, "must be TIMESTAMP or an integer", 1, 39),
    ("CREATE STREAM s (time TIMESTAMP) TIMESTAMP BY tme", UnknownName, "no column tme.*did you mean time", 1, 47),
    ("CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t ZONE 'Rome'", InvalidDefinition, "'Rome' is not a time zone", 1, 44),
    ("CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t DELAY 1 SECOND DELAY 2 SECONDS", SyntaxProblem, "DELAY is given twice", 1, 61),
    (
        "CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t DELAY 1 SECOND ZONE 'UTC'",
        SyntaxProblem,
        "ZONE belongs directly after the time",
        1,
        61,
    ),
    ("SUBSCRIBE q", Unsupported, "SUBSCRIBE is not supported.*millstream tail name", 1, 1),
    ("SET POLICY user (file = 'a.py')", SyntaxProblem, r"behind WITH.*write SET POLICY user WITH \(option = value\)", 1, 17),
    ("CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t DELAY 1 MONTH", SyntaxProblem, "expected SECONDS", 1, 54),
    ("CREATE STREAM s (t TIMESTAMP) DELAI 1 SECOND", SyntaxProblem, "did you mean DELAY", 1, 31),
    ("CREATE TABLE t (k INT)", InvalidDefinition, "no primary key", 1, 14),
    ("CREATE TABLE t (k INT, PRIMARY KEY (j))", UnknownName, "no column j", 1, 37),
    ("CREATE CLASS c", SyntaxProblem, "PRIORITY was expected", 1, 14),
    ("CREATE CLASS c PRIORITY 0", SyntaxProblem, "PRIORITY must be positive", 1, 25),
    ("DROP QUERY a, b", SyntaxProblem, "drop one at a time: DROP QUERY a; DROP QUERY b", 1, 13),
    ("DROP SINK a, b", SyntaxProblem, "drop one at a time: DROP SINK a; DROP SINK b", 1, 12),
    ("DROP VIEW v", Unsupported, "DROP VIEW is not supported.*DROP STREAM name", 1, 1),
    ("DELETE FROM s", Unsupported, "DELETE is not supported", 1, 1),
    ("SELCT a FROM s", SyntaxProblem, "did you mean SELECT", 1, 1),
    ("CREATE STREAM select (a INT)", SyntaxProblem, 'reserved word.*write "select"', 1, 15),
]


@pytest.mark.parametrize(("text", "error", "message", "line", "column"), CASES, ids=[c[0].replace("\n", " ") for c in CASES])
def test_a_fault_is_named_with_its_place(text: str, error: type[EngineError], message: str, line: int, column: int) -> None:
    with pytest.raises(error, match=f"(?s){message}") as caught:
        parse_statement(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.token


def test_places_count_from_the_start_of_the_script() -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse_script("SELECT a FROM s;\n\n  SELECT b FROM;")
    assert (caught.value.line, caught.value.column) == (3, 12)


def test_one_statement_means_one() -> None:
    with pytest.raises(SyntaxProblem, match="more than one statement"):
        parse_statement("SELECT a FROM s; SELECT b FROM s")
    with pytest.raises(SyntaxProblem, match="no statement"):
        parse_statement("  -- nothing")


def _check(problem: EngineError) -> None:
    """A refusal says something, and nothing of the parser's inside."""
    assert problem.message
    assert "object at 0x" not in str(problem)


WORDS = [
    *["SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "ORDER", "LIMIT", "EMIT", "WITH", "JOIN", "ON", "WITHIN", "UNION"],
    *["ALL", "AS", "CREATE", "STREAM", "TABLE", "QUERY", "CLASS", "s", "a", "b", "1", "2.5", "'x'", "(", ")", "[", "]"],
    *[",", ";", ".", "*", "=", "<", ">", "-", "+", "::", "||", "=>", "RANGE", "SLIDE", "ROWS", "SECONDS", "INTERVAL", "SESSION"],
    *["CASE", "WHEN", "THEN", "ELSE", "END", "IS", "NOT", "NULL", "IN", "BETWEEN", "AND", "LIKE", "COUNT", "FILTER", "OVER"],
    *["PARTITION", "CAST", "DISTINCT", "ISTREAM", "EVERY", "TUMBLE", "INSERT", "INTO", "VALUES", "DROP", "SHOW", "SET"],
    *["POLICY", "EXPLAIN", '"q"', "TIMESTAMP", "EXTRACT"],
]


@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_no_soup_of_words_breaks_the_parser(words: list[str]) -> None:
    try:
        parse_script(" ".join(words))
    except EngineError as problem:
        _check(problem)


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        parse_script(text)
    except EngineError as problem:
        _check(problem)
