"""Errors of the protocol, split by fault (ours or the peer's), and the closed list of codes a `Failure` may carry."""

from __future__ import annotations

# code -> (meaning, what to do). docs/errors.md is written from this table and a test compares them.
CODES: dict[str, tuple[str, str]] = {
    "syntax": ("The text is not a statement of the language.", "Look at the line and column that the message names."),
    "unknown_name": ("No stream, column, function, query or class has that name.", "Check the spelling; SHOW lists names."),
    "type": ("The types do not fit together.", "Add a CAST, or compare values of one kind."),
    "unsupported": ("Millstream knows the clause but does not support it.", "Rewrite the query without the clause that the message names."),
    "invalid": ("The definition contradicts itself or a rule of the language.", "Follow the hint."),
    "exists": ("The name is taken.", "Choose another name, drop the old one, or write IF NOT EXISTS."),
    "in_use": ("Something reads it, so it cannot be dropped.", "Drop the readers first, or write CASCADE."),
    "engine": ("The engine could not carry out the request.", "Read the message."),
    "state": ("The query or stream is in a state that does not allow this.", "Look at its state with SHOW QUERIES."),
    "unauthorized": ("The token is missing or unknown.", "Give --token, or set MILLSTREAM_TOKEN."),
    "forbidden": ("The role of the token does not allow this.", "Use a token with the role that the message names."),
    "version": ("Client and server speak no common protocol version.", "Install the same release on both sides."),
    "protocol": ("The message is malformed, or not allowed at this point.", "This is a bug in the client. Report it with the message."),
    "flow": ("The peer sent more than its credit.", "This is a bug in the client. It must wait for credit before it sends."),
    "limit": ("A limit was exceeded; the message names it and its value.", "Send less at once, or raise the server's setting."),
    "overloaded": (
        "The server has no room for the request now, or a query would push a class below its target.",
        "Try again later, or do what the message says.",
    ),
    "storage": (
        "The server's disk does not accept what the request must store. The request has had no effect.",
        "Make room on the disk or repair it, then try again. You need not restart the server.",
    ),
    "timeout": ("The peer did not send the expected message in time.", "Check the network; try again."),
    "slow": ("The subscriber did not take its results in time.", "Resume with the token. Read faster, or select less."),
    "cancelled": ("The client cancelled the request.", "Nothing."),
    "closed": ("The channel, query or connection has been closed.", "Open it again."),
    "data": ("Some rows do not fit the stream.", "Read the listed reasons. The other rows were accepted."),
    "stopping": ("The server is about to stop.", "Connect again when it is back."),
    "unreachable": ("No server answers at the address.", "Start one with: millstream serve"),
    "disconnected": ("The connection was lost.", "Connect again. A resume token continues a subscription."),
    "internal": ("The server has a bug. Its log has the details.", "Report it with the server's log."),
}  # fmt: skip

# code -> (the version it came with, the code that peers of an older version are told).
OLDER_CODES: dict[str, tuple[int, str]] = {"storage": (2, "overloaded")}


class ProtocolError(Exception):
    """Base of the family; raise `LocalProtocolError` or `RemoteProtocolError`.

    `code` is one of `CODES`; `message` is a sentence.
    """

    def __init__(self, message: str, code: str = "protocol") -> None:
        if type(self) is ProtocolError:
            raise TypeError("raise LocalProtocolError or RemoteProtocolError, so that it is said whose fault it is")
        if code not in CODES:
            raise ValueError(f"{code!r} is not a code of docs/errors.md")
        super().__init__(message)
        self.message = message
        self.code = code


class LocalProtocolError(ProtocolError):
    """This end tried to break the rules. Nothing was sent; the connection can go on."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the rules. Say so (a fatal `Failure` with this code and message) and close; nothing more can be read."""
