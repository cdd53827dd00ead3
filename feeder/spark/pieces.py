"""What runs inside a task: the engine's operators over one block, then over one bucket of keys, then over what is left for one place.

What is shuffled are Arrow bytes: the columns of an exchange, then each row's place, event time and, where W matters behind the shuffle,
W of each exchange before the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.schema import Field, Schema, StreamDefinition
from millstream.engine.data.train import Int64Array, Numbers, Train
from millstream.engine.data.types import BIGINT
from millstream.engine.data.watermarks import TIME_MAX
from millstream.engine.expressions.ir import ColumnRef
from millstream.engine.language.recipes import ProjectRecipe
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.feeder.spark.blocks import Block, read_block
from millstream.feeder.spark.buckets import buckets_of
from millstream.feeder.spark.cuts import MERGEABLE, ORDER, PLACE, REST, Cut, Exchange
from millstream.feeder.spark.cutting import cut
from millstream.feeder.spark.nodes import columns_read, schema_of, sources_of
from millstream.feeder.spark.order import Steps, least_moves, moves_of, place_rows
from millstream.feeder.spark.output import ORDER_NAMES, arrow_bytes, engine_columns, in_order, opened
from millstream.feeder.spark.script import Node, read_script
from millstream.server.embedded.piece import Moves, PieceEngine, PlacedRows

CHUNK_ROWS = 65_536
CUTS_KEPT_MAX = 1_024
Sent = tuple[tuple[int, int], tuple[int, bytes]]
"""((bucket, query), (number of the exchange, Arrow bytes))."""


@dataclass(frozen=True, slots=True)
class Task:
    """What every task of a query is told: the script and the query's place in it, how many buckets, and how inputs stand together.

    `steps` has the step functions of the inputs where the query reads several, by stream. `last_us` is W behind each stream's last row,
    `places` how many rows there are in all, of which `offset` came in earlier batches where rows come in batches (`in_batches`).
    """

    text: str
    query: int
    buckets: int
    steps: Mapping[str, Steps]
    last_us: Mapping[str, int]
    places: int = 0
    offset: int = 0
    in_batches: bool = False

    @property
    def cut(self) -> Cut:
        """The query's cut, made once in each Python worker."""
        return _cut(self.text, self.query, self.in_batches)

    @property
    def streams(self) -> Mapping[str, StreamDefinition]:
        """The script's streams."""
        return read_script(self.text).streams

    @property
    def inputs(self) -> tuple[str, ...]:
        """The streams that rows come to, in the order of the inputs."""
        return tuple(s for s in self.last_us if s in self.cut.streams)


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a block begins: the number of rows before it in its input, and the greatest event time of those."""

    first: int
    before_us: int


@lru_cache(maxsize=CUTS_KEPT_MAX)
def _cut(text: str, query: int, in_batches: bool) -> Cut:
    return cut(read_script(text).queries[query].root, in_batches)


# -- before the shuffle -------------------------------------------------------------------------------------------------------


LateKey = tuple[object, ...]
LateRows = int | Int64Array
"""How many rows were late, or their places where another part of the run may meet them again."""
LateNote = Callable[[dict[LateKey, LateRows]], None]
"""Is told of late rows by a key of the part of the run that met them, since a part may be run again."""
LATE_PLACES_MAX = 100_000


def run_block(tasks: Sequence[Task], block: Block, begin: Begin, late: LateNote | None = None) -> Iterator[Sent]:
    """Run the first stage over one block and yield what is to be shuffled; without a second stage the rows, with their order.

    Several tasks are of queries that merge, over the same streams (`run_together`): they read the rows once and share their windows.
    """
    task = tasks[0]
    definition = task.streams[block.stream]
    exchanges = [e for t in tasks for e in t.cut.exchanges if block.stream in e.streams]
    wanted = set[int]().union(*(columns_read(e.root).get(block.stream, set()) for e in exchanges))
    rows = read_block(block, definition, wanted)
    if not len(rows.times_us):
        return
    placed = place_rows(block.stream, rows.times_us, begin.first, begin.before_us, definition.time.delay_us, task.inputs, task.steps)
    at_all = placed.places + task.offset
    for number, first in enumerate(task.cut.exchanges):
        if block.stream not in first.streams:
            continue
        together = [t.cut.exchanges[number] for t in tasks]
        engine = _first_engine(task, together)
        made = _first_stage(engine, task, together, block.stream, rows.columns, rows.times_us, at_all, placed.watermarks_us)
        for piece, trains in _gathered(made):
            yield from _sent(tasks[piece], number, trains, at_all, placed.watermarks_us)
        for piece, each in enumerate(tasks):
            if late is not None and engine.late_seqs[piece]:
                late({(each.query, block.stream, block.number, number): _late_rows(each.cut, engine, piece, at_all)})


def run_together(task: Task) -> tuple[str, ...] | None:
    """Return what a query must have in common with others to run in one job with them, None if it runs alone."""
    plan = task.cut
    return plan.exchanges[0].streams if plan.label == MERGEABLE and plan.rest is None else None


def _gathered(made: Iterable[tuple[int, Train]]) -> Iterator[tuple[int, list[Train]]]:
    """Yield the trains of each piece by so many that something is worth sending."""
    pending: dict[int, list[Train]] = {}
    rows: dict[int, int] = {}
    for piece, train in made:
        pending.setdefault(piece, []).append(train)
        rows[piece] = rows.get(piece, 0) + train.rows
        if rows[piece] >= CHUNK_ROWS:
            yield piece, pending.pop(piece)
            del rows[piece]
    yield from pending.items()


def _sent(task: Task, number: int, trains: list[Train], places: Int64Array, watermarks_us: Mapping[str, Int64Array]) -> Iterator[Sent]:
    """Yield results of the first stage by bucket. `places` and `watermarks_us` are those of the block's rows."""
    plan, schema = task.cut, trains[0].schema
    at = np.concatenate([train.seq.array() for train in trains]) - 1
    columns = [concat_columns([train.column(i) for train in trains]) for i in range(len(schema))]
    if plan.second is None:
        yield (0, task.query), (number, arrow_bytes(schema, columns, {ORDER_NAMES[0]: places[at]}))
        return
    extra = {}
    if plan.label != MERGEABLE:
        extra = {PLACE: places[at], _TIME: np.concatenate([train.time.array() for train in trains])}
        for other, each in enumerate(plan.exchanges):
            extra[f"_w{other}"] = _least([watermarks_us[s] for s in each.streams])[at]
    for bucket, index in buckets_of([columns[k] for k in plan.exchanges[number].keys], len(at), task.buckets):
        kept = columns if index is None else [c.take(index) for c in columns]
        kept_extra = extra if index is None else {name: values[index] for name, values in extra.items()}
        yield (bucket, task.query), (number, arrow_bytes(schema, kept, kept_extra))


