"""The asyncio client against a small server: every call, credits both ways, and what happens when the connection goes."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import socket
import sys
from collections.abc import AsyncIterator
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
import pytest_asyncio
from millstream.client import connect_async
from millstream.client.connection import AsyncClient
from millstream.client.errors import MillstreamError
from millstream.protocol import messages as m

from tests.support.fake_server import FakeServer

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as fake:
        fake.stream("s", ("k", "BIGINT"), ("v", "DOUBLE"))
        yield fake


@pytest_asyncio.fixture
async def ms(server: FakeServer) -> AsyncIterator[AsyncClient]:
    async with connect_async(server.address) as client:
        yield client


def table(rows: int, start: int = 0) -> pa.Table:
    return pa.table({"k": pa.array(range(start, start + rows), pa.int64()), "v": pa.array([0.5] * rows)})


async def test_a_statement_is_answered_with_rows_notices_and_info(server: FakeServer, ms: AsyncClient) -> None:
    columns = [["name", "TEXT", False], ["total", "DECIMAL(10, 2)", True], ["at", "TIMESTAMP", True]]
    server.answers["SHOW QUERIES"] = lambda request: m.Reply(
        request, columns, [["q1", "1.50", 0], ["q2", None, None]], ["two"], {"query": "q1"}
    )
    answer = await ms.execute("SHOW QUERIES")
    assert answer.rows[0] == {"name": "q1", "total": "1.50", "at": 0}
    assert (len(answer), answer.notices, answer.query and answer.query.name) == (2, ["two"], "q1")
    answer.first = ["name"]
    assert repr(answer).splitlines() == ["name", "────", "q1", "q2", "two"]
    answer.first = []
    assert repr(answer).splitlines() == [
        "name  total  at",
        "────  ─────  ────────────────────",
        "q1     1.50  1970-01-01T00:00:00Z",
        "q2     NULL  NULL",
        "two",
    ]
    arrow = answer.to_arrow()
    assert arrow.column("total").to_pylist() == [Decimal("1.50"), None]
    assert arrow.column("at").to_pylist() == [dt.datetime(1970, 1, 1, tzinfo=dt.UTC), None]


async def test_a_notice_callback_that_raises_ends_nothing_and_is_told_to_the_loop(server: FakeServer, ms: AsyncClient) -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def fail(code: str, message: str) -> None:
        raise ValueError(code)

    ms.on_notice(fail)
    server.sessions[-1].say(m.Notice("shed", "3 rows before class low"))
    assert (await ms.execute("SHOW STREAMS")).notices == ["ok"]
    assert [str(context["exception"]) for context in told] == ["shed"]


async def test_a_failure_carries_code_place_and_hint(server: FakeServer, ms: AsyncClient) -> None:
    server.answers["SELCT"] = lambda request: m.Failure("syntax", "SELCT is no statement", request, "did you mean SELECT?", 1, 1, "SELCT")
    with pytest.raises(MillstreamError, match="SELCT is no statement") as caught:
        await ms.execute("SELCT")
    error = caught.value
    assert (error.code, error.hint, error.line, error.column, error.token) == ("syntax", "did you mean SELECT?", 1, 1, "SELCT")
    assert str(error) == "SELCT is no statement (line 1, column 1); did you mean SELECT?"
    assert (await ms.execute("SHOW STREAMS")).notices == ["ok"]


@pytest.mark.parametrize("rows", [0, 1, 999, 5_000])
async def test_a_published_table_is_acked_whole_whatever_the_credit(server: FakeServer, ms: AsyncClient, rows: int) -> None:
    ack = await ms.publish("s", table(rows))
    assert (ack.accepted, ack.rejected, ack.rejected_rows, ack.durability) == (rows, [], 0, "journal")
    assert server.rows["s"] == [[i, 0.5] for i in range(rows)]
    if rows:
        assert ack.position == rows


async def test_a_large_train_goes_over_uncut_and_unchanged(server: FakeServer, ms: AsyncClient) -> None:
    server.rows_credit = 1_000_000
    ack = await ms.publish("s", table(60_000))
    assert ack.accepted == 60_000
    assert [event.rows for event in server.heard if isinstance(event, m.Train)] == [60_000]
    assert server.rows["s"][-1] == [59_999, 0.5]


async def test_pandas_frames_batches_readers_and_dicts_all_arrive(server: FakeServer, ms: AsyncClient) -> None:
    batch = table(2).to_batches()[0]
    for data in (
        pd.DataFrame({"k": [0, 1], "v": [0.5, 0.5]}),
        batch,
        pa.RecordBatchReader.from_batches(batch.schema, [batch]),
        [{"k": 0, "v": 0.5}, {"k": 1, "v": 0.5}],
        [[0, 0.5], (1, 0.5)],
    ):
        assert (await ms.publish("s", data)).accepted == 2
    assert server.rows["s"] == [[0, 0.5], [1, 0.5]] * 5


async def test_rejected_rows_are_named_by_their_index_in_what_was_published(server: FakeServer, ms: AsyncClient) -> None:
    rows: list[dict[str, object]] = [{"k": i, "v": 1.0} for i in range(2_500)]
    rows[3] = {"k": "three", "v": 1.0}
    rows[2_100] = {"k": 1, "v": 1.0, "extra": 1}
    ack = await ms.publish("s", rows)
    assert (ack.accepted, ack.rejected_rows) == (2_498, 2)
    assert [(r.index, r.reason) for r in ack.rejected] == [(3, "k is BIGINT, not str"), (2_100, "there is no column extra")]
    assert (await ms.publish("s", rows[:4])).rejected[0].index == 3, "indices begin anew with each call"


async def test_values_python_has_and_msgpack_has_not_are_sent_as_the_wire_says(server: FakeServer, ms: AsyncClient) -> None:
    server.stream("t", ("at", "TIMESTAMP"), ("d", "DECIMAL(30, 2)"), ("n", "BIGINT"))
    when = dt.datetime(2024, 5, 6, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    row = {"at": when, "d": Decimal("1.50"), "n": 2**70}
    ack = await ms.publish("t", [row])
    (sent,) = [event for event in server.heard if isinstance(event, m.Rows)]
    assert sent.values == [{"at": 1_714_989_600_000_000, "d": "1.50", "n": str(2**70)}]
    assert ack.rejected_rows == 1


async def test_publishing_waits_for_credit_and_goes_on_when_it_comes(server: FakeServer, ms: AsyncClient) -> None:
    server.rows_credit = 10
    server.hold_credit = True
    publishing = asyncio.create_task(ms.publish("s", [{"k": i, "v": 0.0} for i in range(30)]))
    await ms.execute("SHOW STREAMS")  # by then the first rows have arrived
    while len(server.rows["s"]) < 10:
        await ms.execute("SHOW STREAMS")
    await ms.execute("SHOW STREAMS")
    assert len(server.rows["s"]) == 10
    assert not publishing.done()
    server.hold_credit = False
    server.sessions[0].say(m.Credit(channel=1, rows=10, bytes=1000))
    assert (await publishing).accepted == 30


async def test_concurrent_publishers_of_one_stream_each_get_their_own_count(server: FakeServer, ms: AsyncClient) -> None:
    acks = await asyncio.gather(*(ms.publish("s", table(n)) for n in (1, 20, 300)))
    assert [ack.accepted for ack in acks] == [1, 20, 300]


async def test_a_publisher_sends_ahead_and_sums_up(server: FakeServer, ms: AsyncClient) -> None:
    async with await ms.publisher("s") as publisher:
        for i in range(100):
            await publisher.send_row([i, 1.0])
        await publisher.send([{"k": "x"}])
        ack = await publisher.flush()
        assert (ack.accepted, [r.index for r in ack.rejected]) == (100, [100])
    with pytest.raises(MillstreamError, match="has been closed") as caught:
        await publisher.send_row([1, 1.0])
    assert caught.value.code == "closed"


async def test_a_failed_publish_leaves_the_stream_usable(server: FakeServer, ms: AsyncClient) -> None:
    with pytest.raises(MillstreamError, match="cannot be published"):
        await ms.publish("s", [{"k": 1, "v": 1.0}, {"k": object()}])
    with pytest.raises(MillstreamError, match="cannot publish a dict"):
        await ms.publish("s", {"k": 1})
    with pytest.raises(MillstreamError, match="cannot publish these columns"):
        await ms.publish("s", pa.table({"k": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))
    with pytest.raises(MillstreamError, match="there is no stream nowhere"):
        await ms.publish("nowhere", table(1))
    assert (await ms.publish("s", table(3))).accepted == 3


async def test_every_row_acked_after_subscribing_is_seen_in_order(server: FakeServer, ms: AsyncClient) -> None:
    subscription = await ms.subscribe("q_s")
    await ms.publish("s", table(2_500))
    await ms.finish("s")
    result = await subscription.to_arrow()
    assert result.column("k").to_pylist() == list(range(2_500))
    assert subscription.end is not None
    assert (subscription.end.reason, subscription.end.counts) == ("finished", {"rows": 2_500})


async def test_a_batch_carries_its_resume_token_and_the_token_continues_after_it(server: FakeServer, ms: AsyncClient) -> None:
    subscription = await ms.subscribe("q_s")
    await ms.publish("s", table(2))
    await ms.publish("s", table(3, start=2))
    first = await anext(subscription)
    token = first.schema.metadata[b"millstream.resume_token"].decode()
    assert (token, subscription.resume_token) == ("t2", "t2")
    await subscription.close()
    async for batch in ms.subscribe("q_s", resume_token=token):
        assert batch.column("k").to_pylist() == [2, 3, 4]
        break


async def test_a_subscription_that_is_not_read_holds_the_server_back(server: FakeServer, ms: AsyncClient) -> None:
    server.rows_credit = 100
    subscription = await ms.subscribe("q_s", rows_window=250)
    await ms.publish("s", table(1_000))
    (kept,) = server.sessions[0].kept.values()
    await ms.execute("SHOW STREAMS")
    assert len(kept.waiting) == 7, "three trains of a hundred were sent, the last one overdrew"
    seen = [await anext(subscription) for _ in range(10)]
    assert sum(batch.num_rows for batch in seen) == 1_000
    assert not kept.waiting


async def test_results_come_as_rows_for_those_without_arrow(server: FakeServer, ms: AsyncClient) -> None:
    subscription = await ms.subscribe("q_s", format="msgpack")
    await ms.publish("s", [{"k": 1, "v": 2.0}])
    assert await anext(subscription) == [{"k": 1, "v": 2.0}]


async def test_a_gap_is_counted_and_handed_over_in_its_place(server: FakeServer, ms: AsyncClient) -> None:
    subscription = await ms.subscribe("q_s")
    await ms.publish("s", table(1))
    (kept,) = server.sessions[0].kept.values()
    server.sessions[0].say(m.Gap(kept.number, 17))
    await ms.publish("s", table(1))
    server.end("q_s", "dropped")
    items = [await subscription.next_item() for _ in range(4)]
    assert [getattr(item, "rows", None) for item in items[1:2]] == [17]
    assert items[3] is None
    assert [gap.rows for gap in subscription.gaps] == [17]
    assert subscription.end is not None
    assert subscription.end.reason == "dropped"


async def test_submit_names_the_query_and_its_verbs_quote_the_name(server: FakeServer, ms: AsyncClient) -> None:
    query = await ms.submit("SELECT * FROM s", name='odd "name"', lifetime=dt.timedelta(seconds=2), class_="gold")
    (submitted,) = [event for event in server.heard if isinstance(event, m.Submit)]
    assert (submitted.lifetime_us, submitted.options) == (2_000_000, {"class": "gold"})
    for verb in (query.stop, query.start, query.pause, query.resume, query.drop):
        await verb()
    texts = [event.text for event in server.heard if isinstance(event, m.Statement)]
    assert texts == [f'{verb} QUERY "odd ""name"""' for verb in ("STOP", "START", "PAUSE", "RESUME", "DROP")]


