"""WITH (…) of a query to QueryOptions: class, latency graph, deadline and the like; defaults that follow from the plan.

`shed_by` says what a row is worth when load is shed. `history = 'held'` is for queries that can begin with windows whose first rows came
before them: such a query answers windows that it sees whole and no others, so that its answers are those of a query that had always been
there. That can be said of GROUP BY over windows made of panes whose rows come one by one from the streams.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from millstream.engine.data.durations import parse_duration
from millstream.engine.data.errors import EngineError, InvalidDefinition, TypeProblem, UnknownName, Unsupported
from millstream.engine.data.nearest import did_you_mean
from millstream.engine.data.schema import StreamDefinition
from millstream.engine.data.types import BOOLEAN, DOUBLE, INT, TEXT
from millstream.engine.expressions import build
from millstream.engine.expressions.compile import NOT_CONSTANT, compile_expression, failure_of_constants
from millstream.engine.expressions.ir import Call, walk
from millstream.engine.expressions.user_functions import user_function_of
from millstream.engine.expressions.values import parse_timestamp
from millstream.engine.language import recipes
from millstream.engine.language.names import shown
from millstream.engine.language.parse import parse_expression
from millstream.engine.language.statements import Option, Place
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.logical import (
    Aggregate,
    Attribute,
    ChangeJoin,
    Filter,
    KeptRows,
    Node,
    Project,
    RelationToStream,
    Role,
    RunningTop,
    Scan,
    TableChanges,
    Union,
    Unnest,
    Window,
    change_position,
    walk_plan,
)
from millstream.engine.plan.physical import PhysicalNode, PhysicalQuery, QueryOptions, ShedBy, SourceNode
from millstream.engine.plan.scope import Scope
from millstream.engine.plan.steps import is_append_only_change
from millstream.engine.plan.windows import window_below


def shed_by(text: str, node: Node, catalog: Catalog) -> ShedBy:
    """Bind the expression of `shed_by` over the one stream that the query reads."""
    scan = _stream_of(node, catalog, "shed_by")
    try:
        bound = ExpressionBinder(Scope(scan.attributes), "an aggregate cannot stand in shed_by").bind(parse_expression(text))
    except EngineError as problem:
        raise type(problem)(f"option shed_by: {problem.message}", hint=problem.hint) from None
    if not (bound.type.is_numeric or bound.type == BOOLEAN):
        raise TypeProblem(f"option shed_by must give a number, not {bound.type}", hint="the rows with the least number are shed first")
    for part in walk(bound):
        if user_function_of(part) is not None or (isinstance(part, Call) and part.function in NOT_CONSTANT):
            raise Unsupported("option shed_by can use the built-in functions of a row's columns alone")
    reason = failure_of_constants(bound, compile_expression)
    if reason is not None:
        raise InvalidDefinition(f"option shed_by fails at every row: {reason}", hint="the rows with the least number are shed first")
    if bound.type == BOOLEAN:
        bound = build.cast(bound, INT)
    return ShedBy(text.strip(), build.cast(bound, DOUBLE))


def check_shedding(options: QueryOptions, node: Node, catalog: Catalog) -> None:
    """Refuse options that contradict one another or the class."""
    if options.shed_by is not None and not catalog.query_class(options.class_name).may_shed:
        raise InvalidDefinition(
            f"shed_by says which rows of a class that may be shed fall first, and class {options.class_name} is never shed",
            hint="CREATE CLASS name PRIORITY n SHED, and WITH (class = 'name')",
        )
    if options.split > 1 and catalog.query_class(options.class_name).may_shed:
        hint = "leave the option out, or give the query another class"
        raise Unsupported(f"option split is not for queries of a class that may be shed, as {options.class_name} is", hint=hint)
    if options.scale_up and options.shed_by is not None:
        raise InvalidDefinition("scale_up needs rows that are shed by chance, and shed_by chooses them", hint="leave one of the two out")
    if options.scale_up:
        _stream_of(node, catalog, "scale_up")


def _stream_of(node: Node, catalog: Catalog, option: str) -> Scan:
    scans = [n for n in walk_plan(node) if isinstance(n, Scan)]
    names = list(dict.fromkeys(scan.stream for scan in scans))
    if len(names) != 1:
        raise Unsupported(f"option {option} is for queries of one stream; this one reads {' and '.join(names)}")
    if not isinstance(catalog.find(names[0]), StreamDefinition):
        raise Unsupported(f"{names[0]} is a derived stream, and load is shed where rows enter", hint=f"give {option} to its own query")
    return scans[0]


PANED = (recipes.WindowKind.HOPPING, recipes.WindowKind.CUMULATE)
ROW_BY_ROW = (recipes.SelectRecipe, recipes.ProjectRecipe, recipes.SplitRecipe, recipes.UnionRecipe)
WINDOW_BY_WINDOW = (*ROW_BY_ROW, recipes.TopRecipe, recipes.RankRecipe)


def check_history(query: PhysicalQuery) -> None:
    """Raise Unsupported, naming what is in the way, unless every row of the answer comes from one whole window."""
    if query.options.history:
        _check(query.root)


def _check(node: PhysicalNode | SourceNode) -> None:
    if isinstance(node, SourceNode):
        raise _refused("rows that are in no window are answered as they come")
    if isinstance(node.recipe, recipes.AggregateRecipe):
        _check_aggregate(node.recipe)
        below = [ref.node for ref in node.inputs]
        while below:
            one = below.pop()
            if isinstance(one, PhysicalNode) and not isinstance(one.recipe, ROW_BY_ROW):
                raise _refused("its windows do not hold the rows of streams as they come")
            below += [ref.node for ref in one.inputs] if isinstance(one, PhysicalNode) else []
        return
    if not isinstance(node.recipe, WINDOW_BY_WINDOW):
        raise _refused("it keeps rows beside those of its windows")
    for ref in node.inputs:
        _check(ref.node)


def _check_aggregate(recipe: recipes.AggregateRecipe) -> None:
    if recipe.window is None or recipe.window.kind not in PANED:
        raise _refused("its windows are not made of panes")
    if recipe.emit.kind is not recipes.EmitKind.FINAL or recipe.emit.empty:
        raise _refused("it asks for other answers than final ones of windows with rows")
    if recipe.live is not None or recipe.retracts is not None:
        raise _refused("its windows are over a change log")


def _refused(why: str) -> Unsupported:
    return Unsupported(
        f"history = 'held' is not for this query: {why}",
        hint="it is for GROUP BY over hopping, tumbling and cumulating windows, EMIT FINAL",
    )


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
    "history_from",
    "scale_up",
    "shed_by",
    "materialized",
    "keep",
    "split",
)
_QOS_POINT = re.compile(r"\s*([0-9.]+\s*[A-Za-zµ]+)\s*:\s*([0-9.]+)\s*")
_NS_PER_US = 1_000
PARTS_MAX = 64


def query_options(
    own: tuple[Option, ...], overrides: tuple[Option, ...], node: Node, emit: recipes.EmitSpec, catalog: Catalog
) -> QueryOptions:
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
    _check_kept(options, node)
    if options.split > 1 and (options.history or options.archive):
        raise Unsupported("option split is not for queries that begin with a history", hint="leave one of the two out")
    if options.archive_from_us is not None and not options.archive:
        raise InvalidDefinition("history_from says where the history begins, and none is asked for", hint="add history = 'archive'")
    return options


def _only_comes(node: Node) -> bool:
    return change_position(node.attributes) is None or is_append_only_change(node)


def _check_kept(options: QueryOptions, node: Node) -> None:
    """Refuse a view that would grow without bound, and a bound where none is needed."""
    keeps = options.keep_rows is not None or options.keep_us is not None
    if not options.materialized:
        if keeps:
            hint = "write CREATE MATERIALIZED VIEW name WITH (keep = …) AS SELECT …"
            raise InvalidDefinition("keep is for materialized views", hint=hint)
        return
    if _only_comes(node):
        if not keeps:
            raise Unsupported(
                "the rows of this view only come, so it would grow without end",
                hint="say how much it keeps: WITH (keep = '7 days') of event time, or WITH (keep = 100000) rows",
            )
        return
    if not _stands(node):
        hint = "leave EMIT CHANGES out, and say how much it keeps: WITH (keep = '7 days') of event time, or WITH (keep = 100000) rows"
        raise Unsupported("the changes of these windows never end, so the view would grow without end", hint=hint)
    if keeps:
        raise InvalidDefinition("keep is for a view whose rows only come, and those of this one come and go", hint="leave it out")


def kept(node: Node, options: QueryOptions) -> Node:
    """Return the answer of a view whose rows only come as what is kept of them; any other as it is."""
    if not options.materialized or not _only_comes(node):
        return node
    rows = node.input if is_append_only_change(node) and isinstance(node, Project) else node
    attributes = (*rows.attributes, Attribute("op", TEXT, False, role=Role.CHANGE))
    return KeptRows(attributes=attributes, input=rows, rows_max=options.keep_rows, kept_us=options.keep_us)


_MOVING = (recipes.WindowKind.SLIDING, recipes.WindowKind.NOW, recipes.WindowKind.ROWS, recipes.WindowKind.UNBOUNDED)


def _stands(node: Node) -> bool:
    """Whether the answer is a change log whose rows are bounded by keys, tables or moving windows."""
    if isinstance(node, TableChanges) or (isinstance(node, RunningTop) and node.retracts is None):
        return True
    if isinstance(node, Aggregate):
        found = window_below(node.input) if node.windowed else None
        return node.emit.kind is recipes.EmitKind.CHANGES and (found is None or found.spec.kind in _MOVING)
    if isinstance(node, Window):
        return node.changes
    return isinstance(node, Project | Filter | Unnest | Union | ChangeJoin | RunningTop) and all(map(_stands, node.inputs))


def truth(name: str, value: object) -> bool:
    """Return a value that says yes or no."""
    if not isinstance(value, bool):
        raise InvalidDefinition(f"option {name} must be true or false, not {value!r}")
    return value


def default_options(node: Node, emit: recipes.EmitSpec) -> QueryOptions:
    """Return the options of a query that says nothing: its deadline and period are its EVERY or SLIDE."""
    period = _period_us(node, emit)
    if period is None:
        return QueryOptions()
    return QueryOptions(deadline_ns=period * _NS_PER_US, period_ns=period * _NS_PER_US)


def _period_us(node: Node, emit: recipes.EmitSpec) -> int | None:
    """Return how often the query answers: EVERY, else the least SLIDE; None when it answers row by row."""
    if emit.kind is recipes.EmitKind.EVERY:
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
    if name == "materialized":
        return replace(options, materialized=truth(name, value))
    if name == "keep":
        return _kept_option(options, value)
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
        return replace(options, history=_history(value) == "held", archive=_history(value) == "archive")
    if name == "history_from":
        return replace(options, archive_from_us=_instant(name, value))
    if name == "split":
        return replace(options, split=_parts(value))
    hint = did_you_mean(name, OPTION_NAMES) or f"the options are {', '.join(OPTION_NAMES)}"
    raise UnknownName(f"there is no option {shown(name)}", hint=hint)


def _kept_option(options: QueryOptions, value: object) -> QueryOptions:
    """Return the options with how much a view keeps: a whole number of rows, or a duration."""
    if isinstance(value, str):
        return replace(options, keep_us=_duration("keep", value), keep_rows=None)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 63:
        raise InvalidDefinition(f"option keep must be a duration, or a positive whole number of rows, not {value!r}")
    return replace(options, keep_rows=value, keep_us=None)


def _parts(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= PARTS_MAX:
        raise InvalidDefinition(f"option split must be a whole number from 1 to {PARTS_MAX}, not {value!r}")
    return value


def _history(value: object) -> str:
    if value not in ("held", "archive", "none"):
        raise InvalidDefinition(f"option history must be 'held', 'archive' or 'none', not {value!r}")
    return str(value)


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
        raise InvalidDefinition("the latencies of a qos graph must be at least 0, and its utilities between 0 and 1")
    return points
