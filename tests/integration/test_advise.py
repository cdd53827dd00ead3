"""`millstream advise` beside a running server: on what arrived there, and the switch to what it proposes and back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from millstream.client import advice as adviser
from millstream.client.blocking import connect
from millstream.client.commands import advise as command
from millstream.client.errors import MillstreamError
from millstream.client.statements import policy_statement

from tests.support.live_server import Harness, run

GAIN = {"measure": "response_ms_p99", "words": "", "present": 12.0, "proposed": 4.0, "share": 0.66, "ci95": 0.02}
FINDING = {
    "policy": "bsd-log:clusters=4,level=operator",
    "apart": [],
    "gain": GAIN,
    "gain_at_more_load": {**GAIN, "share": 0.5},
    "worse": [{**GAIN, "words": "longest response time, ms", "present": 30.0, "proposed": 55.0}],
    "slower": [{"query": "report", "present_ms": 40.0, "proposed_ms": 90.0}],
}
ADVICE: dict[str, Any] = {
    "advice": 1,
    "keep": False,
    "objective": "p99",
    "words": "99th percentile of the response time, ms",
    "present": "fcfs",
    "present_value": 12.0,
    "proposed": FINDING,
    "apart": None,
    "reason": "",
    "tried": [["bsd-log", 4.0]],
    "failed": [],
    "recorded_rows": 9,
    "recorded_s": 3.0,
    "rows": 9,
    "runs": 5,
    "skipped": 0,
}


async def invoke(harness: Harness, *arguments: str) -> Any:
    return await asyncio.to_thread(CliRunner().invoke, command.command, [*arguments, "--server", harness.address])


def test_without_a_file_it_looks_at_what_arrived_at_the_server() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
        refused = await invoke(harness)
        assert isinstance(refused.exception, MillstreamError)
        assert "nothing has arrived" in refused.exception.message
        await client.submit("SELECT v FROM s WHERE v % 4 = 0", name="quarter")
        await client.submit("SELECT v + 1 AS w FROM s", name="all")
        for number in range(30):
            await client.publish("s", [{"ts": number, "v": number * 4 + part} for part in range(4)])
        arguments = ("--last", "10m", "--policy", "fcfs,hnr", "--processes", "1", "--format", "json")
        told = await invoke(harness, *arguments)
        assert told.exit_code == 0, told.output
        found = json.loads(told.stdout)
        assert (found["present"], found["recorded_rows"], found["skipped"]) == ("fcfs", 120, 0)
        assert {name.partition(":")[0] for name, _ in found["tried"]} == {"fcfs", "hnr"}
        assert set(ADVICE) == set(found)

    run(test)


def test_apply_switches_the_server_and_says_how_to_go_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "advise", lambda recording, **options: ADVICE)
    file = tmp_path / "some.recording"
    file.write_text("{}")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("SET POLICY hnr WITH (level = 'operator')")
        done = await invoke(harness, str(file), "--apply")
        assert done.exit_code == 0, done.output
        assert "proposal: bsd-log:clusters=4,level=operator" in done.stdout
        assert "query report: 99th percentile 40 -> 90 ms" in done.stdout
        assert "to go back: millstream policy set hnr:level=operator" in done.stderr
        used = [row for row in (await client.execute("SHOW POLICIES")).rows if row["in_use"]]
        assert used[0]["name"] == "bsd-log"
        assert "clusters=4" in used[0]["options"]

        def back() -> str:
            with connect(harness.address) as blocking:
                blocking.execute(policy_statement("hnr:level=operator"))
                return adviser.policy_in_force(blocking)

        assert await asyncio.to_thread(back) == "hnr:level=operator"

    run(test)


def test_apply_changes_nothing_where_the_policy_is_to_be_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = {**ADVICE, "keep": True, "proposed": None, "reason": "all are alike"}
    monkeypatch.setattr(command, "advise", lambda recording, **options: kept)
    file = tmp_path / "some.recording"
    file.write_text("{}")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        before = (await client.execute("SHOW POLICIES")).rows
        done = await invoke(harness, str(file), "--apply")
        assert "keep what you have: all are alike" in done.stdout
        assert "nothing was changed" in done.stderr
        assert (await client.execute("SHOW POLICIES")).rows == before

    run(test)


def test_queries_to_set_apart_are_told_with_the_statements() -> None:
    apart = {**FINDING, "policy": "cqc:inner=hr", "apart": ["dear.1", 'odd "one"']}
    lines = list(adviser.told({**ADVICE, "apart": apart}))
    assert "or set 2 queries apart, with the policy cqc:inner=hr" in lines
    assert "  CREATE CLASS apart PRIORITY 1;" in lines
    assert """  SET POLICY "cqc" WITH (inner = 'hr');""" in lines
    assert """  ALTER QUERY "dear.1" SET (class = 'apart');""" in lines
    assert '  ALTER QUERY "odd ""one""" SET (class = \'apart\');' in lines


def test_a_file_that_is_no_recording_is_refused_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(MillstreamError):
        adviser.advise(file)
