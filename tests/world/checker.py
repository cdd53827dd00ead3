"""Whether a world kept the contract (docs/operations.md, docs/semantics.md): what was acked is there at its level, results came once
and are the oracle's, order was kept, accounts balance, nobody starved, and nothing went wrong inside.

The oracle is the engine alone, undisturbed: one thread, no sharing, no crash, over the rows that the journal holds in its one order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema, column_to_arrow
from millstream.server.journal.records import CONTROL, DEFINITION, ROWS, Record, seed_of
from millstream.server.journal.segments import base_of, read_header, records_of

from tests.support.engine_run import SqlEngine
from tests.world.disk import SimDisk
from tests.world.load import Load, Reading
from tests.world.machines import DIRECTORY, World
from tests.world.plans import DURABLE, SET_UP, TEXTS

FSYNC_NS = 100_000_000


@dataclass
class Stored:
    """What is on disk at the end: numbers of streams, runs of queries, the journal's records."""

    numbers: dict[str, int]
    runs: dict[str, Any]
    queries: dict[str, Any]
    records: list[Record]


def stored(world: World) -> Stored:
    """Read the data directory of a server that has stopped, and what it let go of before. To be called in a strand."""
    from millstream.server.journal.store import Store

    process = world.hub.current.process  # type: ignore[union-attr]
    store = Store(Path(DIRECTORY), SimDisk(world.platter, process))
    try:
        numbers = {d.name: d.position for d in store.definitions()}
        runs = {key.removeprefix("query "): run for key, run in store.runs().items()}
        queries = {q.name: q for q in store.queries()}
    finally:
        store.close()
    records: list[Record] = []
    here = {name: bytes(inode.content) for name, inode in world.platter.names.items() if inode is not None}
    segments = {name: content for name, content in {**world.platter.gone, **here}.items() if base_of(Path(name).name) is not None}
    for _, content in sorted(segments.items()):
        records += records_of(content, seed_of(read_header(content).identity))
    return Stored(numbers, runs, queries, records)


class Oracle:
    """The engine alone over the journal's records; `results` are each query's rows, as the client would show them."""

    def __init__(self, found: Stored, texts: dict[str, str]) -> None:
        statements = [
            text
            for text in SET_UP
            if text.startswith(("CREATE STREAM a", "CREATE STREAM b", "CREATE STREAM m", "CREATE STREAM fed", "CREATE TABLE"))
        ]
        self.engine = engine = SqlEngine(*statements)
        by_number = {number: name for name, number in found.numbers.items()}
        waiting = sorted((found.runs[name].began_at, name) for name in texts)
        self.by_stream: dict[str, list[dict[str, Any]]] = {name: [] for name in DURABLE}
        self.fed_from: list[tuple[str, int]] = []
        self.schemas: dict[str, Any] = {}
        for record in found.records:
            name = by_number.get(record.stream)
            if record.kind == DEFINITION or name is None:
                continue
            while waiting and waiting[0][0] <= record.lo:
                self._begin(waiting.pop(0)[1], texts)
            engine.network.ingress.advance_to(record.lo)
            source = engine.network.sources[name]
            if record.kind == CONTROL:
                engine.network.ingress.control(source, arrival_ns=engine.clock_ns(), **record.meta)
            else:
                assert record.kind == ROWS
                columns = record.columns(source.definition.schema)
                batch = pa.RecordBatch.from_arrays([column_to_arrow(c) for c in columns], schema=arrow_schema(source.definition.schema))
                self.by_stream[name] += [{**row, "at": record.lo + place} for place, row in enumerate(batch.to_pylist())]
                engine.network.ingest(name, columns, arrival_ns=engine.clock_ns(), now_us=record.now_us)
            engine.work()
        for _, name in waiting:
            self._begin(name, texts)
        self.results = {name: self._shown(name) for name in texts}

    def _begin(self, name: str, texts: dict[str, str]) -> None:
        self.schemas[name] = self.engine.select(texts[name], name)

    def _shown(self, name: str) -> list[tuple[Any, ...]]:
        if self.engine.hooks.failures:
            raise self.engine.hooks.failures[0]
        rows: list[tuple[Any, ...]] = []
        for train in self.engine.results[name]:
            if train.rows:
                arrays = [column_to_arrow(c) for c in train.columns()]
                rows += zip(*(array.to_pylist() for array in arrays), strict=True)
        return rows


def check(world: World, load: Load, found: Stored) -> list[str]:
    """Return what is wrong."""
    problems = [*load.problems, *world.hub.faults]
    if world.platter.lost_by_lie:  # what a disk lost that said it had it, nobody can give back
        return problems
    texts = {
        name: TEXTS[text][1] or TEXTS[text][0]
        for name, text in load.created.items()
        if name in found.queries and name in found.runs and found.queries[name].desired == "running"
    }
    try:
        oracle = Oracle(found, texts)
    except Exception as error:
        return [*problems, f"the journal cannot be replayed: {type(error).__name__}: {error}"]
    problems += _rows(load, oracle)
    problems += _queries(load, found)
    problems += _results(load, oracle)
    problems += _fed(oracle)
    problems += _table(load, oracle)
    problems += _accounts(load, oracle)
    return problems


