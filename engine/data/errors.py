"""Errors of the engine, one family. Each has a code from docs/errors.md, a sentence, and where it can the mend."""

from __future__ import annotations


class EngineError(Exception):
    """Base of the family; raise one of the others.

    `code` is one of the closed list in docs/errors.md, `hint` says what to do, `line` and `column` are 1-based places in the
    statement's text.
    """

    code = "engine"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        line: int | None = None,
        column: int | None = None,
        token: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.line = line
        self.column = column
        self.token = token

    def __str__(self) -> str:
        """Return message, place and hint in one line."""
        place = f" (line {self.line}, column {self.column})" if self.line is not None else ""
        mend = f"; {self.hint}" if self.hint else ""
        return f"{self.message}{place}{mend}"


class SyntaxProblem(EngineError):
    """The text is not a statement of the language."""

    code = "syntax"


class UnknownName(EngineError):
    """A stream, table, column, function, query or class that does not exist."""

    code = "unknown_name"


class TypeProblem(EngineError):
    """Operand or column types that do not fit."""

    code = "type"


class Unsupported(EngineError):
    """A clause that is understood and not supported; refused at registration, with the clause named."""

    code = "unsupported"


class InvalidDefinition(EngineError):
    """A definition that contradicts itself or a rule of docs/semantics.md."""

    code = "invalid"


class ColumnMissing(InvalidDefinition):
    """A file lacks a column of its stream that must have a value."""


class StreamEnded(InvalidDefinition):
    """Rows for a stream that takes no more."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream} has ended", hint="DROP STREAM and CREATE STREAM begin it anew")


class SharingLost(InvalidDefinition):
    """A query was planned to share an operator that rows have reached since; it must be planned again."""


class NameTaken(EngineError):
    """A name that exists already."""

    code = "exists"


class InUse(EngineError):
    """Something that cannot be dropped because others read it."""

    code = "in_use"


class BoundReached(EngineError):
    """A query needs more memory, or one step of it more processor time, than a stated bound allows; it ends (K8)."""

    code = "limit"


class Misfit(str):
    """Why a part of a nested value does not fit; `path` leads to the part: `.points[3].x`."""

    __slots__ = ("path",)
    path: str

    def __new__(cls, path: str, reason: str) -> Misfit:
        """Put a step before the path of a reason."""
        made = super().__new__(cls, reason)
        made.path = path + (reason.path if isinstance(reason, Misfit) else "")
        return made


def in_place(name: str, reason: str) -> str:
    """Return a reason with the path to what it is about, which begins with a column's name."""
    return f"{name}{reason.path if isinstance(reason, Misfit) else ''}: {reason}"
