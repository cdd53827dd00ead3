"""Times written in a format of one's own, brought to ISO 8601: for `publish`, `run` and `feed` alike.

A format has the directives of Python's `strptime` (`%d.%m.%Y %H:%M`), or is one of the words `s`, `ms`, `us`, `ns`: a number that counts
such units since 1970. Only the text is rewritten. Whether the day exists, which zone a local time is in and whether the digits are too fine
is judged afterwards, as for any other ISO 8601 text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.protocol.values import arrow_functions as pc

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
NANOSECONDS_PER_SECOND = 1_000_000_000
SECONDS_MIN, SECONDS_MAX = -62_135_596_800, 253_402_300_800  # the years 1 to 9999
PIVOT_YEAR = 69  # `%y`: 69 to 99 are of the last century, as in POSIX

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december")
FIELDS = {
    "Y": r"\d{4}",
    "y": r"\d{2}",
    "m": r"1[0-2]|0?[1-9]",
    "b": "|".join(MONTHS),
    "B": "|".join(_NAMES),
    "d": r"3[01]|[12]\d|0?[1-9]",
    "H": r"2[0-3]|[01]?\d",
    "I": r"1[0-2]|0?[1-9]",
    "p": "am|pm",
    "M": r"[0-5]?\d",
    "S": r"6[01]|[0-5]?\d",
    "f": r"\d{1,9}",
    "z": r"Z|[+-]\d{2}(?::?\d{2})?",
}
_SHORT = {"T": "%H:%M:%S", "F": "%Y-%m-%d", "D": "%m/%d/%y", "R": "%H:%M"}
_NUMBER = r"^\s*(?P<sign>-?)(?P<whole>\d{1,19})(?:\.(?P<part>\d{1,9}))?\s*$"


@dataclass(frozen=True)
class TimeFormat:
    """One format. ValueError, with the mend, when `text` is none.

    `letters` are its directives in order. `pattern` is a regular expression in RE2's words with a group for each; for a number the groups
    are its sign, its whole part and its decimals.
    """

    text: str
    letters: tuple[str, ...] = field(init=False, default=())
    pattern: str = field(init=False, default=_NUMBER)

    def __post_init__(self) -> None:
        if self.text in UNITS:
            return
        parts = _parts_of(self.text)
        letters = [letter for is_field, letter in parts if is_field]
        twice = next((letter for letter in letters if letters.count(letter) > 1), None)
        if twice is not None:
            raise ValueError(f"the time format {self.text!r} has %{twice} twice")
        if not ({"Y", "y"} & set(letters) and {"m", "b", "B"} & set(letters) and "d" in letters):
            raise ValueError(f"the time format {self.text!r} does not tell a day: write %Y, %m and %d, or one of s, ms, us, ns")
        if "I" in letters and "p" not in letters:
            raise ValueError(f"the time format {self.text!r} has %I without %p (AM or PM)")
        object.__setattr__(self, "letters", tuple(letters))
        object.__setattr__(self, "pattern", _pattern_of(parts))

    @property
    def per_second(self) -> int | None:
        """How many units of a format that is a number are a second; None for another."""
        return UNITS.get(self.text)

    def iso(self, texts: Any) -> Any:
        """Return an Arrow array of texts as ISO 8601; NULL where the text does not have this format."""
        found = pc.extract_regex(texts, pattern=self.pattern)
        return _iso_of_fields(found) if self.per_second is None else _iso_of_numbers(found, self.per_second)

    def iso_of(self, text: str) -> str | None:
        """Return one text as ISO 8601, None when it does not have this format."""
        iso: str | None = self.iso(pa.array([text], pa.string()))[0].as_py()
        return iso


def _parts_of(text: str) -> list[tuple[bool, str]]:
    parts: list[tuple[bool, str]] = []
    for piece in re.findall(r"%.|[^%]+|%", re.sub("%([TFDR])", lambda found: _SHORT[found[1]], text), re.DOTALL):
        if piece == "%%":
            parts.append((False, "%"))
        elif piece.startswith("%"):
            if piece[1:] not in FIELDS:
                known = ", ".join(f"%{letter}" for letter in FIELDS)
                raise ValueError(f"the time format {text!r} has {piece}, which is not one of {known}")
            parts.append((True, piece[1:]))
        else:
            parts.append((False, piece))
    return parts


def _pattern_of(parts: list[tuple[bool, str]]) -> str:
    """Return the regular expression, in RE2's words. White space stands for any amount of it."""
    body = "".join(f"(?P<{text}>{FIELDS[text]})" if is_field else re.sub(r"(\\?\s)+", r"\\s+", re.escape(text)) for is_field, text in parts)
    return rf"(?i)^\s*{body}\s*$"


