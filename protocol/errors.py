"""Errors of the protocol, split by fault (ours or the peer's), and the closed list of codes a `Failure` may carry."""

from __future__ import annotations

# code -> (meaning, what to do). docs/errors.md is written from this table and a test compares them.
CODES: dict[str, tuple[str, str]] = {
    "syntax": ("The text is not a statement of the language.", "Look at the line and column named."),
    "unknown_name": ("There is no stream, column, function, query or class of that name.", "Check the spelling; SHOW lists names."),
    "type": ("Types that do not fit together.", "Add a CAST, or compare values of one kind."),
    "unsupported": ("A clause that is understood and not supported.", "Rewrite the query without the clause named."),
    "invalid": ("A definition that contradicts itself or a rule of the language.", "Follow the hint."),
    "exists": ("The name is taken.", "Choose another name, drop the old one, or say IF NOT EXISTS."),
    "in_use": ("Others read it, so it cannot be dropped.", "Drop the readers first, or say CASCADE."),
    "engine": ("The engine could not carry out the request.", "Read the message."),
    "state": ("The query or stream is in a state that does not allow this.", "Look at its state with SHOW QUERIES."),
    "unauthorized": ("The token is missing or unknown.", "Give --token, or set MILLSTREAM_TOKEN."),
    "forbidden": ("The role of the token does not allow this.", "Use a token with the role named in the message."),
    "version": ("Client and server speak no common protocol version.", "Install the same release on both sides."),
    "protocol": ("A message that is malformed, or not allowed at this point.", "A bug of the client; report it with the message."),
    "flow": ("More was sent than there was credit for.", "A bug of the client; wait for credit before sending."),
    "limit": ("A limit was exceeded; the message names it and its value.", "Send less at once, or raise the server's setting."),
    "overloaded": (
        "The server has no room for the request now, or a query would push a class below its target.",
        "Try again later, or do what the message says.",
    ),
    "storage": (
        "The server's disk does not take what has to be kept; nothing of the request is in force.",
        "Make room on the disk, or mend it; then try again. The server need not be restarted.",
    ),
    "timeout": ("The peer did not say in time what was expected of it.", "Check the network; try again."),
    "slow": ("The subscriber did not take its results in time.", "Resume with the token, and read faster or select less."),
    "cancelled": ("The request was given up because the client asked for it.", "Nothing to mend."),
    "closed": ("The channel, query or connection has been closed.", "Open it again."),
    "data": ("Rows that do not fit the stream.", "Read the reasons listed; the other rows were accepted."),
    "stopping": ("The server is about to stop.", "Connect again once it is back."),
    "unreachable": ("No server answers at the address.", "Start one with: millstream serve"),
    "disconnected": ("The connection was lost.", "Connect again; a resume token continues a subscription."),
    "internal": ("A fault of the server; its log has the details.", "Report it with the server's log."),
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
