"""What a train costs in calls and memory: that does not depend on how busy the machine is, and grows when a hot path gets longer."""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import uvloop
from millstream.client.benchmarks import chain_workload, window_workload
from millstream.client.benchmarks.kit import Kit
from millstream.client.benchmarks.raw import RawPublisher
from millstream.engine.chains import fused
from millstream.engine.data.key_maps import ENCODED_ROWS
from millstream.protocol import messages
from millstream.protocol.batches import BatchDecoder, BatchEncoder
from millstream.protocol.plain_batches import PlainReader, width_of
from millstream.scheduler.drivers import live
from millstream.scheduler.limits import ESTIMATE_CALLS_LIVE
from millstream.scheduler.settings import CoreSettings
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape
from millstream.server.benchmarks import dispatch, sharing
from millstream.server.benchmarks.embedding import Embedded
from millstream.server.net.listener import Listener
from millstream.server.results.results import ResultLog
from millstream.server.results.trains import pieces_of

from tests.support.live_server import Harness, running
from tests.support.pairs import Pair, joined

# Measured when written, with a tenth to spare.
ASKING_CALLS_MAX = 40  # a train of more than a megabyte asks before it makes large columns
CHAIN_CALLS_MAX = 203
INTAKE_CALLS_MAX = 219
WINDOW_CALLS_MAX = 189
PART_CALLS_MAX = 17
SHARED_WINDOW_CALLS_MAX = 336
ROW_FRAME_CALLS_MAX = 8.9
ROW_INTAKE_CALLS_MAX = 67
DECISION_CALLS_MAX = 23
PLAIN_TRAIN_CALLS_MAX = 77
PAYLOAD_CALLS_MAX = 35
PICKED_ROW_CALLS_MAX = 80
ROW_PATH_CALLS_MAX = 455
DEAREST_ROW_CALLS_MAX = 2_500  # with estimates summed anew just then, which the times measured decide
DECISION_ROUNDS = 32
ROWS_ALONE = 40
WARM_UP = 40  # trains: every chain has been run step by step, caches are filled


