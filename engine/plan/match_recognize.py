"""MATCH_RECOGNIZE (K27): variables, conditions and measures to the values of a match that they read, and the node over what computes these.

In DEFINE a column without a variable, or of the variable that is defined, is that of the row at hand. With PREV and NEXT it is of a row so
many rows on. All of these are `near`: known before there is any match. What else is read of earlier rows of the match is `past`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import EngineError, InvalidDefinition, SyntaxProblem, TypeProblem, UnknownName, Unsupported
from millstream.engine.data.nearest import near_or_listed
from millstream.engine.data.types import BIGINT, TEXT, DataType
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal, transform
from millstream.engine.language.dialect import walked
from millstream.engine.language.limits import KEYS_MAX, PATTERN_ROWS_MAX, VARIABLES_MAX
from millstream.engine.language.recipes import AggregateCall, MatchSkip, MatchSpec, MatchValue, Pattern, WindowKind
from millstream.engine.language.statements import MatchItem, Measure, Name, Place
from millstream.engine.plan.aggregate_binder import AggregateBinder
from millstream.engine.plan.catalog import TimeOffset
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.logical import (
    Attribute,
    Attributes,
    Match,
    Node,
    Project,
    Role,
    TableScan,
    check_append_only,
    passing,
    unique_names,
)
from millstream.engine.plan.scope import Scope, folded, located
from sqlglot import exp

DEFINED = ("count", "sum", "min", "max", "avg")  # what DEFINE may compute of a match while it grows
_PAST, _MEASURE = 1_000_000, 2_000_000  # where values stand until it is known how many there are before them
_ROWS_MAX = 1_000
Variables = Mapping[str, tuple[int, ...]]
_MOVES = ("first", "last", "prev", "next")


def pattern_rows(pattern: Pattern) -> tuple[int, int | None]:
    """Return how many places for rows a pattern has once it is written out, and the most rows of a match, None where there is no end."""
    kind = pattern[0]
    if kind == "row":
        return 1, 1
    if kind == "times":
        _, part, least, most, _ = pattern
        places, rows = pattern_rows(part)
        written = places * max(1, least if most is None else most)
        return written, 0 if rows == 0 else None if rows is None or most is None else rows * most
    sizes = [pattern_rows(part) for part in pattern[1]]
    ends = [rows for _, rows in sizes]
    longest = None if None in ends else (sum if kind == "then" else max)([e for e in ends if e is not None] or [0])
    return sum(places for places, _ in sizes), longest


def ends_of(pattern: Pattern, *, last: bool) -> tuple[frozenset[int], bool]:
    """Return the variables that the first (or last) row of a match may be mapped to, and whether a match may have no rows."""
    kind = pattern[0]
    if kind == "row":
        return frozenset((pattern[1],)), False
    if kind == "times":
        found, empty = ends_of(pattern[1], last=last)
        return found, empty or pattern[2] == 0
    parts = [ends_of(part, last=last) for part in pattern[1]]
    if kind == "or":
        return frozenset[int]().union(*(found for found, _ in parts)), any(empty for _, empty in parts)
    ends: frozenset[int] = frozenset()
    for found, empty in reversed(parts) if last else parts:
        ends |= found
        if not empty:
            return ends, False
    return ends, True


class _ArgumentBinder(ExpressionBinder):
    """Binds what stands in FIRST, PREV or an aggregate over the rows of the input; `found` are the variables its columns are called by."""

    def __init__(self, scope: Scope, variables: Variables) -> None:
        super().__init__(scope, "an aggregate cannot stand in FIRST, LAST, PREV, NEXT or another aggregate")
        self._variables = variables
        self.found: set[tuple[int, ...]] = set()

    def column(self, node: exp.Column) -> Expression:
        """Bind `v.column` without its variable."""
        parts = [node.args[part] for part in ("catalog", "db", "table", "this") if node.args.get(part) is not None]
        variables = self._variables.get(folded(parts[0]) or "") if len(parts) > 1 else None
        self.found.add(variables or ())
        if variables is None:
            name = folded(parts[0]) or ""
            if len(parts) > 1 and name not in self.scope.qualifiers() and not any(a.word == name for a in self.scope.attributes):
                raise UnknownName(f"there is no {name} in PATTERN", hint=near_or_listed(name, self._variables, "variables"), token=name)
            return super().column(node)
        names = dict(zip(("this", "table", "db"), reversed(parts[1:]), strict=False))
        return super().column(exp.Column(**names))

    def variables(self) -> tuple[int, ...]:
        """Return the one variable that was named."""
        if len(self.found) > 1:
            raise Unsupported("columns of different variables in one function of a match are not supported", hint="use a function each")
        return next(iter(self.found), ())


class _Values:
    """The values that expressions of one MATCH_RECOGNIZE read, and the columns below that these are made of."""

    def __init__(self, attributes: Attributes, variables: Variables) -> None:
        self.attributes = attributes
        self.scope = Scope(attributes)
        self.variables = variables
        self.extra: list[Expression] = []
        self.near: list[tuple[int, int]] = []
        self.past: list[MatchValue] = []
        self.measures: list[MatchValue] = []

    def place(self, expression: Expression) -> int:
        """Return the column of the input that holds an expression."""
        if isinstance(expression, ColumnRef):
            return expression.position
        if expression not in self.extra:
            self.extra.append(expression)
        return len(self.attributes) + self.extra.index(expression)

    def near_reference(self, expression: Expression, shift: int) -> ColumnRef:
        """Return the reference to what a row so many rows on from the one at hand has."""
        wanted = (self.place(expression), shift)
        if wanted not in self.near:
            self.near.append(wanted)
        return ColumnRef(expression.type, self.near.index(wanted), f"row_{self.near.index(wanted)}")


class MatchExpressionBinder(ExpressionBinder):
    """Binds a condition of DEFINE, given the variable that is defined (`own`), or a measure (None)."""

    def __init__(self, values: _Values, own: int | None, *, final: bool = False) -> None:
        super().__init__(values.scope)
        self._values = values
        self._own = own
        self._final = final

    def column(self, node: exp.Column) -> Expression:
        """Bind `v.column`: that of the last row mapped to v."""
        argument = _ArgumentBinder(self.scope, self._values.variables)
        bound = argument.column(node)
        return self._value(bound, argument.variables(), False, 0, 0)

    def _function(self, node: exp.Anonymous) -> Expression:
        name = str(node.name).lower()
        if name in _MOVES:
            return self._move(name, node)
        if name in ("classifier", "match_number", "match_rowtime"):
            return self._word(name, node)
        return super()._function(node)

    def _word(self, name: str, node: exp.Anonymous) -> Expression:
        if node.expressions:
            raise Unsupported(f"{name.upper()} takes no arguments", hint=f"write {name.upper()}()")
        if name == "match_rowtime":
            place = next((i for i, a in enumerate(self.scope.attributes) if a.time == TimeOffset()), None)
            if place is None:
                raise TypeProblem("MATCH_ROWTIME() needs the column of the event time in the input", hint="select it in the derived table")
            return self._value(self.scope.attribute(place).reference(place), (), False, 0, 0)
        if self._own is not None:
            raise Unsupported(f"{name.upper()}() in DEFINE is not supported", hint="it can stand in MEASURES; name the variable instead")
        value = MatchValue(word="number" if name == "match_number" else "classifier", final=self._final)
        return self._noted(value, BIGINT if name == "match_number" else TEXT, name)

    def _move(self, name: str, node: exp.Anonymous) -> Expression:
        """FIRST(v.x, n), LAST(v.x, n), PREV(x, n), NEXT(x, n), and PREV or NEXT of the first two."""
        inner, shift = node, 0
        if name in ("prev", "next"):
            count = self._count(node, 1)
            shift = count if name == "next" else -count
            inner = node.expressions[0]
            name = str(inner.name).lower() if isinstance(inner, exp.Anonymous) else ""
        first, offset = name == "first", 0
        operand: exp.Expr = inner
        if name in ("first", "last") and isinstance(inner, exp.Anonymous):
            offset = self._count(inner, 0)
            operand = inner.expressions[0]
        argument = _ArgumentBinder(self.scope, self._values.variables)
        if any(isinstance(part, exp.Anonymous) and str(part.name).lower() in (*_MOVES, "classifier") for part in walked(operand)):
            hint = "PREV and NEXT stand around FIRST and LAST, as in PREV(FIRST(a.x), 1)"
            raise Unsupported(f"{str(node.name).upper()} of such a function is not supported", hint=hint)
        bound = argument.bind(operand)
        return self._value(bound, argument.variables(), first, offset, shift)

    def _count(self, node: exp.Anonymous, default: int) -> int:
        name, parts = str(node.name).upper(), node.expressions
        if not 1 <= len(parts) <= 2:
            raise TypeProblem(f"{name} takes 1 or 2 arguments, not {len(parts)}")
        if len(parts) == 1:
            return default
        bound = ExpressionBinder(Scope(())).bind(parts[1])
        if not isinstance(bound, Literal) or not bound.type.is_integer or bound.value is None or not 0 <= bound.value <= _ROWS_MAX:
            raise located(TypeProblem(f"the second argument of {name} must be a constant from 0 to {_ROWS_MAX}"), parts[1])
        return int(bound.value)

    def _value(self, bound: Expression, variables: tuple[int, ...], first: bool, offset: int, shift: int) -> Expression:
        own = self._own
        if own is not None and not first and offset == 0 and (not variables or own in variables):
            return self._values.near_reference(bound, shift)
        if shift > 0:
            if own is None:
                hint = "NEXT can stand in DEFINE; or compute LEAD(x) OVER (…) in a derived table and read that"
                raise Unsupported("NEXT in MEASURES is not supported", hint=hint)
            raise Unsupported("NEXT of an earlier row of the match is not supported", hint="NEXT(x) looks on from the row at hand")
        column = self._values.place(bound)
        return self._noted(MatchValue(variables, None, column, first, offset, shift, final=self._final), bound.type, "value")

    def aggregate(self, node: exp.Expr) -> Expression:
        """Bind an aggregate over the rows of the match, or of one variable."""
        argument = _ArgumentBinder(self.scope, self._values.variables)
        binder = AggregateBinder(self.scope)
        binder.source = argument
        starred = self._starred(node)
        if starred is not None:
            argument.found.add(starred[1])
        binder.aggregate(node if starred is None else starred[0])
        pending = binder.pending[-1]
        name = pending.name.upper()
        if self._own is not None and (pending.function not in DEFINED or pending.distinct):
            what = f"{name}(DISTINCT …)" if pending.distinct else name
            raise Unsupported(f"{what} in DEFINE is not supported", hint="COUNT, SUM, MIN, MAX and AVG are; others can stand in MEASURES")
        place = self._values.place
        condition = None if pending.filter is None else place(pending.filter)
        result = pending.signature.result
        arguments = tuple(place(a) for a in pending.arguments)
        call = AggregateCall(pending.function, arguments, result, condition, pending.distinct, pending.options)
        return self._noted(MatchValue(argument.variables(), call, final=self._final), result, pending.function)

    def _starred(self, node: exp.Expr) -> tuple[exp.Expr, tuple[int, ...]] | None:
        """Return COUNT(v.*) as COUNT(*), and the variable."""
        call = node.this if isinstance(node, exp.Filter) else node
        star = call.expressions[0] if isinstance(call, exp.Anonymous) and len(call.expressions) == 1 else None
        if not isinstance(star, exp.Column) or not isinstance(star.this, exp.Star):
            return None
        name = folded(star.args.get("table")) or ""
        variables = self._values.variables.get(name)
        if variables is None:
            raise UnknownName(f"there is no pattern variable {name}", hint=near_or_listed(name, self._values.variables, "variables"))
        copied = node.copy()
        inner = copied.this if isinstance(copied, exp.Filter) else copied
        inner.set("expressions", [exp.Star()])
        return copied, variables

    def _noted(self, value: MatchValue, type_: DataType, name: str) -> ColumnRef:
        spend(1)
        listed, base = (self._values.measures, _MEASURE) if self._own is None else (self._values.past, _PAST)
        if value not in listed:
            listed.append(value)
        return ColumnRef(type_, base + listed.index(value), name)


# The item ----------------------------------------------------------------------------------------------------------------


def bind_match(item: MatchItem, node: Node) -> Node:
    """Return the rows that the item gives, called by its alias. `node` are those of its source."""
    try:
        return _bound(item, node)
    except EngineError as problem:
        if problem.line is None:
            problem.line, problem.column, problem.token = item.place.line, item.place.column, "MATCH_RECOGNIZE"
        raise


def _bound(item: MatchItem, node: Node) -> Node:
    check_append_only(node, "MATCH_RECOGNIZE")
    if isinstance(node, TableScan):
        raise Unsupported("MATCH_RECOGNIZE over a table is not supported, as its rows have no order in time", hint="read a stream")
    _check_window(item)
    variables = _variables(item)
    values = _Values(node.attributes, variables)
    partition = _partition(item, values.scope)
    _check_order(item, values.scope)
    _check_length(item)
    defined = {name.text: condition for name, condition in item.define}
    conditions = [
        None if (condition := defined.get(v.text)) is None else MatchExpressionBinder(values, i).condition(condition, f"DEFINE {v.text}")
        for i, v in enumerate(item.variables)
    ]
    measures = [(measure, _measure_name(measure), _measure(measure, item, values)) for measure in item.measures]
    below = node
    if values.extra:
        added = tuple(Attribute(f"match_of_{i}", e.type) for i, e in enumerate(values.extra))
        below = Project(attributes=node.attributes + added, input=node, expressions=(*passing(node.attributes), *values.extra))
    spec = MatchSpec(
        partition,
        tuple(v.text for v in item.variables),
        item.pattern,
        tuple(values.near),
        tuple(values.past),
        tuple(None if c is None else _settled(c, _PAST, len(values.near)) for c in conditions),
        tuple(values.measures),
        item.skip,
        () if item.skip_to is None else _skip_to(item.skip_to, item.skip, item.pattern, variables),
        item.within_us,
        item.all_rows,
        item.shows_empty,
    )
    made = match_node(below, spec)
    return _measured(made, item, measures, len(node.attributes))


def match_node(below: Node, spec: MatchSpec, names: Sequence[str] = ()) -> Match:
    """Return the node over one that has computed all that it reads; `names` are those of its measures."""
    kept = below.attributes if spec.all_rows else tuple(below.attributes[p] for p in spec.partition)
    if not spec.all_rows:
        kept = tuple(replace(a, time=None, time_unit_us=1) for a in kept)
    called = list(names) or [f"measure_{i}" for i in range(len(spec.measures))]
    taken = [a.name for a in kept]
    called = unique_names([*taken, *called])[len(taken) :]
    own = tuple(_attribute(name, value, spec, below.attributes) for name, value in zip(called, spec.measures, strict=True))
    return Match(attributes=(*kept, *own), input=below, spec=spec)


def _attribute(name: str, value: MatchValue, spec: MatchSpec, attributes: Attributes) -> Attribute:
    """What a measure is; the event time of the last row is that of the result."""
    if value.call is not None:
        return Attribute(name, value.call.type)
    if value.column is None:
        return Attribute(name, BIGINT if value.word == "number" else TEXT, value.word != "number")
    source = attributes[value.column]
    last, empty = ends_of(spec.pattern, last=True)
    is_last = not value.first and value.offset == 0 and value.shift == 0 and (not value.variables or last <= set(value.variables))
    if not is_last or empty or source.time != TimeOffset() or (spec.all_rows and (value.final or value.variables)):
        return Attribute(name, source.type)
    return Attribute(name, source.type, source.nullable, time=source.time, time_unit_us=source.time_unit_us)


def _measured(made: Match, item: MatchItem, measures: Sequence[tuple[Measure, str, Expression]], width: int) -> Node:
    """Compute the measures, and call all columns by the item's alias."""
    kept = width if item.all_rows else len(made.spec.partition)
    first = len(made.attributes) - len(made.spec.measures)
    qualifier = item.alias.text if item.alias else f"match_{item.place.line}_{item.place.column}"
    expressions: list[Expression] = [made.attributes[i].reference(i) for i in range(kept)]
    attributes = [replace(made.attributes[i], role=Role.PLAIN) for i in range(kept)]
    for measure, name, bound in measures:
        settled = _settled(bound, _MEASURE, first)
        same = isinstance(settled, ColumnRef)
        attribute = (
            replace(made.attributes[settled.position], name=name) if isinstance(settled, ColumnRef) else Attribute(name, settled.type)
        )
        twice = any(a.name == name for a in attributes)
        if twice:
            place = measure.place
            raise SyntaxProblem(f"there are two columns {name}", hint="name the measure otherwise", line=place.line, column=place.column)
        attributes.append(attribute if same else Attribute(name, settled.type))
        expressions.append(settled)
    if not attributes:
        raise SyntaxProblem(
            "MATCH_RECOGNIZE has no MEASURES and no PARTITION BY, so that it shows nothing", hint="write MEASURES … AS name"
        )
    called = tuple(replace(a, qualifier=qualifier, covered=False, called=None) for a in attributes)
    return Project(attributes=called, input=made, expressions=tuple(expressions))


