"""Statements as text: a script cut into them, names as they are written, and what is said to a query.

Of a script only quotes, comments and semicolons are understood; everything else is the server's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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


_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def policy_statement(policy: str, settings: Sequence[str] = ()) -> str:
    """Return SET POLICY for a policy as text, such as `bsd-log:clusters=12,level=operator`, with more settings of the form NAME=VALUE.

    Raises ValueError for a setting of another form.
    """
    name, _, rest = policy.partition(":")
    literals = ", ".join(_setting(one) for one in (*(one for one in rest.split(",") if one), *settings))
    return f"SET POLICY {quoted(name)}{f' WITH ({literals})' if literals else ''}"


def _setting(setting: str) -> str:
    name, equals, value = setting.partition("=")
    if not equals or not _WORD.fullmatch(name):
        hint = f"; a file of your own is user:file={setting}" if setting.endswith(".py") else ""
        raise ValueError(f"{setting!r} is not of the form NAME=VALUE{hint}")
    literal = value if _NUMBER.fullmatch(value) or value.lower() in ("true", "false") else "'" + value.replace("'", "''") + "'"
    return f"{name} = {literal}"


VERBS = ("START", "STOP", "PAUSE", "RESUME", "DROP")


def quoted(name: str) -> str:
    """Return a name as the language reads it exactly, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def name_of(text: str) -> str:
    """Return the name that `text`, typed on a command line, stands for: as in the language, plain words fold to lower case.

    In double quotes a name is taken as it is; so is one that is not a plain word (`a/b`, ` x `), which needs none.
    """
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text.lower() if text.isidentifier() else text


def query_statement(verb: str, name: str, *, cascade: bool = False) -> str:
    """Return the statement that does `verb` to the query called `name`. Raises ValueError for a word that is not one of VERBS."""
    if verb not in VERBS:
        raise ValueError(f"{verb} is not a verb of queries")
    return f"{verb} QUERY {quoted(name)}{' CASCADE' if cascade else ''}"
