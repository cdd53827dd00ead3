"""The results of one query, kept in order so that several subscribers can read them at their own speed.

One log a query, a cursor a subscriber: a result is held once, however many read it. What is kept beyond the slowest reader serves
`FROM START` and resume tokens (bounded in bytes and time). A resume token names the log (a query started anew has a new one), the
number of the last result, and the rows up to it, so that a gap can be told exactly.

A result of a few rows is kept as one flat tuple of plain values once its readers have it. The collector of garbage forgets such a tuple
at its first look; of objects that refer to one another it would look at tens of thousands at a time, and everything waits meanwhile.
"""

from __future__ import annotations

import re
from typing import Any

from millstream.engine.data.column import CellColumn, Column
from millstream.engine.data.records import dataclass
from millstream.server.results.trains import ResultRows, ResultShape, cut_receipts

_TOKEN = re.compile(r"m1\.([0-9a-f]{1,64})\.(\d{1,18})\.(\d{1,18})", re.ASCII)
ENTRY_BYTES = 1_024  # what a result holds besides its values (one row, three columns: 1,100 measured while readers read it)
FLAT_BYTES = 384  # the same once it is one tuple (one row, three columns: 350)
_COMPACT_AT = 1024  # dropped entries before the list is shortened: the cost of shortening is spread over that many


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """What a resume token says: continue after result `number`, up to which there were `rows` rows, of the log `log`."""

    log: str
    number: int
    rows: int

    def __str__(self) -> str:
        """Return the token."""
        return f"m1.{self.log}.{self.number}.{self.rows}"


