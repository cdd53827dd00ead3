"""Unsubscribe: no more results; the query goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import Reply, Unsubscribe

if TYPE_CHECKING:
    from millstream.server.net.session import Session


async def answer_unsubscribe(session: Session, message: Unsubscribe) -> None:
    """Say the end of the subscription, unless that was said before, and answer."""
    subscription = session.subscriptions.pop(message.subscription, None)
    if subscription is not None:
        subscription.finish("unsubscribed")
    session.send(Reply(message.request))
