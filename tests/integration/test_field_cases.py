"""The golden cases answer over TCP what they answer in `millstream run`: statements, rows and results all by the client."""

from __future__ import annotations

import asyncio
import io
import json
import re
from typing import Any

import pytest
from millstream.client import cli
from millstream.client.connection import AsyncClient
from millstream.client.inputs import CsvInput, JsonLinesInput
from millstream.client.render import renderer_for
from millstream.engine.language.parse import parse_script
from millstream.engine.language.statements import CreateQuery, CreateStream, CreateTable, SelectStatement

from tests.golden.test_golden import CASES, Case, load
from tests.support.live_server import Harness, run

# A clock that is moved, queries that leave between two rows, answers between results: what only virtual time can place.
VIRTUAL = re.compile(r'"advance"|"cancel"|FETCH |STOP |CASCADE')
CASES_HERE = [
    case
    for case in map(load, sorted(path.stem for path in CASES.glob("*.sql")))
    if not VIRTUAL.search(case.script + (case.timeline.read_text("utf-8") if case.timeline else ""))
    and case.script.count("INSERT INTO") != 3  # streams fed by streams: rows get their numbers as they come
    and not case.name.startswith(("C31_dead", "bad_rows"))  # text that is no row does not leave the client
]


class Told:
    """What a script made of a server: queries in the order of the script, tables, and streams with their time column if they have one.

    Queries in `endless` read late rows or errors, which end with no stream.
    """

    def __init__(self) -> None:
        self.endless: set[str] = set()
        self.sides: set[str] = set()
        self.queries: list[str] = []
        self.tables: list[str] = []
        self.streams: dict[str, str | None] = {}


async def carry_out(client: AsyncClient, script: str) -> Told:
    told = Told()
    for statement, span in parse_script(script):
        if isinstance(statement, SelectStatement):
            told.queries.append(f"q{sum(re.fullmatch('q[0-9]+', q) is not None for q in told.queries) + 1}")
            await client.submit(span.text, name=told.queries[-1])
            if set(re.findall(r"FROM (\w+)", span.text)) & told.sides:
                told.endless.add(told.queries[-1])
            continue
        await client.execute(span.text)
        if isinstance(statement, CreateQuery):
            told.queries.append(statement.name)
        elif isinstance(statement, CreateTable):
            told.tables.append(statement.definition.name)
        elif isinstance(statement, CreateStream):
            definition = statement.definition
            told.streams[definition.name] = definition.time.column
            told.sides |= {name for name in (definition.late_into, definition.errors_into) if name}
    return told


async def read(client: AsyncClient, stream: str, data: bytes, form: str) -> list[dict[str, Any]]:
    columns = (await client.publisher(stream)).columns
    reader = CsvInput(columns) if form == ".csv" else JsonLinesInput(columns)
    return reader.feed(data, last=True).rows


async def send(client: AsyncClient, case: Case, told: Told) -> None:
    inputs = [(stream, await read(client, stream, path.read_bytes(), path.suffix)) for stream, path in case.inputs]
    for stream, rows in inputs:
        if stream in told.tables:
            await client.publish(stream, rows)
    streams = [(stream, rows) for stream, rows in inputs if stream not in told.tables]
    if len(streams) == 1:
        stream, rows = streams[0]
        for start in range(0, len(rows), 2):
            await client.publish(stream, rows[start : start + 2])
    else:
        for stream, row in merged(streams, told):
            await client.publish(stream, [row])
    for line in case.timeline.read_text("utf-8").splitlines() if case.timeline else ():
        event = json.loads(line)
        if "end" in event:
            await client.finish(event["end"])
        else:
            await client.publish(event["stream"], [event["row"]])


def merged(inputs: list[tuple[str, list[dict[str, Any]]]], told: Told) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of several inputs as `run` merges them, here one by one: of those that are next the one of least time."""
    rest, result = {stream: list(rows) for stream, rows in inputs}, []
    while any(rest.values()):
        stream = min((s for s, rows in rest.items() if rows), key=lambda s: rest[s][0][told.streams[s]])
        result.append((stream, rest[stream].pop(0)))
    return result


async def answers(client: AsyncClient, told: Told, expected: dict[str, str]) -> dict[str, str]:
    """Return what each query answered as JSON: all of it; of those without an end as much as is expected."""
    found = {}
    for name in told.queries:
        out = io.BytesIO()
        subscription = await client.subscribe(name, from_start=True)
        if name in told.endless and not expected[name]:
            found[name] = "" if await results_of(client, name) == 0 else "results where none are expected"
            continue
        renderer = renderer_for("json", subscription.schema, out)
        async for batch in subscription:
            renderer.batch(batch)
            if name in told.endless and out.getvalue().count(b"\n") >= expected[name].count("\n"):
                break
        found[name] = out.getvalue().decode()
    return found


async def results_of(client: AsyncClient, name: str) -> int:
    """Return how many results a query gave so far."""
    shown = (await client.execute("SHOW QUERIES")).rows
    return int(next(row["results"] for row in shown if row["name"] == name))


def in_order(texts: dict[str, str], told: Told, name: str) -> list[str]:
    """Return a query's rows. What several queries and the intake call late or bad meets in the order in which they get to it."""
    rows = texts[name].splitlines()
    return sorted(rows) if name in told.endless else rows


def expected_of(case: Case, queries: list[str]) -> dict[str, str]:
    text = (CASES / f"{case.name}.expected").read_text("utf-8")
    if len(queries) == 1:
        return {queries[0]: text}
    parts = re.split(r"^-- (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("case", [c for c in CASES_HERE if c.fails is None], ids=lambda case: case.name)
def test_a_golden_case_is_answered_over_tcp_as_in_a_run(case: Case) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        told = await carry_out(client, case.script)
        await send(client, case, told)
        for stream in told.streams:
            await client.finish(stream)
        expected = expected_of(case, told.queries)
        found = await answers(client, told, expected)
        assert [in_order(found, told, name) for name in told.queries] == [in_order(expected, told, name) for name in told.queries]

    run(test)


@pytest.mark.parametrize("case", [c for c in CASES_HERE if c.fails is not None and not c.inputs], ids=lambda case: case.name)
def test_a_golden_case_that_must_fail_is_refused_over_tcp_with_the_same_words(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    async def test(harness: Harness) -> None:
        code = await asyncio.to_thread(cli.run, ["sql", "-f", str(CASES / f"{case.name}.sql"), "--server", harness.address])
        assert code == 1
        assert str(case.fails) in capfd.readouterr().err
        client = await harness.client()
        before = case.script.rstrip("; \n").rpartition(";")[0]
        created = re.findall(r"CREATE QUERY (\w+)", before)
        left = (await client.execute("SHOW QUERIES")).rows
        assert [row["name"] for row in left] == created  # a statement that is refused leaves no query

    run(test)
