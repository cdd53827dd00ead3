"""What stands behind the name of a stream: windows, as the CQL bracket or a window table function of Flink, and MATCH_RECOGNIZE ( … )."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

from millstream.engine.data.durations import duration_text
from millstream.engine.data.records import dataclass
from millstream.engine.language import statements
from millstream.engine.language.column_types import checked_zone
from millstream.engine.language.cursor import TokenCursor
from millstream.engine.language.dialect import CLAUSE_WORDS
from millstream.engine.language.recipes import MatchSkip, Pattern, WindowKind
from millstream.engine.language.statements import Name, Place, WindowClause
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

WINDOW_FUNCTIONS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
_BRACKET_WORDS = ("RANGE", "ROWS", "PARTITION BY", "SESSION", "CUMULATE", "LANDMARK", "NOW", "UNBOUNDED")
# The duration arguments of each window function, in the order of their positions.
_PARAMETERS = {
    "TUMBLE": ("size", "offset"),
    "HOP": ("slide", "size", "offset"),
    "SESSION": ("gap",),
    "CUMULATE": ("step", "size", "offset"),
}
_REQUIRED = {"TUMBLE": ("size",), "HOP": ("slide", "size"), "SESSION": ("gap",), "CUMULATE": ("step", "size")}


@dataclass(slots=True)
class FunctionArguments:
    """What a window function was given: durations in µs by parameter name, and the rest."""

    durations: dict[str, int]
    descriptor: Name | None = None
    zone: str | None = None
    partition: tuple[exp.Expr, ...] = ()


class WindowParser(TokenCursor):
    """Adds windows to the cursor."""

    # -- [ … ] ----------------------------------------------------------------------------------------------------------------

    def bracket(self) -> WindowClause | None:
        """Take a window in brackets if one comes next."""
        place = self.place()
        if not self.takes_symbol(TokenType.L_BRACKET):
            return None
        window = self.bracket_body(place)
        self.expect_symbol(TokenType.R_BRACKET, "]", "at the end of the window")
        return window

    def bracket_body(self, place: Place) -> WindowClause:
        """Read what stands between the brackets."""
        if self.takes("RANGE") or self.takes("WINDOW"):
            return self._range(place)
        if self.takes("ROWS"):
            return self._rows(place, ())
        if self.takes_phrase("PARTITION", "BY"):
            keys = self.listed(lambda: self.expression_of("a partition key"))
            if self.takes("SESSION"):
                return self._session(place, keys)
            self.expect("ROWS", where="after PARTITION BY, which goes with ROWS n or SESSION gap")
            return self._rows(place, keys)
        if self.takes("SESSION"):
            return self._session(place, ())
        if self.takes("CUMULATE"):
            return self._cumulate(place)
        if self.takes("LANDMARK"):
            mark = self.expression_of("the landmark's time") if self.takes_symbol(TokenType.FROM) else None
            return WindowClause(WindowKind.LANDMARK, landmark=mark, place=place)
        if self.takes("NOW"):
            return WindowClause(WindowKind.NOW, place=place)
        if self.takes("UNBOUNDED"):
            return self._unbounded(place)
        raise self.unexpected_error(_BRACKET_WORDS, "at the start of a window")

    def _range(self, place: Place) -> WindowClause:
        if self.takes("UNBOUNDED"):
            return self._unbounded(place)
        size = self.duration("RANGE")
        if not self.takes("SLIDE"):
            if self.sees("OFFSET") or self.sees("TIME"):
                self.unexpected(["SLIDE", "']'"], "after RANGE (a window with OFFSET or TIME ZONE needs SLIDE)")
            return WindowClause(WindowKind.SLIDING, range_us=size, place=place)
        within = self.takes("WITHIN")
        slide = self.duration("SLIDE")
        offset, zone = self._alignment()
        return WindowClause(
            WindowKind.HOPPING, range_us=size, slide_us=slide, offset_us=offset, zone=zone, slide_within=within, place=place
        )

    def _session(self, place: Place, partition: tuple[exp.Expr, ...]) -> WindowClause:
        gap = self.duration("the session's gap")
        longest = self.duration("MAX") if self.takes("MAX") else None
        return WindowClause(WindowKind.SESSION, gap_us=gap, max_us=longest, partition=partition, place=place)

    def _cumulate(self, place: Place) -> WindowClause:
        size = self.duration("CUMULATE")
        self.expect("STEP", where="after CUMULATE d")
        step = self.duration("STEP")
        self._check_step(size, step)
        offset, zone = self._alignment()
        return WindowClause(WindowKind.CUMULATE, range_us=size, slide_us=step, offset_us=offset, zone=zone, place=place)

    def _check_step(self, size: int, step: int) -> None:
        if size % step:
            shown = duration_text(size), duration_text(step)
            raise self.problem(f"the size of CUMULATE ({shown[0]}) must be a multiple of its step ({shown[1]})", self.previous)

    def _alignment(self) -> tuple[int, str | None]:
        offset, zone = 0, None
        while True:
            if self.takes("OFFSET"):
                offset = self.duration("OFFSET", least=None)
            elif self.takes("TIME", "ZONE"):
                zone = self._zone()
            else:
                return offset, zone

    def _zone(self) -> str:
        place = self.place()
        zone = self.string("a time zone")
        return checked_zone(zone, Name(zone, place))

    def _rows(self, place: Place, partition: tuple[exp.Expr, ...]) -> WindowClause:
        if not partition and self.takes("UNBOUNDED"):
            return self._unbounded(place)
        rows = self.integer("ROWS")
        slide = self.integer("SLIDE") if self.takes("SLIDE") else 1
        return WindowClause(WindowKind.ROWS, rows=rows, rows_slide=slide, partition=partition, place=place)

    def _unbounded(self, place: Place) -> WindowClause:
        most = None
        if self.takes("STATE"):
            most = self.integer("STATE")
            self.expect("ROWS", where="after STATE n")
        return WindowClause(WindowKind.UNBOUNDED, state_rows_max=most, place=place)

    # -- TUMBLE( … ) and its kin ----------------------------------------------------------------------------------------------

    def sees_window_function(self) -> bool:
        """A window function begins here, perhaps inside TABLE( )."""
        offset = 2 if self.sees("TABLE") and self.following and self.following.token_type == TokenType.L_PAREN else 0
        token, after = self.token_at(offset), self.token_at(offset + 1)
        return (
            token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
            and token.text.upper() in WINDOW_FUNCTIONS
            and after.token_type == TokenType.L_PAREN
        )

    def window_function(self, item: Any) -> tuple[Any, WindowClause]:
        """Take a window function; `item()` reads the stream or derived table it is applied to. Returns both."""
        place = self.place()
        wrapped = self.takes("TABLE")
        if wrapped:
            self.expect_symbol(TokenType.L_PAREN, "(", "after TABLE")
        function = self.current.text.upper()
        self.advance(2)
        source, arguments = self._arguments(function, item)
        self.expect_symbol(TokenType.R_PAREN, ")", f"after the arguments of {function}")
        if wrapped:
            self.expect_symbol(TokenType.R_PAREN, ")", "after TABLE(…")
        return source, self._function_window(function, arguments, place)

    def _arguments(self, function: str, item: Any) -> tuple[Any, FunctionArguments]:
        source = self._source_argument(item)
        arguments = FunctionArguments({})
        if self.takes_phrase("PARTITION", "BY"):
            if function != "SESSION":
                raise self.problem(f"PARTITION BY inside {function} is not known; only SESSION takes it", self.previous)
            self._partition_argument(arguments)
        free = list(_PARAMETERS[function])
        while self.takes_symbol(TokenType.COMMA):
            self._argument(function, arguments, free)
        return source, arguments

    def _partition_argument(self, arguments: FunctionArguments) -> None:
        """Read `k, …` up to the next argument. Without DESCRIPTOR the last of several names is the time column."""
        keys = [self.expression_of("a partition key")]
        while self.sees_symbol(TokenType.COMMA) and self._key_follows():
            self.advance()
            keys.append(self.expression_of("a partition key"))
        after = self.following.text.upper()
        if len(keys) > 1 and after not in ("DESCRIPTOR", "TIMECOL") and isinstance(keys[-1], exp.Column):
            last = keys.pop()
            arguments.descriptor = Name(last.name.lower(), self.place())
        arguments.partition = tuple(keys)

    def _key_follows(self) -> bool:
        token = self.following
        if not token or self.token_at(2).token_type == TokenType.FARROW:
            return False
        literal = (TokenType.NUMBER, TokenType.INTERVAL, TokenType.STRING)
        return token.text.upper() != "DESCRIPTOR" and token.token_type not in literal

    def _source_argument(self, item: Any) -> Any:
        if self.takes("DATA"):
            self.expect_symbol(TokenType.FARROW, "=>", "after DATA")
        self.takes("TABLE")
        return item()

    def _argument(self, function: str, arguments: FunctionArguments, free: list[str]) -> None:
        named = self._argument_name(function)
        if named == "time zone":
            arguments.zone = self._zone()
        elif named == "time" or (named is None and self._sees_descriptor(arguments)):
            arguments.descriptor = self._descriptor()
        else:
            self._duration_argument(function, arguments, free, named)

    def _duration_argument(self, function: str, arguments: FunctionArguments, free: list[str], named: str | None) -> None:
        if named is None and not free:
            raise self.problem(f"{function} takes no more than {len(_PARAMETERS[function])} durations")
        parameter = named or free[0]
        if parameter in arguments.durations:
            raise self.problem(f"{function} is given {parameter} twice")
        if parameter in free:
            free.remove(parameter)
        arguments.durations[parameter] = self.duration(parameter, least=None if parameter == "offset" else 1)

    def _argument_name(self, function: str) -> str | None:
        if self.takes("TIME", "ZONE"):
            self.expect_symbol(TokenType.FARROW, "=>", "after TIME ZONE")
            return "time zone"
        if not self.following or self.following.token_type != TokenType.FARROW:
            return None
        name = self.current.text.lower()
        known = (*_PARAMETERS[function], "timecol", "time_zone")
        if name not in known:
            self.unexpected([*known], f"as an argument of {function}")
        self.advance(2)
        return {"timecol": "time", "time_zone": "time zone"}.get(name, name)

    def _sees_descriptor(self, arguments: FunctionArguments) -> bool:
        if self.sees("DESCRIPTOR"):
            return True
        literal = (TokenType.NUMBER, TokenType.INTERVAL, TokenType.STRING, TokenType.DASH)
        return arguments.descriptor is None and bool(self.current) and self.current.token_type not in literal

    def _descriptor(self) -> Name:
        if not self.takes("DESCRIPTOR"):
            return self.name("time column")
        self.expect_symbol(TokenType.L_PAREN, "(", "after DESCRIPTOR")
        name = self.name("time column")
        self.expect_symbol(TokenType.R_PAREN, ")", "after the time column")
        return name

    def _function_window(self, function: str, arguments: FunctionArguments, place: Place) -> WindowClause:
        given = arguments.durations
        for parameter in _REQUIRED[function]:
            if parameter not in given:
                raise self.problem(f"{function} needs {parameter}", self.previous)
        common = WindowClause(
            WindowKind.HOPPING,
            range_us=given.get("size", 0),
            offset_us=given.get("offset", 0),
            zone=arguments.zone,
            descriptor=arguments.descriptor,
            place=place,
        )
        if function == "TUMBLE":
            return replace(common, slide_us=given["size"])
        if function == "HOP":
            return replace(common, slide_us=given["slide"])
        if function == "SESSION":
            return replace(common, kind=WindowKind.SESSION, gap_us=given["gap"], partition=arguments.partition)
        self._check_step(given["size"], given["step"])
        return replace(common, kind=WindowKind.CUMULATE, slide_us=given["step"])


# MATCH_RECOGNIZE ---------------------------------------------------------------------------------------------------------

PERMUTED_MAX = 5
_CLAUSES = CLAUSE_WORDS | {"PATTERN", "ONE", "AFTER", "SUBSET", "DEFINE"}
_QUANTIFIERS = {TokenType.STAR: (0, None), TokenType.PLUS: (1, None), TokenType.PLACEHOLDER: (0, 1)}
_NO_OPERAND = (TokenType.NUMBER, TokenType.STRING, TokenType.L_PAREN)


class MatchParser:
    """Reads with a cursor that stands on MATCH_RECOGNIZE, or on a part of it. Variables are numbered in the order in which they come."""

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
