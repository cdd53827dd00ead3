"""A running server recorded, and the recording simulated: the whole way from rows on the wire to a table of policies."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from millstream.client import connect
from millstream.client.commands import policy as policy_command
from millstream.client.commands import record as record_command
from millstream.client.errors import MillstreamError
from millstream.scheduler.simulation.recording import load, parse
from millstream.scheduler.simulation.simulate import simulate as run_simulation
from millstream.scheduler.simulation.simulate_command import simulate

from tests.property.random_queries import random_query
from tests.server.test_serve_process import serving
from tests.support.live_server import Harness, run, until

STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us"
BATCHES = 30


def prepare(client: Any) -> None:
    client.execute(STREAM)
    client.submit("SELECT v FROM s WHERE v % 4 = 0", name="quarter")
    client.submit("SELECT v + 1 AS w FROM s", name="all")


def publish(client: Any) -> None:
    subscription = client.subscribe("all")
    for number in range(BATCHES):
        client.publish("s", [{"ts": number, "v": number * 4 + part} for part in range(4)])
    rows = 0
    for batch in subscription:
        rows += len(batch)
        if rows == 4 * BATCHES:
            return


@pytest.mark.process
def test_a_recording_says_what_came_when_and_what_operators_cost_and_simulate_compares_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, plot = tmp_path / "monday.recording", tmp_path / "monday.svg"
    with serving() as (_, port), connect(f"127.0.0.1:{port}") as client:
        prepare(client)
        publish(client)  # before the recording begins: measured, not recorded
        monkeypatch.setattr(record_command, "wait", lambda seconds: publish(client))
        result = CliRunner().invoke(record_command.command, [str(file), "--server", f"127.0.0.1:{port}"])
        assert result.exit_code == 0, result.output
    recording = load(file)
    (log,) = recording.arrivals
    assert len(recording.arrivals[log]) == 4 * BATCHES
    assert [delta.query.name for delta in recording.deltas] == ["quarter", "all"]
    nodes = {node.kind: node for delta in recording.deltas for node in delta.operators}
    assert nodes["select"].selectivity == pytest.approx(0.25, abs=0.05)
    assert nodes["sink"].selectivity == 1.0
    assert all(node.cost_ns + node.call_ns > 0 for node in nodes.values() if node.inputs)
    assert (recording.about["workers"], recording.about["policy"]) == (1, "fcfs")
    arguments = [str(file), "--policy", "fcfs,hnr,round-robin"]
    first = CliRunner().invoke(simulate, [*arguments, "--plot", str(plot)])
    assert first.exit_code == 0, first.output
    assert CliRunner().invoke(simulate, arguments).stdout == first.stdout
    results = {line.split()[0]: int(line.split()[1]) for line in first.stdout.splitlines()[1:]}
    assert set(results) == {"fcfs", "hnr", "round-robin"}
    assert len(set(results.values())) == 1
    assert 4 * BATCHES < results["fcfs"] < 2 * 4 * BATCHES
    assert "best served by\n  average response time:" in first.stderr
    assert plot.read_text().startswith("<?xml")


@pytest.mark.process
def test_a_live_trace_shows_orders_operators_by_query_and_arrivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "trace.json"
    with serving() as (_, port), connect(f"127.0.0.1:{port}") as client:
        prepare(client)

        def work(seconds: float | None) -> None:
            client.execute("SET POLICY hnr")
            publish(client)

        monkeypatch.setattr(record_command, "wait", work)
        result = CliRunner().invoke(policy_command.command, ["trace", str(file), "--server", f"127.0.0.1:{port}"])
        assert result.exit_code == 0, result.output
    events = json.loads(file.read_text())["traceEvents"]
    steps = [e for e in events if e["ph"] == "X" and e["tid"] == 2]
    assert {e["name"].partition(":")[0] for e in steps} == {"quarter", "all"}
    assert sum(e["args"]["rows"] for e in steps if e["name"].startswith("all: project")) == 4 * BATCHES
    assert sum(e["args"]["rows"] for e in events if e["name"].startswith("arrived")) == 4 * BATCHES
    assert "policy is hnr" in {e["args"].get("message") for e in events if "args" in e}
    assert all(e["dur"] >= 0 and e["ts"] > 0 for e in events if e["ph"] == "X")


def test_one_recording_of_a_kind_at_a_time_and_it_ends_with_its_connection() -> None:
    async def test(harness: Harness) -> None:
        first, second = await harness.client(), await harness.client()
        await first.execute(STREAM)
        await first.execute("START RECORDING")
        await first.execute("START RECORDING DECISIONS")
        with pytest.raises(MillstreamError, match="arrivals are already being recorded"):
            await second.execute("START RECORDING ARRIVALS")
        with pytest.raises(MillstreamError, match="this connection records no arrivals"):
            await second.execute("STOP RECORDING")
        host = harness.server.application.host
        await first.close()
        await until(lambda: not host.recordings, "the recordings have ended")
        await second.execute("START RECORDING")
        answer = await second.execute("STOP RECORDING")
        assert json.loads(answer.rows[0]["line"])["recording"] == 1
        assert len(answer.rows) == 1

    run(test)


def test_what_comes_after_the_bound_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.server.host.recordings.ROWS_MAX", 3)

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s", name="q")
        await client.execute("START RECORDING")
        for number in range(4):
            await client.publish("s", [{"ts": number, "v": 1}])
        answer = await client.execute("STOP RECORDING")
        assert "cut at the bound" in answer.notices[0]
        lines = [json.loads(row["line"]) for row in answer.rows]
        assert [len(line["arrivals"]["gaps_ns"]) for line in lines if "arrivals" in line] == [2]

    run(test)


CREATES = (
    "CREATE STREAM a (ts BIGINT, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts UNIT us DELAY 2 SECONDS",
    "CREATE STREAM b (ts BIGINT, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts UNIT us",
    "CREATE STREAM c (k BIGINT, v BIGINT, x DOUBLE)",
    "CREATE TABLE t (k BIGINT, w BIGINT, PRIMARY KEY (k))",
    "CREATE STREAM d AS SELECT k, v FROM a WHERE v > 2",
    "CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS",
    "CREATE CLASS copper PRIORITY 1 TARGET 500 MILLISECONDS SHED",
)
DERIVED = ("SELECT k, v FROM d WHERE v > 5", "SELECT k, COUNT(*) AS n FROM d GROUP BY k")


class Recorded:
    """A server with random queries, some of which come and go while it is recorded."""

    def __init__(self, harness: Harness, client: Any, seed: int) -> None:
        self.host = harness.server.application.host
        self.client, self.choice = client, random.Random(seed)
        self.alive: list[str] = []
        self.made = self.now = 0

    async def add(self) -> None:
        text = self.choice.choice((random_query(self.choice), random_query(self.choice), random_query(self.choice), *DERIVED))
        self.made += 1
        name = f"q{self.made}"
        await self.client.submit(text, name=name, class_=self.choice.choice(("default", "default", "gold", "copper")))
        self.alive.append(name)

    async def drop(self) -> None:
        await self.client.execute(f"DROP QUERY {self.alive.pop(self.choice.randrange(len(self.alive)))}")

    async def publish(self) -> None:
        stream = self.choice.choice("aaabbct")
        rows: list[dict[str, Any]] = []
        for _ in range(self.choice.randint(20, 80)):
            self.now += self.choice.randrange(0, 500_000)
            row = {"k": self.choice.choice((0, 1, 1, 2, 3)), "v": self.choice.randrange(0, 9), "x": self.choice.randrange(0, 64) / 64}
            rows.append({"k": row["k"], "w": row["v"]} if stream == "t" else row if stream == "c" else {"ts": self.now, **row})
        await self.client.publish(stream, rows)

    async def results(self) -> dict[str, int]:
        """Wait until nothing is under way; return how many rows each query has given."""
        assert await asyncio.to_thread(self.host.runtime.scheduler.quiesce, 30)
        operators = self.host.network.operators
        roots = {q.name: self.host.runtime.scheduler.ask(lambda core, q=q: core.network.queries[q.id].root) for q in self.host.queries}
        return {name: operators[root].statistics.rows_in for name, root in roots.items()}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_runs_its_recording_simulates_with_the_servers_counts(seed: int) -> None:
    """Shared windows and selections, joins, tables, derived streams, classes, queries that come and go."""

    async def test(harness: Harness) -> None:
        client = await harness.client()
        for text in CREATES:
            await client.execute(text)
        server = Recorded(harness, client, seed)
        for _ in range(10):
            await server.add()
        for _ in range(5):
            await server.publish()
        before = await server.results()
        await client.execute("START RECORDING")
        for _ in range(40):
            await server.publish()
            if server.choice.random() < 0.2:
                await server.add()
            if server.choice.random() < 0.15:
                await server.drop()
        after = await server.results()
        answer = await client.execute("STOP RECORDING")
        recording = parse(row["line"] for row in answer.rows)
        whole = {name: after[name] - before[name] for name in before if name in after}
        for policy in ("fcfs", "hr"):
            outcome = run_simulation(recording.workload("recorded"), policy)
            found = dict(zip((q.name for q in outcome.queries), np.bincount(outcome.query, minlength=len(outcome.queries)), strict=True))
            assert set(found) >= set(server.alive)
            for name, rows in whole.items():
                assert abs(int(found[name]) - rows) <= 0.1 * rows + 6 * rows**0.5 + 6, (policy, name, rows, int(found[name]))

    run(test)
