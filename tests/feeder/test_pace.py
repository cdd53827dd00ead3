from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from millstream.feeder.pace import Ahead, Pacer, WallClock
from millstream.feeder.position import Position

from tests.feeder.fakes import Ack, FakeDaemon, JumpingClock, Rejection, arriving, target

A, B = target("a"), target("b")


def pacer(daemon: Any, clock: JumpingClock, totals: tuple[int, ...] = (0, 0), position: Position | None = None, **options: Any) -> Pacer:
    position = position or Position(("a", "b"))
    return Pacer(daemon, [A, B], totals, position, clock=clock, paced=options.pop("paced", True), **options)


def test_each_row_goes_out_when_it_is_due() -> None:
    clock = JumpingClock()
    daemon = FakeDaemon(clock)
    pacer(daemon, clock, (3, 0)).run([arriving([(0, 1, 100), (0, 2, 250)]), arriving([(0, 3, 900)])])
    assert [(rows[0]["v"], at - 1_000) for _, rows, at in daemon.published] == [(1, 100), (2, 250), (3, 900)]


def test_rows_due_at_once_go_out_together_stream_by_stream_in_order() -> None:
    clock = JumpingClock()
    daemon = FakeDaemon(clock)
    pacer(daemon, clock, (3, 2)).run([arriving([(0, 1, 50), (1, 2, 50), (0, 3, 50), (1, 4, 50), (0, 5, 60)])])
    assert [(name, [row["v"] for row in rows]) for name, rows, _ in daemon.published] == [("a", [1, 3]), ("b", [2, 4]), ("a", [5])]


def test_a_late_feed_catches_up_in_one_publish_and_says_how_late_it_was() -> None:
    clock = JumpingClock()

    def slow(stream: str, data: pa.RecordBatch) -> None:
        clock.time_ns += 1_000

    daemon = FakeDaemon(clock, slow)
    paced = pacer(daemon, clock, (4, 0))
    paced.run([arriving([(0, 1, 10), (0, 2, 20), (0, 3, 30), (0, 4, 40)])])
    assert [[row["v"] for row in rows] for _, rows, _ in daemon.published] == [[1], [2, 3, 4]]
    assert paced.tally.lag_ns_max == 1_000 + 10 - 20


def test_without_pacing_nothing_waits() -> None:
    clock = JumpingClock()
    daemon = FakeDaemon(clock)
    pacer(daemon, clock, (2, 1), paced=False).run([arriving([(0, 1, 0), (0, 2, 10**18), (1, 3, 10**18)])])
    assert clock.waits == []
    assert [name for name, _, _ in daemon.published] == ["a", "b"]


def test_a_stream_is_finished_right_after_its_last_row_and_an_empty_one_at_the_start() -> None:
    clock = JumpingClock()
    daemon = FakeDaemon(clock)
    Pacer(daemon, [A, B, target("c")], (1, 2, 0), Position(("a", "b", "c")), clock=clock, paced=True).run(
        [arriving([(0, 1, 10), (1, 2, 20), (1, 3, 30)])]
    )
    assert daemon.order == ["finish c", "publish a", "finish a", "publish b", "publish b", "finish b"]


def test_streams_stay_open_when_asked() -> None:
    clock = JumpingClock()
    daemon = FakeDaemon(clock)
    pacer(daemon, clock, (1, 0), finish=False).run([arriving([(0, 1, 10)])])
    assert daemon.finished == []


@pytest.mark.parametrize(("accepted", "finished"), [((0, 0), ["b"]), ((0, 1), ["b", "a"])])
def test_a_stream_that_refused_every_row_stays_open_and_each_reason_is_told_once(accepted: tuple[int, int], finished: list[str]) -> None:
    answers = iter(accepted)
    daemon = FakeDaemon(JumpingClock(), lambda stream, data: Ack(taken := next(answers), [Rejection(0, "no")] * (data.num_rows - taken)))
    paced = pacer(daemon, daemon.clock, (3, 0))
    paced.run([arriving([(0, 1, 10)]), arriving([(0, 2, 20), (0, 3, 20)])])
    assert (daemon.finished, paced.tally.reasons) == (finished, ["a: no"])


def test_stopping_leaves_the_rest_unsent_and_the_stream_open() -> None:
    clock = JumpingClock()
    daemon = FakeDaemon(clock)
    position = Position(("a", "b"))
    paced = pacer(daemon, clock, (3, 0), position)

    def stop_after_two(stream: str, data: pa.RecordBatch) -> None:
        if len(daemon.published) == 2:
            paced.stop.set()

    daemon.on_publish = stop_after_two
    paced.run([arriving([(0, 1, 10), (0, 2, 20), (0, 3, 30)])])
    assert daemon.values("a") == [1, 2]
    assert position.acked() == (2, 0)
    assert daemon.finished == ["b"]


def test_a_resumed_feed_does_not_wait_again_for_what_was_fed_before() -> None:
    clock = JumpingClock()
    daemon = FakeDaemon(clock)
    position = Position(("a", "b"), (7, 0))
    pacer(daemon, clock, (9, 0), position).run([arriving([(0, 8, 10**12), (0, 9, 10**12 + 500)])])
    assert [at - 1_000 for _, _, at in daemon.published] == [0, 500]
    assert position.acked() == (9, 0)
    assert daemon.finished == ["b", "a"]


def test_rejected_rows_are_counted_and_each_reason_is_told_once() -> None:
    clock = JumpingClock()

    def refuse(stream: str, data: pa.RecordBatch) -> Ack:
        return Ack(data.num_rows - 1, [Rejection(0, "ts is NULL")])

    paced = pacer(FakeDaemon(clock, refuse), clock, (30, 0))
    paced.run([arriving([(0, i, i * 100) for i in range(30)])])
    assert (paced.tally.sent, paced.tally.accepted, paced.tally.rejected) == (30, 0, 30)
    assert paced.tally.reasons == ["a: ts is NULL"]


def test_a_target_gets_its_own_columns_only() -> None:
    clock = JumpingClock()
    daemon = FakeDaemon(clock)
    batch = arriving([(0, 1, 10)]).append_column("other", pa.array([5]))
    pacer(daemon, clock, (1, 0)).run([batch])
    assert daemon.published[0][1] == [{"v": 1}]


def test_the_wall_clock_wakes_up_when_the_feed_stops() -> None:
    stop = threading.Event()
    stop.set()
    before_ns = WallClock().now_ns()
    WallClock().wait_ns(60 * 10**9, stop)
    assert WallClock().now_ns() - before_ns < 10**9


def test_reading_ahead_keeps_the_order_and_is_bounded() -> None:
    made: list[int] = []
    seen = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for i in range(10):
            made.append(i)
            seen.release()
            yield i

    with Ahead(items, ahead_max=2) as ahead:
        for _ in range(3):  # two in the queue, one in the hand of the reader
            assert seen.acquire(timeout=10)
        assert next(ahead) == 0
        assert [*ahead] == list(range(1, 10))
        assert made == list(range(10))


def test_reading_ahead_stops_when_nobody_takes_any_more() -> None:
    with Ahead(lambda: iter(range(10**9)), ahead_max=1) as ahead:
        assert next(ahead) == 0


def test_what_the_source_raises_reaches_the_consumer_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    with Ahead(items) as ahead:
        assert next(ahead) == 1
        with pytest.raises(OSError, match="the disk is gone"):
            next(ahead)
        with pytest.raises(OSError, match="the disk is gone"):
            next(ahead)
