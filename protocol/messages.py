"""What can be said: one class a message, frozen save the two that answer every row (freezing triples what making one costs).

On the wire a message is a map of its fields plus `kind` (`KINDS` below).

Conventions:

- `request` is a number the client chooses, rising by at least one with each request and never reused. Every request is
  answered exactly once: by the answer named in its class, or by `Failure` with the same number.
- `channel` (publishing) and `subscription` (results) are numbers the server chooses; never reused within a connection.
- `rows` is a count of rows; `values` are rows themselves. Row values are nil, bool, int, float and text; TIMESTAMP is an int
  (microseconds since 1970) or ISO 8601 text, DATE an int (days since 1970) or text, TIME an int (microseconds since midnight) or text,
  INTERVAL an int (microseconds), DECIMAL text, BYTES bytes.
- `schema` is a list of `[name, type, nullable]`, the type spelled as CREATE STREAM accepts it (`protocol/types.py`).
- `payload` is raw bytes after the header: a bare Arrow IPC message (schema or record batch). As a sender one may give a
  list of buffers, which are written one after the other and never joined. As a receiver one gets one memoryview.
- A field equal to its default is left out on the wire. Times are integers, their unit is the end of their name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
Payload: TypeAlias = BytesLike | list[BytesLike]


# --- client to server ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a connection. Answered by `Welcome`, or by a fatal `Failure`.

    `versions` are the protocol versions the client speaks; `role` says what kind of peer it is (`client`); `client_id`
    names the client over reconnections (the same id subscribing to the same query again replaces its old subscription);
    `token` grants a role; `agent` is free text for the server's log.
    """

    versions: list[int]
    role: str = "client"
    client_id: str | None = None
    token: str | None = None
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """Run one statement of the language. Answered by `Reply`.

    A bare SELECT starts a temporary query, owned by this connection; `Reply.info["query"]` is its name and
    `Reply.info["continuous"]` is true: its results come by `Subscribe`.
    """

    request: int
    text: str


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a continuous query, as text (`sql`) or plan object (`plan`), one of the two. Answered by `Reply` once in force.

    A named query is durable, an unnamed one belongs to this connection. `start_at_us` is when to start it (microseconds
    since 1970; default now), `lifetime_us` how long it runs. `options` are those of WITH (…).
    """

    request: int
    sql: str | None = None
    plan: dict[str, Any] | None = None
    name: str | None = None
    start_at_us: int | None = None
    lifetime_us: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """Ask to publish to a stream or table. Answered by `ChannelOpened`.

    With a `producer`, a name of up to 255 bytes that the client gives itself, each `Train` and `Rows` of the channel has a `sequence`, and
    the server takes each sequence number of a producer once. A later channel of the same producer ends the earlier one. Since version 2.
    """

    request: int
    stream: str
    producer: str | None = None


@dataclass(frozen=True, slots=True)
class ChannelSchema:
    """The Arrow schema of the trains that follow on a channel; payload: a bare Arrow IPC schema message. No answer.

    Sent before the first `Train`, and again when the schema changes. Columns are matched to the stream's by name.
    """

    channel: int
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class Train:
    """A train of rows; payload: a bare Arrow IPC record batch message of `rows` rows. Answered by a (cumulative) `Ack`.

    `number` rises by one with each `Train`, `Rows` and `Row` of the channel, beginning with 1. On a producer's channel, and only there,
    `sequence` is the producer's own number (from 1): it rises by one too, and a channel's first is at most one above the `last` of
    `ChannelOpened`. What has a sequence number that was taken before is acked and not taken again. `position` is up to 1 KiB that the
    server keeps with the rows for the producer, who is given the last one when it opens its next channel.
    """

    channel: int
    number: int
    rows: int
    payload: Payload | None = None
    sequence: int | None = None
    position: bytes | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows without Arrow: each a list in the order of the channel's schema, or a map by column name. Answered like `Train`."""

    channel: int
    number: int
    values: list[Any]
    sequence: int | None = None
    position: bytes | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One row, in the order of the channel's schema. The cheap form: all rows of one read become one `connection.RowsChunk`.

    It has no sequence number, so a producer's channel takes none.
    """

    channel: int
    number: int
    values: list[Any]


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """No more rows on this channel; the stream goes on. Answered by `ChannelClosed` after the last `Ack`."""

    channel: int


@dataclass(frozen=True, slots=True)
class Finish:
    """End of the stream: closes its open windows. Answered by `Reply` once its queries have seen the end."""

    request: int
    stream: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Ask for the results of a query from now on. Answered by `Subscribed` once in force.

    `from_start` asks for the kept results first; `resume_token` for those after the result that carried it. `format` is
    `arrow` or `msgpack`. `rows_credit` and `bytes_credit` are how much the client can take at first.
    """

    request: int
    query: str
    from_start: bool = False
    resume_token: str | None = None
    format: str = "arrow"
    rows_credit: int = 0
    bytes_credit: int = 0


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Stop a subscription. `End` with reason `unsubscribed` is its last message, then comes the `Reply`."""

    request: int
    subscription: int


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Ask to cancel an open request. Answered by `Reply`; the target gets its own answer (`Failure` with code `cancelled`, or another)."""

    request: int
    target: int


