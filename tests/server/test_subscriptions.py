"""Subscriptions over a result log: order, bounds, gaps, resumption, replacement. A fake connection stands for the client."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.column import CellColumn, Column
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.train import Numbers, Train
from millstream.engine.data.types import BIGINT, DOUBLE, TEXT, TIMESTAMP
from millstream.engine.data.watermarks import RowTrack
from millstream.protocol.messages import End, Gap, Result
from millstream.server.results.results import ENTRY_BYTES, FLAT_BYTES, ResultEntry, ResultLog
from millstream.server.results.subscriptions import RESULTS_AT_ONCE, STALLED_NS, Feed, ReaderBounds, Subscription
from millstream.server.results.trains import ResultRows, ResultShape, pieces_of

ROW_BYTES = 8 + ENTRY_BYTES  # each row is a result of its own


class FakeReader:
    """Takes `credit` more rows; keeps what it was told."""

    def __init__(self, client_id: str | None = None, credit: int = 10**9) -> None:
        self.client_id = client_id
        self.credit = credit
        self.told: list[Any] = []
        self.was_replaced = self.was_cut_off = False
        self.faults: list[Exception] = []
        self.turns: list[Callable[[int], None]] = []

    def in_turn(self, call: Callable[[int], None]) -> None:
        self.turns.append(call)

    def can_send(self, subscription: int, rows: int) -> bool:
        return self.credit > 0

    def send(self, message: Any) -> None:
        if isinstance(message, Result):
            self.credit -= message.rows
        self.told.append(message)

    def replaced(self) -> None:
        self.was_replaced = True

    def report(self, error: Exception) -> None:
        self.faults.append(error)

    def fail(self, error: Exception) -> None:
        self.faults.append(error)
        self.was_cut_off = True

    @property
    def values(self) -> list[int]:
        return [v for m in self.told if isinstance(m, Result) for v in m.values]

    @property
    def end(self) -> End:
        (found,) = [m for m in self.told if isinstance(m, End)]
        return found

    @property
    def lost(self) -> int:
        return sum(m.rows_lost for m in self.told if isinstance(m, Gap))


def encode(entry: ResultEntry) -> dict[str, Any]:
    return {"values": entry.batch.column(0).to_pylist()}


def new_feed(bytes_max: int = 10**9, slow: str = "disconnect", kept: int = 0, *, hold: bool = False) -> Feed:
    return Feed("q", ResultLog("a1", kept, 10**18), ReaderBounds(bytes_max, slow), hold_for_first=hold)


def subscribe(feed: Feed, reader: FakeReader, number: int = 1, now_ns: int = 0, **where: Any) -> Subscription:
    cursor, lost = feed.start_of(from_start=where.get("from_start", False), token=where.get("token"))
    subscription = Subscription(feed, reader, number, cursor, encode, now_ns)
    feed.join(subscription, lost, now_ns)
    return subscription


def publish(feed: Feed, *values: int, now_ns: int = 0) -> None:
    for value in values:
        feed.publish(pa.record_batch([pa.array([value], pa.int64())], names=["v"]), {}, now_ns)


class LookedAt(list[Any]):
    """Entries of a log whose kept bytes another thread reads just after each change of them."""

    log: ResultLog
    seen: list[int]

    def append(self, entry: Any) -> None:
        super().append(entry)
        self.seen.append(self.log.kept_bytes)

    def __delitem__(self, at: Any) -> None:
        super().__delitem__(at)
        self.seen.append(self.log.kept_bytes)


def test_another_thread_may_read_what_a_log_keeps_while_that_changes() -> None:
    log = ResultLog("a1", 5 * ROW_BYTES, 10**18)
    entries = log._entries = LookedAt()
    entries.log, entries.seen = log, []
    for number in range(3_000):
        log.append(None, {}, number)
        log.trim(number, needed_from=log.next_number)
    assert len(entries.seen) > 3_000, "some were let go of"
    assert max(entries.seen) <= 6 * ROW_BYTES
    assert log.kept_bytes == sum(ENTRY_BYTES for _ in log.kept())


def test_a_late_subscriber_gets_results_from_now_on() -> None:
    feed, reader = new_feed(kept=1000 * ROW_BYTES), FakeReader()
    publish(feed, 1, 2)
    subscribe(feed, reader)
    publish(feed, 3)
    assert reader.values == [3]


def test_from_start_gives_what_is_kept_and_tells_how_much_is_not() -> None:
    feed, reader = new_feed(kept=2 * ROW_BYTES), FakeReader()
    publish(feed, 1, 2, 3, 4, 5)
    subscribe(feed, reader, from_start=True)
    assert (reader.lost, reader.values) == (3, [4, 5])


def test_the_first_subscriber_of_a_temporary_query_misses_nothing() -> None:
    feed, first, second = new_feed(hold=True), FakeReader(), FakeReader()
    publish(feed, 1, 2)
    subscribe(feed, first)
    subscribe(feed, second)
    publish(feed, 3)
    assert (first.values, second.values) == ([1, 2, 3], [3])


def test_a_reader_that_begins_far_back_is_served_in_turns_and_is_not_too_slow_meanwhile() -> None:
    feed = new_feed(bytes_max=2 * ROW_BYTES, kept=10**9)
    count = 2 * RESULTS_AT_ONCE + 10
    publish(feed, *range(count))
    reader, other = FakeReader(), FakeReader()
    subscription = subscribe(feed, reader, from_start=True)
    subscribe(feed, other)
    assert reader.values == list(range(RESULTS_AT_ONCE))
    publish(feed, count, now_ns=10 * STALLED_NS)
    feed.check(20 * STALLED_NS)
    subscription.pump(20 * STALLED_NS)
    assert len(reader.values) == RESULTS_AT_ONCE, "what asks it to send before its turn has come waits too"
    assert other.values == [count], "and nobody waits for it"
    assert not subscription.ended
    for sent in (2 * RESULTS_AT_ONCE, count + 1):
        (turn,) = reader.turns
        reader.turns.clear()
        turn(30 * STALLED_NS)
        assert reader.values == list(range(sent))
    assert not reader.turns
    publish(feed, count + 1, now_ns=30 * STALLED_NS)
    assert reader.values[-1] == count + 1
    assert not subscription.has_turn


def test_a_reader_that_has_ended_or_has_no_credit_when_its_turn_comes_sends_no_more() -> None:
    feed = new_feed(kept=10**9)
    publish(feed, *range(3 * RESULTS_AT_ONCE))
    ended, slow = FakeReader(), FakeReader(credit=RESULTS_AT_ONCE + 1)
    subscribe(feed, ended, from_start=True).finish("closed")
    subscription = subscribe(feed, slow, from_start=True)
    for reader in (ended, slow):
        reader.turns.pop()(0)
        assert not reader.turns
    assert len(ended.values) == RESULTS_AT_ONCE
    assert len(slow.values) == RESULTS_AT_ONCE + 1
    assert not subscription.has_turn, "so that credit makes it go on at once"


def test_a_token_resumes_after_the_result_that_carried_it() -> None:
    feed, reader, again = new_feed(kept=1000 * ROW_BYTES), FakeReader(), FakeReader()
    subscribe(feed, reader)
    publish(feed, 1, 2, 3)
    token = reader.told[0].meta["resume_token"]
    subscribe(feed, again, token=token)
    publish(feed, 4)
    assert (again.values, again.lost) == ([2, 3, 4], 0)


def test_a_token_older_than_what_is_kept_gives_a_gap_with_the_number_lost() -> None:
    feed, reader, again = new_feed(kept=2 * ROW_BYTES), FakeReader(), FakeReader()
    subscribe(feed, reader)
    publish(feed, 1, 2, 3, 4, 5)
    subscribe(feed, again, token=reader.told[0].meta["resume_token"])
    assert (again.lost, again.values) == (2, [4, 5])


@pytest.mark.parametrize("token", ["", "x", "m1.b2.1.1", "m1.a1.99.99"])
def test_a_token_of_another_run_is_refused(token: str) -> None:
    feed = new_feed()
    publish(feed, 1)
    with pytest.raises(ValueError, match="not of this run"):
        feed.start_of(from_start=False, token=token)


def test_results_wait_for_credit_and_then_come_in_order() -> None:
    feed, reader = new_feed(), FakeReader(credit=2)
    subscription = subscribe(feed, reader)
    publish(feed, 1, 2, 3, 4)
    assert reader.values == [1, 2]
    reader.credit = 10
    subscription.pump(0)
    assert reader.values == [1, 2, 3, 4]


def test_a_reader_that_stands_still_is_cut_off_with_a_token_and_others_do_not_notice() -> None:
    feed, slow, fast = new_feed(bytes_max=10 * ROW_BYTES, kept=100 * ROW_BYTES), FakeReader(credit=0), FakeReader()
    subscribe(feed, slow)
    subscribe(feed, fast, 2)
    publish(feed, *range(10), now_ns=0)
    assert feed.is_pressed(0)
    publish(feed, 10, now_ns=STALLED_NS)
    assert not feed.is_pressed(STALLED_NS)
    assert (slow.end.reason, slow.values, fast.values) == ("slow", [], list(range(11)))
    assert feed.slow_total == 1
    again = FakeReader()
    subscribe(feed, again, 3, token=slow.end.resume_token)
    assert again.values == list(range(11))


def test_a_result_that_cannot_be_made_for_one_reader_ends_its_subscription_alone() -> None:
    def fails(entry: ResultEntry) -> dict[str, Any]:
        raise ValueError("cannot be told")

    feed, broken, well = new_feed(kept=2 * ROW_BYTES), FakeReader(), FakeReader()
    feed.join(Subscription(feed, broken, 1, 1, fails, 0), 0, 0)
    subscribe(feed, well, 2)
    publish(feed, 1, 2)
    assert (broken.end.reason, broken.end.message) == ("failed", "a result of 1 rows cannot be sent to this reader: ValueError")
    assert [type(f) for f in broken.faults] == [ValueError]
    assert (well.values, broken.was_cut_off) == ([1, 2], False)
    again = FakeReader()
    subscribe(feed, again, 3, token=broken.end.resume_token)
    assert again.values == [1, 2]


class MuteReader(FakeReader):
    """Cannot be told anything but results."""

    def send(self, message: Any) -> None:
        if not isinstance(message, Result):
            raise TypeError("no")
        super().send(message)


@pytest.mark.parametrize("slow", ["disconnect", "gap"])
def test_a_reader_that_cannot_be_told_that_it_was_too_slow_loses_its_connection_and_others_do_not_notice(slow: str) -> None:
    feed, mute, well = new_feed(bytes_max=2 * ROW_BYTES, slow=slow), MuteReader(credit=0), FakeReader()
    subscribe(feed, mute)
    subscribe(feed, well, 2)
    publish(feed, *range(6))
    feed.check(STALLED_NS)
    assert mute.was_cut_off
    assert well.values == list(range(6))


def test_what_was_made_of_a_result_for_a_late_reader_is_let_go_of() -> None:
    shape = ResultShape(Schema((Field("v", BIGINT), Field("t", TEXT))))
    columns = [Column(BIGINT, np.full(3, 7)), Column(TEXT, pa.array(["x"] * 3))]
    feed = new_feed(kept=1000)
    plain, arrow = ResultRows(shape, columns, 3), ResultRows(shape, columns, 3)
    early, late = FakeReader(), FakeReader(credit=0)

    def encode_rows(entry: ResultEntry) -> dict[str, Any]:
        assert entry.batch.payload() is not None
        return {"values": entry.batch.to_arrow().column(0).to_pylist()}

    for number, reader in enumerate((early, late), 1):
        feed.join(Subscription(feed, reader, number, 1, encode_rows, 0), 0, 0)
    for rows in (plain, arrow):
        feed.publish(rows, {}, 0)
    late.credit = 6
    for subscription in feed.subscriptions:
        subscription.pump(0)
    assert early.values == late.values == [7] * 6
    assert [(rows._payload, rows._batch) for rows in (plain, arrow)] == [(None, None)] * 2


def test_a_reader_that_takes_results_slowly_is_waited_for() -> None:
    feed, reader = new_feed(bytes_max=10 * ROW_BYTES), FakeReader(credit=0)
    subscription = subscribe(feed, reader)
    for value in range(12):
        now_ns = value * STALLED_NS // 4
        publish(feed, value, now_ns=now_ns)
        reader.credit = 1 if value % 2 == 0 else 0
        subscription.pump(now_ns)
        feed.check(now_ns)
    assert feed.is_pressed(now_ns)
    reader.credit = 100
    subscription.pump(now_ns)
    assert reader.values == list(range(12))


def test_however_slowly_it_takes_them_no_more_than_twice_the_bound_waits() -> None:
    feed, reader = new_feed(bytes_max=10 * ROW_BYTES), FakeReader(credit=0)
    subscribe(feed, reader)
    publish(feed, *range(21))
    assert reader.end.reason == "slow"
    assert feed.log.kept_bytes == 0


def test_with_gaps_the_newest_results_come_and_the_number_lost_is_exact() -> None:
    feed, reader = new_feed(bytes_max=10 * ROW_BYTES, slow="gap"), FakeReader(credit=0)
    subscription = subscribe(feed, reader)
    publish(feed, *range(100))
    reader.credit = 1000
    subscription.pump(0)
    assert reader.values == list(range(reader.lost, 100))
    assert reader.lost >= 90


def test_the_same_client_subscribing_again_replaces_its_old_subscription() -> None:
    feed, old, new, other = new_feed(), FakeReader("c1"), FakeReader("c1"), FakeReader("c2")
    subscribe(feed, old)
    subscribe(feed, other)
    subscribe(feed, new)
    publish(feed, 1)
    assert (old.values, new.values, other.values) == ([], [1], [1])
    assert old.was_replaced
    assert old.end.reason == "replaced"
    assert len(feed.subscriptions) == 2


def test_two_connections_without_an_id_both_stay() -> None:
    feed, one, two = new_feed(), FakeReader(), FakeReader()
    subscribe(feed, one)
    subscribe(feed, two)
    publish(feed, 1)
    assert (one.values, two.values) == ([1], [1])


def test_the_end_comes_after_all_results_and_says_why() -> None:
    feed, reader = new_feed(), FakeReader(credit=1)
    subscription = subscribe(feed, reader)
    publish(feed, 1, 2)
    feed.finish("finished", "", {"accepted": 2}, 0)
    assert not any(isinstance(m, End) for m in reader.told)
    reader.credit = 5
    subscription.pump(0)
    assert (reader.values, reader.end.reason, reader.end.counts) == ([1, 2], "finished", {"accepted": 2})
    assert feed.subscriptions == []


def test_subscribing_after_the_end_gives_what_is_kept_and_the_end() -> None:
    feed, reader = new_feed(kept=1000 * ROW_BYTES), FakeReader()
    publish(feed, 1)
    feed.finish("finished", "", {}, 0)
    subscribe(feed, reader, from_start=True)
    assert (reader.values, reader.end.reason) == ([1], "finished")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["publish", "credit", "resume"]), st.integers(1, 5)), max_size=40),
    st.sampled_from(["disconnect", "gap"]),
)
def test_no_result_comes_twice_or_out_of_order_and_what_is_missing_was_told(steps: list[tuple[str, int]], slow: str) -> None:
    feed = new_feed(bytes_max=4 * ROW_BYTES, slow=slow, kept=6 * ROW_BYTES)
    reader = FakeReader(credit=0)
    subscription = subscribe(feed, reader)
    published, seen, lost = 0, [], 0
    for step, count in steps:
        if step == "publish":
            publish(feed, *range(published, published + count))
            published += count
        elif step == "credit":
            reader.credit = count
            subscription.pump(0)
        elif subscription.ended:
            seen, lost = seen + reader.values, lost + reader.lost
            token, reader = reader.end.resume_token, FakeReader(credit=0)
            subscription = subscribe(feed, reader, token=token)
    reader.credit = 10**9
    subscription.pump(0)
    seen, lost = seen + reader.values, lost + reader.lost
    assert seen == sorted(set(seen))
    if not subscription.ended:
        assert len(seen) + lost == published


KEPT = ResultShape(Schema((Field("v", BIGINT), Field("x", DOUBLE), Field("t", TEXT))))


def few(numbers: Sequence[int]) -> ResultRows:
    cells = [CellColumn(BIGINT, tuple(numbers)), CellColumn(DOUBLE, [0.5] * len(numbers)), CellColumn(TEXT, ["é"] * len(numbers))]
    return ResultRows(KEPT, cells, len(numbers))


def keep(log: ResultLog, rows: ResultRows | None, meta: dict[str, Any], now_ns: int = 0) -> ResultEntry:
    entry = log.append(rows, meta, now_ns)
    log.settle(entry)
    return entry


@pytest.mark.parametrize("rows", [1, 3])
def test_kept_results_of_few_rows_are_nothing_that_the_collector_looks_at_again(rows: int) -> None:
    log = ResultLog("a1", 10**12, 10**18)
    keep(log, few(range(rows)), {"position": 1})
    gc.collect()
    tracked = len(gc.get_objects())
    for number in range(1_000):
        keep(log, few(range(number, number + rows)), {"position": number, "watermark_us": 10**15 + number}, number)
    gc.collect()
    assert len(gc.get_objects()) - tracked < 10


def test_kept_results_come_back_as_they_were() -> None:
    log = ResultLog("a1", 10**12, 10**18, rows_before=5)
    metas: list[dict[str, Any]] = [
        {},
        {"position": 2, "watermark_us": 7},
        {"position": 3, "share_seen": 0.5},
        {"position": 4},
        {"position": 5},
    ]
    arrays = ResultRows(KEPT, [Column(BIGINT, np.array([8])), Column(DOUBLE, np.array([0.5])), Column(TEXT, pa.array(["é"]))], 1)
    results = [few([1]), few([2, 3, 4]), few([5]), arrays, None]
    made = []
    for number, (rows, meta) in enumerate(zip(results, metas, strict=True)):
        made.append((None if rows is None else (rows.to_arrow(), rows.payload(), rows.nbytes), meta))
        keep(log, rows, meta, 10 + number)
    found = log.kept()
    assert [(None if e.batch is None else (e.batch.to_arrow(), e.batch.payload(), e.batch.nbytes), e.meta) for e in found] == made
    assert [(e.number, e.rows, e.rows_before, e.recorded_ns) for e in found] == [
        (1, 1, 5, 10),
        (2, 3, 6, 11),
        (3, 1, 9, 12),
        (4, 1, 10, 13),
        (5, 0, 11, 14),
    ]
    sizes = [log.bytes_before(number + 1) - log.bytes_before(number) for number in range(1, 6)]
    assert sizes == [FLAT_BYTES + 22, FLAT_BYTES + 66, ENTRY_BYTES + 22, ENTRY_BYTES + 22, ENTRY_BYTES]
    assert [log.number_at(row) for row in range(5, 12)] == [1, 2, 2, 2, 3, 4, 6]
    rest = found[1].without(2)
    assert rest.batch.to_arrow() == found[1].batch.to_arrow().slice(2)


def test_results_of_one_row_are_counted_with_what_they_hold_besides_it() -> None:
    """Else the bound on results that are kept, or wait for a reader, is one on a fiftieth of the memory they take."""
    schema = Schema(tuple(Field(f"c{i}", type_) for i, type_ in enumerate((TIMESTAMP, BIGINT, DOUBLE))))
    shape, log = ResultShape(schema), ResultLog("a1", 10**12, 10**18)

    def publish_row(number: int) -> None:
        values = (10**15 + number, 10**6 + number, 0.5 + number)
        cells = [CellColumn(f.type, (value,)) for f, value in zip(schema.fields, values, strict=True)]
        numbers = {name: Numbers(1, start=number) for name in ("seq", "time", "arrival")}
        track = RowTrack(number, number + 1, 0, 10**15 + number, 0, number)
        ((rows, meta),) = pieces_of(shape, Train(schema, cells, rows=1, lo=number, hi=number + 1, track=track, **numbers))
        rows.payload()
        keep(log, rows, meta, number)

    publish_row(0)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, 2_001):
            publish_row(number)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = log.kept_bytes - log.bytes_before(2)
    assert 0.5 * held <= counted <= 2.0 * held
