"""The console as its user meets it: a browser shows the page that the real console serves before a real server."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import live_server
from tests.support.consoles import Shown, browser, console, one_browser, pump, run, show
from tests.support.live_server import Harness

pytestmark = [pytest.mark.slow, pytest.mark.process]
READINGS = "CREATE STREAM readings (sensor TEXT, value DOUBLE)"
HOT = "CREATE QUERY hot AS SELECT * FROM readings WHERE value > 30"
TOKENS = {"admin_token": "a", "writer_token": "w", "reader_token": "r"}
PAGES_AND_HEADINGS = (
    ("now", "Now"),
    ("network", "Network"),
    ("compose", "Compose"),
    ("policies", "Policies"),
    ("overload", "Overload"),
    ("experiments", "Experiments"),
    ("experiments/d-steps", "Experiments"),
    ("query/hot", "Query hot"),
    ("class/default", "Class default"),
)
EVIL = "<img src=x onerror=document.title=9999>"


@pytest.fixture(scope="module", autouse=True)
def shared_browser() -> Iterator[None]:
    with one_browser():
        yield


def test_now_shows_what_runs_and_a_query_opens_by_keyboard() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await shown.run(READINGS, HOT)
        stop = asyncio.Event()
        pumping = asyncio.create_task(pump(shown, "readings", [{"sensor": "a", "value": 35.0}], stop))
        try:
            queries = page.get_by_role("table", name="Queries")
            await queries.get_by_role("cell", name="hot", exact=True).wait_for()
            await queries.get_by_text(re.compile(r"\d/s")).first.wait_for()
            await page.get_by_text("query hot came").wait_for()
            await page.get_by_role("img", name=re.compile("Rows a second, last fifteen minutes; now in [1-9]")).wait_for()
            await queries.get_by_role("row").nth(1).focus()
            await page.keyboard.press("Enter")
            await page.get_by_role("heading", name="Query hot").wait_for()
            await page.get_by_role("table", name="Operators").get_by_role("cell", name="select", exact=True).wait_for()
            await page.get_by_text("SELECT * FROM readings WHERE value > 30").wait_for()
            await page.get_by_role("button", name="Watch results").click()
            await page.get_by_role("table", name="Results").get_by_role("cell", name="35").first.wait_for()
        finally:
            stop.set()
            await pumping

    show(test)


def test_text_and_values_with_html_are_shown_as_text() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await shown.run("CREATE STREAM said (line TEXT)")
        await shown.run(f"""CREATE QUERY echo AS SELECT line, '{EVIL}' AS "<b>x</b>" FROM said""")
        await page.goto(shown.address + "#/query/echo")
        await page.locator("pre", has_text=EVIL).wait_for()
        await page.get_by_role("button", name="Watch results").click()
        await page.get_by_role("columnheader", name="<b>x</b>").wait_for()
        client = await shown.harness.client()
        await client.publish("said", [{"line": "<script>document.title=9999</script>"}])
        await page.get_by_role("cell", name="<script>document.title=9999</script>").wait_for()
        assert await page.locator("main img, main script, td b").count() == 0
        assert "9999" not in await page.title()

    show(test)


def test_a_reader_sees_and_only_an_admin_steers() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await shown.run(READINGS, HOT, token="a")
        for token in ("wrong", "r"):
            await page.get_by_label("Token of the server").fill(token)
            await page.get_by_role("button", name="Enter").click()
        await page.get_by_text("You are reader").wait_for()
        await page.get_by_role("cell", name="hot", exact=True).click()
        pause = page.get_by_role("button", name="Pause")
        assert await pause.get_attribute("aria-disabled") == "true"
        await page.get_by_text("this needs the admin role, and your token grants reader").wait_for()
        await pause.click(force=True)
        await page.reload()  # the token is kept in the session
        await page.get_by_text("You are reader").wait_for()
        await page.get_by_role("button", name="Leave").click()
        await page.get_by_label("Token of the server").fill("a")
        await page.get_by_role("button", name="Enter").click()
        await page.get_by_text("You are admin").wait_for()
        await page.get_by_text("running").first.wait_for()
        await page.get_by_role("button", name="Pause").click()
        await page.get_by_text("query hot is paused").first.wait_for()

    show(test, server=TOKENS)


def test_the_page_goes_on_when_the_server_is_back() -> None:
    async def test(harness: Harness) -> None:
        port = harness.server.port
        async with console(harness) as address, browser() as pages:
            page = await pages.new_page()
            await page.goto(address)
            await page.get_by_text("Live", exact=True).wait_for()
            await harness.server.stop()
            await page.get_by_text("No answer").wait_for()
            async with live_server.running(port=port) as again:
                await (await again.client()).execute(READINGS)
                await page.get_by_text("Live", exact=True).wait_for()
                await page.get_by_role("cell", name="readings", exact=True).wait_for()

    run(test)


def test_a_table_of_hundreds_has_only_the_rows_in_view_and_finds_one() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await shown.run(
            READINGS,
            "CREATE STREAM others (value DOUBLE)",
            "CREATE CLASS gold PRIORITY 6",
            *(
                f"CREATE QUERY q{number} WITH (class = '{'default' if number % 10 else 'gold'}') AS "
                f"SELECT value + {number} AS v FROM {'others' if number < 100 else 'readings'}"
                for number in range(500)
            ),
        )
        table = page.get_by_role("table", name="Queries")
        await page.get_by_role("status").get_by_text("500", exact=True).wait_for()
        assert await table.locator("tbody tr:not(.space)").count() < 40
        await page.get_by_role("searchbox", name="Search in Queries").fill("q49")
        await page.get_by_text("11 of 500").wait_for()
        await page.get_by_label("Group Queries").select_option("by class")
        await table.get_by_role("cell", name="▸ default: 10", exact=True).wait_for()
        await page.get_by_role("searchbox", name="Search in Queries").fill("")
        await table.get_by_role("cell", name="▸ gold: 50", exact=True).click()
        await table.get_by_role("cell", name="▾ gold: 50", exact=True).wait_for()
        await table.get_by_role("cell", name="q20", exact=True).wait_for()
        await page.get_by_label("Group Queries").select_option("by stream")
        await table.get_by_role("cell", name="▸ others: 100", exact=True).wait_for()
        await table.locator("tbody tr[tabindex='0']").focus()
        await page.keyboard.press("End")
        await page.keyboard.press("Enter")
        await table.get_by_role("cell", name="▾ readings: 400", exact=True).wait_for()
        assert await shown.faults() == []
        await page.get_by_label("Group Queries").select_option("not grouped")
        await table.locator("tbody tr[tabindex='0']").focus()
        await page.keyboard.press("End")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Query q499").wait_for()

    show(test)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 320)])
def test_axe_finds_no_serious_fault(scheme: str, width: int) -> None:
    """A width of 320 is what a screen of 1280 has at 400%; nothing then needs to be moved sideways but tables in their frames."""

    async def test(shown: Shown) -> None:
        page = shown.page
        await shown.run(READINGS, HOT)
        for where, heading in PAGES_AND_HEADINGS:
            await page.goto(f"{shown.address}#/{where}")
            await page.get_by_role("heading", name=heading, exact=True).wait_for()
            await page.get_by_text("Live", exact=True).wait_for()
            assert await shown.faults() == []
            assert await page.evaluate("document.documentElement.scrollWidth") <= width

    show(test, color_scheme=scheme, viewport={"width": width, "height": 800})


def test_policies_says_why_switches_and_goes_back() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await shown.run(READINGS, HOT)
        stop = asyncio.Event()
        pumping = asyncio.create_task(pump(shown, "readings", [{"sensor": "a", "value": 35.0}] * 20, stop))
        try:
            await page.goto(shown.address + "#/policies")
            await page.get_by_role("group", name="Policies").get_by_role("checkbox").first.wait_for()  # once the one in force is known
            assert (
                await page.get_by_role("group", name="Policies").get_by_role("checkbox").first.get_attribute("value") == "fcfs:level=query"
            )
            await page.get_by_role("button", name="Look now").click()
            await page.get_by_role("table", name="Last orders").get_by_role("cell", name="hot: select 2", exact=True).first.wait_for()
            await page.get_by_role("img", name=re.compile("runs of [1-9]")).wait_for()
            await page.get_by_text(re.compile("The last one began with")).wait_for()
            await page.get_by_role("cell", name="hnr", exact=True).click()
            await page.get_by_role("button", name="Switch to hnr").click()
            await page.get_by_text("Before it was fcfs (level=query).").wait_for()
            await page.get_by_text(re.compile(r"^Policy hnr")).wait_for()
            await page.get_by_role("button", name="Go back to fcfs (level=query)").click()
            await page.get_by_text(re.compile(r"^Policy fcfs \(level=query\)")).wait_for()
            await page.get_by_text("Before it was hnr").wait_for()  # and nothing moves any more under a click
            policies = page.get_by_role("table", name="Policies", exact=True)
            await policies.get_by_role("row", name=re.compile("^fcfs in force")).wait_for()  # drawn anew: before that a click may miss
            await policies.get_by_role("cell", name="bsd-log", exact=True).click()
            await page.get_by_label("with options").fill("clusters=5")
            await page.get_by_role("button", name="Switch to bsd-log").click()
            await page.get_by_text(re.compile(r"^Policy bsd-log \(.*clusters=5")).wait_for()
            assert await shown.faults() == []
        finally:
            stop.set()
            await pumping

    show(test)


def test_policies_simulates_what_others_would_have_given_and_advises() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await shown.run(READINGS, HOT)
        client = await shown.harness.client()
        for _ in range(20):
            await client.publish("readings", [{"sensor": "a", "value": 35.0}] * 20)
        await page.goto(shown.address + "#/policies")
        await page.get_by_role("button", name="Simulate").click()
        compared = page.get_by_role("table", name="Policies compared")
        await compared.get_by_role("rowheader", name="bsd-log", exact=True).wait_for()
        assert await compared.get_by_role("row").count() == 5
        await page.get_by_label("Who sheds").select_option("dilos")
        await page.get_by_role("button", name="Simulate").click()
        await compared.get_by_role("columnheader", name="Shed, worst class").wait_for()
        await page.get_by_role("button", name="Draw curves over the load").click()
        await page.get_by_role("img", name=re.compile("^p99 over load.*: fcfs.* at 0.3, .* at 0.95; hnr")).wait_for()
        await page.get_by_label("Measure of the curves").select_option("Slowdown")
        await page.get_by_role("img", name=re.compile("^Slowdown over load")).wait_for()
        await page.get_by_label("How long to try").select_option("0.1")
        await page.get_by_role("button", name="Ask the advisor").click()
        await page.get_by_text(re.compile("Keep what you have|Proposal: ")).wait_for()
        assert await shown.faults() == []
        await compared.get_by_role("button", name="Use hnr", exact=True).click()
        await page.get_by_text("Before it was fcfs (level=query).").wait_for()

    show(test)


def test_the_network_shows_a_shared_operator_once_with_its_queries_and_their_bills() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        windows = "SELECT sensor, COUNT(*) AS n FROM readings [RANGE {} SECONDS SLIDE 1 SECOND] GROUP BY sensor"
        await shown.run(READINGS, HOT, *(f"CREATE QUERY per{number} AS {windows.format(number)}" for number in (2, 3)))
        stop = asyncio.Event()
        pumping = asyncio.create_task(pump(shown, "readings", [{"sensor": "a", "value": 35.0}] * 20, stop))
        try:
            await page.goto(shown.address + "#/network")
            await shown.run("SET POLICY hnr")
            await page.get_by_text("Policy hnr").wait_for()
            shared = page.get_by_role("button", name=re.compile(r"^aggregate \d+ .*shared by 2 queries"))
            await shared.wait_for()
            await page.get_by_role("button", name=re.compile(r"^readings [1-9].* out, stream")).wait_for()
            assert await page.locator(".box").count() == 6  # a stream, a selection, the aggregate, three ends of queries
            assert await page.locator("path.edge").count() == 5
            await shared.focus()
            await page.keyboard.press("Enter")
            await page.get_by_role("heading", name="Shared by 2 queries").wait_for()
            await page.get_by_text(re.compile("per3: .* of processor time, alone it would be")).wait_for()
            unit = page.locator("dl.pairs div", has_text="Its unit")
            assert (await unit.locator("dd").inner_text()).isdigit()
            rank = page.locator("dl.pairs div", has_text="Priority of the unit under hnr").locator("dd")
            assert float(await rank.inner_text()) > 0
            await page.get_by_role("button", name="Its last orders").click()
            await page.get_by_text(re.compile(r"It was in [1-9]\d* of the last")).wait_for()
            await page.get_by_role("button", name="Play the last minute").click()
            assert await shown.faults() == []
            await page.get_by_label("Show only what belongs to").fill("hot")
            await page.get_by_text("3 boxes").wait_for()
        finally:
            stop.set()
            await pumping

    show(test)


def test_a_query_is_composed_tried_and_started() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await shown.run(READINGS, "CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS NEVER SHED")
        stop = asyncio.Event()
        pumping = asyncio.create_task(pump(shown, "readings", [{"sensor": "<i>a</i>", "value": 35.5}], stop))
        try:
            await page.goto(shown.address + "#/compose")
            text = page.get_by_role("textbox", name="Query", exact=True)
            await text.click()
            await page.keyboard.insert_text("SELECT sensor, value\nFROM readings WHERE valu > 30")
            await page.get_by_text(re.compile("valu")).nth(1).wait_for()
            assert await page.locator(".cm-lintRange-error").inner_text() == "valu"
            assert await page.locator(".cm-lintRange-error").evaluate("mark => getComputedStyle(mark).backgroundImage") != "none", (
                "its styles are let in"
            )
            await text.press("Control+a")
            await text.press("Delete")  # a browser styles what is typed over a selection, which the policy refuses, and notes that
            await page.keyboard.insert_text("SELECT sensor, value FROM readings WHERE value > 30")
            await page.get_by_text("The server takes it.").wait_for()
            await page.get_by_role("button", name=re.compile("^select value > 30")).wait_for()
            await page.get_by_role("button", name=re.compile("^source readings")).click()
            await page.get_by_text(re.compile("K6 +WHERE keeps a row only")).wait_for()
            await page.get_by_label("Class").select_option("gold")
            await page.get_by_text("gold, priority 6").wait_for()
            await page.get_by_role("slider", name="Point 2 of the graph").focus()
            await page.keyboard.press("ArrowLeft")
            await page.get_by_text(re.compile("^0ms:1, 10ms:1, 870ms:1, 10000ms:0$")).wait_for()
            assert await shown.faults() == []
            await page.get_by_role("button", name="Try it").click()
            await page.get_by_role("cell", name="<i>a</i>", exact=True).first.wait_for()
            await page.get_by_role("img", name=re.compile("^value, .* newest 35.5")).wait_for()
            await page.get_by_role("button", name="Stop trying").click()
            await page.get_by_label("Name of the query").fill("composed")
            await page.get_by_role("button", name="Start the query").click()
            await page.get_by_role("button", name="Look at it").click()
            await page.get_by_role("heading", name="Query composed").wait_for()
            (row,) = await (await shown.harness.client()).execute("SHOW QUERIES")
            assert (row["name"], row["class"]) == ("composed", "gold")
            assert "870ms:1" in row["text"]
        finally:
            stop.set()
            await pumping

    show(test)


def test_a_query_is_drawn_box_by_box_and_its_text_follows() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await shown.run(READINGS)
        await page.goto(shown.address + "#/compose")
        await page.get_by_label("Begin with a stream").select_option("readings")
        await page.get_by_role("button", name=re.compile("^source readings")).click()
        await page.get_by_role("button", name="+ select").click()
        await page.get_by_label("Rows for which").fill("value > 30")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name=re.compile("^select value > 30")).wait_for()
        await page.get_by_role("button", name=re.compile("^project sensor, value")).click()
        await page.get_by_role("button", name="+ aggregate").click()
        await page.get_by_label("Window").fill("RANGE 5 SECONDS SLIDE 5 SECONDS")
        await page.get_by_label("Group by").fill("sensor")
        await page.get_by_label("Aggregates").fill("COUNT(*) AS n, MAX(value) AS top")
        await page.get_by_role("button", name="Put aggregate in").click()
        await page.get_by_role("button", name=re.compile("^aggregate RANGE 5 SECONDS")).wait_for()
        text = await page.get_by_role("textbox", name="Query", exact=True).inner_text()
        assert " ".join(text.split()).startswith("SELECT sensor, COUNT(*) AS n, MAX(value) AS top FROM"), text
        await page.get_by_role("button", name=re.compile("^select value > 30")).click()
        await page.get_by_role("button", name="Remove select").click()
        await page.get_by_role("button", name=re.compile("^select value > 30")).wait_for(state="detached")
        assert "30" not in await page.get_by_role("textbox", name="Query", exact=True).inner_text()
        assert await shown.faults() == []

    show(test)


def test_an_experiment_is_found_beside_its_paper_and_run_again() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await page.goto(shown.address + "#/experiments")
        await page.get_by_text(re.compile(r"^\d+ of \d+ claims hold\. A claim")).wait_for()
        burst = page.get_by_role("link", name=re.compile("^p-burst"))
        await burst.get_by_text("3 of 3 claims hold").wait_for()
        await page.wait_for_function("document.querySelector('.shot img').naturalWidth > 0")
        assert await shown.faults() == []
        await burst.focus()
        await page.keyboard.press("Enter")
        claims = page.get_by_role("table", name="Claims")
        await claims.get_by_text("✓ holds").first.wait_for()
        assert await claims.get_by_role("columnheader").count() == 4
        await page.get_by_role("button", name="Run it again").click()
        await page.get_by_text(re.compile("p-burst runs at reduced scale: .* of at most 15 min")).wait_for()
        await claims.get_by_role("columnheader", name="Run again, reduced scale").wait_for()
        await page.get_by_role("img", name=re.compile("the figure of the run of")).wait_for()
        assert await page.evaluate("[...document.querySelectorAll('figure img')].every((drawn) => drawn.naturalWidth > 0)")
        await page.get_by_role("progressbar").wait_for(state="hidden")
        assert await shown.faults() == []
        await page.get_by_role("button", name="Run it again").click()
        await page.get_by_role("button", name="Stop it").click()
        await page.get_by_text("The last run gave nothing: it was stopped").wait_for()

    show(test)


def test_a_query_is_tried_on_journal_archive_and_files_before_it_starts(tmp_path: Path) -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await shown.run("CREATE STREAM kept (at TIMESTAMP, value DOUBLE) TIMESTAMP BY at DURABILITY journal ARCHIVE", READINGS)
        client = await shown.harness.client()
        now = dt.datetime.now(dt.UTC)
        await client.publish("kept", [{"at": now - dt.timedelta(hours=number), "value": float(number)} for number in (5, 0)])
        await page.goto(shown.address + "#/compose")
        text = page.get_by_role("textbox", name="Query", exact=True)
        await text.click()
        await page.keyboard.insert_text("SELECT at, value + 0.5 AS v FROM kept")
        await page.get_by_text("The server takes it.").wait_for()
        results = page.get_by_role("table", name="Results")
        for choice, said, newest in (("journal", "2 rows.", "0.5"), ("3600", "1 rows.", "0.5"), ("all", "2 rows.", "0.5")):
            await page.get_by_label("Try it on").select_option(choice)
            await page.get_by_role("button", name="Try it").click()
            await page.get_by_text(said, exact=True).wait_for()
            await results.get_by_role("row").nth(1).get_by_role("cell", name=newest, exact=True).wait_for()
        await page.get_by_role("img", name=re.compile("^v, .* newest 0.5")).wait_for()
        await page.get_by_label("Try it on").select_option("files")
        await page.get_by_role("button", name="Try it").click()
        await page.get_by_text("Choose a file first.").wait_for()
        given = {"name": "mine.csv", "mimeType": "text/csv", "buffer": b"at,value\n01.11.2026 10:00,7\n01.11.2026 11:00,8\n"}
        await page.get_by_label("Rows of kept").set_input_files(given)
        await page.get_by_label("How the files write times").fill("%d.%m.%Y %H:%M")
        await page.get_by_role("button", name="Try it").click()
        await results.get_by_role("cell", name="8.5", exact=True).wait_for()
        assert await shown.faults() == []
        assert len((await client.execute("SHOW QUERIES")).rows) == 0
        await page.get_by_label("Try it on").select_option("all")
        await text.press("Control+a")
        await text.press("Delete")
        await page.keyboard.insert_text("SELECT value FROM readings")
        await page.get_by_role("button", name="Try it").click()
        await page.get_by_text("No stream of it has an archive").wait_for()

    show(test, server={"data_dir": str(tmp_path)})


def test_the_demos_slider_says_how_much_is_to_come() -> None:
    async def test(shown: Shown) -> None:
        page = shown.page
        await page.goto(shown.address + "#/overload")
        slider = page.get_by_role("slider", name="Load of the demo")
        await page.get_by_role("table", name="Classes").get_by_role("cell", name="default", exact=True).wait_for()
        assert await slider.count() == 0
        await shown.run("CREATE STREAM demo_load (percent BIGINT)", "CREATE STREAM demo_flights (x BIGINT)")
        admin = await shown.harness.client()
        asked = await admin.submit("SELECT percent FROM demo_load")
        async with admin.subscribe(asked) as subscription:
            await slider.focus()
            await page.keyboard.press("ArrowRight")
            await page.keyboard.press("End")
            await page.get_by_text("300%", exact=True).wait_for()
            assert await live_server.rows_of(subscription, 2) == [{"percent": 10}, {"percent": 300}]
        assert await shown.faults() == []

    show(test)
