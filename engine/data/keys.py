"""Group keys and join keys as dense ids (K6, K7): -0.0 equals 0.0, all NaNs are one key, NULLs are one group.

A `KeyEncoder` maps the key columns of a train to ids that tables can be indexed by, remembers each id's values for the answer, and
frees ids whose groups are gone. Several columns become one number (`PackedKeys`) where all are of fixed width and no DOUBLE, else pairs
of the ids of both halves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from sys import getsizeof
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.arrays import distinct
from millstream.engine.data.arrow import arrow_type, plain_values
from millstream.engine.data.column import Column, Mask, numpy_dtype
from millstream.engine.data.key_maps import MISSING, IdPool, Int64Array, IntegerMap, ObjectMap, object_bytes
from millstream.engine.data.types import FLAT_ARROW_KINDS, DataType, Kind
from millstream.engine.state.forms import state_record
from millstream.protocol.values import arrow_functions as pc

KEYS_MIN = 16  # for which there is room from the beginning
STRIDE_MIN = 64
MANY_PARTS = 8  # of pairs that go: a pass over all parts is shorter where these are at most so many times as many
CODE_BITS_MAX = 62  # of a packed key


def key_bits(column: Column) -> Int64Array:
    """Return int64 values that are equal where the keys of a fixed-width column are (NULLs aside)."""
    values = column.values
    if column.type.kind is Kind.DOUBLE:
        canonical = values + 0.0  # -0.0 becomes 0.0
        missing = np.isnan(canonical)
        if missing.any():
            canonical[missing] = np.nan
        bits: Int64Array = canonical.view(np.int64)
        return bits
    if values.dtype != np.int64:
        wide: Int64Array = values.astype(np.int64)
        return wide
    same: Int64Array = values
    return same


def bits_as_values(bits: Int64Array, type_: DataType) -> npt.NDArray[Any]:
    """Return the values whose `key_bits` are given."""
    if type_.kind is Kind.DOUBLE:
        return bits.view(np.float64)
    return bits.astype(numpy_dtype(type_), copy=False)


class KeyEncoder(ABC):
    """Ids for the keys of some columns."""

    @property
    @abstractmethod
    def types(self) -> tuple[DataType, ...]:
        """The columns' types."""

    @property
    @abstractmethod
    def size(self) -> int:
        """One more than the greatest id."""

    @property
    @abstractmethod
    def alive(self) -> int:
        """Keys known."""

    @abstractmethod
    def encode(self, columns: Sequence[Column]) -> Int64Array:
        """Return an id a row; not to be written to, as they may be the column's own values."""

    @abstractmethod
    def find(self, columns: Sequence[Column]) -> Int64Array:
        """Return an id a row as `encode` does, and a negative number where the key is not known: nothing is remembered."""

    @abstractmethod
    def columns(self, ids: Int64Array) -> list[Column]:
        """Return the key columns for ids."""

    @abstractmethod
    def free(self, ids: Int64Array) -> None:
        """Forget keys."""

    @abstractmethod
    def nbytes(self) -> int:
        """Return about how many bytes the keys known take."""


@state_record("no_keys", 1, ())
class NoKeys(KeyEncoder):
    """All rows are one group, id 0."""

    @property
    def types(self) -> tuple[DataType, ...]:
        """None."""
        return ()

    @property
    def size(self) -> int:
        """One."""
        return 1

    @property
    def alive(self) -> int:
        """One."""
        return 1

    def encode(self, columns: Sequence[Column]) -> Int64Array:
        """There is no column to tell how many rows; callers with no keys do not ask."""
        raise NotImplementedError  # an answer would be a guess

    find = encode

    def columns(self, ids: Int64Array) -> list[Column]:
        """No columns."""
        return []

    def free(self, ids: Int64Array) -> None:
        """The one group stays."""

    def nbytes(self) -> int:
        """Nothing."""
        return 0


