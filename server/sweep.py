"""What the server looks at now and then: impatience with peers, slow readers, processing time, due queries, the conservation law.

One timer for everything, so that idle connections and queries cost nothing between two rounds.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.engine.data.errors import EngineError
from millstream.scheduler.errors import SchedulerError
from millstream.server.errors import ServerError, StorageError
from millstream.server.host import running
from millstream.server.results.feeds import QueryFeed
from millstream.server.watch.memory_watch import give_back

if TYPE_CHECKING:
    from millstream.scheduler.placement import Move
    from millstream.server.app import Application
    from millstream.server.host.load_ring import LoadRing
    from millstream.server.workers.pool import Workers

SWEEP_S = 0.05
MEMORY_ROUNDS = 4  # rounds between two looks at what all queries hold
RATE_ROUNDS = 10  # rounds between two notes of how many rows have come
ARCHIVE_ROUNDS = 20  # rounds between two looks at what is due for archives
JOURNAL_ROUNDS = 10  # rounds between two looks at the journal's size
WATCH_S = 1.0  # between two looks at the targets of queries, less where the optimiser is to settle sooner
CHECKPOINT_RETRY_NS = 5_000_000_000  # everything stands still while one is copied, so a disk that is full is not asked all the time
RING_ROUNDS = 20  # rounds between two looks at the counts of what came
LAW_ROUNDS = 200  # rounds between two looks at the conservation law


class ToldOnce:
    """Lines of the log about what goes wrong in round after round: one when it begins or changes, one when it is over."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._reasons: dict[str, str] = {}

    def tell(self, what: str, kind: str, error: Exception) -> None:
        """Log an error, unless it was the last one of its kind."""
        if self._reasons.get(what) != str(error):
            self._reasons[what] = str(error)
            self._log.error(kind, reason=str(error))

    def over(self, what: str) -> None:
        """Log that it goes well again."""
        if self._reasons.pop(what, None) is not None:
            self._log.warning("goes_on_again", what=what)


