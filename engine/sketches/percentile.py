"""APPROX_PERCENTILE: runs of sorted values that are merged and halved (Munro and Paterson 1980, as mergeable as Agarwal et al. 2013 show).

Values gather in blocks of VALUES_MAX; a full block, sorted, is a run of level 0. Two runs of level h are merged and every second value goes
on as a run of level h + 1, in which a value stands for 2^(h+1). Which half goes on is no toss of a coin, as in KLL and its kin, whose
answers differ from run to run: a level takes the halves in turn. A halving moves a rank by at most 2^h, so n values are answered within
log2(n / VALUES_MAX) / (2 · VALUES_MAX) of the rank: half a percent for a million, one percent for a thousand million; in practice a tenth
of that. Fewer values than a block give PERCENTILE_CONT's exact answer. NaN sorts above every number, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.aggregates.ranked import exact_rank, interpolated
from millstream.engine.data.column import Column
from millstream.engine.data.types import DataType
from millstream.engine.sketches.contract import Synopsis, SynopsisKind, Values, parts_of
from millstream.engine.state.forms import state_record

VALUES_MAX = 1024
LEVELS_PLANNED = 20  # runs that a thousand million values need; each is VALUES_MAX long
Floats = npt.NDArray[np.float64]


@state_record("sorted_runs", 1, ("counts", "block_sizes", "blocks", "levels", "run_sizes", "runs", "halves"))
class SortedRuns(Synopsis):
    """A block of fewer than VALUES_MAX values as they came, and at most one run a level."""

    __slots__ = ("block", "count", "halves", "runs")

    def __init__(self) -> None:
        self.block: Floats = np.empty(0, dtype=np.float64)
        self.runs: list[Floats | None] = []
        self.halves: list[int] = []  # per level which half goes on next: 0 the even places, 1 the odd ones
        self.count = 0

    @classmethod
    def to_table(cls, all_: Sequence[SortedRuns]) -> tuple[Any, ...]:
        """Return the counts, the blocks, and the runs of all levels one after another, each with its size; -1 for a level without one."""
        runs = [run for one in all_ for run in one.runs]
        held = [run for run in runs if run is not None]
        return (
            [one.count for one in all_],
            np.array([len(one.block) for one in all_], dtype=np.int64),
            np.concatenate([one.block for one in all_]),
            np.array([len(one.runs) for one in all_], dtype=np.int64),
            np.array([-1 if run is None else len(run) for run in runs], dtype=np.int64),
            np.concatenate(held) if held else np.empty(0, dtype=np.float64),
            [half for one in all_ for half in one.halves],
        )

    @classmethod
    def from_table(cls, fields: dict[str, Any]) -> list[SortedRuns]:
        """Return them again."""
        sizes, ends = fields["run_sizes"], np.cumsum(fields["levels"]).tolist()
        held = iter(parts_of(fields["runs"], sizes[sizes >= 0]))
        runs = [None if size < 0 else next(held).copy() for size in sizes.tolist()]
        made = []
        starts = [0, *ends[:-1]]
        blocks = parts_of(fields["blocks"], fields["block_sizes"])
        for count, block, start, stop in zip(fields["counts"], blocks, starts, ends, strict=True):
            one = cls()
            one.count, one.block = count, block.copy()
            one.runs, one.halves = runs[start:stop], fields["halves"][start:stop]
            made.append(one)
        return made

    def add(self, values: Values) -> None:
        """Take in values; a full block becomes a run."""
        self.count += len(values.codes)
        held = np.concatenate((self.block, values.codes))
        whole = len(held) - len(held) % VALUES_MAX
        for start in range(0, whole, VALUES_MAX):
            self.put(np.sort(held[start : start + VALUES_MAX]), 0)
        self.block = held[whole:].copy()

    def put(self, run: Floats, level: int) -> None:
        """Put a run on its level; where there is one already both go up as one."""
        while True:
            while len(self.runs) <= level:
                self.runs.append(None)
                self.halves.append(0)
            other = self.runs[level]
            if other is None:
                self.runs[level] = run
                return
            both = np.concatenate((other, run))
            both.sort(kind="stable")  # two sorted halves: a merge
            self.runs[level] = None
            run = both[self.halves[level] :: 2].copy()
            self.halves[level] ^= 1
            level += 1

    def weighted(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return all values held and how many each stands for."""
        parts, weights = [self.block], [np.ones(len(self.block), dtype=np.int64)]
        for level, run in enumerate(self.runs):
            if run is not None:
                parts.append(run)
                weights.append(np.full(len(run), 1 << level, dtype=np.int64))
        return np.concatenate(parts), np.concatenate(weights)

    def nbytes(self) -> int:
        """Return the bytes of block and runs."""
        return int(self.block.nbytes) + sum(int(r.nbytes) for r in self.runs if r is not None)


@state_record("percentile", 1, ("_fraction",))
class Percentile(SynopsisKind):
    """The p-quantile of DOUBLEs."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    @property
    def nbytes_max(self) -> int:
        """Return the bytes of a block and the planned runs."""
        return 8 * VALUES_MAX * (LEVELS_PLANNED + 1)

    def encode(self, column: Column) -> npt.NDArray[Any]:
        """Return the values."""
        return np.asarray(column.values) + 0.0  # as keys, −0.0 is 0.0

    def empty(self) -> SortedRuns:
        """Return no values."""
        return SortedRuns()

    def answers(self, type_: DataType, groups: Sequence[Sequence[SortedRuns]]) -> Column:
        """Return the quantiles; NULL without a value."""
        results = [self._answer(panes) for panes in groups]
        valid = np.array([r is not None for r in results], dtype=np.bool_)
        return Column(type_, np.array([0.0 if r is None else r for r in results], dtype=np.float64), None if valid.all() else valid)

    def _answer(self, panes: Sequence[SortedRuns]) -> float | None:
        if not any(p.count for p in panes):
            return None
        if all(not p.runs for p in panes):
            return float(interpolated(np.sort(np.concatenate([p.block for p in panes])), self._fraction))
        # The panes' values with their weights are a summary of the whole, no worse than the worst of them.
        held = [p.weighted() for p in panes]
        values, weights = np.concatenate([v for v, _ in held]), np.concatenate([w for _, w in held])
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(weights[order])
        rank = float(exact_rank(self._fraction, int(reached[-1]) - 1))
        return float(values[order[min(int(np.searchsorted(reached, rank, side="right")), len(order) - 1)]])
