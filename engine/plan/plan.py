"""The planner's one door: a SELECT (text, parsed, or a plan object) and a catalogue in, a physical query out.

    planned = plan_select("SELECT k, COUNT(*) FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k", catalog)
    planned.physical        the tree of recipes for the instantiator
    planned.logical         the optimised logical plan, for EXPLAIN
    planned.applied         names of the rewrites that changed it

Raises the errors of `engine/data/errors.py` and nothing else: SyntaxProblem, UnknownName, TypeProblem, Unsupported, InvalidDefinition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from millstream.engine.data.effort import bounded_effort, spend
from millstream.engine.data.errors import UnknownName, Unsupported
from millstream.engine.data.nearest import did_you_mean
from millstream.engine.data.records import dataclass, members_of
from millstream.engine.expressions.ir import Expression, depth_of
from millstream.engine.expressions.user_functions import UserFunction
from millstream.engine.language.limits import KEYS_MAX, PLAN_DEPTH_MAX, PLAN_NODES_MAX, WORK_MAX
from millstream.engine.language.parse import parse_query
from millstream.engine.language.recipes import DistinctRecipe, MatchSpec
from millstream.engine.language.statements import Option, SelectQuery, SelectStatement
from millstream.engine.plan.binder import bind_query
from millstream.engine.plan.catalog import Catalog, DerivedStream, TimeOffset
from millstream.engine.plan.expression_binder import functions_of
from millstream.engine.plan.logical import JoinKey, LogicalQuery, Node, Scan, TableScan, walk_plan
from millstream.engine.plan.lower import lower
from millstream.engine.plan.physical import PhysicalNode, PhysicalQuery, SourceNode
from millstream.engine.plan.plan_objects import bind_plan_object
from millstream.engine.plan.query_options import check_history
from millstream.engine.plan.rules import (
    constant_folding,
    duplicate_elimination,
    predicate_push_down,
    projection_merging,
    projection_pruning,
    selection_reordering,
)
from millstream.engine.plan.state import unbounded_state

Source = str | SelectQuery | SelectStatement | Mapping[str, Any]
"""A query's text, its parsed form, or a plan object."""

SPLIT = "split it: CREATE STREAM name AS SELECT … for a part"


def too_deep() -> Unsupported:
    """Return the refusal of a plan that nests too deep."""
    return Unsupported(f"the query's parts are nested more than {PLAN_DEPTH_MAX} deep", hint=SPLIT)


def check_size(bound: Node, root: PhysicalNode | SourceNode) -> None:
    """Refuse a plan, as bound and as it will run, that is too deep or has too many operators."""
    _check(bound, lambda node: node.inputs, lambda node: node)
    _check(
        root,
        lambda node: [ref.node for ref in node.inputs] if isinstance(node, PhysicalNode) else [],
        lambda node: getattr(node, "recipe", None),
    )


def _check(root: Any, below: Any, described: Any) -> None:
    """Go through a plan level by level: a part that several read stands on the level of the deepest of them."""
    count, level = 0, {id(root): root}
    checked: set[int] = set()
    for _ in range(PLAN_DEPTH_MAX):
        spend(len(level))
        for key, node in level.items():
            if key not in checked:
                checked.add(key)
                count += 1
                _check_node(described(node))
        if count > PLAN_NODES_MAX:
            raise Unsupported(f"the query has more than {PLAN_NODES_MAX} operators", hint=SPLIT)
        level = {id(child): child for node in level.values() for child in below(node)}
        if not level:
            return
    raise too_deep()


def _check_node(described: Any) -> None:
    """Refuse an operator with expressions that are too deep, or with too many columns to tell rows apart by."""
    if described is None:
        return
    for name in members_of(type(described)):
        if name in _WITHOUT_EXPRESSIONS:
            continue
        value = getattr(described, name)
        if name in _KEYS:
            _check_keys(value)
        for expression in _expressions(value):
            if depth_of(expression) > PLAN_DEPTH_MAX:
                raise too_deep()
    if isinstance(described, DistinctRecipe):
        _check_keys(described.schema.fields)


def _check_keys(keys: Any) -> None:
    if isinstance(keys, tuple) and len(keys) > KEYS_MAX:
        raise Unsupported(f"keys of more than {KEYS_MAX} columns are not supported", hint="join some into one, as in a || ',' || b")


_KEYS = ("keys", "left_keys", "partition")
_WITHOUT_EXPRESSIONS = frozenset(("attributes", "hints", "input", "left", "right", "branches", "schema"))


def _expressions(value: Any) -> Iterator[Expression]:
    """Yield the expressions in the value of a node's or recipe's field."""
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, Expression):
            yield one
        elif isinstance(one, JoinKey):
            yield from (one.left, one.right)
        elif isinstance(one, MatchSpec):
            yield from (condition for condition in one.conditions if condition is not None)