# --- both ways -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Credit:
    """Adds to what the peer may send: server to client for a channel, client to server for a subscription.

    In version 2 a client that names neither adds `bytes` to what the server may send in answers that carry a table.
    """

    channel: int | None = None
    subscription: int | None = None
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there? Answered by `Pong` with the same token."""

    token: int = 0


@dataclass(frozen=True, slots=True)
class Pong:
    """Yes."""

    token: int = 0


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The last message of its sender."""

    reason: str = ""


# --- server to client ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to `Hello`.

    `version` is the protocol version both will speak, `server` the program and its version, `server_id` changes when the
    server's data directory does, `role` is what the token grants (`admin`, `writer`, `reader`). `limits` are those of
    this server: `frame_bytes_max`, `header_bytes_max`, `train_rows_max`, `requests_max`.
    """

    version: int
    server: str = ""
    server_id: str = ""
    role: str = "admin"
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request that went well.

    A table has `columns` (`[name, type, nullable]` each) and either `values` (a list of rows) or a payload (a complete
    Arrow IPC stream). `notices` are sentences for people. `info` is for programs: `query` (its name), `continuous` (true: results
    come by `Subscribe`), `durable`, `plan`, `first` (the columns of a wide table that a person needs first), whichever apply.
    """

    request: int
    columns: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    notices: list[Any] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The answer to a request that failed; without `request`, about the connection; `fatal`: the server closes after it.

    `code` is one of `protocol/errors.py` (docs/errors.md), `message` a sentence, `hint` the mend; `line`, `column` (from 1)
    and `token` are the place in the statement's text.
    """

    code: str
    message: str
    request: int | None = None
    hint: str | None = None
    line: int | None = None
    column: int | None = None
    token: str | None = None
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class ChannelOpened:
    """The answer to `OpenChannel`: the columns to send, and how many rows and bytes may be sent at first.

    `durability` is what an `Ack` means: `none`, `journal` or `sync`. On a producer's channel, `last` is the highest sequence number that
    was taken of it, 0 when the server knows of none, and `position` the position that came with it.
    """

    request: int
    channel: int
    schema: list[Any]
    rows_credit: int
    bytes_credit: int
    durability: str = "none"
    last: int | None = None
    position: bytes | None = None


@dataclass(frozen=True, slots=True)
class ChannelClosed:
    """The channel takes no more rows; rows sent without an ack were not accepted. `code` is `closed` if the client asked."""

    channel: int
    code: str = "closed"
    message: str = ""


@dataclass(slots=True)
class Ack:
    """All trains of the channel with a number up to `through` are settled; counts are since the `Ack` before.

    `accepted` and `rejected_rows` are counts of rows; `rejected` lists `[number, index, reason]` (at most
    `limits.REJECTIONS_LISTED_MAX`, then only counted). `position` is the arrival number of the last accepted row.
    """

    channel: int
    through: int
    accepted: int = 0
    rejected_rows: int = 0
    rejected: list[Any] = field(default_factory=list)
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The answer to `Subscribe`; payload: the bare Arrow IPC schema message of the results (format `arrow`)."""

    request: int
    subscription: int
    schema: list[Any]
    resume_token: str | None = None
    payload: Payload | None = None


