"""What an ON condition says: equal keys, a bound on the difference of the two event times, and the rest.

Positions refer to the left item's attributes, then the right's. The bound is lower <= right.time - left.time <= upper (µs, None: none).
"""

from __future__ import annotations

from dataclasses import field

from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType, Kind
from millstream.engine.expressions.build import conjuncts
from millstream.engine.expressions.ir import Call, Cast, ColumnRef, Expression, Literal, columns_used
from millstream.engine.expressions.signature import common_type
from millstream.engine.plan.logical import Attributes
from millstream.engine.plan.rules.constant_folding import fold

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Bound:
    """lower <= right.time - left.time <= upper; None is no bound on that side."""

    lower: int | None = None
    upper: int | None = None

    def meet(self, other: Bound) -> Bound:
        """Return the bound that both state."""
        lowers = [b for b in (self.lower, other.lower) if b is not None]
        uppers = [b for b in (self.upper, other.upper) if b is not None]
        return Bound(max(lowers) if lowers else None, min(uppers) if uppers else None)

    @property
    def is_open(self) -> bool:
        """Nothing is bounded."""
        return self.lower is None and self.upper is None


@dataclass(frozen=True, slots=True)
class KeyExpressions:
    """An equality between an expression over the left and one over the right (positions in the right's own attributes)."""

    left: Expression
    right: Expression
    null_safe: bool


@dataclass(slots=True)
class JoinCondition:
    """The parts of an ON condition. `rest` are conditions over both sides' attributes."""

    keys: list[KeyExpressions] = field(default_factory=list)
    bound: Bound = field(default_factory=Bound)
    rest: list[Expression] = field(default_factory=list)


@dataclass(slots=True)
class _Linear:
    """sign·column + … + constant, everything in microseconds."""

    columns: dict[int, int]
    constant: int


def analyse(conditions: list[Expression], attributes: Attributes, left_count: int) -> JoinCondition:
    """Take conditions over the joined attributes apart; `left_count` attributes are the left's."""
    result = JoinCondition()
    for condition in (part for whole in conditions for part in conjuncts(whole)):
        exact, bound = _time_bound(fold(condition), attributes, left_count)
        result.bound = result.bound.meet(bound)
        key = _key(condition, left_count)
        if key is not None:
            result.keys.append(key)
        elif not exact:
            result.rest.append(condition)
    return result


def _key(condition: Expression, left_count: int) -> KeyExpressions | None:
    if not isinstance(condition, Call) or condition.function not in ("=", "is_not_distinct_from"):
        return None
    first, second = condition.arguments
    used = columns_used(first), columns_used(second)
    if not used[0] or not used[1]:
        return None
    if max(used[0]) >= left_count:
        first, second, used = second, first, (used[1], used[0])
    if max(used[0]) >= left_count or min(used[1]) < left_count:
        return None
    return KeyExpressions(first, shifted(second, -left_count), condition.function == "is_not_distinct_from")


def key_type(key: KeyExpressions) -> DataType:
    """Return the type in which the two sides of an equality are compared."""
    common = common_type(key.left.type, key.right.type)
    if common is None:
        raise TypeProblem(f"{key.left.type} = {key.right.type} is not defined", hint="cast one side")
    return common


def shifted(expression: Expression, by: int) -> Expression:
    """Return the expression with every column position moved."""
    from millstream.engine.expressions.ir import transform

    return transform(expression, lambda e: ColumnRef(e.type, e.position + by, e.name) if isinstance(e, ColumnRef) else e)


# -- time bounds --------------------------------------------------------------------------------------------------------------


def _time_bound(condition: Expression, attributes: Attributes, left_count: int) -> tuple[bool, Bound]:
    """Return whether the condition is wholly expressed by the bound, and the bound it implies."""
    if not isinstance(condition, Call):
        return False, Bound()
    if condition.function == "between":
        value, low, high = condition.arguments
        exact_low, lower = _comparison(">=", value, low, attributes, left_count)
        exact_high, upper = _comparison("<=", value, high, attributes, left_count)
        return exact_low and exact_high, lower.meet(upper)
    if condition.function in _FLIPPED:
        return _comparison(condition.function, condition.arguments[0], condition.arguments[1], attributes, left_count)
    return False, Bound()


