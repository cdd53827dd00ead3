"""A column of values with its validity, immutable by convention: chunks are shared between threads and queries.

NumPy-stored kinds keep `valid`, a bool mask or None for "no NULL here"; the value under a NULL is arbitrary but initialised.
Arrow-stored kinds (TEXT, BYTES, JSON, nested ones) keep NULLs inside the Arrow array and have `valid` None; `validity()` answers for both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct, pack
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.types import DataType, Kind
from millstream.engine.state.forms import state_record, written_as
from millstream.protocol.values import arrow_functions as pc

Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]

CELLS_MAX = 64  # with more, passes over whole columns cost as little
PIECED_FROM = 1 << 15  # rows: fewer are copied in no time, and looked up sooner where they lie in one array
PIECES_MAX = 64  # of which those with rows that are looked up cost a call of Arrow each
FEW_OF = 4
_OFFSET = Struct("<i")

NUMPY_DTYPES: dict[Kind, Any] = {
    Kind.NULL: np.bool_,
    Kind.BOOLEAN: np.bool_,
    Kind.INT: np.int32,
    Kind.BIGINT: np.int64,
    Kind.DOUBLE: np.float64,
    Kind.TIMESTAMP: np.int64,
    Kind.DATE: np.int32,
    Kind.TIME: np.int64,
    Kind.INTERVAL: np.int64,
}


def numpy_dtype(type_: DataType) -> Any:
    """Return the NumPy dtype that stores `type_`; ValueError for Arrow-stored kinds."""
    if type_.kind is Kind.DECIMAL:
        return np.object_ if type_.is_wide else np.int64
    if type_.is_arrow:
        raise ValueError(f"{type_} is stored as an Arrow array")
    return NUMPY_DTYPES[type_.kind]


@state_record("column", 1, ("type", "values", "valid"))
class Column:
    """Values of one type. `values` is a NumPy array, or an Arrow array for the kinds that Arrow stores."""

    __slots__ = ("_bounds", "type", "valid", "values")

    def __init__(self, type_: DataType, values: Any, valid: Mask | None = None, bounds: tuple[int, int] | None = None) -> None:
        self.type = type_
        self.values = values
        self.valid = valid
        self._bounds = bounds

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Column:
        """Return the column again; its bounds are found when they are asked for."""
        return cls(fields["type"], fields["values"], fields["valid"])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    def validity(self) -> Mask | None:
        """Return the mask of rows that are not NULL, or None when no row is NULL."""
        if not self.type.is_arrow:
            return self.valid
        if self.values.null_count == 0:
            return None
        from millstream.engine.data.arrow import validity_of  # arrow.py builds on this file

        return validity_of(self.values)

    def truths(self) -> Mask:
        """Return where a BOOLEAN column is true: neither false nor NULL."""
        truths: Mask = self.values if self.valid is None else self.values & self.valid
        return truths

    def bounds(self) -> tuple[int, int]:
        """Return (low, high) around all values of an integer-stored column, values under NULL too; found once, kept by selections.

        Not always tight. (0, 0) without rows. Overflow checks are skipped where bounds allow it, so a chunk that many queries read is
        looked through once.
        """
        if self._bounds is None:
            if len(self.values) == 0:
                return 0, 0
            self._bounds = (int(self.values.min()), int(self.values.max()))
        return self._bounds

    def take(self, index: Index) -> Column:
        """Return the rows at the positions `index`."""
        if self.type.is_arrow:
            return Column(self.type, pc.take(self.values, pa.array(index)))
        # `take` needs two thirds of the time that indexing does.
        return Column(self.type, self.values.take(index), None if self.valid is None else self.valid.take(index), self._bounds)

    def filter(self, mask: Mask) -> Column:
        """Return the rows where `mask` is true."""
        if self.type.is_arrow:
            return Column(self.type, pc.filter(self.values, pa.array(mask)))
        return self.take(np.flatnonzero(mask))

    def slice(self, start: int, stop: int) -> Column:
        """Return rows start to stop (excluded) without copying."""
        if self.type.is_arrow:
            return Column(self.type, self.values.slice(start, stop - start))
        valid = None if self.valid is None else self.valid[start:stop]
        return Column(self.type, self.values[start:stop], valid, self._bounds)

    def nbytes(self) -> int:
        """Return the bytes that the values occupy (a wide DECIMAL counts 16 a row)."""
        if self.type.is_wide:
            return 16 * len(self.values)
        if self.type.kind is Kind.TEXT or self.type.kind is Kind.BYTES:
            return _text_nbytes(self.values)
        return int(self.values.nbytes) + (0 if self.valid is None else int(self.valid.nbytes))


@written_as(Column)
class CellColumn(Column):
    """A few values as Python has them, none of them NULL: `values` becomes an array only when someone asks for it.

    A row that comes alone costs less so: a call of NumPy or Arrow takes as long as a dozen lines over plain values. `cells` are int for
    the kinds that are stored as integers (never DECIMAL), float for DOUBLE, bool for BOOLEAN, and for TEXT str that UTF-8 can hold.
    """

    __slots__ = ("_array", "cells")

    def __init__(self, type_: DataType, cells: Sequence[Any]) -> None:
        self.type = type_
        self.cells = cells
        self.valid = None
        self._bounds = None
        self._array: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Be copied and kept as any other column."""
        return Column, (self.type, self.values)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.cells)

    @property
    def values(self) -> Any:
        """The values as an array. Made once; threads that race make the same and the last one's is kept."""
        if self._array is None:
            arrow = self.type.is_arrow
            self._array = text_array(self.cells) if arrow else np.array(self.cells, dtype=numpy_dtype(self.type))
        return self._array

    def validity(self) -> Mask | None:
        """No row is NULL."""
        return None

    def bounds(self) -> tuple[int, int]:
        """As the base says, without making the array."""
        if self._bounds is None:
            self._bounds = (min(self.cells), max(self.cells)) if self.cells else (0, 0)
        return self._bounds

    def slice(self, start: int, stop: int) -> Column:
        """Return rows start to stop (excluded)."""
        return CellColumn(self.type, self.cells[start:stop])

    def nbytes(self) -> int:
        """Return the bytes that the array occupies, or would."""
        rows = len(self.cells)
        if not self.type.is_arrow:
            return _CELL_BYTES[self.type.kind] * rows
        if rows == 1 and self.cells[0].isascii():
            return 4 + len(self.cells[0])
        return 4 * rows + sum([len(cell) if cell.isascii() else len(cell.encode()) for cell in self.cells])


