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

    `is_open`: someone will flush later. `reading` is the sender whose bytes are being handled, if any: it has more to say at the end.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.reading: Sender | None = None
        self._depth = 0
        self._senders: list[Sender] = []

    def add(self, sender: Sender) -> None:
        """Note someone who has something to write."""
        if self.is_open:
            self._senders.append(sender)

    def __enter__(self) -> Outbox:
        self._depth += 1
        self.is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._depth -= 1
        if self._depth:
            return
        self.is_open = False
        self.reading = None
        if self._senders:
            senders, self._senders = self._senders, []
            for sender in senders:
                sender.flush()

    def pass_on(self) -> None:
        """Let all but the one that is reading write now: results are not to wait for the books to be kept."""
        senders, self._senders = self._senders, []
        for sender in senders:
            if sender is self.reading:
                self._senders.append(sender)
            else:
                sender.flush()
