"""Queries that begin in the past: what came before is let into them first, then they go on live where that ended.

Such a query runs in the network like any other, but on sources of its own (`PastSources`), which a thread fills from the archive and the
journal, with the arrival numbers and W of then, as fast as the scheduler lets the query take it. The past is replayed in stretches: up to
where arrivals stand now, then what came meanwhile. When little is left, a plan of the same operators is attached to the live streams at an
arrival number, the rest up to that is let in, and the state changes hands there (`engine/runtime/handover.py`): no row is missing, none is
twice. A query whose state cannot change hands goes on like this for good, right behind the journal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from millstream.engine.data.errors import EngineError, InvalidDefinition, Unsupported
from millstream.engine.data.graph import QueryId
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.replay import PastItem, PastSources, Replay
from millstream.engine.flow.sources import Source
from millstream.scheduler.errors import SchedulerError
from millstream.server.archive.archiver import StreamArchive
from millstream.server.archive.history import NO_BOUNDS, StoredPast, TimeBounds, journal_items
from millstream.server.archive.pieces import WatermarkRule
from millstream.server.errors import ServerError
from millstream.server.host.handing_over import NotYet, hand_over
from millstream.server.host.lifecycle import QueryState
from millstream.server.journal.following import JournalPlace, follow
from millstream.server.journal.records import Record
from millstream.server.lean import give_way

if TYPE_CHECKING:
    from millstream.server.durability.journaling import Journaling
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.host.queries import Query

STEP_ROWS = 16_384
AHEAD_ROWS_MAX = 4 * STEP_ROWS  # that wait before the query: more would only take memory
AHEAD_BYTES_MAX = 32 * 2**20
NEAR_ROWS = 2 * STEP_ROWS  # of all streams, that may be left for the moment of the handover
NEAR_ROWS_WAITING = 1024  # that may wait before the query then: the thread that executes statements waits until they are done
BEHIND_S = 0.1  # how far a query is behind that stays behind the journal
LOOK_S = 0.005  # between two looks at queries that cannot take more
STOP_S = 5.0
RETRY_S = 1.0  # after what the disk or a store refused


class CatchUp:
    """One query on its way. `fraction` is how much of the past it has been given."""

    def __init__(self, host: EngineHost, journaling: Journaling, query: Query, past: PastSources) -> None:
        self.query = query
        self.past = past
        self.stays = False
        """Its state cannot change hands: it goes on behind the journal."""
        self._host = host
        self._journaling = journaling
        self._id: QueryId | None = query.id
        self._began_s = time.monotonic()
        self._replay: Replay | None = None
        self._upto = past.start
        self._bounds = NO_BOUNDS if past.from_us is None else TimeBounds(past.from_us)
        self._inputs: list[tuple[Source, StreamArchive]] = []
        self._places: dict[str, JournalPlace] = {}  # behind the last record of a stream that was let in
        self._not_before_s = 0.0
        for source in past.sources.values():
            archive = None if journaling.archives is None else journaling.archives.find(source.definition.name)
            assert archive is not None
            archive.readers += 1
            self._inputs.append((source, archive))

    @property
    def is_over(self) -> bool:
        """Whether the query does not run on these sources any more."""
        return self.query.id is None or self.query.id != self._id or self.query.failure is not None

    def release(self) -> None:
        """Let go of the archives' files."""
        while self._inputs:
            self._inputs.pop()[1].readers -= 1

    @property
    def fraction(self) -> float:
        """How much of what has arrived since the start the query has been given."""
        start, end = self.past.start, self._host.network.ingress.next_seq
        return 1.0 if end <= start else min(1.0, (self.past.ingress.next_seq - start) / (end - start))

    def text(self) -> str:
        """Return what is shown of it."""
        if self.stays:
            return "follows the journal"
        done = self.fraction
        shown = f"catching up {int(100 * done)}%"
        if done <= 0.0:
            return shown
        left_s = (time.monotonic() - self._began_s) * (1.0 - done) / done
        return f"{shown}, {left_s / 60:.0f} min left" if left_s >= 90 else f"{shown}, {left_s:.0f} s left"

    # --- on the thread of replays ---

    def step(self) -> bool | None:
        """Let a little more in; True when something was done, False when there is nothing to do now, None when little is left.

        Raises EngineError when the past cannot be read, ServerError when the disk does not say how far it is.
        """
        logs = [source.log for source, _ in self._inputs]
        if time.monotonic() < self._not_before_s or any(map(_is_ahead, logs)):
            return False
        if self._replay is None:
            self._begin_stretch()
        assert self._replay is not None
        ingested = self._replay.step(self._host.runtime.arrival_ns(), self._upto)
        if ingested is not None:
            for one in ingested:
                self._host.runtime.arrived(one)
            return True
        self._replay = None
        left = self._host.network.ingress.next_seq - self._upto
        if self.stays:
            self._not_before_s = time.monotonic() + BEHIND_S
            return False
        if left > NEAR_ROWS:
            return True
        if sum(log.rows_held for log in logs) > NEAR_ROWS_WAITING or self.query.state is not QueryState.RUNNING:
            return False
        return None

    def put_off(self) -> None:
        """Do nothing for a while."""
        self._replay = None
        self._places.clear()  # something may have been read that was not let in
        self._not_before_s = time.monotonic() + RETRY_S

    def _begin_stretch(self) -> None:
        with self._host.network.ingress.lock:
            upto = self._host.network.ingress.next_seq
        self._journaling.wait_safe()  # what has a lower number is on disk then, or never will be
        self._replay = self._stretch(upto)

    def _stretch(self, upto: int) -> Replay:
        lo, self._upto = self.past.ingress.next_seq, upto
        return Replay(self.past.ingress, [(s, self._items(s, a, lo, upto)) for s, a in self._inputs], STEP_ROWS)

    def _items(self, source: Source, archive: StreamArchive, lo: int, upto: int) -> Iterator[PastItem]:
        """Yield what came of a stream in [lo, upto): from files as far as they go, then from the journal."""
        name, watermark_us = source.definition.name, source.watermark_us
        while lo < upto:
            parts = self._journaling.journal.safe_parts()  # before the state, as the journal lets go of what that has
            state = archive.state
            if state.upto > lo:
                yield from StoredPast(archive.where, archive.definition, state, self._bounds).items(lo)
                lo, watermark_us = state.upto, state.watermark_us
                self._places.pop(name, None)
                continue
            place = self._places.get(name, JournalPlace())
            records = follow(self._journaling.disk, parts, archive.number, place, lo)
            try:
                first = next(records, None)
            except FileNotFoundError:
                continue  # it has been archived, and the journal has let go of it
            if first is not None:
                below = self._below(name, chain((first,), records), upto)
                yield from journal_items(archive.definition, WatermarkRule(archive.definition, watermark_us), below, self._bounds)
            return

    def _below(self, name: str, records: Iterable[tuple[JournalPlace, JournalPlace, Record]], upto: int) -> Iterator[Record]:
        for _, after, record in records:
            if record.lo >= upto:
                return
            self._places[name] = after
            yield record

    # --- on the thread that executes statements ---

    def go_live(self) -> None:
        """Go on with the live streams. Unsupported when the state cannot change hands, or not yet."""
        query = self.query
        if self.is_over:
            return
        assert query.id is not None
        hand_over(self._host, query, query.planned, query.id, meanwhile=self._let_rest_in)

    def _let_rest_in(self, at: int) -> None:
        """Let in what came before the arrival number at which the live plan begins."""
        self._journaling.wait_safe()
        replay = self._stretch(at)
        while (ingested := replay.step(self._host.runtime.arrival_ns(), at)) is not None:
            for one in ingested:
                self._host.runtime.arrived(one)


