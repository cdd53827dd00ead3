"""Reading tokens one after another: words, names, numbers, durations, and errors that say what was expected where."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from millstream.engine.data.durations import duration_text
from millstream.engine.data.errors import InvalidDefinition, SyntaxProblem
from millstream.engine.data.nearest import did_you_mean, suggest
from millstream.engine.language.dialect import CLAUSE_WORDS, JOIN_WORDS, RESERVED, UNITS_US, ExpressionParser, interval_text_us, scale_us
from millstream.engine.language.limits import check_depth
from millstream.engine.language.names import validate_name
from millstream.engine.language.statements import Name, Option, Place
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

Item = TypeVar("Item")
COUNT_MAX = 1 << 62  # of rows: places in a stream are counted in 64 bits
_NOT_WORDS = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER)
_CLAUSES = ("WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "EMIT", "WITH", "JOIN", "UNION ALL", "WITHIN", "ON", "FROM")
_AFTER_JOIN_WORDS = ("JOIN", "LEFT", "RIGHT", "FULL", "INNER", "OUTER", "(")


class TokenCursor(ExpressionParser):
    """The hand that the clause parsers share. `implicit_alias` is the last alias taken without AS, for better messages."""

    implicit_alias: Token | None = None

    # -- looking and taking ---------------------------------------------------------------------------------------------------

    def at_end(self) -> bool:
        """No token is left."""
        return not self.current

    def place(self) -> Place:
        """Return the place of the token at hand, or of the last one at the end."""
        token = self.current or self.previous
        return Place(token.line, token.col) if token else Place()

    def sees(self, *words: str) -> bool:
        """The next words are these (any case, unquoted)."""
        for offset, word in enumerate(words):
            token = self.token_at(offset) if offset else self.current
            if token.token_type in _NOT_WORDS or token.text.upper() != word:
                return False
        return True

    def takes(self, *words: str) -> bool:
        """Take the words if they come next; say whether they did."""
        if not self.sees(*words):
            return False
        self.advance(len(words))
        return True

    def takes_phrase(self, first: str, second: str) -> bool:
        """Take two words that the tokenizer may have joined into one token, such as ORDER BY."""
        text = " ".join(self.current.text.upper().split()) if self.current else ""
        if text == f"{first} {second}" and self.current.token_type not in _NOT_WORDS:
            self.advance()
            return True
        return self.takes(first, second)

    def sees_symbol(self, kind: TokenType) -> bool:
        """The next token is of this kind."""
        return bool(self.current) and self.current.token_type == kind

    def expect(self, *words: str, where: str = "") -> None:
        """Take the words or raise SyntaxProblem that names them."""
        for word in words:
            if not self.takes(word):
                self.unexpected([" ".join(words)], where)

    def expect_symbol(self, kind: TokenType, symbol: str, where: str = "") -> None:
        """Take the symbol or raise SyntaxProblem that names it."""
        if not self.takes_symbol(kind):
            self.unexpected([f"'{symbol}'"], where)

    def choice(self, words: Sequence[str], where: str) -> str:
        """Take one of the words and return it in upper case."""
        found = next((word for word in words if self.takes(*word.split())), None)
        if found is None:
            self.unexpected(words, where)
        return found

    def unexpected(self, expected: Sequence[str], where: str = "") -> NoReturn:
        """Raise SyntaxProblem: what was expected, what came instead, and the nearest word that was meant."""
        raise self.unexpected_error(expected, where)

    def unexpected_error(self, expected: Sequence[str], where: str = "") -> SyntaxProblem:
        """Return that error."""
        wanted = ", ".join(expected[:-1]) + (" or " if len(expected) > 1 else "") + expected[-1] if expected else "the end of the statement"
        tail = f" {where}" if where else ""
        if self.at_end():
            return self.problem(f"the statement ends where {wanted} was expected{tail}")
        self._blame_alias()
        token = self.current
        hint = did_you_mean(token.text, [word.strip("'") for word in expected] or _CLAUSES)
        return self.problem(f"expected {wanted}{tail}, not '{token.text}'", hint=hint)

    def _blame_alias(self) -> None:
        """When the last word was read as an alias but looks like a clause word, say that instead."""
        token = self.implicit_alias
        if token is None or token is not self.previous:
            return
        near = suggest(token.text, _CLAUSES)
        if near is not None:
            raise self.problem(f"'{token.text}' stands where a clause or an alias was expected", token, f"did you mean {near}?")

    # -- names, numbers, durations --------------------------------------------------------------------------------------------

    def name(self, what: str, *, check: bool = False) -> Name:
        """Take an identifier: quoted as it stands, else folded to lower case. `check` applies the rule for new names."""
        token = self.current
        if not token or not self._is_name(token):
            reserved = token and token.token_type not in _NOT_WORDS and token.text.upper() in RESERVED
            if reserved:
                article = "an" if what[:1] in "aeiou" else "a"
                message = f"'{token.text}' is a reserved word where {article} {what} was expected"
                raise self.problem(message, hint=f'write "{token.text.lower()}"')
            self.unexpected([f"a {what}"])
        self.advance()
        text = token.text if token.token_type == TokenType.IDENTIFIER else token.text.lower()
        if check:
            self._validate(text, what, token)
        return Name(text, Place(token.line, token.col))

    def _validate(self, text: str, what: str, token: Token) -> None:
        try:
            validate_name(text, what)
        except InvalidDefinition as problem:
            problem.line, problem.column, problem.token = token.line, token.col, token.text
            raise

    def sees_word(self) -> bool:
        """Return whether a bare word comes, reserved or not."""
        token = self.current
        return bool(token) and token.token_type not in _NOT_WORDS and token.text.isidentifier()

    @staticmethod
    def _is_name(token: Token) -> bool:
        if token.token_type == TokenType.IDENTIFIER:
            return True
        word = token.text
        if token.token_type in (TokenType.ORDER_BY, TokenType.PARTITION_BY):
            return False
        return token.token_type not in _NOT_WORDS and (word[:1].isalpha() or word[:1] in "_$") and word.upper() not in RESERVED

    def alias(self, *, clause_words: frozenset[str] = CLAUSE_WORDS) -> Name | None:
        """Take `AS name`, or a bare name that does not begin a clause."""
        if self.takes_symbol(TokenType.ALIAS):
            return self.name("alias")
        token = self.current
        if not token or not self._is_name(token):
            return None
        if token.token_type != TokenType.IDENTIFIER:
            if token.text.upper() in JOIN_WORDS and self.following and self.following.text.upper() in _AFTER_JOIN_WORDS:
                hint = f"write JOIN, LEFT JOIN, RIGHT JOIN, FULL JOIN, CROSS JOIN or ASOF JOIN; for an alias AS {token.text.lower()}"
                raise self.problem(f"'{token.text}' is no kind of join here", token, hint)
            if token.text.upper() in clause_words:
                return None
        if self.previous and self.previous.token_type == TokenType.NUMBER and self.is_connected():
            raise self.problem(f"'{self.previous.text}{token.text}' is not a number", self.previous)
        self.implicit_alias = token
        return self.name("alias")

    def string(self, what: str) -> str:
        """Take a string literal."""
        if not self.takes_symbol(TokenType.STRING):
            self.unexpected([f"{what} in single quotes"])
        return self.previous.text

    def integer(self, what: str, *, least: int = 1) -> int:
        """Take a whole number that is at least `least` and, as what it counts must be counted with, at most COUNT_MAX."""
        token = self.current
        negative = self.takes_symbol(TokenType.DASH)
        if not self.takes_symbol(TokenType.NUMBER) or not self.previous.text.isdigit():
            self.retreat(self.position - int(negative))
            self.unexpected([f"a whole number for {what}"])
        value = -int(self.previous.text) if negative else int(self.previous.text)
        if value < least:
            raise self.problem(f"{what} must be at least {least}, not {value}", token)
        if value > COUNT_MAX:
            raise self.problem(f"{what} must be at most {COUNT_MAX}, not {value}", token)
        return value

    def number(self, what: str) -> float:
        """Take a number within the range of DOUBLE."""
        token = self.current
        negative = self.takes_symbol(TokenType.DASH)
        if not self.takes_symbol(TokenType.NUMBER):
            self.unexpected([f"a number for {what}"])
        value = float(self.previous.text)
        if math.isinf(value):
            raise self.problem(f"{what} is too great: {self.previous.text}", token)
        return -value if negative else value

    def duration(self, what: str, *, least: int | None = 1) -> int:
        """Take a duration in any spelling; microseconds. It must be at least `least` unless that is None (an offset)."""
        token = self.current
        negative = self.takes_symbol(TokenType.DASH)
        value = self._bare_duration()
        if value is None:
            self.retreat(self.position - int(negative))
            self.unexpected([f"a duration for {what}, such as 10 SECONDS"])
        value = -value if negative else value
        if least is not None and value < least:
            bound = "be positive" if least > 0 else "not be negative"
            raise self.problem(f"{what} must {bound}, not {duration_text(value)}", token)
        return value

    def _bare_duration(self) -> int | None:
        token = self.current
        if self.takes_symbol(TokenType.INTERVAL):
            quoted = self._quoted_duration(token)
            return self._number_and_unit(self.current) if quoted is None else quoted
        if self.sees_symbol(TokenType.STRING):
            self.advance()
            return interval_text_us(self.previous.text, token)
        return self._number_and_unit(token)

    def _quoted_duration(self, token: Token) -> int | None:
        if not self.takes_symbol(TokenType.STRING):
            return None
        text = self.previous.text
        unit = UNITS_US.get(self.current.text.upper()) if self.current else None
        if unit is None:
            return interval_text_us(text, token)
        self.advance()
        return scale_us(text, unit, token)

    def _number_and_unit(self, token: Token) -> int | None:
        if not self.takes_symbol(TokenType.NUMBER):
            return None
        unit = UNITS_US.get(self.current.text.upper()) if self.current else None
        if unit is None:
            self.unexpected(["SECONDS", "MILLISECONDS", "MICROSECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS"], "after the number")
        self.advance()
        return scale_us(token.text, unit, token)

    # -- expressions and lists ------------------------------------------------------------------------------------------------

    def expression_of(self, what: str) -> exp.Expr:
        """Take an expression; `what` names it if it is missing."""
        node = self.optional_expression()
        if node is None:
            self.unexpected([what])
        check_depth(node)
        return node

    def listed(self, read: Callable[[], Item]) -> tuple[Item, ...]:
        """Take `read` once and again after each comma."""
        items = [read()]
        while self.takes_symbol(TokenType.COMMA):
            items.append(read())
        return tuple(items)

    def slice_from(self, start: int) -> str:
        """Return the source text from offset `start` to the last token taken."""
        return self.sql[start : self.previous.end + 1]

    # -- WITH (name = value, …) -----------------------------------------------------------------------------------------------

    def options(self, where: str = "after WITH") -> tuple[Option, ...]:
        """Take `(name = value, …)` after WITH, or after what `where` says."""
        self.expect_symbol(TokenType.L_PAREN, "(", where)
        items = () if self.sees_symbol(TokenType.R_PAREN) else self.listed(self._option)
        self.expect_symbol(TokenType.R_PAREN, ")", "after the options")
        seen: set[str] = set()
        for item in items:
            if item.name in seen:
                raise SyntaxProblem(f"option {item.name} is given twice", line=item.place.line, column=item.place.column, token=item.name)
            seen.add(item.name)
        return items

    def _option(self) -> Option:
        place = self.place()
        # Before a sign of equality a reserved word means nothing else.
        if self.sees_symbol(TokenType.STRING) or (self.sees_word() and self.following and self.following.token_type == TokenType.EQ):
            self.advance()
            name = self.previous.text.lower()
        else:
            name = self.dashed_name("option")
        self.expect_symbol(TokenType.EQ, "=", f"after {name}")
        return Option(name, self.option_value(name), place)

    def option_value(self, name: str) -> str | int | float | bool:
        """Take the value of an option."""
        if self.takes_symbol(TokenType.STRING):
            return self.previous.text
        if self.takes_symbol(TokenType.TRUE):
            return True
        if self.takes_symbol(TokenType.FALSE):
            return False
        if self.sees_symbol(TokenType.INTERVAL) or (self.following and self.following.text.upper() in UNITS_US):
            return duration_text(self.duration(name, least=None))
        if self.sees_symbol(TokenType.NUMBER) or self.sees_symbol(TokenType.DASH):
            value = self.number(name)
            return int(value) if value == int(value) and "." not in self.previous.text else value
        return self.dashed_name(f"value of {name}")

    def dashed_name(self, what: str) -> str:
        """Take words and numbers joined by dashes without spaces, such as min-latency; lower case."""
        text = self.name(what).text
        while self.sees_symbol(TokenType.DASH) and self.is_connected() and self.following:
            self.advance()
            if not self.is_connected() or self.current.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
                self.unexpected([f"a {what}"])
            text += f"-{self.current.text.lower()}"
            self.advance()
        return text
