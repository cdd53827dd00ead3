"""From sqlglot's expression nodes to typed IR: names are found in a scope, functions in the registry.

Binders are made in many places, each for its scope of columns; which users' functions there are is the same for all of them, from the door
of the planner inwards. So it is said once, there, and holds for the thread's binding until the door closes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Protocol

from millstream.engine.aggregates.table import aggregate_names, is_aggregate
from millstream.engine.data.effort import spend
from millstream.engine.data.errors import EngineError, SyntaxProblem, TypeProblem, UnknownName, Unsupported
from millstream.engine.data.nearest import did_you_mean
from millstream.engine.data.types import BOOLEAN, BYTES, DECIMAL_PRECISION_MAX, DOUBLE, INTERVAL, NULL, TEXT, TIMESTAMP, Kind, decimal
from millstream.engine.expressions import build
from millstream.engine.expressions.chain import ChainBuilder
from millstream.engine.expressions.compile import fold
from millstream.engine.expressions.functions import callable_names, is_function
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal, walk
from millstream.engine.expressions.patterns import PATTERN_FUNCTIONS, check_patterns
from millstream.engine.expressions.user_functions import UserFunction, call_user_function
from millstream.engine.language.column_types import DECIMAL_NAMES, TIMESTAMP_DIGITS_MAX, TYPE_NAMES, parameters_of_node, type_of_node
from millstream.engine.language.dialect import is_subquery
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.logical import Role
from millstream.engine.plan.scope import WINDOW_TIME, AmbiguousName, Scope, folded, located, place_of
from sqlglot import exp


class FunctionsInForce:
    """The functions of a catalogue. `called` are those that a binder asked for, by name."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.called: dict[str, UserFunction] = {}

    def find(self, name: str) -> UserFunction | None:
        """Return the function of that name, and note that it is called."""
        found = self._catalog.find_function(name)
        if found is not None:
            self.called[name] = found
        return found

    def names(self) -> list[str]:
        """Return the names of all functions."""
        return [function.name for function in self._catalog.functions()]


_IN_FORCE: ContextVar[FunctionsInForce | None] = ContextVar("users' functions in force", default=None)


@contextmanager
def functions_of(catalog: Catalog) -> Iterator[FunctionsInForce]:
    """Let binders call the functions of a catalogue until the block ends."""
    in_force = FunctionsInForce(catalog)
    token = _IN_FORCE.set(in_force)
    try:
        yield in_force
    finally:
        _IN_FORCE.reset(token)


def called_function(name: str) -> UserFunction | None:
    """Return the user's function of that name, None where there is none or none may be called."""
    in_force = _IN_FORCE.get()
    return None if in_force is None else in_force.find(name)


_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.Pow: "power",
    exp.DPipe: "||",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.And: "and",
    exp.Or: "or",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
    exp.NullSafeEQ: "is_not_distinct_from",
    exp.NullSafeNEQ: "is_distinct_from",
}
_CHAINED: tuple[tuple[type[exp.Expr], ...], ...] = (
    (exp.Add, exp.Sub),
    (exp.Mul, exp.Div, exp.Mod),
    (exp.DPipe,),
    (exp.BitwiseAnd,),
    (exp.BitwiseOr,),
    (exp.BitwiseXor,),
)
_NEEDS_OVER = ("lag", "lead", "nth_value", "row_number", "rank", "dense_rank")
_TRIMS = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_REFUSED: dict[type[exp.Expr], tuple[str, str]] = {
    exp.AtTimeZone: ("AT TIME ZONE", "timestamps are instants; give the zone to TO_CHAR, DATE_TRUNC, DATE_PART or the window"),
    exp.Tuple: ("a list in parentheses", "compare the columns one by one"),
    exp.Collate: ("COLLATE", "text compares by code point"),
    exp.BitwiseLeftShift: ("<<", "multiply by a power of two: x * 8"),
    exp.BitwiseRightShift: (">>", "divide by a power of two: x / 8"),
}


