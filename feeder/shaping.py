"""Brings rows as read to the columns of the streams, and says of each row that cannot be brought why not.

Nothing is bent to fit: a number with decimals is no BIGINT, text that is no number is no number, a local time without a zone is
no instant. Such rows are refused, each counted under its reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.feeder.errors import SourceError
from millstream.feeder.numbering import BLOCK, FILE, SOURCE, STREAM, TIME_US
from millstream.feeder.sources import BROKEN, first_line
from millstream.feeder.targets import Target, TargetColumn

REFUSED = "_refused"
_OFFSET = r"(?:[Zz]|[+-]\d\d(?::?\d\d)?)\s*$"
_WHOLE = {"INT", "BIGINT"}
_NAMES = re.compile(r"`((?:[^`]|``)+)`|(\w+)")  # of columns in an expression


@dataclass(frozen=True, slots=True)
class Mapped:
    """Which expression over the file's columns (Spark SQL) fills a stream's column, the zone of times that name none, and how times are
    written (`TimeFormat`, see `--time-format`) in a column, or under None in all TIMESTAMP columns.
    """

    expressions: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None
    formats: Mapping[str | None, Any] = field(default_factory=dict)

    def format_of(self, column: TargetColumn, held: str) -> Any | None:
        """Return the format of a column that the files hold as text or as a whole number, None when it has none."""
        if held not in {"string", "int", "bigint", "smallint", "tinyint"}:
            return None
        return self.formats.get(column.name, self.formats.get(None) if column.type == "TIMESTAMP" else None)


def shape(frame: Any, columns: Sequence[TargetColumn], mapped: Mapped, time_column: str | None, unit: str | None = None) -> Any:
    """Return the streams' columns, TIME_US, REFUSED and the place columns; data columns come first, in the order of `columns`."""
    from pyspark.sql import functions as F  # noqa: N812

    known = {column.name for column in columns}
    for option, named in (("--map", set(mapped.expressions)), ("--time-format", {name for name in mapped.formats if name is not None})):
        if named - known:
            raise SourceError(
                f"{option} names {min(named - known)}, which is not a column of the stream",
                hint=_listed("it has", [column.name for column in columns]),
            )
    sources = {column.name: _source_of(frame, column, mapped) for column in columns}
    held = _types(frame, {name: text for name, text in sources.items() if text is not None})
    values, complaints = [], [F.when(F.col(BROKEN).isNotNull(), F.lit("the row cannot be parsed"))]
    for column in columns:
        text = sources[column.name]
        if text is None or held[column.name] == "void":  # no such column in the files, or one without any value
            values.append(F.lit(None).cast(column.spark_type).alias(column.name))
            continue
        raw = F.expr(text)
        if (format := mapped.format_of(column, held[column.name])) is not None:
            value = _converted(_iso(raw, format), "string", column, mapped.zone)
            values.append(value.alias(column.name))
            complaints.append(
                F.when(raw.isNotNull() & value.isNull(), F.lit(f"column {column.name} does not have the time format {format.text}"))
            )
            continue
        value = _converted(raw, held[column.name], column, mapped.zone)
        values.append(value.alias(column.name))
        if value is not raw:
            bent = raw.isNotNull() & (value.isNull() | ~_unbent(raw, held[column.name], value, column))
            complaints.append(F.when(bent, F.lit(f"column {column.name} is not a {column.type}")))
    place = [F.col(name) for name in (SOURCE, FILE, BLOCK)]
    shaped = frame.select(*values, F.coalesce(*complaints).alias(REFUSED), *place, *_kept(frame))
    return shaped.withColumn(TIME_US, F.lit(None).cast("bigint") if time_column is None else _micros(time_column, unit))


