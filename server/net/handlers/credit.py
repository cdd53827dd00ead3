"""Credit: a subscriber can take more results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import Credit

if TYPE_CHECKING:
    from millstream.server.net.session import Session


def handle_credit(session: Session, message: Credit) -> None:
    """Send what was waiting for it (the connection has entered the credit in its books)."""
    subscription = session.subscriptions.get(message.subscription or 0)
    if subscription is not None:
        subscription.pump(session.application.now_ns())