def number_literal(text: str) -> Literal:
    """Return the constant a number stands for: digits an integer, `4.0` a DECIMAL, `4e0` a DOUBLE (K13)."""
    plain = text.replace("_", "")
    if "e" in plain.lower():
        value_double = float(plain)
        if math.isinf(value_double):
            raise TypeProblem(f"the number {text} is out of the range of DOUBLE", hint="write CAST('Infinity' AS DOUBLE) if you mean that")
        return Literal(DOUBLE, value_double)
    if "." not in plain:
        return build.integer_literal(int(plain))
    value = Decimal(plain)
    scale = len(plain.split(".")[1])
    scaled = int(value.scaleb(scale))
    precision = max(len(str(abs(scaled))), scale, 1)
    if precision > DECIMAL_PRECISION_MAX:
        raise TypeProblem(f"the number {text} has more than {DECIMAL_PRECISION_MAX} digits", hint="write it as a DOUBLE, as in 1.5e0")
    return Literal(decimal(precision, scale), scaled)


Around = Callable[[exp.Column], Expression]


class Subqueries(Protocol):
    """What takes the subqueries of one SELECT (subqueries.py)."""

    def value(self, node: exp.Anonymous, binder: ExpressionBinder) -> Expression:
        """Return what a subquery, or EXISTS of one, is in an expression."""

    def contains(self, value: exp.Expr, node: exp.Anonymous, binder: ExpressionBinder) -> Expression:
        """Return what `value IN (subquery)` is."""


BINDING_STEPS = 12  # of limits.WORK_MAX: finding the types of a node takes longer than passing it by
COPY_STEPS = 20  # for each node of an expression that is used once more: every pass meets it


