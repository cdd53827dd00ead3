"""CloseChannel: no more rows from this publisher; the stream goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import ChannelClosed, CloseChannel

if TYPE_CHECKING:
    from millstream.server.net.session import Session


def handle_close_channel(session: Session, message: CloseChannel) -> None:
    """Ack what came, then say that it is closed."""
    channel = session.channels.pop(message.channel, None)
    if channel is not None:
        channel.close_when_acked(lambda: session.send(ChannelClosed(message.channel)))
