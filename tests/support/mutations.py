"""Statements that stand in the tests and the documents, and how they are bent: a corpus for finding what no text may reach."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from functools import cache

from millstream.engine.aggregates.table import aggregate_names
from millstream.engine.expressions.functions import ALIASES, RULES
from millstream.engine.language.column_types import TYPE_NAMES
from millstream.engine.language.dialect import MONTHS, UNITS_US

from tests.support.tree import ROOT

TOKEN = re.compile(
    r"--[^\n]*|'(?:[^']|'')*'|\"[^\"]*\"|[^\W\d]\w*|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|<=|>=|<>|!=|->>?|#>>?|!?~\*?|\|\||::|=>|\S"
)
STATEMENT = re.compile(r"\s*(SELECT|CREATE|INSERT|DROP|START|STOP|PAUSE|RESUME|SHOW|DESCRIBE|EXPLAIN|SET|FETCH|WITH|[IDR]STREAM)\b", re.I)
BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATEMENT_LENGTH_MAX = 2_000  # of the corpus; longer ones are about length alone
ODD = (
    "0",
    "-1",
    "9223372036854775807",
    "1e308",
    "''",
    "NULL",
    "*",
    "(",
    ")",
    ",",
    ".",
    "[",
    "]",
    "'x'",
    "1.5",
    "99999999999999999999",
    '"s"',
)


@cache
def statements() -> tuple[str, ...]:
    """Return every statement of the golden scripts, of the documents' examples and of the strings in the tests' code, each once."""
    found: dict[str, None] = {}
    for script in [*_golden(), *_documents()]:
        found.update(dict.fromkeys(_split(script)))
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value):
                found.update(dict.fromkeys(_split(node.value)))
    return tuple(text for text in found if len(text) <= STATEMENT_LENGTH_MAX)


def _golden() -> Iterator[str]:
    for path in sorted((ROOT / "tests" / "golden" / "cases").glob("*.sql")):
        yield path.read_text("utf-8")


def _documents() -> Iterator[str]:
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        yield from BLOCK.findall(path.read_text("utf-8"))


def _split(script: str) -> list[str]:
    """Return the statements of a script, without comments."""
    parts: list[list[str]] = [[]]
    for token in TOKEN.findall(script):
        if token == ";":
            parts.append([])
        elif not token.startswith("--"):
            parts[-1].append(token)
    return [" ".join(part) for part in parts if part]


@cache
def tokens() -> tuple[str, ...]:
    """Return the different tokens of the corpus, the words of the language, and some odd ones."""
    words = {*aggregate_names(), *RULES, *ALIASES, *TYPE_NAMES, *UNITS_US, *MONTHS, *ODD}
    return tuple(sorted({token for text in statements() for token in TOKEN.findall(text)} | words))


def _kind(token: str) -> str:
    return "word" if token[0].isalpha() else "value" if token[0] in "'0123456789" else "sign"


@cache
def _alike() -> dict[str, tuple[str, ...]]:
    kinds: dict[str, list[str]] = {}
    for token in tokens():
        kinds.setdefault(_kind(token), []).append(token)
    return {kind: tuple(found) for kind, found in kinds.items()}


def mutated(choice: random.Random, text: str) -> str:
    """Return the text with up to three tokens deleted, doubled, swapped or replaced, by others of the corpus or a piece of a statement.

    Half of the changes put a token of the same kind there, so that many texts get past the parser.
    """
    found = TOKEN.findall(text)
    for _ in range(choice.choice((1, 1, 1, 2, 3))):
        if not found:
            break
        at, other = choice.randrange(len(found)), choice.randrange(len(found))
        match choice.randrange(12):
            case 0:
                del found[at]
            case 1:
                found.insert(at, found[at])
            case 2:
                found[at], found[other] = found[other], found[at]
            case 3:
                found[at] = choice.choice(tokens())
            case 4:
                donor = TOKEN.findall(choice.choice(statements()))
                start = choice.randrange(len(donor))
                found[at : at + choice.randrange(2)] = donor[start : start + choice.randint(1, 8)]
            case 5:
                found[at] = found[other]
            case _:
                found[at] = choice.choice(_alike()[_kind(found[at])])
    return " ".join(found)
