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

    `waiting` counts the items not yet delivered: whoever fills the bridge faster than the loop empties it can be told to wait.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, deliver: Callable[[Item], None], around: AbstractContextManager[Any] | None = None
    ) -> None:
        self._loop = loop
        self._deliver = deliver
        self._around: AbstractContextManager[Any] = nullcontext() if around is None else around
        self._items: deque[Item] = deque()
        self._woken = False
        self._problem: BaseException | None = None
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
        """Deliver what waits. Called by the loop; an item posted while this runs is delivered too or wakes the loop again."""
        self._woken = False  # before the first pop, so that no item can be left without a wake-up
        if self._problem is not None:
            problem, self._problem = self._problem, None
            self.wake()
            raise problem
        if self._items:
            with self._around:
                while self._items:
                    self._deliver(self._items.popleft())

    def drain_early(self, wanted: type[Any], then: Callable[[], None]) -> None:
        """Deliver items of just this type, up to the first other one, and call `then`, in the midst of something else on the loop's thread.

        What either raises is no concern of whoever is in the midst of that: the next `drain`, which is on its way, raises it.
        """
        items = self._items
        try:
            with self._around:
                while items and self._problem is None and type(items[0]) is wanted:
                    self._deliver(items.popleft())
                then()
        except Exception as problem:
            self._problem = problem
            self.wake()
