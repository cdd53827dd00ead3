"""The papers' experiments: what was found, as docs/experiments.md tells it, and a run of one of them again.

A run is `millstream experiment run NAME --scale reduced`, one at a time for all pages. It belongs to the console, not to the page that
began it: another page sees how far it is, and may stop it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from millstream.client.console.pages import report_fault
from millstream.client.console.processes import Bounds, printed
from millstream.client.errors import MillstreamError

SCALE = "reduced"
RUN_S_MAX = 900.0
RUNS_KEPT = 8
FIGURE_BYTES_MAX = 1_048_576
EARLIER = ", earlier code"
_ROW = re.compile(r"\| \[([^]]+)\]\(#[^)]*\) \| (.*) \| (\w+)(, earlier code)? \| \d+ of \d+ \|")
_PROGRESS = re.compile(r"(\d+)/(\d+) ")


def experiments(page: str) -> list[dict[str, Any]]:
    """Return the experiments that the page of the documents tells of, in its order: title, source, set-up, scale, claims.

    A claim has `text`, `paper` and `here` as texts, and `holds`.
    """
    head, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    sources = {match[1]: match for match in _ROW.finditer(head)}
    return [_experiment(section, sources) for section in sections if section.split("\n", 1)[0] in sources]


def _experiment(section: str, sources: dict[str, re.Match[str]]) -> dict[str, Any]:
    name, _, rest = section.partition("\n")
    _, source, scale, earlier = sources[name].groups()
    paragraphs = [part.strip() for part in rest.split("\n\n") if part.strip() and not part.strip().startswith(("<!--", "!["))]
    title, _, setup = paragraphs[0].partition(f" ({source}). ")
    substituted = next((part.removeprefix("Substituted: ") for part in paragraphs if part.startswith("Substituted: ")), "")
    rows = [line.strip("| ").split(" | ") for line in rest.splitlines() if line.startswith("| ")][1:]
    claims = [{"text": text, "paper": paper, "here": here, "holds": word == "holds"} for text, paper, here, word in rows]
    told = {"name": name, "title": title, "source": source, "setup": setup, "substituted": substituted, "claims": claims}
    return {**told, "scale": scale, "earlier": earlier is not None, "live": "(live)" in source or name.endswith("-live")}


class ExperimentRuns:
    """The run under way, if there is one, and the last runs that ended."""

    def __init__(self, seconds_max: float = RUN_S_MAX) -> None:
        self._bounds = Bounds(seconds_max, "run it by `millstream experiment run` instead")
        self._task: asyncio.Task[None] | None = None
        self._now: dict[str, Any] | None = None
        self._ended: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._figures: dict[str, str] = {}

    def state(self) -> dict[str, Any]:
        """Return what runs (name, `done` of `total` parts, `seconds`), or None; and the runs that ended, without their figures."""
        now = self._now
        running = (
            None
            if now is None
            else {**now, "seconds": round(time.monotonic() - now["seconds"], 1), "seconds_max": self._bounds.seconds_max}
        )
        return {"running": running, "ended": dict(self._ended)}

    def figure(self, name: str) -> str:
        """Return the figure that the last run drew, as SVG. MillstreamError (`not_found`) when it drew none."""
        if name not in self._figures:
            raise MillstreamError("not_found", f"there is no figure of a run of {name}")
        return self._figures[name]

    def start(self, name: str) -> None:
        """Begin to run an experiment. MillstreamError (`overloaded`) while another runs."""
        if self._task is not None and not self._task.done():
            raise MillstreamError("overloaded", f"{self._now and self._now['name']} runs already", "one runs at a time: wait, or stop it")
        self._now = {"name": name, "done": 0, "total": 0, "seconds": time.monotonic()}
        self._task = asyncio.get_running_loop().create_task(self._run(name, self._now))
        self._task.add_done_callback(report_fault)

    async def stop(self) -> None:
        """End the run under way, if there is one."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, name: str, now: dict[str, Any]) -> None:
        def hear(line: str) -> None:
            if progress := _PROGRESS.match(line):
                now["done"], now["total"] = int(progress[1]), int(progress[2])

        draws = find_spec("matplotlib") is not None
        words = ("experiment", "run", name, "--scale", SCALE, "--processes", "1", *(() if draws else ("--no-plot",)))
        outcome: dict[str, Any] = {"problem": "it was stopped", "claims": [], "figure": False}
        figure = None
        try:
            with TemporaryDirectory(prefix="millstream-console-") as folder:
                await printed("the experiment", (*words, "--out", folder), self._bounds, hear)
                verdict, figure = await asyncio.to_thread(_found, Path(folder) / name)
            claims = [{"here": claim["ours"], "holds": claim["holds"]} for claim in verdict["claims"]]
            outcome = {"problem": None, "claims": claims, "figure": figure is not None, "draws": draws}
        except MillstreamError as error:
            outcome["problem"] = str(error)
        finally:
            self._now = None
            self._keep(
                name, {**outcome, "scale": SCALE, "took": round(time.monotonic() - now["seconds"], 1), "at": time.time() * 1_000}, figure
            )

    def _keep(self, name: str, outcome: dict[str, Any], figure: str | None) -> None:
        for kept in (self._ended, self._figures):
            kept.pop(name, None)
        self._ended[name] = outcome
        if figure is not None:
            self._figures[name] = figure
        while len(self._ended) > RUNS_KEPT:
            oldest, _ = self._ended.popitem(last=False)
            self._figures.pop(oldest, None)


def _found(folder: Path) -> tuple[dict[str, Any], str | None]:
    drawn = folder / "plot.svg"
    figure = drawn.read_text("utf-8") if drawn.is_file() and drawn.stat().st_size <= FIGURE_BYTES_MAX else None
    verdict: dict[str, Any] = json.loads((folder / "verdict.json").read_text("utf-8"))
    return verdict, figure