class ExpressionBinder:
    """Binds expressions over one scope. Aggregates are refused with `aggregate_reason`; the aggregating binder overrides that.

    `around` binds the columns of the query around a subquery; `subqueries`, where they may stand, takes those of this query.
    """

    def __init__(self, scope: Scope, aggregate_reason: str = "an aggregate cannot stand here", around: Around | None = None) -> None:
        self.scope = scope
        self.around = around
        self.subqueries: Subqueries | None = None
        self.aggregate_reason = aggregate_reason

    def bind(self, node: exp.Expr) -> Expression:
        """Return the typed expression; UnknownName, TypeProblem or Unsupported with the place."""
        try:
            return self._bind(node)
        except EngineError as problem:
            raise located(problem, node) from None
        except RecursionError:
            raise SyntaxProblem("an expression is nested too deeply") from None

    def condition(self, node: exp.Expr, clause: str) -> Expression:
        """Return the typed expression, which must be BOOLEAN."""
        bound = self.bind(node)
        if bound.type == NULL:
            return Literal(BOOLEAN, None)
        if bound.type != BOOLEAN:
            raise located(TypeProblem(f"{clause} must be a condition (BOOLEAN), not {bound.type}"), node)
        return bound

    def _bind(self, node: exp.Expr) -> Expression:
        spend(BINDING_STEPS)
        kind = type(node)
        name = _BINARY.get(kind)
        if name is not None:
            return self._binary(name, node)
        special = _SPECIAL.get(kind)
        if special is not None:
            return special(self, node)
        clause, hint = _REFUSED.get(kind, (f"{node.key.upper()} in an expression", "see the list of functions and operators"))
        raise Unsupported(f"{clause} is not supported", hint=hint)

    def call(self, name: str, nodes: list[exp.Expr], options: tuple[Any, ...] = ()) -> Expression:
        """Bind the operands and build the typed call. A constant pattern is looked at here, where its place is known."""
        bound = build.call(name, [self.bind(n) for n in nodes], options)
        if bound.function in PATTERN_FUNCTIONS:
            check_patterns(Call(bound.type, bound.function, tuple(fold(a) for a in bound.arguments), bound.options))
        return bound

    def _binary(self, name: str, node: exp.Expr) -> Expression:
        if name in ("and", "or"):
            return build.call(name, [self.bind(part) for part in flattened(node, type(node))])
        family = next((f for f in _CHAINED if type(node) in f), None)
        return build.call(name, [self.bind(node.this), self.bind(node.expression)]) if family is None else self._chain(node, family)

    def _chain(self, node: exp.Expr, family: tuple[type[exp.Expr], ...]) -> Expression:
        """Bind `a + b - c …` from the left, without a stack that grows with it."""
        steps = [node]
        while type(below := _unwrapped(steps[-1].this)) in family and self.continues(below):
            steps.append(below)
        last = steps[-1]
        if isinstance(last, exp.Add) and _has_months(last.this):
            chain = ChainBuilder(self._calendar_sum(self.bind(last.expression), last.this, 1))
            steps.pop()
        else:
            chain = ChainBuilder(self.bind(last.this))
        for step in reversed(steps):
            self._extend(chain, step)
        return chain.value()

    def _extend(self, chain: ChainBuilder, step: exp.Expr) -> None:
        name, sign = _BINARY[type(step)], -1 if isinstance(step, exp.Sub) else 1
        if isinstance(step, exp.Add | exp.Sub) and _has_months(step.expression):
            chain.replace(self._calendar_sum(chain.value(), step.expression, sign))
            return
        operand = self.bind(step.expression)
        first = chain.alone()
        if isinstance(step, exp.Add | exp.Sub) and first is not None:
            operand = self._in_units_of(first, operand)
        try:
            chain.add(name, operand)
        except EngineError as problem:
            raise located(problem, step) from None

    def continues(self, node: exp.Expr) -> bool:
        """Whether the left side of a chain's step is bound as part of the chain."""
        return True

    def _calendar_sum(self, instant: Expression, interval: exp.Expr, sign: int) -> Expression:
        """A month has no fixed length, so adding some is a function of the calendar; what an interval has besides is added after them."""
        months, rest = self._months(interval, sign)
        moved = build.call("add_months", [instant, fold(months)])
        return moved if rest is None else build.call("+", [moved, fold(rest)])

    def _months(self, node: exp.Expr, sign: int) -> tuple[Expression, Expression | None]:
        """Return how many months `INTERVAL '1 month'`, its negative or a multiple of it is, and the duration that goes with them."""
        node = _unwrapped(node)
        if isinstance(node, exp.Neg):
            return self._months(node.this, -sign)
        if isinstance(node, exp.Interval):
            rest_us = sign * node.meta["rest_us"]
            return build.integer_literal(sign * int(node.this.this)), Literal(INTERVAL, rest_us) if rest_us else None
        interval, times = (node.this, node.expression) if _has_months(node.this) else (node.expression, node.this)
        count = self.bind(times)
        if not count.type.is_integer:
            raise located(TypeProblem(f"months are multiplied by a whole number, not {count.type}", hint="cast it to BIGINT"), times)
        months, rest = self._months(interval, sign)
        return build.call("*", [count, months]), None if rest is None else build.call("*", [rest, count])

    def _interval(self, node: exp.Interval) -> Expression:
        if str(node.args["unit"].this) == "MONTH":
            raise Unsupported(
                "an interval of months can only be added to a TIMESTAMP or DATE", hint="use DAY or WEEK, or ADD_MONTHS(ts, n)"
            )
        return Literal(INTERVAL, int(node.this.this))

    def _in_units_of(self, column: Expression, interval: Expression) -> Expression:
        """A duration beside a whole-number event time counts in that column's unit: `ts - 5 SECONDS` in milliseconds is `ts - 5000`."""
        if not isinstance(column, ColumnRef) or not column.type.is_integer or column.position >= len(self.scope.attributes):
            return interval
        attribute = self.scope.attribute(column.position)
        if attribute.time is None or attribute.name != column.name or not isinstance(interval, Literal) or interval.type != INTERVAL:
            return interval
        if interval.value is None or interval.value % attribute.time_unit_us:
            raise TypeProblem(f"the duration is not a whole number of the units of {attribute.name}", hint="write it in the column's unit")
        return build.integer_literal(interval.value // attribute.time_unit_us)

    # -- leaves ---------------------------------------------------------------------------------------------------------------

    def column(self, node: exp.Column) -> Expression:
        """Bind a column reference."""
        if isinstance(node.this, exp.Star):
            raise Unsupported("* cannot stand inside an expression")
        try:
            return self._own_column(node)
        except AmbiguousName:
            raise
        except UnknownName:
            if self.around is None:
                raise
            try:
                return self.around(node)
            except UnknownName:
                pass
            raise

    def _own_column(self, node: exp.Column) -> Expression:
        names = [folded(node.args[part]) for part in ("catalog", "db", "table", "this") if node.args.get(part) is not None]
        if len(names) > 1:
            return self._path([name for name in names if name is not None])
        return self._named(names[0], None)

    def _path(self, names: list[str]) -> Expression:
        """Bind `alias.column`, and the parts behind a column: an alias goes before a column of that name."""
        qualified = names[0] in self.scope.qualifiers() or not any(a.word == names[0] for a in self.scope.attributes)
        bound = self._named(names[1], names[0]) if qualified else self._named(names[0], None)
        for name in names[2 if qualified else 1 :]:
            bound = build.call("part", [bound], (name,))
        return bound

    def _part(self, node: exp.Dot) -> Expression:
        name = folded(node.expression) if isinstance(node.expression, exp.Identifier) else None
        if name is None:
            raise Unsupported("only the name of a part can stand behind a point", hint="write s.part")
        return build.call("part", [self.bind(node.this)], (name,))

    def _named(self, name: str | None, qualifier: str | None) -> Expression:
        assert name is not None
        if name == WINDOW_TIME and qualifier in (None, *self.scope.qualifiers()):
            end = self.scope.of_role(Role.WINDOW_END)
            if end is not None and not any(a.name == WINDOW_TIME for a in self.scope.attributes):
                return build.call("-", [self.scope.attribute(end).reference(end), Literal(INTERVAL, 1)])
        try:
            position = self.scope.find(name, qualifier)
        except UnknownName:
            found = None if self.scope.mend_of(name, qualifier) is not None else _instead_of_column(qualifier or name)
            if found is not None:  # among them CURRENT_TIMESTAMP and the like, which stand without parentheses
                raise Unsupported(f"{(qualifier or name).upper()} is not supported", hint=found) from None
            raise
        return self.reference(position)

    def reference(self, position: int) -> Expression:
        """Return the expression for the attribute at `position` of the scope."""
        return self.scope.attribute(position).reference(position)

    def _literal(self, node: exp.Literal) -> Expression:
        return Literal(TEXT, str(node.this)) if node.is_string else number_literal(str(node.this))

    def _hexadecimal(self, node: exp.HexString) -> Expression:
        digits = str(node.this)
        if len(digits) % 2:
            raise SyntaxProblem(f"x'{digits}' has half a byte", hint="write two digits a byte, as in x'0aff'")
        return Literal(BYTES, bytes.fromhex(digits))

    def _star(self, node: exp.Star) -> Expression:
        raise Unsupported("* cannot stand inside an expression", hint="it stands alone, or in COUNT(*)")

    def _negation(self, node: exp.Neg) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            text = str(node.this.this)
            if "." not in text and "e" not in text.lower():
                return build.integer_literal(-int(text.replace("_", "")))
            literal = number_literal(text)
            return Literal(literal.type, -literal.value)
        return self.call("neg", [node.this])

    # -- predicates -----------------------------------------------------------------------------------------------------------

    def _not(self, node: exp.Not) -> Expression:
        inner = node.this
        if isinstance(inner, exp.Is):
            return self._is(inner, not inner.args.get("negate"))
        return self.call("not", [inner])

    def _is(self, node: exp.Is, negated: bool) -> Expression:
        what, middle = node.expression, "not_" if negated else ""
        if isinstance(what, exp.Null):
            return self.call(f"is_{middle}null", [node.this])
        if isinstance(what, exp.Boolean):
            return self.call(f"is_{middle}{'true' if what.this else 'false'}", [node.this])
        if isinstance(what, exp.Column) and what.name.lower() == "unknown":
            return self.call(f"is_{middle}unknown", [node.this])
        raise Unsupported("IS takes NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", hint="write = to compare")

    def _between(self, node: exp.Between) -> Expression:
        if node.args.get("low") is None or node.args.get("high") is None:
            raise SyntaxProblem("BETWEEN needs two ends joined by AND")
        value, low, high = self.bind(node.this), self.bind(node.args["low"]), self.bind(node.args["high"])
        inside = build.call("between", [value, low, high])
        if not node.args.get("symmetric"):
            return inside
        for part in (value, low, high):
            _spend_on_copies(part, 1)
        return build.call("or", [inside, build.call("between", [value, high, low])])

    def _in(self, node: exp.In) -> Expression:
        if node.args.get("query") or node.args.get("field") or not node.expressions:
            raise Unsupported("IN takes a list of values or a subquery", hint="write x IN (1, 2) or x IN (SELECT y FROM t)")
        if len(node.expressions) == 1 and is_subquery(node.expressions[0]):
            return self._taken().contains(node.this, node.expressions[0], self)
        return self.call("in", [node.this, *node.expressions])

    def _taken(self) -> Subqueries:
        if self.subqueries is None:
            hint = "it can stand in WHERE, HAVING and the select list; for other places compute it in a derived table"
            raise Unsupported("a subquery cannot stand here", hint=hint)
        return self.subqueries

    def _like(self, node: exp.Expr, escape: tuple[Any, ...] = ()) -> Expression:
        name = "ilike" if isinstance(node, exp.ILike) else "like"
        bound = self.call(name, [node.this, node.expression], escape)
        return build.call("not", [bound]) if node.args.get("negate") else bound

    def _escape(self, node: exp.Escape) -> Expression:
        if not isinstance(node.this, (exp.Like, exp.ILike)) or not isinstance(node.expression, exp.Literal):
            raise SyntaxProblem("ESCAPE follows LIKE and takes one character in quotes")
        return self._like(node.this, (str(node.expression.this),))

    # -- CASE, CAST and functions ---------------------------------------------------------------------------------------------

    def _case(self, node: exp.Case) -> Expression:
        operand = None if node.this is None else self.bind(node.this)
        branches = []
        _spend_on_copies(operand, len(node.args["ifs"]) - 1)
        for branch in node.args["ifs"]:
            test = self.condition(branch.this, "WHEN") if operand is None else build.call("=", [operand, self.bind(branch.this)])
            branches.append((test, self.bind(branch.args["true"])))
        default = node.args.get("default")
        return build.case(branches, self.bind(default) if default is not None else None)

    def _cast(self, node: exp.Cast) -> Expression:
        place = place_of(node)
        line, column = (place.line, place.column) if place else (None, None)
        target = type_of_node(node.to, line, column)
        quiet = isinstance(node, exp.TryCast)
        parameters = parameters_of_node(node.to, line, column)
        rounded = target == TIMESTAMP and bool(parameters)
        if isinstance(node.this, exp.Literal) and node.this.is_string and target != TEXT and target.is_ordered and not rounded:
            try:
                return build.text_constant(str(node.this.this), target)
            except TypeProblem:
                if quiet:
                    return Literal(target, None)
                raise
        bound = build.cast(self.bind(node.this), target, quiet)
        return _shortened(bound, parameters[0]) if parameters and target.kind in (Kind.TEXT, Kind.TIMESTAMP) else bound

    def _extract(self, node: exp.Extract) -> Expression:
        return self.call("extract", [node.expression], (str(node.this.name or node.this.this).lower(), None))

    def _element(self, node: exp.Bracket) -> Expression:
        is_map = isinstance(node.this, exp.Column) and node.this.name.lower() == "map"
        if is_map and not any(a.word == "map" for a in self.scope.attributes):
            return self.call("map", list(node.expressions))
        if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
            raise Unsupported("a slice of a list is not supported", hint="list[1] is its first element")
        return self.call("array_element", [node.this, node.expressions[0]])

    def _trim(self, node: exp.Trim) -> Expression:
        name = _TRIMS[str(node.args.get("position") or "BOTH").upper()]
        return self.call(name, [n for n in (node.this, node.args.get("expression")) if n is not None])

    def _function(self, node: exp.Anonymous) -> Expression:
        if is_subquery(node):
            return self._taken().value(node, self)
        name = str(node.name).lower()
        if is_aggregate(name):
            return self.aggregate(node)
        if name in ("any", "all", "some") and len(node.expressions) == 1 and is_subquery(_unwrapped(node.expressions[0])):
            hint = "write x IN (SELECT …), or compare with (SELECT MIN(y) …) or (SELECT MAX(y) …)"
            raise Unsupported(f"{name.upper()} (SELECT …) is not supported", hint=hint)
        if name in ("tumble", "hop", "session", "cumulate"):
            raise Unsupported(
                f"{name.upper()} outside FROM is not supported", hint=f"write FROM {name.upper()}(TABLE stream, …), or [RANGE …]"
            )
        if name in ("row", "struct"):
            return self._struct(node)
        own = called_function(name)
        if own is None and not is_function(name):
            raise _unknown_function(name)
        for argument in node.expressions:
            if isinstance(argument, (exp.Star, exp.Distinct, exp.Order, exp.Alias)):
                raise TypeProblem(f"{name.upper()} is not an aggregate and takes plain arguments")
        if own is not None:
            return call_user_function(own, [self.bind(argument) for argument in node.expressions])
        return self.call(name, list(node.expressions))

    def _struct(self, node: exp.Anonymous) -> Expression:
        """A part is called as AS says, else as its column or part, else f1, f2 …"""
        values, names = [], []
        for number, part in enumerate(node.expressions, start=1):
            value = part.this if isinstance(part, exp.Alias) else part
            called = part.args["alias"] if isinstance(part, exp.Alias) else part.expression if isinstance(part, exp.Dot) else None
            called = value.this if isinstance(value, exp.Column) and called is None else called
            names.append((folded(called) if isinstance(called, exp.Identifier) else None) or f"f{number}")
            values.append(value)
        return self.call("struct", values, tuple(names))

    def aggregate(self, node: exp.Expr) -> Expression:
        """Bind an aggregate; here it is refused."""
        raise Unsupported(self.aggregate_reason)

    def _aggregate_part(self, node: exp.Expr) -> Expression:
        return self.aggregate(node)

    def over(self, node: exp.Window) -> Expression:
        """Bind `function OVER (…)`; only the select list takes it."""
        raise Unsupported("OVER can stand only in the select list", hint="compute it in a derived table")


def _unknown_function(name: str) -> UnknownName:
    """Return the error, with what to write for another system's function, or the nearest of all names that may be called."""
    from millstream.engine.language.foreign_words import WordPlace
    from millstream.engine.language.refusals import hint  # only what is refused needs it

    in_force = _IN_FORCE.get()
    own = () if in_force is None else in_force.names()
    mend = (
        hint(WordPlace.FUNCTION, name)
        or _as_type(name)
        or did_you_mean(name.upper(), [n.upper() for n in (*callable_names(), *aggregate_names(), *own)])
    )
    if name in _NEEDS_OVER:
        mend = f"write {name.upper()}(…) OVER (PARTITION BY k ORDER BY ts)"
    return UnknownName(f"there is no function {name.upper()}{' without OVER' if name in _NEEDS_OVER else ''}", hint=mend)


def _as_type(name: str) -> str | None:
    word = name.upper()
    type_ = f"{word}(12, 2)" if word in DECIMAL_NAMES else word
    return f"{word} is a type: write CAST(x AS {type_})" if word in DECIMAL_NAMES or word in TYPE_NAMES else None


def _instead_of_column(name: str) -> str | None:
    from millstream.engine.language.foreign_words import WordPlace
    from millstream.engine.language.refusals import hint

    return hint(WordPlace.COLUMN, name)


def _spend_on_copies(expression: Expression | None, copies: int) -> None:
    """Count what stands in a plan more often than in the text: copies of copies would double without end."""
    if expression is not None and copies:
        spend(COPY_STEPS * copies * sum(1 for _ in walk(expression)))


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _has_months(node: exp.Expr) -> bool:
    """Whether it is an interval of months, or a multiple of one."""
    pending = [node]
    while pending:
        node = _unwrapped(pending.pop())
        if isinstance(node, exp.Mul):
            pending += [node.this, node.expression]
        elif isinstance(node, exp.Neg):
            pending.append(node.this)
        elif isinstance(node, exp.Interval) and str(node.args["unit"].this) == "MONTH":
            return True
    return False


def _shortened(bound: Expression, size: int) -> Expression:
    """CAST to VARCHAR(n) cuts, CAST to TIMESTAMP(p) rounds to p digits of a second, halves upwards."""
    if bound.type == TEXT:
        return build.call("left", [bound, build.integer_literal(size)])
    if size == TIMESTAMP_DIGITS_MAX:
        return bound
    units = {0: "second", 3: "millisecond"}
    if size not in units:
        raise Unsupported(f"TIMESTAMP({size}) in CAST is not supported", hint="use 0, 3 or 6 digits")
    later = build.call("+", [bound, Literal(INTERVAL, 10 ** (TIMESTAMP_DIGITS_MAX - size) // 2)])
    return build.call("date_trunc", [later], (units[size], None))


# By the binder's own method, which one that inherits may have replaced.
_SPECIAL: dict[type[exp.Expr], Callable[[ExpressionBinder, Any], Expression]] = {
    exp.Column: lambda self, node: self.column(node),
    exp.Literal: lambda self, node: self._literal(node),
    exp.Null: lambda self, node: Literal(NULL, None),
    exp.Boolean: lambda self, node: Literal(BOOLEAN, bool(node.this)),
    exp.Interval: lambda self, node: self._interval(node),
    exp.HexString: lambda self, node: self._hexadecimal(node),
    exp.Paren: lambda self, node: self.bind(node.this),
    exp.Neg: lambda self, node: self._negation(node),
    exp.Not: lambda self, node: self._not(node),
    exp.Is: lambda self, node: self._is(node, bool(node.args.get("negate"))),
    exp.Between: lambda self, node: self._between(node),
    exp.In: lambda self, node: self._in(node),
    exp.Like: lambda self, node: self._like(node),
    exp.ILike: lambda self, node: self._like(node),
    exp.Escape: lambda self, node: self._escape(node),
    exp.Case: lambda self, node: self._case(node),
    exp.Cast: lambda self, node: self._cast(node),
    exp.TryCast: lambda self, node: self._cast(node),
    exp.Extract: lambda self, node: self._extract(node),
    exp.StrPosition: lambda self, node: self.call("strpos", [node.this, node.args["substr"]]),
    exp.Substring: lambda self, node: self.call(
        "substring", [n for n in (node.this, node.args.get("start"), node.args.get("length")) if n]
    ),
    exp.Trim: lambda self, node: self._trim(node),
    exp.Bracket: lambda self, node: self._element(node),
    exp.Array: lambda self, node: self.call("array", list(node.expressions)),
    exp.Dot: lambda self, node: self._part(node),
    exp.Anonymous: lambda self, node: self._function(node),
    exp.Filter: lambda self, node: self._aggregate_part(node),
    exp.WithinGroup: lambda self, node: self._aggregate_part(node),
    exp.Window: lambda self, node: self.over(node),
    exp.Distinct: lambda self, node: self._aggregate_part(node),
    exp.Star: lambda self, node: self._star(node),
}


def flattened(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the operands of a chain such as a AND b AND c, through parentheses too."""
    parts: list[exp.Expr] = []
    pending = [node]
    while pending:
        current = pending.pop()
        while isinstance(current, exp.Paren):
            current = current.this
        if isinstance(current, kind):
            pending += [current.expression, current.this]
        else:
            parts.append(current)
    return parts
