"""Subscribe: results of a query from now on, from the start, or after a resume token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.errors import InvalidDefinition
from millstream.protocol.messages import Subscribe, Subscribed
from millstream.server.net.security import Role, require
from millstream.server.results.encoding import ResultEncoder
from millstream.server.results.subscriptions import Subscription

if TYPE_CHECKING:
    from millstream.server.net.session import Session


async def answer_subscribe(session: Session, message: Subscribe) -> None:
    """Answer with the columns, then with what is kept and was asked for, then with results as they come."""
    require(session.role, Role.READER, "subscribing")
    application = session.application
    query = application.feed_of(message.query)
    try:
        cursor, rows_lost = query.feed.start_of(from_start=message.from_start, token=message.resume_token)
    except ValueError as error:
        raise InvalidDefinition(str(error), hint="subscribe without a token, or FROM START") from error
    encoder = ResultEncoder(query.schema, message.format)
    number = session.next_number()
    subscription = Subscription(query.feed, session, number, cursor, encoder.encode, application.now_ns())
    subscription.skip_rows = query.feed.rows_to_skip(message.resume_token, cursor)
    token = query.feed.log.token_before(cursor)
    session.send(Subscribed(message.request, number, encoder.spelled, token, encoder.schema_payload))
    session.subscriptions[number] = subscription
    query.feed.join(subscription, rows_lost, application.now_ns())
