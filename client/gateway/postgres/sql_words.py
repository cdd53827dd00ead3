"""Words of SQL as PostgreSQL's clients write it, with their places; and edits of a text that keep its places known.

Every rule here reads forward once: a text of the greatest length costs the same whatever stands in it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

# An open quote or comment runs to the end of the text.
_TOKEN = re.compile(
    r"""(?P<space>[\s]++)|(?P<comment>--[^\n]*+)|(?P<block>/\*)|(?P<escaped>[eE]'(?:[^'\\]|\\.|'')*+(?:'|\\?\Z))|(?P<text>'(?:[^']|'')*+(?:'|\Z))
    |(?P<name>"(?:[^"]|"")*+(?:"|\Z))|(?P<parameter>\$\d{1,5}(?!\d))|(?P<word>[^\W\d][\w$]*+)|(?P<number>(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?)
    |(?P<sign><=|>=|<>|!=|::|\|\||.)""",
    re.DOTALL | re.VERBOSE,
)
_BLOCK = re.compile(r"/\*|\*/")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Word:
    """A token: what it is (`word`, `name`, `text`, `escaped`, `parameter`, `number`, `sign`), its text, and where it begins."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + len(self.text)

    @property
    def upper(self) -> str:
        """A keyword in capitals; empty for what is no bare word or sign."""
        return self.text.upper() if self.kind in ("word", "sign") else ""

    @property
    def identifier(self) -> str | None:
        """The name that it is, folded unless it is quoted; None for what is no name."""
        if self.kind == "name":
            return self.text[1:-1].replace('""', '"')
        return self.text.lower() if self.kind == "word" else None


def words_of(text: str) -> list[Word]:
    """Return the tokens of a text, without spaces and comments."""
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None, "any character is a sign"
        kind = match.lastgroup or "sign"
        if kind == "block":
            at = _end_of_block(text, match.end())
            continue
        at = match.end()
        if kind not in ("space", "comment"):
            found.append(Word(kind, match[0], match.start()))
    return found


def _end_of_block(text: str, at: int) -> int:
    depth = 1
    for mark in _BLOCK.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def split(words: Sequence[Word]) -> list[list[Word]]:
    """Return the statements of a text, each its words; empty ones are left out."""
    statements: list[list[Word]] = [[]]
    for word in words:
        if word.kind == "sign" and word.text == ";":
            statements.append([])
        else:
            statements[-1].append(word)
    return [statement for statement in statements if statement]


def unescaped(text: str) -> str:
    """Return what a text of the form E'…' says, in single quotes."""
    inner = text[2:-1] if len(text) > 2 and text.endswith("'") else text[2:]
    said = re.sub(r"\\(.)|''", lambda m: _ESCAPES.get(m[1], m[1]) if m[1] else "'", inner, flags=re.DOTALL)
    return "'" + said.replace("'", "''") + "'"


class Edited:
    """A stretch of a text with some parts replaced; `text`, and for a place in it the place that it was made of."""

    def __init__(self, source: str, start: int, end: int, edits: Sequence[tuple[int, int, str]]) -> None:
        """`edits` are (from, to, instead) in order, within `start` and `end`."""
        pieces: list[str] = []
        self._made: list[int] = []  # where each piece begins
        self._from: list[tuple[int, bool]] = []  # where it was, and whether it is a copy
        length, at = 0, start
        for begin, stop, instead in [*edits, (end, end, "")]:
            for piece, origin, is_copy in ((source[at:begin], at, True), (instead, begin, False)):
                if piece:
                    self._made.append(length)
                    self._from.append((origin, is_copy))
                    pieces.append(piece)
                    length += len(piece)
            at = stop
        self.text = "".join(pieces)

    def origin(self, line: int, column: int) -> int:
        """Return where in the source the character at this line and column (from 1) of the text was, counted from 0."""
        place = 0
        for _ in range(line - 1):
            place = self.text.find("\n", place) + 1
        place = min(place + column - 1, len(self.text))
        index = bisect_right(self._made, place) - 1
        if index < 0:
            return 0
        origin, is_copy = self._from[index]
        return origin + (place - self._made[index] if is_copy else 0)
