"""Errors of the server, one family, and the only place where errors of any folder become wire errors.

Codes are the closed list of docs/errors.md. A `ServerError` says whose fault it is by its class, and where it can the mend.
"""

from __future__ import annotations

from millstream.engine.data.errors import EngineError
from millstream.engine.data.records import dataclass
from millstream.scheduler.errors import PolicyError, SchedulerError


class ServerError(Exception):
    """Base of the family; raise one of the others. `hint` says what to do."""

    code = "internal"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return message and hint in one line."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class ConfigError(ServerError):
    """A setting that cannot be used."""

    code = "invalid"


class IllegalMove(ServerError):
    """A verb that a query's state does not allow."""

    code = "state"


class StoreError(ServerError):
    """The data directory cannot be used."""

    code = "internal"


class StorageError(ServerError):
    """The disk does not take what has to be kept: nothing of what was asked for is in force, and it can be tried again."""

    code = "storage"

    def __init__(self, what: str, error: Exception, hint: str = "") -> None:
        reason = getattr(error, "strerror", None) or error
        way_out = hint or "make room on the disk or repair it, then try again; you need not restart the server"
        super().__init__(f"{what}: {reason}", hint=way_out)


class Broken(ServerError):
    """A fault of ours has ended what runs the queries; only another start mends that."""

    code = "internal"


class Denied(ServerError):
    """The role of this connection does not allow the request."""

    code = "forbidden"


class Replaced(ServerError):
    """Another one took the place of whoever asked."""

    code = "closed"


class Refused(ServerError):
    """A query that was not let in, since a class would miss its target."""

    code = "overloaded"


class TooMany(ServerError):
    """More of something than a setting allows; the message names it."""

    code = "limit"


class BadInput(ServerError):
    """A script, input, timeline or file that cannot be used."""

    code = "data"


class GivenUp(ServerError):
    """A request that nobody waits for any more: it was cancelled, or whoever asked has left."""

    code = "cancelled"


@dataclass(frozen=True, slots=True)
class WireError:
    """What a Failure message says about an error."""

    code: str
    message: str
    hint: str | None = None
    line: int | None = None
    column: int | None = None
    token: str | None = None


def to_wire(error: Exception) -> WireError:
    """Return what the peer is told of an error; anything outside the two families is a fault of ours and says so."""
    if isinstance(error, EngineError):
        return WireError(error.code, error.message, error.hint, error.line, error.column, error.token)
    if isinstance(error, SchedulerError):
        return WireError("invalid" if isinstance(error, PolicyError) else "engine", error.message, error.hint)
    if isinstance(error, ServerError):
        return WireError(error.code, error.message, error.hint)
    return WireError("internal", f"an error inside the server: {type(error).__name__}: {error}", "see the server's log")
