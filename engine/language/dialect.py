"""The dialect: sqlglot's tokenizer and expression parser, cut down and extended to our language.

Only tokens that the expression grammar needs are keywords here; every other word (EMIT, WITHIN, SLIDE …) is an ordinary word that the
statement parsers look for by its text, so that it stays usable as a column name where no clause can stand. All functions are parsed
to `exp.Anonymous`, so that the binder meets one kind of node and one list of names: that of `engine/expressions/functions.py`.

The parsers of statements reach sqlglot through `ExpressionParser` alone, by its public members.

Durations are whole microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Protocol

from millstream.engine.data.durations import SINGULAR_US, parse_duration
from millstream.engine.data.errors import SyntaxProblem, Unsupported
from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.tokenizer_core import Token, TokenType

UNITS_US: dict[str, int] = {**SINGULAR_US, **{f"{unit}S": us for unit, us in SINGULAR_US.items()}}
_CALENDAR_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
MONTHS: dict[str, int] = {**_CALENDAR_MONTHS, **{f"{unit}S": months for unit, months in _CALENDAR_MONTHS.items()}}
_CALENDAR_PART = re.compile(r"([+-]?[0-9]+)\s*((?:month|quarter|year)s?)\b", re.IGNORECASE)
_YEARS_AND_MONTHS = re.compile(r"\s*([+-]?)([0-9]{1,6})-([0-9]{1,2})\s*")
_DURATION_MAX_US = 2**62


# What a subquery in an expression is parsed to: a call of a function that no text can name, with the query in its `meta`.
SCALAR, EXISTS, QUERY = "(subquery)", "(exists)", "query"


def is_subquery(node: Any) -> bool:
    """Whether an expression is a subquery, or EXISTS of one."""
    return isinstance(node, exp.Anonymous) and node.name in (SCALAR, EXISTS)


def operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the expressions that stand directly below one, in no particular order."""
    found: list[exp.Expr] = []
    for value in node.args.values():
        if isinstance(value, exp.Expr):
            found.append(value)
        elif type(value) is list:
            found += [one for one in value if isinstance(one, exp.Expr)]
    return found


def walked(node: exp.Expr) -> list[exp.Expr]:
    """Return an expression and all below it, in no particular order. Each of a query is looked through for this and that; the parser's
    own way to do so takes three times as long.
    """
    found = [node]
    for one in found:
        found += operands(one)
    return found


class Located(Protocol):
    """Anything with a place in the text, such as a token."""

    line: int
    col: int
    text: str


def _refuse(message: str, where: Located | None, hint: str | None = None) -> SyntaxProblem:
    if where is None:
        return SyntaxProblem(message, hint=hint)
    return SyntaxProblem(message, hint=hint, line=where.line, column=where.col, token=where.text)


def scale_us(number: str, unit_us: int, where: Located | None = None) -> int:
    """Return `number` times the unit in microseconds; SyntaxProblem when that is no number or not a whole microsecond."""
    try:
        value = Decimal(number.strip()) * unit_us
    except InvalidOperation:
        raise _refuse(f"'{number}' is not a number of units", where, "write for example INTERVAL '10' SECOND") from None
    if not value.is_finite() or value != value.to_integral_value():
        raise _refuse(f"a duration must be a whole number of microseconds, not {number} of them times {unit_us}", where)
    if abs(value) > _DURATION_MAX_US:
        raise _refuse(f"the duration {number} is too long", where)
    return int(value)


def interval_text_us(text: str, where: Located | None = None) -> int:
    """Return the microseconds of '10 seconds', '1 hour 30 minutes' or '50ms'; SyntaxProblem for anything else."""
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise _refuse(str(problem), where) from None


def months_of(text: str) -> tuple[int, str] | None:
    """Return the months of '1 month' or '2 years 3 months 4 days', and the text behind them; None when the text names no months."""
    parts = _CALENDAR_PART.findall(text)
    if not parts:
        return None
    return sum(int(number) * MONTHS[unit.upper()] for number, unit in parts), _CALENDAR_PART.sub("", text).strip(" ,")


_SYMBOLS = ("==", "::", "||", ">=", "<=", "<>", "!=", "=>")

