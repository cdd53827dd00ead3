"""Trains that are read while others wait behind them enter together; nobody can tell but by the speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from millstream.engine.language.parse import parse_statement
from millstream.server.host import intake
from millstream.server.host.contract import Context
from millstream.server.net import turn
from millstream.server.net.turn import waiting_bytes_of

from tests.support.live_server import Harness, rows_of, run, until

STREAM = "CREATE STREAM {} (ts BIGINT, v BIGINT, t TEXT) TIMESTAMP BY ts UNIT us{}"
TRAINS, ROWS = 40, 50


def train(start: int, rows: int = ROWS, *, bad: int | None = None) -> Any:
    """Return rows whose text is their number; the row at `bad` has no event time."""
    numbers = list(range(start, start + rows))
    times = pa.array([None if i == bad else n for i, n in enumerate(numbers)], pa.int64())
    return pa.table({"ts": times, "v": pa.array(numbers, pa.int64()), "t": pa.array([str(n) for n in numbers])})


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each entry into the engine."""
    seen: list[int] = []
    let_in = intake.StreamIntake._let_in

    def noted(self: Any, columns: Any, *further: Any) -> Any:
        seen.append(len(columns[0]))
        return let_in(self, columns, *further)

    monkeypatch.setattr(intake.StreamIntake, "_let_in", noted)
    return seen


def test_trains_written_at_once_enter_in_few_goes_and_in_order(entered: list[int]) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM.format("s", ""))
        await client.submit("SELECT v, t FROM s", name="all")
        results = await client.subscribe("all")
        async with await client.publisher("s") as channel:
            for number in range(TRAINS):
                await channel.send(train(number * ROWS))
            ack = await channel.flush()
        assert (ack.accepted, ack.rejected_rows) == (TRAINS * ROWS, 0)
        rows = await rows_of(results, TRAINS * ROWS)
        assert [(r["v"], r["t"]) for r in rows] == [(n, str(n)) for n in range(TRAINS * ROWS)]

    run(test)
    assert sum(entered) == TRAINS * ROWS
    assert len(entered) < TRAINS / 2


@pytest.mark.parametrize(("rule", "accepted"), [("", TRAINS * ROWS - 1), (" ON ERROR FAIL", (TRAINS - 1) * ROWS)])
def test_a_bad_row_is_told_at_its_place_and_spoils_no_other_train(rule: str, accepted: int) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM.format("s", rule))
        await client.submit("SELECT v FROM s", name="all")
        results = await client.subscribe("all")
        async with await client.publisher("s") as channel:
            for number in range(TRAINS):
                await channel.send(train(number * ROWS, bad=7 if number == 20 else None))
            ack = await channel.flush()
        assert ack.accepted == accepted
        assert ack.rejected[0].index == 20 * ROWS + (0 if rule else 7)
        rows = await rows_of(results, accepted)
        spoilt = range(20 * ROWS, 21 * ROWS) if rule else range(20 * ROWS + 7, 20 * ROWS + 8)
        assert [r["v"] for r in rows] == [n for n in range(TRAINS * ROWS) if n not in spoilt]

    run(test)


def test_two_channels_of_one_connection_keep_the_order_of_its_bytes(entered: list[int]) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        for name in ("a", "b"):
            await client.execute(STREAM.format(name, ""))
        await client.submit("SELECT v FROM a UNION ALL SELECT v FROM b", name="both")
        results = await client.subscribe("both")
        async with await client.publisher("a") as one, await client.publisher("b") as two:
            for number in range(TRAINS):
                await (two if number % 4 == 3 else one).send(train(number * ROWS))
            await one.flush()
            await two.flush()
        rows = await rows_of(results, TRAINS * ROWS)
        assert [r["v"] for r in rows] == list(range(TRAINS * ROWS))

    run(test)
    assert len(entered) < TRAINS


def test_rows_for_a_stream_that_ended_meanwhile_are_refused_at_their_place() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM.format("s", ""))
        async with await client.publisher("s") as channel:
            await client.finish("s")
            for number in range(3):
                await channel.send(train(number * ROWS))
            ack = await channel.flush()
        assert (ack.accepted, ack.rejected_rows) == (0, 3 * ROWS)
        assert [r.index for r in ack.rejected] == list(range(3 * ROWS))

    run(test)


def test_no_more_than_one_call_takes_are_joined(monkeypatch: pytest.MonkeyPatch, entered: list[int]) -> None:
    monkeypatch.setattr(turn, "JOINED_ROWS_MAX", 3 * ROWS)

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM.format("s", ""))
        async with await client.publisher("s") as channel:
            for number in range(TRAINS):
                await channel.send(train(number * ROWS))
            await channel.flush()

    run(test)
    assert max(entered) == 3 * ROWS
    assert sum(entered) == TRAINS * ROWS


@pytest.mark.parametrize("durability", ["", " DURABILITY sync"])
@pytest.mark.parametrize("anew", [False, True])
def test_trains_that_wait_while_their_stream_is_dropped_are_refused_and_the_channel_closes(
    durability: str, anew: bool, tmp_path: Any
) -> None:
    async def test(harness: Harness) -> None:
        client, other = await harness.client(), await harness.client()
        application = harness.server.application

        async def execute(text: str) -> None:
            """Not over a connection, before whose statements what waits is taken in."""
            await application.call(application.host.execute, parse_statement(text), Context())

        for name in ("s", "t"):
            await client.execute(STREAM.format(name, durability))
        channel = await client.publisher("s")
        await channel.send(train(0))
        await channel.flush()
        (session,) = [s for s in application.sessions.values() if s.channels]
        session.waiting_bytes = lambda: 1
        for number in range(2):
            await channel.send(train(number * ROWS))
        turn = application.turn
        await until(lambda: turn.waiting is not None and turn.waiting.rows == 2 * ROWS, "two wait")
        await execute("DROP STREAM s")
        if anew:
            await execute("CREATE STREAM s (ts TEXT)" + durability)
        ack = await channel.flush()
        assert (ack.accepted, ack.rejected_rows) == (0, 2 * ROWS)
        assert [r.index for r in ack.rejected] == list(range(2 * ROWS))
        await until(lambda: not session.channels, "the channel is closed")
        assert (await other.publish("t", train(0))).accepted == ROWS

    run(test, data_dir=str(tmp_path))


def test_an_intake_of_a_dropped_stream_lets_nothing_into_one_of_the_same_name() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM.format("s", ""))
        old = harness.server.application.host.intakes["s"]
        await client.execute("DROP STREAM s")
        await client.execute("CREATE STREAM s (ts TEXT)")
        taken = old.take_rows([[1, 2, "three"]])
        assert (taken.accepted, list(taken.rejections)) == (0, [(0, "there is no stream s")])

    run(test)


class Transport:
    """What a session asks of a transport."""

    def __init__(self, **extra: Any) -> None:
        self.extra = extra
        self.is_closing: Callable[[], bool] = lambda: False

    def get_extra_info(self, name: str) -> Any:
        return self.extra.get(name)


def test_what_waits_in_a_socket_is_known_save_behind_tls() -> None:
    import socket

    near, far = socket.socketpair()
    with near, far:
        plain, tls = waiting_bytes_of(Transport(socket=near)), waiting_bytes_of(Transport(socket=near, sslcontext=object()))
        assert (plain(), tls()) == (0, 0)
        far.send(b"12345")
        assert (plain(), tls()) == (5, 0)
