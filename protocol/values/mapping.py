"""How the columns of a file fill those of a stream: `--map` and `--time-format` of `publish`, `run` and `spark`.

    --map ts=time                       the column ts is filled from the file's column time
    --time-format '%d.%m.%Y %H:%M'      how the file writes the times of all TIMESTAMP columns
    --time-format 'seen=ms'             how it writes those of one column

With several streams, STREAM.COLUMN names a column of one of them; COLUMN alone one of each stream that has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from millstream.protocol.values import arrow_functions as pc
from millstream.protocol.values.names import MAP_HINT, ColumnNames
from millstream.protocol.values.time_formats import TimeFormat

NO_STREAM = "there is no stream that a file fills: --input STREAM=FILE names both"
Columns = Mapping[str, str]
"""Name and type (`TIMESTAMP`) of each column of a stream."""


TIME_FORMAT_HINT = "--time-format says how a file writes times, as in --time-format '%d.%m.%Y %H:%M'"
DECIMAL_HINT = "a DOUBLE has a decimal point; of a file with ; between its fields, tr , . < FILE makes one"
NULL_HINT = "an empty field is NULL: sed 's#N/A##g' FILE makes one of N/A"
_NO_VALUE = re.compile(r"'(N/A|NA|NULL|null|None|none|nan|NaN|-)' is not ")
UTF8_HINT = "a file is read as UTF-8; of one in Latin-1, iconv -f latin1 -t utf-8 FILE makes that"
_DECIMAL_COMMA = re.compile(r"'[+-]?\d+,\d+' is not DOUBLE")


def hints(reasons: Sequence[str], *, all_refused: bool) -> list[str]:
    """Return what may help where rows of a file, or all of them, were refused for such reasons."""
    found = [(MAP_HINT, all_refused and any(reason.endswith("is missing") for reason in reasons))]
    found.append((TIME_FORMAT_HINT, all_refused and any(" is not TIMESTAMP (" in reason for reason in reasons)))
    found.append((DECIMAL_HINT, any(_DECIMAL_COMMA.search(reason) for reason in reasons)))
    found.append((NULL_HINT, any(_NO_VALUE.search(reason) for reason in reasons)))
    found.append((UTF8_HINT, any("invalid UTF-8" in reason for reason in reasons)))
    return [hint for hint, helps in found if helps]


@dataclass(frozen=True)
class ColumnMap:
    """Of one stream: `sources` says which column of the file fills a column, where it has another name; `formats` how times are written."""

    columns: Columns = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, TimeFormat] = field(default_factory=dict)

    def places(self, names: Sequence[str]) -> dict[str, int]:
        """Return where among a file's columns each column of the stream stands.

        ValueError when `--map` names one that is not there, or a column stands twice.
        """
        places = self._found(names)
        for column, source in self.sources.items():
            if column not in places:
                raise ValueError(f"--map {column}={source}: there is no column {source}; there are {', '.join(names)}")
        return places

    def _found(self, names: Sequence[str]) -> dict[str, int]:
        """Return the places of the columns that the input has. Names mean columns in any case, as without a map (names.py)."""
        found, _ = self._by_their_own_names.match(names)
        given = ColumnNames(names)
        for column, source in self.sources.items():
            name = given.meant_by(source)
            if name is not None:
                found[column] = names.index(name)
        return {column: found[column] for column in self.columns if column in found}

    @cached_property
    def _by_their_own_names(self) -> ColumnNames:
        return ColumnNames([column for column in self.columns if column not in self.sources])

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row by the stream's columns. What fills none stays under its own name. ValueError when a column stands twice."""
        names = list(row)
        places = self._found(names)
        used = {names[place] for place in places.values()}
        kept = {name: value for name, value in row.items() if name not in used and self._all_names.meant_by(name) not in self.sources}
        return kept | {column: row[names[place]] for column, place in places.items()}

    @cached_property
    def _all_names(self) -> ColumnNames:
        return ColumnNames(list(self.columns))

    def table(self, table: pa.Table) -> pa.Table:
        """Return an Arrow table by the stream's columns, its times as ISO 8601.

        A time of another format becomes text that no reader takes for a time. ValueError as `places`.
        """
        places = self.places(table.schema.names)
        others = [i for i, name in enumerate(table.schema.names) if i not in places.values() and name not in places]
        picked = [*places.values(), *others]
        table = pa.table([table.column(i) for i in picked], names=[*places, *(table.schema.names[i] for i in others)])
        for column, format in self.formats.items():
            place = table.schema.get_field_index(column)
            texts = None if place < 0 else texts_of(table.column(place))
            if texts is not None:
                iso = pa.chunked_array([format.iso(chunk) for chunk in texts.chunks], pa.string())
                odd = pc.binary_join_element_wise(texts, pa.scalar(f" (not {format.text})"), pa.scalar(""))
                table = table.set_column(place, column, pc.coalesce(iso, odd))
        return table

    def bring_times(self, rows: Sequence[dict[str, Any]]) -> dict[int, str]:
        """Write the times of rows as ISO 8601, in place. Returns the reason by the index of each row whose time has another format."""
        bad: dict[int, str] = {}
        for column, format in self.formats.items():
            texts = [_text_of(row.get(column)) for row in rows]
            for i, (text, iso) in enumerate(zip(texts, format.iso(pa.array(texts, pa.string())).to_pylist(), strict=True)):
                if iso is not None:
                    rows[i][column] = iso
                elif text is not None:
                    bad.setdefault(i, f"column {column}: {other_format(text, format)}")
        return bad


