"""Error codes: PostgreSQL's SQLSTATE for each code of docs/errors.md, and those of the gateway's own errors."""

from __future__ import annotations

OF_CODE = {
    "syntax": "42601",
    "unknown_name": "42P01",
    "type": "42804",
    "unsupported": "0A000",
    "invalid": "42P17",
    "exists": "42P07",
    "in_use": "2BP01",
    "engine": "58000",
    "state": "55000",
    "unauthorized": "28P01",
    "forbidden": "42501",
    "version": "08P01",
    "protocol": "08P01",
    "flow": "08P01",
    "limit": "54000",
    "overloaded": "53000",
    "storage": "58030",
    "timeout": "57P05",
    "slow": "57014",
    "cancelled": "57014",
    "closed": "08003",
    "data": "22000",
    "stopping": "57P01",
    "unreachable": "08001",
    "disconnected": "08006",
    "internal": "XX000",
}

ACTIVE_TRANSACTION = "25001"
CANCELLED = "57014"
CONNECTION_FAILURE = "08006"
DATETIME_OVERFLOW = "22008"
DUPLICATE_CURSOR = "42P03"
DUPLICATE_STATEMENT = "42P05"
FAILED_TRANSACTION = "25P02"
INTERNAL = "XX000"
INVALID_AUTHORIZATION = "28000"
INVALID_BINARY = "22P03"
INVALID_CURSOR = "34000"
INVALID_PARAMETER = "22023"
INVALID_PASSWORD = "28P01"
INVALID_STATEMENT = "26000"
INVALID_TEXT = "22P02"
BAD_COPY = "22P04"
LIMIT = "54000"
NO_TRANSACTION = "25P01"
PROTOCOL_VIOLATION = "08P01"
SYNTAX = "42601"
TOO_MANY_CONNECTIONS = "53300"
UNDEFINED_COLUMN = "42703"
UNDEFINED_PARAMETER = "42P02"
UNSUPPORTED = "0A000"


class PgError(Exception):
    """What a peer is told. `position` counts characters of its statement from 1; `fatal` errors end the connection."""

    def __init__(self, sqlstate: str, message: str, hint: str | None = None, position: int | None = None, fatal: bool = False) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.hint = hint
        self.position = position
        self.fatal = fatal
