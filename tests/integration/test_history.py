"""A query that begins in the past answers what one answers that was there from the beginning, to the row."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from millstream.client.errors import MillstreamError
from millstream.server.archive.archiver import ArchiveBounds
from millstream.server.durability import catching_up

from tests.integration.test_archive import SETTINGS, archive_of, settle
from tests.support.live_server import Harness, running, until

STREAMS = [
    "CREATE STREAM s (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s DELAY 3 SECONDS DURABILITY journal ARCHIVE",
    "CREATE STREAM t (ts BIGINT, k TEXT, w BIGINT) TIMESTAMP BY ts UNIT s DURABILITY sync ARCHIVE PARTITION BY DAY",
    "CREATE STREAM a (k TEXT, v BIGINT) DURABILITY journal ARCHIVE",
    "CREATE TABLE names (k TEXT, name TEXT, PRIMARY KEY (k)) DURABILITY journal",
]
QUERIES = {
    "plain": "SELECT ts, v FROM s WHERE v % 2 = 0",
    "windows": "SELECT window_start, k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "sessions": "SELECT window_start, k, COUNT(*) AS n FROM s [SESSION 3 SECONDS] GROUP BY k",
    "joined": "SELECT s.v, t.w FROM s JOIN t ON s.k = t.k WITHIN 4 SECONDS",
    "outer": "SELECT s.v, t.w FROM s LEFT JOIN t ON s.k = t.k AND s.v = t.w WITHIN 2 SECONDS",
    "itself": "SELECT x.v AS a, y.v AS b FROM s x JOIN s y ON x.k = y.k AND x.v < y.v WITHIN 2 SECONDS",
    "named": "SELECT s.v, n.name FROM s LEFT JOIN names n ON s.k = n.k",
    "lagged": "SELECT v, LAG(v) OVER (PARTITION BY k) AS before FROM s",
    "arrived": "SELECT COUNT(*) AS n, SUM(v) AS total FROM a [ROWS 3]",
}
KEYS = ("a", "b", None)


def s_rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"ts": n // 2 - 7 * (n % 11 == 0), "k": KEYS[n % 3], "v": n} for n in range(start, stop)]


def t_rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"ts": n // 2, "k": KEYS[n % 2], "w": n} for n in range(start, stop)]


async def publish(client: Any, start: int, stop: int) -> None:
    await client.publish("s", s_rows(start, stop))
    await client.publish("t", t_rows(start, stop))
    await client.publish("a", [{"k": "x", "v": n} for n in range(start, stop)])


async def create(client: Any, prefix: str, options: str = "") -> None:
    for name, text in QUERIES.items():
        await client.execute(f"CREATE QUERY {prefix}_{name} {options} AS {text}")


async def answers(client: Any, prefix: str) -> dict[str, list[dict[str, Any]]]:
    """Return all that was answered, once the streams have ended."""
    subscriptions = {name: await client.subscribe(f"{prefix}_{name}", from_start=True) for name in QUERIES}
    return {name: (await asyncio.wait_for(one.to_arrow(), 30)).to_pylist() for name, one in subscriptions.items()}


async def caught_up(harness: Harness, prefix: str = "late") -> None:
    host = harness.server.application.host
    late = [query for query in host.queries if query.name.startswith(prefix)]
    await until(lambda: all(q.catching_up is None or q.failure for q in late), "the queries have caught up")
    assert [(q.name, q.failure) for q in late if q.failure] == []


async def end(client: Any) -> None:
    for stream in ("s", "t", "a"):
        await client.finish(stream)


def test_a_query_that_begins_in_the_past_answers_what_one_does_that_was_there_from_the_beginning(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            for text in STREAMS:
                await client.execute(text)
            await client.publish("names", [{"k": "a", "name": "first"}])
            await create(client, "first")
            for part in range(6):
                await publish(client, part * 10, part * 10 + 10)
                if part < 4:
                    await settle(harness)
            await create(client, "late", "WITH (history = 'archive')")
            await publish(client, 60, 80)  # perhaps while they catch up
            await caught_up(harness)
            assert all(row["progress"] is None for row in (await client.execute("SHOW QUERIES")).rows)
            host = harness.server.application.host
            assert not any(host.network.queries[query.id].past for query in host.queries if query.id is not None)
            await publish(client, 80, 100)
            await end(client)
            first, late = await answers(client, "first"), await answers(client, "late")
            for name in QUERIES:
                assert late[name] == first[name], name
            assert all(first.values())
            assert [name for name, account in host.unbalanced()] == []

    asyncio.run(test())


def test_a_query_that_a_restart_would_not_rebuild_goes_live_with_its_windows_too(tmp_path: Path) -> None:
    text = (
        "SELECT window_end, name, COUNT(*) AS n FROM (SELECT s.ts, p.name AS name FROM s LEFT JOIN passing p ON s.k = p.k)"
        " [RANGE 4 SECONDS SLIDE 2 SECONDS] AS u GROUP BY name"
    )

    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            for one in (STREAMS[0], "CREATE TABLE passing (k TEXT, name TEXT, PRIMARY KEY (k))"):
                await client.execute(one)
            await client.publish("passing", [{"k": "a", "name": "first"}])
            await client.submit(text, name="first")
            await client.publish("s", s_rows(0, 40))
            await client.submit(text, name="late", history="archive")
            await caught_up(harness)
            await client.publish("s", s_rows(40, 80))
            await client.finish("s")
            first, late = [await client.subscribe(name, from_start=True) for name in ("first", "late")]
            wanted = (await asyncio.wait_for(first.to_arrow(), 30)).to_pylist()
            assert (await asyncio.wait_for(late.to_arrow(), 30)).to_pylist() == wanted
            assert len(wanted) > 20

    asyncio.run(asyncio.wait_for(test(), 60))


STEPS = st.lists(st.sampled_from(["publish", "publish", "archive", "checkpoint", "kill", "hold", "go"]), min_size=4, max_size=12)


async def expected(directory: Path, rows: int) -> dict[str, list[dict[str, Any]]]:
    async with running(data_dir=str(directory)) as harness:
        client = await harness.client()
        for text in STREAMS:
            await client.execute(text)
        await client.publish("names", [{"k": "a", "name": "first"}])
        await create(client, "late")
        for start in range(0, rows, 5):
            await publish(client, start, start + 5)
        await end(client)
        return await answers(client, "late")


class RandomHistory:
    """Goes through steps on one server after the other; what a kill leaves is a copy of the directory."""

    def __init__(self, directory: Path, steps: list[str], created_at: int) -> None:
        self.directory = directory
        self.steps = steps
        self.created_at = created_at
        self.rows = 0
        self.kills = 0

    async def run(self) -> dict[str, list[dict[str, Any]]]:
        """Return what the late queries answered on the last server."""
        ahead = list(enumerate(self.steps))
        while True:
            async with running(data_dir=str(self.directory), **SETTINGS) as harness:
                client = await harness.client()
                if self.rows == 0 and self.kills == 0:
                    for text in STREAMS:
                        await client.execute(text)
                    await client.publish("names", [{"k": "a", "name": "first"}])
                while ahead:
                    number, step = ahead.pop(0)
                    if number == self.created_at:
                        await create(client, "late", "WITH (history = 'archive')")
                    if step == "kill":
                        break
                    await self.take(step, harness, client)
                else:
                    feeding(harness).holds_back = lambda query: False
                    await caught_up(harness)
                    await publish(client, self.rows, self.rows + 5)
                    await end(client)
                    return await answers(client, "late")
                await asyncio.to_thread(harness.server.application.journaling.wait_safe)  # type: ignore[union-attr]
                self.kills += 1
                left = self.directory.with_name(f"{self.directory.name}-{self.kills}")
                shutil.copytree(self.directory, left)
            self.directory = left

    async def take(self, step: str, harness: Harness, client: Any) -> None:
        if step == "publish":
            await publish(client, self.rows, self.rows + 5)
            self.rows += 5
        elif step == "archive":
            await settle(harness)
        elif step == "checkpoint":
            journaling = harness.server.application.journaling
            assert journaling is not None
            await harness.server.application.call(journaling.checkpoint)
        else:
            feeding(harness).holds_back = lambda query: step == "hold"


def feeding(harness: Harness) -> Any:
    journaling = harness.server.application.journaling
    assert journaling is not None
    return journaling.catching_up


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, created_at=st.integers(0, 4))
@example(steps=["publish", "hold", "archive", "kill", "publish", "go", "checkpoint", "kill", "publish"], created_at=2)
@example(steps=["publish", "archive", "publish", "go", "publish", "checkpoint", "kill", "publish"], created_at=3)
def test_random_histories_with_kills_give_each_result_as_if_nothing_had_been(steps: list[str], created_at: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = RandomHistory(Path(folder) / "data", steps, min(created_at, len(steps) - 1))
        late = asyncio.run(history.run())
        wanted = asyncio.run(expected(Path(folder) / "expected", history.rows + 5))
        for name, rows in wanted.items():
            kept = len(late[name])  # after a restart that a checkpoint stands for, results from before it are not given again
            assert late[name] == rows[len(rows) - kept :], name
            assert kept == len(rows) or history.kills, name


def test_what_cannot_begin_in_the_past_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            for text in STREAMS:
                await client.execute(text)
            await client.execute("CREATE STREAM plain (v BIGINT)")
            await client.execute("CREATE STREAM made AS SELECT v FROM s")
            await client.execute("CREATE CLASS cheap PRIORITY 1 SHED")
            for text, word in (
                ("CREATE QUERY q WITH (history = 'archive') AS SELECT v FROM plain", "no archive"),
                ("CREATE QUERY q WITH (history = 'archive') AS SELECT v FROM made", "derived stream"),
                ("CREATE QUERY q WITH (history = 'archive', class = 'cheap') AS SELECT v FROM s", "may be shed"),
                ("CREATE QUERY q WITH (history_from = '2020-01-01') AS SELECT v FROM s", "history = 'archive'"),
                ("CREATE QUERY q WITH (history = 'all') AS SELECT v FROM s", "'archive'"),
            ):
                with pytest.raises(MillstreamError, match=word):
                    await client.execute(text)
            assert (await client.execute("SHOW QUERIES")).rows == []

    asyncio.run(test())


def test_a_query_may_begin_in_the_middle_and_says_from_where_it_is_complete_and_how_far_it_is(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            for text in STREAMS:
                await client.execute(text)
            await create(client, "first")
            for part in range(8):
                await publish(client, part * 10, part * 10 + 10)
                await settle(harness)
            feeding(harness).holds_back = lambda query: True
            await create(client, "late", "WITH (history = 'archive', history_from = '1970-01-01 00:00:20')")
            shown = {row["name"]: row for row in (await client.execute("SHOW QUERIES")).rows}
            assert shown["late_windows"]["progress"] == "catching up 0%"
            complete = shown["late_windows"]["complete_from"]
            assert complete == 20_000_000  # µs
            assert archive_of(harness).readers > 0
            feeding(harness).holds_back = lambda query: False
            await caught_up(harness)
            assert archive_of(harness).readers == 0
            await publish(client, 80, 100)
            await end(client)
            first, late = await answers(client, "first"), await answers(client, "late")
            assert late["windows"]
            whole = [row for row in first["windows"] if row["window_start"].timestamp() >= 20]
            assert [row for row in late["windows"] if row["window_start"].timestamp() >= 20] == whole

    asyncio.run(test())


def test_a_query_that_catches_up_is_given_no_more_of_the_past_than_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is paused, a bounded number of rows waits before it; then it goes on, and says what is left."""
    monkeypatch.setattr(catching_up, "STEP_ROWS", 20)
    monkeypatch.setattr(catching_up, "AHEAD_ROWS_MAX", 60)
    rows = 400

    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAMS[0])
            await client.publish("s", s_rows(0, rows))
            await settle(harness)
            host = harness.server.application.host
            feeding(harness).holds_back = lambda query: True
            await client.execute("CREATE QUERY late WITH (history = 'archive') AS SELECT v FROM s")
            await client.execute("PAUSE QUERY late")
            feeding(harness).holds_back = lambda query: False
            (query,) = [query for query in host.queries if query.name == "late"]
            (source,) = query.catching_up.past.sources.values()
            await until(lambda: source.log.rows_held >= 60, "as much waits as may")
            seen = asyncio.Event()
            step = query.catching_up.step

            def looked() -> Any:
                done = step()
                if done is False:
                    loop.call_soon_threadsafe(seen.set)
                return done

            loop = asyncio.get_running_loop()
            query.catching_up.step = looked
            await asyncio.wait_for(seen.wait(), 30)
            assert source.log.rows_held <= 60 + 20
            shown = (await client.execute("SHOW QUERIES")).rows[0]["progress"]
            assert re.fullmatch(r"catching up \d+%, \d+ (s|min) left", shown), shown
            assert 0 < int(shown.split()[2].rstrip("%,")) < 50
            await client.execute("RESUME QUERY late")
            await caught_up(harness)
            await client.finish("s")
            subscription = await client.subscribe("late", from_start=True)
            found = (await asyncio.wait_for(subscription.to_arrow(), 30)).to_pylist()
            assert [row["v"] for row in found] == list(range(rows))

    asyncio.run(test())