# What leads into a JSON value; each is the name of a function of the registry.
_JSON_STEPS = {"->": TokenType.ARROW, "->>": TokenType.DARROW, "#>": TokenType.HASH_ARROW, "#>>": TokenType.DHASH_ARROW}

# PostgreSQL's matching operators: the token that stands for each, whether it negates, whether it ignores case.
_MATCHES: dict[str, tuple[TokenType, bool, bool]] = {
    "~": (TokenType.RLIKE, False, False),
    "~*": (TokenType.IRLIKE, False, True),
    "!~": (TokenType.ADJACENT, True, False),
    "!~*": (TokenType.GLOB, True, True),
}

_WORDS: dict[str, TokenType] = {
    "ALL": TokenType.ALL,
    "AND": TokenType.AND,
    "AS": TokenType.ALIAS,
    "ASC": TokenType.ASC,
    "BETWEEN": TokenType.BETWEEN,
    "CASE": TokenType.CASE,
    "DESC": TokenType.DESC,
    "DISTINCT": TokenType.DISTINCT,
    "ELSE": TokenType.ELSE,
    "END": TokenType.END,
    "ESCAPE": TokenType.ESCAPE,
    "FALSE": TokenType.FALSE,
    "FILTER": TokenType.FILTER,
    "FOR": TokenType.FOR,
    "FROM": TokenType.FROM,
    "HAVING": TokenType.HAVING,
    "ILIKE": TokenType.ILIKE,
    "IN": TokenType.IN,
    "INTERVAL": TokenType.INTERVAL,
    "IS": TokenType.IS,
    "ISNULL": TokenType.ISNULL,
    "NOTNULL": TokenType.NOTNULL,
    "LIKE": TokenType.LIKE,
    "LIMIT": TokenType.LIMIT,
    "NOT": TokenType.NOT,
    "NULL": TokenType.NULL,
    "ON": TokenType.ON,
    "OR": TokenType.OR,
    "ORDER BY": TokenType.ORDER_BY,
    "OVER": TokenType.OVER,
    "PARTITION BY": TokenType.PARTITION_BY,
    "SELECT": TokenType.SELECT,
    "THEN": TokenType.THEN,
    "TRUE": TokenType.TRUE,
    "UNION": TokenType.UNION,
    "WHEN": TokenType.WHEN,
    "WHERE": TokenType.WHERE,
    "WITH": TokenType.WITH,
    "BOOLEAN": TokenType.BOOLEAN,
    "BOOL": TokenType.BOOLEAN,
    "INT": TokenType.INT,
    "INTEGER": TokenType.INT,
    "BIGINT": TokenType.BIGINT,
    "DOUBLE": TokenType.DOUBLE,
    "DOUBLE PRECISION": TokenType.DOUBLE,
    "FLOAT": TokenType.DOUBLE,
    "REAL": TokenType.DOUBLE,
    "DECIMAL": TokenType.DECIMAL,
    "NUMERIC": TokenType.DECIMAL,
    "TEXT": TokenType.TEXT,
    "VARCHAR": TokenType.TEXT,
    "STRING": TokenType.TEXT,
    "CHAR": TokenType.TEXT,
    "CHARACTER": TokenType.TEXT,
    "CHARACTER VARYING": TokenType.TEXT,
    "TIMESTAMP": TokenType.TIMESTAMP,
    "TIMESTAMPTZ": TokenType.TIMESTAMP,
    "DATE": TokenType.DATE,
    "TIME": TokenType.TIME,
}

# Words that begin a clause or join two expressions: never an alias without AS, never an unquoted column.
RESERVED = frozenset(
    (
        *(
            "ALL",
            "AND",
            "AS",
            "ASC",
            "BETWEEN",
            "CASE",
            "DESC",
            "DISTINCT",
            "ELSE",
            "END",
            "ESCAPE",
            "FALSE",
            "FOR",
            "FROM",
            "HAVING",
            "IN",
        ),
        *("IS", "LIKE", "LIMIT", "NOT", "NULL", "ON", "OR", "SELECT", "THEN", "TRUE", "UNION", "WHEN", "WHERE", "WITH", "CREATE"),
        *("DROP", "INSERT", "GROUP", "ORDER", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "USING"),
    )
)
# Words that may name a column, but that begin a clause where an alias could stand: an alias of these needs AS.
JOIN_WORDS = frozenset(
    (
        *("SEMI", "ANTI", "LATERAL", "ANY", "GLOBAL", "POSITIONAL", "TEMPORAL", "UNIDIRECTIONAL", "OUTER"),
        *("HASH", "LOOP", "MERGE", "LOOKUP", "BROADCAST"),
    )
)
"""Words that stand before JOIN in other systems; without AS they are no alias there."""

