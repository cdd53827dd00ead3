"""CREATE FUNCTION: a function in Python, declared by its parameters, its result and the file that holds it."""

from __future__ import annotations

from millstream.engine.aggregates.table import is_aggregate
from millstream.engine.data.errors import InvalidDefinition, NameTaken
from millstream.engine.data.schema import Field
from millstream.engine.expressions.functions import is_function
from millstream.engine.language.column_types import TypeParser
from millstream.engine.language.statements import CreateFunction, FunctionDefinition
from millstream.engine.language.syntax import Name
from sqlglot.tokenizer_core import TokenType

LIMIT_US = 1_000_000  # unless TIME LIMIT says otherwise
_TAKEN = ("tumble", "hop", "session", "cumulate", "lag", "lead", "rank", "row_number", "dense_rank")


def create_function(parser: TypeParser, exists_ok: bool) -> CreateFunction:
    """Read the statement after CREATE FUNCTION [IF NOT EXISTS]."""
    name = parser.name("function name", check=True)
    _check_name(name)
    parser.expect_symbol(TokenType.L_PAREN, "(", "before the parameters")
    parameters: list[Field] = []
    if not parser.sees_symbol(TokenType.R_PAREN):
        parser.listed(lambda: parameters.append(_parameter(parser, parameters)))
    parser.expect_symbol(TokenType.R_PAREN, ")", "after the parameters")
    if not parameters:
        raise parser.problem("a function needs at least one parameter: a function of nothing is a constant", parser._prev)
    parser.expect("RETURNS", where="after the parameters")
    result = parser.column_type()
    if not parser._match(TokenType.FROM):
        parser.unexpected(["FROM"], "after the type of the result")
    file = parser.string("a file name")
    limit_us = LIMIT_US
    if parser.takes("TIME", "LIMIT"):
        limit_us = parser.duration("TIME LIMIT")
    return CreateFunction(FunctionDefinition(name.text, tuple(parameters), result, file, limit_us), exists_ok)


def _check_name(name: Name) -> None:
    place = name.place
    if is_function(name.text) or is_aggregate(name.text) or name.text in _TAKEN:
        raise NameTaken(
            f"{name.text.upper()} is a function of the language", hint="take another name", line=place.line, column=place.column
        )
    if name.text != name.text.lower() or not name.text.isidentifier():
        raise InvalidDefinition(
            f"a function must have a lower-case name that Python takes, not {name.text}", line=place.line, column=place.column
        )


def _parameter(parser: TypeParser, before: list[Field]) -> Field:
    name = parser.name("parameter name", check=True)
    if any(f.name == name.text for f in before):
        raise parser.problem(f"parameter {name.text} is named twice", parser._prev)
    return Field(name.text, parser.column_type())
