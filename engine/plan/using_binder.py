"""JOIN … USING (columns): equality of columns of one name, which then stand once, as in PostgreSQL.

A column without qualifier is the merged one: the left's, of a RIGHT JOIN the right's, of a FULL JOIN whichever is not NULL. `*` shows the
merged columns first; both sides' own can still be called by their qualifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.engine.data.errors import EngineError, SyntaxProblem
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import Expression
from millstream.engine.language.recipes import JoinKind
from millstream.engine.language.syntax import Name
from millstream.engine.plan.join_binder import Side
from millstream.engine.plan.join_conditions import KeyExpressions, key_type, shifted
from millstream.engine.plan.logical import Attribute, Attributes, Project
from millstream.engine.plan.scope import Scope


@dataclass(frozen=True, slots=True)
class SharedColumn:
    """A column of USING: its position on either side (the right's in the right's own attributes), and the type both are compared in."""

    name: str
    left: int
    right: int
    type: DataType


def shared_columns(names: Sequence[Name], left: Attributes, right: Attributes) -> list[SharedColumn]:
    """Find the columns of USING on both sides."""
    found = []
    for place, name in enumerate(names):
        try:
            if any(n.text == name.text for n in names[:place]):
                raise SyntaxProblem(f"{name.text} stands twice in USING", hint="name it once")
            one, other = Scope(left).find(name.text), Scope(right).find(name.text)
            key = KeyExpressions(left[one].reference(one), right[other].reference(other), False)
            found.append(SharedColumn(name.text, one, other, key_type(key)))
        except EngineError as problem:
            problem.line, problem.column, problem.token = name.place.line, name.place.column, name.text
            raise
    return found


def equalities(shared: Sequence[SharedColumn], left: Attributes, right: Attributes) -> tuple[Expression, ...]:
    """Return the conditions that USING stands for, over the left's attributes, then the right's."""
    count = len(left)
    return tuple(build.call("=", [left[s.left].reference(s.left), shifted(right[s.right].reference(s.right), count)]) for s in shared)


def before_merging(shared: Sequence[SharedColumn], left: Attributes, right: Attributes) -> Attributes:
    """Return both sides' attributes as an inner join's WHERE may call them: the merged columns are the left's."""
    covered = {s.right for s in shared}
    return left + tuple(replace(a, covered=True) if i in covered else a for i, a in enumerate(right))


def merged(side: Side, shared: Sequence[SharedColumn], count: int, kind: JoinKind) -> Side:
    """Put the merged columns before those of the join, of whose attributes `count` are the left's."""
    attributes = side.node.attributes
    covered = {s.left for s in shared} | {count + s.right for s in shared}
    made = [_merged_column(s, attributes, count, kind) for s in shared]
    words = [a.word for a in attributes]
    own = [
        (replace(a, name=_unique(a, words), covered=a.covered or i in covered, called=a.word), a.reference(i))
        for i, a in enumerate(attributes)
        if a.qualifier is not None or i not in covered  # a column merged before and now again could not be called by any name
    ]
    node = Project(
        attributes=tuple(a for a, _ in (*made, *own)),
        input=side.node,
        expressions=tuple(e for _, e in (*made, *own)),
    )
    return replace(side, node=node)


def _unique(attribute: Attribute, words: Sequence[str]) -> str:
    """Columns of a projection need different names, whatever they are called by."""
    if attribute.qualifier is None or words.count(attribute.word) == 1:
        return attribute.name
    return f"{attribute.qualifier}.{attribute.word}"


def _merged_column(shared: SharedColumn, attributes: Attributes, count: int, kind: JoinKind) -> tuple[Attribute, Expression]:
    one, other = attributes[shared.left], attributes[count + shared.right]
    left = build.cast(one.reference(shared.left), shared.type)
    right = build.cast(other.reference(count + shared.right), shared.type)
    if kind is JoinKind.FULL:
        return Attribute(shared.name, shared.type, one.nullable and other.nullable), build.call("coalesce", [left, right])
    kept, expression = (other, right) if kind is JoinKind.RIGHT else (one, left)
    attribute = replace(kept, name=shared.name, qualifier=None, type=shared.type, covered=False, called=None)
    same = kept.type == shared.type or (kept.type.is_integer and shared.type.is_integer)
    return (attribute if same else replace(attribute, time=None)), expression
