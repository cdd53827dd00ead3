"""One file a message: what the server does when a client says it.

`IMMEDIATE` handlers run while the bytes are read, in their order. `REQUESTS` are answered one after the other by a task of the session,
as they may have to wait; each sends exactly one answer, or raises, and the session tells the client what was wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from millstream.protocol import messages as say
from millstream.protocol.connection import RowsChunk
from millstream.server.net.handlers.cancel_request import handle_cancel_request
from millstream.server.net.handlers.channel_schema import handle_channel_schema
from millstream.server.net.handlers.close_channel import handle_close_channel
from millstream.server.net.handlers.credit import handle_credit
from millstream.server.net.handlers.finish import answer_finish
from millstream.server.net.handlers.goodbye import handle_goodbye
from millstream.server.net.handlers.hello import handle_hello
from millstream.server.net.handlers.open_channel import answer_open_channel
from millstream.server.net.handlers.ping import handle_ping, handle_pong
from millstream.server.net.handlers.rows import handle_rows, handle_rows_chunk
from millstream.server.net.handlers.statement import answer_statement
from millstream.server.net.handlers.submit import answer_submit
from millstream.server.net.handlers.subscribe import answer_subscribe
from millstream.server.net.handlers.train import handle_train
from millstream.server.net.handlers.unsubscribe import answer_unsubscribe

if TYPE_CHECKING:
    from millstream.server.net.session import Session

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