@state_record("number_key", 1, ("type", "bits", "null_id", "pool"))
class NumberKey(KeyEncoder):
    """One fixed-width column."""

    _is_bits = False  # its values are their own `key_bits`

    def __init__(self, type_: DataType) -> None:
        self._type = type_
        self._is_bits = numpy_dtype(type_) == np.dtype(np.int64)
        self._map = IntegerMap()
        self._bits: Int64Array = np.zeros(KEYS_MIN, dtype=np.int64)
        self._null_id: int | None = None

    def to_state(self) -> tuple[Any, ...]:
        """Return the type, the bits of each id's key, the id of NULL, and which ids are in use."""
        bits = self._bits[: self.size]
        room = np.zeros(self.size - len(bits), dtype=np.int64)  # NULL, which has none, may be the last
        return self._type, np.concatenate((bits, room)) if len(room) else bits, self._null_id, self._map.pool

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> NumberKey:
        """Look up the keys by a table of its own making."""
        made, bits, pool = cls(fields["type"]), fields["bits"], fields["pool"]
        made._null_id = fields["null_id"]
        used = pool.used(len(bits))
        if made._null_id is not None:
            used = used[used != made._null_id]
        made._map = IntegerMap.of(bits[used], used, pool)
        made._bits = np.concatenate((bits, np.zeros(max(0, KEYS_MIN - len(bits)), dtype=np.int64)))
        return made

    @property
    def types(self) -> tuple[DataType, ...]:
        """The one type."""
        return (self._type,)

    @property
    def size(self) -> int:
        """One more than the greatest id."""
        return self._map.pool.size

    @property
    def alive(self) -> int:
        """Keys known."""
        return self._map.pool.alive

    def encode(self, columns: Sequence[Column]) -> Int64Array:
        """Look values up; NULL rows get the id of NULL."""
        column = columns[0]
        bits = column.values if self._is_bits else key_bits(column)
        if column.valid is None:
            return self._encode_bits(bits)
        ids = np.empty(len(bits), dtype=np.int64)
        ids[column.valid] = self._encode_bits(bits[column.valid])
        missing = ~column.valid
        if missing.any():
            if self._null_id is None:
                self._null_id = int(self._map.pool.take(1)[0])
            ids[missing] = self._null_id
        return ids

    def find(self, columns: Sequence[Column]) -> Int64Array:
        """Look values up; NULL rows get the id of NULL if there is one."""
        column = columns[0]
        ids = self._map.find(column.values if self._is_bits else key_bits(column))
        if column.valid is None:
            return ids
        return np.where(column.valid, ids, MISSING if self._null_id is None else self._null_id)

    def _encode_bits(self, bits: Int64Array) -> Int64Array:
        ids, new, new_ids = self._map.encode(bits)
        if len(new_ids):
            self._bits = _with(self._bits, self.size, new, new_ids)
        return ids

    def columns(self, ids: Int64Array) -> list[Column]:
        """Return the column of values."""
        if self._null_id is not None and self._null_id >= len(self._bits):
            self._bits = np.concatenate((self._bits, np.zeros(len(self._bits), dtype=np.int64)))
        values = bits_as_values(self._bits[ids], self._type)
        if self._null_id is None:
            return [Column(self._type, values)]
        valid = ids != self._null_id
        return [Column(self._type, values, None if valid.all() else valid)]

    def free(self, ids: Int64Array) -> None:
        """Forget values."""
        if self._null_id is not None and (ids == self._null_id).any():
            self._map.pool.give_back(np.array([self._null_id], dtype=np.int64))
            ids, self._null_id = ids[ids != self._null_id], None
        self._map.free(self._bits[ids], ids)

    def nbytes(self) -> int:
        """Return the bytes of the table and of the values."""
        return self._map.nbytes() + int(self._bits.nbytes)


