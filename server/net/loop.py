"""How things come into the event loop from other threads, and how what is said in one go of it leaves: a bridge and an outbox."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

Item = TypeVar("Item")


class Bridge(Generic[Item]):
    """Made on the loop's thread. Any thread posts; `deliver` is called on the loop's with each item, in order, in the context `around`.

    An item that cannot be delivered is told to `failed` and the next has its turn: whoever drains the bridge has nothing to do with it.
    `waiting` counts the items not yet delivered: whoever fills the bridge faster than the loop empties it can be told to wait.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[Item], None],
        failed: Callable[[Exception], None],
        around: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._loop = loop
        self._deliver = deliver
        self._failed = failed
        self._around: AbstractContextManager[Any] = nullcontext() if around is None else around
        self._items: deque[Item] = deque()
        self._woken = False
        self._home = threading.get_ident()

    @property
    def waiting(self) -> int:
        """Items that have not been delivered."""
        return len(self._items)

    def post(self, item: Item) -> None:
        """Leave an item; wakes the loop unless it has been woken already. RuntimeError once the loop is closed."""
        self._items.append(item)
        self.wake()

    def leave(self, item: Item) -> None:
        """Leave an item that may wait for the next one that wakes the loop, or for `wake`."""
        self._items.append(item)

    def wake(self) -> None:
        """See to it that what waits is delivered soon."""
        if not self._woken:
            self._woken = True
            if threading.get_ident() == self._home:
                self._loop.call_soon(self.drain)
            else:
                self._loop.call_soon_threadsafe(self.drain)

    def drain(self) -> None:
        """Deliver what waits. Called by the loop; an item posted while this runs wakes the loop again.

        So threads that post faster than the loop delivers do not keep it from its sockets.
        """
        self._woken = False  # before items are counted, so that none can be left without a wake-up
        left = len(self._items)
        if left:
            with self._around:
                while left and self._items:
                    left -= 1
                    self._deliver_next()

    def drain_early(self, wanted: type[Any], then: Callable[[], None]) -> None:
        """Deliver items of just this type, up to the first other one, and call `then` if there were any.

        That is in the midst of something else on the loop's thread, which has nothing to do with what goes wrong here.
        """
        items = self._items
        if items and type(items[0]) is wanted:
            with self._around:
                while items and type(items[0]) is wanted:
                    self._deliver_next()
                try:
                    then()
                except Exception as error:
                    self._failed(error)

    def _deliver_next(self) -> None:
        try:
            self._deliver(self._items.popleft())
        except Exception as error:
            self._failed(error)


class TurnQueue:
    """Calls that have a turn of the loop each, in order, so that all else has its own between two of them. Loop's thread only.

    What they have to say is written at the end of their turn.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], around: Outbox) -> None:
        self._call_soon = call_soon
        self._around = around
        self._calls: deque[Callable[[], None]] = deque()

    def add(self, call: Callable[[], None]) -> None:
        """Let a call have its turn."""
        self._calls.append(call)
        if len(self._calls) == 1:
            self._call_soon(self._next)

    def _next(self) -> None:
        try:
            with self._around:
                self._calls[0]()
        finally:
            self._calls.popleft()
            if self._calls:
                self._call_soon(self._next)


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