def read_token(token: str) -> ResumePoint | None:
    """Return what a resume token says, or None when it is none of ours."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else ResumePoint(match[1], int(match[2]), int(match[3]))


class ResultEntry:
    """One result: rows (`trains.ResultRows`), or none where only `meta` is news. The last three say what came before it."""

    __slots__ = ("batch", "bytes_before", "meta", "number", "recorded_ns", "rows", "rows_before")

    def __init__(self, batch: Any, meta: dict[str, Any], number: int, rows_before: int, bytes_before: int, recorded_ns: int) -> None:
        self.batch = batch
        self.meta = meta
        self.rows: int = batch.num_rows if batch is not None else 0
        self.number = number
        self.rows_before = rows_before
        self.bytes_before = bytes_before
        self.recorded_ns = recorded_ns

    def forget_made(self) -> None:
        """Let go of what was made of the rows for readers: only the rows are kept, and counted."""
        if type(self.batch) is ResultRows:
            self.batch.forget_made()

    def without(self, rows: int) -> ResultEntry:
        """Return the result less its first rows."""
        rest = self.batch.slice(rows)
        return ResultEntry(
            rest, cut_receipts(self.meta, rows, rest.num_rows), self.number, self.rows_before + rows, self.bytes_before, self.recorded_ns
        )


class KeptShare:
    """What each of the logs that keep results may keep of what all of them may: an even part of `total_bytes_max`."""

    __slots__ = ("_logs", "bytes_max", "total_bytes_max")

    def __init__(self, total_bytes_max: int) -> None:
        self.total_bytes_max = total_bytes_max
        self.bytes_max = total_bytes_max
        self._logs = 0

    def count(self, logs: int) -> None:
        """Note that so many more logs keep results, or fewer."""
        self._logs += logs
        self.bytes_max = self.total_bytes_max // max(1, self._logs)


class ResultLog:
    """Results number 1, 2, … of one run of a query. `identity` is part of its resume tokens.

    It keeps `kept_bytes_max` of them, and no more than its `share` of what all logs may keep.
    After a restart a run goes on: `rows_before` rows came before the first result here, and tokens of the identities in `earlier` are
    good for as many rows as it says (-1: for all there are).
    All of it is for the event loop's thread alone, save `kept_bytes`, which whoever looks at memory reads from any.
    """

    def __init__(
        self,
        identity: str,
        kept_bytes_max: int,
        kept_ns_max: int,
        rows_before: int = 0,
        earlier: dict[str, int] | None = None,
        share: KeptShare | None = None,
    ) -> None:
        self.identity = identity
        self.earlier = earlier if earlier is not None else {}
        self.kept_bytes_max = kept_bytes_max
        self.kept_ns_max = kept_ns_max
        self._share = KeptShare(kept_bytes_max) if share is None else share
        self.next_number = 1
        self.rows_total = rows_before
        self.bytes_total = 0
        # Rows and bytes before it, when it came, and the entry itself or what `_flat` makes of it.
        self._entries: list[tuple[Any, ...]] = []
        self._dropped = 0  # entries at the front of the list that have been let go of
        self._dropped_bytes = 0  # bytes of all results that are no longer kept
        self._shape: ResultShape | None = None  # of the results that are kept flat

    @property
    def first_number(self) -> int:
        """The number of the oldest result that is kept; `next_number` when none is."""
        return self.next_number - len(self._entries) + self._dropped

    @property
    def kept_bytes(self) -> int:
        """Bytes of the results that are kept: of two sums alone, as the list may be changing while another thread asks."""
        return self.bytes_total - self._dropped_bytes

    def append(self, batch: Any, meta: dict[str, Any], now_ns: int) -> ResultEntry:
        """Add a result and return its entry."""
        entry = ResultEntry(batch, meta, self.next_number, self.rows_total, self.bytes_total, now_ns)
        self._entries.append((self.rows_total, self.bytes_total, now_ns, entry))
        self.next_number += 1
        self.rows_total += entry.rows
        self.bytes_total += ENTRY_BYTES if batch is None else batch.nbytes + ENTRY_BYTES
        return entry

    def settle(self, entry: ResultEntry) -> None:
        """Let go of what was made of the newest result for those who read along, and keep it as little as can be."""
        rows = entry.batch
        if type(rows) is not ResultRows:
            return
        rows.forget_made()
        if rows.shape is not self._shape:
            if self._shape is not None:
                return
            self._shape = rows.shape
        if entry.number + 1 == self.next_number and (flat := _flat(entry, rows)) is not None:
            self._entries[-1] = flat
            self.bytes_total -= ENTRY_BYTES - FLAT_BYTES

    def entry(self, number: int) -> ResultEntry:
        """Return a result that is kept."""
        kept = self._kept(number)
        found: ResultEntry = kept[3]
        return found if type(found) is ResultEntry else self._unfolded(number, kept)

    def _unfolded(self, number: int, kept: tuple[Any, ...]) -> ResultEntry:
        """Return the entry that a flat tuple was made of."""
        assert self._shape is not None
        rows_before, bytes_before, recorded_ns, said, *rest = kept
        types, rows = self._shape.types, self.rows_before(number + 1) - rows_before
        cells = rest[2 * said :]
        columns: list[Column] = [CellColumn(type_, tuple(cells[i * rows : (i + 1) * rows])) for i, type_ in enumerate(types)]
        meta = dict(zip(rest[: 2 * said : 2], rest[1 : 2 * said : 2], strict=True))
        return ResultEntry(ResultRows(self._shape, columns, rows), meta, number, rows_before, bytes_before, recorded_ns)

    def kept(self) -> list[ResultEntry]:
        """Return the results that are kept, oldest first."""
        return [self.entry(number) for number in range(self.first_number, self.next_number)]

    def rows_before(self, number: int) -> int:
        """Return how many rows there were before result `number`, which is kept or the next to come."""
        return self.rows_total if number == self.next_number else self._kept(number)[0]

    def _kept(self, number: int) -> tuple[Any, ...]:
        at = number - self.next_number
        assert self._dropped - len(self._entries) <= at < 0, number
        return self._entries[at]

    def number_at(self, rows: int) -> int:
        """Return the number of the kept result that holds the row after the first `rows`, or that of the next to come."""
        first = self._dropped
        last = len(self._entries)
        while first < last:
            middle = (first + last) // 2
            behind = middle + 1
            if (self._entries[behind][0] if behind < len(self._entries) else self.rows_total) > rows:
                last = middle
            else:
                first = middle + 1
        return self.next_number - len(self._entries) + first

    def bytes_before(self, number: int) -> int:
        """Return how many bytes there were before result `number`, which is kept or the next to come."""
        return self.bytes_total if number == self.next_number else self._kept(number)[1]

    def token_before(self, number: int) -> str:
        """Return the token that resumes with result `number`."""
        rows = self.rows_total if number == self.next_number else self.rows_before(number)
        return str(ResumePoint(self.identity, number - 1, rows))

    def trim(self, now_ns: int, needed_from: int) -> None:
        """Let go of results older than the bounds, but of none from number `needed_from` on."""
        entries, at = self._entries, self._dropped
        needed_at = len(entries) - (self.next_number - needed_from if needed_from < self.next_number else 0)
        if at >= needed_at:
            return
        kept_bytes_max = min(self.kept_bytes_max, self._share.bytes_max)
        while at < needed_at:
            oldest = entries[at]
            if self.bytes_total - oldest[1] <= kept_bytes_max and now_ns - oldest[2] <= self.kept_ns_max:
                break
            entries[at] = _LET_GO
            at += 1
        self._dropped_bytes = entries[at][1] if at < len(entries) else self.bytes_total
        if at >= _COMPACT_AT or at == len(entries):
            del entries[:at]
            at = 0
        self._dropped = at

    def clear(self) -> None:
        """Let go of everything."""
        self._entries.clear()
        self._dropped = 0
        self._dropped_bytes = self.bytes_total


def _flat(entry: ResultEntry, rows: ResultRows) -> tuple[Any, ...] | None:
    """Return an entry as one tuple of plain values, None where it has others.

    Rows and bytes before it, when it came, how many things are said of it, these by name and value, then the values column by column.
    """
    flat: list[Any] = [entry.rows_before, entry.bytes_before, entry.recorded_ns, len(entry.meta)]
    for said in entry.meta.items():
        if type(said[1]) is not int:
            return None
        flat += said
    for column in rows.columns:
        if type(column) is not CellColumn:
            return None
        flat += column.cells
    return tuple(flat)


_LET_GO = (0, 0, 0, None)  # stands where a result was, until the list is shortened
