"""An open page's connection: what it is told, at its own pace, and what it asks for.

One task sends everything. It takes the newest look, and the last rows of the results that the page follows, whenever the page has taken
what went before; so a slow page misses looks and rows, and holds no memory of ours.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

from millstream.client.connection import AsyncClient
from millstream.client.console.past import SHOWN
from millstream.client.console.watching import Watch
from millstream.client.errors import MillstreamError
from millstream.client.subscriber import Subscription
from millstream.protocol.values.text import json_lines

FOLLOWS_MAX = 4
ROWS_KEPT = 200  # of a follow, between two messages
ROW_CHARACTERS_MAX = 65_536  # of a row: a longer one is told of, not sent
ANSWERS_MAX = 32
PACE_S = 0.25  # between two messages, so that a page draws at most four times a second
SEND_S_MAX = 60.0  # a page that takes nothing for so long is let go
ROWS_WINDOW, BYTES_WINDOW = 4_096, 1_048_576


def report_fault(task: asyncio.Task[None]) -> None:
    """Tell the loop, which logs it, of what no task of ours should end with."""
    if not task.cancelled() and (problem := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "a fault of the console", "exception": problem})


class Socket(Protocol):
    """What a page is reached by."""

    async def send_text(self, data: str) -> None:
        """Send one message; returns when there is room for more."""

    def iter_text(self) -> AsyncIterator[str]:
        """Give the page's messages until it is gone."""


class Connector(Protocol):
    """Gives connections to the server, each for one use at a time."""

    def one(self, token: str | None) -> AbstractAsyncContextManager[AsyncClient]:
        """Give one with a token's rights. MillstreamError when the server cannot be reached or refuses."""


