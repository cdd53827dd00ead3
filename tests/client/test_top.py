"""`top`: its figures from two looks, its plain text, and its screen driven by Textual's pilot at several sizes."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import pytest
from millstream.client import cli, connect, figures
from millstream.client.commands.top import Server, plain
from millstream.client.errors import MillstreamError
from millstream.client.top.model import Look, board, details, look, operators, typed_rows
from millstream.client.top.screen import PaneTable, TopScreen
from textual.pilot import Pilot
from textual.widgets import Static

from tests.support.live_server import Harness, run, until

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (figures.count, 9_999, "9,999"),
        (figures.count, 12_345, "12.3k"),
        (figures.count, 999_999, "1M"),
        (figures.count, 0, "0"),
        (figures.count, None, "—"),
        (figures.rate, 0.5, "0.5/s"),
        (figures.rate, 12_345.6, "12.3k/s"),
        (figures.size, 512, "512 B"),
        (figures.size, 1_536, "1.5 KiB"),
        (figures.size, 6_319_014_912, "5.89 GiB"),
        (figures.duration, 0.123456, "0.123 ms"),
        (figures.duration, 28.677928868493307, "28.7 ms"),
        (figures.duration, 90_000, "1.5 min"),
        (figures.duration, 1_234, "1.23 s"),
        (figures.duration, 200_000_000, "2.31 d"),
        (figures.percent, 0.0123456, "0.0123%"),
        (figures.significant, 1428.02679777137, "1428"),
        (figures.significant, 0.9630531453333334, "0.963"),
        (figures.significant, 1e-20, "0"),
        (figures.significant, math.inf, "∞"),
        (figures.significant, math.nan, "NaN"),
    ],
)
def test_figures_have_three_digits_and_a_unit(show: Callable[[Any], str], value: float | None, text: str) -> None:
    assert show(value) == text


def queries(count: int, accepted: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"query_{i:03d}",
            "state": "paused" if i == 1 else "running",
            "class": "gold" if i % 2 else "default",
            "accepted": accepted * (i + 1),
            "results": accepted // 10,
            "queued": i,
            "late": 0,
            "shed": 0,
            "latency_p99_ms": 28.677928868493307 / (i + 1),
            "latency_ms": None,
            "memory_bytes": 200_000,
            "target": "missed" if i == 0 else None,
            "slowdown": 1428.02679777137,
            "utility": 0.9630531453333334,
            "durable": True,
            "failure": None,
            "text": f"SELECT k, AVG(v) AS mean FROM readings [RANGE {i} SECONDS] GROUP BY k",
        }
        for i in range(count)
    ]


def tables(count: int = 3, accepted: int = 1_000) -> dict[str, list[dict[str, Any]]]:
    return {
        "QUERIES": queries(count, accepted),
        "STREAMS": [
            {
                "name": "readings",
                "state": "open",
                "accepted": accepted,
                "refused": 2,
                "shed": 0,
                "columns": "ts TIMESTAMP",
                "definition": "x",
            }
        ],
        "CLASSES": [
            {"name": "gold", "priority": 6.0, "target": dt.timedelta(seconds=0.3), "latency_p99_ms": 1.5, "load": 0.25, "headroom": 0.75}
        ],
        "POLICIES": [
            {"name": "fcfs", "in_use": True, "summary": "the oldest tuple first", "options": "level=query"},
            {"name": "hnr", "in_use": False, "summary": "greatest output rate by ideal time " * 4, "options": ""},
        ],
        "SCHEDULER": [
            {"measure": "policy", "value": "fcfs"},
            {"measure": "workers", "value": "2"},
            {"measure": "busy_ns", "value": str(accepted * 1_000_000)},
            {"measure": "orders", "value": str(accepted)},
            {"measure": "rows_waiting", "value": "12345"},
            {"measure": "deciding_share", "value": "0.0123456"},
        ],
        "WATERMARKS": [{"stream": "readings", "watermark": NOON - dt.timedelta(seconds=2)}],
        "WORKERS": [
            {"worker": 1, "pid": 70, "load_percent": 12.345, "state_bytes": 1_536, "ends": 0},
            {"worker": 2, "pid": 71, "load_percent": 0.0, "state_bytes": 0, "ends": 3},
        ],
    }


class FakeServer:
    """A server whose streams get 1,000 rows a second, on a clock of its own."""

    server = "millstream 9 at 127.0.0.1:7415"

    def __init__(self, count: int = 3) -> None:
        self.count = count
        self.looks = 0
        self.said: list[str] = []
        self.failure: MillstreamError | None = None

    def look(self) -> Look:
        if self.failure is not None:
            raise self.failure
        self.looks += 1
        return Look(float(self.looks), NOON, tables(self.count, 1_000 * self.looks))

    def execute(self, statement: str) -> Iterable[Mapping[str, Any]]:
        self.said.append(statement)
        if self.failure is not None:
            raise self.failure
        return [{"operator": 7, "kind": "aggregate", "cost_us_per_row": 3.1453826212671117}] if statement.startswith("EXPLAIN") else []


def test_rates_are_those_between_two_looks() -> None:
    first, second = Look(1.0, NOON, tables(2, 1_000)), Look(3.0, NOON, tables(3, 5_000))
    alone, both = board(first), board(second, first)
    assert [row["rows_per_s"] for row in alone.panes["queries"].rows] == [None, None]
    assert [row["rows_per_s"] for row in both.panes["queries"].rows] == [2_000, 4_000, None]
    assert dict(both.summary) == {
        "queries": "2 of 3 running",
        "in": "2k/s",
        "out": "400/s",
        "waiting": "12.3k",
        "state": "586 KiB",
    }
    workers = {row["name"]: row["value"] for row in both.panes["workers"].rows}
    assert (workers["workers"], workers["busy"], workers["deciding"], workers["orders"]) == ("2", "2 cores", "1.23%", "2k/s")
    assert (workers["worker 1"], workers["worker 2"]) == ("12.3%  1.5 KiB", "0%  0 B  ended 3 times")
    again = board(Look(4.0, NOON, tables(2, 10)), second)
    assert again.panes["streams"].rows[0]["rows_per_s"] is None, "a server that was started again counts anew"
    assert both.panes["streams"].rows[0]["behind_ms"] == 2_000
    assert both.policy == "fcfs (level=query)"


def test_a_pane_is_sorted_and_filtered() -> None:
    pane = board(Look(1.0, NOON, tables(4))).panes["queries"]
    assert [key for key, _ in pane.shown("queued", descending=True)] == ["query_003", "query_002", "query_001", "query_000"]
    assert [key for key, _ in pane.shown("target")] == ["query_000", "query_001", "query_002", "query_003"], "what is unknown goes last"
    assert pane.shown("target", descending=True)[0][0] == "query_000"
    assert [key for key, _ in pane.shown(filter="GOLD")] == ["query_001", "query_003"]
    assert pane.shown(filter="28.7 ms") == [], "figures are not searched"


def test_what_a_role_may_not_see_is_left_out() -> None:
    def execute(statement: str) -> Iterable[Mapping[str, Any]]:
        if statement != "SHOW STREAMS":
            raise MillstreamError("forbidden", "not for readers")
        return tables()["STREAMS"]

    shown = board(look(execute, lambda: (1.0, NOON)))
    assert [name for name, pane in shown.panes.items() if pane.rows] == ["streams"]
    assert "STREAMS" in plain(shown, "x")

    def fails(statement: str) -> Iterable[Mapping[str, Any]]:
        raise MillstreamError("disconnected", "gone")

    with pytest.raises(MillstreamError, match="gone"):
        look(fails, lambda: (1.0, NOON))


def test_plain_text_cuts_nothing_and_leaves_out_what_is_unknown() -> None:
    text = plain(board(Look(1.0, NOON, tables(2))), "millstream 9 at there")
    lines = text.splitlines()
    assert lines[:2] == ["millstream 9 at there", "policy fcfs (level=query)"]
    head = lines[lines.index("QUERIES") + 1].split()
    assert head == ["query", "state", "class", "queued", "late", "p99", "target", "shed", "memory", "results", "slowdown", "utility"]
    assert any(line.split()[:4] == ["query_000", "running", "default", "0"] and "28.7 ms" in line for line in lines)
    assert "SELECT" not in text


def test_plain_text_fits_the_terminal_and_says_what_has_no_room() -> None:
    shown = board(Look(1.0, NOON, tables(2)))
    whole = plain(shown, "x").splitlines()
    assert max(map(len, whole)) > 80
    for width in (60, 80, 100):
        lines = plain(shown, "x", width).splitlines()
        assert max(map(len, lines)) <= width
        head = lines[lines.index("QUERIES") + 1].split()
        section = "\n".join(lines[lines.index("QUERIES") :]).partition("\n\n")[0].replace("\n", " ")
        said = section.partition("no room for ")[2].split(", ") if "no room for " in section else []
        assert [*head, *said] == whole[whole.index("QUERIES") + 1].split()
    assert plain(shown, "x", 1_000) == plain(shown, "x")


def test_details_show_everything_with_units() -> None:
    now = Look(1.0, NOON, tables())
    text = details(now, "queries", "query_000")
    assert text.startswith("SELECT k, AVG(v)")
    assert "latency_p99_ms  28.7 ms" in text
    assert "memory_bytes    195 KiB" in text
    assert details(now, "queries", "x") == "x is gone"
    assert details(now, "classes", "gold").splitlines()[2] == "target          300 ms"
    table = operators([{"operator": 7, "kind": "aggregate", "rows_in": 1234, "cost_us_per_row": 3.1453826212671117, "watermark": NOON}])
    assert [line.split() for line in table.splitlines()][::2] == [["operator", "in", "µs", "a", "row"], ["aggregate", "1,234", "3.15"]]
    assert operators([]) == ""


def test_times_are_pythons_where_python_reaches_them() -> None:
    types = {"t": "TIMESTAMP", "i": "INTERVAL", "n": "BIGINT"}
    rows = typed_rows(types, [{"t": 1_715_000_000_000_000, "i": 300_000, "n": 1}, {"t": 2**62, "i": None, "n": None}])
    assert rows[0] == {"t": dt.datetime(2024, 5, 6, 12, 53, 20, tzinfo=dt.UTC), "i": dt.timedelta(seconds=0.3), "n": 1}
    assert rows[1] == {"t": 2**62, "i": None, "n": None}


# --- the screen ---


def drive(test: Callable[[Pilot[None], TopScreen], Awaitable[None]], source: Any, size: tuple[int, int] = (80, 24)) -> None:
    """Run a test on a screen of a size. It looks only when it is told to: `every_s` is longer than any test."""

    async def whole() -> None:
        app = TopScreen(source, every_s=3_600)
        async with app.run_test(size=size) as pilot:
            await settled(pilot, app)
            await test(pilot, app)

    asyncio.run(asyncio.wait_for(whole(), 60))


async def settled(pilot: Pilot[None], app: TopScreen) -> None:
    await app.workers.wait_for_complete()
    await pilot.pause()


async def looked(pilot: Pilot[None], app: TopScreen) -> None:
    await app.look()
    await pilot.pause()


def seen(app: TopScreen) -> list[str]:
    """Return the lines of the screen as text."""
    width, height = app.size
    return ["".join(segment.text for segment in strip)[:width].rstrip() for strip in app.screen._compositor.render_strips()][:height]


def keys(app: TopScreen, pane: str = "queries") -> list[str]:
    return [str(row.key.value) for row in app.screen_stack[0].query_one(f"#{pane}", PaneTable).ordered_rows]


def test_a_small_terminal_shows_one_pane_and_the_names_of_all() -> None:
    async def test(pilot: Pilot[None], app: TopScreen) -> None:
        await looked(pilot, app)
        lines = seen(app)
        assert lines[0].strip() == "millstream 9 at 127.0.0.1:7415  policy fcfs (level=query)"
        assert lines[1].split() == [
            "queries",
            "2",
            "of",
            "3",
            "running",
            "in",
            "1k/s",
            "out",
            "300/s",
            "waiting",
            "12.3k",
            "state",
            "586",
            "KiB",
        ]
        assert lines[2].strip() == "1 Queries (3)   2 Streams (1)   3 Classes and policy (1)   4 Workers"
        assert lines[3].split()[:9] == ["query", "state", "class", "in", "out", "queued", "late", "p99", "target"]
        assert lines[4].split()[:6] == ["query_000", "running", "default", "1k/s", "100/s", "0"]
        assert "q Leave" in lines[23]
        for key, words in (("2", "readings"), ("3", "300 ms"), ("4", "worker 2"), ("1", "query_002")):
            await pilot.press(key)
            await pilot.pause()
            assert any(words in line for line in seen(app)[4:]), (key, seen(app))

    drive(test, FakeServer())


def test_a_figure_that_grows_is_drawn_whole_before_the_table_has_been_idle() -> None:
    async def test(pilot: Pilot[None], app: TopScreen) -> None:
        assert seen(app)[4].split()[:5] == ["query_000", "running", "default", "—", "—"]
        await app.look()
        at_once = seen(app)[4]
        assert at_once.split()[:6] == ["query_000", "running", "default", "1k/s", "100/s", "0"]
        await pilot.pause()
        assert seen(app)[4] == at_once

    drive(test, FakeServer())


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
def test_a_large_terminal_shows_all_panes(size: tuple[int, int]) -> None:
    async def test(pilot: Pilot[None], app: TopScreen) -> None:
        await looked(pilot, app)
        text = "\n".join(seen(app))
        for words in ("Queries (3)", "Streams (1)", "Classes and policy (1)", "Workers", "policy fcfs (level=query)", "readings", "gold"):
            assert words in text
        assert "utility" in text
        assert "0.963" in text
        assert "0.9630" not in text

    drive(test, FakeServer(), size)


@pytest.mark.parametrize("count", [0, 3, 300])
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 10)])
def test_any_number_of_queries_is_scrolled_and_the_cursor_stays_on_its_row(count: int, size: tuple[int, int]) -> None:
    async def test(pilot: Pilot[None], app: TopScreen) -> None:
        table = app.query_one("#queries", PaneTable)
        assert len(keys(app)) == count
        if not count:
            return
        await pilot.press("end")
        await looked(pilot, app)
        assert table.key_at_cursor == f"query_{count - 1:03d}"
        assert any(f"query_{count - 1:03d}" in line for line in seen(app))
        await pilot.press("home", "down")
        source.count -= 1  # one query is dropped
        await looked(pilot, app)
        assert len(keys(app)) == count - 1
        assert table.key_at_cursor == "query_001"

    source = FakeServer(count)
    drive(test, source, size)


@pytest.mark.parametrize("before", [(), ("slash", "g"), ("question_mark",), ("enter",)], ids=["panes", "filter", "keys", "details"])
def test_ctrl_c_leaves_from_everywhere(before: tuple[str, ...]) -> None:
    async def test(pilot: Pilot[None], app: TopScreen) -> None:
        await pilot.press(*before)
        await pilot.pause()
        assert not app._exit
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app._exit

    drive(test, FakeServer())


def test_keys_sort_turn_round_and_filter() -> None:
    async def test(pilot: Pilot[None], app: TopScreen) -> None:
        await pilot.press("s")
        await pilot.pause()
        assert keys(app) == ["query_000", "query_001", "query_002"]
        assert "query↑" in seen(app)[3]
        await pilot.press("r")
        await pilot.pause()
        assert keys(app) == ["query_002", "query_001", "query_000"]
        for _ in range(7):
            await pilot.press("s")
        await pilot.pause()
        assert "p99↓" in seen(app)[3]
        assert keys(app) == ["query_000", "query_001", "query_002"]
        await pilot.press("S", "S")
        await pilot.pause()
        assert "queued↓" in seen(app)[3]
        assert keys(app) == ["query_002", "query_001", "query_000"]
        await pilot.press("slash", "g", "o", "l", "d", "enter")
        await pilot.pause()
        assert keys(app) == ["query_001"]
        await looked(pilot, app)
        assert keys(app) == ["query_001"], "the filter stays"
        await pilot.press("escape")
        await pilot.pause()
        assert len(keys(app)) == 3
        await pilot.press("tab")
        assert isinstance(app.focused, PaneTable)

    drive(test, FakeServer())


def test_a_query_is_opened_paused_and_resumed() -> None:
    source = FakeServer()

    async def test(pilot: Pilot[None], app: TopScreen) -> None:
        await pilot.press("enter")
        await pilot.pause()
        await settled(pilot, app)
        text = str(app.screen.query_one("#text", Static).render())
        assert "SELECT k, AVG(v)" in text
        assert "3.15" in text, "its operators"
        assert source.said == ['EXPLAIN ANALYZE "query_000"']
        await pilot.press("escape", "space", "enter")  # no is the first answer
        await settled(pilot, app)
        assert len(source.said) == 1
        await pilot.press("space", "down", "enter")
        await settled(pilot, app)
        assert source.said[1:] == ['PAUSE QUERY "query_000"']
        await pilot.press("down", "space", "down", "enter")
        await settled(pilot, app)
        assert source.said[2:] == ['RESUME QUERY "query_001"'], "it was paused"
        await pilot.press("2", "space")
        assert len(app.screen_stack) == 1, "streams are not paused"
        await pilot.press("question_mark")
        await pilot.pause()
        assert any("show only rows with a text" in line for line in seen(app))

    drive(test, source)


def test_a_policy_is_chosen_and_a_refusal_is_shown() -> None:
    source = FakeServer()

    async def test(pilot: Pilot[None], app: TopScreen) -> None:
        await pilot.press("p")
        await pilot.pause()
        assert any("hnr" in line and "…" in line for line in seen(app)), "one line a policy"
        await pilot.press("down", "enter")
        await settled(pilot, app)
        assert source.said == ['SET POLICY "hnr"']
        source.failure = MillstreamError("forbidden", "a reader may not [b]set[/b] a policy")
        await pilot.press("p", "enter")
        await settled(pilot, app)
        assert [notice.message for notice in app._notifications][-1] == "a reader may not [b]set[/b] a policy"

    drive(test, source)


def test_a_server_that_is_gone_is_told_and_asked_again() -> None:
    source = FakeServer()

    async def test(pilot: Pilot[None], app: TopScreen) -> None:
        source.failure = MillstreamError("unreachable", "no server answers at 127.0.0.1:7415")
        await looked(pilot, app)
        assert seen(app)[1].strip() == "no server answers at 127.0.0.1:7415; asking again"
        assert len(keys(app)) == 3, "what was known stays"
        source.failure = None
        await looked(pilot, app)
        assert "asking again" not in seen(app)[1]

    drive(test, source)


def test_what_a_query_is_called_or_says_is_text_and_no_markup() -> None:
    source = FakeServer()

    def look_again() -> Look:
        found = tables()
        found["QUERIES"][0]["name"] = "[red]x[/red]"
        found["QUERIES"][0]["text"] = "SELECT '[b]' FROM s [RANGE 1 SECOND]"
        return Look(1.0, NOON, found)

    source.look = look_again  # type: ignore[method-assign]

    async def test(pilot: Pilot[None], app: TopScreen) -> None:
        assert any("[red]x[/red]" in line for line in seen(app))
        await pilot.press("enter")
        await settled(pilot, app)
        assert any("SELECT '[b]' FROM s [RANGE 1 SECOND]" in line for line in seen(app))

    drive(test, source)


def test_top_prints_a_real_server_once(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(harness: Harness) -> None:
        monkeypatch.setenv("MILLSTREAM_SERVER", harness.address)
        client = await harness.client()
        await client.execute("CREATE STREAM s (ts TIMESTAMP, v INT) TIMESTAMP BY ts")
        await client.execute("CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS")
        await client.execute("CREATE QUERY a_query AS SELECT v FROM s WITH (class = 'gold')")
        await client.publish("s", [{"ts": dt.datetime.now(dt.UTC), "v": 1}])
        assert await asyncio.to_thread(cli.run, ["top", "--once"]) == 0
        out = capfd.readouterr().out
        for title, words in (("QUERIES", "a_query"), ("STREAMS", "s "), ("CLASSES AND POLICY", "300 ms"), ("WORKERS", "rows waiting")):
            section = out.partition(f"\n{title}\n")[2].partition("\n\n")[0]
            assert words in section, out
        assert "SELECT" not in out

    run(test)


def test_top_connects_again_when_its_connection_was_cut() -> None:
    async def test(harness: Harness) -> None:
        source = Server(lambda: connect(harness.address))
        assert (await asyncio.to_thread(source.look)).table("CLASSES")
        assert source.server.endswith(f" at {harness.address}")
        for session in list(harness.server.application.sessions.values()):
            session.transport.abort()
        client = source._client
        assert client is not None
        await until(lambda: not client.is_open, "the client knows")
        assert (await asyncio.to_thread(source.look)).table("CLASSES")
        assert source._client is not client
        await asyncio.to_thread(source.close)

    run(test)


def test_only_the_screen_loads_textual() -> None:
    code = "import sys, millstream.client.commands.top, millstream.client.commands.sql, millstream.server.live"
    done = subprocess.run([sys.executable, "-c", f"{code}; print('textual' in sys.modules)"], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
