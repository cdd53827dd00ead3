"""Names: the one rule for what may be called what (case C39), and suggestions for a name that was mistyped."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from heapq import nsmallest

from millstream.engine.data.errors import InvalidDefinition

NAME_LENGTH_MAX = 128  # code points; longer ones break terminals and file names long before they help anyone
COMPARED_MAX = 512  # names that a mistyped one is compared with: all functions of the language, and a tenth of a second
_FORBIDDEN = frozenset("/\\\"'`;")


def validate_name(name: str, what: str = "name") -> str:
    """Return `name` if a stream, table, column, query or class may be called so, else raise InvalidDefinition with the reason.

    Allowed: 1 to 128 letters, digits, marks, spaces inside and punctuation of any script. Refused: empty, white space at an end,
    control and invisible characters, slashes, quotes and semicolons, and the names `.` and `..`, as each of these fails with some
    verb on some surface.
    """
    if not name:
        raise InvalidDefinition(f"a {what} must not be empty")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidDefinition(f"the {what} '{name[:20]}…' has {len(name)} characters", hint=f"use at most {NAME_LENGTH_MAX}")
    if name != name.strip():
        raise InvalidDefinition(f"the {what} {name!r} begins or ends with white space")
    for character in name:
        if character in _FORBIDDEN:
            raise InvalidDefinition(f"the {what} {name!r} contains {character}", hint="use letters, digits, _ or -")
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            raise InvalidDefinition(f"the {what} {name!r} contains the character U+{ord(character):04X}, which cannot be seen")
    if set(name) == {"."}:
        raise InvalidDefinition(f"a {what} must not be {name!r}")
    return name


def suggest(word: str, known: Iterable[str], compared_max: int = COMPARED_MAX) -> str | None:
    """Return the known name that `word` most resembles, or None when none is near.

    Comparing two names takes up to 0.2 ms. So of many names those are compared that begin alike, `compared_max` at most.
    """
    if len(word) > NAME_LENGTH_MAX:
        return None
    wanted = word.lower()
    candidates = {name.lower(): name for name in known}
    names = sorted(candidates)
    if len(names) > compared_max:
        names = nsmallest(compared_max, names, key=lambda name: (-_alike(name, wanted), abs(len(name) - len(wanted))))
    found = difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    return candidates[found[0]] if found else None


def _alike(name: str, other: str) -> int:
    """Return how many characters two names begin with alike."""
    for at, (mine, theirs) in enumerate(zip(name, other, strict=False)):
        if mine != theirs:
            return at
    return min(len(name), len(other))


def shown(name: str) -> str:
    """Return a name as it stands in a sentence: an empty one would not be seen."""
    return name or "''"


def did_you_mean(word: str, known: Iterable[str], compared_max: int = COMPARED_MAX) -> str | None:
    """Return "did you mean X?" for the nearest known name, or None. `compared_max` as for `suggest`."""
    near = suggest(word, known, compared_max)
    return None if near is None else f"did you mean {near}?"


def quote_name(name: str) -> str:
    """Return `name` as an identifier of the language, quoted where it must be."""
    from millstream.engine.language.dialect import RESERVED  # the dialect reads this file's sibling; avoid a cycle

    plain = name.isidentifier() and name == name.lower() and name.upper() not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'
