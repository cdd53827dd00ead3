"""The journal as the host sees it: which streams it keeps, how their rows get in, what of them is held, how long it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.engine.data.errors import StreamEnded, UnknownName
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema, StreamDefinition
from millstream.server.durability import checkpoints
from millstream.server.errors import StorageError
from millstream.server.host.contract import HeldBlock, HeldPast, HeldRows
from millstream.server.journal.checkpoint_files import checkpoint_path, forget_before, forget_others
from millstream.server.journal.disk import Disk
from millstream.server.journal.journal import Journal, Waits
from millstream.server.journal.known import NEW_FOLDER, OLD_FOLDER
from millstream.server.journal.records import CONTROL, DEFINITION, ROWS, Record, definition_record, rows_data
from millstream.server.journal.segments import records_of
from millstream.server.journal.store import FORMAT_VERSION

if TYPE_CHECKING:
    from millstream.engine.data.column import Column
    from millstream.engine.flow.sources import Reservation, Source
    from millstream.engine.plan.demands import Demand
    from millstream.server.archive.archiver import Archives, Step
    from millstream.server.archive.history import TimeBounds
    from millstream.server.durability.catching_up import CatchingUp
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.host.queries import Query

Said = Mapping[str, Any]  # the arguments of a control item
US_PER_S = 1_000_000
SEGMENTS = 8  # into which the bound is divided: what is let go of at a time
TRIES = 8  # to find a moment at which no row waits for the disk
SEGMENT_BYTES_MIN = 64 * 1024


@dataclass(frozen=True, slots=True)
class JournalBounds:
    """How much the journal keeps, of all streams together, how long, and how soon it is forced to disk."""

    bytes_max: int = 1 << 30
    kept_s: float = 86_400.0
    fsync_s: float = 0.1
    archive_file_bytes: int = 32 * 2**20
    archive_wait_s: float = 60.0


class Journaling:
    """The journal of a host. `numbers` has the durable streams and tables by name, with their numbers in the catalogue."""

    def __init__(self, host: EngineHost, directory: Path, bounds: JournalBounds, disk: Disk) -> None:
        self.host = host
        self.bounds = bounds
        self.disk = disk
        _convert(host, directory, disk)
        self.journal = Journal(directory, disk, host.store, fsync_s=bounds.fsync_s, report=host.observer.reported)
        for path in forget_others(disk, self.directory, self.journal.segments[0].stands_at):
            host.observer.reported("checkpoint_ignored", f"{path}: another build wrote it; what the journal has is replayed instead")
        self.numbers: dict[str, int] = {}
        self.archives: Archives | None = None  # made with the first stream that says ARCHIVE
        self._data = directory
        self._catching_up: CatchingUp | None = None
        self.execute: Callable[[Callable[[], None]], object] = _nobody
        """Has a deed done soon on the thread that executes statements."""
        self.holds_back: Callable[[Query], bool] = lambda query: False
        """Whether results of a query wait for those who read them."""
        self.went_live: Callable[[Query], object] = lambda query: None
        """Is told of a query that has caught up."""
        self._began_us = host.runtime.now_us()
        self.journal.start()

    @property
    def directory(self) -> Path:
        """Where journal and checkpoints are."""
        return self.journal.directory

    @property
    def last_time_us(self) -> int:
        """The latest arrival time that is kept, 0 when none is."""
        segments = self.journal.segments
        found = max(segment.last_us for segment in segments)
        if found == 0:  # the checkpoint at which the journal begins is all there is
            checkpoint = checkpoints.read(self.disk, self.directory, self.host.store.identity, segments[0].stands_at)
            times = [] if checkpoint is None else [state["last_arrival_us"] or 0 for state in checkpoint.sources.values()]
            found = max(times, default=0)
        return found

    def add(self, name: str, number: int, *, record: bool = True) -> None:
        """Keep a stream or table from now on, under its number in the catalogue. Its definition stands before its rows in the journal."""
        self._archive(name, number)
        if record:
            self.journal.append(self._definition(number))
        self.numbers[name] = number
        if record:
            self.record(name)

    def _archive(self, name: str, number: int) -> None:
        """Keep the history of a stream that says ARCHIVE."""
        host = self.host
        definition = host.network.sources[name].definition
        if definition.archive is None:
            return
        if self.archives is None:
            from millstream.server.archive.archiver import ArchiveBounds, Archives  # loaded by the first stream that needs it

            bounds = ArchiveBounds(self.bounds.archive_file_bytes, self.bounds.archive_wait_s)
            self.archives = Archives(
                host.store,
                self.disk,
                self._data,
                bounds,
                self.journal,
                host.observer.reported,
                host.runtime.now_us,
                files_dir=host.file_rules.folder,
            )
        self.archives.add(definition, number, host.network.ingress.next_seq)

    def _definition(self, number: int) -> Record:
        return definition_record(number, self.host.store.definition(number).content, self.journal.end, self.host.runtime.now_us())

    def _roll(self, base: int) -> None:
        """Begin a segment with the definitions of all that is kept: it can be read without the catalogue and the segments before it."""
        self.journal.roll(base, [self._definition(number) for number in (*self.numbers.values(), *self._column_numbers())])

    def _column_numbers(self) -> list[int]:
        """Return the numbers of the columns that were added to what is kept."""
        return [d.position for name in self.numbers for d in self.host.store.columns_of(name)]

    def widen(self, definition: StreamDefinition) -> None:
        """Keep a stream with more columns from now on; those stand in the journal before the first rows that have them."""
        if definition.name not in self.numbers:
            return
        known = self.host.network.sources[definition.name].recorder is not None
        if known:
            self.record(definition.name)
        archive = None if self.archives is None else self.archives.find(definition.name)
        if archive is not None:
            archive.definition = definition

    def define(self, number: int) -> None:
        """Write a definition down, before the rows that need it. StorageError when the disk refuses."""
        self.journal.append(self._definition(number))

    def record(self, name: str) -> None:
        """Begin to write down what enters a stream."""
        source = self.host.network.sources[name]
        source.recorder = partial(self._record, name, source.definition.schema)

    def forget(self, name: str) -> None:
        """Keep a dropped stream no longer; its records go with their segments."""
        self.numbers.pop(name, None)
        archive = None if self.archives is None else self.archives.find(name)
        if self.archives is not None and archive is not None:
            self.archives.forget(archive.number)

    def keeps_all_of(self, query: Query) -> bool:
        """Whether a query can be rebuilt after a crash: it is durable, and so is all that it reads, and nothing is shed before it."""
        durable = query.is_durable and all(name in self.numbers for name in self.host.base_streams(query.reads))
        return durable and not self.host.may_lose(query)

    # --- in ---

    def _record(
        self,
        name: str,
        schema: Schema,
        lo: int,
        hi: int,
        columns: Sequence[Column] | None,
        said: Mapping[str, Any] | None,
        now_us: int | None,
        waits: Waits | None = None,
    ) -> int:
        self._check_room()
        number = self.numbers[name]
        now_us = self.host.runtime.now_us() if now_us is None else now_us
        if columns is None:
            return self.journal.append(Record(CONTROL, number, lo, hi, now_us, dict(said or {})))
        intake = self.host.intakes.get(name)  # None while a table that is being made is loaded
        meta: dict[str, Any] = {}
        if intake is not None and intake.fed is not None:
            meta["fed"] = list(intake.fed)
        if intake is not None and intake.produced is not None:
            meta["produced"] = [intake.produced.name, intake.produced.number, intake.produced.position]
        if self.host.network.sources[name].definition.added:
            meta["columns"] = len(columns)
        return self.journal.append(Record(ROWS, number, lo, hi, now_us, meta, rows_data(schema.first(len(columns)), columns)), waits)

    def _check_room(self) -> None:
        """Refuse what is to be kept while the journal is full of rows that an archive has yet to take. StorageError."""
        if self.archives is None or self.journal.bytes < self.bounds.bytes_max:
            return
        segment = self.journal.segments[0]
        if not self.archives.is_committed(segment):
            waits = [one for one in self.archives.by_number.values() if one.place < (segment.base, segment.size)]
            told = "; ".join(f"the archive of {one.definition.name} is behind ({one.last_error or 'it is at work'})" for one in waits)
            reason = OSError(f"it has reached journal_bytes_max, and {told}")
            raise StorageError("the journal cannot let go of rows", reason, hint="SHOW ARCHIVES; see to the store, or raise the bound")

    def take_sync(
        self, name: str, columns: Sequence[Column], shed: dict[str, int], lost: Callable[[StorageError], object]
    ) -> tuple[int, int, int]:
        """Write rows that may enter only once the disk has them; returns their arrival numbers and place. Under the ingress lock.

        `shed` is told, when they enter, how many are dropped before each class; `lost` is called when they never will.
        """
        host = self.host
        source = host.network.sources.get(name)
        if source is None:
            raise UnknownName(f"there is no stream {name}")
        if source.ended:
            raise StreamEnded(name)
        if source.table is not None:
            columns = source.table.with_op(columns)
        if source.idle:
            host.runtime.arrived(host.network.ingress.control(source, arrival_ns=host.runtime.arrival_ns(), idle=False))
        reservation = host.network.reserve(name, len(columns[0]))
        now_us = host.runtime.now_us()
        enter = partial(self._let_in, source, columns, reservation, shed, host.runtime.arrival_ns(), now_us)
        waits = enter, partial(self._take_back, source, reservation, lost)
        try:
            place = self._record(name, source.definition.schema, reservation.lo, reservation.hi, columns, None, now_us, waits)
        except BaseException:
            host.network.ingress.withdraw(source, reservation)
            raise
        return reservation.lo, reservation.hi, place

    def _take_back(self, source: Source, reservation: Reservation, lost: Callable[[StorageError], object], error: StorageError) -> None:
        """Give arrival numbers up whose rows the disk did not keep: the newest first, as the journal calls this."""
        ingress = self.host.network.ingress
        with ingress.lock:
            withdrawn = ingress.withdraw(source, reservation)
            lost(error)
        self.host.runtime.arrived(withdrawn)

    def _let_in(
        self,
        source: Source,
        columns: Sequence[Column],
        reservation: Reservation,
        shed: dict[str, int],
        arrival_ns: int,
        now_us: int,
    ) -> None:
        host, name = self.host, source.definition.name
        if host.network.sources.get(name) is source:
            ingested = host.network.ingest(name, columns, arrival_ns=arrival_ns, now_us=now_us, reservation=reservation)
            host.runtime.arrived(ingested)
            shed.update(host.shed_by_class(name, ingested))

    @property
    def failures(self) -> int:
        """How often the disk did not keep what had been written."""
        return self.journal.failures

    @property
    def is_failing(self) -> bool:
        """Whether nothing durable is accepted for now."""
        return self.journal.is_failing

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the disk that publishers should wait too."""
        return self.journal.is_behind

    def when_safe(self, place: int, safe: Callable[[], object], lost: Callable[[StorageError], object]) -> None:
        """Have `safe` called once all before a place is on disk and has entered, or `lost` if it never will."""
        self.journal.when_safe(place, safe, lost)

    def wait_safe(self, place: int | None = None) -> None:
        """Return once all before a place, by default all that was written, is on disk and has entered. StorageError if it never will."""
        self.journal.wait_safe(place)

    # --- what is held ---

    def held(self, definition: StreamDefinition) -> HeldRows:
        """Return the rows of a stream that the journal keeps. To be called under the ingress lock."""
        number = self.numbers[definition.name]
        upto = self.host.network.sources[definition.name].reserved_lo  # rows that wait for the disk have not entered yet
        parts = [(self.disk.open_read(segment.path), segment.size) for segment in self.journal.segments]
        seed = self.journal.segments[-1].seed

        def blocks() -> Iterator[HeldBlock]:
            for file, size in parts:
                with file:
                    for record in records_of(file.read(size), seed):
                        if record.lo >= upto or record.kind == DEFINITION:
                            continue
                        if record.stream == number and record.kind == ROWS:
                            yield HeldBlock(record.lo, record.columns(definition.schema, definition.added))
                        elif record.stream == number:
                            yield HeldBlock(record.lo, None, record.meta)

        return HeldRows(definition, self.host.network.ingress.next_seq - 1, blocks)

    def past(self, definition: StreamDefinition, bounds: TimeBounds | None, demands: tuple[Demand, ...] = ()) -> HeldPast:
        """Return the whole history of a stream within bounds, with None what the journal has of it. To be called under the ingress lock.

        Stored rows that do not meet `demands` may be left out.
        """
        from millstream.server.archive.history import NO_BOUNDS, StoredPast, journal_items  # loaded by the first that needs it
        from millstream.server.archive.manifest import ArchiveState
        from millstream.server.archive.pieces import WatermarkRule

        number = self.numbers[definition.name]
        archive = None if self.archives is None or bounds is None else self.archives.find(definition.name)
        state = ArchiveState() if archive is None else archive.state
        upto = self.host.network.sources[definition.name].reserved_lo  # rows that wait for the disk have not entered yet
        parts = [(self.disk.open_read(segment.path), segment.size) for segment in self.journal.segments]
        seed = self.journal.segments[-1].seed

        def records() -> Iterator[Record]:
            for file, size in parts:
                with file:
                    found = records_of(file.read(size), seed)
                    yield from (r for r in found if r.stream == number and r.kind != DEFINITION and state.upto <= r.lo < upto)

        rule = partial(WatermarkRule, definition, state.watermark_us)
        past = None if archive is None else StoredPast(archive.where, definition, state, bounds or NO_BOUNDS, demands)
        position = self.host.network.ingress.next_seq - 1
        return HeldPast(definition, position, lambda: journal_items(definition, rule(), records(), bounds or NO_BOUNDS), past)

    # --- how long ---

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the present segment is big or old enough to end."""
        last = self.journal.segments[-1]
        if not self.numbers or last.end == last.base or self.is_failing:
            return False
        age_us = self.host.runtime.now_us() - self._began_us
        return last.size >= self._segment_bytes or age_us > self.bounds.kept_s * US_PER_S / SEGMENTS

    @property
    def _segment_bytes(self) -> int:
        return max(SEGMENT_BYTES_MIN, self.bounds.bytes_max // SEGMENTS)

    def checkpoint(self) -> bool:
        """Take a checkpoint, begin a new segment there, and let go of what is beyond the bounds. False when it is no time to.

        StorageError or OSError when the disk refuses: then what there was before is kept, and it can be tried again.
        """
        host = self.host
        queries = [q for q in (*host.derived.values(), *host.queries) if self.keeps_all_of(q) and q.catching_up is None]
        made = None
        for _ in range(TRIES):
            self.journal.wait_safe()
            made = checkpoints.take(host, queries, dict(self.numbers), self._roll)
            if made is not None:
                break
        if made is None:
            return False
        self.journal.note_segments()
        checkpoints.write(self.disk, self.directory, host.store.identity, made)
        self._began_us = host.runtime.now_us()
        self._let_go()
        return True

    def _let_go(self) -> None:
        """Drop segments from the oldest on while there are more bytes, or older ones, than are kept."""
        segments = self.journal.segments
        now_us = self.host.runtime.now_us()
        floor = segments[0].base
        kept = self.journal.bytes
        for segment, following in pairwise(segments):
            too_old = now_us - segment.last_us > self.bounds.kept_s * US_PER_S
            if kept <= self.bounds.bytes_max and not too_old:
                break
            if self.archives is not None and not self.archives.is_committed(segment):
                break
            kept -= segment.size
            if self.disk.exists(checkpoint_path(self.directory, following.base)):
                floor = following.base
        if floor > segments[0].base:
            self.journal.drop_before(floor)
            forget_before(self.disk, self.directory, floor)

    @property
    def catching_up(self) -> CatchingUp:
        """The queries that begin in the past."""
        if self._catching_up is None:
            from millstream.server.durability.catching_up import CatchingUp  # loaded by the first that does

            self._catching_up = CatchingUp(self.host, self, self.execute)
            self._catching_up.holds_back = self.holds_back
        return self._catching_up

    def stop_catching_up(self) -> None:
        """Let nothing of the past in any more: the server is about to stop."""
        if self._catching_up is not None:
            self._catching_up.stop()

    def archived(self, step: Step) -> None:
        """Let what was archived count, and let go of what the journal held for that alone. StorageError, OSError when it cannot."""
        assert self.archives is not None
        self.archives.commit(step)
        if self.journal.bytes >= self.bounds.bytes_max:
            self._let_go()

    def stop(self) -> None:
        """Force everything to disk."""
        if self._catching_up is not None:
            self._catching_up.stop()
            self._catching_up.wait_stopped()  # it asks the journal how far the disk is
        self.journal.stop()


def _nobody(deed: Callable[[], None]) -> object:
    raise AssertionError("nobody executes statements here")


def _convert(host: EngineHost, directory: Path, disk: Disk) -> None:
    """Make a data directory of version 0.1.0 one of this release."""
    if host.store.format == FORMAT_VERSION and not any(disk.exists(directory / name) for name in (NEW_FOLDER, OLD_FOLDER)):
        return
    from millstream.server.durability.first_checkpoints import take_over  # both are loaded by the one start that needs them
    from millstream.server.journal.conversion import convert

    definitions = {d.position: d.content for d in host.store.definitions()}
    convert(disk, directory, host.store, definitions, take_over, host.observer.reported)
