"""Timeline files of `millstream run`: one JSON object a line, in the order in which things happen.

{"stream": "s", "row": {…}}     a row arrives (the stream may also be a table)
{"advance": "3 s"}              virtual time moves on
{"end": "s"}                    the stream ends
{"cancel": "q"}                 the query is cancelled
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from millstream.engine.data.records import dataclass
from millstream.protocol.values.json_values import not_json
from millstream.protocol.values.packed import split_name, unpacked
from millstream.server.errors import BadInput


@dataclass(frozen=True, slots=True)
class RowArrives:
    """A row of a stream or table, by column name."""

    name: str
    row: dict[str, Any]
    line: int


@dataclass(frozen=True, slots=True)
class TimeAdvances:
    """Virtual time moves on."""

    by_us: int


@dataclass(frozen=True, slots=True)
class StreamEnds:
    """A stream ends."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class QueryCancelled:
    """A query is cancelled: it emits nothing more."""

    name: str
    line: int


TimelineEvent = RowArrives | TimeAdvances | StreamEnds | QueryCancelled
_KEYS = ({"stream", "row"}, {"advance"}, {"end"}, {"cancel"})


def read_timeline(path: Path, parse_duration: Callable[[str], int]) -> Iterator[TimelineEvent]:
    """Yield the events of a file; BadInput names the line of one that is malformed. `parse_duration` gives microseconds."""
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            yield _event(line, number, path, parse_duration)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with unpacked(path.open("rb"), split_name(path)[1]) as file:
            yield from file
    except (OSError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise BadInput(f"cannot read the timeline {path}: {reason or error}") from error


def _event(line: bytes, number: int, path: Path, parse_duration: Callable[[str], int]) -> TimelineEvent:
    where = f"{path.name} line {number}"
    try:
        # Numbers keep their digits: a DECIMAL must not pass through a double.
        found = json.loads(line.decode("utf-8"), parse_float=Decimal, parse_constant=str)
    except ValueError as error:
        raise BadInput(f"{where}: {not_json(error)}") from error
    if not isinstance(found, dict) or set(found) not in _KEYS:
        raise BadInput(
            f"{where} is none of the four events", hint='write {"stream": …, "row": {…}}, {"advance": …}, {"end": …} or {"cancel": …}'
        )
    if "stream" in found:
        if not isinstance(found["row"], dict):
            raise BadInput(f"{where}: row must be an object of column names and values")
        return RowArrives(str(found["stream"]), found["row"], number)
    if "advance" in found:
        return TimeAdvances(_duration(found["advance"], where, parse_duration))
    if "end" in found:
        return StreamEnds(str(found["end"]), number)
    return QueryCancelled(str(found["cancel"]), number)


def _duration(value: Any, where: str, parse_duration: Callable[[str], int]) -> int:
    try:
        by_us = parse_duration(str(value))
    except ValueError as error:
        raise BadInput(f"{where}: {error}") from error
    if by_us < 0:
        raise BadInput(f"{where}: time does not go back")
    return by_us
