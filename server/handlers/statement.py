"""Statement: run one statement of the language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import Reply, Statement

if TYPE_CHECKING:
    from millstream.server.session import Session


async def answer_statement(session: Session, message: Statement) -> None:
    """Answer with the table, notices and names that it gave."""
    outcome = await session.application.execute(session, message.text)
    session.send(Reply(message.request, outcome.columns, outcome.values, list(outcome.notices), outcome.info))
