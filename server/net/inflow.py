"""Whether a peer is read from. What it says while it is not waits in the network and with the peer, and costs nothing here.

It is not read from while it does not read what it was sent, while too much of what it has asked for waits, and while it has said more than
its share and others have their turn. Then what the last read brought may be handled in part only; the rest is kept and comes first.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Iterator
from enum import IntFlag
from typing import Any

_GONE = getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)
_SAYS_NO_MORE = getattr(select, "POLLRDHUP", 0)


class Hold(IntFlag):
    """Why a peer is not read from."""

    UNREAD = 1  # it does not read what it was sent
    UNANSWERED = 2  # it asks faster than it is answered
    PACE = 4  # it has said more than its share


class Inflow:
    """The reading side of one connection. It does not know the session that owns it: a ring of the two would outlive the connection."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._holds = Hold(0)
        self._is_paused = False
        self._rest: Iterator[Any] | None = None

    @property
    def is_held(self) -> bool:
        """Whether the peer is not read from."""
        return self._is_paused

    @property
    def waits_for_the_peer(self) -> bool:
        """Whether it is the peer who has to read first."""
        return bool(self._holds & Hold.UNREAD)

    def hold(self, why: Hold) -> None:
        """Read no more."""
        self._holds |= why
        if not self._is_paused and not self._transport.is_closing():
            self._transport.pause_reading()
            self._is_paused = True

    def keep(self, rest: Iterator[Any]) -> None:
        """Keep what is left of a read for when the peer has its turn."""
        self._rest = rest
        self.hold(Hold.PACE)

    def let_go(self, why: Hold, read_on: Callable[[Iterator[Any]], None]) -> None:
        """Read on unless there is another reason not to; what is left of the last read goes to `read_on`, which may hold the peer again."""
        self._holds &= ~why
        while not self._holds and self._rest is not None:
            rest, self._rest = self._rest, None
            read_on(rest)
        if not self._holds and self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def has_left(self) -> bool:
        """Say whether a peer that is held back has gone away, which reading would have told."""
        if not self._is_paused or self._holds == Hold.PACE:  # a turn comes soon, and what it said before it left counts
            return False
        socket = self._transport.get_extra_info("socket")
        if socket is None or socket.fileno() < 0:
            return False
        # One that still has answers to read may have shut its side down; if it is gone, writing to it tells.
        wanted = _GONE if self._holds & Hold.UNREAD else _GONE | _SAYS_NO_MORE
        poll = select.poll()
        poll.register(socket.fileno(), wanted)
        return any(event & wanted for _, event in poll.poll(0))
