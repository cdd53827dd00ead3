"""Faults planted into the program, to see that worlds find them: each is a patch of one method, as a careless change might make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from typing import Any
from unittest import mock

from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.flow.accounts import StreamLedger
from millstream.engine.receipts.keepers import IntervalCounts
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.events import Arrived
from millstream.server.durability import recovery
from millstream.server.durability.checkpoints import Checkpoint
from millstream.server.durability.recovery import Recovery
from millstream.server.host import running
from millstream.server.journal.journal import Journal
from millstream.server.journal.records import ROWS
from millstream.server.journal.store import Store
from millstream.server.results.subscriptions import Feed, Subscription
from millstream.server.workers.process import Installed

Plant = Callable[[], AbstractContextManager[Any]]


def _ack_before_fsync() -> AbstractContextManager[Any]:
    return mock.patch.object(Journal, "when_safe", lambda self, place, safe, lost: safe())


def _token_off_by_one() -> AbstractContextManager[Any]:
    """A token is taken to name the first result that its owner has not had, instead of the last that he has."""
    real = Feed.start_of

    def start_of(self: Feed, *, from_start: bool, token: str | None, reader: object = None) -> tuple[int, int]:
        cursor, lost = real(self, from_start=from_start, token=token, reader=reader)
        return (min(cursor + 1, self.log.next_number) if token is not None else cursor), lost

    return mock.patch.object(Feed, "start_of", start_of)


def _skipped_record() -> AbstractContextManager[Any]:
    real = Recovery._records

    def records(self: Recovery) -> Iterator[Any]:
        for number, record in enumerate(real(self)):
            if record.kind != ROWS or number % 11 != 10:
                yield record

    return mock.patch.object(Recovery, "_records", records)


def _lost_cancel() -> AbstractContextManager[Any]:
    return mock.patch.object(running, "release", return_value=0)


def _result_twice() -> AbstractContextManager[Any]:
    real = Feed.join

    def join(self: Feed, subscription: Subscription, rows_lost: int, now_ns: int) -> None:
        if 1 < subscription.cursor < self.log.next_number:
            subscription.cursor -= 1
        real(self, subscription, rows_lost, now_ns)

    return mock.patch.object(Feed, "join", join)


def _checkpoint_ahead() -> AbstractContextManager[Any]:
    """The segment begins a row before the place at which the checkpoint says that it stands."""
    real = Recovery._replay
    return mock.patch.object(Recovery, "_replay", lambda self, floor, checkpoint: real(self, floor + (checkpoint is not None), checkpoint))


def _late_not_counted() -> AbstractContextManager[Any]:
    return mock.patch.object(StreamLedger, "count_late", lambda self, seqs: [True] * len(seqs))


def _lost_deregistration() -> AbstractContextManager[Any]:
    real = Store.forget
    return mock.patch.object(Store, "forget", lambda self, definitions, queries: real(self, definitions, queries[1:]))


def _table_row_not_replayed() -> AbstractContextManager[Any]:
    real = recovery.Recovery._replay

    def replay(self: Recovery, floor: int, checkpoint: Any) -> None:
        tables = {number for name, number in self.journaling.numbers.items() if self.host.network.sources[name].table is not None}
        kept = [record for record in self._records() if record.stream not in tables or record.lo % 3]
        with mock.patch.object(self, "_records", return_value=kept):
            real(self, floor, checkpoint)

    return mock.patch.object(Recovery, "_replay", replay)


def _fed_twice() -> AbstractContextManager[Any]:
    return mock.patch.object(Recovery, "_read_fed", return_value=None)


def _watermark_lost() -> AbstractContextManager[Any]:
    """A checkpoint that forgets how far event time had come."""
    real = Recovery._stand

    def stand(self: Recovery, checkpoint: Checkpoint) -> None:
        for state in checkpoint.sources.values():
            state["watermark_us"] = TIME_MIN
        real(self, checkpoint)

    return mock.patch.object(Recovery, "_stand", stand)


def _gap_too_small() -> AbstractContextManager[Any]:
    """A reader that loses results is told of one too few."""
    real = Feed._skip

    def skip(self: Feed, subscription: Subscription) -> None:
        real(self, subscription)
        subscription.cursor += subscription.cursor < self.log.next_number

    return mock.patch.object(Feed, "_skip", skip)


def _receipt_without_loss() -> AbstractContextManager[Any]:
    """What is shed is counted, and stands in no receipt."""
    real = IntervalCounts.add
    return mock.patch.object(IntervalCounts, "add", lambda self, cells, offered, shed: real(self, cells, offered, 0 * shed))


def _reader_without_bound() -> AbstractContextManager[Any]:
    """Results are held for a slow reader however many they are."""
    return mock.patch.object(Feed, "_too_slow", return_value=None)


def _starving_queue() -> AbstractContextManager[Any]:
    """The scheduler does not hear of every 13th arrival of rows: they wait until others come."""
    real, heard = SchedulerCore._take_arrived, count(1)

    def take_arrived(self: SchedulerCore, event: Arrived, now_ns: int) -> None:
        if next(heard) % 13:
            real(self, event, now_ns)

    return mock.patch.object(SchedulerCore, "_take_arrived", take_arrived)


def _forgotten_with_its_worker() -> AbstractContextManager[Any]:
    """A worker that starts anew begins with the last snapshots alone."""
    return mock.patch.object(Installed, "keep", return_value=None)


PLANTS: dict[str, Plant] = {
    "an ack before fsync": _ack_before_fsync,
    "a token off by one": _token_off_by_one,
    "a skipped record": _skipped_record,
    "a lost cancel": _lost_cancel,
    "a result delivered twice": _result_twice,
    "a checkpoint ahead of the journal": _checkpoint_ahead,
    "a late row not counted": _late_not_counted,
    "a lost deregistration": _lost_deregistration,
    "a table row not replayed": _table_row_not_replayed,
    "rows fed twice": _fed_twice,
    "the watermark is lost at a restart": _watermark_lost,
    "a gap that is told too small": _gap_too_small,
    "a receipt without the loss": _receipt_without_loss,
    "a slow reader without a bound": _reader_without_bound,
    "a starving queue": _starving_queue,
    "what a worker had done is gone with it": _forgotten_with_its_worker,
}
