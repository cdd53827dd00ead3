"""Looks at the server once a second, for all open pages of a role together; a page takes the newest look when it has time for one."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from millstream.client.connection import AsyncClient
from millstream.client.console.past import Past
from millstream.client.errors import MillstreamError
from millstream.client.top.model import HIDDEN_CODES, Look, Row, typed_rows

EVERY_S = 1.0
AGAIN_S = 1.0
REST_S_MAX = 3.0
ALONE_S = 900.0
"""How long a watch goes on that no page looks at: as long as the past that the next page wants to see."""
OFTEN = ("QUERIES", "STREAMS", "CLASSES", "SCHEDULER", "WATERMARKS", "POLICIES")
SELDOM = ("MEASURES", "DECISIONS")
SELDOM_EVERY = 5
"""What changes slowly or costs much is asked for with every so many looks."""


NETWORK_EVERY = 2
NETWORK_COLUMNS = (
    "operator", "kind", "rows_in", "rows_out", "selectivity", "cost_us_per_row", "waiting", "state_rows", "state_bytes", "watermark",
    "reads_streams", "reads_operators", "serves", "unit", "rank",
)  # fmt: skip


class Watch:
    """The looks of one role. `connect` gives a connection with the role's rights; `stays` when it goes on without a page."""

    def __init__(self, role: str, connect: Callable[[], Awaitable[AsyncClient]], *, stays: bool = False, every_s: float = EVERY_S) -> None:
        self.role = role
        self.past = Past()
        self.pages = 0
        self.problem: str | None = None
        self.told = json.dumps({"kind": "lost", "why": "the console has not heard from the server yet"})
        self.network = ""  # the running operators as a message; asked for as long as `network_pages` show it
        self.network_pages = 0
        self.number = 0  # of looks and losses that pages are told of
        self.server = ""
        self._connect = connect
        self._stays = stays
        self._every_s = every_s
        self._client: AsyncClient | None = None
        self._seldom: dict[str, list[Row]] = {}
        self._left_s = time.monotonic()
        self._changed = asyncio.Event()

    def left(self) -> None:
        """A page has gone."""
        self.pages -= 1
        self._left_s = time.monotonic()

    async def after(self, number: int) -> None:
        """Return when there is more to tell than what had that number."""
        while self.number <= number:
            await self._changed.wait()

    async def run(self) -> None:
        """Look until nobody has wanted it for long."""
        try:
            while self._stays or self.pages or time.monotonic() - self._left_s < ALONE_S:
                began = time.monotonic()
                try:
                    await self._look()
                except MillstreamError as error:
                    self._lose(error)
                    await asyncio.sleep(AGAIN_S)
                    continue
                except Exception as error:  # pages are told, too; whoever began the watch tells the log
                    self._lose(MillstreamError("internal", f"a fault of the console: {type(error).__name__}", "its log says more"))
                    raise
                # A server that needs long to answer is asked less often: looks take a tenth of its time, but come every few seconds.
                took = time.monotonic() - began
                await asyncio.sleep(max(self._every_s - took, min(9 * took, REST_S_MAX)))
        finally:
            if self._client is not None:
                await self._client.abandon()

    async def _look(self) -> None:
        if self._client is None or not self._client.is_open:
            self._client = await self._connect()
            self.server = f"{self._client.server} at {self._client.address}"
            self._seldom = {}
        wanted: tuple[str, ...] = OFTEN if self._seldom and self.past.looks % SELDOM_EVERY else (*OFTEN, *SELDOM)
        shows = self.network_pages and not self.past.looks % NETWORK_EVERY
        wanted += ("OPERATORS",) if shows or ("MEASURES" in wanted and self.past.lacks_streams()) else ()
        answers = dict(zip(wanted, await asyncio.gather(*(self._rows(self._client, name) for name in wanted)), strict=True))
        self._seldom |= {name: answers[name] for name in SELDOM if name in answers}
        self.past.take(Look(time.monotonic(), dt.datetime.now(dt.UTC), {**self._seldom, **answers}))
        self.problem = None
        if shows:
            rows = [[row[name] for name in NETWORK_COLUMNS] for row in answers["OPERATORS"]]
            network = {"kind": "network", "at": time.monotonic() * 1_000, "columns": NETWORK_COLUMNS, "rows": rows}
            self.network = json.dumps(network, separators=(",", ":"), ensure_ascii=False)
        self._tell({"kind": "state", "server": self.server, **self.past.state()})

    async def _rows(self, client: AsyncClient, name: str) -> list[Row]:
        """Return the rows of a SHOW, none where this role may not see it. MillstreamError when the server is gone."""
        try:
            answer = await client.execute(f"SHOW {name}")
        except MillstreamError as error:
            if error.code not in HIDDEN_CODES:
                raise
            return []
        if name == "WATERMARKS":
            return typed_rows({column.name: column.type.name for column in answer.columns}, answer.rows)
        return list(answer.rows)

    def _lose(self, error: MillstreamError) -> None:
        if self.problem != error.message:
            self.problem = error.message
            self.past.lost(time.time() * 1_000, error.message)
            self._tell({"kind": "lost", "why": error.message})

    def _tell(self, what: dict[str, Any]) -> None:
        self.told = json.dumps(what, separators=(",", ":"), ensure_ascii=False)
        self.number += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
