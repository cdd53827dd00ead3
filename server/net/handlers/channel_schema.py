"""ChannelSchema: the Arrow schema of the trains that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.batches import decode_schema
from millstream.protocol.messages import ChannelSchema

if TYPE_CHECKING:
    from millstream.server.net.session import Session


def handle_channel_schema(session: Session, message: ChannelSchema) -> None:
    """Keep it for the trains; one that does not fit the stream closes the channel, not the connection."""
    channel = session.channels.get(message.channel)
    if channel is not None and message.payload is not None:
        assert not isinstance(message.payload, list)
        channel.set_schema(decode_schema(message.payload))