def _settled(expression: Expression, base: int, first: int) -> Expression:
    """Let the values at `base` and beyond stand from `first` on."""
    return transform(
        expression, lambda e: replace(e, position=e.position - base + first) if isinstance(e, ColumnRef) and e.position >= base else e
    )


def _measure(measure: Measure, item: MatchItem, values: _Values) -> Expression:
    final = bool(measure.final) and item.all_rows  # of ONE ROW PER MATCH all are
    return MatchExpressionBinder(values, None, final=final).bind(measure.expression)


def _measure_name(measure: Measure) -> str:
    if measure.name is not None:
        return measure.name.text
    node = measure.expression
    name = folded(node.this) if isinstance(node, exp.Column) else None
    if name is None:
        place = measure.place
        raise SyntaxProblem("a measure needs a name", hint="write MEASURES expression AS name", line=place.line, column=place.column)
    return name


class MatchReader:
    """Makes the node of a plan object: conditions and measures in turn, then the whole."""

    def __init__(self, attributes: Attributes, variables: Sequence[str], subsets: Sequence[tuple[str, Sequence[str]]]) -> None:
        self._names = tuple(variables)
        names: dict[str, tuple[int, ...]] = {name: (i,) for i, name in enumerate(variables)}
        for name, parts in subsets:
            names[name] = tuple(sorted({_known(Name(part), names).text: names[part][0] for part in parts}.values()))
        self._variables = names
        self._values = _Values(attributes, names)
        self._conditions: list[Expression | None] = [None] * len(variables)
        self._measured: list[str] = []

    def define(self, name: str, node: exp.Expr) -> None:
        """Add the condition of a variable."""
        variable = self._variables[_known(Name(name), self._variables).text][0]
        self._conditions[variable] = MatchExpressionBinder(self._values, variable).condition(node, f"the condition of {name}")

    def measure(self, name: str, node: exp.Expr, final: bool) -> None:
        """Add a measure that is one value of a match."""
        before = len(self._values.measures)
        bound = MatchExpressionBinder(self._values, None, final=final).bind(node)
        self._added(name, isinstance(bound, ColumnRef) and len(self._values.measures) == before + 1)

    def aggregate(self, name: str, variables: Sequence[str], call: AggregateCall, final: bool) -> None:
        """Add an aggregate of columns over the rows of some variables."""
        places = tuple(sorted({self._variables[_known(Name(v), self._variables).text][0] for v in variables}))
        value = MatchValue(places, call, final=final)
        new = value not in self._values.measures
        self._values.measures.append(value)
        self._added(name, new)

    def _added(self, name: str, is_new: bool) -> None:
        if not is_new:
            raise InvalidDefinition(
                f"{name} is no value of a match, or one that is there already", hint="compute with values in a project above"
            )
        self._measured.append(name)

    def node(
        self,
        below: Node,
        partition: tuple[int, ...],
        pattern: Pattern,
        skip: tuple[MatchSkip, Name | None],
        within_us: int | None,
        all_rows: bool,
        shows_empty: bool,
    ) -> Match:
        """Return the node."""
        values = self._values
        if values.extra:
            raise InvalidDefinition("a match reads columns", hint="compute others in a project below")
        check_append_only(below, "MATCH_RECOGNIZE")
        check_pattern(pattern)
        spec = MatchSpec(
            partition,
            self._names,
            pattern,
            tuple(values.near),
            tuple(values.past),
            tuple(None if c is None else _settled(c, _PAST, len(values.near)) for c in self._conditions),
            tuple(values.measures),
            skip[0],
            () if skip[1] is None else _skip_to(skip[1], skip[0], pattern, self._variables),
            within_us,
            all_rows,
            shows_empty,
        )
        return match_node(below, spec, self._measured)


