"""Tallies: the different values of each group with how often they came, sorted by group and value; and codes for values.

A code is an int64, equal where values are equal as keys (K7). Fixed-width values are their own codes, in the order of the values (a
DOUBLE's bits, turned where it is negative; NaN is the greatest). TEXT, LIST and wide DECIMAL are numbered as they come; their order is
found when somebody asks for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrow import plain_values
from millstream.engine.data.column import Column
from millstream.engine.data.keys import bits_as_values, key_bits, key_encoder
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType, Kind
from millstream.engine.state.forms import state_record

Int64Array = npt.NDArray[np.int64]

_ALL_BUT_SIGN = np.int64(2**63 - 1)
_NUMBERED_MIN = 1_024  # fewer values are not looked through for those that are gone
_PACKED_MAX = 2**62  # group and value fit one number below this


def _none() -> Int64Array:
    return np.empty(0, dtype=np.int64)


@state_record("code_counts", 1)
@dataclass(frozen=True, slots=True)
class CodeCounts:
    """Three arrays of one length: group, code of the value, count."""

    groups: Int64Array = field(default_factory=_none)
    codes: Int64Array = field(default_factory=_none)
    counts: Int64Array = field(default_factory=_none)

    def __len__(self) -> int:
        """Return the number of different values, summed over the groups."""
        return len(self.codes)

    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        return int(self.groups.nbytes + self.codes.nbytes + self.counts.nbytes)


def tally_rows(groups: Int64Array, codes: Int64Array) -> CodeCounts:
    """Count rows."""
    if not len(codes):
        return CodeCounts()
    low, span = int(codes.min()), int(codes.max()) - int(codes.min()) + 1
    if (int(groups.max()) + 1) * span < _PACKED_MAX:
        keys, counts = np.unique(groups * span + (codes - low), return_counts=True)
        return CodeCounts(keys // span, keys % span + low, counts.astype(np.int64, copy=False))
    return _summed(groups, codes, np.ones(len(codes), dtype=np.int64))


def merged(parts: list[CodeCounts]) -> CodeCounts:
    """Put tallies together."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else CodeCounts()
    arrays = ([getattr(part, name) for part in parts] for name in ("groups", "codes", "counts"))
    return _summed(*(np.concatenate(one) for one in arrays))


def _summed(groups: Int64Array, codes: Int64Array, counts: Int64Array) -> CodeCounts:
    order = _by_group(groups, codes)
    groups, codes = groups[order], codes[order]
    starts = np.flatnonzero(np.concatenate((np.ones(1, dtype=np.bool_), (groups[1:] != groups[:-1]) | (codes[1:] != codes[:-1]))))
    return CodeCounts(groups[starts], codes[starts], np.add.reduceat(counts[order], starts))


def _by_group(groups: Int64Array, codes: Int64Array) -> Int64Array:
    """Return the order by group and code."""
    low = int(codes.min())
    span = int(codes.max()) - low + 1
    if (int(groups.max()) + 1) * span < _PACKED_MAX:
        return np.argsort(groups * span + (codes - low), kind="stable")  # tallies are in this order, and what is sorted in runs is merged
    order: Int64Array = np.argsort(codes, kind="stable")
    if groups[0] == groups[-1] and (groups == groups[0]).all():
        return order
    ranked = groups[order]
    if int(ranked.max()) <= np.iinfo(np.int16).max:
        ranked = ranked.astype(np.int16)  # NumPy sorts 16 bits by radix
    regrouped: Int64Array = order[np.argsort(ranked, kind="stable")]
    return regrouped


class ValueCodes(ABC):
    """Codes for the values of a column without NULLs, and the way back."""

    @abstractmethod
    def encode(self, column: Column) -> Int64Array:
        """Return a code a row."""

    @abstractmethod
    def ordered(self, codes: Int64Array) -> Int64Array:
        """Return codes in place of these that stand in the order of the values."""

    @abstractmethod
    def column(self, ordered: Int64Array) -> Column:
        """Return the values of `ordered` codes."""

    def keep_only(self, live: list[Int64Array]) -> None:
        """Forget values that are in none of these codes, if that is worth the while."""

    def nbytes(self) -> int:
        """Return about how many bytes are kept here."""
        return 0


