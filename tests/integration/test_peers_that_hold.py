"""What a peer can make the server hold is bounded, counted here by scripted transports: unread answers, half frames, floods of messages."""

from __future__ import annotations

import asyncio
import random

import pyarrow as pa
import pytest
from millstream.client.errors import MillstreamError
from millstream.protocol import limits as limits_of_protocol
from millstream.protocol.messages import Ack, CancelRequest, Credit, Failure, OpenChannel, Ping, Pong, Reply, Rows, Statement
from millstream.server.net import limits
from millstream.server.net.inflow import Hold
from millstream.server.net.pacing import MessageAllowance, Pacer
from millstream.server.net.peer_memory import PeerMemory

from tests.support.live_server import Harness, run, until
from tests.support.scripted import ScriptedPeer, half_frame, pings

MIB = 2**20
TOKENS = {"admin_token": "a", "writer_token": "w", "reader_token": "r"}


def replies(peer: ScriptedPeer) -> list[int]:
    """Return the numbers of the requests that were answered."""
    return [m.request for m in peer.heard if isinstance(m, Reply)]


def test_a_peer_that_does_not_read_its_pongs_is_not_read_from_and_gets_each_once_it_reads() -> None:
    async def test(harness: Harness) -> None:
        peer = ScriptedPeer(harness.server.application)
        count = 150_000
        peer.say(*pings(count))
        await until(lambda: peer.session.writing_paused, "the pongs fill the write buffer")
        assert peer.held_bytes <= 2 * limits.WRITE_BUFFER_BYTES_MAX
        assert not peer.transport.is_reading
        assert peer.waiting, "most of what it said was never read"
        client = await harness.client()
        assert len(await client.execute("SHOW STREAMS")) == 0
        heard: list[int] = []
        while len(heard) < count:
            heard += [m.token for m in peer.listen() if isinstance(m, Pong)]
            peer.deliver()
            await asyncio.sleep(0)
        assert heard == list(range(1, count + 1))

    run(test, messages_per_s_max=100_000_000, within_s=200)


def test_answers_that_nobody_reads_are_not_made() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT)")
        await client.publish("t", [{"k": k, "v": "x" * 1_000} for k in range(2_000)])
        peer = ScriptedPeer(harness.server.application)
        peer.say(*[Statement(number, "FETCH SELECT * FROM t") for number in range(1, 51)])
        await until(lambda: peer.session.writing_paused, "answers fill the write buffer")
        rounds = len(await client.execute("SHOW STREAMS"))  # a round trip behind which any other answer would have been made
        assert rounds == 0
        assert len(peer.transport.unread) < 3 * MIB, "one answer over the bound, not fifty"
        replies = 0
        while replies < 50:
            heard = sum(isinstance(m, Reply) for m in peer.listen())
            replies += heard
            if heard:
                peer.say(Credit(bytes=heard * 3 * MIB))
            await asyncio.sleep(0.001)

    run(test, within_s=200)


def test_answers_obey_the_credit_of_a_peer_that_reads_and_takes_its_time() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT)")
        await client.publish("t", [{"k": k, "v": "x" * 1_000} for k in range(2_000)])
        peer, older = ScriptedPeer(harness.server.application), ScriptedPeer(harness.server.application, version=1)
        for one in (peer, older):
            one.say(*[Statement(number, "FETCH SELECT * FROM t") for number in range(1, 21)])
        while len(replies(older)) < 20:
            peer.listen()
            older.listen()
            await asyncio.sleep(0.001)

        def is_used_up() -> bool:
            peer.listen()  # while answers fill its write buffer, no more are made
            return not peer.session.connection.may_answer

        await until(is_used_up, "its credit is used up")
        answered = len(replies(peer))
        assert answered < 10, "16 MiB of answers of 2 MB"
        assert len(await client.execute("SHOW STREAMS")) == 0
        answers = peer.connection._dialogue.answers
        assert answers is not None
        peer.say(Credit(bytes=1 - answers.bytes))
        while len(replies(peer)) == answered:
            peer.listen()
            await asyncio.sleep(0.001)
        assert len(replies(peer)) == answered + 1, "a byte of credit, once the last answer is paid for, is one answer more"
        peer.say(Credit(bytes=64 * MIB))
        while len(replies(peer)) < 20:
            peer.listen()
            await asyncio.sleep(0.001)
        assert replies(peer) == list(range(1, 21))

    run(test, within_s=200)


