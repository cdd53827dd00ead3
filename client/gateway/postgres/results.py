"""What a portal or cursor gives: the rows of an answer, or results of a query as they come; and how many it gives at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from millstream.client.errors import MillstreamError
from millstream.client.gateway.postgres import limits
from millstream.client.gateway.postgres.sqlstates import OF_CODE, PgError
from millstream.client.subscriber import Lost, Subscription
from millstream.protocol.types import Column

if TYPE_CHECKING:
    import pyarrow as pa


class Rows:
    """A whole answer, given from the first row on."""

    def __init__(self, columns: Sequence[Column], table: pa.Table, tag: str) -> None:
        self.columns = list(columns)
        self.tag = tag
        self._table = table
        self._at = 0
        self.bytes = int(table.nbytes)

    async def take(self, rows_max: int | None) -> AsyncIterator[Any]:
        """Yield the next rows, at most so many, as batches."""
        end = self._table.num_rows if rows_max is None else min(self._table.num_rows, self._at + rows_max)
        while self._at < end:
            rows = min(limits.ROWS_AT_ONCE, end - self._at)
            part = self._table.slice(self._at, rows).combine_chunks()
            self._at += rows
            for batch in part.to_batches():
                yield batch

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return bool(self._at >= self._table.num_rows)

    async def close(self) -> None:
        """Nothing is held elsewhere."""


class Following:
    """The results of a query, as they come. What is not taken waits in the server: credit bounds what is under way."""

    def __init__(self, subscription: Subscription) -> None:
        self.columns = subscription.columns
        self.tag = "FETCH"
        self.bytes = 0
        self.lost: list[Lost] = []  # gaps that have not been told
        self.is_done = False
        self._subscription = subscription
        self._batch: Any = None
        self._next: asyncio.Task[Any] | None = None

    async def take(self, rows_max: int | None) -> AsyncIterator[Any]:
        """Yield at most so many rows: wait for the first ones, then give what has come. None: until the query ends.

        Whoever is cancelled while it waits loses no row: the next call gives what came meanwhile. `PgError` when the results end for
        another reason than the end of the query.
        """
        given = 0
        while rows_max is None or given < rows_max:
            if self._batch is None and not await self._fill(wait=given == 0 or rows_max is None):
                return
            batch, self._batch = self._batch, None
            left = batch.num_rows if rows_max is None else rows_max - given
            left = min(left, limits.ROWS_AT_ONCE)
            if batch.num_rows > left:
                batch, self._batch = batch.slice(0, left), batch.slice(left)
            given += batch.num_rows
            yield batch

    async def _fill(self, *, wait: bool) -> bool:
        """Have a batch; False when the results have ended, or when none is there and none is waited for."""
        while not self.is_done:
            if self._next is None:
                self._next = asyncio.create_task(self._subscription.next_item())
            if not wait:
                await asyncio.wait({self._next}, timeout=0)
                if not self._next.done():
                    return False
            else:
                await asyncio.wait({self._next})
            task, self._next = self._next, None
            item = task.result()
            if isinstance(item, Lost):
                self.lost.append(item)
            elif item is not None:
                self._batch = item
                return True
            else:
                self.is_done = True
                self._check_end()
        return False

    def _check_end(self) -> None:
        end = self._subscription.end
        if end is not None and end.reason not in ("finished", "unsubscribed"):
            token = f"its results go on after the token {end.resume_token}" if end.resume_token else None
            state = OF_CODE.get(end.reason, "57P01")
            raise PgError(state, f"{self._subscription.query} ended: {end.message or end.reason}", token)

    async def close(self) -> None:
        """End the subscription."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        try:
            await self._subscription.close()
        except MillstreamError as error:
            if error.code not in ("disconnected", "closed", "stopping"):
                raise


Source = Rows | Following