def texts_of(array: Any) -> Any:
    """Return an Arrow array of text or of whole numbers as text, None for another type."""
    if pa.types.is_dictionary(array.type):
        array = pc.cast(array, array.type.value_type)
    kind = array.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    return pc.cast(array, pa.string()) if is_text or pa.types.is_integer(kind) else None


def other_format(text: str, format: TimeFormat) -> str:
    """Return the reason for refusing a time that is not written in the format."""
    return f"{text[:40]!r} does not have the time format {format.text}"


def _text_of(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def column_maps(maps: Sequence[str], formats: Sequence[str], streams: Mapping[str, Columns]) -> dict[str, ColumnMap]:
    """Return the map of each stream, as `--map` and `--time-format` say. ValueError, with the option, for one that means nothing."""
    sources: dict[str, dict[str, str]] = {stream: {} for stream in streams}
    times: dict[str, dict[str, TimeFormat]] = {stream: {} for stream in streams}
    for text in maps:
        key, equals, source = (part.strip() for part in text.partition("="))
        if not (key and equals and source):
            raise ValueError(f"--map {text}: write COLUMN=COLUMN_OF_THE_FILE")
        for stream, column in _meant(key, streams, "--map"):
            sources[stream][column] = source
    for text in sorted(formats, key=lambda text: "=" in text):  # what is said of one column goes before what is said of all
        named, format = split_format(text)
        for stream, column in _with_times(streams) if named is None else _meant(named, streams, "--time-format"):
            if streams[stream][column] not in ("TIMESTAMP", "DATE"):
                raise ValueError(f"--time-format: column {column} of {stream} is {streams[stream][column]}, not TIMESTAMP")
            times[stream][column] = format
    return {stream: ColumnMap(columns, sources[stream], times[stream]) for stream, columns in streams.items()}


def split_format(text: str) -> tuple[str | None, TimeFormat]:
    """Return column and format of `--time-format`; None for the column where it means all. ValueError, with the option."""
    key, equals, written = text.partition("=")
    if not equals or "%" in key:
        key, written = "", text
    try:
        return key.strip() or None, TimeFormat(written.strip())
    except ValueError as error:
        raise ValueError(f"--time-format: {error}") from None


def _meant(key: str, streams: Mapping[str, Columns], option: str) -> list[tuple[str, str]]:
    """Return the (stream, column) pairs that COLUMN or STREAM.COLUMN means; names fold to lower case unless they exist as they stand."""
    for name in dict.fromkeys((key, key.lower())):
        found = [(stream, name) for stream, columns in streams.items() if name in columns]
        stream, _, column = name.partition(".")
        found = found or ([(stream, column)] if column in streams.get(stream, {}) else [])
        if found:
            return found
    listed = "; ".join(f"{stream} has {', '.join(columns)}" for stream, columns in streams.items())
    raise ValueError(f"{option} names {key}, which is not a column; {listed or NO_STREAM}")


def _with_times(streams: Mapping[str, Columns]) -> list[tuple[str, str]]:
    found = [(stream, column) for stream, columns in streams.items() for column, kind in columns.items() if kind == "TIMESTAMP"]
    if not found:
        names = " and ".join(streams)
        raise ValueError(f"--time-format: {f'{names} has no TIMESTAMP column; name one with COLUMN=FORMAT' if names else NO_STREAM}")
    return found
