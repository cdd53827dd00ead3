"""How many rows ROW_NUMBER( ) without a window has to keep: what the query asks of the number says so (K24).

    SELECT … FROM (SELECT …, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM s) WHERE r <= 10

The conditions of WHERE on the number are followed down to the node that gives it. One that only bounds the number from above is then true
of every row that leaves, and goes. Where nobody else reads the number, a row stays while its number changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import Unsupported
from millstream.engine.expressions.build import conjunction, conjuncts
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal, columns_used
from millstream.engine.plan.logical import Filter, Node, Project, RelationToStream, RunningTop, walk_plan, with_inputs

EXAMPLE = "SELECT … FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM s) WHERE r <= 10"
_MOST: dict[str, Callable[[int], int]] = {"<=": lambda n: n, "<": lambda n: n - 1, "=": lambda n: n}
_TURNED = {">=": "<=", ">": "<", "=": "="}


def with_limits(root: Node) -> Node:
    """Return the plan in which each such node knows its limit. Raises Unsupported where nothing bounds a number."""
    return _visited(root, {}, None) if any(isinstance(node, RunningTop) for node in walk_plan(root)) else root


def _visited(node: Node, most: dict[int, int], read: set[int] | None) -> Node:
    """`most`: the greatest value that is wanted of some columns; `read`: the columns that are read above, None for all."""
    spend(1 + len(node.attributes) // 8)
    if isinstance(node, RunningTop):
        return _limited(node, most, read)
    if isinstance(node, Filter):
        return _filter(node, most, read)
    if isinstance(node, Project):
        passed = {e.position: most[i] for i, e in enumerate(node.expressions) if i in most and isinstance(e, ColumnRef)}
        kept = range(len(node.expressions)) if read is None else read
        used = set[int]().union(*(columns_used(node.expressions[i]) for i in kept))
        return with_inputs(node, (_visited(node.input, passed, used),))
    if isinstance(node, RelationToStream):  # the kind of a change, which it leaves out, stands last
        return with_inputs(node, (_visited(node.input, most, read),))
    return with_inputs(node, tuple(_visited(below, {}, None) for below in node.inputs)) if node.inputs else node


def _limited(node: RunningTop, most: dict[int, int], read: set[int] | None) -> Node:
    number = len(node.input.attributes)
    limits = [limit for limit in (node.limit, most.get(number)) if limit is not None]
    if not limits:
        message = "ROW_NUMBER() OVER ( ) without a window numbers rows for ever"
        raise Unsupported(message, hint=f"say how many of each group you want: {EXAMPLE}; or write a window after the stream's name")
    made = replace(node, limit=max(0, min(limits)), numbered=read is None or number in read)
    return with_inputs(made, (_visited(node.input, {}, None),))


def _filter(node: Filter, most: dict[int, int], read: set[int] | None) -> Node:
    kept: list[Expression] = []
    wanted = dict(most)
    for condition in conjuncts(node.condition):
        found = _bound(condition)
        if found is None or not _is_number(node.input, found[0]):
            kept.append(condition)
            continue
        position, limit, is_all = found
        wanted[position] = min(limit, wanted.get(position, limit))
        if not is_all:
            kept.append(condition)
    used = None if read is None else read.union(*(columns_used(c) for c in kept))
    below = _visited(node.input, wanted, used)
    left = conjunction(kept)
    return below if left is None else replace(node, input=below, condition=left)


def _is_number(node: Node, position: int) -> bool:
    """Whether a column is the number that such a node gives."""
    while isinstance(node, Filter | Project | RelationToStream):
        if isinstance(node, Project):
            expression = node.expressions[position]
            if not isinstance(expression, ColumnRef):
                return False
            position = expression.position
        node = node.input
    return isinstance(node, RunningTop) and position == len(node.input.attributes)


def _bound(condition: Expression) -> tuple[int, int, bool] | None:
    """Return a column, its greatest value, and whether the condition says no more of a number from 1; None for other conditions."""
    if not isinstance(condition, Call):
        return None
    first, *others = condition.arguments
    if condition.function == "between" and isinstance(first, ColumnRef):
        low, high = (_whole(one) for one in others)
        return None if low is None or high is None else (first.position, high, low <= 1)
    if len(others) != 1:
        return None
    function, second = condition.function, others[0]
    if not isinstance(first, ColumnRef):
        first, second, function = second, first, _TURNED.get(function, "")
    value = _whole(second)
    if not isinstance(first, ColumnRef) or function not in _MOST or value is None:
        return None
    return first.position, _MOST[function](value), function != "=" or value == 1


def _whole(expression: Expression) -> int | None:
    if not isinstance(expression, Literal) or not expression.type.is_integer or expression.value is None:
        return None
    return int(expression.value)