CLAUSE_WORDS = frozenset(
    (
        *("EMIT", "WITHIN", "ASOF", "OUTER", "EVERY", "INTO", "VALUES", "EXCEPT", "INTERSECT", "OFFSET", "FETCH", "QUALIFY", "WINDOW"),
        *("OVER", "FILTER", "MATCH_RECOGNIZE"),
    )
)


def _duration(us: int, token: Token) -> exp.Interval:
    node = exp.Interval(this=exp.Literal.string(str(us)), unit=exp.var("MICROSECOND"))
    node.meta.update(line=token.line, col=token.col, start=token.start, end=token.end)
    return node


def _months(count: int, token: Token, rest_us: int = 0) -> exp.Interval:
    """Return months, and what is added once they are: how long a month is says the instant that they are added to."""
    node = exp.Interval(this=exp.Literal.string(str(count)), unit=exp.var("MONTH"))
    node.meta["rest_us"] = rest_us
    node.meta.update(line=token.line, col=token.col, start=token.start, end=token.end)
    return node


def _matching(negated: bool, ignores_case: bool) -> Callable[[Any, exp.Expr], exp.Expr]:
    """Return the reader of the right side of `~` and its kin, which are REGEXP_LIKE."""

    def read(self: Any, this: exp.Expr | None) -> exp.Expr:
        if this is None:
            hint = "write x # -1 to turn the bits of x round"
            raise self.problem(f"the text before {self._prev.text} is missing", self._prev, hint)
        arguments = [this, self._parse_bitwise()]
        if arguments[1] is None:
            raise self.problem("a pattern is missing after the operator")
        if ignores_case:
            arguments.append(exp.Literal.string("i"))
        call = exp.Anonymous(this="regexp_like", expressions=arguments)
        return exp.Not(this=call) if negated else call

    return read


class MillstreamTokenizer(tokens.Tokenizer):
    """Tokens of the language. Words are keywords in any case; `"…"` quotes identifiers, `'…'` strings."""

    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        **{symbol: tokens.Tokenizer.KEYWORDS[symbol] for symbol in _SYMBOLS},
        **{symbol: token for symbol, (token, _, _) in _MATCHES.items()},
        **_JSON_STEPS,
        **_WORDS,
    }
    HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]
    COMMANDS: ClassVar[set[TokenType]] = set()
    COMMAND_PREFIX_TOKENS: ClassVar[set[TokenType]] = set()
    NESTED_COMMENTS = True


