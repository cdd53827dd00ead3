"""Other plans of a query that give the same answers, from what its operators were measured to do (Pajjuri 2004, 3.4).

    selection order     each run of selections, and of joins with tables as lookups, by (s - 1) / c, least first; a selection that is
                        several conditions joined by AND is taken apart where one of them is dear, so that each is measured by itself and
                        the dear one sees fewer rows
    alternative plan    what the rewrites make of the plan, where they were switched off and nothing in it keeps state

Only conditions that cannot fail on a row change places: the order of others decides on which rows they fail (K8). What a run is
expected to cost is Σ c_i · s_1 … s_(i-1), as if conditions were independent.

The order of selections and of joins with tables, by (s - 1) / c as measured: a join with a table is a selection that adds columns.

Only inner joins on the whole primary key take part: such a join gives at most one row for each row of the stream, in the stream's
order, and asks for the table's version at the row's own place in arrival order (K18); so it gives the same wherever it stands. A step
that needs a table's columns stays behind the join that brings them. Where the columns come out in another order, a projection puts
them back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from millstream.engine.data.records import dataclass
from millstream.engine.expressions.bounds import is_cheap, may_fail
from millstream.engine.expressions.build import conjuncts
from millstream.engine.expressions.ir import ColumnRef, Expression, columns_used
from millstream.engine.language.recipes import JoinKind, Recipe, SelectRecipe
from millstream.engine.plan import logical
from millstream.engine.plan.lower import lower
from millstream.engine.plan.physical import PhysicalQuery
from millstream.engine.plan.plan import optimise
from millstream.engine.plan.rules.rewriting import bottom_up, is_movable, remapped
from millstream.engine.plan.rules.selection_reordering import rank as guessed_rank
from millstream.engine.plan.text import attribute_names, expression_text

Place = tuple[int, int]
"""A column by who brings it: (-1, position) in the rows below the run, (step, position) in the table of a join."""


@dataclass(frozen=True, slots=True)
class SelectionStep:
    """A selection or a join of a run: the node, the columns its expressions speak of at each position, and those it needs of the stream."""

    node: logical.Filter | logical.TableJoin
    places: tuple[Place, ...]
    needs: frozenset[Place]


@dataclass(frozen=True, slots=True)
class SelectionRun:
    """Steps that follow one another, the first to run first, over `below`; `top` is the node that they end in.

    `places` are the columns that come out at the top, `attributes` tells what each column is.
    """

    steps: tuple[SelectionStep, ...]
    below: logical.Node
    top: logical.Node
    places: tuple[Place, ...]
    attributes: Mapping[Place, logical.Attribute]


def can_move(condition: Expression) -> bool:
    """Whether a condition may be asked earlier or later than it is."""
    return is_movable(condition) and not may_fail(condition)


def run_below(node: logical.Node) -> SelectionRun:
    """Return the longest run from a node down; without steps when the node is none.

    Projections that only pick columns may stand between joins and go with them; between selections alone they end a run.
    """
    run = _run(node, through_projections=True)
    if any(isinstance(step.node, logical.TableJoin) for step in run.steps):
        return run
    return _run(node, through_projections=False)


def _run(top: logical.Node, *, through_projections: bool) -> SelectionRun:
    nodes: list[logical.Filter | logical.TableJoin | logical.Project] = []
    node = top
    while True:
        if isinstance(node, logical.Filter) and can_move(node.condition):
            below = node.input
        elif isinstance(node, logical.TableJoin) and _is_lookup(node):
            below = node.left
        elif through_projections and isinstance(node, logical.Project) and all(isinstance(e, ColumnRef) for e in node.expressions):
            below = node.input
        else:
            break
        nodes.append(node)
        node = below
    return _placed(nodes[::-1], node, top)


def _placed(nodes: Sequence[logical.Filter | logical.TableJoin | logical.Project], below: logical.Node, top: logical.Node) -> SelectionRun:
    places: list[Place] = [(-1, i) for i in range(len(below.attributes))]
    attributes: dict[Place, logical.Attribute] = dict(zip(places, below.attributes, strict=True))
    steps: list[SelectionStep] = []
    for node in nodes:
        if isinstance(node, logical.Project):
            places = [places[e.position] for e in node.expressions if isinstance(e, ColumnRef)]
            continue
        brought: list[Place] = []
        if isinstance(node, logical.TableJoin):
            brought = [(len(steps), i) for i in range(len(node.right.attributes))]
            attributes.update(zip(brought, node.attributes[len(places) :], strict=True))
        seen = (*places, *brought)
        used = {seen[p] for p in _columns(node, len(places))} - set(brought)
        steps.append(SelectionStep(node, seen, frozenset(used)))
        places.extend(brought)
    return SelectionRun(tuple(steps), below, top, tuple(places), attributes)


def _is_lookup(node: logical.TableJoin) -> bool:
    """Whether a join gives at most one row a row, and none of its expressions can fail."""
    if node.kind is not JoinKind.INNER or not isinstance(node.right, logical.TableScan):
        return False
    asked = {key.right.position for key in node.keys if isinstance(key.right, ColumnRef)}
    expressions = [key.left for key in node.keys] + ([] if node.residual is None else [node.residual])
    return set(node.right.key) <= asked and len(asked) == len(node.keys) and all(can_move(e) for e in expressions)


def _columns(node: logical.Filter | logical.TableJoin, width: int) -> set[int]:
    if isinstance(node, logical.Filter):
        return columns_used(node.condition)
    used = set() if node.residual is None else columns_used(node.residual)
    return used.union(*(columns_used(key.left) for key in node.keys))


def ordered(run: SelectionRun, rank: Callable[[int], float]) -> list[int]:
    """Return the steps by their number in the run, each time the one of the least rank whose columns are there."""
    left, there, found = list(range(len(run.steps))), {p for p in run.attributes if p[0] < 0}, list[int]()
    while left:
        able = [i for i in left if run.steps[i].needs <= there]
        chosen = min(able, key=lambda i: (rank(i), i))
        left.remove(chosen)
        found.append(chosen)
        there.update(p for p in run.steps[chosen].places if p[0] == chosen)
    return found


def rebuilt(run: SelectionRun, order: Sequence[int], below: logical.Node | None = None) -> logical.Node:
    """Return the run with its steps in another order, over other rows of the same columns where they are given."""
    node = run.below if below is None else below
    places: list[Place] = [(-1, i) for i in range(len(node.attributes))]
    for number in order:
        step = run.steps[number]
        places.extend(p for p in step.places if p[0] == number)
        mapping = {i: places.index(p) for i, p in enumerate(step.places) if p in places}
        node = _put(step.node, node, mapping, tuple(run.attributes[p] for p in places))
    shown = run.top.attributes
    if tuple(places) == run.places and not isinstance(run.top, logical.Project):
        return replace(node, attributes=shown)
    columns = tuple(a.reference(places.index(p)) for a, p in zip(shown, run.places, strict=True))
    return logical.Project(attributes=shown, input=node, expressions=columns)


def _put(
    step: logical.Filter | logical.TableJoin, below: logical.Node, mapping: dict[int, int], attributes: tuple[logical.Attribute, ...]
) -> logical.Node:
    if isinstance(step, logical.Filter):
        return replace(step, attributes=attributes, input=below, condition=remapped(step.condition, mapping))
    keys = tuple(replace(key, left=remapped(key.left, mapping)) for key in step.keys)
    residual = None if step.residual is None else remapped(step.residual, mapping)
    return replace(step, attributes=attributes, left=below, keys=keys, residual=residual)


def change_runs(node: logical.Node, change: Callable[[SelectionRun], logical.Node | None]) -> logical.Node:
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
    return logical.with_inputs(node, inputs)


ROWS_MIN = 1_000
"""Rows an operator must have taken before its selectivity counts as measured."""

STATELESS = (logical.Scan, logical.Filter, logical.Project, logical.Split, logical.Union)


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """What an operator did over a while: rows in and out, and the time it took (ns)."""

    rows_in: int
    rows_out: int
    cost_ns: int

    def __add__(self, other: OperatorRecord) -> OperatorRecord:
        """Return both together."""
        return OperatorRecord(self.rows_in + other.rows_in, self.rows_out + other.rows_out, self.cost_ns + other.cost_ns)

    @property
    def selectivity(self) -> float:
        """Rows out by rows in."""
        return self.rows_out / max(1, self.rows_in)

    @property
    def cost(self) -> float:
        """Time a row, ns."""
        return self.cost_ns / max(1, self.rows_in)

    @property
    def rank(self) -> float:
        """(s - 1) / c: the least goes first."""
        return (self.selectivity - 1.0) / max(self.cost, 1e-3)


NOTHING = OperatorRecord(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the operators of a query did: by their recipes, and the joins with tables by the table's name."""

    operators: Mapping[Recipe, OperatorRecord] = field(default_factory=dict)
    lookups: Mapping[str, OperatorRecord] = field(default_factory=dict)

    @property
    def cost_ns(self) -> int:
        """The time all of them took."""
        return sum(one.cost_ns for one in self.operators.values())

    def of(self, node: logical.Filter | logical.TableJoin) -> OperatorRecord:
        """Return what the operator of a node did."""
        if isinstance(node, logical.Filter):
            return self.operators.get(SelectRecipe(node.schema, node.condition), NOTHING)
        assert isinstance(node.right, logical.TableScan)
        return self.lookups.get(node.right.table, NOTHING)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan: its `key` among the plans of the query, its kind, the share of the query's cost it should save (None: not known), why."""

    key: str
    kind: str
    saving: float | None
    why: str
    root: logical.Node


