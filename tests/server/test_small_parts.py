"""The small parts of the rim: HTTP answers, log lines, roles, the bridge, places of rows, held rows, the conservation alarm."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.column import Column
from millstream.engine.types import BIGINT
from millstream.server.bridge import Bridge
from millstream.server.config import Config
from millstream.server.errors import Denied
from millstream.server.feeding import DeferredFeeder
from millstream.server.http import answer
from millstream.server.logs import configure_logs, logger
from millstream.server.outbox import Outbox
from millstream.server.places import Places
from millstream.server.security import Role, require, role_of

PAGES = {"/x": lambda: (200, "text/plain", b"body\n")}


@pytest.mark.parametrize(
    ("request_line", "status", "has_body"),
    [
        (b"GET /x HTTP/1.1", 200, True),
        (b"GET /x?a=b HTTP/1.0", 200, True),
        (b"HEAD /x HTTP/1.1", 200, False),
        (b"GET /y HTTP/1.1", 404, False),
        (b"POST /x HTTP/1.1", 405, False),
        (b"hello", 400, False),
    ],
)
def test_a_request_gets_the_answer_it_should(request_line: bytes, status: int, has_body: bool) -> None:
    head, _, body = answer(request_line + b"\r\nHost: h\r\n\r\n", PAGES).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (body == b"body\n") is has_body


def test_log_lines_are_json_away_from_a_terminal_and_carry_their_context() -> None:
    out = io.StringIO()
    configure_logs("info", "auto", out)
    logger(connection=3).info("connected", role="admin")
    logger().debug("too_fine")
    logger().error("failed", exc_info=ValueError("broken"))
    first, second = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (first["event"], first["connection"], first["role"], first["level"]) == ("connected", 3, "admin", "info")
    assert "ValueError: broken" in second["exception"]


def test_without_tokens_everybody_is_admin_and_with_them_only_their_holders() -> None:
    assert role_of(Config(), None) is Role.ADMIN
    config = Config(admin_token="a", reader_token="r")
    assert [role_of(config, t) for t in ("a", "r", "x", "", None)] == [Role.ADMIN, Role.READER, None, None, None]
    require(Role.ADMIN, Role.WRITER, "publishing")
    with pytest.raises(Denied, match="publishing needs the writer role and this connection has reader"):
        require(Role.READER, Role.WRITER, "publishing")


def test_everything_posted_to_the_bridge_arrives_in_order_with_few_wake_ups() -> None:
    async def main() -> None:
        got: list[tuple[int, int]] = []
        wakes = 0
        loop = asyncio.get_running_loop()

        class Counting:
            def call_soon_threadsafe(self, callback: Any) -> None:
                nonlocal wakes
                wakes += 1
                loop.call_soon_threadsafe(callback)

        bridge: Bridge[tuple[int, int]] = Bridge(Counting(), got.append)  # type: ignore[arg-type]
        threads = [threading.Thread(target=lambda n=n: [bridge.post((n, i)) for i in range(500)]) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await loop.run_in_executor(None, thread.join)
        await asyncio.sleep(0)
        bridge.drain()
        assert len(got) == 1500
        assert all([i for m, i in got if m == n] == list(range(500)) for n in range(3))
        assert wakes <= len(got)

    asyncio.run(main())


class Said:
    """A sender that remembers when it wrote."""

    def __init__(self, name: str, wrote: list[str]) -> None:
        self.name, self.wrote = name, wrote

    def flush(self) -> None:
        self.wrote.append(self.name)


def test_the_outbox_passes_on_what_others_have_to_write_and_keeps_back_who_is_reading() -> None:
    wrote: list[str] = []
    reader, other = Said("reader", wrote), Said("other", wrote)
    with Outbox() as outbox:
        outbox.reading = reader
        outbox.add(reader)
        outbox.add(other)
        outbox.pass_on()
        assert wrote == ["other"]
        outbox.add(other)
        with outbox:
            assert outbox.reading is reader
        assert wrote == ["other"]
    assert wrote == ["other", "reader", "other"]
    assert outbox.reading is None
    outbox.add(other)  # closed: it writes by itself
    assert len(wrote) == 3


def test_the_bridge_delivers_early_only_what_is_wanted_and_raises_later() -> None:
    async def main() -> None:
        got: list[Any] = []

        def deliver(item: Any) -> None:
            if item == "bad":
                raise ValueError(item)
            got.append(item)

        bridge: Bridge[Any] = Bridge(asyncio.get_running_loop(), deliver)
        for item in ("a", "b", 1, "c"):
            bridge.post(item)
        bridge.drain_early(str, lambda: got.append("then"))
        assert got == ["a", "b", "then"]
        bridge.drain()
        assert got == ["a", "b", "then", 1, "c"]
        for item in ("bad", "d"):
            bridge.post(item)
        bridge.drain_early(str, got.clear)
        bridge.drain_early(str, lambda: None)
        assert (bridge.waiting, len(got)) == (1, 5)
        with pytest.raises(ValueError, match="bad"):
            bridge.drain()
        await asyncio.sleep(0)  # what it left behind is on its way all the same
        assert got[-1] == "d"

    asyncio.run(main())


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=6), st.integers(0, 3))
def test_a_rows_place_is_its_number_among_all_that_were_offered(pushes: list[list[bool]], between: int) -> None:
    places, expected, offered, seq = Places(), {}, 0, 0
    for push in pushes:
        accepted = [i for i, good in enumerate(push) if good]
        if accepted:
            seqs = np.arange(seq, seq + len(accepted))
            numbers = np.array([offered + i + 1 for i in accepted])
            places.note(seqs, numbers)
            expected.update(zip(seqs.tolist(), numbers.tolist(), strict=True))
        seq += len(accepted) + between
        offered += len(push)
    wanted = np.arange(-1, seq + 1)
    assert places.of(wanted) == [expected.get(s) for s in wanted.tolist()]


def test_held_rows_enter_in_the_order_of_what_caused_them_then_of_the_queries() -> None:
    pushed: list[tuple[str, list[int]]] = []
    feeder = DeferredFeeder(lambda stream, columns, _: pushed.append((stream, columns[0].values.tolist())))
    feeder.feed("t", 2, np.array([1, 3]), [Column(BIGINT, np.array([21, 23]))])
    feeder.feed("t", 1, np.array([1, 1, 2]), [Column(BIGINT, np.array([111, 112, 12]))])
    feeder.feed("a", 1, np.array([9]), [Column(BIGINT, np.array([9]))])
    assert feeder.flush()
    assert pushed == [("a", [9]), ("t", [111, 112, 21, 12, 23])]
    assert not feeder.flush()