def _rows(load: Load, oracle: Oracle) -> list[str]:
    """What was acked is there at its level; nothing is there twice, nor what was never sent; each publisher's rows are in its order."""
    problems = []
    for stream in ("a", "b", "t"):
        held = [
            (row["name"].split("-")[0], int(row["name"].split("-")[1])) if stream == "t" else (row["src"], row["n"])
            for row in oracle.by_stream[stream]
        ]
        twice = [one for one, count in Counter(held).items() if count > 1]
        if twice:
            problems.append(f"{stream}: {twice[:5]} are in the journal twice")
        there = set(held)
        sent: set[tuple[str, int]] = set()
        for one in load.sent:
            if one.stream != stream:
                continue
            ours = [(one.source, number) for number in one.numbers]
            sent.update(ours)
            missing = [row for row in ours if row not in there]
            if one.state == "acked" and missing and not _may_be_lost(load, one.at_ns, stream):
                problems.append(f"{stream}: acked rows {missing[:5]} are not in the journal")
            if one.state == "refused" and not load.crashes and len(missing) < len(ours):
                problems.append(f"{stream}: refused rows {[row for row in ours if row in there][:5]} are in the journal")
        strange = there - sent
        if strange:
            problems.append(f"{stream}: nobody sent {sorted(strange)[:5]}")
        last: dict[str, int] = {}
        for source, number in held:
            if number < last.get(source, -1):
                problems.append(f"{stream}: {source} {number} stands behind {last[source]}")
                break
            last[source] = number
    return problems


def _sent_as(row: dict[str, Any]) -> tuple[str, int]:
    """Return who sent a row, and its number."""
    if "name" in row:
        source, _, number = row["name"].partition("-")
        return source, int(number)
    return row["src"], row["n"]


def _may_be_lost(load: Load, at_ns: int, stream: str) -> bool:
    """Level journal: a failure of the machine may take what came in the last `journal_fsync_s`, longer where the disk was slow or bad."""
    if stream == "a":
        return False
    grace_ns = FSYNC_NS + (5_000_000_000 if load.disk_was_bad_or_slow else 100_000_000)
    return any(0 <= power - at_ns <= grace_ns for power in load.powers)


def _queries(load: Load, found: Stored) -> list[str]:
    """What was created is there, what was dropped is not."""
    problems = [
        f"query {name} was created and is not there"
        for name in load.created
        if name not in found.queries and not ({name} & (load.dropped | load.uncertain))
    ]
    problems += [f"query {name} was dropped and is there" for name in load.dropped - load.uncertain if name in found.queries]
    return problems


def _results(load: Load, oracle: Oracle) -> list[str]:
    """Each reader has the oracle's rows, each once and in order."""
    problems = []
    for reading in load.readings.values():
        problems += [
            f"reader {reading.name} of {reading.query}: {why}" for why in reading.began_anew if not _may_begin_anew(load, reading, why)
        ]
        expected = oracle.results.get(reading.query)
        if expected is None or reading.gaps or reading.token is None:
            continue
        text = TEXTS[load.created[reading.query]][0]
        if reading.rows == expected:
            continue
        problems.append(_difference(reading.name, reading.query, text, reading.rows, expected))
    return problems


def _may_begin_anew(load: Load, reading: Reading, why: str) -> bool:
    """A run ends with its query's stop or drop; a token is refused only when a failure of the machine lost rows behind it."""
    if why == "failed":
        return False
    return reading.query in load.restarted | load.dropped | load.uncertain or ("resume token" in why and bool(load.powers))


def _difference(name: str, query: str, text: str, rows: list[Any], expected: list[Any]) -> str:
    at = next((i for i, (x, y) in enumerate(zip(rows, expected, strict=False)) if x != y), min(len(rows), len(expected)))
    got, wanted = rows[at : at + 3], expected[at : at + 3]
    return (
        f"reader {name} of {query} ({text}): {len(rows)} rows instead of {len(expected)}; from row {at} on it has {got} instead of {wanted}"
    )


def _fed(oracle: Oracle) -> list[str]:
    """What `INSERT INTO fed SELECT … FROM a` fed is there exactly once, in order."""
    expected = [(row["src"], row["n"], row["v"] + 100) for row in oracle.by_stream["a"] if row["v"] > 6]
    held = [(row["src"], row["n"], row["v"]) for row in oracle.by_stream["fed"]]
    if held != expected:
        return [_difference("-", "fed", "INSERT INTO fed", held, expected)]
    return []


def _table(load: Load, oracle: Oracle) -> list[str]:
    """The table is what its rows make of it, in the journal's order."""
    expected: dict[int, str] = {}
    for row in oracle.by_stream["t"]:
        expected.pop(row["k"], None)
        if row["op"] != "-":
            expected[row["k"]] = row["name"]
    held = {row["k"]: row["name"] for row in load.table}
    return [] if held == expected and len(load.table) == len(held) else [f"table t holds {load.table} instead of {expected}"]


def _accounts(load: Load, oracle: Oracle) -> list[str]:
    """No temporary query is left over; what was late, as far as it was counted in one go, is what the oracle found late."""
    problems = [f"query {name} is left over: {row['text']}" for name, row in load.shown.items() if not row["durable"]]
    for name in oracle.results:
        row, text = load.shown.get(name), TEXTS[load.created[name]][0]
        if row is None or row["state"] != "running" or load.checkpoints or name in load.restarted or "FROM d" in text:
            continue
        accounts = oracle.engine.account(name).values()
        for what in ("accepted", "late", "failed"):
            expected = sum(getattr(account, what) for account in accounts)
            if row[what] != expected:
                problems.append(f"query {name} ({text}): {row[what]} rows {what} instead of {expected}")
    return problems
