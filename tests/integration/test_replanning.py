"""Plans that change under running queries of a live server: with several workers, over a restart, and where it is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from millstream.engine.data.errors import Unsupported
from millstream.engine.plan.alternatives import Measured, alternatives, change_runs, ordered, rebuilt
from millstream.engine.plan.logical import Node
from millstream.server.watch.replanning import change_plan

from tests.support.live_server import Harness, run, running

STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT, a TEXT) TIMESTAMP BY ts UNIT ms{}"
FILTERED = "v > 2 AND a LIKE '%x%' AND k <> 7"
QUERIES = {
    "rows": f"SELECT ts, k, v FROM s WHERE {FILTERED}",
    "windows": f"SELECT window_end, k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 40 MILLISECONDS SLIDE 20 MILLISECONDS] "
    f"WHERE {FILTERED} GROUP BY k",
    "sliding": f"SELECT k, COUNT(*) AS n, MAX(v) AS most FROM s [RANGE 30 MILLISECONDS] WHERE {FILTERED} GROUP BY k",
    "named": "SELECT s.k, s.v, t.name FROM s JOIN t ON s.k = t.k WHERE s.v > 2 AND s.a LIKE '%x%'",
}


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"ts": n, "k": n % 9, "v": n * 7 % 11, "a": ("x", "ax", "b", None)[n % 4]} for n in range(start, stop)]


async def defined(harness: Harness, durability: str = "", names: Sequence[str] = tuple(QUERIES)) -> Any:
    client = await harness.client()
    await client.execute(STREAM.format(durability))
    await client.execute("CREATE TABLE t (k BIGINT, name TEXT, PRIMARY KEY (k))" + durability)
    await client.publish("t", [{"k": k, "name": f"n{k}"} for k in range(0, 9, 2)])
    for name in names:
        await client.submit(QUERIES[name], name=name)
    return client


async def swapped(harness: Harness, name: str, root: Node) -> None:
    host = harness.server.application.host
    await harness.server.application.call(change_plan, host, host.queries.get(name), root)


def shuffled(root: Node, draw: random.Random) -> Node:
    return change_runs(root, lambda run: rebuilt(run, ordered(run, lambda _: draw.random())))


def apart(root: Node) -> Node:
    return next((one.root for one in alternatives(root, Measured())), root)


async def answers(names: Sequence[str], *, changes: int | None, **settings: Any) -> dict[str, list[Any]]:
    """Return what queries answer, with or without changes of plan at random moments while rows come."""
    async with running(**settings) as harness:
        client = await defined(harness, names=names)
        subscriptions = {name: await client.subscribe(name) for name in names}
        host = harness.server.application.host
        draw = random.Random(changes)
        publisher = await harness.client()

        async def publish() -> None:
            for start in range(0, 1_800, 60):
                await publisher.publish("s", rows(start, start + 60))

        publishing = asyncio.create_task(publish())
        if changes is not None:
            while not publishing.done():
                name = draw.choice(names)
                await swapped(harness, name, shuffled(apart(host.queries.get(name).planned.logical.root), draw))
        await publishing
        await client.finish("s")
        await client.finish("t")
        counts = {r["name"]: (r["accepted"], r["processed"], r["late"]) for r in await client.execute("SHOW QUERIES")}
        assert counts[names[0]] == (1_800, 1_800, 0)
        assert harness.server.application.unbalanced_total == 0
        return {name: (await subscription.to_arrow()).to_pylist() for name, subscription in subscriptions.items()}


@pytest.mark.parametrize(("names", "workers", "sharing"), [(tuple(QUERIES), 1, "off"), (tuple(QUERIES), 2, "hybrid")])
def test_answers_are_the_same_while_plans_change_and_rows_come(names: Sequence[str], workers: int, sharing: str) -> None:
    async def both() -> None:
        stayed = await answers(names, changes=None, workers=workers, sharing=sharing)
        assert all(stayed.values())
        assert await answers(names, changes=1, workers=workers, sharing=sharing) == stayed

    asyncio.run(both())


def test_a_query_that_is_rebuilt_from_the_journal_goes_on_after_a_change_and_a_checkpoint(tmp_path: Path) -> None:
    async def told(directory: Path | None, *, changed: bool) -> list[Any]:
        found: list[Any] = []
        token = None
        for part in range(2):
            async with running(**({} if directory is None else {"data_dir": str(directory)})) as harness:
                if part == 0:
                    client = await defined(harness, " DURABILITY journal", ("windows",))
                else:
                    client = await harness.client()
                subscription = await client.subscribe("windows", **({"resume_token": token} if token else {"from_start": True}))
                await client.publish("s", rows(600 * part, 600 * part + 300))
                if changed:
                    host = harness.server.application.host
                    query = host.queries.get("windows")
                    with pytest.raises(Unsupported, match="could not rebuild"):
                        await swapped(harness, "windows", apart(query.planned.logical.root))
                    await swapped(harness, "windows", query.planned.logical.root)
                    assert host.journaling is not None
                    await harness.server.application.call(host.journaling.checkpoint)
                await client.publish("s", rows(600 * part + 300, 600 * part + 600))
                if part:
                    await client.finish("s")
                    found += (await subscription.to_arrow()).to_pylist()
                else:
                    batch = await asyncio.wait_for(subscription.next_item(), 10)
                    found += batch.to_pylist()
                    token = subscription.resume_token
        return found

    async def both() -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        assert await told(tmp_path / "b", changed=True) == await told(tmp_path / "a", changed=False)

    asyncio.run(both())


def test_what_cannot_change_its_plan_says_why_and_goes_on() -> None:
    async def test(harness: Harness) -> None:
        client = await defined(harness, names=("rows", "windows"))
        host = harness.server.application.host
        root = host.queries.get("rows").planned.logical.root
        await client.submit(QUERIES["windows"].replace("SUM(v)", "MAX(v)"), name="twin")  # one synopsis serves both
        with pytest.raises(Unsupported, match="keep its state serve other queries"):
            await swapped(harness, "windows", apart(host.queries.get("windows").planned.logical.root))
        await client.execute("PAUSE QUERY rows")
        with pytest.raises(Unsupported, match="paused"):
            await swapped(harness, "rows", apart(root))
        await client.execute("RESUME QUERY rows")
        with pytest.raises(Unsupported, match="other columns"):
            await swapped(harness, "rows", host.queries.get("windows").planned.logical.root)
        subscription = await client.subscribe("rows")
        await swapped(harness, "rows", apart(root))  # though the others read its first selection
        await client.publish("s", rows(0, 100))
        await client.finish("s")
        wanted = [r["ts"] for r in rows(0, 100) if r["v"] > 2 and "x" in (r["a"] or "") and r["k"] != 7]
        assert [r["ts"] for r in (await subscription.to_arrow()).to_pylist()] == wanted

    run(test)
