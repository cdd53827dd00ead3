"""The blocking client: the same calls, and no thread or socket left behind (the test run checks that)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from millstream.client import MillstreamError, connect

from tests.support.fake_server import FakeServer, ThreadedServer


@pytest.fixture
def threaded() -> Iterator[ThreadedServer]:
    fake = FakeServer()
    fake.stream("s", ("k", "BIGINT"), ("v", "DOUBLE"))
    with ThreadedServer(fake) as running:
        yield running


def test_the_calls_of_the_design_work_as_written(threaded: ThreadedServer) -> None:
    with connect(threaded.server.address, token=None, tls=None) as ms:
        ms.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts DELAY 2 SECONDS")
        q = ms.submit("SELECT k, v FROM s", name="avg")
        subscription = ms.subscribe("avg")
        ack = ms.publish("s", pa.table({"k": [1, 2], "v": [0.5, 1.5]}))
        assert (ack.accepted, ack.rejected, ack.position) == (2, [], 2)
        ms.finish("s")
        batches = list(subscription)
        assert [batch.to_pylist() for batch in batches] == [[{"k": 1, "v": 0.5}, {"k": 2, "v": 1.5}]]
        assert batches[0].schema.metadata[b"millstream.resume_token"] == b"t2"
        assert subscription.end is not None
        assert subscription.end.reason == "finished"
        q.stop()
        q.drop()


def test_closing_twice_is_fine_and_later_calls_say_so(threaded: ThreadedServer) -> None:
    ms = connect(threaded.server.address)
    subscription = ms.subscribe("q_s")
    ms.close()
    ms.close()
    assert not ms.is_open
    with pytest.raises(MillstreamError, match="closed"):
        ms.execute("SHOW STREAMS")
    with pytest.raises(MillstreamError, match="closed"):
        next(subscription)
    subscription.close()


def test_a_failed_connect_leaves_no_thread(threaded: ThreadedServer) -> None:
    before = set(threading.enumerate())
    with pytest.raises(MillstreamError):
        connect("127.0.0.1:1", timeout=2)
    assert set(threading.enumerate()) == before


def test_a_forgotten_client_is_closed_with_a_warning(threaded: ThreadedServer) -> None:
    before = set(threading.enumerate())
    forgotten = [connect(threaded.server.address)]
    with pytest.warns(ResourceWarning, match="was not closed"):
        forgotten.clear()
    assert set(threading.enumerate()) == before


def test_waiting_for_a_batch_can_time_out_and_go_on(threaded: ThreadedServer) -> None:
    with connect(threaded.server.address) as ms, ms.subscribe("q_s") as subscription:
        with pytest.raises(TimeoutError):
            subscription.next_item(timeout=0.01)
        ms.publish("s", [{"k": 7, "v": None}])
        assert subscription.next_item(timeout=5).to_pylist() == [{"k": 7, "v": None}]


def test_a_publisher_of_ones_own_pipelines(threaded: ThreadedServer) -> None:
    with connect(threaded.server.address) as ms, ms.publisher("s") as publisher:
        assert [column.name for column in publisher.columns] == ["k", "v"]
        for i in range(5):
            publisher.send([{"k": i, "v": 0.0}])
        assert publisher.flush().accepted == 5


def test_many_connections_come_and_go(threaded: ThreadedServer) -> None:
    before = threading.active_count()
    for _ in range(20):
        with connect(threaded.server.address) as ms:
            ms.subscribe("q_s")
    assert threading.active_count() == before
    ends_s = time.monotonic() + 10
    while threaded.call(lambda: len(threaded.server.sessions)):  # the server hears of the last goodbye a little later
        assert time.monotonic() < ends_s