_TIME = "_time"


def _least(tracks: Sequence[Int64Array]) -> Int64Array:
    least: Int64Array = np.minimum.reduce(list(tracks))
    return least


def _late_rows(plan: Cut, engine: PieceEngine, piece: int = 0, places: Int64Array | None = None) -> LateRows:
    """Return the places where a stream is in several exchanges (a self-join), unless they are very many; else the number.

    `places` are those of the rows that are numbered from 1.
    """
    streams = [stream for exchange in plan.exchanges for stream in exchange.streams]
    seqs = np.concatenate(engine.late_seqs[piece])
    if len(set(streams)) == len(streams) or len(seqs) > LATE_PLACES_MAX:
        return engine.late_count(piece)
    return np.unique(seqs if places is None else places[seqs - 1])


def _first_engine(task: Task, exchanges: Sequence[Exchange]) -> PieceEngine:
    first = exchanges[0]
    return PieceEngine([_node(e.root) for e in exchanges], [_source(task, name, first.needs_place) for name in first.streams])


def _first_stage(
    engine: PieceEngine,
    task: Task,
    exchanges: Sequence[Exchange],
    stream: str,
    columns: Sequence[Column],
    times_us: Int64Array,
    places: Int64Array,
    watermarks_us: Mapping[str, Int64Array],
) -> Iterator[tuple[int, Train]]:
    """Yield the results of each exchange over a block's rows; their arrival numbers count the rows from 1."""
    rows, exchange = len(times_us), exchanges[0]
    given = [*columns, Column(BIGINT, places)] if exchange.needs_place else list(columns)
    others = [name for name in exchange.streams if name != stream]
    ahead = int(watermarks_us[stream][0])
    seqs = np.arange(1, rows + 1, dtype=np.int64)
    if not others:
        engine.move(stream, ahead)  # which takes the arrival number 0
    else:
        engine.give({}, {name: Moves(seqs[:1] - 1, watermarks_us[name][:1]) for name in (stream, *others)}, 1)
    delay_us = task.streams[stream].time.delay_us
    for start in range(0, rows, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, rows)
        part = [c.slice(start, stop) for c in given]
        if not others:
            engine.take(stream, part)
        else:
            after = np.maximum.accumulate(np.maximum(times_us[start:stop] - delay_us, watermarks_us[stream][start:stop]))
            moves = {stream: Moves(seqs[start:stop], after)}
            # W of another input before a row is told with the row before it, that before the first with the number 0.
            for name in others:
                ahead_of = watermarks_us[name][start + 1 : stop + 1]
                moves[name] = Moves(seqs[start : start + len(ahead_of)], ahead_of)
            engine.give({stream: PlacedRows(part, seqs[start:stop], times_us[start:stop])}, moves, stop + 1)
        for piece in range(len(exchanges)):
            yield from ((piece, train) for train in engine.results(piece))
    engine.end()
    for piece in range(len(exchanges)):
        yield from ((piece, _at_most(train, rows)) for train in engine.results(piece))


