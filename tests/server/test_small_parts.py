"""The small parts of the rim: log lines, roles, the bridge, places of rows, held rows, the conservation alarm."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import platform
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data.column import Column
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import BIGINT, TEXT
from millstream.server.app import Application
from millstream.server.config import Config
from millstream.server.errors import Denied
from millstream.server.host.intake import RowPlaces
from millstream.server.host.side_streams import DeferredFeeder
from millstream.server.journal.records import ROWS, Record, encode, find, record_of, rows_data
from millstream.server.journal.store import Store
from millstream.server.lean import ARENAS_MAX, one_by_one
from millstream.server.logs import LOG_BYTES_MAX, LogLines, configure_logs, finish_logs, logger
from millstream.server.net.loop import Bridge, Outbox, TurnQueue
from millstream.server.net.security import AccessRole, require, role_of
from millstream.server.net.session import Session
from millstream.server.results.feeds import CHECKED_MAX, Feeds, KeptBounds, QueryFeed, RunOfResults
from millstream.server.results.results import KeptShare, ResultLog
from millstream.server.results.subscriptions import Feed, ReaderBounds
from millstream.server.results.trains import LOOKED_AT_FROM, WAITING_BYTES_MAX, WAITING_TRAINS_MAX, WaitingResults
from millstream.server.watch.memory_watch import QUIET_LOOKS, MemoryWatch

WAIT_S = 60.0


def test_log_lines_are_json_away_from_a_terminal_and_carry_their_context() -> None:
    out = io.StringIO()
    configure_logs("info", "auto", out)
    logger(connection=3).info("connected", role="admin")
    logger().debug("too_fine")
    logger().error("failed", exc_info=ValueError("broken"))
    finish_logs()
    first, second = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (first["event"], first["connection"], first["role"], first["level"]) == ("connected", 3, "admin", "info")
    assert "ValueError: broken" in second["exception"]


def test_a_log_that_cannot_be_written_stops_nothing_and_tells_what_it_lost() -> None:
    class Pipe(io.StringIO):
        broken = False

        def write(self, text: str) -> int:
            if self.broken:
                raise BrokenPipeError
            return super().write(text)

    out = Pipe()
    lines = LogLines(out)
    lines.write("first\n")
    assert lines.settle(WAIT_S)
    out.broken = True
    for _ in range(3):
        lines.write("unheard\n")
        assert lines.settle(WAIT_S)
    out.broken = False
    lines.write("last\n")
    assert lines.settle(WAIT_S)
    first, lost, last = out.getvalue().splitlines()
    assert (first, json.loads(lost), last) == ("first", {"event": "log_lines_lost", "level": "error", "lines": 3}, "last")
    out.close()
    lines.write("too late\n")
    lines.finish(WAIT_S)
    assert lines.lost == 1


def test_a_log_whose_reader_stalls_holds_nobody_up_and_what_does_not_fit_is_counted() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        configure_logs("info", "json", stream)
    total = 3 * (LOG_BYTES_MAX + 65_536) // 1_000
    for number in range(total):  # with nobody reading: more than the pipe and all that may wait together
        logger().info("said", number=number, pad="x" * 1_000)
    ending = threading.Thread(target=finish_logs)
    ending.start()
    with os.fdopen(reading) as read:
        found = [json.loads(line) for line in read]
    ending.join()
    said = [line["number"] for line in found if line["event"] == "said"]
    lost = sum(line["lines"] for line in found if line["event"] == "log_lines_lost")
    assert said == sorted(set(said))
    assert lost > 0
    assert len(said) + lost == total


def test_without_tokens_everybody_is_admin_and_with_them_only_their_holders() -> None:
    assert role_of(Config(), None) is AccessRole.ADMIN
    config = Config(admin_token="a", reader_token="r")
    assert [role_of(config, t) for t in ("a", "r", "x", "", None)] == [AccessRole.ADMIN, AccessRole.READER, None, None, None]
    require(AccessRole.ADMIN, AccessRole.WRITER, "publishing")
    with pytest.raises(Denied, match="publishing needs the writer role and this connection has reader"):
        require(AccessRole.READER, AccessRole.WRITER, "publishing")


def test_everything_posted_to_the_bridge_arrives_in_order_with_few_wake_ups() -> None:
    async def main() -> None:
        got: list[tuple[int, int]] = []
        faults: list[Exception] = []
        wakes = 0
        loop = asyncio.get_running_loop()

        class Counting:
            def call_soon_threadsafe(self, callback: Any) -> None:
                nonlocal wakes
                wakes += 1
                loop.call_soon_threadsafe(callback)

        bridge: Bridge[tuple[int, int]] = Bridge(Counting(), got.append, faults.append)  # type: ignore[arg-type]
        threads = [threading.Thread(target=lambda n=n: [bridge.post((n, i)) for i in range(500)]) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await loop.run_in_executor(None, thread.join)
        await asyncio.sleep(0)
        bridge.drain()
        assert len(got) == 1500
        assert not faults
        assert all([i for m, i in got if m == n] == list(range(500)) for n in range(3))
        assert wakes <= len(got)

    asyncio.run(main())


def test_an_item_that_cannot_be_delivered_is_told_and_keeps_none_of_the_others_back() -> None:
    async def main() -> None:
        got: list[int] = []
        faults: list[Exception] = []

        def deliver(item: int) -> None:
            got.append(12 // item)

        bridge: Bridge[int] = Bridge(asyncio.get_running_loop(), deliver, faults.append)
        for item in (3, 0, 4, 0):
            bridge.post(item)
        bridge.drain()
        assert (got, [type(f) for f in faults], bridge.waiting) == ([4, 3], [ZeroDivisionError] * 2, 0)

    asyncio.run(main())


def test_a_sender_whose_connection_fails_keeps_nobody_from_being_written_to() -> None:
    deeds: list[str] = []

    class BrokenTransport:
        def get_extra_info(self, name: str) -> None:
            return None

        def is_closing(self) -> bool:
            return False

        def writelines(self, buffers: list[bytes]) -> None:
            raise OSError("broken")

        def abort(self) -> None:
            deeds.append("aborted")

    async def main() -> None:
        configure_logs("error", "json", io.StringIO())
        application = Application(Config(), Store(None))
        application.loop = asyncio.get_running_loop()
        broken = Session(application, BrokenTransport())  # type: ignore[arg-type]

        class Well:
            def flush(self) -> None:
                deeds.append("written")

        with application.outbox:
            application.outbox.add(broken)
            application.outbox.add(Well())
            broken._unsent = [b"x"]
        assert (deeds, broken.closed) == (["aborted", "written"], True)

    asyncio.run(main())
    finish_logs()


class Said:
    """A sender that remembers when it wrote."""

    def __init__(self, name: str, wrote: list[str]) -> None:
        self.name, self.wrote = name, wrote

    def flush(self) -> None:
        self.wrote.append(self.name)


def test_the_outbox_passes_on_what_others_have_to_write_and_keeps_back_who_is_reading() -> None:
    wrote: list[str] = []
    reader, other = Said("reader", wrote), Said("other", wrote)
    with Outbox() as outbox:
        outbox.reading = reader
        outbox.add(reader)
        outbox.add(other)
        outbox.pass_on()
        assert wrote == ["other"]
        outbox.add(other)
        with outbox:
            assert outbox.reading is reader
        assert wrote == ["other"]
    assert wrote == ["other", "reader", "other"]
    assert outbox.reading is None
    outbox.add(other)  # closed: it writes by itself
    assert len(wrote) == 3


def test_calls_in_turns_are_made_one_a_turn_of_the_loop_and_a_fault_of_one_is_not_the_others() -> None:
    soon: list[Callable[[], None]] = []
    wrote: list[str] = []
    outbox = Outbox()
    turns = TurnQueue(soon.append, outbox)

    def call(name: str, *then: str) -> None:
        outbox.add(Said(name, wrote))
        for more in then:
            turns.add(partial(call, more))
        if name == "bad":
            raise ValueError(name)

    for name in ("first", "bad", "third"):
        turns.add(partial(call, name, *(["fourth"] if name == "first" else [])))
    for expected in ("first", "bad", "third", "fourth"):
        assert len(soon) == 1
        try:
            soon.pop()()
        except ValueError:
            assert expected == "bad"
        assert wrote[-1] == expected, "written at the end of its turn"
    assert not soon
    turns.add(partial(call, "fifth"))
    soon.pop()()
    assert wrote == ["first", "bad", "third", "fourth", "fifth"]


def test_the_bridge_delivers_early_only_what_is_wanted_and_tells_of_what_cannot_be_delivered() -> None:
    async def main() -> None:
        got: list[Any] = []
        faults: list[Exception] = []

        def deliver(item: Any) -> None:
            if item == "bad":
                raise ValueError(item)
            got.append(item)

        bridge: Bridge[Any] = Bridge(asyncio.get_running_loop(), deliver, faults.append)
        for item in ("a", "bad", "b", 1, "c"):
            bridge.post(item)
        bridge.drain_early(str, lambda: got.append("then"))
        assert (got, bridge.waiting) == (["a", "b", "then"], 2)
        bridge.drain_early(str, got.clear)
        bridge.drain()
        assert got == ["a", "b", "then", 1, "c"]
        assert [str(fault) for fault in faults] == ["bad"]
        bridge.post("d")
        bridge.drain_early(str, lambda: deliver("bad"))
        assert got[-1] == "d"
        assert [str(fault) for fault in faults] == ["bad", "bad"]

    asyncio.run(main())


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=6), st.integers(0, 3))
def test_a_rows_place_is_its_number_among_all_that_were_offered(pushes: list[list[bool]], between: int) -> None:
    places, expected, offered, seq = RowPlaces(), {}, 0, 0
    for push in pushes:
        accepted = [i for i, good in enumerate(push) if good]
        if accepted:
            seqs = np.arange(seq, seq + len(accepted))
            numbers = np.array([offered + i + 1 for i in accepted])
            places.note(seqs, numbers)
            expected.update(zip(seqs.tolist(), numbers.tolist(), strict=True))
        seq += len(accepted) + between
        offered += len(push)
    wanted = np.arange(-1, seq + 1)
    assert places.of(wanted) == [expected.get(s) for s in wanted.tolist()]


def test_held_rows_enter_in_the_order_of_what_caused_them_then_of_the_queries() -> None:
    pushed: list[tuple[str, list[int]]] = []
    feeder = DeferredFeeder(lambda stream, columns, _: pushed.append((stream, columns[0].values.tolist())))
    feeder.feed("t", 2, np.array([1, 3]), [Column(BIGINT, np.array([21, 23]))])
    feeder.feed("t", 1, np.array([1, 1, 2]), [Column(BIGINT, np.array([111, 112, 12]))])
    feeder.feed("a", 1, np.array([9]), [Column(BIGINT, np.array([9]))])
    assert feeder.flush()
    assert pushed == [("a", [9]), ("t", [111, 112, 21, 12, 23])]
    assert not feeder.flush()


def test_results_that_wait_hold_the_publishers_of_their_own_stream_alone() -> None:
    async def main() -> None:
        application = Application(Config(), Store(None))
        application.loop = asyncio.get_running_loop()
        application.bridge = Bridge(application.loop, lambda item: item(), application.fault)
        busy, calm = WaitingResults(), WaitingResults()
        for name, waiting in (("busy", busy), ("calm", calm)):
            feed = Feed(name, ResultLog("a", 0, 0), ReaderBounds(1), hold_for_first=False)
            application.feeds.by_query[name] = QueryFeed(feed, Schema(()), (f"s_{name}", "s_both"), waiting, None, 1 << 20)
        for _ in range(WAITING_TRAINS_MAX + 1):
            application.bridge.post(lambda: busy.take(8))
            busy.add(8)
        assert [application.is_pressed(name) for name in ("s_busy", "s_calm", "s_both")] == [True, False, True]
        application.bridge.drain()
        assert (busy.trains, busy.bytes) == (0, 0)
        assert not application.is_pressed("s_busy")
        for _ in range(LOOKED_AT_FROM + 1):
            application.bridge.post(lambda: None)
        calm.add(WAITING_BYTES_MAX + 1)
        assert [application.is_pressed(name) for name in ("s_busy", "s_calm", "s_both")] == [False, True, True]

    asyncio.run(main())


def test_feeds_without_readers_and_results_are_left_alone_and_of_the_others_so_many_a_round_get_their_turn() -> None:
    feeds = Feeds(ReaderBounds(1 << 20), KeptBounds(1 << 20, 1 << 20, 10), lambda: 0, lambda s, look: None, lambda *which: None)
    for number in range(4 * CHECKED_MAX):
        run = RunOfResults("a", 0, {})
        feeds.open(f"q{number}", run, Schema(()), ("s",), WaitingResults(), None, kept_bytes_max=1 << 20)
    assert feeds.take_awake() == []
    awake = {f"q{number}" for number in range(2 * CHECKED_MAX)}
    for name in awake:
        feeds.publish(name, [(pa.record_batch([pa.array([1])], ["v"]), {})])
    seen: list[str] = []
    for now_ns in (0, 0, 20, 20):
        looked_at = feeds.take_awake()
        seen += [found.feed.query for found in looked_at]
        for found in looked_at:
            found.feed.check(now_ns)
            feeds.settle(found)
    assert len(seen) == 4 * CHECKED_MAX
    assert set(seen[: 2 * CHECKED_MAX]) == awake
    assert feeds.take_awake() == []  # what they kept was too old in the last two rounds
    feeds.publish("q0", [(pa.record_batch([pa.array([1])], ["v"]), {})])
    feeds.forget("q0")
    assert feeds.take_awake() == []


def test_what_each_query_keeps_is_an_even_part_of_what_all_may_keep() -> None:
    share = KeptShare(100)
    logs = [ResultLog("a", 1 << 20, 10**18, share=share) for _ in range(2)]
    share.count(2)
    batch = pa.record_batch([pa.array([1])], ["v"])
    for log in logs:
        for _ in range(3):
            log.append(batch, {}, 0)
        log.trim(0, log.next_number)
    assert [log.first_number for log in logs] == [4, 4]  # one result with its entry is larger than 50 bytes
    share.count(-2)  # as if both had gone
    share.total_bytes_max = 1 << 20
    share.count(1)
    logs[0].append(batch, {}, 0)
    logs[0].trim(0, logs[0].next_number)
    assert logs[0].first_number == 4


def test_memory_is_looked_at_once_a_row_has_come_and_seldom_while_only_queries_come() -> None:
    looks: list[int] = []
    memory = SimpleNamespace(is_busy=False, look=lambda: looks.append(1), ended=0, has_leaving=False, total_bytes=0)
    network = SimpleNamespace(memory=memory, ingress=SimpleNamespace(next_seq=0), version=0)
    watch = MemoryWatch(cast(Any, network), Config())

    def looked(rows: int, queries: int) -> int:
        network.ingress.next_seq += rows
        network.version += queries
        before = len(looks)
        watch.look()
        return len(looks) - before

    assert [looked(1, 1), looked(0, 0), looked(1, 0), looked(1, 1)] == [1, 0, 1, 1]
    assert sum(looked(0, 1) for _ in range(4 * QUIET_LOOKS)) == 4
    memory.is_busy = True
    assert [looked(0, 0), looked(0, 1)] == [1, 1]


def test_what_is_posted_while_the_bridge_is_drained_lets_the_loop_see_to_others_first() -> None:
    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), []

        def deliver(item: int) -> None:
            seen.append(item)
            if item < 3:
                bridge.post(item + 1)

        bridge: Bridge[int] = Bridge(loop, deliver, lambda error: None)
        bridge.post(1)
        bridge.drain()
        assert seen == [1]
        while bridge.waiting:
            await asyncio.sleep(0)
        assert seen == [1, 2, 3]

    asyncio.run(main())


def test_rows_read_from_a_journal_lie_aligned_and_hold_nothing_of_what_stood_beside_them() -> None:
    schema = Schema((Field("v", BIGINT), Field("t", TEXT)))
    columns = [Column(BIGINT, np.arange(5)), Column(TEXT, pa.array(["a", "bb", "", "c", "d"]))]
    buffers, _check = encode(Record(ROWS, 1, 0, 5, 7, {"fed": ["q", 1]}, rows_data(schema, columns)), 0, 0)
    written = b"".join(buffers)
    for shift in range(8):
        segment = memoryview(b"x" * shift + written)
        record = record_of(segment, find(segment, shift, 0))
        numbers, texts = record.columns(schema)
        held = [*texts.values.buffers(), pa.py_buffer(numbers.values)]
        assert [b.address % 8 for b in held if b is not None] == [0, 0, 0]
        assert (numbers.values.tolist(), texts.values.to_pylist()) == ([0, 1, 2, 3, 4], ["a", "bb", "", "c", "d"])
        start = np.frombuffer(segment, np.uint8).ctypes.data
        assert not any(start <= b.address < start + len(segment) for b in held if b is not None)


ARENAS = """
import ctypes, sys, threading
from millstream.server.lean import share_arenas
if sys.argv[1] == "shared":
    share_arenas()
