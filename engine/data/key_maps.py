"""Maps from values to dense ids: a direct table where integers lie close together, a hash table elsewhere, a dict for text.

All work on whole arrays. Ids are handed out by an `IdPool` and reused once freed, so tables indexed by id stay as small as the keys
that are alive.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from sys import getsizeof
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.state.forms import state_record

Int64Array = npt.NDArray[np.int64]

MISSING = -1
TOMBSTONE = -2
DIRECT_SPAN_MIN = 65_536  # a direct table this wide is always worth it
DIRECT_SPAN_PER_KEY = 16
HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio (Knuth, multiplicative hashing)
HASH_SLOTS_MIN = 1024
GONE_PER_KEPT, SLOTS_PER_GONE = 8, 16  # a table that loses more for each that it keeps, and has fewer slots for each, is renewed sooner
_UNSIGNED = np.dtype(np.uint64)
ENCODED_ROWS = 16_384  # more are looked up in parts: what a part needs stays in the processor's cache, and is known to the next one
SAMPLED = 256  # objects that are measured of however many
FREE_IDS_MIN = 16  # for which there is room from the beginning
DICT_ENTRY_BYTES = 104  # key, value and hash, with the room that a dict keeps free


def object_bytes(values: Sequence[object] | npt.NDArray[Any]) -> int:
    """Return about how many bytes Python's own objects take, by some of them: texts, tuples, long numbers."""
    count = len(values)
    if not count:
        return 0
    step = -(-count // SAMPLED)
    sampled = [v for v in values[::step] if v is not None]
    return count * sum(map(getsizeof, sampled)) // -(-count // step)


def array_bytes(array: npt.NDArray[Any]) -> int:
    """Return about how many bytes an array takes, with the objects in it."""
    return int(array.nbytes) + (object_bytes(array.reshape(-1)) if array.dtype == np.object_ else 0)


def _as_array(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "_free": np.array(fields["_free"], dtype=np.int64)}


@state_record("id_pool", 2, ("size", "_free"), migrations={1: _as_array})
class IdPool:
    """Hands out ids 0, 1, 2 …; freed ones come back first, those that were freed last before the others."""

    def __init__(self) -> None:
        self.size = 0
        self._freed: Int64Array = np.empty(FREE_IDS_MIN, dtype=np.int64)
        self._count = 0  # of the freed ids, at the front of the array

    def to_state(self) -> tuple[Any, ...]:
        """Return how many ids there are, and those of them that are free."""
        return self.size, self._freed[: self._count][::-1].copy()

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> IdPool:
        """Return the pool. ValueError where what is free is no row of ids."""
        made, free = cls(), fields["_free"]
        made.size = fields["size"]
        if not isinstance(free, np.ndarray) or free.ndim != 1 or free.dtype != np.int64:
            raise ValueError("the free ids are no row of ids")
        made.give_back(free)
        return made

    def take(self, count: int) -> Int64Array:
        """Return `count` ids; those that were free rise, so that a row of values that comes back is one again."""
        reused = min(count, self._count)
        fresh = np.arange(self.size, self.size + count - reused, dtype=np.int64)
        self.size += count - reused
        if not reused:
            return fresh
        self._count -= reused
        ids = np.sort(self._freed[self._count : self._count + reused])
        return ids if reused == count else np.concatenate((ids, fresh))

    def give_back(self, ids: Int64Array) -> None:
        """Free ids; of several that rise the first ones are handed out first."""
        count = self._count + len(ids)
        if count > len(self._freed):
            grown = np.empty(max(count, 2 * len(self._freed)), dtype=np.int64)
            grown[: self._count] = self._freed[: self._count]
            self._freed = grown
        self._freed[self._count : count] = ids[::-1]
        self._count = count

    @property
    def alive(self) -> int:
        """Ids in use."""
        return self.size - self._count

    def used(self, known: int) -> Int64Array:
        """Return the ids in use. ValueError unless something is known of so many ids as there are."""
        if known != self.size:
            raise ValueError(f"there are {self.size} ids, and something is known of {known}")
        free = np.zeros(self.size, dtype=np.bool_)
        free[self._freed[: self._count]] = True
        return np.flatnonzero(~free)

    def nbytes(self) -> int:
        """Return the bytes of the ids that may be given out again."""
        return int(self._freed.nbytes)


class IntegerMap:
    """int64 values to ids.

    Where the known values are neighbours and were given ids in their order (sensors 1 to 1,000), an id is a difference: nothing is looked
    up, and only the greatest difference of a train says whether all of its values are known.
    """

    _row: tuple[int, int] | None = None  # (least, how many), while the values known are a row without holes that has its ids in order

    def __init__(self) -> None:
        self.pool = IdPool()
        self._base = 0
        self._table: Int64Array | None = np.full(2, MISSING, dtype=np.int64)
        self._hash: HashTable | None = None

    @classmethod
    def of(cls, values: Int64Array, ids: Int64Array, pool: IdPool) -> IntegerMap:
        """Return the map of different values to their ids, which the pool has given out."""
        made = cls()
        made.pool = pool
        if len(values):
            made._insert(values, ids, bounds=(int(values.min()), int(values.max())))
            made._note_row(int(values[0]) - int(ids[0]))
        return made

    def encode(self, values: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return (ids of all values, new values, their ids); unknown values get ids. The ids may be the values themselves."""
        if len(values) == 0:
            return values, _NONE, _NONE
        if len(values) > ENCODED_ROWS:
            return self._encode_parts(values)
        if self._row is not None:
            first, size = self._row
            ids = values - first if first else values
            if 0 <= ids.item(ids.view(_UNSIGNED).argmax()) < size:  # one below the row is the greatest without a sign
                return ids, _NONE, _NONE
        ids, slots = self._search(values)
        if np.minimum.reduce(ids) >= 0:
            return ids, _NONE, _NONE
        unknown = (ids < 0).nonzero()[0]
        sought = values[unknown]
        order = sought.argsort()
        unknown, sought = unknown[order], sought[order]
        begins = np.ones(len(sought), dtype=np.bool_)
        np.not_equal(sought[1:], sought[:-1], out=begins[1:])
        new = sought[begins]
        new_ids = self.pool.take(len(new))
        self._insert(new, new_ids, None if slots is None else slots[unknown[begins]])
        ids[unknown] = new_ids[np.cumsum(begins) - 1]
        self._note_row(int(new[0]) - int(new_ids[0]))
        return ids, new, new_ids

    def _encode_parts(self, values: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Encode a part after the other: only what the parts before have not brought is sorted, and few rows at a time."""
        ids = np.empty(len(values), dtype=np.int64)
        found: list[tuple[Int64Array, Int64Array]] = []
        for start in range(0, len(values), ENCODED_ROWS):
            part = slice(start, start + ENCODED_ROWS)
            ids[part], new, new_ids = self.encode(values[part])
            if len(new):
                found.append((new, new_ids))
        if len(found) < 2:
            return ids, *(found[0] if found else (_NONE, _NONE))
        new, new_ids = (np.concatenate(one) for one in zip(*found, strict=True))
        return ids, new, new_ids

    def _note_row(self, first: int) -> None:
        """Note whether the values known are the row that begins with `first`. What costs more is looked at only where that is likely."""
        self._row = None
        at, size = first - self._base, self.pool.size
        if self._table is None or self.pool.alive < size or not 0 < at <= len(self._table) - size:
            return
        ids = self._table[at : at + size]
        if ids[0] == 0 and ids[-1] == size - 1 and np.array_equal(ids, np.arange(size, dtype=np.int64)):
            self._row = first, size

    def free(self, values: Int64Array, ids: Int64Array) -> None:
        """Forget values; their ids may be given out again."""
        self._row = None
        if self._table is not None:
            self._table[values - self._base] = MISSING
        else:
            assert self._hash is not None
            self._hash.delete(values, ids)
        self.pool.give_back(ids)

    def nbytes(self) -> int:
        """Return the bytes of the table, direct or hashed."""
        held = self._table if self._table is not None else None if self._hash is None else self._hash.slots
        return self.pool.nbytes() + (0 if held is None else int(held.nbytes))

    def find(self, values: Int64Array) -> Int64Array:
        """Return the ids, a negative number where a value is unknown."""
        return self._search(values)[0]

    def _search(self, values: Int64Array) -> tuple[Int64Array, Int64Array | None]:
        """Return ids, MISSING where a value is unknown, and the slots of the hash table that were looked at last."""
        if self._table is not None:
            # The first and the last cell are always empty, so a value outside is clipped to "unknown". Wrap-around cannot hit a
            # used cell: only base + i itself is i away from base modulo 2**64.
            return self._table.take(values - self._base if self._base else values, mode="clip"), None
        assert self._hash is not None
        return self._hash.search(values)

    def _insert(self, values: Int64Array, ids: Int64Array, slots: Int64Array | None = None, bounds: tuple[int, int] | None = None) -> None:
        """Add values, which rise unless their bounds are given."""
        if self._table is not None and not self._fits(*(bounds or (int(values[0]), int(values[-1])))):
            self._to_hash()
        if self._table is not None:
            self._table[values - self._base] = ids
        else:
            assert self._hash is not None
            self._hash.insert(values, ids, slots)

    def _fits(self, low: int, high: int) -> bool:
        """Make the direct table wide enough for [low, high], if that is worth it."""
        assert self._table is not None
        used = np.flatnonzero(self._table >= 0)
        if low > self._base and high < self._base + len(self._table) - 1:
            return True
        if len(used):
            low, high = min(low, self._base + int(used[0])), max(high, self._base + int(used[-1]))
        span = high - low + 1
        if span > max(DIRECT_SPAN_MIN, DIRECT_SPAN_PER_KEY * self.pool.alive):
            return False
        room = min(span, DIRECT_SPAN_MIN)
        base = 0 if 0 < low <= DIRECT_SPAN_MIN and high < DIRECT_SPAN_MIN else low - 1
        table = np.full(high - base + 2 + room // 2, MISSING, dtype=np.int64)
        if base < -(2**62) or high > 2**62:
            return False
        table[used + (self._base - base)] = self._table[used]
        self._base, self._table = base, table
        return True

    def _to_hash(self) -> None:
        assert self._table is not None
        used = np.flatnonzero(self._table >= 0)
        self._hash = HashTable()
        self._hash.insert(used + self._base, self._table[used])
        self._table = None


class HashTable:
    """Open addressing with linear probing over whole arrays: all probes of a round go one slot on together.

    A slot is a value and its id side by side, as each slot looked at in a large table is a wait for memory.
    """

    def __init__(self) -> None:
        self._resize(HASH_SLOTS_MIN)

    def _resize(self, slots: int) -> None:
        self._slots: Int64Array = np.full((slots, 2), MISSING, dtype=np.int64)
        self._shift = np.uint64(64 - (slots.bit_length() - 1))
        self._mask = slots - 1
        self._used = 0  # slots taken, tombstones too
        self._live = 0

    @property
    def slots(self) -> Int64Array:
        """Values and ids, side by side."""
        return self._slots

    def _home(self, values: Int64Array) -> Int64Array:
        mixed: Int64Array = ((values.view(np.uint64) * HASH_MULTIPLIER) >> self._shift).view(np.int64)
        return mixed

    def search(self, values: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the id of each value, MISSING where it is unknown, and the slot that holds it, or the first empty one on its way."""
        values = np.ascontiguousarray(values)
        slots = self._home(values)
        found = self._slots.take(slots, axis=0)
        ids = found[:, 1].copy()
        waiting = (((found[:, 0] != values) | (ids < 0)) & (ids != MISSING)).nonzero()[0]
        while len(waiting):
            at = (slots[waiting] + 1) & self._mask
            slots[waiting] = at
            found = self._slots.take(at, axis=0)
            here = found[:, 1]
            ids[waiting] = here
            waiting = waiting[((found[:, 0] != values[waiting]) | (here < 0)) & (here != MISSING)]
        return ids, slots

    def find(self, values: Int64Array) -> Int64Array:
        """Return the ids, MISSING where a value is unknown."""
        return self.search(values)[0]

    def insert(self, values: Int64Array, ids: Int64Array, slots: Int64Array | None = None) -> None:
        """Add different values that are not known yet; `slots` are where `search` ended for them, if nothing was added since."""
        if 2 * (self._used + len(values)) > self._mask:
            self._grow(len(values))
            slots = None
        self._used += len(values)
        self._live += len(values)
        slots = self.search(values)[1] if slots is None else slots
        held, kept = self._slots[:, 1], self._slots[:, 0]
        waiting = np.arange(len(values))
        while len(waiting):
            at, mine = slots[waiting], ids[waiting]
            free = held[at] == MISSING
            held[at[free]] = mine[free]  # several may want one slot: the last gets it
            won = held[at] == mine
            kept[at[won]] = values[waiting[won]]
            waiting = waiting[~won]
            slots[waiting] = (slots[waiting] + 1) & self._mask

    def _grow(self, extra: int) -> None:
        live = self._slots[self._slots[:, 1] >= 0]
        self._renew(_slots_for(len(live) + extra), live)

    def _renew(self, slots: int, live: Int64Array) -> None:
        """Begin anew with the values and ids given. Memory that has the size already is taken again."""
        if slots == len(self._slots):
            self._slots.fill(MISSING)
            self._used = self._live = 0
        else:
            self._resize(slots)
        if len(live):
            self.insert(live[:, 0].copy(), live[:, 1].copy())

    def delete(self, values: Int64Array, ids: Int64Array) -> None:
        """Remove known values, whose ids are given. Where nearly all go, the table begins anew with the others."""
        stay = self._live - len(values)
        if len(values) < max(GONE_PER_KEPT * stay, len(self._slots) // SLOTS_PER_GONE):
            self._slots[self.search(values)[1], 1] = TOMBSTONE
            self._live = stay
            return
        live = self._slots[:0]
        if stay:
            live = self._slots[self._slots[:, 1] >= 0]
            goes = np.zeros(int(max(ids.max(), live[:, 1].max())) + 1, dtype=np.bool_)
            goes[ids] = True
            live = live[~goes[live[:, 1]]]
        self._renew(_slots_for(self._live), live)  # as many may well come again


def _slots_for(keys: int) -> int:
    """Return how many slots a new table has for so many keys: at most a third of them is taken then, and a half before it grows."""
    slots = HASH_SLOTS_MIN
    while slots < 3 * keys:
        slots *= 2
    return slots


class ObjectMap:
    """Hashable Python values to ids, for what NumPy cannot compare fast; give it the distinct values of a train."""

    def __init__(self) -> None:
        self.pool = IdPool()
        self._ids: dict[Hashable, int] = {}

    @classmethod
    def of(cls, values: Sequence[Hashable], ids: Int64Array, pool: IdPool) -> ObjectMap:
        """Return the map of different values to their ids, which the pool has given out."""
        made = cls()
        made.pool = pool
        made._ids = dict(zip(values, ids.tolist(), strict=True))
        return made

    def encode(self, values: Sequence[Hashable]) -> tuple[Int64Array, list[Hashable], Int64Array]:
        """Return (ids of all values, new values, their ids)."""
        ids = self.find(values)
        if len(ids) == 0 or int(ids.min()) >= 0:
            return ids, [], _NONE
        new = list(dict.fromkeys(v for v, i in zip(values, ids.tolist(), strict=True) if i < 0))
        new_ids = self.pool.take(len(new))
        self._ids.update(zip(new, new_ids.tolist(), strict=True))
        return np.array([self._ids[v] for v in values], dtype=np.int64), new, new_ids

    def find(self, values: Sequence[Hashable]) -> Int64Array:
        """Return the ids, MISSING where a value is unknown."""
        return np.array([self._ids.get(v, MISSING) for v in values], dtype=np.int64)

    def nbytes(self) -> int:
        """Return the bytes of the dict; not those of its keys, which whoever asks for ids holds as well."""
        return self.pool.nbytes() + DICT_ENTRY_BYTES * len(self._ids)

    def free(self, values: Sequence[Hashable], ids: Int64Array) -> None:
        """Forget values."""
        for value in values:
            del self._ids[value]
        self.pool.give_back(ids)


_NONE: Int64Array = np.empty(0, dtype=np.int64)