class Follow:
    """The results of one query on their way to a page: the last rows, and how many there were."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: deque[str] = deque(maxlen=ROWS_KEPT)
        self.came = 0
        self.lost = 0
        self.columns: list[list[str]] | None = None
        self.end: dict[str, Any] | None = None
        self.task: asyncio.Task[None] | None = None

    def message(self) -> str | None:
        """Return what is new as a message, and forget it; None when there is nothing."""
        if not self.came and self.columns is None and self.end is None:
            return None
        head = {"kind": "rows", "follow": self.number, "columns": self.columns, "came": self.came, "lost": self.lost, "end": self.end}
        text = json.dumps(head, ensure_ascii=False)[:-1] + ', "rows": [' + ",".join(self.rows) + "]}"
        self.rows.clear()
        self.came, self.columns = 0, None
        return text


class Page:
    """One open page. `run` serves it until it leaves."""

    def __init__(self, socket: Socket, watch: Watch, connections: Connector, token: str | None) -> None:
        self._socket = socket
        self._watch = watch
        self._connections = connections
        self._token = token
        self._follows: dict[int, Follow] = {}
        self._answers: deque[str] = deque(maxlen=ANSWERS_MAX)
        self._wake = asyncio.Event()
        self._looks = -1
        self._events = 0
        self._shows_network = False
        self._network = ""

    async def run(self) -> None:
        """Serve the page until it leaves, or takes nothing for too long."""
        self._watch.pages += 1
        tasks = [asyncio.create_task(one) for one in (self._hear(), self._send(), self._look())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with suppress(TimeoutError):  # of a page that takes nothing
                    task.result()
        finally:
            self._watch.left()
            self._show_network(on=False)
            follows = [follow.task for follow in self._follows.values() if follow.task is not None]
            for task in (*tasks, *follows):
                task.cancel()
            await asyncio.gather(*tasks, *follows, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            await self._watch.after(self._looks)
            self._wake.set()
            await asyncio.sleep(PACE_S)

    async def _send(self) -> None:
        past = self._watch.past
        entered = {"kind": "entered", "role": self._watch.role, "columns": SHOWN, "past": past.of("all", ""), "sparks": past.sparks()}
        await self._say(json.dumps(entered, separators=(",", ":")))
        while True:
            self._wake.clear()
            while self._answers:
                await self._say(self._answers.popleft())
            if self._watch.number > self._looks:
                self._looks = self._watch.number
                events = past.events_after(self._events)
                if events:
                    self._events = events[-1]["number"]
                    await self._say(json.dumps({"kind": "events", "events": events}, ensure_ascii=False))
                await self._say(self._watch.told)
                if self._shows_network and self._watch.network is not self._network:
                    self._network = self._watch.network
                    await self._say(self._network)
            for follow in list(self._follows.values()):
                message = follow.message()
                if message is not None:
                    await self._say(message)
                if follow.end is not None:
                    self._follows.pop(follow.number, None)
            await asyncio.sleep(PACE_S)
            await self._wake.wait()

    async def _say(self, text: str) -> None:
        async with asyncio.timeout(SEND_S_MAX):
            await self._socket.send_text(text)

    # --- what the page asks for ---

    async def _hear(self) -> None:
        async for text in self._socket.iter_text():
            try:
                asked = json.loads(text)
                match asked:
                    case {"ask": "past", "kind": str(kind), "name": str(name)}:
                        self._answer({"kind": "past", "of": [kind, name], **self._watch.past.of(kind, name)})
                    case {"ask": "follow", "follow": int(number), "query": str(query), **rest}:
                        self._begin(number, query, is_text=rest.get("is_text") is True, from_start=rest.get("from_start") is True)
                    case {"ask": "network", "on": bool(on)}:
                        self._show_network(on=on)
                    case {"ask": "leave", "follow": int(number)}:
                        self._leave(number)
                    case _:
                        raise ValueError("nothing that a page may ask")  # noqa: TRY301
            except ValueError as error:
                self._answer({"kind": "refused", "why": f"the console does not understand this page: {error}"})

    def _answer(self, what: dict[str, Any]) -> None:
        self._answers.append(json.dumps(what, separators=(",", ":"), ensure_ascii=False))
        self._wake.set()

    def _show_network(self, *, on: bool) -> None:
        self._watch.network_pages += on - self._shows_network
        self._shows_network, self._network = on, ""

    def _begin(self, number: int, query: str, *, is_text: bool, from_start: bool) -> None:
        self._leave(number)
        follow = Follow(number)
        if len(self._follows) >= FOLLOWS_MAX:
            self._answer({"kind": "rows", "follow": number, "rows": [], "end": {"why": f"a page follows {FOLLOWS_MAX} queries at most"}})
            return
        self._follows[number] = follow
        follow.task = asyncio.create_task(self._follow(follow, query, is_text=is_text, from_start=from_start))
        follow.task.add_done_callback(report_fault)

    def _leave(self, number: int) -> None:
        follow = self._follows.pop(number, None)
        if follow is not None and follow.task is not None:
            follow.task.cancel()

    async def _follow(self, follow: Follow, query: str, *, is_text: bool, from_start: bool) -> None:
        """Take the results of a query, or of a SELECT that is started for it and ends with it."""
        try:
            async with self._connections.one(self._token) as client:
                # The SELECT belongs to its connection, so the connection is given up with it.
                try:
                    name = (await client.submit(query)).name if is_text else query
                    options: dict[str, Any] = {"rows_window": ROWS_WINDOW, "bytes_window": BYTES_WINDOW, "from_start": from_start}
                    async with client.subscribe(name, **options) as subscription:
                        await self._take(follow, subscription)
                finally:
                    if is_text:
                        await client.abandon()
        except MillstreamError as error:
            follow.end = {"why": str(error), "line": error.line, "column": error.column}
        except Exception as error:
            follow.end = {"why": f"a fault of the console: {type(error).__name__}"}
            raise
        finally:
            self._wake.set()

    async def _take(self, follow: Follow, subscription: Subscription) -> None:
        follow.columns = [[column.name, column.type.name] for column in subscription.columns]
        self._wake.set()
        while (item := await subscription.next_item()) is not None:
            if hasattr(item, "num_rows"):
                follow.came += item.num_rows
                lines = json_lines(item.slice(max(0, item.num_rows - ROWS_KEPT))).decode().splitlines()
                follow.rows.extend(line if len(line) <= ROW_CHARACTERS_MAX else '{"": "a row too long to show"}' for line in lines)
            else:
                follow.lost += item.rows
                follow.came += item.rows
            self._wake.set()
        follow.end = {"why": "" if subscription.end is None else subscription.end.message or subscription.end.reason}