_CELL_BYTES: dict[Kind, int] = {kind: np.dtype(dtype).itemsize for kind, dtype in NUMPY_DTYPES.items()}
_PLAIN_KINDS = frozenset(_CELL_BYTES) - {Kind.DECIMAL}


def one_cell(column: Column, row: int) -> CellColumn | None:
    """Return one row as a column of its own, without an array; None where it is NULL or its kind is no plain value."""
    if type(column) is CellColumn:
        return CellColumn(column.type, (column.cells[row],))
    if column.type.kind in _PLAIN_KINDS:
        if column.valid is not None and not column.valid[row]:
            return None
        return CellColumn(column.type, (column.values.item(row),))
    if column.type.kind is not Kind.TEXT:
        return None
    cell = column.values[row].as_py()
    return None if cell is None else CellColumn(column.type, (cell,))


def text_array(values: Sequence[str]) -> Any:
    """Return a few strings as an Arrow array, in half of the time that `pa.array` takes. UnicodeEncodeError for half a surrogate pair."""
    encoded = [value.encode() for value in values]
    ends = [0, *accumulate(map(len, encoded))]
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(pack(f"={len(ends)}i", *ends)), pa.py_buffer(b"".join(encoded)))


def _text_nbytes(array: Any) -> int:
    """Return the bytes of a string array's characters and offsets. Arrow's own `nbytes` takes twenty times as long."""
    rows = len(array)
    buffer = array.buffers()[1]
    if not rows or buffer is None:
        return 0
    (first,) = _OFFSET.unpack_from(buffer, 4 * array.offset)
    (last,) = _OFFSET.unpack_from(buffer, 4 * (array.offset + rows))
    return int(last - first) + 4 * rows


def concat_columns(columns: list[Column]) -> Column:
    """Return the rows of all columns one after another; all must have the same type, at least one column."""
    first = columns[0]
    if len(columns) == 1:
        return first
    if type(first) is CellColumn and (cells := _joined_cells(columns)) is not None:
        return CellColumn(first.type, cells)
    if first.type.is_arrow:
        return Column(first.type, pa.concat_arrays([c.values for c in columns]))
    values = np.concatenate([c.values for c in columns])
    if all(c.valid is None for c in columns):
        return Column(first.type, values, None, _joint_bounds(columns))
    masks = [np.ones(len(c), dtype=np.bool_) if c.valid is None else c.valid for c in columns]
    return Column(first.type, values, np.concatenate(masks))


