"""Projection pruning: columns that nobody reads are dropped before joins and windows, which would have to keep them.

A filter or a projection carries a column for nothing (it is gathered only when read), so columns are cut only below operators that hold
rows in their state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.engine.expressions.ir import columns_used
from millstream.engine.plan import logical
from millstream.engine.plan.rules.rewriting import are_same, remapped

NAME = "projection_pruning"
Mapping = dict[int, int]


def concerns(node: logical.Node) -> bool:
    """Tell whether rows are held there, or columns computed of which some above might read a part alone."""
    if not isinstance(node, logical.Project):
        return not isinstance(node, logical.Filter | logical.Scan)
    below = node.input
    while isinstance(below, logical.Filter):
        below = below.input
    return not isinstance(below, logical.Scan)


def apply(plan: logical.Node) -> logical.Node:
    """Return the plan without unread columns; the root keeps all of its own."""
    return _all_kept(plan)


def _all_kept(node: logical.Node) -> logical.Node:
    """Prune below a node whose every attribute is wanted."""
    pruned, mapping = _prune(node, set(range(len(node.attributes))))
    assert all(mapping[i] == i for i in mapping)
    return pruned


def _kept(node: logical.Node, below: logical.Node, moved: Mapping) -> logical.Attributes:
    """Return the node's own attributes in the order in which the narrower input has them."""
    back = {new: old for old, new in moved.items()}
    return tuple(node.attributes[back[i]] if i in back else a for i, a in enumerate(below.attributes))


def _identity(node: logical.Node) -> Mapping:
    return {i: i for i in range(len(node.attributes))}


