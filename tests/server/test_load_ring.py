"""The ring of counts: nothing is lost or made up, and it holds no more than it may."""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data.graph import LogId, OperatorId
from millstream.scheduler.drivers.live import Spent
from millstream.scheduler.events import Arrived, Tick
from millstream.scheduler.measured_graph import OperatorActivity
from millstream.server.host import load_ring
from millstream.server.host.live_runtime import RingBounds
from millstream.server.host.load_ring import BIN_NS, LoadRing, Mark, packed

MS = 1_000_000
S = 1_000 * MS
HOUR = 3_600 * S
BEGAN = 7 * S


def mark(at_ns: int, did: dict[OperatorId, OperatorActivity] | None = None) -> Mark:
    return Mark(at_ns, Spent(at_ns, 0, 0, 0), packed(did or {}))


def ring_of(kept_ns: int = HOUR, bytes_max: int = 2**26) -> LoadRing:
    return LoadRing(RingBounds(kept_ns, bytes_max), mark(BEGAN))


def came(log: int, at_ns: int, rows: int = 1, size: int = 8) -> Arrived:
    return Arrived(LogId(log), rows, rows * size, at_ns)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30 * MS), st.integers(1, 500)), max_size=80),
    st.sets(st.integers(0, 79), max_size=6),
    st.integers(1, 5),
)
def test_every_row_is_counted_once_on_its_log_within_ten_ms_of_when_it_came(
    trains: list[tuple[int, int, int]], marks: set[int], chunk_bins: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_ring, "CHUNK_BINS", chunk_bins)
        ring, now_ns, rows, sizes = ring_of(), BEGAN, Counter[int](), Counter[int]()
        times: dict[int, list[int]] = {}
        for number, (log, gap_ns, count) in enumerate(trains):
            now_ns += gap_ns
            ring.note([came(log, now_ns, count), Tick()])
            rows[log] += count
            sizes[log] += 8 * count
            times.setdefault(log, []).append(now_ns)
            if number in marks:
                ring.set_mark(mark(now_ns))
        load = ring.last(now_ns + S, HOUR, 10**9)
    assert not load.cut
    assert load.began_ns == BEGAN
    for log, found in rows.items():
        part = load.arrivals[load.arrivals[:, 0] == log]
        assert (int(part[:, 2].sum()), int(part[:, 3].sum())) == (found, sizes[log])
        assert len(part) == len(times[log])
        assert (np.abs(np.sort(part[:, 1]) - np.array(times[log])) <= BIN_NS).all()
    assert set(load.arrivals[:, 0].tolist()) == set(rows)