def alternatives(root: logical.Node, measured: Measured, *, rewritten: bool = True) -> list[Alternative]:
    """Return the plans that may be better than the one with this root. `rewritten`: the planner's rewrites have been applied to it."""
    found = [_by_rank(root, measured), _taken_apart(root)]
    if not rewritten and all(isinstance(node, STATELESS) for node in logical.walk_plan(root)):
        other, applied = optimise(root)
        if other != root:
            found.append(Alternative("rewritten", "alternative plan", None, f"the rewrites {', '.join(applied)} apply", other))
    return [one for one in found if one is not None]


def physical_of(query: logical.LogicalQuery, root: logical.Node) -> PhysicalQuery:
    """Return the physical plan of a query with another root of the same rows."""
    return lower(replace(query, root=root))


def _by_rank(root: logical.Node, measured: Measured) -> Alternative | None:
    """Every run in the order of its ranks; steps that few rows reached stay behind the others, in their order."""
    saved, told = 0.0, list[str]()

    def change(run: SelectionRun) -> logical.Node | None:
        nonlocal saved
        did = [measured.of(step.node) for step in run.steps]
        known = [one.rows_in >= ROWS_MIN for one in did]
        order = ordered(run, lambda i: did[i].rank if known[i] else 0.0)
        if sum(known) < 2 or order == list(range(len(order))):
            return None
        saved += did[0].rows_in * (expected_cost(did) - expected_cost([did[i] for i in order]))
        told.extend(f"{_text(run.steps[i].node)} keeps {did[i].selectivity:.2g} at {did[i].cost:.3g} ns a row" for i in order if known[i])
        return rebuilt(run, order)

    other = change_runs(root, change)
    if other == root:
        return None
    return Alternative(key_of(other), "selection order", saved / max(1, measured.cost_ns), ", ".join(told), other)


