"""What the server looks at now and then: impatience with peers, slow readers, processing time, due queries, the conservation law.

One timer for everything, so that idle connections and queries cost nothing between two rounds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millstream.server.host import running

if TYPE_CHECKING:
    from millstream.server.app import Application

SWEEP_S = 0.05
RATE_ROUNDS = 10  # rounds between two notes of how many rows have come
JOURNAL_ROUNDS = 10  # rounds between two looks at the journal's size
WATCH_S = 1.0  # between two looks at the targets of queries, less where the optimiser is to settle sooner
LAW_ROUNDS = 200  # rounds between two looks at the conservation law


class Sweep:
    """The timer. `unbalanced_total` counts accounts that did not balance twice in a row while nothing was queued."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self._handle: asyncio.TimerHandle | None = None
        self._round = 0
        self._watch_rounds = max(1, round(min(WATCH_S, application.config.optimise_settle_s / 5) / SWEEP_S))
        self._looking = False
        self._suspects: frozenset[tuple[str, str]] = frozenset()

    def start(self) -> None:
        """Begin."""
        self._handle = self.application.loop.call_later(SWEEP_S, self._sweep)

    def stop(self) -> None:
        """End."""
        if self._handle is not None:
            self._handle.cancel()

    def _sweep(self) -> None:
        application = self.application
        self._handle = application.loop.call_later(SWEEP_S, self._sweep)
        self._round += 1
        now_ns = application.now_ns()
        application.each(application.sessions.values(), lambda session: session.is_overdue(now_ns))
        application.each(application.feeds, lambda found: found.feed.check(now_ns))
        self._pass_time()
        if self._round % RATE_ROUNDS == 0:
            self._note_rates(now_ns)
        if self._round % JOURNAL_ROUNDS == 0:
            application.loop.create_task(application.checkpoint())
        if self._round % self._watch_rounds == 0:
            self._look_at_targets()
        if self._round % LAW_ROUNDS == 0:
            self._check_law()

    def _look_at_targets(self) -> None:
        """One look at a time, on the thread that executes statements."""
        if not self._looking and self.application.host.watch.has_work:
            self._looking = True
            self.application.loop.create_task(self._look())

    async def _look(self) -> None:
        host = self.application.host
        try:
            if not self.application.stopping:
                await self.application.call(host.watch.look if host.optimiser is None else host.optimiser.step)
        finally:
            self._looking = False

    def _note_rates(self, now_ns: int) -> None:
        for intake in tuple(self.application.host.intakes.values()):
            intake.note_rate(now_ns)

    def _pass_time(self) -> None:
        host = self.application.host
        now_us = host.runtime.now_us()
        tick_us = host.network.next_tick_us()
        if tick_us is not None and tick_us <= now_us:
            host.tick()
        due_us = running.next_due_us(host)
        if due_us is not None and due_us <= now_us:
            self.application.loop.create_task(self.application.call(running.due, host, now_us))

    def _check_law(self) -> None:
        """K10 holds exactly only while nothing moves, so an account is reported when it fails twice with the same sums."""
        host = self.application.host
        if not host.runtime.statistics().idle:
            self._suspects = frozenset()
            return
        found = {(name, repr(account)): account for name, account in host.unbalanced()}
        for key in self._suspects & found.keys():
            self.application.unbalanced_total += 1
            self.application.log.error("conservation_broken", query=key[0], account=key[1])
        self._suspects = frozenset(found)