def _comparison(operator: str, first: Expression, second: Expression, attributes: Attributes, left_count: int) -> tuple[bool, Bound]:
    """Understand `first operator second` as a bound on right - left, if both sides are linear in the two time columns."""
    unit = _unit(first, second, attributes)
    a, b = _linear(first, attributes, unit), _linear(second, attributes, unit)
    if unit is None or a is None or b is None:
        return False, Bound()
    terms = dict(a.columns)
    for position, sign in b.columns.items():
        terms[position] = terms.get(position, 0) - sign
    terms = {p: s for p, s in terms.items() if s}
    left = [p for p in terms if p < left_count]
    right = [p for p in terms if p >= left_count]
    if len(left) != 1 or len(right) != 1 or terms[left[0]] != -terms[right[0]] or abs(terms[left[0]]) != 1:
        return False, Bound()
    limit = b.constant - a.constant  # sum of terms `operator` limit
    if terms[right[0]] < 0:
        operator, limit = _FLIPPED[operator], -limit
    left_time, right_time = attributes[left[0]].time, attributes[right[0]].time
    assert left_time is not None
    assert right_time is not None
    # A NULL time column (the padded side of an outer join) makes the condition unknown, which a bound on row times would not.
    known = all(t.least_us == t.most_us for t in (left_time, right_time))
    exact = known and not attributes[left[0]].nullable and not attributes[right[0]].nullable
    bound = _limits(operator, limit, unit)
    # right column = right.time + [r1, r2], left column = left.time + [l1, l2]: widen the bound by what the columns may be off.
    lower = None if bound.lower is None else bound.lower - right_time.most_us + left_time.least_us
    upper = None if bound.upper is None else bound.upper - right_time.least_us + left_time.most_us
    return exact, Bound(lower, upper)


def _limits(operator: str, limit: int, unit: int) -> Bound:
    step = unit  # time columns move in steps of their unit
    if operator == "=":
        return Bound(limit, limit)
    if operator in ("<", "<="):
        return Bound(None, limit if operator == "<=" else limit - step)
    return Bound(limit if operator == ">=" else limit + step, None)


def _unit(first: Expression, second: Expression, attributes: Attributes) -> int | None:
    """Return the unit that all time columns in the comparison share, or None when they don't."""
    units = {attributes[p].time_unit_us for e in (first, second) for p in columns_used(e)}
    return units.pop() if len(units) == 1 else None


def _linear(expression: Expression, attributes: Attributes, unit: int | None) -> _Linear | None:
    if unit is None:
        return None
    if isinstance(expression, ColumnRef):
        return _Linear({expression.position: 1}, 0) if attributes[expression.position].time is not None else None
    if isinstance(expression, Literal) and isinstance(expression.value, int) and not isinstance(expression.value, bool):
        return _constant(expression, unit)
    if isinstance(expression, Cast) and expression.argument.type.is_integer and expression.type.is_integer:
        return _linear(expression.argument, attributes, unit)
    if isinstance(expression, Call) and expression.function in ("+", "-") and len(expression.arguments) == 2:
        a, b = (_linear(argument, attributes, unit) for argument in expression.arguments)
        if a is None or b is None:
            return None
        sign = 1 if expression.function == "+" else -1
        columns = dict(a.columns)
        for position, factor in b.columns.items():
            columns[position] = columns.get(position, 0) + sign * factor
        return _Linear(columns, a.constant + sign * b.constant)
    if isinstance(expression, Call) and expression.function == "neg":
        inner = _linear(expression.arguments[0], attributes, unit)
        return None if inner is None else _Linear({p: -s for p, s in inner.columns.items()}, -inner.constant)
    return None


def _constant(literal: Literal, unit: int) -> _Linear | None:
    if literal.type.kind in (Kind.INTERVAL, Kind.TIMESTAMP):
        return _Linear({}, literal.value)
    return _Linear({}, literal.value * unit) if literal.type.is_integer else None
