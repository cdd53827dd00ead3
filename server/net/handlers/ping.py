"""Ping and Pong: are you there, yes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import Ping, Pong

if TYPE_CHECKING:
    from millstream.server.net.session import Session


def handle_ping(session: Session, message: Ping) -> None:
    """Answer at once."""
    session.send(Pong(message.token))


def handle_pong(session: Session, message: Pong) -> None:
    """Nothing to do: hearing anything at all is the answer."""
