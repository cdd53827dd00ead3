"""Train: an Arrow record batch of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import Train

if TYPE_CHECKING:
    from millstream.server.net.session import Session


def handle_train(session: Session, message: Train) -> None:
    """Take the rows in; the ack goes out when the whole read is done."""
    channel = session.channels.get(message.channel)
    if channel is not None:
        channel.take_train(message, session.connection.last_frame_bytes)
