"""MATCH_RECOGNIZE ( … ) as written: its clauses, and the pattern, whose variables are numbered in the order in which they come."""

from __future__ import annotations

from itertools import permutations

from millstream.engine.language import statements
from millstream.engine.language.cursor import TokenCursor
from millstream.engine.language.dialect import CLAUSE_WORDS
from millstream.engine.language.recipes import MatchSkip, Pattern
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

PERMUTED_MAX = 5
_CLAUSES = CLAUSE_WORDS | {"PATTERN", "ONE", "AFTER", "SUBSET", "DEFINE"}
_QUANTIFIERS = {TokenType.STAR: (0, None), TokenType.PLUS: (1, None), TokenType.PLACEHOLDER: (0, 1)}
_NO_OPERAND = (TokenType.NUMBER, TokenType.STRING, TokenType.L_PAREN)


class MatchParser:
    """Reads with a cursor that stands on MATCH_RECOGNIZE, or on a part of it."""

    def __init__(self, cursor: TokenCursor) -> None:
        self._cursor = cursor
        self._variables: dict[str, statements.Name] = {}

    def item(self, source: statements.NamedItem | statements.SubqueryItem) -> statements.MatchItem:
        """Read what stands behind the stream, from MATCH_RECOGNIZE to the alias."""
        place = self._cursor.place()
        self._cursor.expect("MATCH_RECOGNIZE")
        self._cursor.expect_symbol(TokenType.L_PAREN, "(", "after MATCH_RECOGNIZE")
        partition = (
            self._cursor.listed(lambda: self._cursor.expression_of("a partition key"))
            if self._cursor.takes_phrase("PARTITION", "BY")
            else ()
        )
        order = self._cursor.listed(self._cursor.order_item) if self._cursor.takes_phrase("ORDER", "BY") else ()
        measures = self._cursor.listed(self.measure) if self._cursor.takes("MEASURES") else ()
        all_rows, shows_empty = self._rows_per_match()
        skip, skip_to = self.skip() if self._cursor.takes("AFTER", "MATCH", "SKIP") else (MatchSkip.PAST_LAST, None)
        pattern = self._pattern()
        within = self._cursor.duration("WITHIN") if self._cursor.takes("WITHIN") else None
        subsets = self._cursor.listed(self._subset) if self._cursor.takes("SUBSET") else ()
        define = self._cursor.listed(self._definition) if self._cursor.takes("DEFINE") else ()
        if self._cursor.sees("WITHIN"):
            raise self._cursor.problem("WITHIN stands behind PATTERN ( … ), before SUBSET and DEFINE")
        self._cursor.expect_symbol(TokenType.R_PAREN, ")", "at the end of MATCH_RECOGNIZE")
        return statements.MatchItem(
            source,
            partition,
            order,
            measures,
            tuple(self._variables.values()),
            pattern,
            define,
            subsets,
            skip,
            skip_to,
            within,
            all_rows,
            shows_empty,
            self._cursor.alias(),
            place,
        )

    def measure(self) -> statements.Measure:
        """Read one of MEASURES."""
        place = self._cursor.place()
        final = None
        if (
            (self._cursor.sees("FINAL") or self._cursor.sees("RUNNING"))
            and self._cursor.is_name(self._cursor.following)
            and not self._is_as(self._cursor.following)
        ):
            final = self._cursor.sees("FINAL")
            self._cursor.advance()
        node = self._cursor.expression_of("a measure")
        return statements.Measure(node, self._cursor.alias(clause_words=_CLAUSES), final, place)

    @staticmethod
    def _is_as(token: Token) -> bool:
        return token.token_type == TokenType.ALIAS

    def _rows_per_match(self) -> tuple[bool, bool]:
        """Return whether every row is a result, and whether a match without rows is."""
        if self._cursor.takes("ONE", "ROW", "PER", "MATCH"):
            return False, True
        if not self._cursor.takes("ALL", "ROWS", "PER", "MATCH"):
            return False, True
        if self._cursor.sees("WITH", "UNMATCHED", "ROWS"):
            hint = "leave it out; to keep every row, join the matches to the stream"
            raise self._cursor.problem("WITH UNMATCHED ROWS is not supported", hint=hint)
        if self._cursor.takes("OMIT", "EMPTY", "MATCHES"):
            return True, False
        self._cursor.takes("SHOW", "EMPTY", "MATCHES")
        return True, True

    def skip(self) -> tuple[MatchSkip, statements.Name | None]:
        """Read what stands behind AFTER MATCH SKIP."""
        if self._cursor.takes("PAST", "LAST", "ROW"):
            return MatchSkip.PAST_LAST, None
        if self._cursor.takes("TO", "NEXT", "ROW"):
            return MatchSkip.TO_NEXT, None
        if not self._cursor.takes("TO"):
            self._cursor.unexpected(["PAST LAST ROW", "TO NEXT ROW", "TO FIRST variable", "TO LAST variable"], "after AFTER MATCH SKIP")
        way = MatchSkip.TO_FIRST if self._cursor.takes("FIRST") else MatchSkip.TO_LAST
        if way is MatchSkip.TO_LAST:
            self._cursor.takes("LAST")
        return way, self._cursor.name("pattern variable")

    def _subset(self) -> tuple[statements.Name, tuple[statements.Name, ...]]:
        name = self._cursor.name("name of a subset")
        self._cursor.expect_symbol(TokenType.EQ, "=", f"after {name.text}")
        self._cursor.expect_symbol(TokenType.L_PAREN, "(", "after =")
        parts = self._cursor.listed(lambda: self._cursor.name("pattern variable"))
        self._cursor.expect_symbol(TokenType.R_PAREN, ")", f"at the end of the subset {name.text}")
        return name, parts

    def _definition(self) -> tuple[statements.Name, exp.Expr]:
        name = self._cursor.name("pattern variable")
        self._cursor.expect("AS", where=f"after {name.text} in DEFINE")
        return name, self._cursor.expression_of(f"the condition of {name.text}")

    # -- the pattern ----------------------------------------------------------------------------------------------------------

    def _pattern(self) -> Pattern:
        self._cursor.expect("PATTERN", where="in MATCH_RECOGNIZE")
        self._cursor.expect_symbol(TokenType.L_PAREN, "(", "after PATTERN")
        return self.pattern_alone()[1]

    def pattern_alone(self) -> tuple[tuple[str, ...], Pattern]:
        """Read a pattern and the bracket behind it; return its variables too."""
        self._variables = {}
        pattern = self._alternatives()
        self._cursor.expect_symbol(TokenType.R_PAREN, ")", "at the end of the pattern")
        return tuple(self._variables), pattern

    def _alternatives(self) -> Pattern:
        parts = [self._sequence()]
        while self._cursor.takes_symbol(TokenType.PIPE):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else ("or", tuple(parts))

    def _sequence(self) -> Pattern:
        parts = [self._repeated()]
        while self._cursor.current and self._cursor.current.token_type not in (TokenType.PIPE, TokenType.R_PAREN, TokenType.COMMA):
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else ("then", tuple(parts))

    def _repeated(self) -> Pattern:
        part = self._primary()
        times = self._quantifier()
        if times is None:
            return part
        reluctant = self._cursor.takes_symbol(TokenType.PLACEHOLDER)
        if self._cursor.current.token_type in _QUANTIFIERS or self._cursor.sees_symbol(TokenType.L_BRACE):
            raise self._cursor.problem("a quantifier stands behind another", hint="put parentheses around the first, as in (A+)*")
        return ("times", part, *times, reluctant)

    def _primary(self) -> Pattern:
        token = self._cursor.current
        if self._cursor.takes_symbol(TokenType.L_PAREN):
            if self._cursor.takes_symbol(TokenType.R_PAREN):
                return ("then", ())
            part = self._alternatives()
            self._cursor.expect_symbol(TokenType.R_PAREN, ")", "in the pattern")
            return part
        if self._cursor.sees_symbol(TokenType.L_BRACE) and self._cursor.following.token_type == TokenType.DASH:
            raise self._cursor.problem("an exclusion {- … -} is not supported", hint="take the rows out above, by CLASSIFIER()")
        if token.token_type == TokenType.CARET or token.text.startswith("$"):
            hint = "a stream's partition has no first and no last row to wait for; PREV(x) IS NULL finds the first"
            raise self._cursor.problem(f"an anchor ({token.text[:1]}) in a pattern is not supported", hint=hint)
        if self._cursor.sees("PERMUTE") and self._cursor.following.token_type == TokenType.L_PAREN:
            return self._permuted()
        if token.token_type in _NO_OPERAND:
            self._cursor.unexpected(["a pattern variable", "'('"], "in the pattern")
        name = self._cursor.name("pattern variable")
        known = self._variables.setdefault(name.text, name)
        return ("row", list(self._variables).index(known.text))

    def _permuted(self) -> Pattern:
        """Read PERMUTE (A, B): the sequences of its parts, in the order of which part comes first."""
        token = self._cursor.current
        self._cursor.advance(2)
        parts = self._cursor.listed(self._sequence)
        self._cursor.expect_symbol(TokenType.R_PAREN, ")", "at the end of PERMUTE")
        if len(parts) > PERMUTED_MAX:
            raise self._cursor.problem(f"PERMUTE of more than {PERMUTED_MAX} parts", token, "write the sequences that you want, with |")
        return ("or", tuple(("then", order) for order in permutations(parts))) if len(parts) > 1 else parts[0]

    def _quantifier(self) -> tuple[int, int | None] | None:
        """Read `*`, `+`, `?`, `{n}`, `{n,}`, `{n,m}` or `{,m}`."""
        for kind, times in _QUANTIFIERS.items():
            if self._cursor.takes_symbol(kind):
                return times
        token = self._cursor.current
        if not self._cursor.sees_symbol(TokenType.L_BRACE) or self._cursor.following.token_type == TokenType.DASH:
            return None
        self._cursor.advance()
        least = self._cursor.integer("the least number of times", least=0) if self._cursor.sees_symbol(TokenType.NUMBER) else 0
        most: int | None = least
        if self._cursor.takes_symbol(TokenType.COMMA):
            most = self._cursor.integer("the greatest number of times", least=1) if self._cursor.sees_symbol(TokenType.NUMBER) else None
        self._cursor.expect_symbol(TokenType.R_BRACE, "}", "at the end of the quantifier")
        if most is not None and (most < least or most == 0):
            raise self._cursor.problem(
                "the quantifier asks for no rows", token, "the first number is the lesser one, and the second at least 1"
            )
        return least, most