def calls_of(action: Callable[[], object]) -> int:
    """Count calls, of Python functions and of compiled ones."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def chain(train: int) -> tuple[Embedded, list[Any]]:
    kit = Kit(quick=True)
    name, stream, plan = kit.chain_query
    engine = Embedded(stream)
    engine.submit(plan)
    columns = engine.columns(name, kit.chain_trains(train, train)[0])
    for _ in range(WARM_UP):
        engine.push(name, columns)
        engine.runtime.run()
    return engine, columns


def chain_step(engine: Embedded, columns: list[Any]) -> Callable[[], object]:
    def step() -> None:
        engine.push(chain_workload.NAME, columns)
        engine.runtime.run()

    return step


def test_a_train_through_six_operators_takes_the_same_calls_whatever_its_rows_save_for_asking_whether_memory_is_left() -> None:
    few, many = (calls_of(chain_step(*chain(train))) for train in (100, 20_000))
    assert few <= many <= few + ASKING_CALLS_MAX
    assert few <= CHAIN_CALLS_MAX


def test_a_train_through_six_operators_allocates_no_more_than_its_result_and_some_masks() -> None:
    rows = 20_000
    step = chain_step(*chain(rows))
    gc.collect()
    tracemalloc.start()
    try:
        step()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A computed column and the index (8 bytes a row each), three masks, three columns of half the rows.
    assert peak <= rows * (8 + 8 + 3 + 3 * 8) + 100_000


def test_taking_a_train_in_takes_the_same_calls_whatever_its_rows() -> None:
    few, many = (taking_in(train) for train in (100, 20_000))
    assert few == many
    assert many <= INTAKE_CALLS_MAX


def taking_in(train: int) -> int:
    engine = Embedded(chain_workload.STREAM)
    intake = engine.host.intake(chain_workload.NAME)
    batch = chain_workload.trains(train, train)[0]
    encoder, decoder = BatchEncoder(batch.schema), BatchDecoder(batch.schema)
    payload = b"".join(bytes(piece) for piece in encoder.encode(batch))
    intake.take_batch(decoder.decode(payload, train))
    return calls_of(lambda: intake.take_batch(decoder.decode(payload, train)))


def test_a_plain_train_becomes_columns_with_few_calls_and_no_copy() -> None:
    few, many = (from_payload(rows) for rows in (100, 20_000))
    assert few == many
    assert many <= PLAIN_TRAIN_CALLS_MAX


def from_payload(rows: int) -> int:
    """Count calls from a payload to checked columns; memory for a mask or two a row of text, and no more."""
    engine = Embedded(chain_workload.STREAM)
    batch = chain_workload.trains(rows, rows)[0]
    payload = memoryview(b"".join(bytes(piece) for piece in BatchEncoder(batch.schema).encode(batch)))
    plain = engine.host.intake(chain_workload.NAME).plain(batch.schema)
    assert plain is not None
    reader = PlainReader([width_of(f.type) or 0 for f in batch.schema])

    def take() -> None:
        buffers = reader.read(payload, rows)
        assert buffers is not None
        assert plain.columns(payload, buffers, rows) is not None

    take()
    gc.collect()
    tracemalloc.start()
    try:
        take()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 2 * rows + 20_000
    return calls_of(take)


def test_a_result_is_made_into_a_payload_with_few_calls_and_once_for_all_readers() -> None:
    engine, columns = chain(20_000)
    engine.push(chain_workload.NAME, columns)
    engine.runtime.run()
    train = engine.results.take()[-1]
    (query,) = engine.host.queries
    assert query.shape is not None
    query.shape.results(train)[0].payload()  # the writer is made
    (result,) = query.shape.results(train)
    assert calls_of(result.payload) <= PAYLOAD_CALLS_MAX
    assert calls_of(result.payload) <= 3


def test_a_row_that_a_filter_picked_becomes_a_result_with_few_calls_and_is_kept_small() -> None:
    engine, columns = chain(100)
    engine.push(chain_workload.NAME, columns)
    engine.runtime.run()
    train = engine.results.take()[-1]
    (query,) = engine.host.queries
    shape, log = query.shape, ResultLog("a", 1 << 20, 1 << 60)
    assert shape is not None

    def give() -> None:
        ((rows, meta),) = pieces_of(shape, train.take(np.array([7])))
        entry = log.append(rows, meta, 0)
        assert rows.payload()
        log.settle(entry)

    give()
    assert calls_of(give) <= PICKED_ROW_CALLS_MAX
    assert log.kept_bytes < 2 * 512


def test_one_row_is_taken_in_with_few_calls() -> None:
    engine = Embedded(chain_workload.STREAM)
    intake = engine.host.intake(chain_workload.NAME)
    rows = [[chain_workload.START_US, 1, 0, 0, 25.0, "tag"]]
    intake.take_rows(rows)
    assert calls_of(lambda: intake.take_rows(rows)) <= ROW_INTAKE_CALLS_MAX


def test_deciding_for_a_chain_of_ten_takes_few_calls_once_its_books_are_kept_together() -> None:
    """Calls of the core for each chain of an order of sixteen, with its receipt, over as many rounds as are booked together."""
    few, many = (deciding(chains) for chains in (16, 32))
    assert (many - few) / (16 * DECISION_ROUNDS) <= DECISION_CALLS_MAX


def deciding(chains: int) -> int:
    settings = CoreSettings(train=TrainShape(count=100), schedule=16, measure=True)
    engine = Embedded(chain_workload.STREAM, policy=PolicySpec("fcfs"), settings=settings)
    for number in range(chains):
        engine.submit(dispatch._chain(chain_workload.NAME, number), f"chain{number}")
    columns = engine.columns(chain_workload.NAME, chain_workload.trains(100, 100)[0])
    core, count = engine.runtime.core, 0
    handle = core.handle

    def counted(events: list[Any], now_ns: int) -> list[Any]:
        nonlocal count
        found: list[Any] = []
        count += calls_of(lambda: found.extend(handle(events, now_ns)))
        return found

    for round_ in range(WARM_UP + DECISION_ROUNDS):
        if round_ == WARM_UP:
            core.handle = counted
        engine.push(chain_workload.NAME, columns)
        engine.runtime.run()
    return count


def test_a_train_into_a_window_takes_the_same_calls_whatever_its_rows() -> None:
    few, many, parts = (folding(rows) for rows in (2_000, ENCODED_ROWS, 3 * ENCODED_ROWS))
    assert few == many
    assert many <= WINDOW_CALLS_MAX
    assert parts - many <= 3 * PART_CALLS_MAX, "keys of more rows are looked up in parts"


def folding(rows: int) -> int:
    """Fold trains that stay within one pane and meet every key; count the last."""
    engine = Embedded(window_workload.STREAM, window_workload.SELECT)
    columns = engine.columns(window_workload.NAME, pane(rows))
    for _ in range(WARM_UP):
        engine.push(window_workload.NAME, columns)
        engine.runtime.run()

    def step() -> None:
        engine.push(window_workload.NAME, columns)
        engine.runtime.run()

    return calls_of(step)


def pane(rows: int) -> Any:
    times = pa.array(np.full(rows, window_workload.START_US, dtype=np.int64)).view(pa.timestamp("us", "UTC"))
    return pa.record_batch({"ts": times, "key": np.arange(rows) % 1_000, "price": np.ones(rows)})


def test_a_train_that_closes_no_window_takes_the_same_calls_however_many_queries_share_it() -> None:
    few, many = (sharing_a_train(queries) for queries in (20, 100))
    assert abs(few - many) <= 2  # what times were measured decides on a call or two of the estimates
    assert many <= SHARED_WINDOW_CALLS_MAX


def sharing_a_train(queries: int) -> int:
    """Fold trains that stay within one pane into the synopsis of many queries, by the scheduler's orders; count the last."""
    settings = CoreSettings(train=TrainShape(share=1.0), estimate_calls=ESTIMATE_CALLS_LIVE)
    selects = [sharing._select(shape) for shape in sharing.shapes(queries)]
    engine = Embedded(sharing.STREAM, *selects, policy=PolicySpec("fcfs"), settings=settings, sharing=True)
    times = pa.array(np.full(2_000, sharing.START_US, dtype=np.int64)).view(pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"ts": times, "key": np.arange(2_000) % sharing.KEYS, "price": np.ones(2_000)})
    columns = engine.columns("sharing_in", batch)

    def step() -> None:
        engine.push("sharing_in", columns)
        engine.runtime.run()

    for _ in range(WARM_UP):
        step()
    return calls_of(step)


