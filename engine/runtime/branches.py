"""Late rows of a query that meets a stream's rows at several places, as the branches of a UNION ALL do (K4).

Each place sees only its own windows, while a row is late for the query when it reaches a window at none of them. So what the places
say is kept until all have passed the row: then it is late once, or partly late once when some place took it. A place that has no
windows takes every row that reaches it; a row that a condition drops before a place is taken by nobody there.

Between a call's end and what it tells here, the frontier of an edge has moved already; `watch_begun` and `watch_done` of the operator
tell whether a call is under way in that sense.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

import numpy as np
from millstream.engine.data.graph import OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.flow.cursors import Cursor
from millstream.engine.flow.frontier import edge_frontier
from millstream.engine.flow.running import RunningOperator
from millstream.engine.language.recipes import PartRecipe
from millstream.engine.operators.build import STATELESS_KINDS, kind_of
from millstream.engine.operators.contract import Emitter

Verdict = tuple[frozenset[str], Train]  # the streams that a late row may come from, and the row


@dataclass(slots=True, eq=False)
class BranchPlace:
    """One place: an operator's input, and an output where those of the operator have windows of their own. `reached`: seqs it took."""

    running: RunningOperator
    port: int
    output: int | None = None
    passed: int = 0
    reached: list[Int64Array] = field(default_factory=list)

    def behind(self) -> int:
        """Return the seq below which it has told everything."""
        running = self.running
        begun = running.watch_begun
        if begun != running.watch_done:
            return self.passed
        frontier = edge_frontier(running.inputs[self.port])
        if running.watch_begun == begun:
            self.passed = max(self.passed, frontier)
        return self.passed

    def late_rows(self, out: Emitter) -> list[Train]:
        """Return what a call called late here."""
        if self.output is None:
            return [rows for port, rows in out.late if port == self.port]
        return [rows for output, rows, _ in out.late_of_output if output == self.output and rows is not None]

    def partly_late(self, out: Emitter) -> list[Int64Array]:
        """Return the seqs of the rows that missed some of the windows here."""
        if self.output is None:
            return [seqs for port, seqs in out.partly_late if port == self.port]
        return [seqs for output, _, seqs in out.late_of_output if output == self.output]


class Branches:
    """The places of one query at which rows of its streams end as such. `observe` after each of their calls, then `settle`."""

    def __init__(self, places: Sequence[BranchPlace]) -> None:
        self.places = list(places)
        self._late: dict[int, Verdict] = {}
        self._partly: dict[int, frozenset[str]] = {}
        self._lock = threading.Lock()

    def judges(self, running: RunningOperator, port: int) -> bool:
        """Whether late rows at this input are judged here."""
        return any(p.running is running and p.port == port for p in self.places)

    def observe(self, running: RunningOperator, inputs: Sequence[Train], out: Emitter) -> None:
        """Note what a call took and what it called late."""
        with self._lock:
            for place in self.places:
                if place.running is running:
                    self._note(place, inputs[place.port], out)

    def _note(self, place: BranchPlace, train: Train, out: Emitter) -> None:
        streams = place.running.port_streams[place.port]
        seqs = train.seq.array()
        for rows in place.late_rows(out):
            late = rows.seq.array()
            seqs = seqs[~np.isin(seqs, late)]
            self._late.update((seq, (streams, rows.take(np.array([i])))) for i, seq in enumerate(late.tolist()))
        for partly in place.partly_late(out):
            self._partly.update((seq, streams) for seq in partly.tolist())
        if len(seqs):
            place.reached.append(seqs)

    def settle(self) -> tuple[list[Verdict], list[tuple[int, frozenset[str]]]]:
        """Return the late rows, and the seqs of partly late ones with their streams, that all places have passed."""
        with self._lock:
            bound = min(place.behind() for place in self.places)
            late = sorted(seq for seq in self._late if seq < bound)
            taken = self._taken(late)
            partly = {seq for seq in self._partly if seq < bound} | taken
            told = [(seq, self._partly[seq] if seq in self._partly else self._late[seq][0]) for seq in sorted(partly)]
            verdicts = [self._late[seq] for seq in late if seq not in taken]
            for seq in late:
                del self._late[seq]
            for seq in partly:
                self._partly.pop(seq, None)
            for place in self.places:
                place.reached = [seqs for seqs in place.reached if seqs[-1] >= bound]
            return verdicts, told

    def _taken(self, late: list[int]) -> set[int]:
        reached = [seqs for place in self.places for seqs in place.reached] if late else []
        if not reached:
            return set()
        asked = np.array(late, dtype=np.int64)
        return set(asked[np.isin(asked, np.concatenate(reached))].tolist())


def branches_of(operators: Iterable[RunningOperator], outputs: dict[OperatorId, list[int]]) -> Branches | None:
    """Return the places of a query that meets the rows of a stream at more than one and calls some late; None for any other.

    `outputs` are the query's own outputs of operators that serve several queries.
    """
    known = {running.id: running for running in operators}
    if all(len(running.inputs) <= 1 for running in known.values()):
        return None  # its rows take one way
    places: list[BranchPlace] = []
    for running in known.values():
        for port, cursor in enumerate(running.inputs):
            if _ends_here(running, cursor):
                places.extend(BranchPlace(running, port, output) for output in outputs.get(running.id) or (None,))
    met = Counter(stream for streams in _ways(places) for stream in streams)
    places = [p for p in places if any(met[stream] > 1 for stream in p.running.port_streams[p.port])]
    return Branches(places) if any(p.running.logic.calls_late for p in places) else None


def _ways(places: Iterable[BranchPlace]) -> Iterator[frozenset[str]]:
    """Yield the streams of each place. Those of the parts of a split operator count as one: no row reaches two of them."""
    split: set[tuple[int, int]] = set()
    for place in places:
        part = part_of(place.running.inputs[place.port])
        if part is None or (part.split, place.port) not in split:
            yield place.running.port_streams[place.port]
        if part is not None:
            split.add((part.split, place.port))


def part_of(cursor: Cursor) -> PartRecipe | None:
    """Return which part of a split operator's rows comes into an input, None where it is not of one."""
    producer = cursor.log.producer
    while isinstance(producer, RunningOperator) and len(producer.inputs) == 1:
        if isinstance(producer.recipe, PartRecipe):
            return producer.recipe
        producer = producer.inputs[0].log.producer
    return None


def _ends_here(running: RunningOperator, cursor: Cursor) -> bool:
    """Whether an input holds rows of streams, one by one, and the operator's output no longer does."""
    producer = cursor.log.producer
    external = any(cursor is one for _, one in running.external)
    raw = external or not isinstance(producer, RunningOperator) or _passes_rows(producer)
    return raw and not _passes_rows(running)


def _passes_rows(running: RunningOperator) -> bool:
    return running.raw and kind_of(running.recipe) in STATELESS_KINDS
