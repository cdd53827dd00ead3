"""Text in, statements out: the language's one door.

    for statement, span in parse_script("CREATE STREAM s (k INT); SELECT k FROM s;"): ...

Raises SyntaxProblem (with line, column, token and a suggestion), UnknownName, TypeProblem, InvalidDefinition or Unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import EngineError, InvalidDefinition, SyntaxProblem, Unsupported
from millstream.engine.language import statements
from millstream.engine.language.definition_parser import DefinitionParser
from millstream.engine.language.dialect import Millstream
from millstream.engine.language.limits import SCRIPT_LENGTH_MAX, STATEMENT_LENGTH_MAX, TOKEN_STEPS, check_text, check_tokens
from millstream.engine.language.recipes import EmitSpec, MatchSkip, Pattern
from millstream.engine.language.window_parser import MatchParser
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

STATEMENT_WORDS = (
    *("SELECT", "CREATE", "INSERT", "DROP", "START", "STOP", "PAUSE", "RESUME", "SHOW", "DESCRIBE", "EXPLAIN", "SET"),
    *("ALTER", "COMMENT", "FETCH", "WITH", "ISTREAM", "DSTREAM", "RSTREAM"),
)


class StatementParser(DefinitionParser):
    """The whole grammar: one statement from the tokens it was given."""

    def statement(self) -> statements.Statement:
        """Read one statement; all its tokens must be used."""
        result = self._statement()
        if not self.at_end():
            self.unexpected([])
        return result

    def _statement(self) -> statements.Statement:
        if self.sees_query() or self.sees_symbol(TokenType.L_PAREN):
            query, text = self.query_with_text()
            return statements.SelectStatement(query, text)
        if self.takes("CREATE"):
            return self.create()
        if self.takes("INSERT"):
            return self._insert()
        if self.takes("DROP"):
            return self._drop()
        if self.takes("ALTER"):
            return self.alter()
        if self.takes("COMMENT"):
            return self.comment()
        for verb in statements.QueryVerb:
            if self.takes(verb.value):
                if verb in (statements.QueryVerb.START, statements.QueryVerb.STOP) and self.takes("RECORDING"):
                    what = next((one for one in statements.Recorded if self.takes(one.value)), statements.Recorded.ARRIVALS)
                    return statements.SetRecording(what, verb is statements.QueryVerb.START)
                if verb in (statements.QueryVerb.PAUSE, statements.QueryVerb.RESUME) and (kind := self._connector_kind()) is not None:
                    return statements.ChangeConnector(kind, verb, self.name(f"{kind.noun} name"))
                self.expect("QUERY", where=f"after {verb.value}")
                return statements.ChangeQuery(verb, self.name("query name"))
        return self._inspection()

    def _inspection(self) -> statements.Statement:
        if self.takes("FETCH"):
            return self._fetch()
        if self.takes("SHOW"):
            return self._show()
        if self.takes("DESCRIBE") or self.takes("DESC"):
            found = next((kind for kind in statements.ObjectKind if self.following and self.takes(kind.value)), None)
            return statements.Describe(self.name("name"), found)
        if self.takes("EXPLAIN"):
            return self._explain()
        if self.takes("SET"):
            return self._set_policy()
        if self.sees("REPORT"):
            self.advance()
            kind = statements.ConnectorKind(self.choice([k.value for k in statements.ConnectorKind], "after REPORT"))
            return statements.ReportConnector(kind, self.name(f"{kind.noun} name"), self.string("a report"))
        raise self.unexpected_error(STATEMENT_WORDS[:15])

    def _show(self) -> statements.Statement:
        if self.takes("RECORDING"):
            return statements.ShowRecording(self.duration("the time that LAST asks for") if self.takes("LAST") else None)
        words = [what.value for what in statements.ShowWhat]
        return statements.Show(statements.ShowWhat(self.choice([*words, "RECORDING"], "after SHOW")))

    def _insert(self) -> statements.Statement:
        self.expect("INTO", where="after INSERT")
        name = self.name("stream or table name")
        columns: tuple[statements.Name, ...] = ()
        if self.sees_symbol(TokenType.L_PAREN) and not self._query_in_parentheses():
            self.advance()
            columns = self.listed(lambda: self.name("column name"))
            self.expect_symbol(TokenType.R_PAREN, ")", "after the columns")
        if self.takes("VALUES"):
            return statements.InsertValues(name, columns, self.listed(self._row))
        if not self.sees_query():
            self.unexpected(["VALUES", "SELECT"])
        query, text = self.query_with_text()
        return statements.InsertSelect(name, columns, query, text)

    def _query_in_parentheses(self) -> bool:
        return bool(self.following) and self.following.text.upper() in ("SELECT", "WITH")

    def _row(self) -> tuple[exp.Expr, ...]:
        self.expect_symbol(TokenType.L_PAREN, "(", "before a row of values")
        values = self.listed(lambda: self.expression_of("a value"))
        self.expect_symbol(TokenType.R_PAREN, ")", "after the row")
        return values

    def _connector_kind(self) -> statements.ConnectorKind | None:
        """Take SOURCE or SINK before a name."""
        return next((kind for kind in statements.ConnectorKind if self.following and self.takes(kind.value)), None)

    def _drop(self) -> statements.Statement:
        connector = self._connector_kind()
        if connector is not None:
            missing_ok = self.takes("IF", "EXISTS")
            dropped = statements.DropConnector(connector, self.name(f"{connector.noun} name"), missing_ok)
            self._refuse_more(f"DROP {connector.value}")
            return dropped
        is_view = self.takes("MATERIALIZED", "VIEW")
        kind = statements.ObjectKind("QUERY" if is_view else self.choice([k.value for k in statements.ObjectKind], "after DROP"))
        exists_ok = self.takes("IF", "EXISTS")
        name = self.name(f"{kind.value.lower()} name")
        self._refuse_more(f"DROP {'MATERIALIZED VIEW' if is_view else kind.value}")
        return statements.Drop(kind, name, self.takes("CASCADE"), exists_ok, is_view)

    def _refuse_more(self, words: str) -> None:
        """Refuse a list of names where a statement drops one thing."""
        if self.sees_symbol(TokenType.COMMA):
            raise self.problem("expected the end of the statement, not ','", hint=f"drop one at a time: {words} a; {words} b")

    def _explain(self) -> statements.Statement:
        connector = self._connector_kind()
        if connector is not None:
            return statements.ExplainConnector(connector, self.name(f"{connector.noun} name"))
        mode = statements.ExplainMode.PLAN
        for candidate in (statements.ExplainMode.SEMANTICS, statements.ExplainMode.ANALYZE, statements.ExplainMode.QOS):
            if self.following and self.takes(candidate.value):
                mode = candidate
                break
        if self.sees_query():
            query, text = self.query_with_text()
            return statements.Explain(mode, query=query, text=text)
        if self.following:
            self.takes("QUERY")
        return statements.Explain(mode, name=self.name("SELECT or the name of a query"))

    def _fetch(self) -> statements.Statement:
        if self.sees("QUERY"):
            self.advance()
            return statements.Fetch(name=self.name("query name"))
        if not self.sees_query():
            self.unexpected(["SELECT", "QUERY"], "after FETCH")
        self.history = []
        query, text = self.query_with_text()
        return statements.Fetch(query=query, text=text, history=tuple(self.history))

    def _set_policy(self) -> statements.Statement:
        self.expect("POLICY", where="after SET")
        place = self.place()
        quoted = self.sees_symbol(TokenType.STRING)
        name = self.string("policy name").lower() if quoted else self.dashed_name("policy name")
        options: tuple[statements.Option, ...] = ()
        if self.sees_symbol(TokenType.L_PAREN):
            raise self.problem("the options of a policy stand behind WITH", hint=f"write SET POLICY {name} WITH (option = value)")
        if self.takes_symbol(TokenType.WITH):
            options = self.options()
        return statements.SetPolicy(statements.Name(name, place), options)


_DIALECT = Millstream()

Result = TypeVar("Result")


def parse_script(text: str) -> list[tuple[statements.Statement, statements.Span]]:
    """Return the statements of a script in order, each with the span of text it came from."""
    tokens = tokenize(text, SCRIPT_LENGTH_MAX)
    return [(_parse(chunk, text), _span(chunk, text)) for chunk in _chunks(tokens)]


def parse_statement(text: str) -> statements.Statement:
    """Return the one statement of `text`; a semicolon at its end is allowed."""
    return parse_placed(text)[0]


def parse_placed(text: str) -> tuple[statements.Statement, statements.Place]:
    """Return the one statement of `text` and where it begins.

    Its work is bounded (limits.py), whatever the text is. Raises SyntaxProblem.
    """
    chunks = list(_chunks(tokenize(text)))
    if not chunks:
        raise SyntaxProblem("there is no statement", line=1, column=1)
    if len(chunks) > 1:
        second = chunks[1][0]
        raise SyntaxProblem("there is more than one statement", hint="send one at a time", line=second.line, column=second.col)
    return _parse(chunks[0], text), statements.Place(chunks[0][0].line, chunks[0][0].col)


def placed_in_script(problem: EngineError, place: statements.Place) -> EngineError:
    """Return the error; one that names no place has that of its statement, where it stands below the first line of a script."""
    if problem.line is None and place.line > 1:
        problem.line, problem.column = place.line, place.column
    return problem


def parse_query(text: str) -> statements.SelectQuery:
    """Return the SELECT that `text` is; SyntaxProblem when it is something else."""
    statement = parse_statement(text)
    if not isinstance(statement, statements.SelectStatement):
        raise SyntaxProblem("expected SELECT", line=1, column=1)
    return statement.query


def parse_expression(text: str) -> exp.Expr:
    """Return the one expression that `text` is (plan objects carry expressions as text)."""
    return _whole(text, lambda parser: parser.expression_of("an expression"))


def parse_window(text: str) -> statements.WindowClause:
    """Return the window that `text` is, as it would stand in brackets."""
    return _whole(text, lambda parser: parser.bracket_body(statements.Place()))


def parse_order(text: str) -> tuple[statements.OrderItem, ...]:
    """Return the keys that `text` is, as they would follow ORDER BY."""
    return _whole(text, lambda parser: parser.listed(parser.order_item))


def parse_pattern(text: str) -> tuple[tuple[str, ...], Pattern]:
    """Return the variables and the row pattern that `text` is, as it would stand in PATTERN ( ), with the bracket behind it."""
    return _whole(text, lambda parser: MatchParser(parser).pattern_alone())


def parse_measure(text: str) -> tuple[exp.Expr, bool]:
    """Return the measure that `text` is, and whether it is FINAL."""
    found = _whole(text, lambda parser: MatchParser(parser).measure())
    return found.expression, bool(found.final)


def parse_skip(text: str) -> tuple[MatchSkip, statements.Name | None]:
    """Return what `text` says behind AFTER MATCH SKIP."""
    return _whole(text, lambda parser: MatchParser(parser).skip())


def parse_emit(text: str) -> EmitSpec:
    """Return the emission that `text` is, as it would follow EMIT."""
    return _whole(text, lambda parser: parser.emit_words())


def parse_duration_text(text: str) -> int:
    """Return the microseconds of the duration that `text` is; it may be negative."""
    return _whole(text, lambda parser: parser.duration("the duration", least=None))


def tokenize(text: str, length_max: int = STATEMENT_LENGTH_MAX) -> list[Token]:
    """Return the tokens, each with the 1-based line and column of its first character."""
    check_text(text, length_max)
    try:
        tokens = _DIALECT.tokenize(" " + text[1:] if text.startswith("\ufeff") else text)  # a byte order mark is no word
    except TokenError as problem:
        raise _token_problem(text, problem) from None
    _set_places(tokens, text)
    return tokens


def _set_places(tokens: list[Token], text: str) -> None:
    """sqlglot counts columns at a token's end; people look at its start."""
    if "\n" not in text:
        for token in tokens:
            token.line, token.col = 1, token.start + 1
        return
    line, line_start, position = 1, 0, 0
    for token in tokens:
        newlines = text.count("\n", position, token.start)
        if newlines:
            line += newlines
            line_start = text.rfind("\n", position, token.start) + 1
        position = token.start
        token.line, token.col = line, token.start - line_start + 1


