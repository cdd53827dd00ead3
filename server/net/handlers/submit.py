"""Submit: a continuous query as text or plan object, perhaps named, perhaps for later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.errors import InvalidDefinition
from millstream.protocol.messages import Reply, Submit

if TYPE_CHECKING:
    from millstream.server.net.session import Session


async def answer_submit(session: Session, message: Submit) -> None:
    """Answer once the query is in force."""
    if (message.sql is None) == (message.plan is None):
        raise InvalidDefinition("a query is submitted as text or as a plan object, one of the two")
    outcome = await session.application.submit(session, message)
    session.send(Reply(message.request, notices=list(outcome.notices), info=outcome.info))