@state_record("object_key", 1, ("type", "values", "pool"))
class ObjectKey(KeyEncoder):
    """One TEXT, nested or wide DECIMAL column; only the distinct values of a train are looked up in Python."""

    def __init__(self, type_: DataType) -> None:
        self._type = type_
        self._map = ObjectMap()
        self._values: list[Any] = []

    def to_state(self) -> tuple[Any, ...]:
        """Return the type, each id's key, and which ids are in use."""
        return self._type, self._values, self._map.pool

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> ObjectKey:
        """Look up the keys by a table of its own making."""
        made = cls(fields["type"])
        made._values, pool = fields["values"], fields["pool"]
        used = pool.used(len(made._values))
        keys = made._values if len(used) == len(made._values) else [made._values[i] for i in used.tolist()]
        made._map = ObjectMap.of(keys, used, pool)
        return made

    @property
    def types(self) -> tuple[DataType, ...]:
        """The one type."""
        return (self._type,)

    @property
    def size(self) -> int:
        """One more than the greatest id."""
        return self._map.pool.size

    @property
    def alive(self) -> int:
        """Keys known."""
        return self._map.pool.alive

    def encode(self, columns: Sequence[Column]) -> Int64Array:
        """Encode the train's own dictionary, then each row through it."""
        distinct, places = _distinct_values(columns[0])
        ids, new, new_ids = self._map.encode(distinct)
        self._values.extend([None] * (self.size - len(self._values)))
        for value, new_id in zip(new, new_ids.tolist(), strict=True):
            self._values[new_id] = value
        found: Int64Array = ids[places]
        return found

    def find(self, columns: Sequence[Column]) -> Int64Array:
        """Look each value of the train's dictionary up."""
        distinct, places = _distinct_values(columns[0])
        ids: Int64Array = self._map.find(distinct)[places]
        return ids

    def columns(self, ids: Int64Array) -> list[Column]:
        """Return the column of values."""
        values = [self._values[i] for i in ids.tolist()]
        if self._type.is_arrow:
            return [Column(self._type, pa.array(values, type=arrow_type(self._type)))]
        valid = np.array([v is not None for v in values], dtype=np.bool_)
        filled = np.empty(len(values), dtype=np.object_)
        filled[:] = [0 if v is None else v for v in values]
        return [Column(self._type, filled, None if valid.all() else valid)]

    def free(self, ids: Int64Array) -> None:
        """Forget values."""
        plain = ids.tolist()
        self._map.free([self._values[i] for i in plain], ids)
        for i in plain:
            self._values[i] = None

    def nbytes(self) -> int:
        """Return the bytes of the table and of the values."""
        return self._map.nbytes() + getsizeof(self._values) + object_bytes(self._values)


def _distinct_values(column: Column) -> tuple[list[Any], Int64Array]:
    """Return a column's different values, NULL as None, and the place of each row's among them."""
    if column.type.kind in FLAT_ARROW_KINDS:
        encoded = pc.dictionary_encode(column.values, null_encoding="encode")
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
    plain = _hashable_values(column)
    distinct = list(dict.fromkeys(plain))
    place_of = {v: i for i, v in enumerate(distinct)}
    return distinct, np.array([place_of[v] for v in plain], dtype=np.int64)


def _hashable_values(column: Column) -> list[Any]:
    if column.type.is_arrow:
        return [tuple(v) if isinstance(v, list) else v for v in plain_values(column)]
    values = column.values.tolist()
    if column.valid is None:
        return list(values)
    return [v if ok else None for v, ok in zip(values, column.valid.tolist(), strict=True)]


