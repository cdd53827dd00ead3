"""Plan objects: JSON or msgpack trees of operators, in MavStream's manner, to logical plans.

    {"version": 1, "root": {"op": "select", "condition": "v > 3", "input": {"op": "source", "stream": "s"}, "emit": "FINAL"}}

Expressions, windows and durations are text of the language. A plan says exactly what its SELECT would: the same binders are used, so both
run alike. `plan_writer.py` goes the other way. Unknown fields are refused with their path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from millstream.engine.data.durations import parse_duration
from millstream.engine.data.errors import EngineError, InvalidDefinition, Unsupported
from millstream.engine.language.names import validate_name
from millstream.engine.language.parse import parse_emit
from millstream.engine.language.recipes import EmitSpec
from millstream.engine.language.statements import Option
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.from_binder import Environment
from millstream.engine.plan.logical import LogicalQuery, Node
from millstream.engine.plan.plan_nodes import Fields, NodeReader, at_path
from millstream.engine.plan.query_options import checked_qos, kept, query_options
from millstream.engine.plan.running_tops import with_limits
from millstream.engine.plan.steps import check_tables, settled

PLAN_VERSION = 1
ROOT_FIELDS = (
    "version",
    "name",
    "class",
    "qos",
    "weight",
    "deadline",
    "start",
    "lifetime",
    "history",
    "history_from",
    "materialized",
    "keep",
    "split",
    "shed_by",
    "emit",
    "stream",
    "every",
    "root",
)
WHEN_FIELDS = ("emit", "stream", "every")  # of the root
_PLAIN_OPTIONS = ("class", "weight", "deadline", "start", "lifetime", "history", "history_from", "shed_by", "materialized", "keep", "split")
QOS_FIELDS = ("latency", "latency_target", "memory_bytes_max", "tolerance_percent")


def bind_plan_object(plan: Mapping[str, Any], catalog: Catalog, overrides: tuple[Option, ...] = ()) -> LogicalQuery:
    """Return the logical plan of a plan object; InvalidDefinition names the path of what is wrong."""
    fields = Fields.of(plan, "")
    fields.only(ROOT_FIELDS)
    if fields.required("version") != PLAN_VERSION:
        raise InvalidDefinition(f"plan version {fields.values['version']!r} is unknown", hint=f"this program reads version {PLAN_VERSION}")
    if fields.has("name"):
        validate_name(fields.text("name"), "query name")
    tree = fields.required("root")
    answers, tree = _when(fields, tree)
    stream, every = _stream(answers)
    emit = _emit(answers)
    root = NodeReader(Environment(catalog), emit, stream).read(tree, "root")
    _guarded("root", lambda: check_tables(root))
    limited = _guarded("root", lambda: with_limits(root))
    node, emitted = _guarded(answers.at("emit"), lambda: settled(limited, emit, stream, every))
    if any(o.name == "scale_up" for o in overrides):
        raise Unsupported("scale_up is for queries in SQL", hint="add SUM(SAMPLING_WEIGHT()) to the plan's aggregates")
    qos = Fields.of(fields.values["qos"], "qos") if fields.has("qos") else None
    options = query_options(_options(fields, qos), overrides, node, emitted, catalog)
    if qos is not None and qos.has("latency") and not any(o.name == "qos" for o in overrides):
        options = replace(options, qos=checked_qos(_points(qos)))
    return LogicalQuery(kept(node, options), emitted, options)


def plan_name(plan: Mapping[str, Any]) -> str | None:
    """Return the name that a plan object gives its query, or None."""
    name = plan.get("name")
    return None if name is None else validate_name(str(name), "query name")


def _when(fields: Fields, tree: Any) -> tuple[Fields, Any]:
    """Return what says when answers leave, and the root without it. It stands in the root; beside it is read too."""
    own = ("stream",) if isinstance(tree, Mapping) and tree.get("op") == "source" else ()  # the stream's name
    inside = [name for name in WHEN_FIELDS if isinstance(tree, Mapping) and name in tree and name not in own]
    if not inside:
        return fields, tree
    twice = next((name for name in WHEN_FIELDS if fields.has(name)), None)
    if twice is not None:
        raise InvalidDefinition(f"{twice} stands beside root, and root.{inside[0]} in it", hint="keep what is in the root")
    return Fields.of({name: tree[name] for name in inside}, "root"), {k: v for k, v in tree.items() if k not in inside}


def _guarded(path: str, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except EngineError as problem:
        raise at_path(problem, path) from None


def _emit(fields: Fields) -> EmitSpec | None:
    text = fields.optional_text("emit")
    if text is None:
        return None
    found: EmitSpec = _guarded(fields.at("emit"), lambda: parse_emit(text))
    return found


def _stream(fields: Fields) -> tuple[str | None, int | None]:
    stream = fields.optional_text("stream")
    if stream is not None and stream not in ("i", "d", "r"):
        raise InvalidDefinition(f"{fields.at('stream')} must be i, d or r, not {stream!r}")
    if stream is not None and fields.has("emit"):
        raise Unsupported("a plan takes emit or stream, not both")
    every = fields.optional_text("every")
    if every is None:
        return stream, None
    if stream != "r":
        raise InvalidDefinition("every belongs to stream r", hint='write "emit": "EVERY 5 SECONDS" for an aggregate')
    try:
        every_us = parse_duration(every)
    except ValueError as problem:
        raise InvalidDefinition(f"every: {problem}") from None
    if every_us <= 0:
        raise InvalidDefinition("every must be positive")
    return stream, every_us


def _options(fields: Fields, qos: Fields | None) -> tuple[Option, ...]:
    """Return the root's settings as the options that WITH (…) would give."""
    options = [Option(name, fields.values[name]) for name in _PLAIN_OPTIONS if fields.has(name)]
    if qos is not None:
        qos.only(QOS_FIELDS)
        options += [Option(name, qos.values[name]) for name in QOS_FIELDS[1:] if qos.has(name)]
    return tuple(options)


def _points(qos: Fields) -> tuple[tuple[float, float], ...]:
    points = []
    for value, path in qos.items("latency"):
        pair = list(value) if isinstance(value, list | tuple) else []
        if len(pair) != 2 or any(isinstance(p, bool) or not isinstance(p, int | float) for p in pair):
            raise InvalidDefinition(f"{path} must be [seconds, utility]")
        points.append((float(pair[0]), float(pair[1])))
    return tuple(points)


__all__ = ["PLAN_VERSION", "Node", "bind_plan_object", "plan_name"]