def _token_problem(text: str, problem: TokenError) -> SyntaxProblem:
    reason = str(problem.__cause__ or problem)
    start = 0
    for symbol, what in (("'", "string"), ('"', "quoted name")):
        if f"Missing {symbol}" in reason:
            start = int(reason.rsplit(":", 1)[1])
            message = f"the {what} that begins here is not closed"
            line = text.count("\n", 0, start) + 1
            return SyntaxProblem(message, hint=f"end it with {symbol}", line=line, column=start - text.rfind("\n", 0, start), token=symbol)
    if "Numeric string" in reason:
        return SyntaxProblem("the digits of a text x'…' are not hexadecimal", hint="write two of 0-9 and a-f a byte, as in x'0aff'")
    return SyntaxProblem("the text cannot be split into words", hint="look for an unclosed comment or quote")


def _chunks(tokens: list[Token]) -> Iterator[list[Token]]:
    chunk: list[Token] = []
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            if chunk:
                yield chunk
            chunk = []
        else:
            chunk.append(token)
    if chunk:
        yield chunk


def _span(chunk: list[Token], text: str) -> statements.Span:
    start, stop = chunk[0].start, chunk[-1].end + 1
    return statements.Span(text[start:stop], start, stop, statements.Place(chunk[0].line, chunk[0].col))


