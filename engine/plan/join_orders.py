"""The order of selections and of joins with tables, by (s - 1) / c as measured: a join with a table is a selection that adds columns.

Only inner joins on the whole primary key take part: such a join gives at most one row for each row of the stream, in the stream's
order, and asks for the table's version at the row's own place in arrival order (K18); so it gives the same wherever it stands. A step
that needs a table's columns stays behind the join that brings them. Where the columns come out in another order, a projection puts
them back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from millstream.engine.data.records import dataclass
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.ir import ColumnRef, Expression, columns_used
from millstream.engine.language.recipes import JoinKind
from millstream.engine.plan.logical import Attribute, Filter, Node, Project, TableJoin, TableScan, with_inputs
from millstream.engine.plan.rules.rewriting import is_movable, remapped

Place = tuple[int, int]
"""A column by who brings it: (-1, position) in the rows below the run, (step, position) in the table of a join."""


@dataclass(frozen=True, slots=True)
class Step:
    """A selection or a join of a run: the node, the columns its expressions speak of at each position, and those it needs of the stream."""

    node: Filter | TableJoin
    places: tuple[Place, ...]
    needs: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Run:
    """Steps that follow one another, the first to run first, over `below`; `top` is the node that they end in.

    `places` are the columns that come out at the top, `attributes` tells what each column is.
    """

    steps: tuple[Step, ...]
    below: Node
    top: Node
    places: tuple[Place, ...]
    attributes: Mapping[Place, Attribute]


def can_move(condition: Expression) -> bool:
    """Whether a condition may be asked earlier or later than it is."""
    return is_movable(condition) and not may_fail(condition)


def run_below(node: Node) -> Run:
    """Return the longest run from a node down; without steps when the node is none.

    Projections that only pick columns may stand between joins and go with them; between selections alone they end a run.
    """
    run = _run(node, through_projections=True)
    if any(isinstance(step.node, TableJoin) for step in run.steps):
        return run
    return _run(node, through_projections=False)


def _run(top: Node, *, through_projections: bool) -> Run:
    nodes: list[Filter | TableJoin | Project] = []
    node = top
    while True:
        if isinstance(node, Filter) and can_move(node.condition):
            below = node.input
        elif isinstance(node, TableJoin) and _is_lookup(node):
            below = node.left
        elif through_projections and isinstance(node, Project) and all(isinstance(e, ColumnRef) for e in node.expressions):
            below = node.input
        else:
            break
        nodes.append(node)
        node = below
    return _placed(nodes[::-1], node, top)


def _placed(nodes: Sequence[Filter | TableJoin | Project], below: Node, top: Node) -> Run:
    places: list[Place] = [(-1, i) for i in range(len(below.attributes))]
    attributes: dict[Place, Attribute] = dict(zip(places, below.attributes, strict=True))
    steps: list[Step] = []
    for node in nodes:
        if isinstance(node, Project):
            places = [places[e.position] for e in node.expressions if isinstance(e, ColumnRef)]
            continue
        brought: list[Place] = []
        if isinstance(node, TableJoin):
            brought = [(len(steps), i) for i in range(len(node.right.attributes))]
            attributes.update(zip(brought, node.attributes[len(places) :], strict=True))
        seen = (*places, *brought)
        used = {seen[p] for p in _columns(node, len(places))} - set(brought)
        steps.append(Step(node, seen, frozenset(used)))
        places.extend(brought)
    return Run(tuple(steps), below, top, tuple(places), attributes)


def _is_lookup(node: TableJoin) -> bool:
    """Whether a join gives at most one row a row, and none of its expressions can fail."""
    if node.kind is not JoinKind.INNER or not isinstance(node.right, TableScan):
        return False
    asked = {key.right.position for key in node.keys if isinstance(key.right, ColumnRef)}
    expressions = [key.left for key in node.keys] + ([] if node.residual is None else [node.residual])
    return set(node.right.key) <= asked and len(asked) == len(node.keys) and all(can_move(e) for e in expressions)


def _columns(node: Filter | TableJoin, width: int) -> set[int]:
    if isinstance(node, Filter):
        return columns_used(node.condition)
    used = set() if node.residual is None else columns_used(node.residual)
    return used.union(*(columns_used(key.left) for key in node.keys))


def ordered(run: Run, rank: Callable[[int], float]) -> list[int]:
    """Return the steps by their number in the run, each time the one of the least rank whose columns are there."""
    left, there, found = list(range(len(run.steps))), {p for p in run.attributes if p[0] < 0}, list[int]()
    while left:
        able = [i for i in left if run.steps[i].needs <= there]
        chosen = min(able, key=lambda i: (rank(i), i))
        left.remove(chosen)
        found.append(chosen)
        there.update(p for p in run.steps[chosen].places if p[0] == chosen)
    return found


def rebuilt(run: Run, order: Sequence[int], below: Node | None = None) -> Node:
    """Return the run with its steps in another order, over other rows of the same columns where they are given."""
    node = run.below if below is None else below
    places: list[Place] = [(-1, i) for i in range(len(node.attributes))]
    for number in order:
        step = run.steps[number]
        places.extend(p for p in step.places if p[0] == number)
        mapping = {i: places.index(p) for i, p in enumerate(step.places) if p in places}
        node = _put(step.node, node, mapping, tuple(run.attributes[p] for p in places))
    shown = run.top.attributes
    if tuple(places) == run.places and not isinstance(run.top, Project):
        return replace(node, attributes=shown)
    columns = tuple(a.reference(places.index(p)) for a, p in zip(shown, run.places, strict=True))
    return Project(attributes=shown, input=node, expressions=columns)


def _put(step: Filter | TableJoin, below: Node, mapping: dict[int, int], attributes: tuple[Attribute, ...]) -> Node:
    if isinstance(step, Filter):
        return replace(step, attributes=attributes, input=below, condition=remapped(step.condition, mapping))
    keys = tuple(replace(key, left=remapped(key.left, mapping)) for key in step.keys)
    residual = None if step.residual is None else remapped(step.residual, mapping)
    return replace(step, attributes=attributes, left=below, keys=keys, residual=residual)


def change_runs(node: Node, change: Callable[[Run], Node | None]) -> Node:
    """Return the plan with every run replaced by what `change` makes of it (None: as it is), the rows below it changed first."""
    run = run_below(node)
    if run.steps:
        below = change_runs(run.below, change)
        if below is not run.below:
            node = rebuilt(run, range(len(run.steps)), below)
            run = run_below(node)
        changed = change(run)
        return node if changed is None else changed
    inputs = tuple(change_runs(one, change) for one in node.inputs)
    if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
        return node
    return with_inputs(node, inputs)
