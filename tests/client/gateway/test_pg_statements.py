"""What statements ask for, what their parameters are, and where an error's place lies in what was written."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.client.gateway.postgres.sql_words import split, words_of
from millstream.client.gateway.postgres.sqlstates import PgError
from millstream.client.gateway.postgres.statements import SERVER_SHOWS, Kind, for_server, parameter_types, read
from millstream.engine.language.statements import ShowWhat
from millstream.protocol.types import parse_type

COLUMNS = {"k": parse_type("TEXT"), "v": parse_type("INT"), "ts": parse_type("TIMESTAMP"), "d": parse_type("DECIMAL(5, 2)")}


def test_what_the_server_shows_is_not_taken_for_a_setting() -> None:
    assert {what.value for what in ShowWhat} == SERVER_SHOWS


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT k FROM s", Kind.SELECT),
        ("(SELECT k FROM s)", Kind.SELECT),
        ("WITH x AS (SELECT k FROM s) SELECT k FROM x", Kind.SELECT),
        ("SELECT 1", Kind.CATALOGUE),
        ("select version()", Kind.CATALOGUE),
        ("SELECT c.relname FROM pg_catalog.pg_class c", Kind.CATALOGUE),
        ('SELECT * FROM "information_schema"."tables"', Kind.CATALOGUE),
        ("SELECT k FROM s WHERE k = 'pg_class'", Kind.SELECT),
        ("SELECT k -- pg_class\n FROM s", Kind.SELECT),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE", Kind.BEGIN),
        ("START TRANSACTION READ ONLY", Kind.BEGIN),
        ("START QUERY q", Kind.SERVER),
        ("ROLLBACK TO SAVEPOINT a", Kind.ROLLBACK_TO),
        ("SET POLICY hnr", Kind.SERVER),
        ("SET extra_float_digits = 3", Kind.SET),
        ("SHOW STREAMS", Kind.SERVER),
        ("SHOW standard_conforming_strings", Kind.SETTING),
        ("FETCH SELECT k FROM t", Kind.SERVER),
        ("FETCH QUERY q", Kind.SERVER),
        ("FETCH c", Kind.FETCH),
        ("INSERT INTO s VALUES (1)", Kind.INSERT),
        ("CREATE QUERY q AS SELECT k FROM s", Kind.SERVER),
        ("EXPLAIN SELECT k FROM s", Kind.SERVER),
    ],
)
def test_who_carries_a_statement_out(text: str, kind: Kind) -> None:
    assert read(words_of(text)).kind is kind


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("FETCH 100 FROM c", {"count": 100, "name": "c"}),
        ("FETCH FORWARD ALL IN c", {"count": None, "name": "c"}),
        ('FETCH NEXT FROM "C c"', {"count": 1, "name": "C c"}),
        ("SET TimeZone TO 'Europe/Berlin'", {"name": "timezone", "value": "Europe/Berlin"}),
        ("SET SESSION search_path TO a, b", {"name": "search_path", "value": "a, b"}),
        ("SHOW TRANSACTION ISOLATION LEVEL", {"name": "transaction_isolation"}),
        ("DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT k FROM s", {"name": "c", "holds": True, "inner": (8, 12)}),
        ("COPY s (k, v) FROM STDIN", {"name": "s", "columns": ("k", "v")}),
    ],
)
def test_what_a_statement_of_postgresql_says(text: str, fields: dict[str, Any]) -> None:
    asked = read(words_of(text))
    assert {name: getattr(asked, name) for name in fields} == fields


def test_subscriptions_stand_in_copy_and_in_cursors() -> None:
    for text in ("COPY (SUBSCRIBE q FROM START) TO STDOUT WITH (FORMAT csv, HEADER)", "DECLARE c CURSOR FOR SUBSCRIBE q FROM START"):
        subscribed = read(words_of(text)).subscribed
        assert subscribed is not None
        assert (subscribed.query, subscribed.from_start) == ("q", True)


def test_the_forms_of_copy() -> None:
    for text, form in (
        ("COPY s FROM STDIN", ("text", "\t", "\\N", False)),
        ("COPY s FROM STDIN WITH CSV HEADER", ("csv", ",", "", True)),
        ("COPY s FROM STDIN (FORMAT binary)", ("binary", "\t", "\\N", False)),
        ("COPY s TO STDOUT (FORMAT 'csv', DELIMITER ';', NULL 'x', HEADER false)", ("csv", ";", "x", False)),
        ("COPY s TO STDOUT WITH DELIMITER AS '|' NULL AS ''", ("text", "|", "", False)),
    ):
        found = read(words_of(text)).form
        assert (found.name, found.delimiter, found.null, found.header) == form


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("COPY s FROM 'file'", 13),
        ("COPY (DELETE FROM s) TO STDOUT", 7),
        ("COPY s FROM STDIN (FREEZE)", 20),
        ("FETCH PRIOR FROM c", None),
        ("DECLARE c CURSOR FOR DELETE", 22),
        ("SET x", 6),
    ],
)
def test_a_statement_that_does_not_go_on_as_it_began_is_refused_at_its_place(text: str, position: int | None) -> None:
    with pytest.raises(PgError) as caught:
        read(words_of(text))
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("SELECT k FROM s WHERE v > $1 AND $2 = s.ts", {1: "INT", 2: "TIMESTAMP"}),
        ("SELECT k FROM s WHERE v BETWEEN $1 AND $2", {1: "INT", 2: "INT"}),
        ("SELECT k FROM s WHERE v IN ($1, $2, $3)", {1: "INT", 2: "INT", 3: "INT"}),
        ("SELECT k FROM s WHERE k LIKE $1 LIMIT $2", {1: "TEXT", 2: "BIGINT"}),
        ("SELECT $1::double precision AS x, CAST($2 AS DATE) FROM s", {1: "DOUBLE", 2: "DATE"}),
        ("SELECT k FROM s HAVING COUNT(*) > $1", {1: "BIGINT"}),
        ("INSERT INTO s (v, k) VALUES ($1, $2), ($3, upper($4))", {1: "INT", 2: "TEXT", 3: "INT"}),
        ("SELECT '$1' FROM s WHERE other = $1", {}),
    ],
)
def test_the_words_around_a_parameter_tell_its_type(text: str, types: dict[int, str]) -> None:
    found = parameter_types(words_of(text), COLUMNS, [COLUMNS["v"], COLUMNS["k"]])
    assert {number: str(kind) for number, kind in found.items()} == types


def test_what_the_server_is_sent_and_where_its_places_were() -> None:
    source = "  SELECT k,\n $1 AS a, E'it\\'s' FROM public.s WHERE v = $2"
    sent = for_server(source, words_of(source), {1: "'long text'", 2: "7"}, prefix="FETCH ")
    assert sent.text == "FETCH SELECT k,\n 'long text' AS a, 'it''s' FROM s WHERE v = 7"
    for piece in ("SELECT", "k,", "AS a", "FROM", "WHERE", "v ="):
        before = sent.text[: sent.text.index(piece)]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        assert sent.origin(line, column) == source.index(piece)


TEXTS = st.text(alphabet="ab'\"$1;-/*E\\ \n.", max_size=40)


@given(TEXTS)
def test_the_words_of_any_text_are_its_own_in_order(text: str) -> None:
    words = words_of(text)
    assert all(text[word.start : word.end] == word.text for word in words)
    assert all(a.end <= b.start for a, b in pairwise(words))
    assert ["".join(w.text for w in one) for one in split(words)] == [part for part in joined_parts(text) if part]


def joined_parts(text: str) -> list[str]:
    parts = [""]
    for word in words_of(text):
        if word.text == ";":
            parts.append("")
        else:
            parts[-1] += word.text
    return parts


@given(TEXTS, st.integers(1, 3), st.integers(1, 50))
def test_a_place_is_always_one_of_the_text(text: str, line: int, column: int) -> None:
    words = words_of(text)
    if words:
        sent = for_server(text, words, dict.fromkeys(range(200_000), "1") if "$" in text else {}, prefix="FETCH ")
        assert 0 <= sent.origin(line, column) <= len(text)


WORDS = [
    "COPY",
    "DECLARE",
    "FETCH",
    "SET",
    "SHOW",
    "FOR",
    "CURSOR",
    "SUBSCRIBE",
    "SELECT",
    "FROM",
    "STDIN",
    "TO",
    "STDOUT",
    "WITH",
    "ROLLBACK",
]


@given(
    st.lists(
        st.sampled_from(
            [
                *WORDS,
                *"c(),1",
                "'x'",
                "$1",
            ]
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    assert state_of(lambda: read(words_of(" ".join(words)))) in ("", "42601", "0A000", "22023")


def state_of(call: Callable[[], object]) -> str:
    """Return the SQLSTATE of what was raised, if anything was."""
    try:
        call()
    except PgError as problem:
        return problem.sqlstate
    return ""


def test_texts_of_the_greatest_length_cost_the_same_whatever_stands_in_them() -> None:
    # Counted, not timed: each of these would be looked through once for each of its openings by a rule that goes back.
    for piece in ("/*", "'", '"', "$a$", "E'", "--"):
        assert len(words_of(piece * 50_000)) <= 250_000