async def test_a_cancelled_call_is_cancelled_at_the_server(server: FakeServer, ms: AsyncClient) -> None:
    server.hold_answers = True
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ms.execute("SHOW STREAMS"), 0.01)
    server.hold_answers = False
    assert (await ms.execute("SHOW QUERIES")).notices == ["ok"]
    assert [event.target for event in server.heard if isinstance(event, m.CancelRequest)] == [1]
    assert server.sessions[0].connection.open_requests == {}


async def test_what_waits_when_the_connection_is_lost_is_told(server: FakeServer, ms: AsyncClient) -> None:
    subscription = await ms.subscribe("q_s")
    await ms.publish("s", table(1))
    server.hold_answers = True
    waiting = asyncio.create_task(ms.execute("SHOW STREAMS"))
    while not any(isinstance(event, m.Statement) for event in server.heard):
        await asyncio.sleep(0)
    server.sessions[0].transport.abort()
    with pytest.raises(MillstreamError) as caught:
        await waiting
    assert caught.value.code == "disconnected"
    assert (await anext(subscription)).num_rows == 1, "what had arrived is not lost"
    with pytest.raises(MillstreamError, match="connection"):
        await anext(subscription)
    with pytest.raises(MillstreamError):
        await ms.publish("s", table(1))
    assert not ms.is_open


