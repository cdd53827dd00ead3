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
from millstream.scheduler.simulation.simulate import RunSettings
from millstream.scheduler.simulation.simulate import simulate as run_simulation
from millstream.scheduler.simulation.simulate_command import simulate
from millstream.server.host.recordings import marked

from tests.integration import test_history as history
from tests.integration.test_archive import SETTINGS
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


def test_what_came_lately_can_be_written_afterwards_and_is_a_recording_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "lately.recording"

    async def test(harness: Harness) -> None:
        client, reader = await harness.client(token="a"), await harness.client(token="r")
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s WHERE v % 4 = 0", name="quarter")
        with pytest.raises(MillstreamError, match="nothing has arrived"):
            await client.execute("SHOW RECORDING")
        for number in range(BATCHES):
            await client.publish("s", [{"ts": number, "v": number * 4 + part} for part in range(4)])
        assert await asyncio.to_thread(harness.server.application.runtime.scheduler.quiesce, 30)
        with pytest.raises(MillstreamError, match="admin"):
            await reader.execute("SHOW RECORDING")
        arguments = [str(file), "--last", "10m", "--server", harness.address, "--token", "a"]
        result = await asyncio.to_thread(CliRunner().invoke, record_command.command, arguments)
        assert result.exit_code == 0, result.output

    run(test, admin_token="a", reader_token="r")
    recording = load(file)
    assert recording.about["order_ns"] > 0  # also where the thread that brought the rows decided
    (times,) = recording.arrivals.values()
    assert len(times) == 4 * BATCHES
    assert len(set(times.tolist())) == BATCHES  # trains stay trains
    outcome = run_simulation(recording.workload("lately"), "fcfs")
    assert abs(len(outcome.query) - BATCHES) <= 12  # a quarter passes, drawn again


def test_a_server_that_is_to_keep_no_counts_keeps_none() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.publish("s", [{"ts": 1, "v": 1}])
        assert harness.server.application.runtime.ring is None
        with pytest.raises(MillstreamError, match="keeps no counts") as refused:
            await client.execute("SHOW RECORDING LAST 1 MINUTE")
        assert "recording_kept_s" in str(refused.value.hint)

    run(test, recording_kept_s=0.0)


def test_the_timer_marks_what_operators_did_once_rows_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.server.sweep.RING_ROUNDS", 1)

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s", name="q")
        await client.publish("s", [{"ts": 1, "v": 1}])
        runtime = harness.server.application.runtime
        assert not runtime.ring.wants_mark(runtime.arrival_ns())  # the server has just started
        began_ns = runtime.clock_ns()
        runtime.clock_ns = lambda: began_ns + 3 * 1_000_000_000
        await until(lambda: not runtime.ring.is_fresh, "a mark is set")
        marks = runtime.ring.marks
        assert [sum(did.rows_in for did in mark.did.values()) for mark in marks] == [0, 2]  # the project and the sink

    run(test, recording_kept_s=60.0)


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


STREAMS = (
    "CREATE STREAM a (ts BIGINT, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts UNIT us DELAY 2 SECONDS{kept}",
    "CREATE STREAM b (ts BIGINT, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts UNIT us{kept}",
    "CREATE STREAM c (k BIGINT, v BIGINT, x DOUBLE){kept}",
    "CREATE TABLE t (k BIGINT, w BIGINT, PRIMARY KEY (k)){file}",
    "CREATE STREAM d AS SELECT k, v FROM a WHERE v > 2",
    "CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS",
    "CREATE CLASS copper PRIORITY 1 TARGET 500 MILLISECONDS SHED",
)
DERIVED = ("SELECT k, v FROM d WHERE v > 5", "SELECT k, COUNT(*) AS n FROM d GROUP BY k")


class Recorded:
    """A server with random queries, some of which come and go while it is recorded."""

    def __init__(self, harness: Harness, client: Any, seed: int, directory: Path, *, begins_in_past: bool, polled: bool) -> None:
        self.application = harness.server.application
        self.host = self.application.host
        self.client, self.choice = client, random.Random(seed)
        self.file = directory / "t.csv" if polled else None
        self.begins_in_past = begins_in_past
        self.alive: list[str] = []
        self.made = self.now = 0

    async def begin(self) -> None:
        """Create what queries read."""
        kept = " DURABILITY journal ARCHIVE" if self.begins_in_past else ""
        file = ""
        if self.file is not None:
            self.file.write_text("k,w\n1,1\n", "utf-8")
            file = f" FROM '{self.file}' REFRESH"
        for text in STREAMS:
            await self.client.execute(text.format(kept=kept, file=file))

    async def add(self) -> None:
        text = self.choice.choice((random_query(self.choice), random_query(self.choice), random_query(self.choice), *DERIVED))
        self.made += 1
        name, class_ = f"q{self.made}", self.choice.choice(("default", "default", "gold", "copper"))
        past = self.begins_in_past and class_ != "copper" and text not in DERIVED and self.choice.random() < 0.5
        await self.client.submit(text, name=name, class_=class_, **({"history": "archive"} if past else {}))
        self.alive.append(name)

    async def drop(self) -> None:
        name = self.alive.pop(self.choice.randrange(len(self.alive)))
        await self.client.execute(f"DROP QUERY {name}")

    async def publish(self) -> None:
        stream = self.choice.choice("aaabbct")
        rows: list[dict[str, Any]] = []
        for _ in range(self.choice.randint(20, 80)):
            self.now += self.choice.randrange(0, 500_000)
            row = {"k": self.choice.choice((0, 1, 1, 2, 3)), "v": self.choice.randrange(0, 9), "x": self.choice.randrange(0, 64) / 64}
            rows.append({"k": row["k"], "w": row["v"]} if stream == "t" else row if stream == "c" else {"ts": self.now, **row})
        if stream == "t" and self.file is not None:
            await self.rewrite({row["k"]: row["w"] for row in rows})
        else:
            await self.client.publish(stream, rows)

    async def rewrite(self, rows: dict[int, int]) -> None:
        """Give the polled file other rows and wait until the table has them."""
        assert self.file is not None
        part = self.file.with_suffix(".part")
        part.write_text("k,w\n" + "".join(f"{k},{w}\n" for k, w in rows.items()), "utf-8")
        part.replace(self.file)
        async with asyncio.timeout(30):
            while {row["k"]: row["w"] for row in (await self.client.execute("FETCH SELECT k, w FROM t")).rows} != rows:
                await asyncio.sleep(0.01)

    def in_the_past(self) -> set[str]:
        return {query.name for query in self.host.queries if query.catching_up is not None}

    async def results(self) -> dict[str, int]:
        """Wait until nothing is under way; return how many rows each query has given."""
        assert await asyncio.to_thread(self.host.runtime.scheduler.quiesce, 30)
        operators = self.host.network.operators
        roots = {q.name: self.host.runtime.scheduler.ask(lambda core, q=q: core.network.queries[q.id].root) for q in self.host.queries}
        return {name: operators[root].statistics.rows_in for name, root in roots.items()}


