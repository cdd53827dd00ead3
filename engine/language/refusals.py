"""A refusal in the words of the system that somebody comes from: it names what was understood, and what to write here.

`explained` looks at the statement around the place where its parser stopped; `hint` at the name of a function, column or type that is
not known. Both read the table in foreign_words.py. Import this file where something is refused: a server in good hands needs
neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from millstream.engine.data.errors import EngineError, Unsupported
from millstream.engine.language.foreign_words import TABLE, WordPlace
from sqlglot.tokenizer_core import Token, TokenType

_TEXT, _QUOTED = "'…'", '"…"'
_ANY, _NUMBER = "…", "9"
_AROUND = (_ANY, _NUMBER, "(", "[")  # at the end of a phrase these only tell it from others


class _Phrase(NamedTuple):
    words: tuple[str, ...]
    ours: str


@cache
def _phrases(kind: WordPlace) -> dict[str, tuple[_Phrase, ...]]:
    """Return the phrases of one kind by their first word, the longest first."""
    found: dict[str, tuple[_Phrase, ...]] = {}
    for row in TABLE:
        if row.kind is kind:
            for text in row.phrases:
                phrase = _Phrase(tuple(text.split()), row.ours)
                found[phrase.words[0]] = (*found.get(phrase.words[0], ()), phrase)
    return {first: tuple(sorted(those, key=lambda p: -len(p.words))) for first, those in found.items()}


def hint(kind: WordPlace, name: str) -> str | None:
    """Return what to write in place of another system's name for a function, column or type; None when it is not in the table."""
    found = _phrases(kind).get(name.upper())
    return found[0].ours if found else None


def explained(problem: EngineError, tokens: Sequence[Token], text: str) -> EngineError:
    """Return the error to raise for a statement that its parser refused with `problem`.

    That is Unsupported with the other system's phrase, its place and our spelling, when the place of the problem lies within one, and
    else the problem itself.
    """
    words = [(word, token) for token in tokens for word in _words(token)]
    at = next((i for i, (_, token) in enumerate(words) if (token.line, token.col) == (problem.line, problem.column)), None)
    if at is None:
        return problem
    found = _around([word for word, _ in words], at)
    if found is None:
        return problem
    phrase, start = found
    own = phrase.words[: max((i for i, word in enumerate(phrase.words) if word not in _AROUND), default=0) + 1]
    first, last = words[start][1], words[start + len(own) - 1][1]
    shown = " ".join(text[first.start : last.end + 1].split())
    return Unsupported(f"{shown} is not supported", hint=phrase.ours, line=first.line, column=first.col, token=first.text)


def _words(token: Token) -> list[str]:
    """Return the token in upper case; of one that the tokenizer joined, such as ORDER BY, its words."""
    if token.token_type == TokenType.STRING:
        return [_TEXT]
    return [_QUOTED] if token.token_type == TokenType.IDENTIFIER else token.text.upper().split()


def _around(words: list[str], at: int) -> tuple[_Phrase, int] | None:
    """Return the longest phrase that the word at `at` is part of, and where it begins."""
    kind = WordPlace.DEFINITION if words[0] == "CREATE" and "SELECT" not in words else WordPlace.CLAUSE
    found: tuple[_Phrase, int] | None = None
    places = [(0, WordPlace.STATEMENT), *((start, kind) for start in range(at + 1))]
    for start, where in places:
        first = _NUMBER if words[start][:1].isdigit() else words[start]
        for phrase in _phrases(where).get(first, ()):
            # A word such as EXTENDED may pass for a name, and the parser stops behind it.
            reaches = start + len(phrase.words) + (where is WordPlace.STATEMENT) > at
            if reaches and _matches(phrase.words, words[start:]) and (found is None or len(phrase.words) > len(found[0].words)):
                found = phrase, start
    return found


def _matches(phrase: Sequence[str], words: list[str]) -> bool:
    return len(phrase) <= len(words) and all(_is(wanted, word) for wanted, word in zip(phrase, words, strict=False))


def _is(wanted: str, word: str) -> bool:
    return wanted in (_ANY, word) or (wanted == _NUMBER and word[:1].isdigit())
