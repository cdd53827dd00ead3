"""How large a plan may be, so that whatever goes through it later has stack enough: compilers, sharing, EXPLAIN, the operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import Unsupported
from millstream.engine.expressions.ir import Expression, depth_of
from millstream.engine.language.limits import KEYS_MAX, PLAN_DEPTH_MAX, PLAN_NODES_MAX
from millstream.engine.language.recipes import DistinctRecipe
from millstream.engine.plan.logical import Node
from millstream.engine.plan.physical import PhysicalNode, SourceNode

SPLIT = "split it: CREATE STREAM name AS SELECT … for a part"


def too_deep() -> Unsupported:
    """Return the refusal of a plan that nests too deep."""
    return Unsupported(f"the query's parts stand more than {PLAN_DEPTH_MAX} deep on one another", hint=SPLIT)


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
                if any(depth_of(e) > PLAN_DEPTH_MAX for e in _expressions(described(node))):
                    raise too_deep()
                _check_keys(described(node))
        if count > PLAN_NODES_MAX:
            raise Unsupported(f"the query has more than {PLAN_NODES_MAX} operators", hint=SPLIT)
        level = {id(child): child for node in level.values() for child in below(node)}
        if not level:
            return
    raise too_deep()


def _check_keys(described: Any) -> None:
    """Refuse an operator with too many columns to tell rows apart by."""
    keys = [getattr(described, name, None) for name in ("keys", "left_keys", "partition")]
    if isinstance(described, DistinctRecipe):
        keys.append(described.schema.fields)
    if any(isinstance(k, tuple) and len(k) > KEYS_MAX for k in keys):
        raise Unsupported(f"rows are told apart by more than {KEYS_MAX} columns", hint="join some into one, as in a || ',' || b")


def _expressions(described: Any) -> Iterator[Expression]:
    """Yield the expressions among the fields of a node or recipe."""
    for field in fields(described) if described is not None else ():
        value = getattr(described, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Expression):
                yield one
            elif hasattr(one, "left") and isinstance(one.left, Expression):  # the key of a join
                yield from (one.left, one.right)
