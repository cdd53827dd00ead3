"""Goodbye: the client leaves; what is still to be said is said, then the connection closes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import Goodbye
from millstream.protocol.states import State

if TYPE_CHECKING:
    from millstream.server.net.session import Session


def handle_goodbye(session: Session, message: Goodbye) -> None:
    """Say goodbye too and close."""
    session.log.debug("goodbye", reason=message.reason)
    if session.connection.state is not State.CLOSED:
        session.send(Goodbye())
    session.closed = True
    session.transport.close()