def test_a_client_gets_any_number_of_answers() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT)")
        await client.publish("t", [{"k": k, "v": "x" * 1_000} for k in range(2_000)])
        for table in await asyncio.gather(*[client.query_once("SELECT * FROM t") for _ in range(20)]):
            assert table.num_rows == 2_000

    run(test, within_s=200)


def test_requests_that_wait_are_bounded_and_all_answered_in_order() -> None:
    async def test(harness: Harness) -> None:
        peer = ScriptedPeer(harness.server.application)
        text = "SHOW STREAMS -- " + "x" * 100_000
        peer.say(*[Statement(number, text) for number in range(1, 101)])
        assert peer.session._requested_bytes <= limits.REQUEST_BYTES_WAITING_MAX + 2 * len(text)
        assert not peer.transport.is_reading
        while len(replies(peer)) < 100:
            peer.listen()
            peer.deliver()
            await asyncio.sleep(0)
        assert replies(peer) == list(range(1, 101))
        assert peer.session._requested_bytes == 0

    run(test, within_s=200)


def test_half_frames_share_one_budget_and_the_oldest_large_one_goes() -> None:
    async def test(harness: Harness) -> None:
        application = harness.server.application
        small = ScriptedPeer(application, "w")
        half_frame(100_000, 10 * MIB)(small)
        peers = []
        for _ in range(30):
            peers.append(ScriptedPeer(application, "w"))
            half_frame(30 * MIB, 60 * MIB)(peers[-1])
            held = sum(p.session.connection.frame_memory_bytes for p in peers)
            assert held <= 256 * MIB
            assert application.peer_memory.total_bytes <= 256 * MIB
        closed = [p.transport.is_closed for p in peers]
        assert closed == sorted(closed, reverse=True), "the oldest ones were closed, no other"
        assert any(closed)
        assert not all(closed[-4:])
        assert not small.transport.is_closed, "it holds less than its share"
        failure = peers[0].listen()[-1]
        assert isinstance(failure, Failure)
        assert failure.fatal
        assert failure.code == "overloaded"
        assert "connections_bytes_max" in failure.message
        await asyncio.sleep(0)  # the closed ones are told
        await asyncio.sleep(0)
        for peer in (small, *peers):
            peer.transport.close()
        await until(lambda: application.peer_memory.total_bytes == 0, "what they held is free")

    run(test, **TOKENS, within_s=200)


def test_a_large_frame_gets_through_while_others_let_theirs_lie() -> None:
    async def test(harness: Harness) -> None:
        application = harness.server.application
        writer = await harness.client(token="w")
        admin = await harness.client(token="a")
        await admin.execute("CREATE STREAM s (ts BIGINT, t TEXT) TIMESTAMP BY ts UNIT us")
        for _ in range(10):
            half_frame(30 * MIB, 60 * MIB)(ScriptedPeer(application, "w"))
        ack = await writer.publish("s", pa.table({"ts": list(range(20)), "t": ["x" * 1_000_000] * 20}))
        assert ack.accepted == 20

    run(test, **TOKENS, within_s=200)


def test_a_reader_has_small_frames_and_is_told_so() -> None:
    async def test(harness: Harness) -> None:
        reader = await harness.client(token="r")
        assert reader.limits["frame_bytes_max"] == MIB
        with pytest.raises(MillstreamError, match="over the limit of 1048576"):
            await reader.execute("SHOW STREAMS -- " + "x" * MIB)
        assert len(await reader.execute("SHOW STREAMS")) == 0
        hostile = ScriptedPeer(harness.server.application, "r")
        half_frame(10, 2 * MIB)(hostile)
        failure = hostile.listen()[-1]
        assert isinstance(failure, Failure)
        assert failure.code == "limit"
        assert (await harness.client(token="w")).limits["frame_bytes_max"] == 64 * MIB

    run(test, **TOKENS)


