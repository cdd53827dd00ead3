"""The one error a user of the client sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from millstream.protocol.messages import Failure


class MillstreamError(Exception):
    """Something did not work.

    `code` is one of docs/errors.md, `message` a sentence, `hint` the mend; `line`, `column` (from 1) and `token` are the place in
    the statement's text; each None where it does not apply.
    """

    def __init__(
        self,
        code: str,
        message: str,
        hint: str | None = None,
        *,
        line: int | None = None,
        column: int | None = None,
        token: str | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.hint = hint
        self.line = line
        self.column = column
        self.token = token

    def __str__(self) -> str:
        """Return message, place and hint in one line."""
        place = f" (line {self.line}, column {self.column})" if self.line is not None and self.column is not None else ""
        mend = f"; {self.hint}" if self.hint else ""
        return f"{self.message}{place}{mend}"

    @classmethod
    def of_failure(cls, failure: Failure) -> MillstreamError:
        """Return the error that the server reported."""
        place = {"line": failure.line, "column": failure.column, "token": failure.token}
        return cls(failure.code, failure.message, failure.hint, **place)  # type: ignore[arg-type]

    @classmethod
    def of_protocol(cls, error: ProtocolError) -> MillstreamError:
        """Return the error of a message that could not be sent or understood."""
        return cls(error.code, error.message)


class NamesNoColumn(MillstreamError):
    """No name in an input is a column of the stream."""


class NoServerHere(MillstreamError):
    """No server answers at an address of this machine: one may be about to start."""

    def __init__(self, message: str) -> None:
        super().__init__("unreachable", message, "start one with: millstream serve")


def disconnected(reason: str) -> MillstreamError:
    """Return the error of everything that was open when the connection was lost."""
    return MillstreamError("disconnected", reason, "connect again; a resume token continues a subscription")
