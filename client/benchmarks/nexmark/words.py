"""Random texts, a column at a time: what the records of NEXMark are filled with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_SPECIAL_ODDS = 13  # one character in so many is the special one


def _table(special: str) -> bytes:
    """Return a letter for each value of a random byte: the special one as often as it shall be, the others evenly."""
    specials = round(256 / _SPECIAL_ODDS) if special else 0
    return special.encode() * specials + bytes(_LETTERS[value % len(_LETTERS)] for value in range(256 - specials))


_TABLES = {special: _table(special) for special in ("", " ", "_")}


def texts(random: np.random.Generator, lengths: Any, special: str = "") -> pa.StringArray:
    """Return a text of random letters for each length; one letter in thirteen is `special`. Spaces at the ends of a text are cut off."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    letters = random.bytes(int(offsets[-1])).translate(_TABLES[special])
    made = pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters))
    return pc.utf8_trim(made, " ") if special == " " else made


def words(random: np.random.Generator, count: int, characters_max: int, special: str) -> pa.StringArray:
    """Return so many words of 3 up to `characters_max` - 1 characters."""
    return texts(random, 3 + random.integers(0, characters_max - 3, count), special)


def paddings(random: np.random.Generator, bytes_before: Any, bytes_mean: int) -> pa.StringArray:
    """Return texts that bring records of so many bytes to `bytes_mean` on average: 0.8 to 1.2 times what is missing, if anything is."""
    missing = np.maximum(bytes_mean - np.asarray(bytes_before), 0)
    spread = np.round(0.2 * missing).astype(np.int64)
    return texts(random, missing - spread + (random.random(len(missing)) * 2 * spread).astype(np.int64))