@state_record("fixed_codes", 1, ("_type",))
class FixedCodes(ValueCodes):
    """Codes of fixed-width values."""

    def __init__(self, type_: DataType) -> None:
        self._type = type_

    def encode(self, column: Column) -> Int64Array:
        """Return the bits in order."""
        bits = key_bits(column)
        return _turned(bits) if self._type.kind is Kind.DOUBLE else bits

    def ordered(self, codes: Int64Array) -> Int64Array:
        """They are."""
        return codes

    def column(self, ordered: Int64Array) -> Column:
        """Turn the bits back."""
        bits = _turned(ordered) if self._type.kind is Kind.DOUBLE else ordered
        return Column(self._type, bits_as_values(bits, self._type))


def _turned(bits: Int64Array) -> Int64Array:
    turned: Int64Array = bits ^ ((bits >> 63) & _ALL_BUT_SIGN)
    return turned


@state_record("numbered_codes", 1, ("_type", "_encoder", "_known", "_worth"))
class NumberedCodes(ValueCodes):
    """Numbers of values that are looked up in a table."""

    def __init__(self, type_: DataType) -> None:
        self._type = type_
        self._encoder = key_encoder([type_])
        self._known = np.zeros(0, dtype=np.bool_)  # per code
        self._worth = _NUMBERED_MIN
        self._order: Int64Array | None = None  # codes in the order of their values
        self._ranks: Int64Array = np.zeros(0, dtype=np.int64)

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> NumberedCodes:
        """Return the codes; their order is found when it is asked for."""
        made = cls(fields["_type"])
        vars(made).update(fields)
        return made

    def encode(self, column: Column) -> Int64Array:
        """Return the numbers, new ones for new values."""
        alive = self._encoder.alive
        codes = self._encoder.encode([column])
        if self._encoder.size > len(self._known):
            room = max(self._encoder.size, 2 * len(self._known)) - len(self._known)
            self._known = np.concatenate((self._known, np.zeros(room, dtype=np.bool_)))
        self._known[codes] = True
        if self._encoder.alive != alive:
            self._order = None
        return codes

    def ordered(self, codes: Int64Array) -> Int64Array:
        """Return ranks among all values known."""
        if self._order is None:
            known = np.flatnonzero(self._known)
            column = self._encoder.columns(known)[0]
            plain = plain_values(column) if self._type.is_arrow else column.values.tolist()
            keys = plain if self._type.is_ordered else [repr(v) for v in plain]
            self._order = known[sorted(range(len(plain)), key=keys.__getitem__)] if len(known) else known
            self._ranks = np.zeros(len(self._known), dtype=np.int64)
            self._ranks[self._order] = np.arange(len(self._order), dtype=np.int64)
        ranks: Int64Array = self._ranks[codes]
        return ranks

    def column(self, ordered: Int64Array) -> Column:
        """Return the values of ranks."""
        assert self._order is not None
        return self._encoder.columns(self._order[ordered])[0]

    def keep_only(self, live: list[Int64Array]) -> None:
        """Free the numbers of values that are gone, once these may be half of all."""
        if self._encoder.alive <= self._worth:
            return
        here = np.zeros(len(self._known), dtype=np.bool_)
        for codes in live:
            here[codes] = True
        self._encoder.free(np.flatnonzero(self._known & ~here))
        self._known, self._order = here, None
        self._worth = max(_NUMBERED_MIN, 2 * self._encoder.alive)

    def nbytes(self) -> int:
        """Return about how many bytes the table has."""
        return 128 * self._encoder.alive


def value_codes(type_: DataType) -> ValueCodes:
    """Return the codes for a column's type."""
    return NumberedCodes(type_) if type_.is_arrow or type_.is_wide else FixedCodes(type_)
