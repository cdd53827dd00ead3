"""Text functions of one row. ValueError, with the reason, is a row error. No argument is None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TEXT_BYTES_MAX = 128 * 1024  # a longer text is an error of the row (K8): what one row makes must stay cheap for all others
TOO_LONG = "text too long"


def substring(text: str, start: int, length: int | None = None) -> str:
    """Return `length` code points from position `start`; positions before 1 count but hold nothing, as in PostgreSQL."""
    if length is None:
        return text[max(start - 1, 0) :]
    if length < 0:
        raise ValueError("negative length of SUBSTRING")
    return text[max(start - 1, 0) : max(start - 1 + length, 0)]


def left(text: str, count: int) -> str:
    """Return the first `count` code points; for a negative count all but the last ones."""
    return text[:count]


def right(text: str, count: int) -> str:
    """Return the last `count` code points; for a negative count all but the first ones."""
    return "" if count == 0 else text[-count:]


def split_part(text: str, delimiter: str, part: int) -> str:
    """Return the n-th part, '' beyond the last; a negative n counts from the end."""
    if part == 0:
        raise ValueError("SPLIT_PART has no part 0")
    parts = text.split(delimiter) if delimiter else [text]
    place = part - 1 if part > 0 else len(parts) + part
    return parts[place] if 0 <= place < len(parts) else ""


def repeat(text: str, count: int) -> str:
    """Return the text `count` times."""
    if 4 * len(text) * count > TEXT_BYTES_MAX and len(text.encode()) * count > TEXT_BYTES_MAX:
        raise ValueError(TOO_LONG)
    return text * count


def pad_left(text: str, width: int, fill: str = " ") -> str:
    """Return the text filled on the left to `width`, or its first `width` code points."""
    return (_filling(text, width, fill) + text)[: max(width, 0)] if len(text) < width else text[: max(width, 0)]


def pad_right(text: str, width: int, fill: str = " ") -> str:
    """Return the text filled on the right to `width`, or its first `width` code points."""
    return text[: max(width, 0)] + _filling(text, width, fill)


def _filling(text: str, width: int, fill: str) -> str:
    missing = width - len(text)
    if missing <= 0 or not fill:
        return ""
    if 4 * width > TEXT_BYTES_MAX and len(text.encode()) + missing * len(fill.encode()) / len(fill) > TEXT_BYTES_MAX:
        raise ValueError(TOO_LONG)
    return (fill * (missing // len(fill) + 1))[:missing]


def replace(text: str, search: str, replacement: str) -> str:
    """Return the text with every occurrence replaced; an empty search finds nothing."""
    if not search:
        return text
    if len(replacement) > len(search) and len(text) * len(replacement) > TEXT_BYTES_MAX:
        made = len(text.encode()) + text.count(search) * (len(replacement.encode()) - len(search.encode()))
        if made > TEXT_BYTES_MAX:
            raise ValueError(TOO_LONG)
    return text.replace(search, replacement)


def translate(text: str, source: str, target: str) -> str:
    """Return the text with each code point of `source` replaced by its partner in `target`, or dropped without one."""
    table: dict[int, str | None] = {}
    for i, character in enumerate(source):
        table.setdefault(ord(character), target[i] if i < len(target) else None)
    return text.translate(table)


def trim(text: str, characters: str = " ") -> str:
    """Return the text without these code points at both ends."""
    return text.strip(characters) if characters else text


def trim_left(text: str, characters: str = " ") -> str:
    """Return the text without these code points at its start."""
    return text.lstrip(characters) if characters else text


def trim_right(text: str, characters: str = " ") -> str:
    """Return the text without these code points at its end."""
    return text.rstrip(characters) if characters else text


def first_code_point(text: str) -> int:
    """Return the number of the first code point, 0 for ''."""
    return ord(text[0]) if text else 0


def character(code: int) -> str:
    """Return the character of a code point."""
    if not 0 < code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"{code} is not a code point")
    return chr(code)


def position_of(text: str, part: str) -> int:
    """Return where `part` begins in `text`, 0 when it does not occur."""
    return text.find(part) + 1


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "substring": substring,
    "left": left,
    "right": right,
    "split_part": split_part,
    "repeat": repeat,
    "lpad": pad_left,
    "rpad": pad_right,
    "replace": replace,
    "translate": translate,
    "trim": trim,
    "ltrim": trim_left,
    "rtrim": trim_right,
    "ascii": first_code_point,
    "chr": character,
    "strpos": position_of,
    "position": lambda part, text: position_of(text, part),
    "starts_with": lambda text, prefix: text.startswith(prefix),
    "ends_with": lambda text, suffix: text.endswith(suffix),
    "contains": lambda text, part: part in text,
}
