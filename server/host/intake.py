"""Where rows of one stream enter: checked row by row (K8), then into the network, then told to the runtime.

A row that does not fit is refused alone and counted: dropped, passed to the error output (ON ERROR INTO), or it takes the whole publish
with it (ON ERROR FAIL).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import column_to_arrow
from millstream.engine.data.column import Column
from millstream.engine.data.errors import EngineError, StreamEnded, UnknownName
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Field, OnError, Schema, StreamDefinition, TableDefinition
from millstream.engine.data.train import Int64Array
from millstream.engine.data.types import TEXT
from millstream.engine.ingest.checks import Coerced, Reasons, Rejection, finish
from millstream.engine.ingest.coerce import coercer_for
from millstream.engine.ingest.quick import PlainColumns
from millstream.protocol.limits import REJECTIONS_LISTED_MAX
from millstream.protocol.values import arrow_functions as pc
from millstream.server.errors import BadInput, StorageError
from millstream.server.host.side_streams import error_columns
from millstream.server.results.outcome import spell

if TYPE_CHECKING:
    from millstream.engine.flow.sources import Ingested
    from millstream.engine.runtime.network import Network
    from millstream.server.host.contract import Durability
    from millstream.server.host.producers import Produced, Producers
    from millstream.server.host.runtime import Runtime

NS_PER_S = 1_000_000_000
RATE_NOTES_MAX = 11
"""Moments at which totals are remembered: with one each half second, the last five seconds."""
PUSHES_REMEMBERED_MAX = 10_000
UNFED_ROWS_MAX = 100_000
"""Rows of the server's own that wait for a disk that refuses them; publishers of the streams they come from wait meanwhile."""
Fed = tuple[str, int] | None
"""By which query rows were made, and from which row, where that matters after a restart."""


@dataclass(slots=True)
class PublishOutcome:
    """What became of a publish: rows accepted and refused, (index, reason) of those refused, the last accepted row's arrival number.

    `shed` are rows that were accepted but dropped before the queries of a class, by the class's name; where rows wait for the disk it is
    empty and filled when they enter, before they are said to be safe. `place` is up to where the disk must have the journal for that.
    """

    accepted: int
    rejections: Sequence[tuple[int, str]] = ()
    rejected: int = 0
    position: int | None = None
    shed: Mapping[str, int] | None = None
    place: int | None = None


class Intakes(Protocol):
    """What the way into a stream needs of the host: where rows go, and who else is concerned."""

    network: Network
    runtime: Runtime
    intakes: dict[str, StreamIntake]
    journaling: Durability | None

    def shed_by_class(self, stream: str, ingested: Ingested) -> dict[str, int]:
        """Return how many rows of a chunk were dropped before each class."""
        ...

    unfed: dict[str, StreamIntake]

    def rows_lost(self, stream: str, rows: int) -> None:
        """Tell that rows of the server's own could not be kept until the disk takes them."""
        ...

    def lag_of(self, query: str, stream: str) -> int:
        """Return how many rows of a stream a query has yet to take."""
        ...

    def is_pressed(self, stream: str) -> bool:
        """Whether publishers of a stream should wait for those who read results."""
        ...