class CatchingUp:
    """All queries on their way. `execute` runs a deed on the thread that executes statements, soon."""

    def __init__(self, host: EngineHost, journaling: Journaling, execute: Callable[[Callable[[], None]], object]) -> None:
        self._host = host
        self._journaling = journaling
        self._execute = execute
        self._queries: list[CatchUp] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.holds_back: Callable[[Query], bool] = lambda query: False
        """Whether results of a query wait for those who read them."""

    def past_of(self, query: Query) -> PastSources:
        """Return sources for a query that begins in the past. Unsupported, naming what is in the way."""
        options, archives = query.planned.physical.options, self._journaling.archives
        names = [name for name in query.reads if name not in self._host.network.sources or self._host.network.sources[name].table is None]
        for name in names:
            if self._host.maker(name) is not None:
                what = "a derived stream" if name in self._host.derived else "a materialized view"
                raise _refused(f"{name} is {what}", f"read {', '.join(self._host.base_streams((name,)))}, whose rows it is made of")
            if archives is None or archives.find(name) is None:
                raise _refused(f"stream {name} has no archive", "CREATE STREAM … DURABILITY journal ARCHIVE keeps its history")
        if not names:
            raise _refused("it reads no stream", "leave history out")
        node = self._host.class_node(options)
        if node.may_shed:
            raise _refused(f"its class {node.name} may be shed", "take a class that is never shed")
        assert archives is not None
        found = [archive for name in names if (archive := archives.find(name)) is not None]
        states = [archive.state for archive in found]
        gone = [state.complete_from_us - 1 for state in states if state.complete_from_us is not None]
        if options.archive_from_us is not None:
            gone.append(options.archive_from_us - 1)
        start = min((state.files[0].lo if state.files else state.upto) for state in states)
        return PastSources(start, options.archive_from_us, max(gone, default=None))

    def begin(self, query: Query, past: PastSources) -> None:
        """Let the past into a query that was just spliced in."""
        made = CatchUp(self._host, self._journaling, query, past)
        query.catching_up = made
        with self._changed:
            self._queries.append(made)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="history", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def went_live(self, query: Query) -> None:
        """Tell that a query has caught up."""
        self._journaling.went_live(query)

    def stop(self) -> None:
        """Let nothing in any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def wait_stopped(self) -> None:
        """Return once nothing more is let in, or after STOP_S: a store may not answer."""
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _run(self) -> None:
        give_way()
        while True:
            with self._changed:
                while not self._queries and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                present = list(self._queries)
            advanced = [self._advance(one) for one in present]  # each has its turn
            if not any(advanced):
                with self._changed:
                    if not self._stopping:
                        self._changed.wait(LOOK_S)

    def _advance(self, one: CatchUp) -> bool:
        if one.is_over:
            self._leave(one)
            return True
        try:
            done = not self.holds_back(one.query) and one.step()
        except (ServerError, OSError):  # the disk or a store: it may come back, and the journal or the archive has told
            one.put_off()
            return False
        except Exception as error:
            self._leave(one)
            self._execute(partial(self._fail, one, error))
            return True
        if done is None:
            with self._changed:
                self._queries.remove(one)
            self._execute(partial(self._go_live, one))
            return True
        return bool(done)

    def _leave(self, one: CatchUp) -> None:
        with self._changed:
            if one in self._queries:
                self._queries.remove(one)
        one.release()
        if one.query.catching_up is one:
            one.query.catching_up = None

    # --- on the thread that executes statements ---

    def _fail(self, one: CatchUp, error: Exception) -> None:
        query = one.query
        running = None if query.id is None else self._host.network.queries.get(query.id)
        if running is not None and not one.is_over:
            operator = running.blueprint.operators[-1].id
            self._host.network.end_query(running, operator, error)

    def _go_live(self, one: CatchUp) -> None:
        try:
            one.go_live()
        except NotYet:
            one.put_off()
        except (Unsupported, InvalidDefinition):
            one.stays = True
        except (EngineError, SchedulerError, ServerError, OSError) as error:
            self._host.observer.reported("history_waits", f"query {one.query.name} does not go live yet: {error}")
            one.put_off()
        else:
            self._leave(one)
            if one.query.identity:
                with suppress(ServerError):
                    self._host.remember_run(one.query)
            self.went_live(one.query)
            return
        with self._changed:
            self._queries.append(one)
            self._changed.notify_all()


def _is_ahead(log: OutputLog) -> bool:
    return log.rows_held > AHEAD_ROWS_MAX or log.bytes_held > AHEAD_BYTES_MAX


def _refused(why: str, hint: str) -> Unsupported:
    return Unsupported(f"history = 'archive' is not for this query: {why}", hint=hint)