def test_a_peer_that_has_its_frames_memory_as_they_come() -> None:
    async def test(harness: Harness) -> None:
        peer = ScriptedPeer(harness.server.application, "w")
        half_frame(40_000, 64 * MIB)(peer)
        assert peer.session.connection.frame_memory_bytes <= 256 * 1024
        for _ in range(100):
            peer.waiting += bytes(100_000)
            peer.deliver()
            arrived = peer.session.connection.partial_bytes
            assert peer.session.connection.frame_memory_bytes <= max(256 * 1024, 2 * arrived)

    run(test, **TOKENS)


def test_a_flood_of_messages_has_its_turns_and_loses_none() -> None:
    async def test(harness: Harness) -> None:
        application = harness.server.application
        clock, now_ns = application.now_ns, application.now_ns()
        # Time stands still: a slow machine would earn more messages with each that it handles.
        application.now_ns = application.pacer._now_ns = lambda: now_ns  # type: ignore[method-assign]
        flooding = [ScriptedPeer(application) for _ in range(3)]
        for peer in flooding:
            peer.say(*pings(2_000))
        own, shared = limits.OWN_MESSAGES_MAX - 1, limits.SHARED_MESSAGES_MAX  # the greeting was one
        assert [len(peer.listen()) for peer in flooding] == [own + shared, own, own], "not all at once"
        polite = ScriptedPeer(application)
        polite.say(Ping(7))
        assert [m.token for m in polite.listen()] == [7], "whoever says little waits for nobody"
        application.now_ns = application.pacer._now_ns = clock  # type: ignore[method-assign]
        for peer in flooding:
            while sum(isinstance(m, Pong) for m in peer.heard) < 2_000:
                peer.listen()
                peer.deliver()
                await asyncio.sleep(0.001)
            assert [m.token for m in peer.heard if isinstance(m, Pong)] == list(range(1, 2_001))
            assert peer.transport.is_reading

    run(test, messages_per_s_max=20_000, within_s=200)


@pytest.mark.parametrize("seed", range(3))
def test_in_whatever_order_a_peer_speaks_and_reads_it_is_answered_once_and_holds_no_more(seed: int) -> None:
    chance = random.Random(seed)

    async def test(harness: Harness) -> None:
        peers = [ScriptedPeer(harness.server.application) for _ in range(3)]
        asked = [0] * len(peers)
        pinged = [0] * len(peers)
        for _ in range(150):
            at = chance.randrange(len(peers))
            peer = peers[at]
            match chance.choice(["pings", "statements", "long", "cancel", "read", "some", "turn", "half"]):
                case "pings":
                    count = chance.randrange(1, 3_000)
                    peer.say(*pings(count, pinged[at] + 1))
                    pinged[at] += count
                case "statements" | "long" as what:
                    room = limits_of_protocol.REQUESTS_MAX - 10 - len(peer.connection.open_requests)
                    count = min(room, chance.randrange(1, 40))
                    text = "SHOW STREAMS" + (" -- " + "x" * 60_000 if what == "long" else "")
                    peer.say(*[Statement(asked[at] + i + 1, text) for i in range(count)])
                    asked[at] += max(count, 0)
                case "cancel" if asked[at]:
                    asked[at] += 1
                    peer.say(CancelRequest(asked[at], chance.randrange(1, asked[at])))
                case "read":
                    peer.listen()
                case "some":
                    peer.heard += peer.connection.receive_data(peer.transport.taken(min(len(peer.transport.unread), 500)))
                case "turn":
                    await asyncio.sleep(0)
                case _:
                    peer.deliver()
            assert peer.held_bytes <= 3 * MIB
        while any(len(answered(p)) < asked[i] or p.waiting for i, p in enumerate(peers)):
            for peer in peers:
                peer.listen()
                peer.deliver()
            await asyncio.sleep(0.001)
        for i, peer in enumerate(peers):
            assert sorted(answered(peer)) == list(range(1, asked[i] + 1)), "each request once"
            assert [m.token for m in peer.heard if isinstance(m, Pong)] == list(range(1, pinged[i] + 1))
            assert not peer.transport.is_closed
            assert peer.transport.is_reading

    run(test, within_s=200, ping_s=1_000.0)


def answered(peer: ScriptedPeer) -> list[int]:
    """Return the numbers of the requests that were answered, well or not."""
    return [m.request for m in peer.heard if isinstance(m, Reply | Failure) and m.request is not None]


