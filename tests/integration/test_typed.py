"""Rows as objects of data classes, and what a notebook shows."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from millstream.client import connect, notebook
from millstream.client.errors import MillstreamError
from millstream.client.notebook import ROWS_SHOWN_MAX, plan_svg

from tests.support.live_server import Harness, run, until

STREAM = """CREATE STREAM s (ts TIMESTAMP, k TEXT, place STRUCT(x INT, y INT), v DOUBLE, last STRUCT(x INT, y INT),
    way STRUCT(x INT, y INT)[]) TIMESTAMP BY ts"""


@dataclass
class Place:
    x: int
    y: int


@dataclass
class Reading:
    ts: dt.datetime
    k: str
    place: Place
    v: float | None = None
    last: Place | None = None
    way: list[Place] | None = None


READINGS = [Reading(dt.datetime(2024, 1, 1, 0, 0, i, tzinfo=dt.UTC), f"k{i}", Place(i, -i), i / 2 if i else None) for i in range(4)]
READINGS[1].last, READINGS[1].way, READINGS[2].way = Place(0, 1), [Place(1, 2), Place(3, 4)], []


def test_what_is_published_as_objects_comes_back_as_equal_objects() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT ts, k, place, v, last, way FROM s", name="q")
        assert (await client.publish("s", READINGS)).accepted == 4
        await client.finish("s")
        assert [row async for row in client.rows("q", Reading, from_start=True)] == READINGS

        def blocking() -> list[Reading]:
            with connect(harness.address) as ms:
                return list(ms.rows("q", Reading, from_start=True))

        assert await asyncio.to_thread(blocking) == READINGS

    run(test)


def test_a_class_that_does_not_fit_is_told_what_is_missing() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT ts, v FROM s", name="q")

        @dataclass
        class Inside:
            v: float

        @dataclass
        class Outside:
            v: Inside

        for kind, match in (
            (Reading, "Reading wants k, place"),
            (dict, "dict is not a data class"),
            (Outside, "types of Outside cannot be known: name 'Inside' is not defined"),
        ):
            with pytest.raises(MillstreamError, match=match):
                await anext(client.rows("q", kind))

    run(test)


def test_a_notebook_shows_rows_and_plans_and_no_markup_of_others() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE TABLE t (k TEXT, v INT, PRIMARY KEY (k))")
        await client.publish("t", [{"k": f"<b>{i}", "v": None} for i in range(ROWS_SHOWN_MAX + 1)])
        shown = (await client.execute("FETCH SELECT * FROM t"))._repr_html_()
        assert ("<b>" in shown, "&lt;b&gt;7" in shown, "<td>NULL</td>" in shown) == (False, True, True)
        assert shown.count("<tr>") == ROWS_SHOWN_MAX + 1
        assert f"the first {ROWS_SHOWN_MAX} of {ROWS_SHOWN_MAX + 1} rows" in shown
        await client.execute(STREAM)
        plan = (await client.execute("EXPLAIN SELECT a.k FROM s a JOIN s b ON a.k = b.k WITHIN 1 SECOND WHERE a.k <> '<i>'"))._repr_html_()
        picture = plan[: plan.index("</svg>") + 6]
        names = [text.text for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text") if text.get("font-weight")]
        assert (names.count("source"), "join" in names, "<i>" in plan) == (2, True, False)
        assert "continuous" not in (await client.execute("SHOW TABLES"))._repr_html_()

    run(test)


def test_a_plans_inputs_stand_above_what_reads_them() -> None:
    picture = plan_svg({"root": {"op": "union", "inputs": [{"op": "source", "stream": "a"}, {"op": "source", "stream": "b"}]}})
    boxes = list(ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}rect"))
    (a, b, union) = [(float(box.get("x", "")), float(box.get("y", ""))) for box in boxes]
    assert (a[1], b[1], union[0]) == (0, 0, (a[0] + b[0]) / 2)
    assert union[1] > a[1]


def test_results_are_drawn_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    shown: list[int] = []

    class Shown:
        def __call__(self, figure: Any, *, display_id: bool) -> Shown:
            self.update(figure)
            return self

        def update(self, figure: Any) -> None:
            shown.append(len(figure.axes[0].lines[0].get_xdata()))

    monkeypatch.setattr(notebook, "_display", Shown)

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (v INT, d DECIMAL(5, 1), w DOUBLE)")
        await client.submit("SELECT v, d, w FROM s", name="q")
        await client.publish("s", [{"v": v, "d": v, "w": None if v == 2 else 1.0} for v in range(5)])

        def draw() -> Any:
            with connect(harness.address) as ms, ms.subscribe("q", from_start=True) as results:
                with pytest.raises(MillstreamError, match="q has no column z"):
                    results.plot("v", "z")
                figure = results.plot("v", "d", seconds=0.0)
                assert list(figure.axes[0].lines[0].get_xdata()) == []
                assert results.plot("v", ["d", "w"], points_max=3, redraw_s=0.0) is not figure
                return results.plot("v", "d")

        drawing = asyncio.create_task(asyncio.to_thread(draw))
        try:
            await until(lambda: drawing.done() or (bool(shown) and shown[-1] == 3), "the last three points are drawn")
        finally:
            await client.finish("s")
            await drawing
        assert max(shown) == 3

    run(test)


def test_what_is_null_is_left_out_of_a_drawing() -> None:
    drawing = notebook.LivePlot("q", ["a", "b"], "a", "b", 3)
    drawing.add(pa.record_batch({"a": [1, 2, 3, 4], "b": [Decimal("1.5"), None, Decimal("2.5"), Decimal("3.5")]}))
    drawing.draw()
    (line,) = drawing.figure.axes[0].lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([3, 4], [2.5, 3.5])
