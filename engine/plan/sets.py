"""UNION, INTERSECT and EXCEPT of rows, each once or ALL; columns that meet by name; several groupings in one query (K26).

    a EXCEPT b          ->  the different rows of a of which a SubqueryJoin says that b has no equal one, of whose different rows it is told
    a EXCEPT ALL b      ->  the same of all rows, where equal rows of a side are numbered and the number is compared too
    GROUP BY ROLLUP (k) ->  SELECT … GROUP BY k  UNION ALL  SELECT … GROUP BY ( ), where k is NULL

Over windows the rows of a window are compared with those of the same window of the other side. Rows are equal as keys are (K6, K7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import InvalidDefinition, Unsupported
from millstream.engine.data.types import BIGINT, NULL
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import Literal
from millstream.engine.language.recipes import JoinKind, WindowKind, WindowSpec
from millstream.engine.language.statements import Name, SelectBody, SelectItem, SetBody
from millstream.engine.plan.aggregate_binder import contains_aggregate, in_aggregate
from millstream.engine.plan.logical import (
    Attribute,
    Distinct,
    JoinKey,
    Node,
    Project,
    Rank,
    SubqueryJoin,
    Union,
    Window,
    check_append_only,
    passing,
)
from millstream.engine.plan.steps import WINDOW_ROLES, filtered, is_grouping
from millstream.engine.plan.subqueries import at_close, found_column
from sqlglot import exp

COMPARED_WINDOWS = (WindowKind.HOPPING, WindowKind.CUMULATE)
COPY_STEPS = 20  # of limits.WORK_MAX, for each part of an expression that a grouping repeats


# -- rows, each once --------------------------------------------------------------------------------------------------------------


def window_of_rows(node: Node) -> WindowSpec | None:
    """Return the window whose bounds the rows carry as their last two columns; None where they carry none."""
    if [a.role for a in node.attributes[-2:]] != list(WINDOW_ROLES):
        return None
    while not isinstance(node, Window) and node.inputs:
        node = node.inputs[0]
    return node.spec if isinstance(node, Window) and node.spec.kind in COMPARED_WINDOWS else None


def with_common_bounds(body: SetBody, nodes: Sequence[Node], *, finite: bool) -> list[Node]:
    """Return both sides with the bounds of the window that they share, or, in a FETCH, without any. Unsupported for different windows."""
    specs = [window_of_rows(node) for node in nodes]
    if all(spec == specs[0] for spec in specs):
        return list(nodes)
    if not finite:
        raise _refused(body, "of different windows", "give both the same window, as in s [RANGE w SLIDE w]")
    return [_without_bounds(node, dropped=spec is not None) for node, spec in zip(nodes, specs, strict=True)]


def combined(body: SetBody, union: Union, *, finite: bool, bounds: bool) -> Node:
    """Return the rows of a set operation; `union` has both sides' rows with columns of common types, and the bounds of their windows.

    With `bounds` the answer has these too.
    """
    sides = union.branches
    for side in sides:
        check_append_only(side, body.operator.upper(), body.place, body.operator.upper())
    spec = window_of_rows(sides[0])
    shared = spec is not None
    if body.operator == "union":
        return _without_bounds(_each_once(union, spec), dropped=shared and not bounds)
    if not shared and not finite:
        hint = "give both the same window, as in s [RANGE w SLIDE w]; FETCH takes any rows; or WHERE k IN (SELECT …) of a table"
        raise _refused(body, "without a window", hint)
    width = len(sides[0].attributes)
    left, right = (_numbered(side, spec) if body.keeps_all else _each_once(side, spec) for side in sides)
    keys = tuple(JoinKey(a.reference(i), right.attributes[i].reference(i), True) for i, a in enumerate(left.attributes))
    joined = SubqueryJoin(
        attributes=(*(at_close(left.attributes, spec) if shared else left.attributes), found_column()),
        left=left,
        right=right,
        kind=JoinKind.MARK,
        keys=keys,
        ends=(width - 1, width - 1) if shared else None,
    )
    last = len(left.attributes)
    found = joined.attributes[last].reference(last)
    kept = filtered(joined, [found if body.operator == "intersect" else build.call("not", [found])])
    rows = Project(attributes=joined.attributes[:width], input=kept, expressions=passing(joined.attributes[:width]))
    return _without_bounds(rows, dropped=shared and not bounds)


def _numbered(side: Node, spec: WindowSpec | None) -> Node:
    """Return the rows, equal ones of a window numbered in order of arrival; without a window when all have come."""
    width = len(side.attributes)
    number = Attribute("copy", BIGINT, False)
    closing = None if spec is None else width - 1
    return Rank(
        attributes=(*side.attributes, number),
        input=side,
        function="row_number",
        order=(),
        partition=tuple(range(width)),
        closing=closing,
    )


def _refused(body: SetBody, what: str, hint: str) -> Unsupported:
    word, place = body.operator.upper(), body.place
    return Unsupported(f"{word} {what} is not supported", hint=hint, line=place.line, column=place.column, token=word)


def _each_once(node: Node, spec: WindowSpec | None) -> Node:
    return Distinct(attributes=node.attributes, input=node, window=spec)


def _without_bounds(node: Node, *, dropped: bool) -> Node:
    if not dropped:
        return node
    attributes = node.attributes[:-2]
    return Project(attributes=attributes, input=node, expressions=passing(attributes))


def by_name(nodes: Sequence[Node]) -> list[Node]:
    """Return both sides with the columns of both, in order of their first coming; what a side does not have is NULL there."""
    bounds = 2 if all(window_of_rows(n) is not None for n in nodes) else 0
    own = [n.attributes[: len(n.attributes) - bounds] for n in nodes]
    names = list(dict.fromkeys(a.name for attributes in own for a in attributes))
    made: list[Node] = []
    for node, attributes in zip(nodes, own, strict=True):
        places = {a.name: i for i, a in enumerate(attributes)}
        columns: list[Attribute] = []
        expressions = []
        for name in names:
            place = places.get(name)
            columns.append(Attribute(name, NULL) if place is None else attributes[place])
            expressions.append(Literal(NULL, None) if place is None else attributes[place].reference(place))
        for i in range(len(attributes), len(node.attributes)):
            columns.append(node.attributes[i])
            expressions.append(node.attributes[i].reference(i))
        made.append(Project(attributes=tuple(columns), input=node, expressions=tuple(expressions)))
    return made


# -- groupings --------------------------------------------------------------------------------------------------------------------


def all_keys(body: SelectBody) -> SelectBody:
    """GROUP BY ALL: what of the select list holds no aggregate is a key."""
    if not body.group_all:
        return body
    keys = [i.expression for i in body.items if isinstance(i, SelectItem)]
    keys = [k for k in keys if not contains_aggregate(k) and k.find(exp.Window) is None]
    return replace(body, group_by=tuple(keys), group_all=False)


def apart(body: SelectBody) -> list[SelectBody]:
    """Return a SELECT for each of its groupings, in which a key of the others is NULL."""
    aliases = {i.alias.text: i.expression for i in body.items if isinstance(i, SelectItem) and i.alias is not None}
    shown = [i.expression for i in body.items if isinstance(i, SelectItem)]
    sets = [[_meant(key, aliases, shown) for key in keys] for keys in body.grouping_sets or (body.group_by,)]
    every: list[exp.Expr] = []
    for key in (key for keys in sets for key in keys):
        if not any(_same(key, known) for known in every):
            every.append(key)
    made = []
    for keys in sets:
        without = [key for key in every if not any(_same(key, own) for own in keys)]
        items = tuple(_grouped_item(i, n, keys, without) if isinstance(i, SelectItem) else i for n, i in enumerate(body.items))
        having = None if body.having is None else _seen_by(body.having, keys, without)
        made.append(replace(body, items=items, group_by=tuple(keys), having=having, grouping_sets=()))
    return made


def _meant(key: exp.Expr, aliases: dict[str, exp.Expr], shown: Sequence[exp.Expr]) -> exp.Expr:
    """A key may be the number or the alias of a column of the select list."""
    if isinstance(key, exp.Literal) and not key.is_string:
        number = int(key.this) if str(key.this).isdigit() else 0
        if not 1 <= number <= len(shown):
            raise InvalidDefinition(f"GROUP BY {key.this} is not a column of the select list", hint=f"there are {len(shown)}")
        return shown[number - 1]
    if isinstance(key, exp.Column) and key.args.get("table") is None and not any(_same(key, s) for s in shown):
        return aliases.get(key.name if key.this.args.get("quoted") else key.name.lower(), key)
    return key


def _grouped_item(item: SelectItem, number: int, keys: Sequence[exp.Expr], without: Sequence[exp.Expr]) -> SelectItem:
    from millstream.engine.plan.select_binder import implicit_name  # it binds what stands here

    alias = item.alias or Name(implicit_name(item, number), item.place)
    return replace(item, expression=_seen_by(item.expression, keys, without), alias=alias)


def _seen_by(node: exp.Expr, keys: Sequence[exp.Expr], without: Sequence[exp.Expr]) -> exp.Expr:
    """Return an expression as a grouping sees it: other keys are NULL, save in aggregates; GROUPING(k, …) says which are."""

    def change(part: exp.Expr) -> exp.Expr:
        spend(COPY_STEPS)
        if isinstance(part, exp.Anonymous) and is_grouping(part):
            return exp.Literal.number(_grouping(part, keys, without))
        if in_aggregate(part) or not any(_same(part, key) for key in without):
            return part
        return exp.Null()

    return node.copy().transform(change)


def _grouping(call: exp.Anonymous, keys: Sequence[exp.Expr], without: Sequence[exp.Expr]) -> int:
    bits = 0
    for argument in call.expressions:
        if not any(_same(argument, key) for key in (*keys, *without)):
            raise InvalidDefinition("GROUPING takes keys of the grouping", hint="write GROUPING(k) for a k of GROUP BY")
        bits = 2 * bits + int(any(_same(argument, key) for key in without))
    return bits


def _same(one: exp.Expr, other: exp.Expr) -> bool:
    while isinstance(one, exp.Paren):
        one = one.this
    while isinstance(other, exp.Paren):
        other = other.this
    if isinstance(one, exp.Column) and isinstance(other, exp.Column):
        tables = {str(t.name).lower() for t in (one.args.get("table"), other.args.get("table")) if t is not None}
        return str(one.name).lower() == str(other.name).lower() and len(tables) < 2
    return one == other
