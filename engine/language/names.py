"""Names: the one rule for what may be called what (case C39), and how a name is written."""

from __future__ import annotations

import unicodedata

from millstream.engine.data.errors import InvalidDefinition

NAME_LENGTH_MAX = 128  # code points; longer ones break terminals and file names long before they help anyone
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


def shown(name: str) -> str:
    """Return a name as it stands in a sentence: an empty one would not be seen."""
    return name or "''"


def quote_name(name: str) -> str:
    """Return `name` as an identifier of the language, quoted where it must be."""
    from millstream.engine.language.dialect import RESERVED  # the dialect reads this file's sibling; avoid a cycle

    plain = name.isidentifier() and name == name.lower() and name.upper() not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'
