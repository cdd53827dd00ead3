"""WITH (…) of a query to QueryOptions: class, latency graph, deadline and the like; defaults that follow from the plan."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from millstream.engine.data.durations import parse_duration
from millstream.engine.data.errors import EngineError, InvalidDefinition, UnknownName
from millstream.engine.expressions.values import parse_timestamp
from millstream.engine.language.dialect import did_you_mean, shown
from millstream.engine.language.recipes import EmitKind, EmitSpec
from millstream.engine.language.syntax import Option, Place
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.logical import Node, RelationToStream, Window, walk_plan
from millstream.engine.plan.physical import QueryOptions
from millstream.engine.plan.shed_options import check_shedding, shed_by

OPTION_NAMES = (
    "class",
    "qos",
    "weight",
    "deadline",
    "latency_target",
    "memory_bytes_max",
    "tolerance_percent",
    "start",
    "lifetime",
    "history",
    "scale_up",
    "shed_by",
)
_QOS_POINT = re.compile(r"\s*([0-9.]+\s*[A-Za-zµ]+)\s*:\s*([0-9.]+)\s*")
_NS_PER_US = 1_000


def query_options(own: tuple[Option, ...], overrides: tuple[Option, ...], node: Node, emit: EmitSpec, catalog: Catalog) -> QueryOptions:
    """Return the options of a query. `overrides` win over `own`; deadline and period follow from EVERY or SLIDE unless stated."""
    merged = {option.name: option for option in (*own, *overrides)}
    options = default_options(node, emit)
    for option in merged.values():
        try:
            options = _apply(options, option, node, catalog)
        except EngineError as problem:
            if problem.line is None and option.place != Place():  # one from outside the text has no place
                problem.line, problem.column, problem.token = option.place.line, option.place.column, option.name
            raise
    check_shedding(options, node, catalog)
    return options


def truth(name: str, value: object) -> bool:
    """Return a value that says yes or no."""
    if not isinstance(value, bool):
        raise InvalidDefinition(f"option {name} must be true or false, not {value!r}")
    return value


def default_options(node: Node, emit: EmitSpec) -> QueryOptions:
    """Return the options of a query that says nothing: its deadline and period are its EVERY or SLIDE."""
    period = _period_us(node, emit)
    if period is None:
        return QueryOptions()
    return QueryOptions(deadline_ns=period * _NS_PER_US, period_ns=period * _NS_PER_US)


def _period_us(node: Node, emit: EmitSpec) -> int | None:
    """Return how often the query answers: EVERY, else the least SLIDE; None when it answers row by row."""
    if emit.kind is EmitKind.EVERY:
        return emit.every_us
    if isinstance(node, RelationToStream) and node.every_us is not None:
        return node.every_us
    slides = [n.spec.slide_us for n in walk_plan(node) if isinstance(n, Window) and n.spec.slide_us]
    return min(slides) if slides else None


def _apply(options: QueryOptions, option: Option, node: Node, catalog: Catalog) -> QueryOptions:
    name, value = option.name, option.value
    if name == "class":
        return replace(options, class_name=_class_name(str(value), catalog))
    if name == "qos":
        return replace(options, qos=qos_points(str(value)))
    if name == "weight":
        return replace(options, weight=_positive(name, value))
    if name == "deadline":
        return replace(options, deadline_ns=_duration(name, value) * _NS_PER_US)
    if name == "latency_target":
        return replace(options, latency_target_ns=_duration(name, value) * _NS_PER_US)
    if name == "memory_bytes_max":
        return replace(options, memory_bytes_max=int(_positive(name, value)))
    if name == "tolerance_percent":
        return replace(options, tolerance_percent=_percent(name, value))
    if name == "start":
        return replace(options, start_at_us=_instant(name, value))
    if name == "lifetime":
        return replace(options, lifetime_us=_duration(name, value))
    if name == "scale_up":
        return replace(options, scale_up=truth(name, value))
    if name == "shed_by":
        return replace(options, shed_by=shed_by(str(value), node, catalog))
    if name == "history":
        return replace(options, history=_history(value))
    hint = did_you_mean(name, OPTION_NAMES) or f"the options are {', '.join(OPTION_NAMES)}"
    raise UnknownName(f"there is no option {shown(name)}", hint=hint)


def _history(value: object) -> bool:
    if value not in ("held", "none"):
        raise InvalidDefinition(f"option history must be 'held' or 'none', not {value!r}")
    return value == "held"


def _class_name(name: str, catalog: Catalog) -> str:
    """A class created with a quoted name keeps its capitals; others fold."""
    found = catalog.find_class(name)
    return found.name if found is not None else catalog.query_class(name.lower()).name


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise InvalidDefinition(f"option {name} must be a positive number, not {value!r}")
    return float(value)


def _percent(name: str, value: object) -> float:
    number = 0.0 if value == 0 and not isinstance(value, bool) else _positive(name, value)
    if number > 100:
        raise InvalidDefinition(f"option {name} must be between 0 and 100, not {value!r}")
    return number


def _duration(name: str, value: object) -> int:
    try:
        us = parse_duration(str(value))
    except ValueError as problem:
        raise InvalidDefinition(f"option {name}: {problem}") from None
    if us <= 0:
        raise InvalidDefinition(f"option {name} must be positive, not {value!r}")
    return us


def _instant(name: str, value: object) -> int:
    try:
        return parse_timestamp(str(value))
    except ValueError as problem:
        raise InvalidDefinition(f"option {name}: {problem}") from None


def qos_points(text: str) -> tuple[tuple[float, float], ...]:
    """Return the latency graph of '0ms:1, 50ms:0.8, 200ms:0' as (seconds, utility) points, checked."""
    points = []
    for part in text.split(","):
        match = _QOS_POINT.fullmatch(part)
        if match is None:
            raise InvalidDefinition(
                f"qos point {part.strip()!r} is not 'latency:utility'", hint="write for example '0ms:1, 50ms:0.8, 200ms:0'"
            )
        try:
            points.append((parse_duration(match[1]) / 1e6, float(match[2])))
        except ValueError as problem:
            raise InvalidDefinition(f"qos point {part.strip()!r}: {problem}") from None
    return checked_qos(tuple(points))


def checked_qos(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Return the points if latencies rise and utilities lie in [0, 1] and never rise, else raise InvalidDefinition."""
    if not points:
        raise InvalidDefinition("a qos graph needs at least one point")
    for (early, high), (late, low) in itertools.pairwise(points):
        if late <= early:
            raise InvalidDefinition(f"the latencies of a qos graph must rise: {late:g} s follows {early:g} s")
        if low > high:
            raise InvalidDefinition(f"the utilities of a qos graph must not rise: {low:g} follows {high:g}")
    if any(not 0 <= utility <= 1 for _, utility in points) or points[0][0] < 0:
        raise InvalidDefinition("latencies of a qos graph are at least 0 and utilities between 0 and 1")
    return points
