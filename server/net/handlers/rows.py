"""Rows and Row: rows without Arrow. All single rows of one read on one channel come as one chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.connection import RowsChunk
from millstream.protocol.messages import Rows

if TYPE_CHECKING:
    from millstream.server.net.session import Session


def handle_rows(session: Session, message: Rows) -> None:
    """Take in the rows of one message."""
    channel = session.channels.get(message.channel)
    if channel is not None:
        channel.take_rows(message, session.connection.last_frame_bytes)


def handle_rows_chunk(session: Session, chunk: RowsChunk) -> None:
    """Take in the single rows of one read."""
    channel = session.channels.get(chunk.channel)
    if channel is not None:
        channel.take_chunk(chunk)
