"""Writes what is said in one go of the event loop together: a write to a socket costs more than all else that one row needs."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol


class Sender(Protocol):
    """Who has something to write."""

    def flush(self) -> None:
        """Write it."""
        ...


class Outbox:
    """A context: senders that `add` themselves while it is open are flushed when the outermost one ends. Loop's thread only.

    `is_open`: someone will flush later.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._depth = 0
        self._senders: list[Sender] = []

    def add(self, sender: Sender) -> None:
        """Note someone who has something to write."""
        if self.is_open:
            self._senders.append(sender)

    def __enter__(self) -> None:
        self._depth += 1
        self.is_open = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._depth -= 1
        if self._depth:
            return
        self.is_open = False
        if self._senders:
            senders, self._senders = self._senders, []
            for sender in senders:
                sender.flush()