class StreamIntake:
    """The way into one stream or table. `accepted_total` and `refused_total` count rows since it was made; `channels` are its publishers.

    `definition` says how rows enter; `offered` what rows may look like: those of a table may carry `op`, where '-' deletes.
    """

    def __init__(self, host: Intakes, definition: StreamDefinition, table: TableDefinition | None = None) -> None:
        self.host = host
        self.definition = definition
        self.name = definition.name
        self.table = table
        self.offered: StreamDefinition | TableDefinition = definition
        if table is not None:
            self.offered = replace(table, schema=Schema((*table.schema.fields, Field("op", TEXT))))
        self._offer()
        self.channels: list[object] = []
        self.accepted_total = 0
        self.refused_total = 0
        self._unfed: deque[tuple[Sequence[Column], Fed]] = deque()  # rows of the server's own that the disk refused; under the ingress lock
        self._unfed_rows = 0
        self._is_feeding = False
        self.fed: Fed = None  # while a query feeds rows: which query, and from which row; under the ingress lock
        self._producers: Producers | None = None
        self.produced: Produced | None = None  # while a named publisher's rows are let in: which send they are; under the ingress lock
        self.is_gone = False  # it was dropped
        self.is_ending = False  # its end was asked for; set under the ingress lock
        self._places = RowPlaces() if definition.errors_into is not None else None
        self._batches = 0  # times that rows came in
        self._totals: deque[tuple[int, int, int]] = deque(maxlen=RATE_NOTES_MAX)  # (time, rows accepted, batches) at the last moments noted

    def _offer(self) -> None:
        self._coercer = coercer_for(self.offered, False)
        self.spelled_schema = spell(self.offered.schema)

    def widen(self, definition: StreamDefinition) -> None:
        """Take rows of a stream that was given more columns. Publishers that do not know them go on as they do."""
        self.definition = self.offered = definition
        self._offer()

    def note_rate(self, now_ns: int) -> None:
        """Note how many rows have come up to a moment later than the last noted."""
        self._totals.append((now_ns, self.accepted_total, self._batches))

    def rate_per_s(self) -> float | None:
        """Return the rows a second lately; None before two moments were noted. From any thread."""
        noted = tuple(self._totals)
        if len(noted) < 2:
            return None
        (first_ns, before, _), (last_ns, after, _) = noted[0], noted[-1]
        return max(0.0, (after - before) * NS_PER_S / max(1, last_ns - first_ns))

    def rows_a_batch(self) -> float:
        """Return how many rows came in at a time lately, 1 where nothing was noted. From any thread."""
        noted = tuple(self._totals)
        rows, batches = (noted[-1][1] - noted[0][1], noted[-1][2] - noted[0][2]) if noted else (0, 0)
        return max(1.0, rows / batches) if batches else 1.0

    @property
    def durability(self) -> str:
        """What an ack means."""
        return self.definition.durability

    def take_batch(self, batch: Any, produced: Produced | None = None) -> PublishOutcome:
        """Take an Arrow record batch whose columns are matched by name; one that no row of could fit is refused whole.

        `produced`, here and below: which send of a named publisher it is.
        """
        try:
            return self._take(self._coercer.arrow(batch), produced)
        except EngineError as error:
            return self._refused_whole(batch.num_rows, str(error))

    def plain(self, schema: Any) -> PlainColumns | None:
        """Return the short way for batches of an Arrow schema, for which `take_good` is meant; None where there is none."""
        return None if self.table is not None else self._coercer.plain(schema)

    def take_good(self, columns: Sequence[Column], rows: int, produced: Produced | None = None) -> PublishOutcome:
        """Take columns that have been checked."""
        try:
            return self._let_in(columns, None, produced)
        except EngineError as error:
            return self._refused_whole(rows, str(error))

    def take_rows(self, rows: Sequence[Any], produced: Produced | None = None, *, bare_instants: bool = True) -> PublishOutcome:
        """Take rows, each a list in the order of the stream's columns or a map by column name.

        `bare_instants`: an integer is an instant in microseconds, as the protocol says; in what people write it needs a unit (K12).
        """
        try:
            offered = rows if self.table is None else self._with_op(rows)
            return self._take(self._coercer.rows(offered, bare_instants=bare_instants), produced)
        except EngineError as error:
            return self._refused_whole(len(rows), str(error))

    def _with_op(self, rows: Sequence[Any]) -> list[Any]:
        """Let list rows of a table leave `op` out."""
        width = len(self.offered.schema)
        return [[*row, None] if isinstance(row, list | tuple) and len(row) == width - 1 else row for row in rows]

    def _refused_whole(self, rows: int, reason: str) -> PublishOutcome:
        self.refused_total += rows
        return PublishOutcome(0, [(i, reason) for i in range(min(rows, REJECTIONS_LISTED_MAX))], rows)

    def take_columns(self, columns: Sequence[Column], places: Int64Array | None = None) -> int:
        """Let in columns that are known to be good; returns the arrival number of the last row.

        `places` are the rows' numbers among all rows offered to the stream, where they are not simply the next ones.
        """
        position = self._let_in(columns, places).position
        assert position is not None
        return position

    def insert(self, columns: Sequence[Column]) -> int:
        """As `take_columns`, and return once the rows are what the stream's durability promises. Not on the loop's thread."""
        taken = self._let_in(columns, None)
        if taken.place is not None and self.host.journaling is not None:
            self.host.journaling.wait_safe(taken.place)
        assert taken.position is not None
        return taken.position

    @property
    def producers(self) -> Producers:
        """The named publishers of the stream."""
        if self._producers is None:
            from millstream.server.host.producers import Producers  # loaded by the first that has a name

            self._producers = Producers()
        return self._producers

    @property
    def has_producers(self) -> bool:
        """Whether any publisher gave a name."""
        return self._producers is not None

    def note_produced(self, produced: Produced) -> None:
        """Count a send of a named publisher as taken, whatever became of its rows."""
        with self.host.network.ingress.lock:
            self.producers.note(produced, self.host.runtime.now_us())

    def _let_in(self, columns: Sequence[Column], places: Int64Array | None, produced: Produced | None = None) -> PublishOutcome:
        """Let rows in; what of them is shed is not known yet while they wait for the disk. StorageError when that refuses them."""
        host = self.host
        if self.is_gone:  # and perhaps made anew with other columns
            raise UnknownName(f"there is no stream {self.name}")
        if self.is_sync:
            return self._take_sync(columns, places, produced)
        with host.network.ingress.lock:
            now_us = host.runtime.now_us()
            self.produced = produced
            try:
                ingested = host.network.ingest(self.name, columns, arrival_ns=host.runtime.arrival_ns(), now_us=now_us)
            finally:
                self.produced = None
            if produced is not None:
                self.producers.note(produced, now_us)
            if self._places is None:
                self.accepted_total += ingested.hi - ingested.lo
                self._batches += 1
            else:
                self.note_accepted(np.arange(ingested.lo, ingested.hi, dtype=np.int64), places)
        host.runtime.arrived(ingested)
        return PublishOutcome(ingested.hi - ingested.lo, position=ingested.hi - 1, shed=self.host.shed_by_class(self.name, ingested))

    @property
    def sheds(self) -> bool:
        """Whether rows are dropped before some classes when the load is too high."""
        source = self.host.network.sources.get(self.name)
        return source is not None and bool(source.shed_logs)

    @property
    def is_sync(self) -> bool:
        """Whether rows enter, and are acked, only once the disk has them."""
        return self.definition.durability == "sync" and self.host.journaling is not None

    def _take_sync(self, columns: Sequence[Column], places: Int64Array | None, produced: Produced | None) -> PublishOutcome:
        assert self.host.journaling is not None
        shed: dict[str, int] = {}
        with self.host.network.ingress.lock:
            if self.is_ending:
                raise StreamEnded(self.name)
            taken_back: list[Callable[[], None]] = []
            lost = partial(self._lost, columns, self._is_feeding, self.fed, taken_back)
            self.produced = produced
            try:
                lo, hi, place = self.host.journaling.take_sync(self.name, columns, shed, lost)
            finally:
                self.produced = None
            if produced is not None:
                taken_back.append(self.producers.note(produced, self.host.runtime.now_us(), place))
            self.note_accepted(np.arange(lo, hi, dtype=np.int64), places)
        return PublishOutcome(hi - lo, position=hi - 1, shed=shed, place=place)

    def _lost(
        self, columns: Sequence[Column], was_fed: bool, fed: Fed, taken_back: Sequence[Callable[[], None]], error: StorageError
    ) -> None:
        """Take back that rows were accepted, as the disk did not keep them; the server's own wait. Under the ingress lock."""
        for take_back in taken_back:
            take_back()
        self.accepted_total -= len(columns[0])
        if was_fed:
            self._hold(columns, fed, first=True)
        else:
            self.refused_total += len(columns[0])

    def note_accepted(self, seqs: Int64Array, places: Int64Array | None) -> None:
        """Count rows that were let in, and remember their places if an error output will want them."""
        if self._places is not None:
            offered = self.accepted_total + self.refused_total
            self._places.note(seqs, places if places is not None else np.arange(offered + 1, offered + 1 + len(seqs), dtype=np.int64))
        self.accepted_total += len(seqs)
        self._batches += 1

    def places_of(self, seqs: Int64Array) -> list[int | None]:
        """Return the numbers of rows, by arrival number, among all rows offered to the stream."""
        return [None] * len(seqs) if self._places is None else self._places.of(seqs)

    def feed(self, columns: Sequence[Column], fed: Fed = None) -> None:
        """Let in rows that the server itself made, nothing once the stream has ended. `fed`: by which query, from which row.

        What the disk refuses waits, in order, until it does not: nobody could send it again.
        """
        with self.host.network.ingress.lock:
            if self.is_ending or self.host.network.sources[self.name].ended:
                return
            if self._unfed or not self._feed_now(columns, fed):
                self._hold(columns, fed)

    def feed_held(self) -> bool:
        """Let in what waits, as far as the disk takes it; returns whether nothing waits any more."""
        with self.host.network.ingress.lock:
            while self._unfed:
                columns, fed = self._unfed[0]
                if not self.is_gone and not self.host.network.sources[self.name].ended and not self._feed_now(columns, fed):
                    return False
                self._unfed.popleft()
                self._unfed_rows -= len(columns[0])
        return True

    def _feed_now(self, columns: Sequence[Column], fed: Fed) -> bool:
        self.fed, self._is_feeding = fed, True
        try:
            self._let_in(columns, None)
        except StorageError:
            return False
        finally:
            self.fed, self._is_feeding = None, False
        return True

    def _hold(self, columns: Sequence[Column], fed: Fed, *, first: bool = False) -> None:
        """Keep rows that the disk refuses for later; beyond the bound they are lost, and that is told."""
        rows = len(columns[0])
        if self._unfed_rows + rows > UNFED_ROWS_MAX:
            self.host.rows_lost(self.name, rows)
            return
        (self._unfed.appendleft if first else self._unfed.append)((columns, fed))
        self._unfed_rows += rows
        self.host.unfed[self.name] = self

    def checked(self, columns: Sequence[Column], reasons: Reasons) -> Coerced:
        """Return which rows of an INSERT the stream can take; `reasons` has those that are known to be bad."""
        return finish(columns, reasons.rows, self.table or self.definition, reasons, lambda i: _shown(columns, i))

    def _take(self, coerced: Coerced, produced: Produced | None = None) -> PublishOutcome:
        if self.table is not None and coerced.rows:
            refuse_unknown_op(coerced)
        if not coerced.rejected and coerced.rows:
            return self._let_in(coerced.columns, None, produced)
        rejections = [(r.index, r.reason) for r in coerced.rejected]
        entered = PublishOutcome(0)
        offered = self.accepted_total + self.refused_total
        places = None
        if coerced.rejected:
            if self.definition.on_error is OnError.FAIL:
                self.note_refused(coerced.rejected, offered)
                return self._refuse_all(coerced)
            places = None if coerced.index is None else coerced.index + (offered + 1)
        if coerced.rows:
            entered = self._let_in(coerced.columns, places, produced)
        if coerced.rejected:
            self.note_refused(coerced.rejected, offered)
        return PublishOutcome(coerced.rows, rejections, len(rejections), entered.position, entered.shed, entered.place)

    def note_refused(self, rejected: Sequence[Rejection], offered: int) -> None:
        """Count refused rows and pass them to the error output; `offered` rows were offered before the block they are of."""
        self.refused_total += len(rejected)
        target = self.host.intakes.get(self.definition.errors_into or "")
        if target is not None:
            positions = [offered + r.index + 1 for r in rejected]
            target.feed(error_columns(None, positions, [r.reason for r in rejected], [_text(r.raw) for r in rejected]))

    def _refuse_all(self, coerced: Coerced) -> PublishOutcome:
        first = coerced.rejected[0]
        total = coerced.rows + len(coerced.rejected)
        self.refused_total += coerced.rows
        bad = {r.index: r.reason for r in coerced.rejected}
        others = f"row {first.index} was bad and the stream says ON ERROR FAIL"
        return PublishOutcome(0, [(i, bad.get(i, others)) for i in range(min(total, REJECTIONS_LISTED_MAX))], total)

    def check_failed(self, taken: PublishOutcome, places: Sequence[str]) -> None:
        """Raise BadInput when ON ERROR FAIL refused everything, naming the place of the first bad row."""
        if self.definition.on_error is OnError.FAIL and taken.rejected:
            index, reason = next((i, r) for i, r in taken.rejections if "ON ERROR FAIL" not in r)
            raise BadInput(f"{self.name}: {places[index]}: {reason}", hint="the stream says ON ERROR FAIL, so nothing was taken")

    def is_pressed(self) -> bool:
        """Whether what was let in is not worked off fast enough, so that publishers should wait."""
        source = self.host.network.sources.get(self.name)
        if source is None:
            return False
        if self.definition.durability != "none" and self.host.journaling is not None and self.host.journaling.is_behind:
            return True
        return (
            any(log.is_full for log in source.whole_logs)
            or self.name in self.host.network.memory.pressed
            or self.host.is_pressed(self.name)
        )

    def pressed_by(self) -> str:
        """Say what its publishers wait for."""
        source = self.host.network.sources.get(self.name)
        if source is not None and self.name in self.host.network.memory.pressed:
            return "queries hold nearly as much memory as they may (SHOW QUERIES tells what each holds)"
        if self.definition.durability != "none" and self.host.journaling is not None and self.host.journaling.is_behind:
            return "the disk has yet to take what was written to the journal"
        if source is None or not any(log.is_full for log in source.whole_logs):
            return "results wait for those who read them"
        behind = [q for q in self.host.network.readers(self.name) if self.host.lag_of(q, self.name)]
        queries = f"quer{'y' if len(behind) == 1 else 'ies'} {', '.join(behind)}" if behind else "its queries"
        return f"{max(log.rows_held for log in source.whole_logs)} rows have yet to be worked off by {queries}"


