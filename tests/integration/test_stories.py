"""A story of the running server, written to a file and read back, makes a fresh core decide the same again."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.events import QueryReweighed, SumsWanted
from millstream.scheduler.ledger import validate
from millstream.scheduler.settings import CoreSettings
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.story import Story
from millstream.server.config import Config, policy_at_start

from tests.support.live_server import Harness, run

POLICIES = ["hnr", "bsd-log", "chain", "round-robin", "segment", "cqc", "edf", "slope-slack", "superbox", "fcfs"]
ROUNDS = 120
SIZES = [1, 5, 300, 4000]
STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us DELAY 10 MICROSECONDS"


def table(start: int, rows: int) -> Any:
    numbers = range(start, start + rows)
    return pa.table(
        {"ts": pa.array([1_000 * n for n in numbers]), "k": pa.array([n % 10 for n in numbers]), "v": pa.array([n % 997 for n in numbers])}
    )


async def define(client: Any) -> None:
    for statement in ("CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS", "CREATE CLASS low PRIORITY 1 SHED", STREAM):
        await client.execute(statement)
    for number in range(6):
        chain = f"SELECT k, v + {number} AS v FROM (SELECT k, v * {number + 1} AS v FROM s WHERE v % {number + 2} <> 1) WHERE k > {number}"
        window = f"SELECT k, COUNT(*) AS n FROM s [RANGE {number + 1} SECONDS SLIDE 1 SECOND] GROUP BY k"
        await client.submit(chain, name=f"chain{number}", class_=["gold", "low", "default"][number % 3])
        await client.submit(window, name=f"window{number}")


async def change(harness: Harness, client: Any, at: int) -> None:
    statements = {20: "DROP QUERY chain3", 40: "PAUSE QUERY chain1", 60: "RESUME QUERY chain1"}
    if at in statements:
        await client.execute(statements[at])
    if at == 30:
        await client.submit("SELECT k FROM s WHERE k > 3", name="late")
    if at % 9 == 3:
        await client.execute(f"SET POLICY '{POLICIES[at // 9 % len(POLICIES)]}'")
    if at % 25 == 7:
        await client.execute("EXPLAIN QOS SELECT v FROM s WHERE v > 3")
        host = harness.server.application.host
        host.runtime.scheduler.post(QueryReweighed(host.queries.get("chain2").id, float(at)))


@pytest.mark.parametrize(("load", "workers"), [("none", 1), ("dilos", 1), ("class", 2)])
def test_a_story_of_the_server_read_from_a_file_gives_the_same_decisions(load: str, workers: int) -> None:
    story, found = Story(10**6), io.StringIO()
    settings: list[CoreSettings] = []

    async def test(harness: Harness) -> None:
        scheduler = harness.server.application.host.runtime.scheduler

        def begin(core: SchedulerCore) -> None:
            core.story = story
            settings.append(core.settings)

        scheduler.ask(begin)
        client = await harness.client()
        await define(client)
        sent = 0
        for at in range(ROUNDS):
            await client.publish("s", table(sent, SIZES[at % len(SIZES)]))
            sent += SIZES[at % len(SIZES)]
            await change(harness, client, at)
        await client.finish("s")
        scheduler.ask(lambda core: setattr(core, "story", None))

    run(test, within_s=300, load=load, workers=workers)
    story.save(found)
    read = Story.load(found.getvalue().splitlines())
    assert len(read) == len(story) > ROUNDS
    assert {SumsWanted, QueryReweighed} <= {type(event) for entry in read for event in entry.events}
    core = SchedulerCore(PolicySpec.parse(policy_at_start(Config(load=load))), settings[0])
    for entry in read:
        assert tuple(core.handle(entry.events, entry.now_ns)) == entry.instructions
    validate(core.ledger)