# Checks ------------------------------------------------------------------------------------------------------------------


def _at(place: Place, problem: EngineError) -> EngineError:
    problem.line, problem.column = place.line, place.column
    return problem


def _check_window(item: MatchItem) -> None:
    window = item.source.window
    if window is not None and (window.kind is not WindowKind.UNBOUNDED or window.state_rows_max is not None):
        hint = "leave it out and write WITHIN behind PATTERN ( … ); [UNBOUNDED] says that a match may take any time"
        raise _at(window.place, Unsupported("MATCH_RECOGNIZE over the rows of a window is not supported", hint=hint))


def _variables(item: MatchItem) -> Variables:
    """Return the variables that each name stands for, subsets too."""
    names = {name.text: (i,) for i, name in enumerate(item.variables)}
    if len(names) > VARIABLES_MAX:
        raise Unsupported(f"a pattern of more than {VARIABLES_MAX} variables is not supported", hint="find a part of it in a derived table")
    for name, _ in item.define:
        _known(name, names)
    twice = next((n for i, (n, _) in enumerate(item.define) if any(n.text == m.text for m, _ in item.define[:i])), None)
    if twice is not None:
        raise _at(twice.place, SyntaxProblem(f"{twice.text} is defined twice", hint="join the conditions with AND"))
    found: dict[str, tuple[int, ...]] = dict(names)
    for name, parts in item.subsets:
        if name.text in found:
            raise _at(name.place, SyntaxProblem(f"{name.text} is a variable already", hint="name the subset otherwise"))
        found[name.text] = tuple(sorted({names[_known(part, names).text][0] for part in parts}))
    return found