def _at_most(train: Train, rows: int) -> Train:
    """Rows that the end of a block gives stand at its last row: where they are merged, their place is told by their columns."""
    changed = train.__copy__()
    changed.seq = Numbers(train.rows, array=np.minimum(train.seq.array(), rows))
    return changed


def _passing_all(source: SourceNode) -> PhysicalNode:
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(source.schema.fields))
    return PhysicalNode(ProjectRecipe(source.schema, columns), (InputRef(source),))


def _source(task: Task, name: str, with_place: bool) -> StreamDefinition:
    definition = task.streams[name]
    if not with_place:
        return definition
    return replace(definition, schema=Schema((*definition.schema.fields, Field(PLACE, BIGINT))))


# -- behind it ----------------------------------------------------------------------------------------------------------------


def run_bucket(task: Task, bucket: int, sent: Iterable[tuple[int, bytes]], late: LateNote | None = None) -> Iterator[bytes]:
    """Run the second stage over a bucket's rows and yield its results with their order, as Arrow bytes."""
    plan = task.cut
    assert plan.second is not None
    tables = read_sent(sent)
    engine = second_engine(plan)
    if plan.label == MERGEABLE:
        for table in tables.values():
            engine.take(plan.exchanges[0].name, engine_columns(table, schema_of(plan.exchanges[0].root)))
        engine.end()
    else:
        feed_bucket(engine, task, tables)
        end_bucket(engine, task)
    if late is not None and engine.late_seqs[0]:
        late({(task.query, bucket): _late_rows(plan, engine)})
    yield from ordered(plan, engine.results())


def run_buckets(
    tasks: Sequence[Task], bucket: int, sent: Iterable[tuple[tuple[int, int], tuple[int, bytes]]], late: LateNote
) -> Iterator[tuple[int, bytes]]:
    """Run the second stage of several queries over a bucket, whose rows come by query; yield each one's results with its number."""
    by_number = {task.query: task for task in tasks}
    for (_, query), items in groupby(sent, itemgetter(0)):
        for data in run_bucket(by_number[query], bucket, (item for _, item in items), late):
            yield query, data


def read_sent(sent: Iterable[tuple[int, bytes]]) -> dict[int, pa.Table]:
    """Return what was sent to a bucket, one table an exchange."""
    by_exchange: dict[int, list[pa.Table]] = {}
    for number, data in sent:
        by_exchange.setdefault(number, []).append(opened(data))
    return {number: pa.concat_tables(tables) for number, tables in by_exchange.items()}


def end_bucket(engine: PieceEngine, task: Task) -> None:
    """End the exchanges as `millstream run` ends their streams: one after the other in the order in which the script creates them."""
    left = {e.name: set(e.streams) for e in task.cut.exchanges}
    for stream in task.streams:
        over = [name for name, streams in left.items() if streams == {stream}]
        for streams in left.values():
            streams.discard(stream)
        if over:
            engine.end(over)


def second_engine(plan: Cut) -> PieceEngine:
    """Return an engine for the second stage."""
    assert plan.second is not None
    schemas = sources_of(plan.second)
    return PieceEngine([_node(plan.second)], [StreamDefinition(e.name, schemas[e.name]) for e in plan.exchanges])


def _node(root: Node) -> PhysicalNode:
    return _passing_all(root) if isinstance(root, SourceNode) else root