def test_readers_cannot_take_every_place_nor_can_those_who_say_no_hello() -> None:
    async def test(harness: Harness) -> None:
        application = harness.server.application
        crowd = [ScriptedPeer(application, "r") for _ in range(20)]
        assert [p.session.role is not None for p in crowd] == [True] * 15 + [False] * 5
        refusal = crowd[15].heard[-1]
        assert isinstance(refusal, Failure)
        assert (refusal.code, "connections_max" in refusal.message) == ("overloaded", True)
        silent = [await harness.raw() for _ in range(40)]
        admin = await harness.client(token="a")
        assert len(await admin.execute("SHOW STREAMS")) == 0
        assert len(application._greeting) <= 16
        for _, writer in silent:
            writer.close()
        for peer in crowd:
            peer.transport.close()

    run(test, connections_max=16, **TOKENS)


def test_a_connection_has_so_many_unnamed_queries() -> None:
    async def test(harness: Harness) -> None:
        client, other = await harness.client(), await harness.client()
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
        first = await client.submit("SELECT v FROM s")
        await client.execute("SELECT v + 1 AS w FROM s")
        for start in (client.execute("SELECT v FROM s"), client.submit("SELECT v FROM s")):
            with pytest.raises(MillstreamError, match="connection_queries_max") as caught:
                await start
            assert caught.value.code == "limit"
        await client.submit("SELECT v FROM s", name="kept")
        await other.submit("SELECT v FROM s")
        await first.drop()
        await client.submit("SELECT v FROM s")

    run(test, connection_queries_max=2)


class Clock:
    """A clock that a test moves, and the calls that wait for it."""

    def __init__(self) -> None:
        self.now = 0
        self.due: list[tuple[int, object]] = []

    def now_ns(self) -> int:
        return self.now

    def call_later(self, seconds: float, call: object) -> None:
        self.due.append((self.now + round(seconds * 1e9), call))

    def go_to(self, ns: int) -> None:
        while self.due and min(at for at, _ in self.due) <= ns:
            self.due.sort(key=lambda entry: entry[0])
            self.now, call = self.due.pop(0)
            call()  # type: ignore[operator]
        self.now = ns


class Flooding:
    """A peer that always has more to say."""

    def __init__(self, pacer: Pacer, clock: Clock) -> None:
        self.said = 0
        self._clock = clock
        self._allowance = MessageAllowance(pacer, 0)

    def go_on(self, messages: int) -> None:
        if self._allowance.add(self, messages):
            self.speak()

    def spend(self, messages: int) -> bool:
        return self._allowance.spend(self, self._clock.now_ns(), messages)

    def speak(self) -> None:
        while True:
            self.said += 1
            if not self._allowance.spend(self, self._clock.now_ns()):
                return


def test_floods_share_the_allowance_evenly_however_many_they_are() -> None:
    for peers in (1, 10, 100):
        clock = Clock()
        pacer = Pacer(20_000, clock.now_ns, clock.call_later)
        flooding = [Flooding(pacer, clock) for _ in range(peers)]
        for peer in flooding:
            peer.speak()
        clock.go_to(10 * 10**9)
        said = sum(peer.said for peer in flooding)
        own = peers * (limits.OWN_MESSAGES_MAX + 11 * limits.OWN_MESSAGES_PER_S)
        assert 150_000 <= said <= 200_000 + limits.SHARED_MESSAGES_MAX + own
        assert max(p.said for p in flooding) <= 1.2 * min(p.said for p in flooding) + limits.OWN_MESSAGES_MAX


def test_who_has_said_far_too_much_at_once_waits_until_all_of_it_is_allowed() -> None:
    clock = Clock()
    pacer = Pacer(1_000, clock.now_ns, clock.call_later)
    greedy, modest = Flooding(pacer, clock), Flooding(pacer, clock)
    assert not greedy.spend(limits.OWN_MESSAGES_MAX + limits.SHARED_MESSAGES_MAX + 2_000)
    assert modest.spend(1), "its own allowance is left to each"
    clock.go_to(1_900_000_000)
    assert greedy.said == 0
    clock.go_to(2_200_000_000)
    assert greedy.said > 0


