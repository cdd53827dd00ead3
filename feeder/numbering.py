"""Gives each row its number in its stream and the instant it arrives. Runs inside Spark's tasks, on Arrow batches; pure.

Rows are read in blocks: a stretch of one file. The order of a stream is that of its files (as given, then by name), blocks and rows,
whatever the number of partitions; a first pass counts the rows of each stream in each block, so a task knows where its blocks begin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from millstream.feeder.arrivals import ArrivalRule, Int64Array

TIME_MIN_US = -(2**63)
STRIPE_ROWS = 10_000  # rows of a stream that follow each other and go to one publisher, where there are several; the next go to the next

# The columns beside the data. The first five come in, the last three go out.
SOURCE, FILE, BLOCK, TIME_US, STREAM, INDEX, ARRIVAL = "_source", "_file", "_block", "_time_us", "_stream", "_index", "_arrival"


class BlockKey(NamedTuple):
    """The rows of one stream in one block: position of the path argument, file, start of the block in bytes, stream."""

    source: int
    file: str
    block: int
    stream: int


@dataclass(frozen=True, slots=True)
class BlockCount:
    """What the first pass learned of one block: rows, and the greatest and least recorded time (None: no times asked for)."""

    key: BlockKey
    rows: int
    latest_us: int | None = None
    earliest_us: int | None = None


@dataclass(frozen=True, slots=True)
class BlockStart:
    """Where a block begins in its stream: number of its first row, and the rule's base there."""

    first: int
    base: int


@dataclass(frozen=True, slots=True)
class Numbering:
    """All that a task must know: the rule, where each block begins, the earliest time, rows of each stream to leave out (resume)."""

    rule: ArrivalRule
    starts: Mapping[BlockKey, BlockStart]
    origin_us: int
    skip: Mapping[int, int]
    by_time: bool

    def apply(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Number the Arrow batches of one partition, in the order they were read."""
        import pyarrow as pa

        state: dict[BlockKey, BlockStart] = {}
        for batch in batches:
            index = np.empty(batch.num_rows, dtype=np.int64)
            arrival = np.empty(batch.num_rows, dtype=np.int64)
            for key, positions in _blocks(batch):
                start = state.get(key) or self.starts[key]
                times = batch.column(TIME_US).to_numpy(zero_copy_only=False)[positions] if self.by_time else None
                index[positions] = np.arange(start.first, start.first + len(positions))
                arrival[positions], base = self._arrivals(key.stream, start, len(positions), times)
                state[key] = BlockStart(start.first + len(positions), base)
            keep = batch.drop_columns([SOURCE, FILE, BLOCK, TIME_US])
            keep = keep.append_column(INDEX, pa.array(index)).append_column(ARRIVAL, pa.array(arrival))
            yield self._without_skipped(keep, index)

    def _arrivals(self, stream: int, start: BlockStart, rows: int, times_us: Int64Array | None) -> tuple[Int64Array, int]:
        if times_us is not None:
            return self.rule.recorded(times_us, self.origin_us, start.base)
        return self.rule.at(stream, start.first, rows, start.base)

    def _without_skipped(self, batch: Any, index: Int64Array) -> Any:
        if not self.skip:
            return batch
        import pyarrow as pa

        streams = batch.column(STREAM).to_numpy()
        keep = np.ones(batch.num_rows, dtype=bool)
        for stream, rows in self.skip.items():
            keep &= (streams != stream) | (index >= rows)
        return batch.filter(pa.array(keep))


def plan_numbering(rule: ArrivalRule, counts: Sequence[BlockCount], skip: Mapping[int, int], *, by_time: bool) -> Numbering:
    """Lay the blocks of each stream end to end and compute what each must know of those before it."""
    starts: dict[BlockKey, BlockStart] = {}
    streams: dict[int, list[BlockCount]] = {}
    for count in sorted(counts, key=lambda count: count.key):
        streams.setdefault(count.key.stream, []).append(count)
    for stream, blocks in streams.items():
        firsts = np.concatenate(([0], np.cumsum([block.rows for block in blocks])))[:-1].tolist()
        bases = _latest_before(blocks) if by_time else rule.bases(stream, firsts)
        for block, first, base in zip(blocks, firsts, bases, strict=True):
            starts[block.key] = BlockStart(first, base)
    origin_us = min((count.earliest_us for count in counts if count.earliest_us is not None), default=0)
    return Numbering(rule, starts, origin_us, {stream: rows for stream, rows in skip.items() if rows}, by_time)


def _latest_before(blocks: Sequence[BlockCount]) -> list[int]:
    latest, found = TIME_MIN_US, []
    for block in blocks:
        found.append(latest)
        latest = max(latest, TIME_MIN_US if block.latest_us is None else block.latest_us)
    return found


def _blocks(batch: Any) -> Iterator[tuple[BlockKey, Int64Array]]:
    """Yield the positions of each block's rows in a batch. Blocks follow one another; the streams of one block are mixed."""
    rows = batch.num_rows
    if rows == 0:
        return
    sources = batch.column(SOURCE).to_numpy()
    files = batch.column(FILE).dictionary_encode()
    file_codes = files.indices.to_numpy()
    offsets = batch.column(BLOCK).to_numpy()
    streams = batch.column(STREAM).to_numpy()
    changes = (np.diff(sources) != 0) | (np.diff(file_codes) != 0) | (np.diff(offsets) != 0)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), rows]
    for begin, end in itertools.pairwise(cuts):
        file = files.dictionary[int(file_codes[begin])].as_py()
        part = streams[begin:end]
        for stream in np.unique(part).tolist():
            yield BlockKey(int(sources[begin]), file, int(offsets[begin]), stream), np.flatnonzero(part == stream) + begin