@state_record("pair_key", 1, ("left", "left_width", "right", "stride", "pairs", "pool"))
class PairKey(KeyEncoder):
    """Several columns: the keys of the first half and of the second, joined. Parts are freed when no pair needs them."""

    def __init__(self, left: KeyEncoder, left_width: int, right: KeyEncoder) -> None:
        self._left, self._right = left, right
        self._left_width = left_width
        self._map = IntegerMap()
        self._stride = STRIDE_MIN
        self._pairs: Int64Array = np.zeros((2, KEYS_MIN), dtype=np.int64)
        self._uses: list[Int64Array] = [np.zeros(KEYS_MIN, dtype=np.int64), np.zeros(KEYS_MIN, dtype=np.int64)]
        self._dead: Int64Array = np.ones(KEYS_MIN, dtype=np.int64)  # 1 where an id is not in use

    def to_state(self) -> tuple[Any, ...]:
        """Return both parts, the pairs of ids, and which are in use."""
        return self._left, self._left_width, self._right, self._stride, self._pairs[:, : self.size], self._map.pool

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> KeyEncoder:
        """Return the pairs, in place of packed keys where there could be these, as older releases had pairs of all columns."""
        made = cls._made(fields)
        return PackedKeys.in_pairs(made) if _can_be_packed(made.types) else made

    @classmethod
    def _made(cls, fields: dict[str, Any]) -> PairKey:
        """Look up the pairs by a table of its own making, and count the uses of their parts again. ValueError when some have no parts."""
        made, pairs, pool = cls(fields["left"], fields["left_width"], fields["right"]), fields["pairs"], fields["pool"]
        made._stride = fields["stride"]
        used = pool.used(pairs.shape[1])
        room = max(0, KEYS_MIN - pool.size)
        made._pairs = np.concatenate((pairs, np.zeros((2, room), dtype=np.int64)), axis=1)
        made._dead = np.ones(pool.size + room, dtype=np.int64)
        made._dead[used] = 0
        for side, encoder in enumerate((made._left, made._right)):
            if len(used) and not 0 <= int(pairs[side, used].min()) <= int(pairs[side, used].max()) < encoder.size:
                raise ValueError("a pair of keys has a part that is not known")
            made._uses[side] = np.bincount(pairs[side, used], minlength=max(encoder.size, KEYS_MIN))
        made._map = IntegerMap.of(pairs[0, used] * made._stride + pairs[1, used], used, pool)
        return made

    @classmethod
    def of(cls, left: KeyEncoder, left_width: int, right: KeyEncoder, columns: Sequence[Column], ids: Int64Array, pool: IdPool) -> PairKey:
        """Return the pairs of different keys, with the ids that a pool has given them. The parts know nothing yet."""
        pairs = np.zeros((2, pool.size), dtype=np.int64)
        pairs[0, ids] = left.encode(columns[:left_width])
        pairs[1, ids] = right.encode(columns[left_width:])
        stride = STRIDE_MIN
        while stride < right.size:
            stride *= 4
        return cls._made({"left": left, "left_width": left_width, "right": right, "stride": stride, "pairs": pairs, "pool": pool})

    @property
    def types(self) -> tuple[DataType, ...]:
        """Those of both parts."""
        return self._left.types + self._right.types

    @property
    def size(self) -> int:
        """One more than the greatest id."""
        return self._map.pool.size

    @property
    def alive(self) -> int:
        """Keys known."""
        return self._map.pool.alive

    def encode(self, columns: Sequence[Column]) -> Int64Array:
        """Encode both parts, then the pairs of ids."""
        left = self._left.encode(columns[: self._left_width])
        right = self._right.encode(columns[self._left_width :])
        if self._right.size > self._stride:
            self._restride()
        ids, new, new_ids = self._map.encode(left * self._stride + right)
        if len(new_ids):
            self._remember(new, new_ids)
        return ids

    def find(self, columns: Sequence[Column]) -> Int64Array:
        """Look both parts up, then the pairs of those that are known."""
        left = self._left.find(columns[: self._left_width])
        right = self._right.find(columns[self._left_width :])
        known = (left >= 0) & (right >= 0)
        if known.all():
            return self._map.find(left * self._stride + right)
        ids = np.full(len(left), MISSING, dtype=np.int64)
        ids[known] = self._map.find(left[known] * self._stride + right[known])
        return ids

    def _remember(self, new: Int64Array, new_ids: Int64Array) -> None:
        if self.size > self._pairs.shape[1]:
            room = max(self.size, self._pairs.shape[1])
            self._pairs = np.concatenate((self._pairs, np.zeros((2, room), dtype=np.int64)), axis=1)
            self._dead = np.concatenate((self._dead, np.ones(room, dtype=np.int64)))
        self._pairs[0, new_ids], self._pairs[1, new_ids] = np.divmod(new, self._stride)
        self._dead[new_ids] = 0
        for side, encoder in enumerate((self._left, self._right)):
            uses = self._uses[side]
            if encoder.size > len(uses):
                uses = np.concatenate((uses, np.zeros(max(encoder.size, len(uses)), dtype=np.int64)))
                self._uses[side] = uses
            np.add.at(uses, self._pairs[side, new_ids], 1)

    def _restride(self) -> None:
        """Make room for more ids on the right: pair numbers change, pair ids stay."""
        while self._stride < self._right.size:
            self._stride *= 4
        live = np.flatnonzero(self._dead == 0)
        pool = self._map.pool
        self._map = IntegerMap()
        if len(live):
            self._map._insert(*_sorted_pairs(self._pairs[0, live] * self._stride + self._pairs[1, live], live))
        self._map.pool = pool

    def columns(self, ids: Int64Array) -> list[Column]:
        """Return the key columns."""
        return [*self._left.columns(self._pairs[0, ids]), *self._right.columns(self._pairs[1, ids])]

    def free(self, ids: Int64Array) -> None:
        """Forget pairs, and parts that no other pair has."""
        self._map.free(self._pairs[0, ids] * self._stride + self._pairs[1, ids], ids)
        self._dead[ids] = 1
        for side, encoder in enumerate((self._left, self._right)):
            parts = self._pairs[side, ids]
            unused = self._unused(self._uses[side], parts)
            if len(unused):
                encoder.free(unused)

    @staticmethod
    def _unused(uses: Int64Array, parts: Int64Array) -> Int64Array:
        """Count a use less for each of the parts; return those of them that have none left, rising."""
        if MANY_PARTS * len(parts) < len(uses):
            np.subtract.at(uses, parts, 1)
            return distinct(parts[uses[parts] == 0])
        gone = np.bincount(parts, minlength=len(uses))
        uses -= gone
        found: Int64Array = ((gone > 0) & (uses == 0)).nonzero()[0]
        return found

    def nbytes(self) -> int:
        """Return the bytes of the pairs and of both parts."""
        own = self._map.nbytes() + int(self._pairs.nbytes + self._dead.nbytes) + sum(int(uses.nbytes) for uses in self._uses)
        return own + self._left.nbytes() + self._right.nbytes()


