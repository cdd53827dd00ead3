"""DESCRIBE [kind] name: the columns of a stream, table or query, and how its time comes about; the properties of a class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.schema import Schema, StreamDefinition
from millstream.engine.language.statements import ClassDefinition, Describe, ObjectKind
from millstream.server.results.outcome import Outcome, table
from millstream.server.statements.functions import describe_function

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost

_COLUMNS = [["column", "TEXT", False], ["type", "TEXT", False], ["nullable", "BOOLEAN", False], ["note", "TEXT", True]]


def describe(host: EngineHost, statement: Describe, context: Context) -> Outcome:
    """Return a row a column; of a class a row a property. Without a kind a name is looked for among streams and tables first."""
    name, kind = statement.name.text, statement.kind
    found = host.catalog.find(name) if kind in (None, ObjectKind.STREAM, ObjectKind.TABLE) else None
    if kind is ObjectKind.QUERY or (kind is None and found is None and host.queries.find(name) is not None):
        return _columns(host.queries.get(name).planned.physical.schema, None)
    if kind is ObjectKind.CLASS or (kind is None and found is None and host.catalog.find_class(name) is not None):
        return _class(host.catalog.query_class(name))
    function = host.catalog.find_function(name) if found is None and kind in (None, ObjectKind.FUNCTION) else None
    if function is not None:
        return describe_function(function)
    relation = host.catalog.relation(name)
    return _columns(relation.schema, relation if isinstance(relation, StreamDefinition) else None)


def _class(found: ClassDefinition) -> Outcome:
    target = "none" if found.target_us is None else f"{found.target_us / 1_000:g} ms"
    rows = [("priority", f"{found.priority:g}"), ("target", target), ("shedding", "allowed" if found.may_shed else "never")]
    return table([("property", "TEXT"), ("value", "TEXT")], rows)


def _columns(schema: Schema, stream: StreamDefinition | None) -> Outcome:
    by = None if stream is None else stream.time.column
    rows = [[f.name, str(f.type), f.nullable, "event time" if f.name == by else None] for f in schema.fields]
    notices = () if stream is None else (time_rule(stream),)
    return Outcome(_COLUMNS, rows, notices)


def time_rule(stream: StreamDefinition) -> str:
    """Return one line that says how event time and watermark follow."""
    rule = stream.time
    parts = [f"TIMESTAMP BY {rule.column}" if rule.column is not None else "TIMESTAMP BY ARRIVAL"]
    if rule.unit is not None:
        parts.append(f"UNIT {rule.unit}{' ROUND' if rule.unit_round else ''}")
    if rule.zone is not None:
        parts.append(f"ZONE '{rule.zone}'")
    parts += [
        f"{word} {us / 1_000_000:g} SECONDS"
        for word, us in (("DELAY", rule.delay_us), ("SKEW", rule.skew_us), ("IDLE", rule.idle_us))
        if us
    ]
    if rule.idle_flush:
        parts.append("FLUSH")
    parts.append(f"LATE INTO {stream.late_into}" if stream.late_into else "LATE DROP")
    parts.append(f"ON ERROR INTO {stream.errors_into}" if stream.errors_into else f"ON ERROR {stream.on_error.value}")
    parts.append(f"DURABILITY {stream.durability}")
    if stream.rate_per_second_max is not None:
        parts.append(f"RATE {stream.rate_per_second_max:g} PER SECOND")
    return " ".join(parts)
