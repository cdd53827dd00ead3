"""Faults planted into the program, to see that worlds find them: each is a patch of one method, as a careless change might make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any
from unittest import mock

from millstream.engine.flow.accounts import StreamLedger
from millstream.server.durability import checkpoints, recovery
from millstream.server.durability.recovery import Recovery
from millstream.server.host import running
from millstream.server.journal.journal import Journal
from millstream.server.journal.records import ROWS
from millstream.server.journal.store import Store
from millstream.server.net.publishing import PublishingChannel
from millstream.server.results.results import ResultLog
from millstream.server.results.subscriptions import Feed, Subscription

Plant = Callable[[], AbstractContextManager[Any]]


def _ack_before_fsync() -> AbstractContextManager[Any]:
    return mock.patch.object(Journal, "when_safe", lambda self, place, safe, lost: safe())


def _failed_fsync_ignored() -> AbstractContextManager[Any]:
    real = Journal._force_once

    def force_once(self: Journal) -> None:
        def sync(handle: int) -> None:
            with suppress(OSError):
                type(self.disk).sync(self.disk, handle)

        with mock.patch.object(self.disk, "sync", sync):
            real(self)

    return mock.patch.object(Journal, "_force_once", force_once)


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


def _watermark_lost() -> AbstractContextManager[Any]:
    real = checkpoints._source_state
    return mock.patch.object(checkpoints, "_source_state", lambda source: {**real(source), "watermark_us": -(2**62)})


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


def _lost_credit() -> AbstractContextManager[Any]:
    """A publisher whose credit was held back once never gets it."""
    return mock.patch.object(PublishingChannel, "release", return_value=True)


def _fed_twice() -> AbstractContextManager[Any]:
    return mock.patch.object(Recovery, "_read_fed", return_value=None)


def _rows_counted_wrong_after_restart() -> AbstractContextManager[Any]:
    real = ResultLog.number_at
    return mock.patch.object(ResultLog, "number_at", lambda self, rows: real(self, rows + 1))


PLANTS: dict[str, Plant] = {
    "an ack before fsync": _ack_before_fsync,
    "a failed fsync ignored": _failed_fsync_ignored,
    "a token off by one": _token_off_by_one,
    "a skipped record": _skipped_record,
    "a lost cancel": _lost_cancel,
    "a result delivered twice": _result_twice,
    "a checkpoint ahead of the journal": _checkpoint_ahead,
    "a watermark lost at restart": _watermark_lost,
    "a late row not counted": _late_not_counted,
    "a lost deregistration": _lost_deregistration,
    "a table row not replayed": _table_row_not_replayed,
    "credit never given back": _lost_credit,
    "rows fed twice": _fed_twice,
    "a token from before a restart off by one": _rows_counted_wrong_after_restart,
}