@state_record("packed_keys", 1, ("types", "lows", "widths", "codes", "pool", "pairs"))
class PackedKeys(KeyEncoder):
    """Several columns of fixed width, packed into one number, so that one table is asked, and not one for each column and pair of them.

    A column has as many bits as its values needed so far: each is kept as its distance from `low`, NULL as all ones. When one comes that
    has no place, its column gets more bits and all known keys are packed anew, so this happens a few dozen times at most. Where
    CODE_BITS_MAX no longer hold a key, they are pairs from then on.
    """

    def __init__(self, types: Sequence[DataType]) -> None:
        self._types = tuple(types)
        self._lows = [0] * len(types)
        self._widths = [0] * len(types)
        self._map = IntegerMap()
        self._codes: Int64Array = np.zeros(KEYS_MIN, dtype=np.int64)
        self._pairs: PairKey | None = None  # in place of all of these

    def to_state(self) -> tuple[Any, ...]:
        """Return the types, how keys are packed, the code of each id, and which ids are in use; or the pairs."""
        if self._pairs is not None:
            return self._types, [], [], self._codes[:0], None, self._pairs
        return self._types, self._lows, self._widths, self._codes[: self.size], self._map.pool, None

    @classmethod
    def in_pairs(cls, pairs: PairKey) -> PackedKeys:
        """Return what gives these pairs in place of packed keys."""
        made = cls(pairs.types)
        made._pairs = pairs
        return made

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> PackedKeys:
        """Look up the keys by a table of its own making. ValueError where they are not packed as they can be."""
        pairs = fields["pairs"]
        if isinstance(pairs, cls):
            return pairs
        made = cls(fields["types"])
        made._lows, made._widths, codes, pool = fields["lows"], fields["widths"], fields["codes"], fields["pool"]
        if not len(made._lows) == len(made._widths) == len(made._types) or min(made._widths) < 0 or sum(made._widths) > CODE_BITS_MAX:
            raise ValueError("keys of several columns are packed in another way than theirs")
        used = pool.used(len(codes))
        made._map = IntegerMap.of(codes[used], used, pool)
        made._codes = np.concatenate((codes, np.zeros(max(0, KEYS_MIN - len(codes)), dtype=np.int64)))
        return made

    @property
    def types(self) -> tuple[DataType, ...]:
        """As they were given."""
        return self._types

    @property
    def size(self) -> int:
        """One more than the greatest id."""
        return self._map.pool.size if self._pairs is None else self._pairs.size

    @property
    def alive(self) -> int:
        """Keys known."""
        return self._map.pool.alive if self._pairs is None else self._pairs.alive

    def encode(self, columns: Sequence[Column]) -> Int64Array:
        """Look the packed keys up, or the pairs."""
        if self._pairs is None:
            codes = self._packed(columns)
            if codes is None and self._widen(columns):
                codes = self._packed(columns)
            if codes is not None:
                return self._encode_codes(codes)
        assert self._pairs is not None
        return self._pairs.encode(columns)

    def _encode_codes(self, codes: Int64Array) -> Int64Array:
        ids, new, new_ids = self._map.encode(codes)
        if len(new_ids):
            self._codes = _with(self._codes, self.size, new, new_ids)
        return ids

    def find(self, columns: Sequence[Column]) -> Int64Array:
        """Look the packed keys up, or the pairs; one that has no place is not known."""
        if self._pairs is not None:
            return self._pairs.find(columns)
        codes = self._packed(columns)
        if codes is not None:
            return self._map.find(codes)
        ids = np.full(len(columns[0]), MISSING, dtype=np.int64)
        if not self.alive:
            return ids
        fits = np.ones(len(ids), dtype=np.bool_)
        for column, low, width in zip(columns, self._lows, self._widths, strict=True):
            fits &= _has_place(key_bits(column) - low, column.valid, width)
        codes = self._packed([column.filter(fits) for column in columns])
        assert codes is not None
        ids[fits] = self._map.find(codes)
        return ids

    def _packed(self, columns: Sequence[Column]) -> Int64Array | None:
        """Return the codes of keys; None where a value has no place."""
        codes: Int64Array | None = None
        for column, low, width in zip(columns, self._lows, self._widths, strict=True):
            part = key_bits(column)
            if not len(part):
                return part
            if low:
                part = part - low
            null = (1 << width) - 1
            if column.valid is not None:
                part = np.where(column.valid, part, 0)
            if part.item(part.view(np.uint64).argmax()) not in range(null):  # one below `low` is the greatest without a sign
                return None
            if column.valid is not None:
                part[~column.valid] = null
            if codes is None:
                codes = part
            else:
                codes = codes << width
                codes |= part
        return codes

    def _unpacked(self, codes: Int64Array) -> list[Column]:
        columns: list[Column] = []
        for type_, low, width in zip(reversed(self._types), reversed(self._lows), reversed(self._widths), strict=True):
            part, codes = codes & ((1 << width) - 1), codes >> width
            valid = part != (1 << width) - 1
            if low:
                part += low
            if valid.all():
                columns.append(Column(type_, bits_as_values(part, type_)))
            else:
                columns.append(Column(type_, bits_as_values(np.where(valid, part, 0), type_), valid))
        return columns[::-1]

    def _widen(self, columns: Sequence[Column]) -> bool:
        """Pack the known keys anew, so that those given have places, too; False where they must become pairs, and now are."""
        pool = self._map.pool
        used = pool.used(self.size)
        known = self._unpacked(self._codes[used])
        for place, both in enumerate(zip(known, columns, strict=True)):
            least, greatest = _span_of(both)
            low, width = self._lows[place], self._widths[place]
            if not low <= least <= greatest < low + (1 << width) - 1:
                self._widths[place] = max((greatest - least + 1).bit_length(), width + 1)
                self._lows[place] = _low_of(least, greatest, self._widths[place], falls=least < low)
        if sum(self._widths) > CODE_BITS_MAX:
            half = (len(self._types) + 1) // 2
            self._pairs = PairKey.of(key_encoder(self._types[:half]), half, key_encoder(self._types[half:]), known, used, pool)
            self._map, self._codes = IntegerMap(), self._codes[:0]
            return False
        codes = self._packed(known)
        assert codes is not None
        self._codes[used] = codes
        self._map = IntegerMap.of(codes, used, pool)
        return True

    def columns(self, ids: Int64Array) -> list[Column]:
        """Return the key columns."""
        return self._unpacked(self._codes[ids]) if self._pairs is None else self._pairs.columns(ids)

    def free(self, ids: Int64Array) -> None:
        """Forget keys."""
        if self._pairs is None:
            self._map.free(self._codes[ids], ids)
        else:
            self._pairs.free(ids)

    def nbytes(self) -> int:
        """Return the bytes of the table and of the codes, or of the pairs."""
        return self._map.nbytes() + int(self._codes.nbytes) if self._pairs is None else self._pairs.nbytes()


