"""OpenChannel: ask to publish to a stream or table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import ChannelOpened, OpenChannel
from millstream.server.net.publishing import Channel
from millstream.server.net.security import Role, require

if TYPE_CHECKING:
    from millstream.server.net.session import Session


async def answer_open_channel(session: Session, message: OpenChannel) -> None:
    """Answer with the columns to send and the first credit."""
    require(session.role, Role.WRITER, "publishing")
    intake = session.application.intake_of(message.stream)
    number = session.next_number()
    channel = Channel(session, number, intake)
    session.channels[number] = channel
    rows, bytes_ = channel.first_credit
    session.send(ChannelOpened(message.request, number, intake.spelled_schema, rows, bytes_, intake.durability))
