"""Sources and sinks: CREATE SOURCE … INTO, CREATE SINK … FROM, and what is said about them."""

from __future__ import annotations

from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.language import statements
from millstream.engine.language.cursor import TokenCursor
from sqlglot.tokenizer_core import TokenType

SECRET_WORDS = ("password", "secret", "token", "passphrase")


def create_connector(parser: TokenCursor, kind: statements.ConnectorKind, rule: tuple[bool, bool]) -> statements.CreateConnector:
    """Read the statement after CREATE [OR REPLACE] SOURCE | SINK [IF NOT EXISTS]."""
    name = parser.name(f"{kind.noun} name", check=True)
    if kind is statements.ConnectorKind.SOURCE:
        parser.expect("INTO", where="after the name")
        target = parser.name("stream or table name")
    else:
        if not parser.takes_symbol(TokenType.FROM):
            parser.unexpected(["FROM"], "after the name")
        target = parser.name("query name")
    if not parser.takes_symbol(TokenType.WITH):
        parser.unexpected(["WITH"], "after the name")
    options = _options(parser)
    definition = statements.ConnectorDefinition(kind, name.text, target.text, options)
    if "connector" not in dict(options):
        raise InvalidDefinition(f"{kind.noun} {name.text} does not say its connector", hint="add connector = 'files' to WITH")
    return statements.CreateConnector(definition, *rule)


def _options(parser: TokenCursor) -> tuple[tuple[str, statements.ConnectorValue], ...]:
    parser.expect_symbol(TokenType.L_PAREN, "(", "after WITH")
    found: dict[str, statements.ConnectorValue] = {}

    def one() -> None:
        place = parser.place()
        name, value = _option(parser)
        if name in found:
            raise InvalidDefinition(f"option {name} is given twice", line=place.line, column=place.column)
        _check_secret(name, value, place)
        found[name] = value

    parser.listed(one)
    parser.expect_symbol(TokenType.R_PAREN, ")", "after the options")
    return tuple(found.items())


def _option(parser: TokenCursor) -> tuple[str, statements.ConnectorValue]:
    if parser.sees_word() and parser.following and parser.following.token_type == TokenType.EQ:
        parser.advance()
        name = parser.previous.text.lower()
    else:
        name = parser.dashed_name("option")
    parser.expect_symbol(TokenType.EQ, "=", f"after {name}")
    if parser.sees("ENV") and parser.following and parser.following.token_type == TokenType.L_PAREN:
        parser.advance()
        parser.advance()
        variable = parser.string("the name of an environment variable")
        parser.expect_symbol(TokenType.R_PAREN, ")", "after the name of the variable")
        return name, statements.EnvironmentName(variable)
    return name, parser.option_value(name)


def _check_secret(name: str, value: statements.ConnectorValue, place: statements.Place) -> None:
    """A secret is named, never written: statements are kept, shown and logged."""
    if isinstance(value, statements.EnvironmentName):
        return
    is_secret = any(word in name for word in SECRET_WORDS)
    if not is_secret and isinstance(value, str) and "://" in value:
        is_secret = ":" in value.partition("://")[2].partition("/")[0].rpartition("@")[0]
    if is_secret:
        raise InvalidDefinition(
            f"{name} would hold a secret in the statement, which is stored and shown",
            hint=f"name an environment variable of the connect process: {'password' if '://' in str(value) else name} = ENV('NAME')",
            line=place.line,
            column=place.column,
        )
