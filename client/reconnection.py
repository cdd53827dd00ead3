"""The connections of a subscription that outlives its first one: `subscribe(…, reconnect=True)` and `tail --follow`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from millstream.client.errors import MillstreamError
from millstream.client.wire import Wire

PASSING_CODES = ("disconnected", "overloaded", "stopping", "timeout", "unreachable")  # of errors that a later attempt may not meet
PASSING_ENDS = ("slow", "stopping")  # of a subscription, after which its token goes on
PAUSE_S_FIRST, PAUSE_S_MAX = 0.05, 2.0  # between two attempts; doubled each time


class Reconnection:
    """Connects again for one subscription, and owns the connection.

    `connect` makes a connection or raises MillstreamError. `patience_s` is how long to try after each loss; None: for ever.
    `tell(code, message)` is called when a connection is lost (`disconnected`) and when there is one again (`resumed`).
    """

    def __init__(
        self, connect: Callable[[], Coroutine[Any, Any, Wire]], patience_s: float | None, tell: Callable[[str, str], None]
    ) -> None:
        self.count = 0
        self._connect = connect
        self._patience_s = patience_s
        self._tell = tell
        self._wire: Wire | None = None

    async def run(self, lost: MillstreamError, resume: Callable[[Wire], Coroutine[Any, Any, None]]) -> None:
        """Connect, and `resume` over the connection, until both succeed. MillstreamError for what will not pass, or took too long."""
        loop = asyncio.get_running_loop()
        deadline = None if self._patience_s is None else loop.time() + self._patience_s
        self._tell("disconnected", f"{lost.message}; connecting again")
        pause = PAUSE_S_FIRST
        while True:
            try:
                await self.close()
                self._wire = await self._connect()
                await resume(self._wire)
            except MillstreamError as error:
                if error.code not in PASSING_CODES:
                    raise
                if deadline is not None and loop.time() + pause > deadline:
                    raise MillstreamError(
                        "disconnected", f"no connection again within {self._patience_s:g} s: {error.message}", "resume with the token"
                    ) from error
            else:
                self.count += 1
                self._tell("resumed", "connected again")
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_S_MAX)

    async def close(self) -> None:
        """Close the connection that was made, if there is one."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()
