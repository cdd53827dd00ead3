"""Names and tokens are no keys to what is another's: no peer ends, takes or slows what belongs to another role or connection."""

from __future__ import annotations

import asyncio

import pytest
from millstream.client.errors import MillstreamError
from millstream.protocol.messages import CancelRequest, Failure, Reply, Statement, Unsubscribe
from millstream.server.results.results import ResultLog, read_token
from millstream.server.results.subscriptions import Feed, ReaderBounds, Subscription

from tests.server.test_subscriptions import FakeReader
from tests.support.live_server import Harness, rows_of, run
from tests.support.scripted import ScriptedPeer

STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us"
TOKENS = {"admin_token": "a", "writer_token": "w", "reader_token": "r"}


def test_a_client_id_belongs_to_the_role_that_uses_it() -> None:
    async def test(harness: Harness) -> None:
        admin = await harness.client(token="a", client_id="dashboard")
        await admin.execute(STREAM)
        await admin.submit("SELECT v FROM s", name="q")
        results = await admin.subscribe("q")
        for token in ("r", "w"):
            other = await harness.client(token=token, client_id="dashboard")
            theirs = await other.subscribe("q")
            await admin.publish("s", [{"ts": 1, "v": 1}])
            assert await rows_of(theirs, 1) == [{"v": 1}]
            assert await rows_of(results, 1) == [{"v": 1}]
        assert admin.is_open
        again = await harness.client(token="a", client_id="dashboard")
        await again.subscribe("q")
        with pytest.raises(MillstreamError):
            await admin.execute("SHOW STREAMS")

    run(test, **TOKENS)


def test_results_of_an_unnamed_query_wait_for_its_owner_whoever_subscribes_before() -> None:
    async def test(harness: Harness) -> None:
        owner, thief = await harness.client(), await harness.client()
        await owner.execute(STREAM)
        query = await owner.submit("SELECT v FROM s")
        await owner.publish("s", [{"ts": 1, "v": 1}])
        stolen = await thief.subscribe(query.name)
        await owner.publish("s", [{"ts": 2, "v": 2}])
        assert await rows_of(stolen, 1) == [{"v": 2}]
        assert await rows_of(await owner.subscribe(query), 2) == [{"v": 1}, {"v": 2}]

    run(test)


def test_requests_and_subscriptions_of_others_cannot_be_named() -> None:
    async def test(harness: Harness) -> None:
        application = harness.server.application
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s", name="q")
        results = await client.subscribe("q")
        hostile = ScriptedPeer(application)
        for number in range(1, 30):
            hostile.say(CancelRequest(number, target=1 + number % 3))
        hostile.say(Statement(31, "SHOW STREAMS"))
        while len(hostile.heard) < 31:
            hostile.listen()
            await asyncio.sleep(0)
        assert all(m.info == {"cancelled": False} for m in hostile.heard if isinstance(m, Reply) and m.request < 31)
        hostile.connection._dialogue._last_subscription = 9  # it says what an honest end would not
        hostile.say(Unsubscribe(32, 1))
        failure = hostile.listen()[-1]
        assert isinstance(failure, Failure)
        assert failure.fatal
        await client.publish("s", [{"ts": 1, "v": 1}])
        assert await rows_of(results, 1) == [{"v": 1}]

    run(test)


@pytest.mark.parametrize(
    "token",
    ["m1.{log}.0.999", "m1.{log}.99.0", "m1.{log}.1." + "9" * 18, "m1.ffffffffffff.0.0", "m1..0.0", "m1.{log}." + "9" * 5_000 + ".0", ""],
)
def test_a_forged_resume_token_is_refused_and_hurts_nobody(token: str) -> None:
    async def test(harness: Harness) -> None:
        client, forger = await harness.client(), await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s", name="q")
        results = await client.subscribe("q")
        await client.publish("s", [{"ts": 1, "v": 1}])
        assert await rows_of(results, 1) == [{"v": 1}]
        log = harness.server.application.feeds["q"].feed.log.identity
        with pytest.raises(MillstreamError, match="resume token"):
            await forger.subscribe("q", resume_token=token.format(log=log))
        assert forger.is_open
        await client.publish("s", [{"ts": 2, "v": 2}])
        assert await rows_of(results, 1) == [{"v": 2}]

    run(test)


def test_no_publisher_waits_for_a_reader_that_may_not_publish() -> None:
    for presses in (True, False):
        feed = Feed("q", ResultLog("a", 0, 0), ReaderBounds(1_000), hold_for_first=False)
        reader = FakeReader(credit=0)
        subscription = Subscription(feed, reader, 1, 1, lambda entry: {}, 0, presses=presses)
        feed.join(subscription, 0, 0)
        feed.publish(None, {"position": 1}, 1)
        assert feed.is_pressed(1) is presses


def test_a_token_is_read_within_bounds() -> None:
    assert read_token("m1.ab." + "9" * 18 + ".0") is not None
    assert read_token("m1.ab." + "9" * 19 + ".0") is None
    assert read_token("m1." + "a" * 65 + ".1.0") is None
    assert read_token("m1.ab.١.0") is None