async def test_a_server_that_is_not_there_is_named_with_the_mend() -> None:
    async with FakeServer() as gone:
        address = gone.address
    with pytest.raises(MillstreamError) as caught:
        await connect_async(address)
    assert (caught.value.code, caught.value.hint) == ("unreachable", "start one with: millstream serve")


async def test_a_wrong_token_is_refused() -> None:
    async with FakeServer(token="secret") as guarded:
        with pytest.raises(MillstreamError) as caught:
            await connect_async(guarded.address, token="guess")
        assert caught.value.code == "unauthorized"
        async with connect_async(guarded.address, token="secret") as client:
            assert client.role == "admin"


async def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(MillstreamError, match=r"did not answer within 0.05 s"):
        await connect_async(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)  # the system accepts, nobody reads


async def test_a_server_that_speaks_something_else_is_named() -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP ready\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(greet, "127.0.0.1", 0)
    with pytest.raises(MillstreamError, match="does not speak the protocol"):
        await connect_async(f"127.0.0.1:{other.sockets[0].getsockname()[1]}")
    other.close()
    await other.wait_closed()


@pytest.mark.parametrize("address", ["host:port", "host:0", "host:70000", "[::1", "a:b:c:99999999"])
async def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(MillstreamError):
        await connect_async(address, timeout=0.5)