def _known(name: Name, names: Mapping[str, object]) -> Name:
    if name.text not in names:
        hint = near_or_listed(name.text, names, "variables")
        raise _at(name.place, UnknownName(f"there is no {name.text} in PATTERN", hint=hint, token=name.text))
    return name


def _partition(item: MatchItem, scope: Scope) -> tuple[int, ...]:
    places = []
    for key in item.partition:
        bound = ExpressionBinder(scope).bind(key)
        if not isinstance(bound, ColumnRef):
            raise located(Unsupported("PARTITION BY takes columns", hint="compute the key in a derived table"), key)
        if not bound.type.is_ordered:
            problem = TypeProblem(
                f"values of the type {bound.type} have no order and cannot be a key of PARTITION BY", hint="name their parts"
            )
            raise located(problem, key)
        places.append(bound.position)
    if len(places) > KEYS_MAX:
        raise Unsupported(f"keys of more than {KEYS_MAX} columns are not supported", hint="join some into one, as in a || ',' || b")
    return tuple(dict.fromkeys(places))


def _check_order(item: MatchItem, scope: Scope) -> None:
    """The order is that of event time, which may be left out."""
    for number, key in enumerate(item.order):
        bound = ExpressionBinder(scope).bind(key.expression)
        time = scope.attribute(bound.position).time if isinstance(bound, ColumnRef) else None
        if number or key.descending or time is None or time.least_us != time.most_us:
            name = next((a.name for a in scope.attributes if a.time == TimeOffset()), None)
            hint = f"write ORDER BY {name}" if name else "leave ORDER BY out"
            raise _at(
                key.place, Unsupported("MATCH_RECOGNIZE looks at rows in order of event time only", hint=f"{hint}; arrival breaks ties")
            )


