"""Rows that are pushed, published and told of while an order runs: whatever the order of these, nothing is left lying.

A hook in the place where orders run forces the order of events, so no test here depends on how threads happen to take turns.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from millstream.engine.data.work import WorkOrder, WorkReceipt
from millstream.scheduler.instructions import ClockNs, OrderExecutor

from tests.support.live_server import Harness, run, until

STREAMS = (
    "CREATE STREAM s (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s",
    "CREATE STREAM t (ts BIGINT, k TEXT, w BIGINT) TIMESTAMP BY ts UNIT s",
)
WAIT_S = 10.0


class HeldPush:
    """Runs orders. While the first one waits, a thread ends the stream s and stops between its log and `next_seq`.

    It goes on, and tells the scheduler, only after an order that could take nothing for want of that.
    """

    def __init__(self, executor: OrderExecutor, host: Any) -> None:
        self.blocked = 0
        self._executor = executor
        self._host = host
        self._appended, self._published = threading.Event(), threading.Event()
        self._ingress = host.network.ingress
        self._pusher = threading.Thread(target=host.end_stream, args=("s",), daemon=True)

    def run(self, order: WorkOrder, clock_ns: ClockNs) -> WorkReceipt:
        if self._pusher.ident is None:
            publish = self._ingress._publish
            self._ingress._publish = lambda: (self._appended.set(), self._published.wait(WAIT_S), publish())
            self._pusher.start()
            assert self._appended.wait(WAIT_S)
            self._ingress._publish = publish
        receipt = self._executor.run(order, clock_ns)
        if not self._published.is_set() and any(getattr(step, "blocked", False) for step in receipt.steps):
            self.blocked += 1
            self._published.set()
            self._pusher.join(WAIT_S)
            assert not self._pusher.is_alive()
        return receipt


def test_a_join_that_waits_for_an_arrival_number_goes_on_though_that_is_told_before_its_order_comes_back() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        for text in STREAMS:
            await client.execute(text)
        await client.execute("CREATE QUERY q AS SELECT s.v, t.w FROM s LEFT JOIN t ON s.k = t.k WITHIN 4 SECONDS")
        host = harness.server.application.host
        gate = host.runtime._gate  # type: ignore[attr-defined]
        held = gate._executor = HeldPush(gate._executor, host)
        # Not on the loop's thread, which runs orders by itself.
        await asyncio.to_thread(host.intake("s").take_rows, [{"ts": 1, "k": "a", "v": 1}])
        await until(lambda: bool(held.blocked), "an order found nothing")
        at = host.network.ingress.next_seq - 1
        await until(lambda: host.have_seen("s", at), "the end of s has been taken")

    run(test, within_s=30.0)