def _prune(node: logical.Node, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    """Return the node, perhaps narrower, and where its wanted attributes went."""
    if isinstance(node, logical.Project):
        return _project(node, wanted)
    if isinstance(node, logical.Filter):
        return _filter(node, wanted)
    if isinstance(node, logical.Aggregate):
        return _aggregate(node, wanted)
    if isinstance(node, logical.ChangeJoin):
        return _change_join(node, wanted)
    if isinstance(node, logical.KeyedJoin):
        return _join(node, wanted)
    if isinstance(node, logical.SubqueryJoin):
        return _subquery(node, wanted)
    if isinstance(node, logical.Rank):
        return _rank(node, wanted)
    if isinstance(node, logical.RunningTop):
        return _running_top(node, wanted)
    if isinstance(node, logical.Over):
        return _over(node, wanted)
    if isinstance(node, logical.Match):
        return _match(node, wanted)
    if isinstance(node, logical.Window) and not node.changes:
        return _window(node, wanted)
    inputs = tuple(_all_kept(below) for below in node.inputs)
    return (logical.with_inputs(node, inputs) if inputs else node), _identity(node)


def _project(node: logical.Project, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    kept = sorted(wanted) or list(range(min(1, len(node.attributes))))
    used = {p for i in kept for p in columns_used(node.expressions[i])}
    below, moved = _prune(node.input, used)
    expressions = tuple([remapped(node.expressions[i], moved) for i in kept])
    if below is node.input and are_same(expressions, node.expressions):
        return node, _identity(node)
    made = replace(node, input=below, expressions=expressions, attributes=tuple(node.attributes[i] for i in kept))
    return made, {old: new for new, old in enumerate(kept)}


def _filter(node: logical.Filter, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    below, moved = _prune(node.input, wanted | columns_used(node.condition))
    if below is node.input:
        return node, moved
    made = replace(node, input=below, condition=remapped(node.condition, moved), attributes=_kept(node, below, moved))
    return made, moved


def _aggregate(node: logical.Aggregate, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    """Aggregates that nobody reads are not computed, but one where nothing else would stay: a row has a column."""
    first = len(node.keys)
    bounds = range(first + len(node.items), len(node.attributes))
    kept_items = [i for i in range(len(node.items)) if first + i in wanted] or ([] if first or bounds else [0])
    kept = [*range(first), *(first + i for i in kept_items), *bounds]
    read = {*node.keys, *([node.retracts] if node.retracts is not None else [])}
    for i in kept_items:
        item = node.items[i]
        read |= {*item.arguments, *([item.filter] if item.filter is not None else [])}
    if node.windowed:
        read |= {i for i, a in enumerate(node.input.attributes) if a.role.value.startswith("window")}
    below, moved = _prune(node.input, read)
    if below is node.input and len(kept) == len(node.attributes):
        return node, _identity(node)
    items = tuple(node.items[i].moved(moved) for i in kept_items)
    made = replace(
        node,
        input=below,
        keys=tuple(moved[k] for k in node.keys),
        items=items,
        retracts=None if node.retracts is None else moved[node.retracts],
        attributes=tuple(node.attributes[i] for i in kept),
    )
    return made, {old: new for new, old in enumerate(kept)}


def _window(node: logical.Window, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    """A window keeps its bounds, which stand last, and the keys it is partitioned by."""
    width = len(node.input.attributes)
    below, moved = _narrowed(node.input, {p for p in wanted if p < width} | set(node.spec.partition))
    if below is node.input:
        return node, _identity(node)
    bounds = node.attributes[width:]
    mapping = moved | {width + i: len(below.attributes) + i for i in range(len(bounds))}
    spec = replace(node.spec, partition=tuple(moved[p] for p in node.spec.partition))
    return replace(node, input=below, spec=spec, attributes=_kept(node, below, moved) + bounds), mapping


def _numbered(node: logical.Rank | logical.RunningTop, wanted: set[int]) -> tuple[logical.Node, Mapping, dict[str, Any]]:
    """Return what is below one that numbers rows, whose own columns stand last, and its partition and order there, which are read."""
    width = len(node.input.attributes)
    read = set(node.partition) | {k.position for k in node.order}
    change = node.retracts if isinstance(node, logical.RunningTop) else None
    below, moved = _narrowed(node.input, {p for p in wanted if p < width} | read | ({change} if change is not None else set()))
    own = range(width, len(node.attributes))
    changed: dict[str, Any] = {
        "input": below,
        "partition": tuple(moved[p] for p in node.partition),
        "order": tuple(replace(k, position=moved[k.position]) for k in node.order),
    }
    if change is not None:
        changed["retracts"] = moved[change]
    return below, moved | {place: len(below.attributes) + i for i, place in enumerate(own)}, changed


def _rank(node: logical.Rank, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    """Its own column is the number."""
    below, moved, changed = _numbered(node, wanted)
    attributes = (*_kept(node, below, moved), *node.attributes[len(node.input.attributes) :])
    return replace(node, **changed, closing=None if node.closing is None else moved[node.closing], attributes=attributes), moved


def _running_top(node: logical.RunningTop, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    """Its own columns are the number and the kind of the change."""
    below, moved, changed = _numbered(node, wanted)
    kept = tuple(replace(a, time=None, time_unit_us=1) for a in _kept(node, below, moved))
    return replace(node, **changed, attributes=(*kept, *node.attributes[len(node.input.attributes) :])), moved


def _over(node: logical.Over, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    """Its own columns stand last. All are computed, as a frame that nobody reads may still decide when rows leave."""
    width = len(node.input.attributes)
    read = {p for part in node.parts for p in part.partition}
    for call in (call for part in node.parts for call in part.aggregates):
        read |= {*call.arguments, *(() if call.filter is None else (call.filter,))}
    below, moved = _narrowed(node.input, {p for p in wanted if p < width} | read)
    parts = tuple(
        replace(part, aggregates=tuple(c.moved(moved) for c in part.aggregates), partition=tuple(moved[p] for p in part.partition))
        for part in node.parts
    )
    own = node.attributes[width:]
    made = replace(node, input=below, parts=parts, attributes=(*_kept(node, below, moved), *own))
    return made, moved | {width + i: len(below.attributes) + i for i in range(len(own))}


def _match(node: logical.Match, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    """Of ALL ROWS PER MATCH the input's columns stand first; the measures stand last and stay."""
    width = len(node.input.attributes) if node.spec.all_rows else 0
    below, moved = _narrowed(node.input, {p for p in wanted if p < width} | node.spec.reads)
    spec, own = node.spec.moved(moved), node.attributes[width:]
    if not width:
        return replace(node, input=below, spec=spec), _identity(node)
    made = replace(node, input=below, spec=spec, attributes=(*_kept(node, below, moved), *own))
    return made, moved | {width + i: len(below.attributes) + i for i in range(len(own))}


def _join(node: logical.KeyedJoin, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    width = len(node.left.attributes)
    residual = columns_used(node.residual) if node.residual is not None else set[int]()
    read = wanted | residual
    left_read = {p for p in read if p < width} | {p for k in node.keys for p in columns_used(k.left)}
    right_read = {p - width for p in read if p >= width} | {p for k in node.keys for p in columns_used(k.right)}
    left, left_moved = _narrowed(node.left, left_read)
    right, right_moved = _prune(node.right, right_read) if isinstance(node, logical.TableJoin) else _narrowed(node.right, right_read)
    moved = {p: left_moved[p] for p in left_moved} | {p + width: right_moved[p] + len(left.attributes) for p in right_moved}
    return _rejoined(node, (left, left_moved), (right, right_moved), moved), moved


def _change_join(node: logical.ChangeJoin, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    """The kind of the change stands last in both inputs and in the answer."""
    widths = len(node.left.attributes) - 1, len(node.right.attributes) - 1
    width = widths[0]
    read = wanted | (columns_used(node.residual) if node.residual is not None else set[int]())
    left_read = {p for p in read if p < width} | {p for k in node.keys for p in columns_used(k.left)} | {width}
    right_read = {p - width for p in read if width <= p < sum(widths)} | {p for k in node.keys for p in columns_used(k.right)} | {widths[1]}
    # A row has a column beside that.
    left, left_moved = _narrowed(node.left, left_read if len(left_read) > 1 else {0, width})
    right, right_moved = _narrowed(node.right, right_read if len(right_read) > 1 else {0, widths[1]})
    own = len(left.attributes) - 1
    moved = {p: n for p, n in left_moved.items() if p < width} | {p + width: n + own for p, n in right_moved.items()}
    return _rejoined(node, (left, left_moved), (right, right_moved), moved), moved


def _rejoined(
    node: logical.KeyedJoin, left: tuple[logical.Node, Mapping], right: tuple[logical.Node, Mapping], moved: Mapping
) -> logical.KeyedJoin:
    """Return the join over narrower inputs, each with where its columns went; `moved` is where those of the join went."""
    keys = (logical.JoinKey(remapped(k.left, left[1]), remapped(k.right, right[1]), k.null_safe) for k in node.keys)
    return replace(
        node,
        left=left[0],
        right=right[0],
        keys=tuple(keys),
        residual=None if node.residual is None else remapped(node.residual, moved),
        attributes=tuple(node.attributes[old] for old in sorted(moved, key=lambda p: moved[p])),
    )


def _subquery(node: logical.SubqueryJoin, wanted: set[int]) -> tuple[logical.Node, Mapping]:
    """What it gives stands last and stays; of the left only what is read is kept."""
    width = len(node.left.attributes)
    keys = (*node.keys, *(() if node.compared is None else (node.compared,)))
    residual = set[int]() if node.residual is None else columns_used(node.residual)
    read = {p for p in wanted | residual if p < width} | {p for k in keys for p in columns_used(k.left)}
    left, moved = _narrowed(node.left, read | ({node.ends[0]} if node.ends is not None else set()))
    right = _all_kept(node.right)
    shift = len(left.attributes) - width
    behind = {p: p + shift for p in range(width, width + max(len(right.attributes), len(node.attributes) - width))}

    def key(k: logical.JoinKey) -> logical.JoinKey:
        return replace(k, left=remapped(k.left, moved))

    made = replace(
        node,
        left=left,
        right=right,
        keys=tuple(map(key, node.keys)),
        compared=None if node.compared is None else key(node.compared),
        residual=None if node.residual is None else remapped(node.residual, {**moved, **behind}),
        ends=None if node.ends is None else (moved[node.ends[0]], node.ends[1]),
        attributes=(*_kept(node, left, moved), *node.attributes[width:]),
    )
    return made, {**moved, **{p: n for p, n in behind.items() if p < len(node.attributes)}}


def _narrowed(node: logical.Node, read: set[int]) -> tuple[logical.Node, Mapping]:
    """Prune, and put a projection on top when more columns than are read would go into the state."""
    pruned, moved = _prune(node, read)
    kept = sorted(moved[p] for p in read) or list(range(min(1, len(pruned.attributes))))
    if len(kept) == len(pruned.attributes):
        return pruned, {p: moved[p] for p in sorted(moved)}
    attributes = tuple(pruned.attributes[i] for i in kept)
    made = logical.Project(attributes=attributes, input=pruned, expressions=tuple(pruned.attributes[i].reference(i) for i in kept))
    return made, {p: kept.index(moved[p]) for p in moved if moved[p] in kept}