def _parser(chunk: list[Token], text: str) -> StatementParser:
    parser = StatementParser(dialect=_DIALECT)
    parser.begin(chunk, text)
    return parser


def _parse(chunk: list[Token], text: str) -> statements.Statement:
    check_tokens(chunk)
    try:
        parser = _parser(chunk, text)
        return _guarded(parser, parser.statement)
    except (SyntaxProblem, Unsupported, InvalidDefinition) as problem:
        from millstream.engine.language.refusals import explained  # only what is refused needs it

        raise explained(problem, chunk, text) from None


def _whole(text: str, read: Callable[[StatementParser], Result]) -> Result:
    """Apply `read` to a parser over `text`; all tokens must be used."""
    tokens = tokenize(text)
    if not tokens:
        raise SyntaxProblem("the text is empty", line=1, column=1)
    spend(TOKEN_STEPS * len(tokens))
    check_tokens(tokens)

    parser = _parser(tokens, text)

    def run() -> Result:
        result = read(parser)
        if not parser.at_end():
            parser.unexpected([])
        return result

    return _guarded(parser, run)


def _guarded(parser: StatementParser, run: Callable[[], Result]) -> Result:
    """Turn sqlglot's own complaints into ours."""
    try:
        return run()
    except ParseError as problem:
        first = problem.errors[0] if problem.errors else {}
        message = str(first.get("description") or problem).rstrip(".")
        token = first.get("highlight") or None
        side = "after" if parser.at_end() else "before"
        message = f"an expression is missing {side} '{token}'" if "<class" in message else message[:1].lower() + message[1:]
        raise SyntaxProblem(message, line=first.get("line"), column=first.get("col"), token=token) from None
    except RecursionError:
        raise SyntaxProblem("the statement is nested too deeply", hint="split it with derived streams") from None  # NESTING_MAX comes first