system = ctypes.CDLL(None)
system.malloc.restype = ctypes.c_void_p
met = threading.Barrier(8)
def take():
    system.malloc(4_000)
    met.wait(30)
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
system.fdopen.restype = ctypes.c_void_p
system.fdopen.argtypes = [ctypes.c_int, ctypes.c_char_p]
system.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
system.fflush.argtypes = [ctypes.c_void_p]
stream = system.fdopen(1, b"w")
system.malloc_info(0, stream)
system.fflush(stream)
"""


FREED = """
from pathlib import Path
from millstream.server.lean import trim_arenas
def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) / 256
held = [bytes(100_000) for _ in range(1_000)]
last = bytes(100_000)
del held
before = resident_mb()
trim_arenas()
print(before - resident_mb())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are glibc's")
def test_what_is_freed_before_what_is_in_use_goes_back_to_the_system() -> None:
    told = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True, timeout=60)
    assert float(told.stdout) > 40.0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are glibc's")
def test_threads_share_two_arenas() -> None:
    def arenas(how: str) -> int:
        told = subprocess.run([sys.executable, "-c", ARENAS, how], capture_output=True, text=True, check=True, timeout=60)
        return told.stdout.count("<heap nr=")

    assert arenas("shared") == ARENAS_MAX < arenas("alone")


class _Ring:
    """Something that knows itself."""

    def __init__(self) -> None:
        self.self = self


def test_the_garbage_of_things_made_one_by_one_goes_between_them_and_what_stays_is_not_looked_at_again() -> None:
    frozen, kept, gone = gc.get_freeze_count(), [], []
    try:
        for number in one_by_one(range(100)):
            assert not gc.isenabled()
            kept.append(_Ring())
            gone.append(weakref.ref(_Ring()))
            assert sum(ring() is not None for ring in gone) <= 17
            if number == 99:
                assert gc.get_freeze_count() - frozen >= 2 * 90
        assert gc.isenabled()
    finally:
        gc.unfreeze()


def test_the_collector_goes_on_where_one_of_many_things_fails() -> None:
    def fail() -> None:
        for number in one_by_one(range(10)):
            assert number < 3, "the third"

    with pytest.raises(AssertionError, match="the third"):
        fail()
    gc.collect()  # the generator, of which the error still knows
    assert gc.isenabled()
