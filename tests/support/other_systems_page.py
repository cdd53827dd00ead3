"""Writes docs/other-systems.md: twelve statements of each other system typed in, with the answers, and the table of their words.

    python -m tests.support.other_systems_page          # from the root; rewrites docs/other-systems.md

A test compares the page with what this would write, so every answer on the page is what the parser and planner say today.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.engine.data.errors import EngineError
from millstream.engine.language.foreign_words import TABLE, WordPlace
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import CreateDerivedStream, CreateQuery, InsertSelect, SelectStatement
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.plan import plan_select

from tests.support.other_systems import DEFINITIONS, SYSTEMS, Typed
from tests.support.plans import make_catalog
from tests.support.tree import ROOT

PAGE = ROOT / "docs" / "other-systems.md"
HEAD = """# Coming from another system

`python -m tests.support.other_systems_page` writes this page by typing the statements in. You can type what you know: where Millstream
writes it differently, the error says how. [The query language](language.md) has the whole of it, [recipes](recipes.md) whole tasks.

The statements read these inputs:

"""
KINDS = {
    WordPlace.STATEMENT: "Statements",
    WordPlace.DEFINITION: "In CREATE STREAM and CREATE TABLE",
    WordPlace.CLAUSE: "Clauses and operators",
    WordPlace.FUNCTION: "Functions",
    WordPlace.COLUMN: "Columns",
    WordPlace.TYPE: "Types",
}
WORDS = """
## Words

Words that Millstream knows by the same name (among them ILIKE, LISTAGG, NVL, TUMBLE, UCASE, `::`) are not listed. In a phrase `…` is any
word and `9` any number.
"""


def answer(text: str, catalog: Catalog) -> str | None:
    """Return the error that a statement gets, None when it is understood and can be planned."""
    try:
        statement = parse_statement(text)
        if isinstance(statement, SelectStatement | CreateQuery | CreateDerivedStream | InsertSelect):
            plan_select(statement.query, catalog)
    except EngineError as problem:
        return str(problem)
    return None


def page() -> str:
    """Return docs/other-systems.md as it should be."""
    catalog = make_catalog(DEFINITIONS)
    parts = [HEAD, f"```\n{DEFINITIONS.strip()}\n```\n"]
    for system, statements in SYSTEMS.items():
        parts.append(f"\n## {system}\n")
        parts += [_typed(one, catalog) for one in statements]
    return "".join([*parts, WORDS, *_words()])


def _typed(one: Typed, catalog: Catalog) -> str:
    said = answer(one.theirs, catalog)
    if said is None:
        return f"\n```\n{one.theirs}\n```\n\nIt runs as it stands.\n"
    here = "" if one.ours is None else f"\nHere:\n\n```\n{one.ours}\n```\n"
    return f"\n```\n{one.theirs}\n```\n\n> {_quoted(said)}\n{here}"


def _quoted(text: str) -> str:
    """Return a text as Markdown shows it."""
    return "".join(f"\\{c}" if c in "\\*_[]<>`|" else c for c in text)


def _words() -> Iterator[str]:
    for kind, title in KINDS.items():
        yield f"\n### {title}\n\n| there | in | here |\n| --- | --- | --- |\n"
        for row in TABLE:
            if row.kind is kind:
                phrases = ", ".join(f"`` {phrase} ``".replace("|", "\\|") for phrase in row.phrases)
                yield f"| {phrases} | {row.systems} | {_quoted(row.ours)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
