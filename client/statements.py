"""Cutting a script into statements. Only quotes, comments and semicolons are understood; everything else is the server's."""

from __future__ import annotations

import re

# A quoted string or name (doubled quotes are two tokens), a comment, a semicolon, or a run of anything else.
_TOKEN = re.compile(r"""'[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/|/\*|;|[^'";/-]+|.""", re.DOTALL)
_OPEN = re.compile(r"""['"]|/\*""")


def split_script(text: str) -> list[str]:
    """Return the statements of a script in order, without their semicolons; empty ones are left out.

    Each begins with as many line ends as came before it, so that the line numbers of its errors are those of the script.
    """
    statements, current, lines = [], "", 0
    for token in _TOKEN.findall(text):
        if token == ";":
            statements.append((lines, current))
            lines += current.count("\n")
            current = ""
        else:
            current += token
    statements.append((lines, current))
    return ["\n" * before + statement for before, statement in statements if _has_words(statement)]


def is_complete(text: str) -> bool:
    """Whether what was typed ends a statement: its last token beside comments is a semicolon, and no quote is open."""
    last = ""
    for token in _TOKEN.findall(text):
        if _OPEN.fullmatch(token):
            return False  # a quote or comment that is not closed comes as its beginning alone
        if token.strip() and not token.startswith(("--", "/*")):
            last = token
    return last == ";"


def first_word(statement: str) -> str:
    """Return the first word in capitals, past comments and parentheses; empty if there is none."""
    for token in _TOKEN.findall(statement):
        if not token.startswith(("--", "/*")):
            match = re.match(r"[\s(]*([A-Za-z]+)", token)
            if match:
                return match[1].upper()
            if token.strip(" \t\r\n("):
                return ""
    return ""


def _has_words(statement: str) -> bool:
    return any(token.strip() and not token.startswith(("--", "/*")) for token in _TOKEN.findall(statement))