def test_a_row_frame_takes_few_calls_to_read() -> None:
    per_row = (reading(2_000) - reading(1_000)) / 1_000
    assert per_row <= ROW_FRAME_CALLS_MAX


def reading(rows: int) -> int:
    pair = Pair()
    pair.client_says(messages.OpenChannel(1, "s"))
    pair.server_says(messages.ChannelOpened(1, 1, [["k", "BIGINT", True]], rows_credit=1_000_000, bytes_credit=1 << 30))
    block = b"".join(joined(pair.client.send(messages.Row(1, number, [number]))) for number in range(1, rows + 1))
    return calls_of(lambda: list(pair.server.receive_data(block)))


def test_a_row_alone_takes_few_calls_from_its_frame_to_its_result_and_ack(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the event loop's thread does for one row frame: read, taken in, decided about, run through six operators, written."""
    counts = row_by_row(monkeypatch, ROWS_ALONE)
    assert statistics.median(counts) <= ROW_PATH_CALLS_MAX


def test_no_row_alone_waits_for_much_that_was_put_off_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in so many rows goes step by step, sees the counts of others settled, estimates summed anew."""
    monkeypatch.setattr(fused, "SAMPLED_OFTEN", 1)
    monkeypatch.setattr(fused, "SAMPLE_SELDOM", 256)
    counts = row_by_row(monkeypatch, 2 * fused.SAMPLE_SELDOM + ROWS_ALONE)
    assert max(counts[fused.SAMPLE_SELDOM :]) <= DEAREST_ROW_CALLS_MAX


def row_by_row(monkeypatch: pytest.MonkeyPatch, rows: int) -> list[int]:
    """Return the calls of each read of `rows` rows that come alone."""
    never = 1 << 62  # counting is slow, and a slow turn would end on the scheduler's thread
    monkeypatch.setattr(live, "OFFER_NS_MAX", never)
    monkeypatch.setattr(live, "OFFER_COST_NS_MAX", never)
    counts: list[int] = []
    warm: list[bool] = []
    updated = Listener.buffer_updated

    def counted(self: Listener, nbytes: int) -> None:
        if warm:
            counts.append(calls_of(lambda: updated(self, nbytes)))
        else:
            updated(self, nbytes)

    monkeypatch.setattr(Listener, "buffer_updated", counted)

    async def whole() -> None:
        async with running(rewrite=False, load="none") as harness:
            await one_by_one(harness, rows, lambda: warm.append(True))
            warm.clear()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())
    assert len(counts) >= rows
    return counts


async def one_by_one(harness: Harness, rows: int, when_warm: Callable[[], None]) -> None:
    """Send rows, each when the result of the one before has come."""
    client = await harness.client()
    await client.execute(chain_workload.STREAM)
    await client.submit(chain_workload.PLAN, name="chain")
    publisher = await asyncio.to_thread(RawPublisher, harness.server.port, chain_workload.NAME)
    async with await client.subscribe("chain") as results:
        for number in range(WARM_UP + rows):
            if number == WARM_UP:
                when_warm()
            publisher.send(publisher.row_frame([chain_workload.START_US + number, number, 0, 0, 25.0, "tag"]))
            assert (await anext(aiter(results))).num_rows == 1
    publisher.close()