def test_what_the_journal_lets_go_of_while_a_query_catches_up_is_read_from_the_archive(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path), archive_wait_s=3600.0, journal_fsync_s=0.001) as harness:
            client = await harness.client()
            for text in STREAMS:
                await client.execute(text)
            await create(client, "first")
            await publish(client, 0, 20)
            application, loop = harness.server.application, asyncio.get_running_loop()
            journaling = application.journaling
            assert journaling is not None
            await application.call(journaling.checkpoint)
            base = journaling.journal.segments[-1].base
            assert archive_of(harness).state.files == ()
            safe_parts, hooked = journaling.journal.safe_parts, threading.Event()

            def after_the_archive_took_it_and_the_journal_let_go() -> Any:
                if threading.current_thread().name == "history" and not hooked.is_set():
                    hooked.set()
                    journaling.archives.bounds = ArchiveBounds(wait_s=0.0)
                    asyncio.run_coroutine_threadsafe(settle(harness), loop).result(30)
                    asyncio.run_coroutine_threadsafe(application.call(lambda: journaling.journal.drop_before(base)), loop).result(30)
                return safe_parts()

            journaling.journal.safe_parts = after_the_archive_took_it_and_the_journal_let_go
            await create(client, "late", "WITH (history = 'archive')")
            await until(hooked.is_set, "the journal has been read")
            await caught_up(harness)
            await end(client)
            assert await answers(client, "late") == await answers(client, "first")

    asyncio.run(test())


def test_a_query_whose_state_cannot_change_hands_goes_on_behind_the_journal(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            for text in STREAMS:
                await client.execute(text)
            await create(client, "first")
            await publish(client, 0, 20)
            await settle(harness)
            feeding(harness).holds_back = lambda query: True
            await create(client, "late", "WITH (history = 'archive')")
            late = [query for query in harness.server.application.host.queries if query.name.startswith("late")]
            for query in late:
                query.catching_up.stays = True  # type: ignore[union-attr]
            feeding(harness).holds_back = lambda query: False
            for start in range(20, 60, 10):
                await publish(client, start, start + 10)
                await settle(harness)
            assert {row["progress"] for row in (await client.execute("SHOW QUERIES")).rows} == {None, "follows the journal"}
            await end(client)
            assert await answers(client, "late") == await answers(client, "first")

    asyncio.run(test())