def refuse_unknown_op(coerced: Coerced) -> None:
    """Refuse changes of a table whose `op` is neither '+' nor '-' (nor NULL, which is '+')."""
    op = coerced.columns[-1].values
    known = pc.or_kleene(op.is_null(), pc.is_in(op, pa.array(["+", "-"])))
    if pc.all(known).as_py():
        return
    bad = np.flatnonzero(~np.asarray(known.to_numpy(zero_copy_only=False)))
    places = coerced.index if coerced.index is not None else np.arange(coerced.rows, dtype=np.int64)
    refused = [
        Rejection(int(places[i]), f"op is {op[i].as_py()!r}, not '+' or '-'", partial(_shown, coerced.columns, i)) for i in bad.tolist()
    ]
    keep = np.delete(np.arange(coerced.rows, dtype=np.int64), bad)
    coerced.columns = [c.take(keep) for c in coerced.columns]
    coerced.rows = len(keep)
    coerced.index = places[keep]
    coerced.rejected = sorted((*coerced.rejected, *refused), key=lambda r: r.index)


def _shown(columns: Sequence[Column], index: int) -> str:
    return ",".join("" if v is None else str(v) for v in (column_to_arrow(c.slice(index, index + 1))[0].as_py() for c in columns))


def _text(raw: str | bytes) -> str:
    """Return a refused row as text; bytes that are none are shown as escapes, so that nothing of them is lost."""
    return raw if isinstance(raw, str) else raw.decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class _Push:
    seqs: Int64Array
    places: Int64Array


class RowPlaces:
    """The last pushes of one stream."""

    def __init__(self) -> None:
        self._pushes: deque[_Push] = deque(maxlen=PUSHES_REMEMBERED_MAX)

    def note(self, seqs: Int64Array, places: Int64Array) -> None:
        """Remember that the rows offered at `places` got the arrival numbers `seqs`; both rise."""
        self._pushes.append(_Push(seqs, places))

    def of(self, seqs: Int64Array) -> list[int | None]:
        """Return the place of each arrival number (rising), None for one that is no longer remembered."""
        found: dict[int, int] = {}
        wanted = np.asarray(seqs)
        for push in reversed(self._pushes):
            if not len(wanted) or wanted[-1] < push.seqs[0]:
                continue
            at = np.searchsorted(push.seqs, wanted)
            inside = (at < len(push.seqs)) & (push.seqs[np.minimum(at, len(push.seqs) - 1)] == wanted)
            found.update(zip(wanted[inside].tolist(), push.places[at[inside]].tolist(), strict=True))
            wanted = wanted[~inside]
            if not len(wanted):
                break
        return [found.get(seq) for seq in seqs.tolist()]
