"""What the server does with each message of a peer, one function a message; the tables at the end say which.

What is about rows is done at once, in the order of the bytes; requests that take time are answered one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema
from millstream.engine.data.errors import InvalidDefinition, Unsupported
from millstream.protocol import limits, version
from millstream.protocol import messages as say
from millstream.protocol.batches import decode_schema, encode_table
from millstream.protocol.connection import RowsChunk
from millstream.protocol.states import State
from millstream.server.net.limits import LOGGED_NAME_MAX
from millstream.server.net.publishing import PublishingChannel
from millstream.server.net.security import AccessRole, require, role_of
from millstream.server.net.session import Session
from millstream.server.results.outcome import Outcome, spell
from millstream.server.results.subscriptions import ResultEncoder, Subscription

ENVELOPE_BYTES = 64 * 1024  # of a frame, beside the table


def handle_hello(session: Session, message: say.Hello) -> None:
    """Answer with Welcome, or close with the reason."""
    application = session.application
    agreed = version.agree(message.versions)
    if agreed is None:
        session.break_off("version", f"this server speaks protocol versions {list(version.VERSIONS)}, the client {message.versions}")
        return
    role = role_of(application.config, message.token)
    if role is None:
        session.break_off("unauthorized", "the token is missing or unknown; give --token, or set MILLSTREAM_TOKEN")
        return
    if application.is_full(role):
        kept = " for readers" if role is AccessRole.READER else ""
        session.break_off("overloaded", f"as many connections are open as there may be{kept} (connections_max)")
        return
    application.session_greeted(session)
    session.role = role
    # A name belongs to the role that uses it: else whoever may read could have an admin's connection replaced by its own.
    session.client_id = None if message.client_id is None else f"{role.word}:{message.client_id}"
    if role is AccessRole.READER:
        config = application.config
        session.connection.accept_no_rows(min(config.frame_bytes_max, config.reader_frame_bytes_max))
    session.send(say.Welcome(agreed, application.program, application.server_id, role.word, _limits(session)))
    client_id = session.client_id and session.client_id[:LOGGED_NAME_MAX]
    session.log.info("connected", role=role.word, agent=message.agent[:LOGGED_NAME_MAX], client_id=client_id)


def _limits(session: Session) -> dict[str, int]:
    return {
        "frame_bytes_max": session.connection.frame_bytes_max,
        "header_bytes_max": limits.HEADER_BYTES_MAX,
        "train_rows_max": limits.TRAIN_ROWS_MAX,
        "requests_max": limits.REQUESTS_MAX,
    }


def handle_ping(session: Session, message: say.Ping) -> None:
    """Answer at once."""
    session.send(say.Pong(message.token))


def handle_pong(session: Session, message: say.Pong) -> None:
    """Nothing to do: hearing anything at all is the answer."""


def handle_goodbye(session: Session, message: say.Goodbye) -> None:
    """Say goodbye too and close."""
    session.log.debug("goodbye", reason=message.reason)
    if session.connection.state is not State.CLOSED:
        session.send(say.Goodbye())
    session.closed = True
    session.transport.close()


def handle_cancel_request(session: Session, message: say.CancelRequest) -> None:
    """Answer the target with Failure when it has not begun, or what it does can be given up; any other is answered as it turns out."""
    for waiting in session.requests:
        if waiting.request == message.target:
            session.withdraw(waiting)
            session.send(say.Failure("cancelled", "the request was cancelled before it began", message.target))
            session.send(say.Reply(message.request, info={"cancelled": True}))
            return
    given_up = session.answered == message.target and session.give_up()
    session.send(say.Reply(message.request, info={"cancelled": given_up}))


async def answer_statement(session: Session, message: say.Statement) -> None:
    """Answer with the table, notices and names that it gave."""
    outcome = await session.application.execute(session, message.text)
    if outcome.answer is not None:
        session.send(_answered(session, message, outcome))
        return
    session.send(say.Reply(message.request, outcome.columns, outcome.values, list(outcome.notices), outcome.info))


def _answered(session: Session, message: say.Statement, outcome: Outcome) -> say.Reply:
    """Return the rows of a FETCH as one Arrow table, whose metadata says up to which arrival number it answers."""
    answer = outcome.answer
    assert answer is not None
    metadata = {f"millstream.{name}": json.dumps(value) for name, value in outcome.info.items()}
    schema = arrow_schema(answer.schema).with_metadata(metadata)
    payload = encode_table(pa.Table.from_batches([b.replace_schema_metadata(metadata) for b in answer.batches], schema=schema))
    if len(payload) > session.application.config.frame_bytes_max - ENVELOPE_BYTES:
        raise Unsupported(f"the answer has {len(payload)} bytes, more than one frame holds", hint="add a LIMIT, or aggregate")
    return say.Reply(message.request, spell(answer.schema), [], list(outcome.notices), outcome.info, payload)


async def answer_submit(session: Session, message: say.Submit) -> None:
    """Answer once the query is in force."""
    if (message.sql is None) == (message.plan is None):
        raise InvalidDefinition("a query is submitted as text or as a plan object, one of the two")
    outcome = await session.application.submit(session, message)
    session.send(say.Reply(message.request, notices=list(outcome.notices), info=outcome.info))


async def answer_open_channel(session: Session, message: say.OpenChannel) -> None:
    """Answer with the columns to send and the first credit."""
    require(session.role, AccessRole.WRITER, "publishing")
    intake = session.application.intake_of(message.stream)
    number = session.next_number()
    channel = PublishingChannel(session, session.application, number, intake, message.producer)
    try:
        producer = await channel.last_kept()
    except BaseException:
        channel.close()
        raise
    if session.closed:
        channel.close()
        return
    session.channels[number] = channel
    rows, bytes_ = channel.first_credit
    last, position = (None, None) if producer is None else (producer.last, producer.position)
    session.send(say.ChannelOpened(message.request, number, intake.spelled_schema, rows, bytes_, intake.durability, last, position))


def handle_channel_schema(session: Session, message: say.ChannelSchema) -> None:
    """Keep it for the trains; one that does not fit the stream closes the channel, not the connection."""
    channel = session.channels.get(message.channel)
    if channel is not None and message.payload is not None:
        assert not isinstance(message.payload, list)
        channel.set_schema(decode_schema(message.payload))


def handle_train(session: Session, message: say.Train) -> None:
    """Take the rows in; the ack goes out when the whole read is done."""
    channel = session.channels.get(message.channel)
    if channel is not None:
        channel.take_train(message, session.connection.last_frame_bytes)


def handle_rows(session: Session, message: say.Rows) -> None:
    """Take in the rows of one message."""
    channel = session.channels.get(message.channel)
    if channel is not None:
        channel.take_rows(message, session.connection.last_frame_bytes)


def handle_rows_chunk(session: Session, chunk: RowsChunk) -> None:
    """Take in the single rows of one read."""
    channel = session.channels.get(chunk.channel)
    if channel is not None:
        channel.take_chunk(chunk)


async def answer_finish(session: Session, message: say.Finish) -> None:
    """Answer once the queries that read the stream have seen its end."""
    require(session.role, AccessRole.WRITER, "ending a stream")
    await session.application.finish_stream(message.stream)
    session.send(say.Reply(message.request))


def handle_close_channel(session: Session, message: say.CloseChannel) -> None:
    """Ack what came, then say that it is closed."""
    channel = session.channels.pop(message.channel, None)
    if channel is not None:
        channel.close_when_acked(lambda: session.send(say.ChannelClosed(message.channel)))


async def answer_subscribe(session: Session, message: say.Subscribe) -> None:
    """Answer with the columns, then with what is kept and was asked for, then with results as they come."""
    require(session.role, AccessRole.READER, "subscribing")
    application = session.application
    query = application.feed_of(message.query)
    try:
        cursor, rows_lost = query.feed.start_of(from_start=message.from_start, token=message.resume_token, reader=session)
    except ValueError as error:
        raise InvalidDefinition(str(error), hint="subscribe without a token, or FROM START") from error
    encoder = ResultEncoder(query.schema, message.format)
    number = session.next_number()
    presses = session.role is not AccessRole.READER
    subscription = Subscription(query.feed, session, number, cursor, encoder.encode, application.now_ns(), presses=presses)
    subscription.skip_rows = query.feed.rows_to_skip(message.resume_token, cursor)
    token = query.feed.log.token_before(cursor)
    session.send(say.Subscribed(message.request, number, encoder.spelled, token, encoder.schema_payload))
    session.subscriptions[number] = subscription
    application.feeds.join(query, subscription, rows_lost)


async def answer_unsubscribe(session: Session, message: say.Unsubscribe) -> None:
    """Say the end of the subscription, unless that was said before, and answer."""
    subscription = session.subscriptions.pop(message.subscription, None)
    if subscription is not None:
        subscription.finish("unsubscribed")
    session.send(say.Reply(message.request))


def handle_credit(session: Session, message: say.Credit) -> None:
    """Send what was waiting for it (the connection has entered the credit in its books)."""
    if message.channel is None and message.subscription is None:
        session.answers_granted()
        return
    subscription = session.subscriptions.get(message.subscription or 0)
    if subscription is not None:
        subscription.pump(session.application.now_ns())


IMMEDIATE: dict[type[Any], Callable[[Session, Any], None]] = {
    RowsChunk: handle_rows_chunk,
    say.Train: handle_train,
    say.Rows: handle_rows,
    say.ChannelSchema: handle_channel_schema,
    say.CloseChannel: handle_close_channel,
    say.Credit: handle_credit,
    say.CancelRequest: handle_cancel_request,
    say.Hello: handle_hello,
    say.Ping: handle_ping,
    say.Pong: handle_pong,
    say.Goodbye: handle_goodbye,
}
REQUESTS: dict[type[Any], Callable[[Session, Any], Awaitable[None]]] = {
    say.Statement: answer_statement,
    say.Submit: answer_submit,
    say.OpenChannel: answer_open_channel,
    say.Finish: answer_finish,
    say.Subscribe: answer_subscribe,
    say.Unsubscribe: answer_unsubscribe,
}


def dispatch(session: Session, event: Any) -> None:
    """Handle an event of the connection now, or put it in line."""
    handler = IMMEDIATE.get(type(event))
    if handler is not None:
        handler(session, event)
    else:
        session.queue_request(event)


async def answer(session: Session, message: Any) -> None:
    """Answer a request."""
    await REQUESTS[type(message)](session, message)
