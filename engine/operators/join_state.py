"""The rows that one side of a join keeps, indexed by key id.

Rows lie in runs. A call adds its rows as one run; runs of like size are merged, so there are about log2(rows) of them and each row is
merged as often: less often into large runs, and texts stay where they are meanwhile. Inside a run a permutation sorts the rows by key id,
with a table of where each id begins (or a search, where ids are many and rows few). Rows that W has passed are dropped when half of a run
has expired, and at each merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.buffered import BoolArray, BufferedRows, concat_rows
from millstream.engine.data.column import Column, chained_columns
from millstream.engine.data.train import Int64Array
from millstream.engine.operators.group_runs import alike
from millstream.engine.state.forms import state_record

DENSE_IDS_PER_ROW = 4  # a begin table this many times longer than the run is still cheaper than searching
RADIX_IDS_MAX = 1 << 16  # NumPy sorts 16-bit integers by radix
CANDIDATES_MAX = 1 << 20  # pairs looked at in one go, so that a key that pairs with everything does not fill memory
ROW_BYTES = 33  # of a row beside its columns: id, seq, time, ordinal, and whether it is matched
NO_KEY = -1  # a row whose key is NULL pairs with nothing; kept only where unmatched rows are wanted


@state_record("join_rows", 1, ("columns", "time", "seq", "ordinal", "ids", "matched"))
class RowStore(BufferedRows):
    """Rows side by side, with the key id of each and whether it has found a partner."""

    __slots__ = ("ids", "matched")

    def __init__(
        self,
        columns: Sequence[Column],
        time: Int64Array,
        seq: Int64Array,
        ordinal: Int64Array,
        ids: Int64Array,
        matched: BoolArray,
    ) -> None:
        super().__init__(columns, time, seq, ordinal)
        self.ids, self.matched = ids, matched

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """As the base."""
        return (*super().arrays, self.ids, self.matched)

    def row_bytes(self) -> int:
        """Return the bytes of a row's columns on average."""
        return sum(c.nbytes() for c in self.columns) // max(1, len(self))


@state_record("join_run", 1, ("rows",))
class Run:
    """A store with its index."""

    __slots__ = ("_begins", "_order", "_sorted_ids", "rows", "time_max", "time_min")

    def __init__(self, rows: RowStore, id_count: int) -> None:
        self.rows = rows
        self.time_min, self.time_max = int(rows.time.min()), int(rows.time.max())
        ids = rows.ids
        self._order = np.argsort(ids.astype(np.uint16) if id_count < RADIX_IDS_MAX and int(ids.min()) >= 0 else ids, kind="stable")
        self._begins: Int64Array | None = None
        self._sorted_ids: Int64Array | None = None
        if id_count <= DENSE_IDS_PER_ROW * len(ids) and int(ids.min()) >= 0:
            counts = np.bincount(ids, minlength=id_count)
            self._begins = np.zeros(id_count + 1, dtype=np.int64)
            np.cumsum(counts, out=self._begins[1:])
        else:
            self._sorted_ids = ids[self._order]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Run:
        """Index the rows anew. Ids made since are not in the index, as they would not be in that of then."""
        rows: RowStore = fields["rows"]
        return cls(rows, max(0, int(rows.ids.max())) + 1)

    @property
    def index_bytes(self) -> int:
        """The bytes of the index."""
        table = self._begins if self._begins is not None else self._sorted_ids
        return int(self._order.nbytes) + (0 if table is None else int(table.nbytes))

    def candidates(self, first: Int64Array, counts: Int64Array) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Yield (positions in the ids, rows of the run) of pairs with equal key, at most CANDIDATES_MAX at a time where possible.

        `first` and `counts` are what `ranges` said of the ids.
        """
        total = int(counts.sum())
        if total == 0:
            return
        if total <= CANDIDATES_MAX:
            yield self._expand(np.arange(len(counts), dtype=np.int64), first, counts)
            return
        ends = np.cumsum(counts)
        start = 0
        while start < len(counts):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + CANDIDATES_MAX, side="right")))
            yield self._expand(np.arange(start, stop, dtype=np.int64), first[start:stop], counts[start:stop])
            start = stop

    def ranges(self, ids: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return where each id's rows begin in the order of ids, and how many they are."""
        if self._begins is not None:
            # Ids made after this run was indexed are not in it; a negative id (NULL) is nowhere.
            size = len(self._begins) - 1
            known = np.where((ids < 0) | (ids >= size), size, ids)
            first = self._begins[known]
            return first, self._begins[np.minimum(known + 1, size)] - first
        assert self._sorted_ids is not None
        first = np.searchsorted(self._sorted_ids, ids, side="left")
        counts = np.searchsorted(self._sorted_ids, ids, side="right") - first
        counts[ids < 0] = 0
        return first, counts

    def _expand(self, probes: Int64Array, first: Int64Array, counts: Int64Array) -> tuple[Int64Array, Int64Array]:
        if int(counts.max()) == 1:
            hit = counts == 1
            return probes[hit], self._order[first[hit]]
        repeated = np.repeat(probes, counts)
        before = np.cumsum(counts) - counts
        place = np.arange(len(repeated), dtype=np.int64) - np.repeat(before - first, counts)
        return repeated, self._order[place]


def _nobody(ids: Int64Array) -> None:
    raise AssertionError("a side that was read back has not been told whom to tell")


@state_record("join_side", 1, ("runs",))
class SideState:
    """All runs of one side. `expired` is told about the key ids of dropped rows."""

    def __init__(self, expired: Callable[[Int64Array], None]) -> None:
        self.runs: list[Run] = []
        self.expired = expired

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> SideState:
        """Return the side; who holds it says whom to tell."""
        made = cls(_nobody)
        made.runs = fields["runs"]
        return made

    @property
    def rows(self) -> int:
        """Rows kept."""
        return sum(len(r) for r in self.runs)

    def add(self, run: Run) -> None:
        """Add a run. Nothing is dropped before `settle`: a row may be past its time as it comes, and still be wanted unmatched."""
        self.runs.append(run)

    def settle(self, bound: int | None, id_count: int) -> None:
        """Merge runs of like size; drop rows of a time before `bound` (None: nothing ever expires) where at least half of a run is."""
        while (count := alike([len(run) for run in self.runs])) > 1:
            like, self.runs = self.runs[-count:], self.runs[:-count]
            merged = self._alive(concat_rows(*(run.rows for run in like), join=chained_columns), bound)
            if len(merged):
                self.runs.append(Run(merged, id_count))
        if bound is None or not any(r.time_min < bound for r in self.runs):
            return
        kept: list[Run] = []
        for run in self.runs:
            if run.time_min >= bound:
                kept.append(run)
            elif run.time_max < bound:
                self.expired(run.rows.ids)
            elif 2 * int(np.count_nonzero(run.rows.time < bound)) >= len(run):
                kept.append(Run(self._alive(run.rows, bound), id_count))
            else:
                kept.append(run)
        self.runs = kept

    def _alive(self, rows: RowStore, bound: int | None) -> RowStore:
        if bound is None:
            return rows
        alive = rows.time >= bound
        if alive.all():
            return rows
        self.expired(rows.ids[~alive])
        return rows.kept(alive)

    def nbytes(self) -> int:
        """Return the bytes of all rows."""
        return sum(sum(c.nbytes() for c in r.rows.columns) + ROW_BYTES * len(r) + r.index_bytes for r in self.runs)
