"""Checks on the time column of CREATE STREAM (K3, K12)."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.engine.data.errors import InvalidDefinition, UnknownName
from millstream.engine.data.schema import Schema, TimeRule
from millstream.engine.data.types import Kind
from millstream.engine.language.names import did_you_mean
from millstream.engine.language.syntax import Name


def checked_zone(zone: str, where: Name | None = None) -> str:
    """Return `zone` if the time zone database has it, else raise InvalidDefinition."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        place = where.place if where else None
        raise InvalidDefinition(
            f"'{zone}' is not a time zone",
            hint="write an area and city such as 'Europe/Rome', or 'UTC'",
            line=place.line if place else None,
            column=place.column if place else None,
            token=zone,
        ) from None
    return zone


def checked_time_rule(rule: TimeRule, schema: Schema, name: Name | None) -> TimeRule:
    """Return the rule if it fits the schema, else raise an error that names the column and the mend."""
    if name is None:
        return rule
    position = schema.position(name.text)
    place = {"line": name.place.line, "column": name.place.column, "token": name.text}
    if position is None:
        hint = did_you_mean(name.text, schema.names)
        raise UnknownName(f"there is no column {name.text} to take the time from", hint=hint, **place)  # type: ignore[arg-type]
    problem = _problem(rule, schema.fields[position].type.kind, schema.fields[position].type.is_integer, name.text)
    if problem is not None:
        raise InvalidDefinition(problem[0], hint=problem[1], **place)  # type: ignore[arg-type]
    if rule.zone is not None:
        checked_zone(rule.zone, name)
    return rule


def _problem(rule: TimeRule, kind: Kind, is_integer: bool, name: str) -> tuple[str, str] | None:
    if is_integer:
        if rule.unit is None:
            return f"the integer column {name} needs a unit to be a time", f"write TIMESTAMP BY {name} UNIT ms (or s, us, ns)"
        if rule.unit == "ns" and not rule.unit_round:
            return "event times are whole microseconds, UNIT ns is finer", "write UNIT ns ROUND"
        if rule.zone is not None:
            return f"the integer column {name} counts from the epoch and has no zone", "leave ZONE out"
        return None
    if kind is not Kind.TIMESTAMP:
        return f"the time column {name} must be TIMESTAMP or an integer with a UNIT, not {kind.value}", f"declare {name} TIMESTAMP"
    if rule.unit is not None:
        return f"{name} is a TIMESTAMP and has no UNIT", "leave UNIT out"
    return None
