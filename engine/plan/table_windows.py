"""table LEFT JOIN stream [window]: for each window, every row of the table with the stream's rows of the same key, or with NULLs.

It is planned as two branches of operators that there are. One joins each row of the stream, once per window, with the table's row of its
key, as stream JOIN table does. The other answers each window when it closes, also one without rows: it collects the keys that came, meets
the whole table as it stands then, and leaves those rows whose key is not among them. A query that asks only for what found nothing
(WHERE stream.key IS NULL) has the second branch alone.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.data.types import BOOLEAN, TIMESTAMP, list_of
from millstream.engine.expressions import build
from millstream.engine.expressions.build import conjunction
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal, columns_used
from millstream.engine.language.recipes import AggregateCall, EmitSpec, JoinKind, WindowSpec
from millstream.engine.plan import logical
from millstream.engine.plan.aggregate_binder import projected
from millstream.engine.plan.catalog import TimeOffset
from millstream.engine.plan.join_conditions import KeyExpressions, key_type, shifted
from millstream.engine.plan.windows import bounds_of, output_time_known, windowed_times


def windowed_again(node: logical.Node, spec: WindowSpec) -> logical.Window:
    """Return the join as rows in its tumbling windows, with the same attributes, so that an aggregate answers for each."""
    kept = node.attributes[:-2]
    rows = logical.Project(attributes=kept, input=node, expressions=tuple(a.reference(i) for i, a in enumerate(kept)))
    return logical.Window(attributes=kept + bounds_of(None), input=rows, spec=spec)


def one_key(keys: list[KeyExpressions]) -> KeyExpressions | None:
    """Return the equality that such a join needs, of a plain column of the table, in whose type both are compared; None for others."""
    if len(keys) != 1 or keys[0].null_safe or not isinstance(keys[0].left, ColumnRef) or key_type(keys[0]) != keys[0].left.type:
        return None
    return keys[0]


def asks_for_missing(conditions: tuple[Expression, ...], key: KeyExpressions, count: int) -> bool:
    """One of the conditions of WHERE, over both sides' attributes, says that the stream's key is NULL: that it found nothing."""
    wanted = shifted(key.right, count)
    return any(isinstance(c, Call) and c.function == "is_null" and c.arguments == (wanted,) for c in conditions)


def table_windows(
    table: logical.TableScan,
    stream: logical.Node,
    spec: WindowSpec,
    key: KeyExpressions,
    conditions: list[Expression],
    *,
    missing_only: bool,
) -> logical.Node:
    """Return the join, with the attributes of the table, of the stream, and the bounds. `conditions` of ON are over those of the stream."""
    windowed = logical.Window(attributes=stream.attributes + bounds_of(None), input=stream, spec=spec)
    windowed = replace(windowed, attributes=windowed_times(windowed))
    missing = _missing(table, windowed, key, conditions)
    if missing_only:
        return missing
    found = _found(table, windowed, key, conditions)
    both = zip(found.attributes, missing.attributes, strict=True)
    attributes = tuple(replace(a, nullable=a.nullable or b.nullable, time=None) for a, b in both)
    return logical.Union(attributes=attributes, branches=(found, missing))


def _found(table: logical.TableScan, windowed: logical.Window, key: KeyExpressions, conditions: list[Expression]) -> logical.Node:
    width, others = len(windowed.attributes), len(table.attributes)
    joined = logical.TableJoin(
        attributes=(*windowed.attributes, *(replace(a, time=None) for a in table.attributes)),
        left=windowed,
        right=table,
        kind=JoinKind.INNER,
        keys=(logical.JoinKey(build.cast(key.right, key.left.type), key.left),),
        residual=conjunction(conditions),
    )
    order = [*range(width, width + others), *range(width)]
    return _plain(joined, tuple(joined.attributes[i] for i in order), tuple(joined.attributes[i].reference(i) for i in order))


def _missing(table: logical.TableScan, windowed: logical.Window, key: KeyExpressions, conditions: list[Expression]) -> logical.Node:
    seen = _seen(windowed, key, conditions)
    width, others = len(seen.attributes), len(table.attributes)
    assert isinstance(key.left, ColumnRef)
    own = table.attributes[key.left.position].reference(width + key.left.position)
    contains = build.call("array_contains", [seen.attributes[0].reference(0), own])
    joined = logical.TableJoin(
        attributes=(*seen.attributes, *(replace(a, time=None) for a in table.attributes)),
        left=seen,
        right=table,
        kind=JoinKind.INNER,
        keys=(),
        residual=build.call("is_not_true", [contains]),
    )
    stream = windowed.input.attributes
    attributes: logical.Attributes = (
        *joined.attributes[width : width + others],
        *(replace(a, nullable=True, time=None) for a in stream),
        *seen.attributes[1:],
    )
    expressions: tuple[Expression, ...] = (
        *(joined.attributes[i].reference(i) for i in range(width, width + others)),
        *(Literal(a.type, None) for a in stream),
        *(seen.attributes[i].reference(i) for i in range(1, width)),
    )
    return _plain(joined, attributes, expressions)


def _plain(joined: logical.Node, attributes: logical.Attributes, expressions: tuple[Expression, ...]) -> logical.Project:
    """Return the projection; the bounds are columns like others."""
    return logical.Project(attributes=tuple(replace(a, role=logical.Role.PLAIN) for a in attributes), input=joined, expressions=expressions)


def _seen(windowed: logical.Window, key: KeyExpressions, conditions: list[Expression]) -> logical.Aggregate:
    """Return the different keys of each window as a list, and its bounds; of a window without rows, NULL."""
    width = len(windowed.input.attributes)
    bounds = tuple(windowed.attributes[i].reference(i) for i in range(width, width + 2))
    value = build.cast(key.right, key.left.type)
    counts = conjunction([build.call("is_not_null", [value]), *conditions])
    assert counts is not None
    rows = logical.Project(
        attributes=(projected(windowed, value, "key"), logical.Attribute("counts", BOOLEAN, True), *windowed.attributes[width:]),
        input=windowed,
        expressions=(value, counts, *bounds),
    )
    spec = windowed.spec
    start, end = (TimeOffset(1 - spec.range_us, 1 - spec.range_us), TimeOffset(1, 1)) if output_time_known(spec) else (None, None)
    return logical.Aggregate(
        attributes=(
            logical.Attribute("seen", list_of(value.type), True),
            logical.Attribute("window_start", TIMESTAMP, False, time=start, role=logical.Role.WINDOW_START),
            logical.Attribute("window_end", TIMESTAMP, False, time=end, role=logical.Role.WINDOW_END),
        ),
        input=rows,
        keys=(),
        items=(AggregateCall("array_agg", (0,), list_of(value.type), 1, True, ()),),
        windowed=True,
        emit=EmitSpec(empty=True),
    )


def on_stream_alone(conditions: list[Expression], count: int) -> list[Expression] | None:
    """Return conditions over both sides' attributes as ones over the stream's; None when one reads the table too."""
    if any(min(columns_used(c), default=count) < count for c in conditions):
        return None
    return [shifted(c, -count) for c in conditions]
