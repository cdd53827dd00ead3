"""The way from any thread into the event loop: items in order, one wake-up for all that wait."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

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
