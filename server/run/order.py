"""The order of what `millstream run` replays: rows of several inputs by event time, and the ends of streams.

Inputs are merged each in its own order, without looking at rows one by one. The rule: of the rows that are next in each input, the one
with the least event time comes first; at equal times the input that was named first. A row that goes back in time comes as soon as the row
before it has. So the key of a row is the greatest event time of its input so far, and a stable sort of all keys, inputs in their order,
gives the merged order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import concat_columns
from millstream.server.host.engine_host import EngineHost
from millstream.server.host.inputs import InputBlock
from millstream.server.host.queries import Query

Int64Array = npt.NDArray[np.int64]


def merged_order(times: Sequence[Int64Array]) -> Int64Array:
    """Return for each place of the merged order which input its row comes from. `times[i]` are the event times of input i."""
    keys = np.concatenate([np.maximum.accumulate(t) if len(t) else t for t in times])
    sources = np.repeat(np.arange(len(times), dtype=np.int64), [len(t) for t in times])
    merged: Int64Array = sources[np.argsort(keys, kind="stable")]
    return merged


def joined(blocks: Sequence[InputBlock], times: Sequence[Int64Array]) -> InputBlock:
    """Return the rows of all inputs of one stream in their merged order, numbered in it."""
    some = [(block, np.maximum.accumulate(t)) for block, t in zip(blocks, times, strict=True) if block.rows]
    if len(blocks) == 1 or not some:
        return blocks[0]
    order = np.argsort(np.concatenate([keys for _, keys in some]), kind="stable")
    columns = [concat_columns(list(same)).take(order) for same in zip(*[block.columns for block, _ in some], strict=True)]
    return InputBlock(columns, len(order), np.arange(1, len(order) + 1, dtype=np.int64))


class FedStreams:
    """`feeders` maps each fed stream to the streams whose rows cause its rows."""

    def __init__(self, host: EngineHost) -> None:
        self.host = host
        self.feeders: dict[str, dict[str, None]] = {}
        for query in host.queries:
            if query.target in host.intakes:
                self._add(str(query.target), host.base_streams(query.reads))
        for name, intake in host.intakes.items():
            for side in (intake.definition.late_into, intake.definition.errors_into):
                if side in host.intakes:
                    self._add(str(side), (name,))

    def _add(self, stream: str, feeders: Iterable[str]) -> None:
        self.feeders.setdefault(stream, {}).update(dict.fromkeys(feeders))

    def ending_order(self) -> list[str]:
        """Return all streams in the order in which they can end: those that rows come to, then fed ones, each after its feeders."""
        order = [name for name in self.host.intakes if name not in self.feeders]

        def visit(name: str, path: tuple[str, ...]) -> None:
            for feeder in self.feeders.get(name, ()):
                if feeder not in order and feeder not in path:  # a ring is cut where it is entered
                    visit(feeder, (*path, name))
            if name not in order:
                order.append(name)

        for name in self.host.intakes:
            visit(name, ())
        return order

    def read_ones(self) -> set[str]:
        """Return the fed streams that some query reads."""
        return {base for query in self._readers() for base in self.host.base_streams(query.reads)} & self.feeders.keys()

    def are_tangled(self) -> bool:
        """Whether the order in which fed rows meet others shows: a query reads a fed stream beside another, or one feeds another.

        Then rows must be replayed one at a time, or the answer would depend on how they were cut into trains.
        """
        read = self.read_ones()
        if any(feeder in self.feeders for stream in read for feeder in self.feeders[stream]):
            return True
        return any(len(bases) > 1 and read & set(bases) for bases in (self.host.base_streams(q.reads) for q in self._readers()))

    def _readers(self) -> list[Query]:
        return [*self.host.queries, *self.host.derived.values()]
