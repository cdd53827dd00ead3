"""Files read into streams and tables in blocks, bad rows refused alone and remembered for the message."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.event_time import event_times, time_position
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import OnError
from millstream.engine.data.train import Int64Array
from millstream.engine.ingest.readers import Reader, file_format
from millstream.engine.plan.demands import columns_read
from millstream.protocol.values.packed import split_name, unpacked
from millstream.server.errors import BadInput
from millstream.server.host.intake import refuse_unknown_op

if TYPE_CHECKING:
    from millstream.protocol.values.mapping import ColumnMap
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.host.intake import StreamIntake

REFUSALS_REMEMBERED_MAX = 5
TOLD_MAX = 20


@dataclass(frozen=True, slots=True)
class InputBlock:
    """Accepted rows: columns, their number, and each row's number among all rows of the file, from 1."""

    columns: list[Column]
    rows: int
    places: Int64Array

    def slice(self, start: int, stop: int) -> tuple[list[Column], Int64Array]:
        """Return the columns and places of some rows."""
        return [c.slice(start, stop) for c in self.columns], self.places[start:stop]


class RowInput(ABC):
    """Rows for one stream. `rows` were offered, `refused` of them refused; `first_refusals` are (place, reason)."""

    intake: StreamIntake
    rows: int
    refused: int
    first_refusals: list[tuple[str, str]]

    @abstractmethod
    def chunks(self) -> Iterator[InputBlock]:
        """Yield blocks of accepted rows. BadInput at the first bad row of a stream that says ON ERROR FAIL."""

    @abstractmethod
    def told(self) -> list[str]:
        """Return what is to be said once all has been read: notes, and how many rows were refused and why."""

    def read_all(self) -> InputBlock:
        """Return all accepted rows as one block."""
        blocks = list(self.chunks())
        if not blocks:
            return InputBlock([], 0, np.empty(0, dtype=np.int64))
        columns = [concat_columns([block.columns[i] for block in blocks]) for i in range(len(blocks[0].columns))]
        return InputBlock(columns, sum(block.rows for block in blocks), np.concatenate([block.places for block in blocks]))

    def event_times(self, block: InputBlock, now_us: int) -> Int64Array:
        """Return the event times of rows; a stream by ARRIVAL has the present."""
        position = time_position(self.intake.definition)
        if position is None or not block.rows:
            return np.full(block.rows, now_us, dtype=np.int64)
        return event_times(block.columns[position], self.intake.definition.time)


class InputFile(RowInput):
    """One file for one stream."""

    def __init__(
        self,
        intake: StreamIntake,
        path: Path,
        file: BinaryIO,
        form: str,
        column_map: ColumnMap | None = None,
        unread: Collection[str] = (),
    ) -> None:
        self.intake = intake
        self.rows = 0
        self.refused = 0
        self.first_refusals: list[tuple[str, str]] = []
        self._reader = Reader(file, path.name, form, intake.offered, column_map, unread)
        self._warnings: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        """Sentences about the file as a whole, once it has been read."""
        return [*self._reader.notes, *self._warnings]

    def chunks(self) -> Iterator[InputBlock]:
        """Yield blocks of accepted rows. BadInput at the first bad row of a stream that says ON ERROR FAIL."""
        for coerced in self._reader.chunks():
            before = self.rows
            self.rows += coerced.rows + len(coerced.rejected)
            if self.intake.table is not None and coerced.rows:
                refuse_unknown_op(coerced)
            self._warnings.update(dict.fromkeys(coerced.warnings))
            if coerced.rejected:
                places = [(self._reader.place(r.index), r.reason) for r in coerced.rejected]
                if self.intake.definition.on_error is OnError.FAIL:
                    raise BadInput(f"{self.intake.name}: {places[0][0]}: {places[0][1]}", hint="the stream says ON ERROR FAIL")
                self.refused += len(places)
                self.first_refusals += places[: REFUSALS_REMEMBERED_MAX - len(self.first_refusals)]
                self.intake.note_refused(coerced.rejected, 0)
            if coerced.rows:
                index = coerced.index if coerced.index is not None else np.arange(before, before + coerced.rows, dtype=np.int64)
                yield InputBlock(coerced.columns, coerced.rows, index + 1)

    def told(self) -> list[str]:
        """Return what is to be said of the file once it has been read: notes, and how many rows were refused and why."""
        return [*self.notes, *self.refusals()]

    def refusals(self) -> list[str]:
        """Return how many rows were refused and why; nothing where none was."""
        messages = []
        if self.refused:
            reasons = [f"{place}: {reason}" for place, reason in self.first_refusals]
            if self.refused > len(reasons):
                reasons.append("…")
            told = "".join(f"\n  {reason}" for reason in reasons) if len(reasons) > 1 else f" {reasons[0]}"
            messages.append(f"{self.intake.name}: {self.refused} of {self.rows} row{'' if self.rows == 1 else 's'} refused:{told}")
        return messages