@dataclass(slots=True)
class Result:
    """`rows` rows of a subscription: a bare Arrow IPC record batch as payload, or `values`.

    `meta` carries `resume_token`, `position`, `watermark_us`, `share_seen` (0 to 1: how much of the input these rows saw when load
    was shed), `shed_rows`, `receipts` (runs of rows `[rows, rows seen, rows shed, share seen]`),
    `share_is_of_batch`, `share_is_rounded` (docs/overload.md),
    `complete_from_us` (windows that begin earlier lack the rows from before the query, or are not answered),
    whichever apply. A result of no rows may carry news in `meta` (progress).
    """

    subscription: int
    rows: int
    values: list[Any] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Here `rows_lost` results are missing, because the subscriber was too slow (`slow`) or they were no longer kept (`expired`)."""

    subscription: int
    rows_lost: int
    reason: str = "slow"


@dataclass(frozen=True, slots=True)
class End:
    """The last message of a subscription.

    `reason`: `finished` (its inputs ended), `stopped`, `dropped`, `lifetime`, `unsubscribed`, `replaced`, `slow`, `failed`, `stopping`
    (the server is). `counts` are the final counts of the query, by name. A client continues with `resume_token` after `slow`.
    """

    subscription: int
    reason: str
    message: str = ""
    counts: dict[str, Any] = field(default_factory=dict)
    resume_token: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for people that belongs to no request.

    `code` `shed`: rows that this connection published were dropped before the queries of a class; `slowed`: its credit is held back,
    and by whom; `progress`: how much of the history is read that its FETCH asked for, once a second.
    """

    code: str
    message: str


ClientMessage: TypeAlias = (
    Hello
    | Statement
    | Submit
    | OpenChannel
    | ChannelSchema
    | Train
    | Rows
    | Row
    | CloseChannel
    | Finish
    | Subscribe
    | Unsubscribe
    | CancelRequest
    | Credit
    | Ping
    | Pong
    | Goodbye
)
ServerMessage: TypeAlias = (
    Welcome
    | Reply
    | Failure
    | ChannelOpened
    | ChannelClosed
    | Ack
    | Credit
    | Subscribed
    | Result
    | Gap
    | End
    | Notice
    | Ping
    | Pong
    | Goodbye
)
Message: TypeAlias = ClientMessage | ServerMessage

KINDS: dict[str, type[Message]] = {
    "hello": Hello,
    "statement": Statement,
    "submit": Submit,
    "open_channel": OpenChannel,
    "channel_schema": ChannelSchema,
    "train": Train,
    "rows": Rows,
    "row": Row,
    "close_channel": CloseChannel,
    "finish": Finish,
    "subscribe": Subscribe,
    "unsubscribe": Unsubscribe,
    "cancel_request": CancelRequest,
    "credit": Credit,
    "ping": Ping,
    "pong": Pong,
    "goodbye": Goodbye,
    "welcome": Welcome,
    "reply": Reply,
    "failure": Failure,
    "channel_opened": ChannelOpened,
    "channel_closed": ChannelClosed,
    "ack": Ack,
    "subscribed": Subscribed,
    "result": Result,
    "gap": Gap,
    "end": End,
    "notice": Notice,
}
KIND_OF: dict[type[Message], str] = {kind: name for name, kind in KINDS.items()}
