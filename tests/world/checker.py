"""Whether a world kept the contract (docs/operations.md, docs/semantics.md): what was acked is there at its level, results came once
and are the oracle's, order was kept, accounts balance, nobody starved, and nothing went wrong inside.

The oracle is the engine alone, undisturbed: one thread, no sharing, no crash, over the rows that the journal holds in its one order.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from millstream.client.receipts import Receipt
from millstream.engine.data.arrow import arrow_schema, column_to_arrow
from millstream.server.journal.records import CONTROL, DEFINITION, ROWS, Record, seed_of
from millstream.server.journal.segments import base_of, read_header, records_of

from tests.support.engine_run import SqlEngine
from tests.world.disk import SimDisk
from tests.world.load import LOST, Load, Reading
from tests.world.machines import DIRECTORY, World
from tests.world.plans import DURABLE, SET_UP, SHED, TEXTS

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
    problems = [*load.problems, *world.hub.faults, *world.watch.problems]
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
    problems += _in_memory(world, load)
    problems += _shed(world, load, oracle)
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
        if expected is None or not reading.has_begun:
            continue
        text = TEXTS[load.created[reading.query]][0]
        # A reader is told how many results it has lost, so what comes behind a gap is compared like all else.
        if len(reading.rows) == len(expected) and all(row in (LOST, other) for row, other in zip(reading.rows, expected, strict=True)):
            continue
        problems.append(_difference(reading.name, reading.query, text, reading.rows, expected))
    return problems


def _may_begin_anew(load: Load, reading: Reading, why: str) -> bool:
    """A run ends with its query's stop or drop; a token is refused only when a failure of the machine lost rows behind it."""
    if why == "failed":
        return False
    if reading.query in load.shed or reading.query == "mem":  # nothing of theirs outlives the server
        return load.world.lives > 1
    return reading.query in load.restarted | load.dropped | load.uncertain or ("resume token" in why and bool(load.powers))


def _difference(name: str, query: str, text: str, rows: list[Any], expected: list[Any]) -> str:
    at = next((i for i, (x, y) in enumerate(zip(rows, expected, strict=False)) if x not in (LOST, y)), min(len(rows), len(expected)))
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
    """No temporary query is left over; nothing waits, and what came is accounted for; what was late, as far as it was counted in one go, is
    what the oracle found late.
    """
    problems = [f"query {name} is left over: {row['text']}" for name, row in load.shown.items() if not row["durable"]]
    for name, row in load.shown.items():
        if row["accepted"] is None or row["state"] != "running":
            continue
        ends = {what: row[what] for what in ("processed", "late", "shed", "failed", "queued")}
        if row["accepted"] != sum(ends.values()):
            problems.append(f"query {name}: {row['accepted']} rows came in, and {ends}")
        if row["shed"] and name not in load.shed:
            problems.append(f"query {name}, which is never to be shed, lost {row['shed']} rows")
    for name in oracle.results:
        shown, text = load.shown.get(name), TEXTS[load.created[name]][0]
        if shown is None or shown["state"] != "running" or load.checkpoints or name in load.restarted or "FROM d" in text:
            continue
        accounts = oracle.engine.account(name).values()
        for what in ("accepted", "late", "failed"):
            expected = sum(getattr(account, what) for account in accounts)
            if shown[what] != expected:
                problems.append(f"query {name} ({text}): {shown[what]} rows {what} instead of {expected}")
    return problems


def _in_memory(world: World, load: Load) -> list[str]:
    """Of a stream in memory there is what was acked in the server's present life, each row once, in each publisher's order."""
    reading = load.readings["mem"]
    rows = [row for row in reading.rows if row != LOST]
    sent = {(one.source, row["n"]): (row["k"], row["v"]) for one in load.sent if one.stream == "m" for row in one.rows}
    problems = [f"reader of mem: nobody sent {row}" for row in rows if sent.get((row[2], row[3])) != (row[0], row[1])][:3]
    last: dict[str, int] = {}
    for row in rows:
        if row[3] <= last.get(row[2], -1):
            problems.append(f"reader of mem: {row[2]} {row[3]} came behind {last[row[2]]}")
            break
        last[row[2]] = row[3]
    there = {(row[2], row[3]) for row in rows}
    acked = [
        (one.source, n) for one in load.sent if one.stream == "m" and one.state == "acked" and one.life == world.lives for n in one.numbers
    ]
    missing = [one for one in acked if one not in there]
    if len(missing) > len(reading.rows) - len(rows):
        problems.append(f"reader of mem: acked rows {missing[:5]} did not come")
    return problems


def _shed(world: World, load: Load, oracle: Oracle) -> list[str]:
    """What a query that may be shed gives is a part of what came, in order; each window's receipt says how many of how many rows it saw."""
    problems = []
    came = [(row["k"], row["v"], row["src"], row["n"]) for row in oracle.by_stream["a"]]
    for reading in load.readings.values():
        if reading.query not in load.shed:
            continue
        text = load.shed[reading.query]
        if text == SHED[1]:
            problems += _receipts(reading, oracle, world.watch.starts.get(reading.query, set()))
            continue
        rest = iter(came)
        strange = next((row for row in reading.rows if row != LOST and row not in rest), None)
        if strange is not None:
            problems.append(f"reader {reading.name} of {text}: {strange} came twice, out of order, or from nowhere")
        if any(row[1] <= 4 for row in reading.rows if row != LOST and "v > 4" in text):
            problems.append(f"reader {reading.name} of {text}: a row that it does not ask for")
        shown = load.shown.get(reading.query)
        # Since the run began nothing else was counted: what it took in is what its reader has.
        is_whole = world.lives == 1 and not reading.began_anew
        if text == SHED[0] and is_whole and shown is not None and shown["processed"] != len(reading.rows):
            problems.append(f"reader {reading.name} of {text}: {len(reading.rows)} rows of {shown['processed']} that were processed")
    return problems


def _receipts(reading: Reading, oracle: Oracle, starts: set[int]) -> list[str]:
    """Each window saw, or lost, all rows of the stream that came for it before it closed since a run began."""
    arrivals: dict[Any, list[int]] = {}
    watermark = None
    for row in oracle.by_stream["a"]:
        end = _window_end(row["ts"])
        if watermark is None or watermark < end:
            arrivals.setdefault(end, []).append(row["at"])
        reached = row["ts"] - dt.timedelta(seconds=1)
        watermark = reached if watermark is None else max(watermark, reached)
    problems = []
    for rows, receipt in reading.batches:
        told = (receipt or Receipt(len(rows), 1.0)).rows().to_pylist()
        for (end, count), said in zip(rows, told, strict=True):
            seen = count if said["rows_seen"] is None else said["rows_seen"]
            whole = {sum(at >= start for at in arrivals.get(end, ())) for start in starts}
            if seen != count or seen + said["rows_shed"] not in whole:
                problems.append(f"reader {reading.name}: the window up to {end} counts {count} and says {said}; {sorted(whole)} came")
    return problems[:5]


def _window_end(ts: dt.datetime) -> dt.datetime:
    seconds = int(ts.timestamp())
    return dt.datetime.fromtimestamp(seconds - seconds % 4 + 4, dt.UTC)
