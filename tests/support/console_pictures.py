"""Takes the pictures of docs/console.md: the pages of a console before a server at work.

python -m tests.support.console_pictures [PAGE …]       # from the root, after `make console`; writes docs/console/*.png
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from tests.support.consoles import browser, console, one_browser, run
from tests.support.live_server import Harness
from tests.support.tree import ROOT

LOOKED_S = 30.0  # before the first picture, so that charts have something to show
PICTURES = ROOT / "docs" / "console"
PAGES = ("now", "network", "compose", "policies", "overload", "experiments", "experiments/d-steps")
SIZES = {"": (1280, 800), "-wide": (1920, 1080), "-phone": (390, 844)}
WINDOW = "SELECT sensor, COUNT(*) AS n, AVG(value) AS mean FROM readings [RANGE {} SECONDS SLIDE 1 SECOND] GROUP BY sensor"
STATEMENTS = (
    "CREATE STREAM readings (sensor TEXT, value DOUBLE)",
    "CREATE CLASS gold PRIORITY 6 TARGET 50 MILLISECONDS NEVER SHED",
    "CREATE CLASS bronze PRIORITY 1 TARGET 1 SECOND SHED",
    *(f"CREATE QUERY above_{limit} AS SELECT * FROM readings WHERE value > {limit}" for limit in (10, 20, 30, 40)),
    *(f"CREATE QUERY every_{width}_s WITH (class = 'gold') AS {WINDOW.format(width)}" for width in (2, 10, 60)),
    *(
        f"CREATE QUERY spike_{name} WITH (class = 'bronze') AS SELECT value * 2 AS twice FROM readings WHERE sensor = '{name}'"
        for name in "abc"
    ),
)
COMPOSED = (
    "SELECT sensor, COUNT(*) AS n, AVG(value) AS mean\nFROM readings [RANGE 10 SECONDS SLIDE 1 SECOND]\nWHERE value > 12.5\nGROUP BY sensor"
)


async def _load(client: Any) -> None:
    chance = random.Random(2013)
    while True:
        rows = [{"sensor": chance.choice("abcdefgh"), "value": chance.uniform(0, 60)} for _ in range(chance.randint(10, 60))]
        await client.publish("readings", rows)
        await asyncio.sleep(0.05)


async def _show(page: Any, where: str) -> None:
    """Bring a page into the state that its picture shows."""
    if where == "policies":
        await page.get_by_role("button", name="Look now").click()
        await page.get_by_text("The last one began with").wait_for()
        await page.get_by_label("What arrived in the last").select_option("30")
        await page.get_by_role("button", name="Simulate", exact=True).click()
        await page.get_by_role("table", name="Policies compared").wait_for(timeout=150_000)
        await page.get_by_role("button", name="Draw curves over the load").click()
        await page.get_by_role("img", name="p99 over load").wait_for(timeout=330_000)
        await page.get_by_role("heading", name="What if").evaluate("heading => heading.scrollIntoView()")
    if where == "network":
        await page.locator(".box").first.wait_for()
    if where.startswith("experiments"):
        await page.get_by_text("claims hold").first.wait_for()
    if where == "compose":
        text = page.get_by_role("textbox", name="Query", exact=True)
        await text.click()
        if not (await text.inner_text()).startswith("SELECT sensor"):
            await page.keyboard.insert_text(COMPOSED)
        await page.get_by_text("The server takes it.").wait_for()
        await page.get_by_text("admission").wait_for()


async def _take(harness: Harness) -> None:
    client = await harness.client()
    for statement in STATEMENTS:
        await client.execute(statement)
    loading = asyncio.create_task(_load(await harness.client()))
    async with console(harness) as address, browser() as pages:
        page = await pages.new_page()
        await page.goto(address)
        await asyncio.sleep(LOOKED_S)
        for where in sys.argv[1:] or PAGES:
            for suffix, (width, height) in SIZES.items():
                await page.emulate_media(color_scheme="dark" if suffix == "-wide" else "light")
                await page.set_viewport_size({"width": width, "height": height})
                await page.goto(f"{address}#/{where}")
                await page.reload()
                await page.get_by_text("Live", exact=True).wait_for()
                await _show(page, where)
                await asyncio.sleep(4)
                await page.screenshot(path=(picture := PICTURES / f"{where.replace('/', '-')}{suffix}.png"))
                _pack(picture)
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)


def _pack(picture: Path) -> None:
    """Keep 64 colours, which are enough for a page, and a third of the bytes."""
    Image.open(picture).convert("RGB").quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    with one_browser():
        run(_take, within_s=1_800.0)
