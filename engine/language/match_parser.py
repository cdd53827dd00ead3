"""MATCH_RECOGNIZE ( … ) as written: its clauses, and the pattern, whose variables are numbered in the order in which they come."""

from __future__ import annotations

from itertools import permutations

from millstream.engine.language import statements
from millstream.engine.language.recipes import MatchSkip, Pattern
from millstream.engine.language.window_parser import WindowParser
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

PERMUTED_MAX = 5
_QUANTIFIERS = {TokenType.STAR: (0, None), TokenType.PLUS: (1, None), TokenType.PLACEHOLDER: (0, 1)}
_NO_OPERAND = (TokenType.NUMBER, TokenType.STRING, TokenType.L_PAREN)


class MatchParser(WindowParser):
    """Adds MATCH_RECOGNIZE to the cursor."""

    _variables: dict[str, statements.Name]

    def match_item(self, source: statements.NamedItem | statements.SubqueryItem) -> statements.MatchItem:
        """Read what stands behind the stream, from MATCH_RECOGNIZE to the alias."""
        place = self.place()
        self.expect("MATCH_RECOGNIZE")
        self.expect_symbol(TokenType.L_PAREN, "(", "after MATCH_RECOGNIZE")
        partition = self.listed(lambda: self.expression_of("a partition key")) if self.takes_phrase("PARTITION", "BY") else ()
        order = self.listed(self.order_item) if self.takes_phrase("ORDER", "BY") else ()
        measures = self.listed(self.measure) if self.takes("MEASURES") else ()
        all_rows, shows_empty = self._rows_per_match()
        skip, skip_to = self.skip() if self.takes("AFTER", "MATCH", "SKIP") else (MatchSkip.PAST_LAST, None)
        pattern = self._pattern()
        within = self.duration("WITHIN") if self.takes("WITHIN") else None
        subsets = self.listed(self._subset) if self.takes("SUBSET") else ()
        define = self.listed(self._definition) if self.takes("DEFINE") else ()
        if self.sees("WITHIN"):
            raise self.problem("WITHIN stands behind PATTERN ( … ), before SUBSET and DEFINE")
        self.expect_symbol(TokenType.R_PAREN, ")", "at the end of MATCH_RECOGNIZE")
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
            self.alias(),
            place,
        )

    def order_item(self) -> statements.OrderItem:
        """Read one key of ORDER BY."""
        place = self.place()
        node = self.expression_of("an ordering key")
        descending = self.takes_symbol(TokenType.DESC)
        if not descending:
            self.takes_symbol(TokenType.ASC)
        nulls_first = descending
        if self.takes("NULLS"):
            nulls_first = self.choice(("FIRST", "LAST"), "after NULLS") == "FIRST"
        return statements.OrderItem(node, descending, nulls_first, place)

    def measure(self) -> statements.Measure:
        """Read one of MEASURES."""
        place = self.place()
        final = None
        if (self.sees("FINAL") or self.sees("RUNNING")) and self._is_name(self.following) and not self._is_as(self.following):
            final = self.sees("FINAL")
            self.advance()
        node = self.expression_of("a measure")
        return statements.Measure(node, self.alias(), final, place)

    @staticmethod
    def _is_as(token: Token) -> bool:
        return token.token_type == TokenType.ALIAS

    def _rows_per_match(self) -> tuple[bool, bool]:
        """Return whether every row is a result, and whether a match without rows is."""
        if self.takes("ONE", "ROW", "PER", "MATCH"):
            return False, True
        if not self.takes("ALL", "ROWS", "PER", "MATCH"):
            return False, True
        if self.sees("WITH", "UNMATCHED", "ROWS"):
            hint = "leave it out; to keep every row, join the matches to the stream"
            raise self.problem("WITH UNMATCHED ROWS is not supported", hint=hint)
        if self.takes("OMIT", "EMPTY", "MATCHES"):
            return True, False
        self.takes("SHOW", "EMPTY", "MATCHES")
        return True, True

    def skip(self) -> tuple[MatchSkip, statements.Name | None]:
        """Read what stands behind AFTER MATCH SKIP."""
        if self.takes("PAST", "LAST", "ROW"):
            return MatchSkip.PAST_LAST, None
        if self.takes("TO", "NEXT", "ROW"):
            return MatchSkip.TO_NEXT, None
        if not self.takes("TO"):
            self.unexpected(["PAST LAST ROW", "TO NEXT ROW", "TO FIRST variable", "TO LAST variable"], "after AFTER MATCH SKIP")
        way = MatchSkip.TO_FIRST if self.takes("FIRST") else MatchSkip.TO_LAST
        if way is MatchSkip.TO_LAST:
            self.takes("LAST")
        return way, self.name("pattern variable")

    def _subset(self) -> tuple[statements.Name, tuple[statements.Name, ...]]:
        name = self.name("name of a subset")
        self.expect_symbol(TokenType.EQ, "=", f"after {name.text}")
        self.expect_symbol(TokenType.L_PAREN, "(", "after =")
        parts = self.listed(lambda: self.name("pattern variable"))
        self.expect_symbol(TokenType.R_PAREN, ")", f"at the end of the subset {name.text}")
        return name, parts

    def _definition(self) -> tuple[statements.Name, exp.Expr]:
        name = self.name("pattern variable")
        self.expect("AS", where=f"after {name.text} in DEFINE")
        return name, self.expression_of(f"the condition of {name.text}")

    # -- the pattern ----------------------------------------------------------------------------------------------------------

    def _pattern(self) -> Pattern:
        self.expect("PATTERN", where="in MATCH_RECOGNIZE")
        self.expect_symbol(TokenType.L_PAREN, "(", "after PATTERN")
        return self.pattern_alone()[1]

    def pattern_alone(self) -> tuple[tuple[str, ...], Pattern]:
        """Read a pattern and the bracket behind it; return its variables too."""
        self._variables = {}
        pattern = self._alternatives()
        self.expect_symbol(TokenType.R_PAREN, ")", "at the end of the pattern")
        return tuple(self._variables), pattern

    def _alternatives(self) -> Pattern:
        parts = [self._sequence()]
        while self.takes_symbol(TokenType.PIPE):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else ("or", tuple(parts))

    def _sequence(self) -> Pattern:
        parts = [self._repeated()]
        while self.current and self.current.token_type not in (TokenType.PIPE, TokenType.R_PAREN, TokenType.COMMA):
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else ("then", tuple(parts))

    def _repeated(self) -> Pattern:
        part = self._primary()
        times = self._quantifier()
        if times is None:
            return part
        reluctant = self.takes_symbol(TokenType.PLACEHOLDER)
        if self.current.token_type in _QUANTIFIERS or self.sees_symbol(TokenType.L_BRACE):
            raise self.problem("a quantifier stands behind another", hint="put parentheses around the first, as in (A+)*")
        return ("times", part, *times, reluctant)

    def _primary(self) -> Pattern:
        token = self.current
        if self.takes_symbol(TokenType.L_PAREN):
            if self.takes_symbol(TokenType.R_PAREN):
                return ("then", ())
            part = self._alternatives()
            self.expect_symbol(TokenType.R_PAREN, ")", "in the pattern")
            return part
        if self.sees_symbol(TokenType.L_BRACE) and self.following.token_type == TokenType.DASH:
            raise self.problem("an exclusion {- … -} is not supported", hint="take the rows out above, by CLASSIFIER()")
        if token.token_type == TokenType.CARET or token.text.startswith("$"):
            hint = "a stream's partition has no first and no last row to wait for; PREV(x) IS NULL finds the first"
            raise self.problem(f"an anchor ({token.text[:1]}) in a pattern is not supported", hint=hint)
        if self.sees("PERMUTE") and self.following.token_type == TokenType.L_PAREN:
            return self._permuted()
        if token.token_type in _NO_OPERAND:
            self.unexpected(["a pattern variable", "'('"], "in the pattern")
        name = self.name("pattern variable")
        known = self._variables.setdefault(name.text, name)
        return ("row", list(self._variables).index(known.text))

    def _permuted(self) -> Pattern:
        """Read PERMUTE (A, B): the sequences of its parts, in the order of which part comes first."""
        token = self.current
        self.advance(2)
        parts = self.listed(self._sequence)
        self.expect_symbol(TokenType.R_PAREN, ")", "at the end of PERMUTE")
        if len(parts) > PERMUTED_MAX:
            raise self.problem(f"PERMUTE of more than {PERMUTED_MAX} parts", token, "write the sequences that you want, with |")
        return ("or", tuple(("then", order) for order in permutations(parts))) if len(parts) > 1 else parts[0]

    def _quantifier(self) -> tuple[int, int | None] | None:
        """Read `*`, `+`, `?`, `{n}`, `{n,}`, `{n,m}` or `{,m}`."""
        for kind, times in _QUANTIFIERS.items():
            if self.takes_symbol(kind):
                return times
        token = self.current
        if not self.sees_symbol(TokenType.L_BRACE) or self.following.token_type == TokenType.DASH:
            return None
        self.advance()
        least = self.integer("the least number of times", least=0) if self.sees_symbol(TokenType.NUMBER) else 0
        most: int | None = least
        if self.takes_symbol(TokenType.COMMA):
            most = self.integer("the greatest number of times", least=1) if self.sees_symbol(TokenType.NUMBER) else None
        self.expect_symbol(TokenType.R_BRACE, "}", "at the end of the quantifier")
        if most is not None and (most < least or most == 0):
            raise self.problem("the quantifier asks for no rows", token, "the first number is the lesser one, and the second at least 1")
        return least, most