def _iso(raw: Any, format: Any) -> Any:
    """Return times written in a format as ISO 8601 text, NULL where the text has another."""
    from pyspark.sql import functions as F  # noqa: N812

    text, pattern = raw.cast("string"), format.pattern.replace("(?P<", "(?<")
    if format.per_second is not None:
        number = r"^\s*-?\d+\s*$" if format.per_second > 1 else pattern
        micros = F.when(text.rlike(number), text.try_cast("decimal(29,9)")) * F.lit(1_000_000) / F.lit(format.per_second)
        whole = F.when(micros == F.floor(micros), F.timestamp_micros(F.floor(micros).try_cast("bigint")))
        return F.date_format(whole, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    found = {letter: F.regexp_extract(text, pattern, place) for place, letter in enumerate(format.letters, 1)}
    parts = [_year(found), F.lit("-"), _two(_month(found)), F.lit("-"), _two(found["d"]), F.lit("T"), _two(_hour(found)), F.lit(":")]
    parts += [_two(found["M"]) if "M" in found else F.lit("00"), F.lit(":"), _two(found["S"]) if "S" in found else F.lit("00")]
    parts += [F.lit("."), found["f"]] if "f" in found else []
    parts += [F.regexp_replace(F.upper(found["z"]), r"^([+-]\d\d):?(\d\d)?$", "$1:$2")] if "z" in found else []
    return F.when(text.rlike(pattern), F.regexp_replace(F.concat(*parts), r":$", ":00"))


def _two(number: Any) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.lpad(number, 2, "0")


def _year(found: Mapping[str, Any]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    short = found.get("y")
    return found["Y"] if short is None else F.concat(F.when(short.cast("int") < 69, F.lit("20")).otherwise(F.lit("19")), short)


def _month(found: Mapping[str, Any]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    if "m" in found:
        return found["m"]
    name = F.lower(F.substring(found["b"] if "b" in found else found["B"], 1, 3))
    return F.array_position(F.split(F.lit("jan feb mar apr may jun jul aug sep oct nov dec"), " "), name).cast("string")


def _hour(found: Mapping[str, Any]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    if "I" not in found:
        return found.get("H", F.lit("00"))
    return (F.when(F.lower(found["p"]) == "pm", 12).otherwise(0) + found["I"].cast("int") % 12).cast("string")


def _micros(time_column: str, unit: str | None) -> Any:
    """Return the event time in µs: of an instant, or of an integer that counts `unit`s."""
    from pyspark.sql import functions as F  # noqa: N812

    column = F.col(f"`{time_column}`")
    if unit is None:
        return F.unix_micros(column)
    if unit == "ns":
        return F.floor(column / 1_000)
    return column * F.lit({"s": 1_000_000, "ms": 1_000, "us": 1}[unit]).cast("bigint")


def _kept(frame: Any) -> list[Any]:
    """Return the column that says which stream a row goes to, when it was computed from the file's own columns before."""
    from pyspark.sql import functions as F  # noqa: N812

    return [F.col(STREAM)] if STREAM in frame.columns else []


def unused_columns(frame: Any, columns: Sequence[TargetColumn], mapped: Mapped, others: Sequence[str] = ()) -> list[str]:
    """Return the columns of the files that no column of the streams is filled from, by the files' order.

    `others` are expressions that use columns as well: conditions, the column that streams are split by.
    """
    texts = [text for column in columns if (text := _source_of(frame, column, mapped)) is not None]
    found = (name for text in (*texts, *others) for name in _NAMES.findall(text))
    used = {(quoted.replace("``", "`") or word).lower() for quoted, word in found}
    return [name for name in frame.columns if not name.startswith("_") and name.lower() not in used]


def _source_of(frame: Any, column: TargetColumn, mapped: Mapped) -> str | None:
    """Return the expression that fills a column; None when the files have nothing for it."""
    expression = mapped.expressions.get(column.name)
    if expression is not None:
        return expression
    names = [name for name in frame.columns if name.lower() == column.name.lower()]
    names = [name for name in names if name == column.name] or names
    if names:
        return f"`{names[0].replace('`', '``')}`"
    if column.nullable:
        return None
    raise SourceError(
        f"the files have no column {column.name}, which the stream needs",
        hint=_listed("name one with --map; they have", [name for name in frame.columns if not name.startswith("_")]),
    )


def _types(frame: Any, sources: Mapping[str, str]) -> dict[str, str]:
    """Return the type that each expression gives, in Spark's words; raises SourceError for one that means nothing."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812

    try:
        fields = frame.select(*[F.expr(text).alias(name) for name, text in sources.items()]).schema.fields
    except AnalysisException as error:
        raise SourceError(f"cannot fill the stream's columns: {first_line(error)}", hint="see --map") from error
    return {field.name: str(field.dataType.simpleString()) for field in fields}


def _converted(raw: Any, held: str, column: TargetColumn, zone: str | None) -> Any:
    """Return the value in the stream's type, NULL where it cannot be; `raw` itself when it has that type already."""
    from pyspark.sql import functions as F  # noqa: N812

    wanted = column.spark_type
    if wanted == "TIMESTAMP" and held == "timestamp_ntz":
        if zone is None:
            raise SourceError(
                f"column {column.name} holds local times without a zone", hint="name their zone: --zone Area/City, or --zone UTC"
            )
        return F.to_utc_timestamp(raw.cast("timestamp"), zone)
    if wanted == "TIMESTAMP" and held == "string" and zone is not None:
        instant = raw.try_cast("timestamp")
        return F.when(raw.rlike(_OFFSET), instant).otherwise(F.to_utc_timestamp(instant, zone))
    if wanted == "TIMESTAMP" and held not in {"timestamp", "string", "date"}:
        raise SourceError(
            f"column {column.name} is a TIMESTAMP, but the files hold a {held}",
            hint=f"say what it counts: --map '{column.name}=timestamp_seconds(…)', timestamp_millis or timestamp_micros",
        )
    return raw if held == wanted.lower() else raw.try_cast(wanted)


def _unbent(raw: Any, held: str, value: Any, column: TargetColumn) -> Any:
    """Return whether the conversion lost nothing."""
    from pyspark.sql import functions as F  # noqa: N812

    wanted = column.spark_type
    if wanted in _WHOLE and held in {"double", "float"}:
        return raw == value.cast("double")
    if wanted in _WHOLE and held.startswith("decimal"):
        return raw == value
    if wanted.startswith("DECIMAL") and (held.startswith("decimal") or held == "string"):
        exact = raw.try_cast("decimal(38,18)")
        return F.coalesce(exact == value, F.lit(True))
    return F.lit(True)


def _listed(lead: str, names: Sequence[str]) -> str:
    return f"{lead} {', '.join(names[:12])}{', …' if len(names) > 12 else ''}"


def with_streams(frame: Any, targets: Sequence[Target], conditions: Sequence[str | None]) -> Any:
    """Add STREAM by condition: a row goes to each target whose condition holds (None: always)."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812

    if all(condition is None for condition in conditions) and len(targets) == 1:
        return frame.withColumn(STREAM, F.lit(0))
    chosen = []
    for position, condition in enumerate(conditions):
        try:
            holds = F.lit(True) if condition is None else F.expr(condition)
            frame.select(holds)
        except AnalysisException as error:
            raise SourceError(f"the condition {condition!r}: {first_line(error)}") from error
        chosen.append(F.when(holds, F.lit(position)))
    return frame.withColumn(STREAM, F.explode(F.filter(F.array(*chosen), lambda position: position.isNotNull())))