class ExpressionParser(parser.Parser):
    """sqlglot's expression grammar with our functions, durations and refusals. The statement parsers build on it."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    WINDOW_ALIAS_TOKENS: ClassVar[Any] = frozenset((TokenType.ROWS,))  # which no text has: in OVER ( ) nothing is the name of a window
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": lambda self: self._parse_case()}
    SUBQUERY_PREDICATES: ClassVar[dict[Any, Any]] = {}
    PLACEHOLDER_PARSERS: ClassVar[dict[Any, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CAST": lambda self: self._parse_cast(True),
        "TRY_CAST": lambda self: self._parse_cast(False, safe=True),
        "EXISTS": lambda self: self._exists_of(),
        "EXTRACT": lambda self: self._parse_extract(),
        "POSITION": lambda self: self._parse_position(),
        "SUBSTRING": lambda self: self._parse_substring(),
        "TRIM": lambda self: self._parse_trim(),
    }
    RANGE_PARSERS: ClassVar[dict[Any, Any]] = {
        **{
            kind: parser.Parser.RANGE_PARSERS[kind]
            for kind in (TokenType.BETWEEN, TokenType.ILIKE, TokenType.IN, TokenType.IS, TokenType.LIKE)
        },
        **{token: _matching(negated, quiet) for token, negated, quiet in _MATCHES.values()},
    }
    COLUMN_OPERATORS: ClassVar[dict[Any, Any]] = {kind: parser.Parser.COLUMN_OPERATORS[kind] for kind in (TokenType.DOT, TokenType.DCOLON)}
    COLUMN_POSTFIX_TOKENS: ClassVar[frozenset[TokenType]] = parser.Parser.COLUMN_POSTFIX_TOKENS | frozenset(_JSON_STEPS.values())
    LAMBDAS: ClassVar[dict[Any, Any]] = {}
    EXPONENT: ClassVar[dict[Any, Any]] = {TokenType.CARET: exp.Pow}
    BITWISE: ClassVar[dict[Any, Any]] = {
        TokenType.AMP: exp.BitwiseAnd,
        TokenType.PIPE: exp.BitwiseOr,
        TokenType.HASH: exp.BitwiseXor,
    }
    IS_PREDICATE_PRECEDENCE: ClassVar[parser.IsPredicatePrecedence] = parser.IsPredicatePrecedence.LOW  # as in PostgreSQL
    PRIMARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **parser.Parser.PRIMARY_PARSERS,
        TokenType.NUMBER: lambda self, token: self._number_or_duration(token),
        TokenType.HEX_STRING: lambda self, token: self._bytes(token),
    }

    def _bytes(self, token: Token) -> exp.Expr:
        """Read `x'0aff'`; `0x0aff` makes the same token, but looks like a number."""
        text = self.sql[token.start : token.end + 1]
        if text[:1].isdigit():
            raise _refuse(f"'{text}' is not a number", token, "write its decimal digits, or bytes as in x'0aff'")
        return self.expression(exp.HexString(this=token.text), token)

    def _number_or_duration(self, token: Token) -> exp.Expr:
        """Read a number, or a duration such as `10 SECONDS` when a unit follows."""
        word = self._curr.text.upper() if self._curr and self._curr.token_type == TokenType.VAR else ""
        if word in UNITS_US:
            self._advance()
            return _duration(scale_us(token.text, UNITS_US[word], token), token)
        if word in MONTHS and token.text.isdigit():
            self._advance()
            return _months(int(token.text) * MONTHS[word], token)
        return self.expression(exp.Literal(this=token.text, is_string=False), token)

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> exp.Expr | None:  # type: ignore[override]
        """Read INTERVAL '10' SECOND, INTERVAL '10 seconds' or INTERVAL 10 SECOND; leave a column called interval alone."""
        token = self._curr
        if not (self._curr.token_type == TokenType.INTERVAL and self._next.token_type in (TokenType.STRING, TokenType.NUMBER)):
            return None
        self._advance(2)
        text = self._prev.text
        unit = UNITS_US.get(self._curr.text.upper()) if self._curr else None
        if unit is not None:
            self._advance()
            return _duration(scale_us(text, unit, token), token)
        months = MONTHS.get(self._curr.text.upper()) if self._curr else None
        if months is not None and re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
            self._advance()
            return _months(int(text) * months, token)
        if months == 12 and _YEARS_AND_MONTHS.fullmatch(text) and self._match_text_seq("YEAR", "TO", "MONTH"):
            sign, years, more = _YEARS_AND_MONTHS.fullmatch(text).groups()  # type: ignore[union-attr]
            count = int(years) * 12 + int(more)
            return _months(-count if sign == "-" else count, token)
        calendar = months_of(text)
        if calendar is None:
            return _duration(interval_text_us(text, token), token)
        count, rest = calendar
        return _months(count, token, interval_text_us(rest, token) if rest else 0)

    def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """Read a subquery where an expression stands."""
        if self._curr.token_type in (TokenType.SELECT, TokenType.WITH):
            return self.subquery(SCALAR)
        return None

    def subquery(self, word: str) -> exp.Expr:
        """Refuse it; the parser of SELECT reads it."""
        raise Unsupported(
            "a subquery cannot stand here",
            hint="it can stand in WHERE, HAVING and the select list of a SELECT",
            line=self._curr.line,
            column=self._curr.col,
            token=self._curr.text,
        )

    def _exists_of(self) -> exp.Expr:
        if self._curr.token_type not in (TokenType.SELECT, TokenType.WITH):
            raise self.problem("EXISTS takes a subquery", hint="write EXISTS (SELECT …)")
        return self.subquery(EXISTS)

    def _parse_column_ops(self, this: exp.Expr | None) -> exp.Expr | None:
        """Read what follows a value: `.part`, `[n]`, `::type`, and the steps into JSON from left to right."""
        this = super()._parse_column_ops(this)
        while self._curr and self._curr.token_type in _JSON_STEPS.values():
            operator = self._curr
            self._advance()
            minus = self._match(TokenType.DASH)
            key = self._parse_primary() if self._curr.token_type in (TokenType.STRING, TokenType.NUMBER) else None
            if key is None:
                hint = "a step into JSON is a constant: j -> 'name' or j -> 0; a part of a STRUCT is s.name"
                raise self.problem(f"a name in quotes or a number was expected after {operator.text}", self._curr or operator, hint)
            step = exp.Neg(this=key) if minus else key
            call = self.expression(exp.Anonymous(this=operator.text, expressions=[this, step]), operator)
            this = super()._parse_column_ops(call)
        return this

    def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """Read a type; the target of a CAST may be nested."""
        return self.cast_type() if kwargs.get("with_collation") else super()._parse_types(*args, **kwargs)

    def _parse_dcolon(self) -> exp.Expr | None:
        return self._parse_types(with_collation=True)

    def cast_type(self) -> exp.Expr | None:
        """Read the target of a CAST."""
        return super()._parse_types(with_collation=True)

    def _braces(self, this: exp.Expr | None) -> exp.Expr:
        """Read `{'a': 1, b: x}`, a STRUCT, or behind MAP a MAP."""
        is_map = isinstance(this, exp.Column) and this.name.upper() == "MAP" and this.args.get("table") is None
        if this is not None and not is_map:
            raise self.problem("{ … } stands behind a value", hint="a STRUCT is {'a': 1} by itself, a MAP is MAP {'k': 1}")
        begin = self._curr
        self._advance()
        parts: list[exp.Expr] = []
        while not self._match(TokenType.R_BRACE):
            if parts and not self._match(TokenType.COMMA):
                raise self.problem("expected ',' or '}'")
            key = self._parse_primary() if is_map or self._curr.token_type == TokenType.STRING else self._parse_id_var()
            if key is None or not self._match(TokenType.COLON):
                raise self.problem("expected a name and a colon", hint="write {'a': 1, 'b': 2}")
            value = self._parse_assignment()
            if value is None:
                raise self.problem("a value is missing behind the colon")
            if is_map:
                parts += [key, value]
            else:
                name = exp.to_identifier(key.name, quoted=isinstance(key, exp.Literal) or bool(key.args.get("quoted")))
                parts.append(exp.Alias(this=value, alias=name))
        return self.expression(exp.Anonymous(this="map" if is_map else "struct", expressions=parts), begin)

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        """Refuse a window where an expression stands, such as one behind WHERE."""
        if self._curr.token_type == TokenType.L_BRACE:
            return self._parse_bracket(self._braces(this))
        word = self._next.text.upper() if self._curr.token_type == TokenType.L_BRACKET and self._next else ""
        if word in ("RANGE", "ROWS", "SESSION", "CUMULATE") and self.token_at(2).token_type in (TokenType.NUMBER, TokenType.INTERVAL):
            raise Unsupported(
                f"a window ([{word} …]) in an expression is not supported",
                hint=f"write it after the stream's name, before WHERE: FROM s [{word} …] WHERE …",
                line=self._curr.line,
                column=self._curr.col,
                token="[",
            )
        return super()._parse_bracket(this)

    def _parse_partition_and_order(self) -> tuple[list[exp.Expr], exp.Expr | None]:
        """Read what may stand in OVER ( ), a frame included."""
        found = super()._parse_partition_and_order()
        word = self._curr.text.upper() if self._curr else ""
        if word == "GROUPS":
            raise self.problem("a frame of GROUPS is not supported", self._curr, "count rows with ROWS, or time with RANGE")
        self._frame = self._parse_frame(word) if word in ("ROWS", "RANGE") else None
        return found

    _frame: exp.WindowSpec | None = None

    def _parse_frame(self, kind: str) -> exp.WindowSpec:
        """Read `ROWS BETWEEN 3 PRECEDING AND CURRENT ROW` and its kin."""
        begin = self._curr
        self._advance()
        both = self._match(TokenType.BETWEEN)
        start, start_side = self._parse_frame_end()
        end, end_side = "CURRENT ROW", ""
        if both:
            if not self._match(TokenType.AND):
                raise self.problem("expected AND and the end of the frame", hint="write ROWS BETWEEN 3 PRECEDING AND CURRENT ROW")
            end, end_side = self._parse_frame_end()
        if self._curr and self._curr.text.upper() == "EXCLUDE":
            raise self.problem("EXCLUDE in a frame is not supported", self._curr, "end the frame before the row, as in AND 1 PRECEDING")
        spec = exp.WindowSpec(kind=kind, start=start, start_side=start_side, end=end, end_side=end_side)
        return self.expression(spec, begin)

    def _parse_frame_end(self) -> tuple[Any, str]:
        if self._match_text_seq("CURRENT", "ROW"):
            return "CURRENT ROW", ""
        found: Any = "UNBOUNDED" if self._match_text_seq("UNBOUNDED") else self._parse_bitwise()
        side = self._curr.text.upper() if self._curr else ""
        if found is None or side not in ("PRECEDING", "FOLLOWING"):
            hint = "write UNBOUNDED PRECEDING, 3 PRECEDING, CURRENT ROW or 3 FOLLOWING; in RANGE, INTERVAL '5 minutes' PRECEDING"
            raise self.problem("expected an end of the frame", self._curr, hint)
        self._advance()
        return found, side

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        """Read what stands behind a function, with the frame of its OVER."""
        self._frame = None
        found = super()._parse_window(this, alias)
        if isinstance(found, exp.Window) and found.args.get("alias") is not None:
            raise self.problem("a window with a name (OVER w) is not supported", self._prev, "write what it is: OVER (PARTITION BY …)")
        if isinstance(found, exp.Window) and self._frame is not None:
            found.set("spec", self._frame)
        self._frame = None
        return found

    def _parse_unnest(self, with_alias: bool = True) -> exp.Unnest | None:
        return None

    def _parse_having_max(self, this: exp.Expr | None) -> exp.Expr | None:
        return this

    def _parse_limit(self, this: exp.Expr | None = None, *args: Any, **kwargs: Any) -> exp.Expr | None:
        return this

    # -- what the statement parsers use of sqlglot: only this file names its private members ----------------------------------

    # Other names for its slots and methods, which cost no call. A token that is not there is false and has a kind of its own.
    current: Token = vars(parser.Parser)["_curr"]
    following: Token = vars(parser.Parser)["_next"]
    previous: Token = vars(parser.Parser)["_prev"]
    position: int = vars(parser.Parser)["_index"]
    advance = parser.Parser._advance  # by one token, or by as many as are named
    retreat = parser.Parser._retreat  # to a position
    takes_symbol = parser.Parser._match  # takes the next token if it is of this kind; says whether it was
    is_connected = parser.Parser._is_connected  # no space stands between the last token and the next
    optional_expression = parser.Parser._parse_assignment  # None when none begins here

    def begin(self, tokens: list[Token], text: str) -> None:
        """Stand before the first of the tokens, which are those of one statement of the text."""
        self.reset()
        self.sql = text
        self._chunks = [tokens]  # the way sqlglot's own entry hands tokens over
        self._advance_chunk()

    def token_at(self, offset: int) -> Token:
        """Return the token so many places after the current one; past the end it is false and of the kind SENTINEL."""
        index = self._index + offset
        return self._tokens[index] if index < self._tokens_size else parser.SENTINEL_NONE

    def problem(self, message: str, token: Token | None = None, hint: str | None = None) -> SyntaxProblem:
        """Return the error about the token at hand (or the given one), to be raised."""
        token = token or self._curr or self._prev
        return SyntaxProblem(message, hint=hint, line=token.line, column=token.col, token=token.text)


class Millstream(Dialect):
    """Our dialect, known to sqlglot as `millstream`."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.LOWERCASE
    NULL_ORDERING = "nulls_are_large"  # last ascending, first descending (K13)
    TYPED_DIVISION = True
    NUMBERS_CAN_BE_UNDERSCORE_SEPARATED = True
    Tokenizer = MillstreamTokenizer
    Parser = ExpressionParser
