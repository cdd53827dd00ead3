"""A server whose machine's clock somebody sets: windows by arrival go on closing, and a restart does not go back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.clocks import BEGAN, Clocks, S
from tests.support.live_server import Harness, run, running, until

WINDOWS = "SELECT window_start, COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND]"


def test_windows_by_arrival_go_on_after_a_day_ahead_for_four_seconds() -> None:
    clocks = Clocks()

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (v BIGINT)")
        await client.submit(WINDOWS, name="q")
        subscription = await client.subscribe("q")
        intake = harness.server.application.host.intakes["s"]
        starts = []
        for second in range(8):
            if second in (2, 6):
                clocks.is_set(86_400 if second == 2 else -86_400)
            await client.publish("s", [{"v": second}])
            assert intake.accepted_total == second + 1
            clocks.passes(1)
            if second:
                batch = await asyncio.wait_for(subscription.next_item(), 10)
                starts += batch.column("window_start").to_pylist()
        assert [round(at.timestamp()) - BEGAN // S for at in starts] == list(range(len(starts)))
        assert clocks.told == ["clock_jumped", "clock_right_again"]

    run(test, clock=clocks.arrival_clock)


def test_a_restart_with_the_clock_an_hour_back_begins_no_earlier_than_the_last_journaled_time(tmp_path: Path) -> None:
    async def start(clocks: Clocks) -> int:
        async with running(data_dir=str(tmp_path), clock=clocks.arrival_clock) as harness:
            client = await harness.client()
            if not (tmp_path / "made").exists():
                await client.execute("CREATE STREAM s (v BIGINT) DURABILITY sync")
                (tmp_path / "made").touch()
            await client.publish("s", [{"v": 1}])
            source = harness.server.application.host.network.sources["s"]
            await until(lambda: source.last_arrival_us is not None, "the row enters")
            return source.last_arrival_us or 0

    first = asyncio.run(start(Clocks()))
    back = Clocks(BEGAN - 3_600 * S)
    assert asyncio.run(start(back)) >= first
    assert back.told == ["clock_behind"]
    forward = Clocks(BEGAN + 3_600 * S)
    assert asyncio.run(start(forward)) == (BEGAN + 3_600 * S) // 1_000
    assert forward.told == []
