"""What many publishers say in one turn of the server's loop enters the engine together; each is told what became of its own rows.

The publishers are protocol connections without sockets, so a test decides what one turn reads, and in which order.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from millstream.protocol import messages as m
from millstream.protocol.batches import BatchEncoder, encode_schema
from millstream.protocol.connection import Connection
from millstream.protocol.states import Role
from millstream.server.host import intake
from millstream.server.net import turn
from millstream.server.net.session import Session

from tests.support.live_server import Harness, rows_of, run, until
from tests.support.pairs import joined

STREAM = "CREATE STREAM {} (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us"
SCHEMA = pa.schema([("ts", pa.int64()), ("v", pa.int64())])
PEERS, ROWS = 8, 10


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False

    def get_extra_info(self, name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def writelines(self, buffers: list[Any]) -> None:
        for buffer in buffers:
            self.written += bytes(buffer)

    def close(self) -> None:
        self.closed = True

    abort = close


class Peer:
    """A publisher of one stream; what it says is read by the server at once. `acks` are those it has heard."""

    def __init__(self, harness: Harness) -> None:
        self.transport = Transport()
        self.application = harness.server.application
        self.session = Session(self.application, self.transport)  # type: ignore[arg-type]
        self.application.session_began(self.session)
        self.connection = Connection(Role.CLIENT)
        self.acks: list[m.Ack] = []
        self.failures: list[m.Failure] = []
        self._channel = self._number = 0
        self._encoder = BatchEncoder(SCHEMA)

    def says(self, *messages: Any) -> None:
        """Say messages that arrive as one read."""
        data = b"".join(joined(self.connection.send(message)) for message in messages)
        while data:
            room = self.session.connection.get_buffer()
            count = min(len(room), len(data))
            room[:count], data = data[:count], data[count:]
            self.session.bytes_read(count)

    def hear(self) -> None:
        data, self.transport.written = bytes(self.transport.written), bytearray()
        for event in self.connection.receive_data(data):
            if isinstance(event, m.ChannelOpened):
                self._channel = event.channel
            if isinstance(event, m.Ack):
                self.acks.append(event)
            if isinstance(event, m.Failure):
                self.failures.append(event)

    async def opens(self, stream: str) -> None:
        self.says(m.Hello([1]))
        self.hear()
        self.says(m.OpenChannel(1, stream))
        await until(lambda: bool(self.transport.written), "the channel is open")
        self.hear()
        self.says(m.ChannelSchema(self._channel, encode_schema(SCHEMA)))

    def train(self, start: int, rows: int = ROWS, *, bad: int | None = None) -> m.Train:
        """Return the next train, of rows that tell their number; the row at `bad` has no event time."""
        numbers = range(start, start + rows)
        times = pa.array([None if i == bad else n for i, n in enumerate(numbers)], pa.int64())
        batch = pa.record_batch([times, pa.array(numbers, pa.int64())], schema=SCHEMA)
        self._number += 1
        return m.Train(self._channel, self._number, rows, b"".join(bytes(p) for p in self._encoder.encode(batch)))

    def rows(self, start: int, rows: int = 1) -> m.Rows:
        """Return the next rows without Arrow."""
        self._number += 1
        return m.Rows(self._channel, self._number, [[n, n] for n in range(start, start + rows)])

    def account(self) -> tuple[Any, ...]:
        """Return (through, accepted, rejected rows, (number, index) of those, position) over all acks."""
        self.hear()
        rejected = [(number, index) for ack in self.acks for number, index, _ in ack.rejected]
        last = self.acks[-1] if self.acks else None
        accepted, refused = (sum(getattr(ack, name) for ack in self.acks) for name in ("accepted", "rejected_rows"))
        return (last.through if last else 0, accepted, refused, rejected, last.position if last else None)


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


async def peers_of(harness: Harness, *streams: str) -> list[Peer]:
    """Return publishers of these streams, which are made if need be."""
    client = await harness.client()
    for name in dict.fromkeys(streams):
        await client.execute(STREAM.format(name))
    peers = [Peer(harness) for _ in streams]
    for peer, name in zip(peers, streams, strict=True):
        await peer.opens(name)
    return peers


async def turn_over() -> None:
    """Let the loop go round until what was scheduled has run."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_what_one_turn_reads_enters_together_and_each_is_told_its_own(entered: list[int]) -> None:
    async def test(harness: Harness) -> None:
        peers = await peers_of(harness, *["s"] * PEERS)
        for number, peer in enumerate(peers):
            peer.says(peer.train(number * ROWS))
        for number, peer in enumerate(peers[::2]):
            peer.says(peer.train(number), peer.train(number, rows=3))
        assert entered == []
        assert [peer.account()[0] for peer in peers] == [0] * PEERS
        await turn_over()
        assert entered == [(PEERS + PEERS // 2) * ROWS + 3 * PEERS // 2]
        first = PEERS * ROWS
        for number, peer in enumerate(peers):
            extra = number % 2 == 0
            position = first + (number // 2 + 1) * (ROWS + 3) - 1 if extra else (number + 1) * ROWS - 1
            rows = 2 * ROWS + 3 if extra else ROWS
            assert peer.account() == (3 if extra else 1, rows, 0, [], position)
            assert len(peer.acks) == 1

    run(test)


def test_the_only_publisher_of_a_stream_is_not_kept_waiting(entered: list[int]) -> None:
    async def test(harness: Harness) -> None:
        peers = await peers_of(harness, "s", "t")
        for number, peer in enumerate(peers, 1):
            peer.says(peer.train(0))
            assert entered == [ROWS] * number
            assert peer.account()[:2] == (1, ROWS)

    run(test)


def test_a_publisher_that_is_ahead_beside_idle_ones_is_held_until_it_has_been_read(entered: list[int]) -> None:
    async def test(harness: Harness) -> None:
        ahead, idle = await peers_of(harness, "s", "s")
        ahead.session.waiting_bytes = lambda: 1
        for number in range(3):
            ahead.says(ahead.train(number * ROWS))
            await turn_over()
        assert entered == []
        idle.says(idle.train(100))
        await turn_over()
        assert entered == [4 * ROWS]
        ahead.says(ahead.train(30))
        await turn_over()
        ahead.session.waiting_bytes = lambda: 0
        ahead.says(ahead.train(40))
        await turn_over()
        assert entered == [4 * ROWS, 2 * ROWS]
        assert [peer.account()[:2] for peer in (ahead, idle)] == [(5, 5 * ROWS), (1, ROWS)]

    run(test)


def script(peers: list[Peer]) -> None:
    """Say all that may come: trains of several streams, bad rows, rows without Arrow, one channel closed, one connection lost."""
    a, b, c, other = peers[:4]
    a.says(a.train(0))
    b.says(b.train(100), b.train(110, bad=4), b.train(120))
    c.says(c.train(200))
    other.says(other.train(300))
    a.says(a.rows(10, 2), a.train(12))
    c.says(m.Ping(1), c.train(210, rows=0), c.train(220))
    b.says(b.train(130))
    a.says(a.train(22))
    c.session.lost(None)
    b.says(b.train(140), m.CloseChannel(b._channel))
    a.says(a.train(32))


@pytest.mark.parametrize("rule", ["", " ON ERROR FAIL"])
def test_answers_acks_and_order_are_as_if_each_train_had_entered_alone(
    rule: str, monkeypatch: pytest.MonkeyPatch, entered: list[int]
) -> None:
    outcomes = []

    async def test(harness: Harness) -> None:
        client = await harness.client()
        for name in ("s", "t"):
            await client.execute(STREAM.format(name) + rule)
        await client.submit("SELECT v FROM s UNION ALL SELECT v FROM t", name="all")
        results = await client.subscribe("all")
        peers = [Peer(harness) for _ in range(5)]
        for peer, name in zip(peers, "sssts", strict=True):
            await peer.opens(name)
        script(peers)
        await turn_over()
        accounts = [peer.account() for peer in peers if peer is not peers[2]]  # the lost one hears no more of what it sent last
        total = 9 * ROWS + 2 + (0 if rule else ROWS - 1) + 2 * ROWS
        outcomes.append((accounts, [r["v"] for r in await rows_of(results, total)], accounts[1][2]))

    run(test)
    together = len(entered)
    add = turn.Turn.add

    def alone(self: turn.Turn, channel: Any, *train: Any) -> None:
        add(self, channel, *train)
        self.take(channel.session)

    monkeypatch.setattr(turn.Turn, "add", alone)
    run(test)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][2] == (ROWS if rule else 1)
    assert together < len(entered) - together


def test_a_bad_row_of_one_publisher_is_told_to_it_alone(entered: list[int]) -> None:
    async def test(harness: Harness) -> None:
        good, bad, late = await peers_of(harness, "s", "s", "s")
        good.says(good.train(0))
        bad.says(bad.train(100), bad.train(110, bad=3), bad.train(120))
        late.says(late.train(200))
        await turn_over()
        assert good.account() == (1, ROWS, 0, [], ROWS - 1)
        assert bad.account() == (3, 3 * ROWS - 1, 1, [(2, 3)], 4 * ROWS - 2)
        assert late.account() == (1, ROWS, 0, [], 5 * ROWS - 2)

    run(test)
    assert entered == [2 * ROWS, ROWS - 1, 2 * ROWS]


def test_rows_of_a_connection_that_is_lost_in_the_same_turn_are_in_and_nobody_else_notices() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        one, gone, other = await peers_of(harness, "s", "s", "s")
        await client.submit("SELECT v FROM s", name="all")
        results = await client.subscribe("all")
        one.says(one.train(0))
        gone.says(gone.train(10))
        gone.session.lost(ConnectionResetError())
        other.says(other.train(20))
        await turn_over()
        assert one.account() == (1, ROWS, 0, [], ROWS - 1)
        assert other.account() == (1, ROWS, 0, [], 3 * ROWS - 1)
        assert gone.account()[0] == 0
        assert [r["v"] for r in await rows_of(results, 3 * ROWS)] == list(range(3 * ROWS))

    run(test)


def test_a_fault_while_one_is_acked_ends_its_connection_alone() -> None:
    async def test(harness: Harness) -> None:
        peers = await peers_of(harness, "s", "s", "s")
        (channel,) = peers[1].session.channels.values()

        def fails() -> None:
            raise RuntimeError("a fault")

        channel.settle = fails  # type: ignore[method-assign]
        for number, peer in enumerate(peers):
            peer.says(peer.train(number * ROWS))
        await turn_over()
        assert [peer.account()[:2] for peer in peers] == [(1, ROWS), (0, 0), (1, ROWS)]
        assert [peer.session.closed for peer in peers] == [False, True, False]
        assert [f.code for f in peers[1].failures] == ["internal"]

    run(test, log_level="critical")


def test_a_fault_while_rows_enter_ends_all_connections_whose_rows_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(harness: Harness) -> None:
        peers = await peers_of(harness, "s", "s", "s")

        def fails(*_: Any) -> None:
            raise RuntimeError("a fault")

        with monkeypatch.context() as patch:
            patch.setattr(intake.StreamIntake, "_let_in", fails)
            for peer in peers[:2]:
                peer.says(peer.train(0))
            await turn_over()
        assert [peer.session.closed for peer in peers] == [True, True, False]
        peers[2].says(peers[2].train(0))
        await turn_over()
        assert peers[2].account()[:2] == (1, ROWS)

    run(test, log_level="critical")


def test_a_stream_that_ends_refuses_each_publishers_rows_at_their_places() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        one, two = await peers_of(harness, "s", "s")
        await client.finish("s")
        one.says(one.train(0), one.train(10, rows=2))
        two.says(two.train(20, rows=3))
        await turn_over()
        assert one.account() == (2, 0, ROWS + 2, [*((1, i) for i in range(ROWS)), (2, 0), (2, 1)], None)
        assert two.account() == (1, 0, 3, [(1, 0), (1, 1), (1, 2)], None)

    run(test)


def test_a_request_of_anybody_sees_the_rows_that_were_read_before_it(entered: list[int]) -> None:
    async def test(harness: Harness) -> None:
        one, two, other = await peers_of(harness, "s", "s", "t")
        one.says(one.train(0))
        two.says(two.train(10))
        other.says(m.Ping(1))
        one.says(m.ChannelSchema(one._channel, encode_schema(SCHEMA)), one.train(20))
        assert entered == []
        other.says(m.Statement(2, "SHOW STREAMS"))
        assert entered == [3 * ROWS]
        assert [peer.account()[:2] for peer in (one, two)] == [(2, 2 * ROWS), (1, ROWS)]
        await turn_over()

    run(test)


def test_what_may_be_shed_enters_publisher_by_publisher(monkeypatch: pytest.MonkeyPatch, entered: list[int]) -> None:
    """So each is told how many of its own rows fell."""
    monkeypatch.setattr(intake.StreamIntake, "sheds", property(lambda _: True))

    async def test(harness: Harness) -> None:
        one, two = await peers_of(harness, "s", "s")
        one.says(one.train(0), one.train(10))
        two.says(two.train(20))
        await turn_over()
        assert one.account() == (2, 2 * ROWS, 0, [], 2 * ROWS - 1)
        assert two.account() == (1, ROWS, 0, [], 3 * ROWS - 1)

    run(test)
    assert entered == [2 * ROWS, ROWS]


def test_no_more_rows_are_joined_than_one_call_takes(monkeypatch: pytest.MonkeyPatch, entered: list[int]) -> None:
    monkeypatch.setattr(turn, "JOINED_ROWS_MAX", 3 * ROWS)

    async def test(harness: Harness) -> None:
        peers = await peers_of(harness, *["s"] * PEERS)
        for number, peer in enumerate(peers):
            peer.says(peer.train(number * ROWS))
        await turn_over()
        assert [peer.account()[4] for peer in peers] == [(n + 1) * ROWS - 1 for n in range(PEERS)]

    run(test)
    assert entered == [3 * ROWS, 3 * ROWS, 2 * ROWS]


def test_trains_on_disk_before_the_ack_are_joined_too(tmp_path: Any, entered: list[int]) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM.format("s") + " DURABILITY sync")
        peers = [Peer(harness) for _ in range(3)]
        for peer in peers:
            await peer.opens("s")
        for number, peer in enumerate(peers):
            peer.says(peer.train(number * ROWS))
        await until(lambda: all(peer.account()[0] for peer in peers), "all are acked")
        assert [peer.account() for peer in peers] == [(1, ROWS, 0, [], (n + 1) * ROWS - 1) for n in range(3)]

    run(test, data_dir=str(tmp_path))
    assert entered == [3 * ROWS]
