"""CancelRequest: give up a request that is still in line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import CancelRequest, Failure, Reply

if TYPE_CHECKING:
    from millstream.server.net.session import Session


def handle_cancel_request(session: Session, message: CancelRequest) -> None:
    """Answer the target with Failure when it has not begun; one that runs is answered as it turns out."""
    for waiting in session.requests:
        if waiting.request == message.target:
            session.requests.remove(waiting)
            session.send(Failure("cancelled", "the request was given up before it began", message.target))
            session.send(Reply(message.request, info={"cancelled": True}))
            return
    session.send(Reply(message.request, info={"cancelled": False}))
