"""Runs a script's queries over stored data or DataFrames: what the driver does.

    answers = run(session, sql, {"s": "rows/*.parquet", "t": data_frame})
    answers["q1"].show()

Two passes: the first looks at event times (of Parquet files only at their footers), so that each block of rows knows its places and its
watermark; the second runs the query's pieces (`pieces.py`), with a shuffle between the first piece and the second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from millstream.engine.data.errors import UnknownName
from millstream.engine.data.nearest import near_or_listed
from millstream.engine.data.schema import StreamDefinition
from millstream.engine.data.watermarks import TIME_MIN
from millstream.feeder.errors import SourceError
from millstream.feeder.spark.blocks import Block, BlockFacts, blocks_of, facts_of
from millstream.feeder.spark.frames import blocks_of_frame, frame_of
from millstream.feeder.spark.order import STEPS_MAX, Steps, joined_steps, last_watermark
from millstream.feeder.spark.output import in_order, opened, packed, result_table, without_order, write_parts
from millstream.feeder.spark.pieces import (
    Begin,
    LateKey,
    LateNote,
    LateRows,
    Task,
    run_block,
    run_bucket,
    run_buckets,
    run_rest,
    run_together,
)
from millstream.feeder.spark.script import Script, maps_of, read_script
from millstream.protocol.values.mapping import hints
from millstream.server.results.outcome import NamedResult
from millstream.server.run.embedded import Replay, run_replay

BLOCKS_A_SLICE_MAX = 8
TOGETHER_MAX = 100  # queries of one job
SPREAD_LESS_MAX = 4  # times: then a bucket of a query holds as many times more at once


@dataclass(frozen=True, slots=True)
class Placement:
    """Where blocks stand: how each begins, W behind each stream's last row, step functions where they were asked for, all rows.

    `greatest_us` is the greatest event time of each stream.
    """

    begins: Mapping[tuple[str, int], Begin]
    last_us: Mapping[str, int]
    steps: Mapping[str, Steps]
    rows: int
    greatest_us: Mapping[str, int]


class SparkScript:
    """A script over inputs on a session. `inputs` maps streams to paths or DataFrames, in the order in which equal times arrive.

    `maps` and `time_formats` are what `--map` and `--time-format` say of `millstream run`. SourceError if they mean nothing.
    """

    def __init__(
        self,
        session: Any,
        text: str,
        inputs: Mapping[str, Any],
        partitions: int | None = None,
        maps: Sequence[str] = (),
        time_formats: Sequence[str] = (),
    ) -> None:
        self.session = session
        self.script: Script = read_script(text)
        self.inputs = inputs
        self.partitions = partitions or session.sparkContext.defaultParallelism
        self.messages: list[str] = list(self.script.notes)
        if self.script.whole is None:
            for name in inputs:
                if name not in self.script.streams:
                    raise UnknownName(f"there is no stream {name}", hint=near_or_listed(name, self.script.streams, "streams"))
            self._maps = maps_of(self.script, inputs, maps, time_formats)
        self._said = tuple(maps), tuple(time_formats)
        self._blocks: dict[str, Any] = {}
        self._told: set[str] = set()
        self._late = session.sparkContext.accumulator({}, LateCounts())
        self._placed: dict[tuple[tuple[str, ...], bool], Placement] = {}

    # -- answers ----------------------------------------------------------------------------------------------------------------

    def tables(self, leave_out: Collection[str] = ()) -> list[NamedResult]:
        """Return each answer as it stands on `millstream run`'s standard output, in the driver's memory, save those of some queries."""
        if self.script.whole is not None:
            return self._whole()
        found: dict[int, NamedResult] = {}
        for together in self._jobs([n for n, query in enumerate(self.script.queries) if query.name not in leave_out]):
            parts: dict[int, list[Any]] = {number: [] for number in together}
            for number, data in self._results(together).toLocalIterator():
                parts[number].append(result_table(data, self.script.queries[number].schema))
            for number, tables in parts.items():
                query = self.script.queries[number]
                table = without_order(in_order(tables)) if tables else None
                found[number] = NamedResult(query.name, query.schema, [] if table is None else table.combine_chunks().to_batches())
                self._tell_late(number)
        return [found[number] for number in sorted(found)]

    def _tell_late(self, number: int) -> None:
        """Say of a query that has run how many rows came late, as `millstream run` does."""
        found = [part for key, part in self._late.value.items() if key[0] == number]
        places = [part for part in found if not isinstance(part, int)]
        rows = sum(part for part in found if isinstance(part, int)) + (len(np.unique(np.concatenate(places))) if places else 0)
        if rows:
            self.messages.append(f"{self.script.queries[number].name}: {rows} late row{'' if rows == 1 else 's'}")

    def _whole(self) -> list[NamedResult]:
        """Run a script that acts as a whole in one task, as `millstream run` does."""
        paths = []
        for name, given in self.inputs.items():
            if not isinstance(given, str | Path) or not Path(given).is_file():
                raise SourceError(f"{self.script.whole}, so it runs in one place, over files", hint=f"give one file for {name}")
            paths.append((name, str(Path(given).resolve())))
        text, reason = self.script.text, self.script.whole
        maps, time_formats = self._said

        def replay(_: int) -> Any:
            outcome = run_replay(Replay(text, [(name, Path(path)) for name, path in paths], maps=maps, time_formats=time_formats))
            results = [(r.name, r.schema, r.plan, [packed(b) for b in r.batches]) for r in outcome.results]
            return results, outcome.messages, outcome.failure

        results, messages, failure = self.session.sparkContext.parallelize([0], 1).map(replay).collect()[0]
        self.messages += [f"the script ran in one place: {reason}", *messages]
        if failure is not None:
            raise SourceError(failure)
        return [NamedResult(name, schema, [b for d in data for b in opened(d).to_batches()], plan) for name, schema, plan, data in results]

    def write(self, folders: Mapping[int, str]) -> Iterator[tuple[int, int]]:
        """Write answers as Parquet files into folders, by the numbers of their queries; yield each number with its rows.

        Of a query all files are put in place or none. See `output.py`.
        """
        for together in self._jobs(list(folders)):
            schemas = {number: self.script.queries[number].schema for number in together}
            rows = write_parts(self._results(together), {number: Path(folders[number]) for number in together}, schemas)
            for number in together:
                self._tell_late(number)
                yield number, rows[number]

    def results(self, number: int) -> Any:
        """Return an RDD of Arrow bytes: the results of a query, with their order."""
        return self._results([number]).map(lambda item: item[1])

    def _jobs(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return which queries run in one job: those that merge and read the same streams; each other alone."""
        jobs: dict[object, list[int]] = {}
        for number in numbers:
            common = run_together(Task(self.script.text, number, 1, {}, {}))
            jobs.setdefault(number if common is None else common, []).append(number)
        return [job[at : at + TOGETHER_MAX] for job in jobs.values() for at in range(0, len(job), TOGETHER_MAX)]

    def _results(self, numbers: Sequence[int]) -> Any:
        """Return an RDD of (query, Arrow bytes): the results of the queries of one job, in each partition a query's together."""
        task, blocks, placement = self.prepared(numbers[0])
        late, plan = self._late, task.cut
        # Of many queries few buckets each are enough to give all slots something to do.
        spread = max(-(-self.partitions // len(numbers)), -(-self.partitions // SPREAD_LESS_MAX))
        tasks = [task] if len(numbers) == 1 else [replace(task, query=number, buckets=spread) for number in numbers]
        sent = stage_one(blocks, tasks, placement, late.add)
        name = self.script.queries[task.query].name
        self.messages += [f"{name} ran in one place: {plan.reason}"] if plan.reason and plan.rest is None else []
        if plan.second is None:
            return sent.map(lambda item: (item[0][1], item[1][1]))
        if len(tasks) > 1:
            keyed = sent.repartitionAndSortWithinPartitions(self.partitions, lambda key: key[0] + key[1] * spread)
            return keyed.mapPartitionsWithIndex(lambda bucket, items: run_buckets(tasks, bucket, items, late.add))
        keyed = sent.partitionBy(task.buckets, bucket_of)
        done = keyed.mapPartitionsWithIndex(lambda bucket, items: run_bucket(task, bucket, (item[1] for item in items), late.add))
        if plan.rest is not None:
            one = done.map(lambda data: ((0, 0), data)).partitionBy(1, bucket_of)
            done = one.mapPartitions(lambda items: run_rest(task, (d for _, d in items)))
        return done.map(lambda data: (task.query, data))

    def prepared(self, number: int) -> tuple[Task, Any, Placement]:
        """Look at the inputs of a query; return what its tasks are told, an RDD of its blocks and where they stand."""
        text = self.script.text
        plan = Task(text, number, 1, {}, {}).cut
        streams = [s for s in self.inputs if s in plan.streams]
        streams += [s for s in plan.streams if s not in streams]
        blocks = self._all_blocks([s for s in streams if s in self.inputs])
        asked = tuple(streams), len(streams) > 1 or plan.needs_moves
        placement = self._placed.get(asked)
        if placement is None:
            placement = self._placed[asked] = self._place(streams, blocks, asked[1])
        buckets = self.partitions if all(e.keys for e in plan.exchanges) else 1
        return Task(text, number, buckets, placement.steps, placement.last_us, placement.rows), blocks, placement

    # -- inputs -----------------------------------------------------------------------------------------------------------------

    def _all_blocks(self, streams: Sequence[str]) -> Any:
        context = self.session.sparkContext
        found = []
        plain: list[Block] = []
        for stream in streams:
            given = self.inputs[stream]
            if isinstance(given, str | Path):
                plain += blocks_of(stream, str(given), self.script.streams[stream], self._maps.get(stream))
            else:
                if stream not in self._blocks:
                    self._blocks[stream] = blocks_of_frame(given, self.script.streams[stream], self._maps.get(stream))
                found.append(self._blocks[stream])
        slices = max(1, min(len(plain), max(context.defaultParallelism, len(plain) // BLOCKS_A_SLICE_MAX)))
        if plain or not found:
            found.append(context.parallelize(plain, slices))
        return context.union(found) if len(found) > 1 else found[0]

    def _place(self, streams: Sequence[str], blocks: Any, with_steps: bool) -> Placement:
        definitions = {s: self.script.streams[s] for s in streams}
        facts: list[BlockFacts] = blocks.map(lambda block: facts_of(block, definitions[block.stream], with_steps)).collect()
        for stream in streams:
            note = refusal_note(stream, facts)
            if note is not None and stream not in self._told:
                self._told.add(stream)
                self.messages.append(note)
            if note is not None and not any(f.rows for f in facts if f.stream == stream):
                raise SourceError(note, hint="; ".join(hints([note], all_refused=True)))
        return placement_of(definitions, facts, {})


def refusal_note(stream: str, facts: Sequence[BlockFacts]) -> str | None:
    """Return how many rows of a stream were refused and why the first was, None if none was."""
    mine = sorted((f for f in facts if f.stream == stream), key=lambda f: f.number)
    refused, rows = sum(f.refusals.rows for f in mine), sum(f.rows for f in mine)
    if not refused:
        return None
    first = next(f.refusals.first for f in mine if f.refusals.rows)
    how_many = f"{refused} of {rows + refused} rows refused" if rows else f"none of {refused} rows was accepted"
    return f"{stream}: {how_many}: {first}{'; …' if refused > 1 else ''}"


def placement_of(definitions: Mapping[str, StreamDefinition], facts: Sequence[BlockFacts], greatest_us: Mapping[str, int]) -> Placement:
    """Return where the blocks of some streams stand, those of one in the order of their numbers.

    `greatest_us` are the greatest event times of earlier rows. SourceError for more steps than may be held.
    """
    begins: dict[tuple[str, int], Begin] = {}
    last: dict[str, int] = {}
    steps: dict[str, Steps] = {}
    reached: dict[str, int] = {}
    total = 0
    for stream, definition in definitions.items():
        start = greatest_us.get(stream, TIME_MIN)
        rows, greatest = 0, start
        mine = sorted((f for f in facts if f.stream == stream), key=lambda f: f.number)
        for fact in mine:
            begins[stream, fact.number] = Begin(rows, greatest)
            rows, greatest = rows + fact.rows, max(greatest, fact.greatest_us)
        delay_us = definition.time.delay_us
        last[stream], reached[stream] = last_watermark(greatest, delay_us), greatest
        total += rows
        known = [(*f.steps, f.rows) for f in mine if f.steps is not None]
        steps[stream] = joined_steps(known, delay_us, start)
    held = sum(len(s.values_us) for s in steps.values())
    if held > STEPS_MAX:
        raise SourceError(
            f"the inputs {', '.join(definitions)} have {held} different event times, more than the {STEPS_MAX} that may be held in memory",
            hint="run the query over a part of the files at a time",
        )
    return Placement(begins, last, steps, total, reached)


class LateCounts:
    """How Spark brings together what tasks count: late rows by part of the run. A part that is run again counts once."""

    def zero(self, value: dict[LateKey, LateRows]) -> dict[LateKey, LateRows]:
        """Return what a task begins with."""
        return {}

    def addInPlace(self, value1: dict[LateKey, LateRows], value2: dict[LateKey, LateRows]) -> dict[LateKey, LateRows]:  # noqa: N802 (Spark calls it)
        """Return both."""
        value1.update(value2)
        return value1


def stage_one(blocks: Any, tasks: Sequence[Task], placement: Placement, late: LateNote | None = None) -> Any:
    """Return what the first stage sends, of an RDD of blocks."""
    begins = placement.begins
    return blocks.flatMap(lambda block: run_block(tasks, block, begins[block.stream, block.number], late))


def bucket_of(key: tuple[int, int]) -> int:
    """Return the partition to send a query's rows of a bucket to."""
    return key[0]


def run(
    session: Any,
    sql: str,
    inputs: Mapping[str, Any],
    *,
    partitions: int | None = None,
    maps: Sequence[str] = (),
    time_formats: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the answer of each query of a script as a DataFrame, by the query's name (a SELECT without one is q1, q2 …).

    `inputs` maps streams to paths or DataFrames. `maps` (`["ts=time"]`) and `time_formats` (`["%d.%m.%Y %H:%M"]`) are as `--map` and
    `--time-format`. Nothing runs before a DataFrame is used, save the look at event times. Raises the engine's errors for the script and
    SourceError for the inputs.
    """
    script = SparkScript(session, sql, inputs, partitions, maps, time_formats)
    if script.script.whole is not None:
        return {
            r.name: frame_of(session, session.sparkContext.parallelize([packed(b) for b in r.batches], 1), r.schema)
            for r in script.tables()
        }
    return {query.name: frame_of(session, script.results(number), query.schema) for number, query in enumerate(script.script.queries)}
