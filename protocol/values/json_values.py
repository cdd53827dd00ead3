"""JSON as a value: read strictly, written in one normal form.

The normal form is what `json.dumps` writes: members in the order in which they came, a space behind `,` and `:`, letters of any script as
they are. A number with a point or an exponent is a DOUBLE; whole numbers keep all their digits. NaN and the infinities, which JSON does
not have, become texts, as they do when a DOUBLE is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from millstream.protocol.values import DEPTH_MAX, Number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} stands twice")
    return found


_STRICT = json.JSONDecoder(parse_float=Number, object_pairs_hook=_object)


def read_json(text: str) -> Any:
    """Return the value of a JSON text, numbers with a point as `Number`. ValueError says why it is none, or that it repeats a key."""
    try:
        return _STRICT.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(not_json(error)) from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def json_text(value: Any) -> str:
    """Return a value of dicts, lists, text, numbers, booleans and None in the normal form; ValueError when it has no place in JSON."""
    return whole_text(json.dumps(_plain(value, DEPTH_MAX), ensure_ascii=False))


def whole_text(text: str) -> str:
    """Return a text; ValueError when half of a surrogate pair is in it, which UTF-8 cannot say."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("half of a surrogate pair") from error
    return text


def is_too_deep(value: Any, levels: int = DEPTH_MAX) -> bool:
    """Return whether a value has more levels of objects and lists than a value may have."""
    if not isinstance(value, dict | list):
        return False
    return levels == 0 or any(is_too_deep(part, levels - 1) for part in (value.values() if isinstance(value, dict) else value))


def _plain(value: Any, levels: int) -> Any:
    """Return the value with numbers as Python has them, NaN and the infinities as texts."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is Number or isinstance(value, float | Decimal):
        number = float(value)
        if math.isfinite(number):
            return number
        if not isinstance(value, float) and any(map(str.isdigit, str(value))):
            raise ValueError(f"{str(value)[:40]} is out of the range of DOUBLE")
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if levels == 0:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("the names in a JSON object are texts")
        return {name: _plain(part, levels - 1) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, levels - 1) for part in value]
    raise ValueError(f"{kind.__name__} has no place in JSON")


def normal_json(text: str) -> str:
    """Return a JSON text in the normal form; ValueError when it is none."""
    return json_text(read_json(text))


def not_json(error: ValueError) -> str:
    """Return what is wrong with one line that `json` could not read; the caller says which line it was."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start + 1}"
    return f"not JSON: {error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else f"not JSON: {error}"
