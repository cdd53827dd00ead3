"""Rows of groups that change: what a train touches is found and written anew without a look at the rest.

The rows lie in runs, a group's rows side by side in one of them. A group that changes is written anew into the youngest run; runs of like
size are merged, so a row is moved at most about log2(rows) times beside the times its own group changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.arrays import expanded
from millstream.engine.data.buffered import BufferedRows, concat_rows
from millstream.engine.data.column import Mask
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array
from millstream.engine.data.types import DataType
from millstream.engine.operators.contract import Operator
from millstream.engine.state.forms import state_record

LARGE_ROWS = 1 << 15
LARGE_ALIKE = 4


@state_record("top_run", 1, ("rows", "groups", "alive"))
class GroupRun:
    """Kept rows, by group; those of groups that have changed since are no longer `alive`."""

    __slots__ = ("alive", "groups", "rows")

    def __init__(self, rows: BufferedRows, groups: Int64Array) -> None:
        self.rows = rows
        self.groups = groups
        self.alive: Mask = np.ones(len(groups), dtype=np.bool_)

    @property
    def size(self) -> int:
        """Rows that count."""
        return int(np.count_nonzero(self.alive))

    def of(self, groups: Int64Array) -> Int64Array:
        """Return the places of the rows of some groups, rising."""
        starts = np.searchsorted(self.groups, groups, side="left")
        at = expanded(starts, np.searchsorted(self.groups, groups, side="right") - starts)
        return at[self.alive[at]]

    def nbytes(self) -> int:
        """Return the bytes held, those of rows that no longer count too."""
        return self.rows.nbytes() + 9 * len(self.groups)

    def shrunk(self) -> GroupRun:
        """Return only what counts, in memory of its own."""
        at = np.flatnonzero(self.alive)
        return GroupRun(self.rows.take(at), self.groups[at])


def merged(*runs: GroupRun) -> GroupRun:
    """Return what counts of some runs, at least one, as one; no group is in two of them."""
    alive = [np.flatnonzero(run.alive) for run in runs]
    groups = np.concatenate([run.groups[at] for run, at in zip(runs, alive, strict=True)])
    order = groups.argsort(kind="stable")
    firsts = np.cumsum([0, *(len(run.rows) for run in runs[:-1])])
    at = np.concatenate([at + first for at, first in zip(alive, firsts, strict=True)])[order]
    return GroupRun(concat_rows(*(run.rows for run in runs)).take(at), groups[order])


def found(runs: Sequence[GroupRun], places: Sequence[Int64Array], nothing: BufferedRows) -> tuple[BufferedRows, Int64Array]:
    """Return the rows at places of the runs (`GroupRun.of`) and their groups, run by run; `nothing` where there are none."""
    groups = np.concatenate([np.empty(0, dtype=np.int64), *(run.groups[at] for run, at in zip(runs, places, strict=True))])
    return concat_rows(nothing, *(run.rows.take(at) for run, at in zip(runs, places, strict=True))), groups


def replaced(runs: Sequence[GroupRun], places: Sequence[Int64Array], changed: Int64Array, made: GroupRun) -> list[GroupRun]:
    """Return the runs in which the groups `changed`, whose rows stand at `places`, are what they are in `made`."""
    for run, at in zip(runs, places, strict=True):
        run.alive[at[np.isin(run.groups[at], changed)]] = False
    kept = [run if 2 * run.size >= len(run.rows) else run.shrunk() for run in runs]
    kept = [run for run in (*kept, made) if len(run.rows)]
    while (count := alike([run.size for run in kept])) > 1:
        kept = [*kept[:-count], merged(*kept[-count:])]
    return kept


def alike(sizes: Sequence[int]) -> int:
    """Return how many of the last runs are of like size and enough to be merged; 0 where none are.

    A look into one more run costs a call little, and to merge large runs much: there it takes more of them.
    """
    last = sizes[-1] if sizes else 0
    count = 2 if last < LARGE_ROWS else LARGE_ALIKE
    return count if len(sizes) >= count and sizes[-count] < 2 * last else 0


class GroupedRows(Operator):
    """An operator that keeps rows by group. `keys` are the types of the columns that tell groups apart."""

    def __init__(self, schema: Schema, keys: Sequence[DataType]) -> None:
        super().__init__([schema])
        self._keys = key_encoder(keys)
        self._runs: list[GroupRun] = []

    def state_rows(self) -> int:
        """Return the rows kept."""
        return sum(run.size for run in self._runs)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._keys.nbytes() + sum(run.nbytes() for run in self._runs)