def _taken_apart(root: logical.Node) -> Alternative | None:
    """Selections of several conditions, one of them dear, as one selection a condition, in the order that is guessed."""

    def change(node: logical.Node) -> logical.Node:
        if not isinstance(node, logical.Filter) or not can_move(node.condition):
            return node
        parts = conjuncts(node.condition)
        if len(parts) == 1 or all(is_cheap(part) for part in parts):
            return node
        single = sorted((replace(node, condition=part) for part in parts), key=guessed_rank)
        below = node.input
        for step in single:
            below = replace(step, input=below)
        return below

    other = bottom_up(root, change)
    if other == root:
        return None
    return Alternative(key_of(other), "selection order", None, "conditions joined by AND can be measured and ordered one by one", other)


def expected_cost(steps: Sequence[OperatorRecord]) -> float:
    """Return what a row is expected to cost that passes these steps in this order, in ns: Σ c_i · s_1 … s_(i-1)."""
    cost, left = 0.0, 1.0
    for step in steps:
        cost += left * step.cost
        left *= step.selectivity
    return cost


def key_of(root: logical.Node) -> str:
    """Return the order of the selections and joins with tables of a plan, as text, the first to run first."""
    return ", ".join(_text(node) for node in logical.walk_plan(root) if isinstance(node, logical.Filter | logical.TableJoin))


def _text(node: logical.Filter | logical.TableJoin) -> str:
    if isinstance(node, logical.TableJoin):
        return f"join with {node.right.table}" if isinstance(node.right, logical.TableScan) else "join"
    return _condition_text(node.condition, node.input)


def _condition_text(condition: Expression, below: logical.Node) -> str:
    return expression_text(condition, attribute_names(below.attributes))
