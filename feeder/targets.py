"""The streams to feed, as the server describes them, and how their types are spelled in Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from millstream.feeder.errors import SourceError

_SPARK_TYPES = {
    "BOOLEAN": "BOOLEAN",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "FLOAT": "DOUBLE",
    "REAL": "DOUBLE",
    "TEXT": "STRING",
    "VARCHAR": "STRING",
    "STRING": "STRING",
    "TIMESTAMP": "TIMESTAMP",
    "DATE": "DATE",
    "INTERVAL": "INTERVAL DAY TO SECOND",
}


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of a stream: its name, its type as the language spells it, whether a row may be without it (NULL)."""

    name: str
    type: str
    nullable: bool = True

    @property
    def spark_type(self) -> str:
        """Return the type in Spark's words."""
        decimal = re.fullmatch(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", self.type, re.IGNORECASE)
        if decimal is not None:
            return f"DECIMAL({decimal.group(1)},{decimal.group(2) or 0})"
        known = _SPARK_TYPES.get(self.type.upper())
        if known is None:
            raise SourceError(f"column {self.name} has the type {self.type}, which files cannot be fed into")
        return known


@dataclass(frozen=True, slots=True)
class Target:
    """A stream to feed.

    `event_time` is its event-time column, None when it goes by arrival; `zone` the zone of times that name none; `unit` what an
    integer event time counts (s, ms, us, ns).
    """

    stream: str
    columns: tuple[TargetColumn, ...]
    event_time: str | None = None
    zone: str | None = None
    unit: str | None = None


def describe(client: Any, stream: str) -> Target:
    """Return what a stream looks like, as the server says; MillstreamError when there is none of that name.

    No row can be without an event time, so its column is not nullable.
    """
    answer = client.execute(f"DESCRIBE {quoted(stream)}")
    rows = answer.rows
    event_time = next((row["column"] for row in rows if row["note"] == "event time"), None)
    columns = tuple(TargetColumn(row["column"], row["type"], row["nullable"] and row["column"] != event_time) for row in rows)
    rule = answer.notices[0] if answer.notices else ""
    zone, unit = re.search(r"\bZONE '([^']+)'", rule), re.search(r"\bUNIT (s|ms|us|ns)\b", rule)
    return Target(stream, columns, event_time, zone.group(1) if zone else None, unit.group(1) if unit else None)


def quoted(name: str) -> str:
    """Return a name as the language wants it: in double quotes unless it is plain."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def common_columns(targets: list[Target]) -> list[TargetColumn]:
    """Return the columns of all targets; raises SourceError when two streams give one name different types."""
    found: dict[str, tuple[TargetColumn, Target]] = {}
    for target in targets:
        for column in target.columns:
            other, owner = found.setdefault(column.name, (column, target))
            if other.spark_type != column.spark_type:
                raise SourceError(
                    f"column {column.name} is {other.type} in {owner.stream} but {column.type} in {target.stream}",
                    hint="feed the two streams one after the other",
                )
    return [column for column, _ in found.values()]


def split_stream_name(base: str, value: str) -> str:
    """Return the stream that rows with this value of the split column go to: `packets` and `TCP/IP` give `packets_tcp_ip`."""
    return f"{base}_{re.sub(r'[^0-9a-z]+', '_', value.lower()).strip('_')}"