def feed_bucket(engine: PieceEngine, task: Task, tables: Mapping[int, pa.Table]) -> None:
    """Let a bucket's rows in, all exchanges' in one order, with W before each row and behind the last of all."""
    plan = task.cut
    tables = {n: t.take(np.argsort(t.column(PLACE).to_numpy(), kind="stable")) for n, t in tables.items() if t.num_rows}
    places = {n: t.column(PLACE).to_numpy() for n, t in tables.items()}
    joined = np.concatenate([*places.values(), np.empty(0, dtype=np.int64)])
    order = np.argsort(joined, kind="stable")
    every = joined[order]
    if plan.needs_moves:
        moves = exact_moves(task)
    else:
        moves = {}
        for number, exchange in enumerate(plan.exchanges):
            told = np.concatenate([*(t.column(f"_w{number}").to_numpy() for t in tables.values()), np.empty(0, dtype=np.int64)])[order]
            last = min(task.last_us[s] for s in exchange.streams)
            moves[exchange.name] = Moves(np.append(every - 1, task.places), np.append(told, last))
    times = {n: t.column(_TIME).to_numpy() for n, t in tables.items()}
    columns = {n: engine_columns(t, schema_of(plan.exchanges[n].root)) for n, t in tables.items()}
    assert plan.second is not None
    wanted = sources_of(plan.second)
    for n, at in places.items():
        if len(wanted[plan.exchanges[n].name]) > len(columns[n]):
            columns[n].append(Column(BIGINT, at))
    start = 0
    while start < len(every):
        stop = min(start + CHUNK_ROWS, len(every))
        stop = int(np.searchsorted(every, every[stop - 1], side="right"))  # rows of one place stay together
        upto = int(every[stop - 1]) + 1
        rows = {}
        for number, at in places.items():
            first, end = np.searchsorted(at, every[start], "left"), np.searchsorted(at, every[stop - 1], "right")
            part = [c.slice(int(first), int(end)) for c in columns[number]]
            rows[plan.exchanges[number].name] = PlacedRows(part, at[first:end], times[number][first:end])
        engine.give(rows, _moves_below(moves, engine.next_seq, upto), upto)
        start = stop
    upto = max(engine.next_seq, task.places + 1)
    engine.give({}, _moves_below(moves, engine.next_seq, upto), upto)


def _moves_below(moves: Mapping[str, Moves], lo: int, hi: int) -> dict[str, Moves]:
    """Return the moves in [lo, hi); one at a number that has been let in already would have come with it."""
    found = {}
    for name, all_moves in moves.items():
        start, stop = np.searchsorted(all_moves.seqs, (lo, hi))
        found[name] = Moves(all_moves.seqs[start:stop], all_moves.values_us[start:stop])
    return found


def exact_moves(task: Task) -> dict[str, Moves]:
    """Return all moves of W of each exchange, where an answer depends on which row of all made them."""
    alone = {s: moves_of(s, task.inputs, task.steps) for s in task.inputs}
    found = {}
    for exchange in task.cut.exchanges:
        places, values = least_moves([alone[s] for s in exchange.streams], [task.steps[s] for s in exchange.streams])
        found[exchange.name] = Moves(places + task.offset, values)
    return found


def ordered(plan: Cut, trains: Sequence[Train]) -> Iterator[bytes]:
    """Yield results of the second stage with three integers that order them; without ORDER's columns as they came."""
    for train in trains:
        width = len(train.schema)
        seqs = train.seq.array()
        if tuple(f.name for f in train.schema.fields[-len(ORDER) :]) != tuple(f.name for f in ORDER):
            yield arrow_bytes(
                train.schema,
                train.columns(),
                {
                    ORDER_NAMES[0]: seqs,
                    ORDER_NAMES[1]: np.zeros(len(seqs), dtype=np.int64),
                    ORDER_NAMES[2]: np.zeros(len(seqs), dtype=np.int64),
                },
            )
            continue
        shown = width - len(ORDER)
        end, begin, first = (_integers(train.column(shown + i)) for i in range(3))
        keys = (end, begin, first) if plan.by_window else (seqs, end, begin)
        extra = dict(zip(ORDER_NAMES, keys, strict=True))
        yield arrow_bytes(Schema(train.schema.fields[:shown]), [train.column(i) for i in range(shown)], extra)


def _integers(column: Column) -> Int64Array:
    values: Int64Array = column.values
    return values if column.valid is None else np.where(column.valid, values, TIME_MAX)


def run_rest(task: Task, sent: Iterable[bytes]) -> Iterator[bytes]:
    """Run what is left for one place over the rows of closed windows, in order; those that end together come together."""
    plan = task.cut
    assert plan.rest is not None
    tables = [opened(data) for data in sent]
    engine = PieceEngine([_node(plan.rest)], [_rest_source(plan)])
    if tables:
        table = in_order(tables)
        ends = table.column(ORDER_NAMES[0]).to_numpy()
        closings, seqs = np.unique(ends, return_inverse=True)
        columns = engine_columns(table, _rest_source(plan).schema)
        seqs = seqs.astype(np.int64)
        moves = Moves(np.arange(len(closings), dtype=np.int64), closings)
        engine.give({REST: PlacedRows(columns, seqs, ends - 1)}, {REST: moves}, len(closings))
    engine.end()
    yield from ordered(plan, engine.results())


def _rest_source(plan: Cut) -> StreamDefinition:
    assert plan.rest is not None
    return StreamDefinition(REST, sources_of(plan.rest)[REST])
