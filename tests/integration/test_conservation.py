"""The server checks the conservation law itself (K10) and raises an alarm when it does not hold."""

from __future__ import annotations

from tests.support.live_server import Harness, run, until


def test_an_account_that_does_not_balance_is_counted_and_a_sound_one_is_not() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        application = harness.server.application
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
        await client.submit("SELECT v FROM s", name="everything")
        await client.publish("s", [{"ts": 1, "v": 1}])
        host, sweep = application.host, harness.server._sweep
        await until(lambda: host.runtime.statistics().idle, "all is worked off")
        for _ in range(3):
            sweep._check_law()
        assert application.unbalanced_total == 0
        query = host.queries.get("everything")
        assert query.id is not None
        ledger = host.network.queries[query.id].ledgers["s"]
        ledger.rows_before -= 1  # a row that was accepted and has got lost
        await client.publish("s", [{"ts": 2, "v": 2}])  # while nothing moves, accounts that balanced are not summed up again
        await until(lambda: host.runtime.statistics().idle, "all is worked off")
        sweep._check_law()
        sweep._check_law()
        assert application.unbalanced_total == 1

    run(test)