def _with(held: Int64Array, size: int, new: Int64Array, ids: Int64Array) -> Int64Array:
    """Return what is held of each of so many ids, with new values at some of them; it grows to twice its length."""
    if size > len(held):
        held = np.concatenate((held, np.zeros(max(size, len(held)), dtype=np.int64)))
    held[ids] = new
    return held


def _has_place(above: Int64Array, valid: Mask | None, width: int) -> Mask:
    """Return which values, told by how far they lie above the least one, have a place among so many bits."""
    fits: Mask = above.view(np.uint64) < (1 << width) - 1
    return fits if valid is None else fits | ~valid


def _span_of(columns: Sequence[Column]) -> tuple[int, int]:
    """Return the least and the greatest value of several columns that are no NULL; zeros where there are none."""
    values = [key_bits(c) if c.valid is None else key_bits(c)[c.valid] for c in columns]
    values = [v for v in values if len(v)]
    return (min(int(v.min()) for v in values), max(int(v.max()) for v in values)) if values else (0, 0)


def _low_of(least: int, greatest: int, width: int, *, falls: bool) -> int:
    """Return where the places of a column begin: at zero if that will do, else so that there are more where values go."""
    places = (1 << width) - 1
    if least >= 0 and greatest < places:
        return 0
    return max(least - (places - (greatest - least + 1) if falls else 0), -(2**63))


def key_encoder(types: Sequence[DataType]) -> KeyEncoder:
    """Return the encoder for key columns of these types. Its parts lie as deep as the logarithm of the columns, as states are bounded."""
    if not types:
        return NoKeys()
    if len(types) == 1:
        return _single(types[0])
    if _can_be_packed(types):
        return PackedKeys(types)
    left_width = (len(types) + 1) // 2
    return PairKey(key_encoder(types[:left_width]), left_width, key_encoder(types[left_width:]))


def _can_be_packed(types: Sequence[DataType]) -> bool:
    return not any(t.is_arrow or t.is_wide or t.kind is Kind.DOUBLE for t in types)


def _single(type_: DataType) -> KeyEncoder:
    return ObjectKey(type_) if type_.is_arrow or type_.is_wide else NumberKey(type_)


def _sorted_pairs(values: Int64Array, ids: Int64Array) -> tuple[Int64Array, Int64Array]:
    order = np.argsort(values)
    return values[order], ids[order]