def test_a_train_that_comes_alone_keeps_its_time_and_several_are_spread() -> None:
    ring = ring_of()
    ring.note([came(1, BEGAN + 50 * MS, 100)])
    for at in (0, 1, 2, 3):
        ring.note([came(2, BEGAN + 80 * MS + at * MS, 3)])
    load = ring.last(BEGAN + S, HOUR, 1_000)
    assert load.arrivals[:, 1].tolist() == [BEGAN + 50 * MS, *(BEGAN + 80 * MS + at * BIN_NS // 4 for at in range(4))]
    assert load.arrivals[:, 2].tolist() == [100, 3, 3, 3, 3]


def test_the_recording_begins_at_the_mark_before_what_is_asked_unless_nothing_came_between() -> None:
    ring, second = ring_of(), OperatorActivity(5, 50, 500, {LogId(9): 7, LogId(8): 1})
    ring.note([came(1, BEGAN + 1 * S)])
    ring.set_mark(mark(BEGAN + 2 * S, {OperatorId(3): second, OperatorId(4): OperatorActivity(1, 1, 1, {})}))
    ring.note([came(1, BEGAN + 3 * S), came(1, BEGAN + 8 * S)])
    load = ring.last(BEGAN + 10 * S, 5 * S, 1_000)
    assert (load.began_ns, len(load.arrivals)) == (BEGAN + 2 * S, 2)
    assert load.mark.did == {OperatorId(3): second, OperatorId(4): OperatorActivity(1, 1, 1, {})}
    load = ring.last(BEGAN + 10 * S, 7 * S + 500 * MS, 1_000)
    assert (load.began_ns, len(load.arrivals)) == (BEGAN + 2 * S + 500 * MS, 2)
    assert ring.last(BEGAN + 10 * S, 9 * S, 1_000).mark.at_ns == BEGAN
    assert not load.cut


def test_of_more_rows_than_a_recording_takes_it_has_the_last_and_says_so() -> None:
    ring = ring_of()
    for second in range(1, 11):
        ring.note([came(1, BEGAN + second * S, 100)])
    load = ring.last(BEGAN + 11 * S, HOUR, 350)
    assert load.cut
    assert (load.began_ns, load.arrivals[:, 2].tolist()) == (BEGAN + 8 * S, [100, 100, 100])


def test_what_is_too_old_goes_also_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_ring, "CHUNK_BINS", 10)
    ring = ring_of(kept_ns=10 * S)
    for place in range(100):
        ring.note([came(place % 3, BEGAN + place * 100 * MS)])
        if place % 20 == 0:
            ring.set_mark(mark(BEGAN + place * 100 * MS))
    assert ring.bytes > 2_000
    assert not ring.wants_mark(BEGAN + 8 * S + 500 * MS)  # one has just been set
    assert ring.wants_mark(BEGAN + HOUR)
    assert ring.bytes < 500
    assert len(ring.marks) == 1
    load = ring.last(BEGAN + HOUR, 10 * S, 1_000)
    assert len(load.arrivals) == 0
    assert load.began_ns == BEGAN + HOUR - 10 * S


def test_the_bound_is_reached_and_held_by_bins_and_marks_together() -> None:
    bytes_max, operators = 2**20, 300
    ring, choice = ring_of(bytes_max=bytes_max), random.Random(1)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    now_ns = BEGAN
    for place in range(100_000):
        now_ns += choice.randrange(BIN_NS)
        ring.note([came(choice.randrange(50), now_ns)])
        if place % 10_000 == 9_999:
            did = {OperatorId(one): OperatorActivity(place, place, place, {LogId(one): place}) for one in range(operators)}
            ring.set_mark(mark(now_ns, did))
        assert ring.bytes <= bytes_max
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 0.75 * bytes_max < ring.bytes
    assert held < 1.25 * bytes_max
    load = ring.last(now_ns, HOUR, 10**9)
    assert load.cut
    assert 20_000 < load.arrivals[:, 2].sum() < 100_000
    assert load.mark.at_ns >= BEGAN + 1


def test_a_mark_that_does_not_fit_is_not_kept_and_the_ring_goes_on() -> None:
    ring = ring_of(bytes_max=2**20)
    ring.note([came(1, BEGAN + S)])
    did = {OperatorId(one): OperatorActivity(1, 1, 1, {LogId(1): 1}) for one in range(30_000)}
    ring.set_mark(mark(BEGAN + 2 * S, did))
    assert ring.marks == ()
    ring.note([came(1, BEGAN + 3 * S)])
    assert ring.bytes < 2**20
    load = ring.last(BEGAN + 4 * S, HOUR, 100)
    assert load.mark.at_ns == BEGAN
    assert load.arrivals[:, 2].sum() == 1


def test_threads_lose_no_row() -> None:
    ring, threads, each = ring_of(), 4, 5_000

    def note(number: int) -> None:
        for place in range(each):
            ring.note([came(1, BEGAN + place * MS), came(number, BEGAN + place * MS, 2)])

    running = [threading.Thread(target=note, args=(number + 2,)) for number in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join(60)
    load = ring.last(BEGAN + HOUR // 2, HOUR, 10**9)
    assert load.arrivals[:, 2].sum() == threads * each * 3


def test_no_counts_are_made_for_a_control_item_or_an_event_without_rows() -> None:
    ring = ring_of()
    ring.note([Arrived(LogId(1), 0), Tick()])
    assert not ring.is_fresh
    assert ring.bytes < 500
