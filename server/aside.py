"""What takes long: done on threads of its own or in another process, so that neither the loop nor other statements wait for it.

Files that statements and tables read, FETCHes, archives. Loaded when there is something of the kind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.engine.data.errors import EngineError
from millstream.protocol.messages import Notice
from millstream.server.errors import ServerError
from millstream.server.lean import give_way
from millstream.server.net.session import Running, Session

if TYPE_CHECKING:
    from millstream.engine.language.statements import Fetch
    from millstream.server.config import Config
    from millstream.server.host.contract import Refresh
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.host.server_files import Asks
    from millstream.server.host.table_files import TablePoll, TableRows
    from millstream.server.once.fetches import Fetches
    from millstream.server.once.question import Question
    from millstream.server.results.outcome import Outcome

POLL_S_MAX = 60.0  # how long a poll of a table's file may take before it counts as failed
PREPARING_MAX = 2  # statements whose files are read at once: each may hold a table's rows
FETCH_SEEN_S = 1.0  # how long a FETCH waits for a query to have seen what arrived before it
SEEN_S = 0.001  # between two looks at that

Given = TypeVar("Given")


class Aside:
    """See the module's text. `call` runs a function on the thread that executes statements. To be used on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: EngineHost, config: Config, call: Callable[..., Any]) -> None:
        self.fetches: Fetches | None = None
        self._loop = loop
        self._host = host
        self._config = config
        self._call = call
        self._preparing = asyncio.Semaphore(PREPARING_MAX)

    def close(self) -> None:
        """End the FETCHes."""
        if self.fetches is not None:
            self.fetches.close()

    async def fetched(self, session: Session, statement: Fetch) -> Outcome:
        """Answer a FETCH outside this process, when its peer's turn has come; given up when the session gives it up."""
        from millstream.server.statements import language

        def tell(fraction: float) -> None:
            session.send(Notice("progress", f"{fraction:.0%} of the history is read"))

        done: asyncio.Future[Any] = self._loop.create_future()
        session.running = running = Running(done, tell)
        asked = None

        async def ask() -> Question:
            at = self._host.network.ingress.next_seq - 1
            assert asked is not None
            deadline = self._loop.time() + FETCH_SEEN_S
            while not (done.done() or all(self._host.has_seen(q, at) for q in asked.waits_for)) and self._loop.time() < deadline:
                await asyncio.sleep(SEEN_S)
            question: Question = await self._call(asked.take)
            return question

        try:
            asked = await self._call(language.prepare_fetch, self._host, statement)
            return await self._fetches().answer(session.client_id or session.number, running, done, ask)
        finally:
            session.running = None
            if asked is not None:
                asked.release()
            if not done.cancel() and not done.cancelled():
                done.exception()  # whoever gave it up is told already

    def _fetches(self) -> Fetches:
        """Return who answers FETCHes; it is loaded with the first."""
        if self.fetches is None:
            from millstream.server.once.fetches import Fetches
            from millstream.server.once.worker import ENVELOPE_BYTES, FetchBounds, Worker

            config = self._config
            bounds = FetchBounds(config.fetch_memory_bytes_max, config.fetch_cpu_s_max, config.frame_bytes_max - ENVELOPE_BYTES)
            made = partial(Worker, bounds, self._host.confinement)
            self.fetches = Fetches(made, config.fetch_workers, config.fetch_waiting_max, config.fetch_idle_s)
        return self.fetches

    async def prepared(self, session: Session, preparing: Callable[[Asks], Given]) -> Given:
        """Do a part of a statement that may take long; given up when the session gives it up."""
        async with self._preparing:
            done: asyncio.Future[Given] = self._loop.create_future()
            session.running = running = Running(done)
            try:
                return await self._on_a_thread(preparing, running, done, "preparing")
            finally:
                session.running = None

    async def polled(self, refresh: Refresh, poll: TablePoll) -> TableRows | Exception | None:
        """Read the file of a poll; returns what `Refresh.put` takes."""
        done: asyncio.Future[TableRows | None] = self._loop.create_future()
        running = Running(done)
        hung = self._loop.call_later(POLL_S_MAX, running.give_up)
        try:
            return await self._on_a_thread(partial(refresh.read, poll), running, done, "poll")
        except (EngineError, ServerError) as problem:
            return problem
        finally:
            hung.cancel()

    async def behind(self, deed: Callable[[], Given], name: str) -> Given:
        """Do something that nobody waits for, behind all that somebody waits for."""

        def done_behind(_given_up: Asks) -> Given:
            give_way()
            return deed()

        done: asyncio.Future[Given] = self._loop.create_future()
        return await self._on_a_thread(done_behind, Running(done), done, name)

    async def _on_a_thread(self, deed: Callable[[Asks], Given], running: Running, done: asyncio.Future[Given], name: str) -> Given:
        """Run a deed on a thread of its own, which is left behind when it does not end."""

        def run() -> None:
            try:
                settle = partial(running.settle, deed(running.is_given_up))
            except Exception as error:
                settle = partial(running.fail, error)
            with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
                self._loop.call_soon_threadsafe(settle)

        threading.Thread(target=run, name=name, daemon=True).start()
        return await done