def test_rows_that_are_refused_have_turns_as_messages_have() -> None:
    async def test(harness: Harness) -> None:
        application = harness.server.application
        await (await harness.client()).execute("CREATE STREAM s (k BIGINT)")
        clock, now_ns = application.now_ns, application.now_ns()
        application.now_ns = application.pacer._now_ns = lambda: now_ns  # type: ignore[method-assign]
        peers = [ScriptedPeer(application) for _ in range(2)]
        for peer in peers:
            peer.say(OpenChannel(1, "s"))
            await until(lambda peer=peer: bool(peer.listen()), "the channel is open")  # type: ignore[misc]
        hostile, honest = peers
        rows = limits.REFUSED_ROWS_A_MESSAGE * (limits.OWN_MESSAGES_MAX + limits.SHARED_MESSAGES_MAX)
        channel = hostile.heard[-1].channel
        hostile.say(*[Rows(channel, number, [{"k": "no number"}] * rows) for number in (1, 2, 3)])
        acks = [m for m in hostile.listen() if isinstance(m, Ack)]
        assert [(a.through, a.rejected_rows) for a in acks] == [(1, rows)], "the second message waits, the first is acked"
        assert not hostile.transport.is_reading
        honest.say(Rows(honest.heard[-1].channel, 1, [{"k": 1}, {"k": "no number"}]))
        (ack,) = honest.listen()
        assert (ack.accepted, ack.rejected_rows) == (1, 1), "who sends few bad rows waits for nobody"
        application.now_ns = application.pacer._now_ns = clock  # type: ignore[method-assign]
        await until(lambda: (hostile.deliver(), hostile.listen(), hostile.heard[-1].through == 3)[-1], "all were told")
        assert sum(m.rejected_rows for m in hostile.heard if isinstance(m, Ack)) == 3 * rows

    run(test, messages_per_s_max=20_000, within_s=200)


def test_a_peer_that_is_gone_waits_for_no_turn() -> None:
    clock = Clock()
    pacer = Pacer(100, clock.now_ns, clock.call_later)
    first, second = Flooding(pacer, clock), Flooding(pacer, clock)
    first.speak()
    second.speak()
    assert pacer.waiting == 2
    pacer.forget(first)
    before = first.said
    clock.go_to(10**9)
    assert first.said == before
    assert second.said > 0


class Held:
    def __init__(self) -> None:
        self.evicted = False

    def evict(self, held_bytes: int, bytes_max: int) -> None:
        self.evicted = True


def test_room_is_made_by_the_oldest_of_those_above_an_even_share() -> None:
    memory = PeerMemory(10 * MIB)
    old_and_small, old_and_large, new = Held(), Held(), Held()
    memory.note(old_and_small, MIB)
    memory.note(old_and_large, 4 * MIB)
    memory.note(new, 4 * MIB)
    assert not any(h.evicted for h in (old_and_small, old_and_large, new))
    memory.note(new, 6 * MIB)
    assert [h.evicted for h in (old_and_small, old_and_large, new)] == [False, True, False]
    assert memory.total_bytes == 7 * MIB
    memory.note(new, 11 * MIB)
    assert new.evicted, "who holds all goes itself"
    memory.note(old_and_small, 0)
    assert (memory.total_bytes, memory.evicted_total) == (0, 2)


def test_one_peer_whatever_it_holds_is_no_more_than_the_budget() -> None:
    memory = PeerMemory(MIB)
    alone = Held()
    memory.note(alone, MIB + 1)
    assert alone.evicted
    assert memory.total_bytes == 0


def test_a_peer_that_leaves_while_it_is_not_read_from_is_missed() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
        for unread in (True, False):
            leaving = await harness.client()
            await leaving.submit("SELECT v FROM s")
            session = list(harness.server.application.sessions.values())[-1]
            transport = leaving._wire._transport
            assert transport is not None
            if unread:
                transport.pause_reading()
                leaving._wire._connection._dialogue.requests_max = 10**9
                while not session.writing_paused:
                    for _ in range(1_000):
                        leaving._wire.send(Ping(1))
                    await asyncio.sleep(0)
            else:
                session._inflow.hold(Hold.UNANSWERED)
            transport.abort()
            await until(lambda: len(harness.server.application.sessions) == 1, "its session is gone")
            while len(await client.execute("SHOW QUERIES")):
                await asyncio.sleep(0.01)

    run(test, messages_per_s_max=100_000_000, within_s=200)
