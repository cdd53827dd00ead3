"""A console before a live server, in the loop of a test; and a browser that shows it, where there is one."""

from __future__ import annotations

import asyncio
import functools
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from millstream.client.console.files import BUNDLE
from millstream.client.console.serving import ConsoleSettings, running

from tests.support import live_server
from tests.support.live_server import Harness
from tests.support.tree import ROOT

if TYPE_CHECKING:
    from playwright.async_api import Page

WEB = ROOT / "client" / "console" / "web"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT_MS = 40_000  # a bound on hanging, not a verdict
SLIGHT = ("minor", "moderate")  # faults of axe's that are none to us


@functools.cache
def bundled() -> None:
    """Bundle the page if that was not done since its sources changed; skip the test where it cannot be done."""
    told = (ROOT / "docs" / "experiments.md", *ROOT.glob("docs/experiments/*.svg"))
    sources = [path for path in (*WEB.glob("*"), *WEB.glob("src/*"), *told) if path.is_file()]
    made = BUNDLE / "main.js"
    if made.is_file() and made.stat().st_mtime >= max(path.stat().st_mtime for path in sources):
        return
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("the console's page is not bundled, and there is no Node to do it")
    if not (WEB / "node_modules" / "esbuild").is_dir():
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, timeout=240, check=False)
        if done.returncode:
            pytest.skip(f"npm ci failed: {done.stderr[-300:]}")
    subprocess.run([node, "build.mjs"], cwd=WEB, check=True, timeout=60)


@dataclass
class Shown:
    """A console with its server; `page` is a browser's page of it, `complaints` what the browser complained of."""

    harness: Harness
    address: str
    page: Page
    complaints: list[str] = field(default_factory=list)

    async def run(self, *statements: str, **options: Any) -> None:
        client = await self.harness.client(**options)
        for statement in statements:
            await client.execute(statement)

    async def faults(self) -> list[str]:
        """Return what axe finds serious on the page as it is."""
        axe = WEB / "node_modules" / "axe-core" / "axe.min.js"
        if not axe.is_file():
            pytest.skip("axe-core is not installed; run make console")
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(axe.read_text("utf-8"))
        found = await self.page.evaluate("axe.run({ resultTypes: ['violations'] })")
        serious = [fault for fault in found["violations"] if fault["impact"] not in SLIGHT]
        return [f"{fault['id']}: {node['html'][:200]} {node['failureSummary'][:200]}" for fault in serious for node in fault["nodes"]]


@asynccontextmanager
async def console(harness: Harness, **settings: Any) -> AsyncIterator[str]:
    bundled()
    async with running(ConsoleSettings(**{"server": harness.address, "port": 0, **settings})) as address:
        yield address


class _Browser:
    """A browser, and the loop that it lives in. It is started by the first that needs it."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self._driver: Any = None
        self._opened: Any = None

    async def opened(self) -> Any:
        """Return it; skip the test where there is none."""
        if CHROMIUM is None:
            pytest.skip("there is no Chromium")
        playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
        if self._opened is None:
            self._driver = await playwright.async_playwright().start()
            self._opened = await self._driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        return self._opened

    async def close(self) -> None:
        """End it."""
        if self._opened is not None:
            await self._opened.close()
        if self._driver is not None:
            await self._driver.stop()


_shared: list[_Browser] = []


@contextmanager
def one_browser() -> Iterator[None]:
    """Let what `run` runs share a browser as long as the block runs: to start one takes longer than most tests."""
    with (browser := _Browser()).runner:
        browser.runner.run(browser.opened())
        _shared.append(browser)
        try:
            yield
        finally:
            _shared.remove(browser)
            browser.runner.run(browser.close())


def run(test: Callable[[Harness], Awaitable[None]], *, within_s: float = 2 * live_server.WAIT_S, **server: Any) -> None:
    """Run a test that opens pages against a server of its own, in the loop of the browser that `one_browser` gives."""

    async def whole() -> None:
        with ThreadPoolExecutor() as threads:  # which end with the test, though the loop does not
            asyncio.get_running_loop().set_default_executor(threads)
            async with live_server.running(**server) as harness:
                await asyncio.wait_for(test(harness), within_s)

    _shared[-1].runner.run(whole())


@asynccontextmanager
async def browser(**context: Any) -> AsyncIterator[Any]:
    """Give what opens pages, with storage of its own, in a test that `run` runs."""
    pages = await (await _shared[-1].opened()).new_context(**context)
    pages.set_default_timeout(WAIT_MS)
    try:
        yield pages
    finally:
        await pages.close()


def show(test: Callable[[Shown], Awaitable[None]], *, server: dict[str, Any] | None = None, where: str = "", **context: Any) -> None:
    """Run a test against a page of a console of its own; it fails as well when the browser complained of anything."""

    async def whole(harness: Harness) -> None:
        async with console(harness) as address, browser(**context) as pages:
            shown = Shown(harness, address, await pages.new_page())
            shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
            shown.page.on("console", lambda said: shown.complaints.append(said.text) if said.type == "error" else None)
            await shown.page.goto(address + where)
            await test(shown)
            # What the server refuses, as a text that is not finished, a browser notes too; the page tells the user of it.
            others = [complaint for complaint in shown.complaints if "the server responded with a status of 40" not in complaint]
            assert not others, f"the browser complained: {others}"

    run(whole, **(server or {}))


async def pump(shown: Shown, stream: str, rows: list[dict[str, Any]], stop: asyncio.Event) -> None:
    """Publish the rows again and again, until it is told to stop."""
    client = await shown.harness.client()
    while not stop.is_set():
        await client.publish(stream, rows)
        await asyncio.sleep(0.05)
