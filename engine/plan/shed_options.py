"""WITH (shed_by = '…', scale_up = true): what a row is worth when load is shed, and when counts and sums can be scaled up."""

from __future__ import annotations

from millstream.engine.data.errors import EngineError, InvalidDefinition, TypeProblem, Unsupported
from millstream.engine.data.schema import StreamDefinition
from millstream.engine.data.types import BOOLEAN, DOUBLE, INT
from millstream.engine.expressions import build
from millstream.engine.expressions.compile import NOT_CONSTANT, compile_expression, failure_of_constants
from millstream.engine.expressions.ir import Call, walk
from millstream.engine.expressions.user_functions import user_function_of
from millstream.engine.language.parse import parse_expression
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.logical import Node, Scan, walk_plan
from millstream.engine.plan.physical import QueryOptions, ShedBy
from millstream.engine.plan.scope import Scope


def shed_by(text: str, node: Node, catalog: Catalog) -> ShedBy:
    """Bind the expression of `shed_by` over the one stream that the query reads."""
    scan = _stream_of(node, catalog, "shed_by")
    try:
        bound = ExpressionBinder(Scope(scan.attributes), "an aggregate cannot stand in shed_by").bind(parse_expression(text))
    except EngineError as problem:
        raise type(problem)(f"option shed_by: {problem.message}", hint=problem.hint) from None
    if not (bound.type.is_numeric or bound.type == BOOLEAN):
        raise TypeProblem(f"option shed_by must give a number, not {bound.type}", hint="the rows with the least number are shed first")
    for part in walk(bound):
        if user_function_of(part) is not None or (isinstance(part, Call) and part.function in NOT_CONSTANT):
            raise Unsupported("option shed_by can use the built-in functions of a row's columns alone")
    reason = failure_of_constants(bound, compile_expression)
    if reason is not None:
        raise InvalidDefinition(f"option shed_by fails at every row: {reason}", hint="the rows with the least number are shed first")
    if bound.type == BOOLEAN:
        bound = build.cast(bound, INT)
    return ShedBy(text.strip(), build.cast(bound, DOUBLE))


def check_shedding(options: QueryOptions, node: Node, catalog: Catalog) -> None:
    """Refuse options that contradict one another or the class."""
    if options.shed_by is not None and not catalog.query_class(options.class_name).may_shed:
        raise InvalidDefinition(
            f"shed_by says which rows of a class that may be shed fall first, and class {options.class_name} is never shed",
            hint="CREATE CLASS name PRIORITY n SHED, and WITH (class = 'name')",
        )
    if options.scale_up and options.shed_by is not None:
        raise InvalidDefinition("scale_up needs rows that are shed by chance, and shed_by chooses them", hint="leave one of the two out")
    if options.scale_up:
        _stream_of(node, catalog, "scale_up")


def _stream_of(node: Node, catalog: Catalog, option: str) -> Scan:
    scans = [n for n in walk_plan(node) if isinstance(n, Scan)]
    names = list(dict.fromkeys(scan.stream for scan in scans))
    if len(names) != 1:
        raise Unsupported(f"option {option} is for queries of one stream; this one reads {' and '.join(names)}")
    if not isinstance(catalog.find(names[0]), StreamDefinition):
        raise Unsupported(f"{names[0]} is a derived stream, and load is shed where rows enter", hint=f"give {option} to its own query")
    return scans[0]