def _any_node(node: Node) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What changes a plan, and at which nodes it might find something to do: one without any it leaves as it is."""

    apply: Callable[[Node], Node]
    concerns: Callable[[Node], bool] = _any_node


# Folding first, as it makes conditions that need no work; pruning last, when it is settled who reads which column.
RULES: dict[str, Rewrite] = {
    constant_folding.NAME: Rewrite(constant_folding.apply),
    duplicate_elimination.NAME: Rewrite(duplicate_elimination.apply, duplicate_elimination.concerns),
    predicate_push_down.NAME: Rewrite(predicate_push_down.apply, predicate_push_down.concerns),
    projection_merging.NAME: Rewrite(projection_merging.apply, projection_merging.concerns),
    selection_reordering.NAME: Rewrite(selection_reordering.apply, selection_reordering.concerns),
    projection_pruning.NAME: Rewrite(projection_pruning.apply, projection_pruning.concerns),
}
ROUNDS_MAX = 8  # each rewrite only moves things down or away, so a few rounds settle any plan


def optimise(plan: Node, *, off: frozenset[str] = frozenset()) -> tuple[Node, tuple[str, ...]]:
    """Return the rewritten plan and the names of the rewrites that changed it. `off` names those to leave out, "all" for every one."""
    unknown = sorted(off - RULES.keys() - {"all"})
    if unknown:
        raise UnknownName(f"there is no rewrite {unknown[0]}", hint=did_you_mean(unknown[0], RULES) or f"they are {', '.join(RULES)}")
    active = {} if "all" in off else {name: rule for name, rule in RULES.items() if name not in off}
    applied: list[str] = []
    settled = 0  # rewrites in a row that have found nothing to do
    nodes = walk_plan(plan)
    for _ in range(ROUNDS_MAX):
        for name, rule in active.items():
            if settled == len(active):
                return plan, tuple(applied)
            if not any(map(rule.concerns, nodes)):
                settled += 1
                continue
            spend(_size(nodes))  # comparing the plan with what it becomes
            changed = rule.apply(plan)
            if changed is plan or changed == plan:
                settled += 1
                continue
            plan, settled, nodes = changed, 0, walk_plan(changed)
            if name not in applied:
                applied.append(name)
    return plan, tuple(applied)


def _size(nodes: list[Node]) -> int:
    """Return how many nodes, columns and expressions a plan has, about."""
    return sum([1 + len(node.attributes) // 4 for node in nodes])


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How to plan. `rules_off` names rewrites to leave out ("all" for every one); `overrides` are WITH options from outside the text.

    An override wins over the text's own WITH (CREATE QUERY … WITH, `submit(class=…)`). `finite`: for one answer over rows that stand now.
    """

    rules_off: frozenset[str] = frozenset()
    overrides: tuple[Option, ...] = ()
    finite: bool = False


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query ready to be instantiated. `streams` and `tables` are the names it reads, in order of appearance, `functions` those
    of users that it calls.

    `bound` is the logical plan before any rewrite, `logical` the one after.
    """

    physical: PhysicalQuery
    logical: LogicalQuery
    applied: tuple[str, ...]
    text: str
    bound: LogicalQuery
    streams: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    functions: tuple[UserFunction, ...] = field(default=())

    @property
    def times(self) -> dict[str, TimeOffset]:
        """The output columns that tell the event time (K19), for a derived stream."""
        names = self.physical.schema.names
        return {n: a.time for n, a in zip(names, self.logical.root.attributes, strict=True) if a.time is not None}

    @property
    def time_units(self) -> dict[str, int]:
        """What 1 means, in microseconds, in those of `times` that are whole numbers."""
        named = zip(self.physical.schema.names, self.logical.root.attributes, strict=True)
        return {n: a.time_unit_us for n, a in named if a.time is not None and a.time_unit_us != 1}


def derived_stream(name: str, planned: PlannedQuery) -> DerivedStream:
    """Return what CREATE STREAM name AS … defines."""
    reads = (*planned.streams, *planned.tables)
    changes = planned.physical.change_kind is not None
    return DerivedStream(name, planned.physical.schema, planned.text, reads, planned.times, changes, planned.time_units)


def plan_select(
    source: Source,
    catalog: Catalog,
    *,
    options: PlanOptions | None = None,
    text: str | None = None,
) -> PlannedQuery:
    """Return the plan of one query.

    `source` is SELECT text, a parsed query, or a plan object; `text` what to show when it was parsed elsewhere.

     Its work is bounded, and so is the size of what it returns (language/limits.py): what is too much is Unsupported.
    """
    try:
        with bounded_effort(WORK_MAX):
            return _planned(source, catalog, options or PlanOptions(), text)
    except RecursionError:
        raise too_deep() from None


def _planned(source: Source, catalog: Catalog, options: PlanOptions, text: str | None) -> PlannedQuery:
    with functions_of(catalog) as functions:
        bound, shown = _bound(source, catalog, options)
    root, applied = optimise(bound.root, off=options.rules_off)
    logical = replace(bound, root=root)
    scans = walk_plan(bound.root)
    streams = tuple(dict.fromkeys(n.stream for n in scans if isinstance(n, Scan)))
    tables = tuple(dict.fromkeys(n.table for n in scans if isinstance(n, TableScan)))
    physical = lower(logical)
    check_size(bound.root, physical.root)
    check_history(physical)
    if physical.options.split > 1:
        from millstream.engine.plan.splitting import check_split

        check_split(physical.root, catalog)
    notes = (*physical.notes, *unbounded_state(physical))
    called = tuple(functions.called.values())
    return PlannedQuery(
        physical if notes == physical.notes else replace(physical, notes=notes),
        logical,
        applied,
        text or shown,
        bound,
        streams,
        tables,
        notes,
        called,
    )


def _bound(source: Source, catalog: Catalog, options: PlanOptions) -> tuple[LogicalQuery, str]:
    if isinstance(source, Mapping):
        return bind_plan_object(source, catalog, options.overrides), ""
    if isinstance(source, SelectStatement):
        return bind_query(source.query, catalog, options.overrides, finite=options.finite), source.text
    if isinstance(source, str):
        return bind_query(parse_query(source), catalog, options.overrides, finite=options.finite), source.strip().rstrip(";")
    return bind_query(source, catalog, options.overrides, finite=options.finite), ""
