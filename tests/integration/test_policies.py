"""Policies of a running server: changed under load, replaced when they fail, from files of one's own."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.scheduler import catalog

from tests.support.live_server import Harness, rows_of, run, until

STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us"
BATCHES = 100
ROWS = 20
DOCUMENTED = Path(__file__).parents[2] / "docs" / "scheduling.md"


async def publish(client: Any, batches: int = BATCHES) -> None:
    for number in range(batches):
        await client.publish("s", [{"ts": number, "v": number * ROWS + place} for place in range(ROWS)])


async def in_use(client: Any) -> list[str]:
    return [r["name"] for r in await client.execute("SHOW POLICIES") if r["in_use"]]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_switching_through_every_policy_under_load_loses_and_reorders_nothing(workers: int) -> None:
    async def test(harness: Harness) -> None:
        client, operator = await harness.client(), await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v + 1 AS v FROM s WHERE v >= 0", name="rows")
        await client.submit("SELECT COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS]", name="windows")
        await client.submit("SELECT a.v FROM s a WHERE a.v % 7 = 0", name="sevenths")
        readers = [await client.subscribe(name) for name in ("rows", "windows", "sevenths")]
        windows = BATCHES // 10 - 1
        sevenths = -(-BATCHES * ROWS // 7)
        taking = [asyncio.create_task(rows_of(r, n)) for r, n in zip(readers, (BATCHES * ROWS, windows, sevenths), strict=True)]
        publishing = asyncio.create_task(publish(client))
        names = [name for name in catalog.CATALOG if name != "user"]
        while not publishing.done():
            await operator.execute(f"SET POLICY '{names[0]}'")
            assert await in_use(operator) == [names[0]]
            names.append(names.pop(0))
        await publishing
        rows, counted, seventh = await asyncio.gather(*taking)
        assert [r["v"] for r in rows] == list(range(1, BATCHES * ROWS + 1))
        assert [r["n"] for r in counted] == [10 * ROWS] * windows
        assert [r["total"] for r in counted] == [sum(range(w * 10 * ROWS, (w + 1) * 10 * ROWS)) for w in range(windows)]
        assert [r["v"] for r in seventh] == list(range(0, BATCHES * ROWS, 7))

    run(test, workers=workers)


def test_the_documented_policy_file_is_loaded_while_rows_flow_and_a_failing_one_gives_way_loudly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    block = re.search(r"```python\n(# slack_by_cost\.py\n.*?)```", DOCUMENTED.read_text("utf-8"), re.DOTALL)
    assert block is not None
    assert 20 <= block.group(1).count("\n") <= 40
    (tmp_path / "slack_by_cost.py").write_text(block.group(1))
    failing = {"broken": "return 1 / 0", "exits": "import sys; sys.exit(3)", "hangs": "while True: pass"}
    for name, body in failing.items():
        (tmp_path / f"{name}.py").write_text(f"class Failing:\n    def rank(self, unit, now_ns):\n        {body}\n")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s", name="rows")
        reader = await client.subscribe("rows")
        await client.execute("SET POLICY user WITH (file = 'slack_by_cost.py')")
        await publish(client, 5)
        assert len(await rows_of(reader, 5 * ROWS)) == 5 * ROWS
        assert await in_use(client) == ["user"]
        for count, name in enumerate(failing, 1):
            await client.execute(f"SET POLICY user WITH (file = '{name}.py')")
            await publish(client, 5)
            assert len(await rows_of(reader, 5 * ROWS)) == 5 * ROWS
            await until(lambda count=count: harness.server.application.policies_failed == count, "the failure is told")  # type: ignore[misc]
            assert await in_use(client) == ["round-robin"]
            (told,) = (await client.execute("SHOW POLICIES")).notices
            assert told.startswith("user, which was set last, failed: policy user:file=")
            assert f"/{name}.py " in told
            assert told.endswith("; round-robin goes on")
        with pytest.raises(MillstreamError, match="is not in the server's policy directory"):
            await client.execute("SET POLICY user WITH (file = '../../etc/passwd')")

    run(test, policy_dir=str(tmp_path))
    said = capfd.readouterr().err
    for reason in ("broken.py, line 3: ZeroDivisionError", "exits.py, line 3: SystemExit: 3", "nothing came back within 1 s"):
        assert f"failed: {reason}" in said
    assert said.count("; round-robin goes on") == len(failing)


def test_a_restart_begins_with_the_policy_that_was_set_also_when_it_had_failed(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Failing:\n    def rank(self, unit, now_ns):\n        return 1 / 0\n")
    settings = {"policy_dir": str(tmp_path), "data_dir": str(tmp_path / "data")}

    async def work(harness: Harness) -> list[str]:
        client = await harness.client()
        await publish(client, 2)
        assert len(await rows_of(await client.subscribe("rows", from_start=True), 2 * ROWS)) >= 2 * ROWS
        return await in_use(client)

    async def first(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s", name="rows")
        await client.execute("SET POLICY user WITH (file = 'mine.py')")
        assert await work(harness) == ["round-robin"]

    async def again(harness: Harness) -> None:
        assert await work(harness) == ["round-robin"], "it failed again, and was replaced again"

    async def mended(harness: Harness) -> None:
        assert await work(harness) == ["user"]

    async def without(harness: Harness) -> None:
        assert await work(harness) == ["fcfs"]

    run(first, **settings)
    run(again, **settings)
    file.write_text("class Mine:\n    def rank(self, unit, now_ns):\n        return unit.wait_ns\n")
    run(mended, **settings)
    run(without, **settings, policy="fcfs")


def test_the_options_in_force_are_shown_and_may_have_names_that_are_reserved_words() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        for text, shown in [
            ("'bsd-log' WITH (clusters = 6)", "level=query, sharing=tree, clusters=6"),
            ("rr WITH (inner = 'ml')", "level=query, inner=ml"),
            ("'weighted-round-robin' WITH (join = 2.5)", "leaf=2.0, join=2.5"),
            ("hnr WITH (train = 1.0)", "level=query, sharing=tree, train=1.0"),
            ("bsd", "level=query, sharing=tree"),
        ]:
            await client.execute(f"SET POLICY {text}")
            assert [r["options"] for r in await client.execute("SHOW POLICIES") if r["in_use"]] == [shown]

    run(test)


def test_without_a_policy_directory_no_file_is_taken() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        with pytest.raises(MillstreamError, match="takes no policy files"):
            await client.execute("SET POLICY user WITH (file = 'x.py')")
        assert await in_use(client) == ["fcfs"]

    run(test)


def test_window_and_aging_of_estimates_are_settings() -> None:
    async def test(harness: Harness) -> None:
        host = harness.server.application.host
        settings = host.runtime.scheduler.settings  # type: ignore[attr-defined]
        assert (settings.window, settings.aging) == (50, 0.25)

    run(test, estimate_rows=50, estimate_aging=0.25)