def _iso_of_fields(found: Any) -> Any:
    fields = {field.name: pc.struct_field(found, [i]) for i, field in enumerate(found.type)}
    nothing = pa.scalar("")
    texts = [_year(fields), pa.scalar("-"), _padded(_month(fields)), pa.scalar("-"), _padded(fields["d"])]
    if "H" in fields or "I" in fields:
        hour = fields["H"] if "H" in fields else _hour(fields["I"], fields["p"])
        texts += [pa.scalar("T"), _padded(hour), pa.scalar(":"), _padded(fields["M"]) if "M" in fields else pa.scalar("00")]
        texts += [pa.scalar(":"), _padded(fields["S"])] if "S" in fields else []
        texts += [pa.scalar("."), fields["f"]] if "S" in fields and "f" in fields else []
    if "z" in fields:
        texts += [] if "H" in fields or "I" in fields else [pa.scalar("T00:00")]
        texts.append(pc.utf8_upper(fields["z"]))
    return pc.binary_join_element_wise(*texts, nothing)


def _padded(numbers: Any) -> Any:
    return pc.utf8_lpad(numbers, 2, "0")


def _year(fields: dict[str, Any]) -> Any:
    if "Y" in fields:
        return fields["Y"]
    short = pc.cast(fields["y"], pa.int32())
    return pc.cast(pc.add(short, pc.if_else(pc.less(short, PIVOT_YEAR), 2000, 1900)), pa.string())


def _month(fields: dict[str, Any]) -> Any:
    if "m" in fields:
        return fields["m"]
    name = pc.utf8_slice_codeunits(pc.utf8_lower(fields.get("b", fields.get("B"))), 0, 3)
    return pc.cast(pc.add(pc.index_in(name, value_set=pa.array(MONTHS)), 1), pa.string())


def _hour(hour: Any, half: Any) -> Any:
    """Return the hour of the day: 12 AM is 0, 12 PM is 12."""
    number = pc.cast(hour, pa.int32())
    from_noon = pc.if_else(pc.equal(number, 12), 0, number)
    return pc.cast(pc.add(from_noon, pc.if_else(pc.equal(pc.utf8_lower(half), "pm"), 12, 0)), pa.string())


def _iso_of_numbers(found: Any, per_second: int) -> Any:
    """Return numbers since 1970 as ISO 8601; NULL for what is no number, too large, or has decimals beside another unit than seconds."""
    sign, whole, part = (pc.struct_field(found, [i]) for i in range(3))
    number = pc.cast(pc.if_else(pc.less(pc.cast(whole, pa.decimal128(19)), 2**63 - 1), whole, None), pa.int64())
    known = np.asarray(pc.is_valid(number))
    count = np.asarray(pc.fill_null(number, 0))
    decimals = np.asarray(pc.fill_null(pc.cast(pc.utf8_rpad(pc.if_else(pc.equal(part, ""), None, part), 9, "0"), pa.int64()), 0))
    negative = np.asarray(pc.fill_null(pc.equal(sign, "-"), False))
    known &= (decimals == 0) | (per_second == 1)
    seconds, rest = np.divmod(np.where(negative, -count, count), per_second)
    rest = rest * (NANOSECONDS_PER_SECOND // per_second) + np.where(negative, -decimals, decimals)
    seconds, rest = seconds + rest // NANOSECONDS_PER_SECOND, rest % NANOSECONDS_PER_SECOND
    known &= (seconds >= SECONDS_MIN) & (seconds < SECONDS_MAX)
    days = np.datetime_as_string(np.where(known, seconds, 0).astype("M8[s]"))
    ends = np.where(rest % 1_000 == 0, 26, 29).tolist()  # six decimals, or nine
    shown = [f"{day}.{ns:09d}"[:end] + "Z" if ns else f"{day}Z" for day, ns, end in zip(days.tolist(), rest.tolist(), ends, strict=True)]
    return pa.array(shown, pa.string(), mask=~known)