@pytest.mark.parametrize(
    ("seed", "workers", "begins_in_past", "polled"),
    [(0, 1, False, False), (2, 2, False, False), (15, 2, False, True), (40, 1, True, True), (5, 2, True, True)],
)
def test_whatever_runs_its_recording_simulates_with_the_servers_counts(
    seed: int, workers: int, begins_in_past: bool, polled: bool, tmp_path: Path
) -> None:
    """Shared windows and selections, joins, tables, derived streams, classes, queries that come and go; workers, pasts, polled tables."""

    async def test(harness: Harness) -> None:
        client = await harness.client()
        server = Recorded(harness, client, seed, tmp_path, begins_in_past=begins_in_past, polled=polled)
        await server.begin()
        for _ in range(5):
            await server.publish()
        for _ in range(10):
            await server.add()
        for _ in range(5):
            await server.publish()
        await until(lambda: not server.in_the_past(), "the first queries have caught up")
        before = await server.results()
        host, runtime = server.host, server.application.runtime
        runtime.ring.set_mark(marked(runtime.scheduler, host.network))
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
        kept = parse(row["line"] for row in (await client.execute("SHOW RECORDING LAST 1 MILLISECOND")).rows)
        assert recording.about["workers"] == kept.about["workers"] == workers
        if not polled:  # a file may be read between the mark and the recording's beginning: what it brings is in the first alone
            assert {log: len(rows) for log, rows in kept.arrivals.items()} == {log: len(rows) for log, rows in recording.arrivals.items()}
        whole = {name: after[name] - before[name] for name in before if name in after}
        for told, policy in ((recording, "fcfs"), (recording, "hr"), (kept, "fcfs")):
            outcome = run_simulation(told.workload("recorded"), policy, settings=RunSettings(workers=workers))
            found = dict(zip((q.name for q in outcome.queries), np.bincount(outcome.query, minlength=len(outcome.queries)), strict=True))
            assert set(found) >= set(server.alive)
            for name, rows in whole.items():
                assert abs(int(found[name]) - rows) <= 0.1 * rows + 6 * rows**0.5 + 6, (policy, name, rows, int(found[name]))

    run(test, workers=workers, **({"data_dir": str(tmp_path / "data"), **SETTINGS} if begins_in_past else {}))


def test_a_query_that_goes_live_while_it_is_recorded_simulates_like_one_that_was_there(tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        for text in history.STREAMS:
            await client.execute(text)
        await client.publish("names", [{"k": "a", "name": "first"}])
        await history.create(client, "first")
        for start in range(0, 60, 10):
            await history.publish(client, start, start + 10)
        history.feeding(harness).holds_back = lambda query: True
        await history.create(client, "late", "WITH (history = 'archive')")
        await client.execute("START RECORDING")
        for start in range(60, 360, 30):
            await history.publish(client, start, start + 30)
        history.feeding(harness).holds_back = lambda query: False
        await history.caught_up(harness)
        for start in range(360, 660, 30):
            await history.publish(client, start, start + 30)
        assert await asyncio.to_thread(harness.server.application.host.runtime.scheduler.quiesce, 30)
        answer = await client.execute("STOP RECORDING")
        recording = parse(row["line"] for row in answer.rows)
        assert all(node.selectivity <= 1.0 for delta in recording.deltas for node in delta.operators if node.kind in ("project", "select"))
        outcome = run_simulation(recording.workload("recorded"), "fcfs")
        found = dict(
            zip((q.name for q in outcome.queries), np.bincount(outcome.query, minlength=len(outcome.queries)).tolist(), strict=True)
        )
        for name in history.QUERIES:
            first, late = found[f"first_{name}"], found[f"late_{name}"]
            assert first > 0
            assert abs(late - first) <= 0.1 * first + 6 * first**0.5, (name, first, late)

    run(test, data_dir=str(tmp_path / "data"), **SETTINGS)
