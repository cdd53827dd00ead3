"""Who is answered next: FETCHes wait in a line for each peer, and the lines take turns, so that many of one peer delay another's by one.

All of it runs on the loop's thread; the processes are waited for by threads of their own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from millstream.server.errors import ServerError
from millstream.server.once.question import Question
from millstream.server.once.worker import Worker
from millstream.server.results.outcome import Outcome

Item = TypeVar("Item")


class Awaited(Protocol):
    """A request that is answered aside (`net/session.py`): its outcome goes to a future, unless it was given up before."""

    def is_given_up(self) -> bool:
        """Say whether nobody waits any more; from any thread."""
        ...

    def tell(self, fraction: float) -> None:
        """Say what part of the work is done."""
        ...

    def settle(self, outcome: Any) -> None:
        """Give the outcome."""
        ...

    def fail(self, error: Exception) -> None:
        """Give what went wrong."""
        ...


class TooManyFetches(ServerError):
    """More FETCHes wait than the settings allow."""

    code = "overloaded"


class FairQueue(Generic[Item]):
    """A line for each peer; `pop` takes the first of the line whose turn it is."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[Item]] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(len(line) for line in self._lines.values())

    def push(self, peer: Hashable, item: Item) -> None:
        """Put an item at the end of a peer's line."""
        self._lines.setdefault(peer, deque()).append(item)

    def pop(self) -> Item:
        """Take the next item; its peer's turn comes again after all others'."""
        peer = next(iter(self._lines))
        line = self._lines.pop(peer)
        item = line.popleft()
        if line:
            self._lines[peer] = line
        return item

    def remove(self, peer: Hashable, item: Item) -> None:
        """Take an item out of the line."""
        line = self._lines[peer]
        line.remove(item)
        if not line:
            del self._lines[peer]


class Fetches:
    """At most `workers_max` FETCHes at once, and `waiting_max` that wait. A process that nobody asked for `idle_s` is ended."""

    def __init__(self, worker: Callable[[], Worker], workers_max: int, waiting_max: int, idle_s: float) -> None:
        self._make = worker
        self._workers_max = workers_max
        self._waiting_max = waiting_max
        self._idle_s = idle_s
        self._idle: list[Worker] = []
        self._busy: dict[int, Worker] = {}
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._running = 0
        self._closed = False
        self._ending: asyncio.TimerHandle | None = None

    @property
    def places_taken(self) -> int:
        """How many FETCHes are answered, or take what is held, now."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    async def answer(self, peer: Hashable, running: Awaited, done: asyncio.Future[Any], ask: Callable[[], Awaitable[Question]]) -> Outcome:
        """Wait for the peer's turn, let `ask` take what is held then, and have it answered. `done` fails when the request is given up.

        TooManyFetches when too many wait, and what `Worker.ask` raises.
        """
        await self._turn(peer, done)
        try:
            question = await ask()
        except BaseException:
            self._next()
            raise
        worker = self._idle.pop() if self._idle else self._make()
        self._busy[id(worker)] = worker
        threading.Thread(target=self._ask, args=(worker, question, running, asyncio.get_running_loop()), name="fetch", daemon=True).start()
        outcome: Outcome = await done
        return outcome

    async def _turn(self, peer: Hashable, done: asyncio.Future[Any]) -> None:
        if self._running < self._workers_max:
            self._running += 1
            return
        if len(self._waiting) >= self._waiting_max:
            raise TooManyFetches(f"{self._waiting_max} FETCHes wait already (fetch_waiting_max)", hint="try again later")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push(peer, turn)
        await asyncio.wait((turn, done), return_when=asyncio.FIRST_COMPLETED)
        if turn.done() and not done.done():
            return
        if turn.done():
            self._next()
        else:
            self._waiting.remove(peer, turn)
        done.result()

    def _ask(self, worker: Worker, question: Question, running: Awaited, loop: asyncio.AbstractEventLoop) -> None:
        """Run on a thread of its own."""

        def progress(fraction: float) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(running.tell, fraction)

        try:
            settle = partial(running.settle, worker.ask(question, running.is_given_up, progress))
        except Exception as error:
            settle = partial(running.fail, error)
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            loop.call_soon_threadsafe(self._answered, worker, settle)
            return
        worker.close()

    def _answered(self, worker: Worker, settle: Callable[[], None]) -> None:
        del self._busy[id(worker)]
        if worker.is_warm and not self._closed:
            self._idle.append(worker)
            if self._ending is not None:
                self._ending.cancel()
            self._ending = asyncio.get_running_loop().call_later(self._idle_s, self.end_idle)
        else:
            worker.close()
        self._next()
        settle()

    def _next(self) -> None:
        """Give the place that became free to the next in line."""
        if len(self._waiting):
            self._waiting.pop().set_result(None)
        else:
            self._running -= 1

    def end_idle(self) -> None:
        """End the processes that wait for a question."""
        idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def close(self) -> None:
        """End all processes, those that answer too."""
        self._closed = True
        if self._ending is not None:
            self._ending.cancel()
        self.end_idle()
        for worker in self._busy.values():
            worker.kill()