@written_as(Column)
class PiecedColumn(Column):
    """An Arrow column whose rows lie in several arrays, at `index` of all of them, or are all of these (None).

    To put runs of rows together costs nothing so, and each text is copied once, when rows leave: `take` returns a plain column. `values`
    makes one array each time it is asked for, so that the column does not hold its rows twice.
    """

    __slots__ = ("index", "pieces", "starts")

    def __init__(self, type_: DataType, pieces: Sequence[Any], index: Index | None = None) -> None:
        self.type = type_
        self.pieces = pieces
        self.starts = [0, *accumulate(map(len, pieces))]
        self.index = index
        self.valid = None
        self._bounds = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Be copied and kept as any other column."""
        return Column, (self.type, self.values)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.starts[-1] if self.index is None else len(self.index)

    @property
    def values(self) -> Any:
        """The rows as one array."""
        return pa.concat_arrays(self.pieces) if self.index is None else _gathered(self.pieces, self.starts, self.index)

    def picked(self, index: Index) -> PiecedColumn:
        """Return the rows at the positions `index` without copying."""
        return PiecedColumn(self.type, self.pieces, index if self.index is None else self.index.take(index))

    def take(self, index: Index) -> Column:
        """Return the rows at the positions `index` in memory of their own."""
        return Column(self.type, self.picked(index).values)

    def filter(self, mask: Mask) -> Column:
        """Return the rows where `mask` is true."""
        return self.take(np.flatnonzero(mask))

    def slice(self, start: int, stop: int) -> Column:
        """Return rows start to stop (excluded) without copying."""
        return self.picked(np.arange(start, stop, dtype=np.int64))

    def nbytes(self) -> int:
        """Return the bytes that the pieces occupy, whichever of their rows are meant."""
        held = sum(Column(self.type, piece).nbytes() for piece in self.pieces)
        return held + (0 if self.index is None else int(self.index.nbytes))


def _gathered(pieces: Sequence[Any], starts: list[int], index: Index) -> Any:
    """Return the rows at positions of all pieces: of each piece by itself where they are few, as to join the pieces copies all rows."""
    if not len(index):
        return pieces[0].slice(0, 0)
    first, last = (bisect_right(starts, int(end)) - 1 for end in (index.min(), index.max()))
    if first == last:
        return pc.take(pieces[first], pa.array(index - starts[first]))
    if FEW_OF * len(index) > starts[-1]:
        return pc.take(pa.concat_arrays(pieces), pa.array(index))
    piece_of = (np.searchsorted(starts, index, side="right") - 1).astype(np.uint8 if len(pieces) <= PIECES_MAX else np.int64)
    order = piece_of.argsort(kind="stable")
    bounds = np.searchsorted(piece_of[order], np.arange(len(pieces) + 1))
    sorted_ = index[order]
    parts = [
        pc.take(piece, pa.array(sorted_[low:high] - start))
        for piece, start, low, high in zip(pieces, starts[:-1], bounds[:-1], bounds[1:], strict=True)
        if high > low
    ]
    return pc.take(pa.concat_arrays(parts), pa.array(_inverse(order)))


def _inverse(order: Index) -> Index:
    inverse = np.empty(len(order), dtype=np.int64)
    inverse[order] = np.arange(len(order), dtype=np.int64)
    return inverse


def chained_columns(columns: Sequence[Column]) -> Column:
    """Return what `concat_columns` does, but copy Arrow columns of many rows only when they lie in too many pieces."""
    first = columns[0]
    if not first.type.is_arrow or sum(map(len, columns)) < PIECED_FROM:
        return concat_columns(list(columns))
    if any(type(column) is PiecedColumn and column.index is not None for column in columns):
        return concat_columns(list(columns))
    pieces = [piece for column in columns for piece in (column.pieces if type(column) is PiecedColumn else (column.values,))]
    return PiecedColumn(first.type, pieces) if len(pieces) <= PIECES_MAX else Column(first.type, pa.concat_arrays(pieces))


def _joined_cells(columns: list[Column]) -> list[Any] | None:
    """Return the cells of all columns, None where one has an array or all together are no longer few."""
    cells: list[Any] = []
    for column in columns:
        if type(column) is not CellColumn:
            return None
        cells += column.cells
    return cells if len(cells) <= CELLS_MAX else None


def _joint_bounds(columns: list[Column]) -> tuple[int, int] | None:
    """Return bounds around the values of all columns where those of each are known."""
    lows, highs = [], []
    for column in columns:
        if column._bounds is None:
            return None
        lows.append(column._bounds[0])
        highs.append(column._bounds[1])
    return min(lows), max(highs)


def null_column(type_: DataType, rows: int) -> Column:
    """Return a column of `rows` NULLs."""
    if type_.kind is Kind.TEXT:
        return Column(type_, pa.nulls(rows, pa.string()))
    if type_.is_arrow:
        from millstream.engine.data.arrow import arrow_type  # arrow.py builds on this file

        return Column(type_, pa.nulls(rows, arrow_type(type_)))
    values = np.zeros(rows, dtype=numpy_dtype(type_))
    return Column(type_, values, np.zeros(rows, dtype=np.bool_))


def counted_rows(argument: Column | None, condition: Column | None) -> Mask | None:
    """Return which rows an aggregate counts: argument not NULL and FILTER true, either None where it is not asked. None when all do."""
    mask = None if argument is None else argument.validity()
    if condition is not None:
        mask = condition.truths() if mask is None else mask & condition.truths()
    return mask


def with_nulls(column: Column, keep: Mask) -> Column:
    """Return the column with NULL where `keep` is false; itself where that is nowhere."""
    if keep.all():
        return column
    if column.type.is_arrow:
        return Column(column.type, pc.if_else(keep, column.values, None))
    return Column(column.type, column.values, keep if column.valid is None else keep & column.valid)


def taken_or_null(column: Column, at: npt.NDArray[np.int64]) -> Column:
    """Return the values at the positions given, NULL at a negative one."""
    known = at >= 0
    if not known.any():
        return null_column(column.type, len(at))
    return with_nulls(column.take(np.where(known, at, 0)), known)