def check_pattern(pattern: Pattern) -> int | None:
    """Return the most rows of a match, None where there is no end; Unsupported for a pattern with too many places."""
    places, longest = pattern_rows(pattern)
    if places > PATTERN_ROWS_MAX:
        hint = "use *, + or {n,} in place of high numbers"
        raise Unsupported(f"the pattern has {places} places for rows once it is written out, and at most {PATTERN_ROWS_MAX} go", hint=hint)
    return longest


def _check_length(item: MatchItem) -> None:
    longest = check_pattern(item.pattern)
    if longest is None and item.within_us is None and item.source.window is None:
        hint = "write WITHIN INTERVAL '1' HOUR behind PATTERN ( … ), or [UNBOUNDED] behind the stream's name if it may take any time"
        raise Unsupported("a match of this pattern may have any number of rows, and all of them must be kept", hint=hint)
    if item.within_us is not None and item.source.window is not None:
        raise Unsupported("[UNBOUNDED] and WITHIN contradict each other", hint="leave one of them out")


def _skip_to(name: Name, skip: MatchSkip, pattern: Pattern, variables: Variables) -> tuple[int, ...]:
    target = variables[_known(name, variables).text]
    first, _ = ends_of(pattern, last=False)
    if skip is MatchSkip.TO_FIRST and first <= set(target):
        hint = "write AFTER MATCH SKIP TO NEXT ROW, or name a variable behind the first"
        problem = Unsupported(
            f"the first {name.text} is always the first row of a match, which would be found again without end", hint=hint
        )
        raise _at(name.place, problem)
    return target
