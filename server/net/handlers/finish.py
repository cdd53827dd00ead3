"""Finish: the end of a stream; its open windows close."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import Finish, Reply
from millstream.server.net.security import Role, require

if TYPE_CHECKING:
    from millstream.server.net.session import Session


async def answer_finish(session: Session, message: Finish) -> None:
    """Answer once the queries that read the stream have seen its end."""
    require(session.role, Role.WRITER, "ending a stream")
    await session.application.finish_stream(message.stream)
    session.send(Reply(message.request))
