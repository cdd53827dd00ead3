"""Whoever types another system's words is told what was understood and what to write here: every phrase of the table, typed in."""

from __future__ import annotations

import pytest
from millstream.engine.data.errors import EngineError
from millstream.engine.language.foreign_words import TABLE, ForeignWord, WordPlace
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import SelectStatement

from tests.support.plans import make_catalog, plan

CATALOG = make_catalog()

# A phrase stands at the end of its sentence unless it is listed here.
SENTENCES = {
    WordPlace.STATEMENT: "{} x",
    WordPlace.DEFINITION: "CREATE STREAM q (a INT {} b TEXT)",
    WordPlace.CLAUSE: "SELECT k FROM s {} x",
    WordPlace.FUNCTION: "SELECT {}(v) FROM s",
    WordPlace.COLUMN: "SELECT {} FROM s",
    WordPlace.TYPE: "CREATE STREAM q (a {})",
}
PLACED = {
    "WITH (": "CREATE STREAM q (a INT) WITH (kafka_topic = 'q')",
    **{f"CREATE {kind} … WITH (": f"CREATE {kind} q WITH (kafka_topic = 'q') AS SELECT k FROM s" for kind in ("STREAM", "TABLE")},
    "WITH RECURSIVE …": "WITH RECURSIVE x AS (SELECT k FROM s) SELECT k FROM x",
    **{word: f"SELECT k FROM s x {word} JOIN r" for word in ("SEMI", "ANTI", "UNIDIRECTIONAL")},
    **{word: f"SELECT k FROM s WHERE name {word} 'x'" for word in ("RLIKE", "REGEXP", "OVERLAPS")},
    "SOFFSET": "SELECT COUNT(*) FROM s GROUP BY k SOFFSET 5",
    "ALL": "SELECT k, COUNT(*) FROM s GROUP BY ALL",
}


def typed(kind: WordPlace, phrase: str) -> str:
    if phrase in PLACED:
        return PLACED[phrase]
    shown = phrase.replace("…", "x").replace("'x'", "'some.key'").replace("9", "5")
    return SENTENCES[kind].format(shown)


def refused(text: str) -> EngineError:
    try:
        if isinstance(parse_statement(text), SelectStatement):
            plan(text, catalog=CATALOG)
    except EngineError as problem:
        return problem
    raise AssertionError(f"{text} works here, so it needs no row")


EVERY = [(row, phrase) for row in TABLE for phrase in row.phrases]


@pytest.mark.parametrize(("row", "phrase"), EVERY, ids=[f"{row.kind.value}: {phrase}" for row, phrase in EVERY])
def test_a_foreign_phrase_gets_its_answer(row: ForeignWord, phrase: str) -> None:
    text = typed(row.kind, phrase)
    problem = refused(text)
    assert problem.hint == row.ours, f"{text}: {problem}"
    assert problem.line == 1
    assert problem.column is not None
