"""When which message may be said.

Everything about the order of messages on a connection lives here, as one table of a conversation with two speakers. This file
does not know which end it is on: both ends walk the same table, each saying its own lines and hearing the other's. What is
not in the table is not allowed. The diagram in docs/protocol.md is made from it.

Requests and their answers run inside the state OPEN; which answer fits which request is the second table. A client that
has said goodbye still hears answers; a server that has said goodbye ignores what was under way to it.
"""

from __future__ import annotations

from enum import Enum

from millstream.protocol import messages


class Role(Enum):
    """The two speakers."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def peer(self) -> Role:
        """The other one."""
        return Role.SERVER if self is Role.CLIENT else Role.CLIENT


class State(Enum):
    """Where the conversation is."""

    START = "start"  # nothing has been said
    GREETING = "greeting"  # the client has said hello
    OPEN = "open"  # the server has said welcome
    CLIENT_LEFT = "client left"  # the client has said goodbye
    SERVER_LEFT = "server left"  # the server has said goodbye
    CLOSED = "closed"  # both have, or the server has reported a fatal failure


# A failure that closes the connection is a word of its own, because it leads elsewhere.
FATAL = "failure (fatal)"

_BOTH = frozenset({"ping", "pong", "goodbye", "credit"})
CLIENT_WORDS = frozenset(
    {"hello", "statement", "submit", "open_channel", "channel_schema", "train", "rows", "row", "close_channel"}
    | {"finish", "subscribe", "unsubscribe", "cancel_request"}
    | _BOTH
)
SERVER_WORDS = frozenset(
    {"welcome", "reply", "failure", FATAL, "channel_opened", "channel_closed", "ack", "subscribed", "result", "gap", "end", "notice"}
    | _BOTH
)
assert messages.KINDS.keys() | {FATAL} == CLIENT_WORDS | SERVER_WORDS


def _stay(state: State, words: frozenset[str], *leave_out: str) -> dict[str, State]:
    return {word: state for word in sorted(words) if word not in leave_out}


# (state, speaker) -> {what may be said: the state after it}
TRANSITIONS: dict[tuple[State, Role], dict[str, State]] = {
    (State.START, Role.CLIENT): {"hello": State.GREETING},
    (State.START, Role.SERVER): {FATAL: State.CLOSED},
    (State.GREETING, Role.CLIENT): {},
    (State.GREETING, Role.SERVER): {"welcome": State.OPEN, FATAL: State.CLOSED},
    (State.OPEN, Role.CLIENT): {**_stay(State.OPEN, CLIENT_WORDS, "hello"), "goodbye": State.CLIENT_LEFT},
    (State.OPEN, Role.SERVER): {**_stay(State.OPEN, SERVER_WORDS, "welcome"), FATAL: State.CLOSED, "goodbye": State.SERVER_LEFT},
    (State.CLIENT_LEFT, Role.CLIENT): {},
    (State.CLIENT_LEFT, Role.SERVER): {
        **_stay(State.CLIENT_LEFT, SERVER_WORDS, "welcome"),
        FATAL: State.CLOSED,
        "goodbye": State.CLOSED,
    },
    (State.SERVER_LEFT, Role.CLIENT): {**_stay(State.SERVER_LEFT, CLIENT_WORDS, "hello"), "goodbye": State.CLOSED},
    (State.SERVER_LEFT, Role.SERVER): {},
    (State.CLOSED, Role.CLIENT): {},
    (State.CLOSED, Role.SERVER): {},
}

# request -> the answer of a request that went well; a Failure answers every one.
ANSWERS: dict[type[messages.Message], type[messages.Message]] = {
    messages.Statement: messages.Reply,
    messages.Submit: messages.Reply,
    messages.OpenChannel: messages.ChannelOpened,
    messages.Finish: messages.Reply,
    messages.Subscribe: messages.Subscribed,
    messages.Unsubscribe: messages.Reply,
    messages.CancelRequest: messages.Reply,
}


def word_of(kind: str, message: messages.Message) -> str:
    """Return the word `message` is in the table."""
    return FATAL if type(message) is messages.Failure and message.fatal else kind