class FilesInOrder(RowInput):
    """Several files for one stream, one after the other, each open only while it is read."""

    def __init__(
        self, intake: StreamIntake, paths: Sequence[Path], column_map: ColumnMap | None = None, unread: Collection[str] = ()
    ) -> None:
        self.intake = intake
        self.rows = self.refused = 0
        self.first_refusals: list[tuple[str, str]] = []
        self._paths = paths
        self._column_map = column_map
        self._unread = unread
        self._told: list[str] = []
        self._notes: dict[str, tuple[str, int]] = {}  # what is to be said of files: of which first, and of how many more

    def chunks(self) -> Iterator[InputBlock]:
        """Yield blocks of accepted rows, numbered through all files."""
        for path in self._paths:
            with open_input(self.intake, path, self._column_map, self._unread) as file:
                for block in file.chunks():
                    yield InputBlock(block.columns, block.rows, block.places + self.rows)
            self.rows += file.rows
            self.refused += file.refused
            self.first_refusals += file.first_refusals[: REFUSALS_REMEMBERED_MAX - len(self.first_refusals)]
            for note in file.notes:
                said = note.removeprefix(f"{path.name}: ")
                first, more = self._notes.get(said, (path.name, -1))
                self._notes[said] = first, more + 1
            self._told += file.refusals()

    def told(self) -> list[str]:
        """Return what is to be said of the first files, and how much more there would be. What holds for many files is said once."""
        told = [f"{first}{f' and {more} more' if more else ''}: {said}" for said, (first, more) in self._notes.items()]
        told += self._told
        more = len(told) - TOLD_MAX
        return told if more <= 0 else [*told[:TOLD_MAX], f"{self.intake.name}: {more} more messages of this kind"]


def unread_columns(host: EngineHost, intake: StreamIntake) -> list[str]:
    """Return the columns of a stream that no query looks at, nor one behind a derived stream. One that is made later may look at any."""
    definition = intake.definition
    if intake.table is not None or intake.sheds or definition.late_into is not None or definition.errors_into is not None:
        return []
    read = [columns_read(query.planned.logical).get(intake.name, set()) for query in (*host.queries, *host.derived.values())]
    return [name for position, name in enumerate(definition.schema.names) if not any(position in columns for columns in read)]


@contextmanager
def open_input(intake: StreamIntake, path: Path, column_map: ColumnMap | None = None, unread: Collection[str] = ()) -> Iterator[InputFile]:
    """Yield a file opened for a stream; BadInput or the engine's errors when that cannot be. `unread`: columns that may be NULL."""
    with read_input(intake, path, lambda: _opened(path), column_map, unread) as file:
        yield file


@contextmanager
def read_input(
    intake: StreamIntake,
    path: Path,
    opened: Callable[[], BinaryIO],
    column_map: ColumnMap | None = None,
    unread: Collection[str] = (),
) -> Iterator[InputFile]:
    """Yield a file that `opened` opens, as rows for a stream; BadInput or the engine's errors when that cannot be."""
    form = file_format(path)
    if form is None:
        raise BadInput(f"{path.name}: cannot tell the format", hint="name it .csv, .jsonl, .parquet or .arrow (perhaps with .gz or .zst)")
    if form in ("arrow", "parquet") and split_name(path)[1] == "zstd":  # they are read from their end
        raise BadInput(f"{path.name}: {form} is not read from a packed file", hint="unpack it; Parquet and Arrow pack their own columns")
    try:
        with opened() as file:
            yield InputFile(intake, path, file, form, column_map, unread)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error


def _opened(path: Path) -> BinaryIO:
    return unpacked(path.open("rb"), split_name(path)[1])
