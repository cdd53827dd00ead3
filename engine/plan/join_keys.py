"""Key columns of a join: operators compare columns, so a key that is an expression is computed by a projection below the join."""

from __future__ import annotations

from millstream.engine.data.records import dataclass
from millstream.engine.expressions.ir import ColumnRef, Expression
from millstream.engine.plan.join_binder import moved
from millstream.engine.plan.logical import AsofJoin, Attribute, Join, Node, Project, TableJoin, passing


@dataclass(frozen=True, slots=True)
class KeyedSides:
    """Both inputs with their key columns, their positions, and which output columns belong to the logical join."""

    left: Node
    right: Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_width: int
    right_width: int

    @property
    def kept(self) -> list[int]:
        """Return the positions of the logical join's attributes among all output columns."""
        start = len(self.left.attributes)
        return [*range(self.left_width), *range(start, start + self.right_width)]

    def residual(self, condition: Expression | None) -> Expression | None:
        """Return the condition over the output columns."""
        return None if condition is None else moved(condition, self.left_width, len(self.left.attributes) - self.left_width)


def keyed(node: Join | TableJoin | AsofJoin) -> KeyedSides:
    """Return the inputs of the join with all its keys as columns."""
    left, left_keys = _extended(node.left, [key.left for key in node.keys], "left_key")
    right, right_keys = _extended(node.right, [key.right for key in node.keys], "right_key")
    return KeyedSides(left, right, left_keys, right_keys, len(node.left.attributes), len(node.right.attributes))


def _extended(node: Node, keys: list[Expression], name: str) -> tuple[Node, tuple[int, ...]]:
    extra: dict[Expression, int] = {}
    positions = []
    for key in keys:
        if isinstance(key, ColumnRef):
            positions.append(key.position)
            continue
        positions.append(len(node.attributes) + extra.setdefault(key, len(extra)))
    if not extra:
        return node, tuple(positions)
    attributes = node.attributes + tuple(Attribute(f"{name}_{i}", e.type) for i, e in enumerate(extra))
    return Project(attributes=attributes, input=node, expressions=(*passing(node.attributes), *extra)), tuple(positions)