async def test_columns_are_brought_into_the_streams_types_where_no_value_changes(server: FakeServer, ms: AsyncClient) -> None:
    narrow = pa.table({"k": pa.array([1, None], pa.int8()), "v": pa.array([2, 3], pa.int64())})
    coded = pa.table({"k": pa.array([4], pa.int64()).dictionary_encode(), "v": pa.array([1.5], pa.float32())})
    for data in (narrow, coded, coded, narrow):
        assert (await ms.publish("s", data)).accepted == len(data)
    assert server.rows["s"] == [[1, 2.0], [None, 3.0], [4, 1.5], [4, 1.5], [1, 2.0], [None, 3.0]]
    server.stream("t", ("k", "TEXT"))
    assert (await ms.publish("t", pa.table({"k": pa.array(["é", None], pa.large_string()).dictionary_encode()}))).accepted == 2
    server.stream("i", ("k", "INT"))
    ack = await ms.publish("i", pa.table({"k": pa.array([1, 2**40], pa.int64())}))
    assert [r.index for r in ack.rejected] == [1]
    trains = [event for event in server.heard if isinstance(event, m.Train)]
    assert trains[-1].rows == 2, "a value too large for the column goes over as it is, for the server to refuse"


async def test_a_publish_that_is_given_up_while_its_channel_opens_leaves_the_channel_to_the_next(
    server: FakeServer, ms: AsyncClient
) -> None:
    given_up = asyncio.create_task(ms.publish("s", table(1)))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    opening = ms._publishers["s"]
    assert (await ms.publish("s", table(2))).accepted == 2
    assert ms._publishers["s"] is opening


async def test_a_channel_that_fails_to_open_when_nobody_waits_any_more_is_no_error(server: FakeServer) -> None:
    client = await connect_async(server.address)
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    given_up = asyncio.create_task(client.publish("s", table(1)))
    await asyncio.sleep(0)
    opening = client._publishers["s"]
    given_up.cancel()
    await asyncio.wait([given_up])
    await client.abandon()
    await asyncio.wait([opening])
    client._publishers.clear()
    del given_up, opening
    gc.collect()
    await asyncio.sleep(0)
    assert told == []


async def test_a_select_that_runs_on_says_where_its_results_are() -> None:
    async with FakeServer() as fake:
        fake.stream("s", ("k", "BIGINT"))
        fake.answers["SELECT 1"] = lambda request: m.Reply(request, info={"query": "q_s", "continuous": True})
        fake.answers["CREATE QUERY"] = lambda request: m.Reply(request, info={"query": "q_s", "continuous": True, "durable": True})
        async with connect_async(fake.address) as client:
            answer = await client.execute("SELECT 1")
            for take in (answer.to_arrow, answer.to_pandas, lambda: answer.rows, lambda: list(answer)):
                with pytest.raises(MillstreamError, match="its results come by subscribing") as caught:
                    take()
                assert 'subscribe("q_s")' in str(caught.value)
            assert list(await client.execute("CREATE QUERY")) == []


async def test_pandas_is_asked_for_in_words_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeServer() as fake:
        fake.stream("s", ("k", "BIGINT"))
        fake.rows["s"] = [[1]]
        fake.answers["SHOW STREAMS"] = lambda request: m.Reply(request, [["name", "TEXT", False]], [["s"]])
        async with connect_async(fake.address) as client:
            answer = await client.execute("SHOW STREAMS")
            assert answer.to_pandas()["name"].to_list() == ["s"]
            subscription = await client.subscribe("q_s", from_start=True)
            fake.end("q_s", "finished")
            assert (await subscription.to_pandas())["k"].to_list() == [1]
            monkeypatch.setitem(sys.modules, "pandas", None)
            with pytest.raises(MillstreamError, match="to_pandas needs pandas, which is not installed; pip install pandas"):
                answer.to_pandas()
            with pytest.raises(MillstreamError, match="pip install pandas"):
                await subscription.to_pandas()