class Sweep:
    """The timer. `unbalanced_total` counts accounts that did not balance twice in a row while nothing was queued."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self._handle: asyncio.TimerHandle | None = None
        self._round = 0
        self._watch_rounds = max(1, round(min(WATCH_S, application.config.optimise_settle_s / 5) / SWEEP_S))
        self._looking = False
        self._coming_due = False
        self._polling = False
        self._marking = False
        self._checkpointing = False
        self._archiving = False
        self._checkpoint_from_ns = 0
        self._told = ToldOnce(application.log)
        self._suspects: frozenset[tuple[str, str]] = frozenset()
        self._law_seen = (-1, -1)

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
        application.each(application.feeds.take_awake(), lambda found: self._check_feed(found, now_ns))
        self._pass_time()
        if application.host.unfed:
            application.host.feed_held()
        self._begin_poll()
        if self._round % MEMORY_ROUNDS == 0 and application.memory.look() and not application.stopping:
            application.loop.create_task(application.call(give_back))
        if self._round % MEMORY_ROUNDS == 0 and not application.stopping:
            application.spill()
        if self._round % RATE_ROUNDS == 0:
            self._note_rates(now_ns)
            application.look_at_processes(now_ns)
            if application.workers is not None:
                self._balance(application.workers, now_ns)
        if self._round % JOURNAL_ROUNDS == 0:
            self._begin_checkpoint(now_ns)
        if self._round % ARCHIVE_ROUNDS == 0 and not self._archiving:
            self._archiving = True
            application.loop.create_task(self._archive())
        if self._round % RING_ROUNDS == 0:
            self._look_at_ring()
        if self._round % self._watch_rounds == 0:
            self._look_at_targets()
        if self._round % LAW_ROUNDS == 0:
            self._check_law()

    def _balance(self, workers: Workers, now_ns: int) -> None:
        """Let a group of queries go to another worker where that is due."""
        application = self.application
        move = workers.look(now_ns)
        if move is not None and not application.stopping:
            application.loop.create_task(application.call(partial(_move, application, workers, move)))

    def _begin_poll(self) -> None:
        """One poll at a time."""
        host = self.application.host
        if host.refresh is None or self._polling:
            return
        wake_ns = host.refresh.wake_ns()
        if wake_ns is not None and wake_ns <= host.runtime.arrival_ns():
            self._polling = True
            self.application.loop.create_task(self._poll())

    async def _poll(self) -> None:
        try:
            await self.application.poll()
        finally:
            self._polling = False

    def _begin_checkpoint(self, now_ns: int) -> None:
        """One checkpoint at a time; one that the disk refused is tried again after a while."""
        if not self._checkpointing and now_ns >= self._checkpoint_from_ns:
            self._checkpointing = True
            self.application.loop.create_task(self._checkpoint())

    async def _checkpoint(self) -> None:
        try:
            await self.application.checkpoint()
            self._told.over("checkpoint")
        except (OSError, StorageError) as error:
            self._told.tell("checkpoint", "checkpoint_failed", error)
            self._checkpoint_from_ns = self.application.now_ns() + CHECKPOINT_RETRY_NS
        finally:
            self._checkpointing = False

    async def _archive(self) -> None:
        try:
            await self.application.archive()
            self._told.over("archive")
        except (OSError, StorageError) as error:
            self._told.tell("archive", "archive_not_noted", error)
        finally:
            self._archiving = False

    def _check_feed(self, found: QueryFeed, now_ns: int) -> None:
        feed = found.feed
        try:
            feed.check(now_ns)
        finally:
            self.application.feeds.settle(found)
        if feed.tell_deserted() and not self.application.stopping:
            self.application.loop.create_task(self.application.call(running.desert, self.application.host, feed.query))

    def _look_at_ring(self) -> None:
        """Note what operators have done so far, on the thread that executes statements, where that is due."""
        ring = self.application.runtime.ring
        if ring is None or self._marking or self.application.stopping or not ring.wants_mark(self.application.runtime.arrival_ns()):
            return
        self._marking = True
        self.application.loop.create_task(self._mark(ring))

    async def _mark(self, ring: LoadRing) -> None:
        from millstream.server.host.recordings import marked  # only a server to which something has come needs it

        application = self.application
        try:
            ring.set_mark(await application.call(marked, application.runtime.scheduler, application.host.network))
        finally:
            self._marking = False

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
        tick_us = host.network.ticks.next_us()
        if tick_us is not None and tick_us <= now_us:
            try:
                host.tick()
                self._told.over("tick")
            except StorageError as error:
                self._told.tell("tick", "time_stands_still", error)
        due_us = running.next_due_us(host)
        if due_us is not None and due_us <= now_us and not self._coming_due:
            self._coming_due = True
            self.application.loop.create_task(self._let_come_due(now_us))

    async def _let_come_due(self, now_us: int) -> None:
        """Let queries begin and end; what keeps one from it is told once, and tried again in each round."""
        try:
            if not self.application.stopping:
                await self.application.call(running.due, self.application.host, now_us)
            self._told.over("due")
        except (EngineError, SchedulerError, ServerError) as error:
            self._told.tell("due", "not_due_yet", error)
        finally:
            self._coming_due = False

    def _check_law(self) -> None:
        """K10 holds exactly only while nothing moves, so an account is reported when it fails twice with the same sums."""
        host = self.application.host
        if not host.runtime.statistics().idle:
            self._suspects = frozenset()
            return
        seen = (host.network.ingress.next_seq, host.network.version)
        if seen == self._law_seen and not self._suspects:
            return  # nothing has moved since all accounts balanced
        self._law_seen = seen
        found = {(name, repr(account)): account for name, account in host.unbalanced()}
        for key in self._suspects & found.keys():
            self.application.unbalanced_total += 1
            self.application.log.error("conservation_broken", query=key[0], account=key[1])
        self._suspects = frozenset(found)


def _move(application: Application, workers: Workers, move: Move) -> None:
    """Move a group, on the thread that executes statements, so that none of its queries comes or goes meanwhile."""
    try:
        with application.runtime.still():
            moved = workers.move(move)
    except EngineError as error:  # one of its operators was lost, which its query hears of
        application.log.warning("not_moved", why=move.why, reason=str(error))
    else:
        if moved:
            application.log.info("moved", worker=move.worker, why=move.why)
