"""FROM: names, derived tables, window functions, and joins."""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.language.recipes import JoinKind
from millstream.engine.language.syntax import FromItem, JoinItem, Name, NamedItem, Place, Query, SubqueryItem, WindowClause
from millstream.engine.language.window_parser import WindowParser
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

_SIDES = {"INNER": JoinKind.INNER, "LEFT": JoinKind.LEFT, "RIGHT": JoinKind.RIGHT, "FULL": JoinKind.FULL}
_QUERY_WORDS = ("SELECT", "WITH", "ISTREAM", "DSTREAM", "RSTREAM")


@dataclass(slots=True)
class JoinWords:
    """The words before JOIN."""

    kind: JoinKind = JoinKind.INNER
    asof: bool = False
    cross: bool = False


class FromParser(WindowParser):
    """Adds FROM to the cursor. `query` is supplied by the SELECT parser below it."""

    def query(self) -> Query:
        """Read a whole query."""
        raise NotImplementedError

    def sees_query(self) -> bool:
        """A query begins here."""
        return any(self.sees(word) for word in _QUERY_WORDS)

    def from_list(self) -> FromItem:
        """Read `item, item …`; a comma is an inner join whose condition stands in WHERE."""
        item = self._joined()
        while self.sees_symbol(TokenType.COMMA):
            place = self.place()
            self._advance()
            item = JoinItem(item, self._joined(), JoinKind.INNER, None, comma=True, place=place)
        return item

    def _joined(self) -> FromItem:
        item = self._item()
        while True:
            place = self.place()
            words = self._join_words()
            if words is None:
                return item
            item = self._join(item, words, place)

    # -- one item -------------------------------------------------------------------------------------------------------------

    def _item(self) -> FromItem:
        place = self.place()
        if self.sees_window_function():
            source, called = self.window_function(self._bare_item)
            item: FromItem = replace(source, window=called, alias=self.alias())
            return item
        if self.sees_symbol(TokenType.L_PAREN):
            return self._windowed(self._derived_table(place))
        return self._windowed(NamedItem(self._source_name(), None, None))

    def _windowed(self, item: NamedItem | SubqueryItem) -> FromItem:
        """Read the window and the alias; people write them in either order."""
        window = self.bracket()
        alias = self.alias()
        return replace(item, window=window or self.bracket(), alias=alias)

    def _bare_item(self) -> NamedItem | SubqueryItem:
        if self.sees_symbol(TokenType.L_PAREN):
            return self._derived_table(self.place())
        return NamedItem(self._source_name(), None, None)

    def _source_name(self) -> Name:
        name = self.name("stream or table name")
        if self.sees_symbol(TokenType.L_PAREN):
            raise self.problem(
                f"{name.text}( is no table function", self._prev, "the window functions are TUMBLE, HOP, SESSION and CUMULATE"
            )
        return name

    def _derived_table(self, place: Place) -> SubqueryItem:
        self.expect_symbol(TokenType.L_PAREN, "(")
        if not self.sees_query():
            self.unexpected(["SELECT"], "after ( in FROM")
        query = self.query()
        self.expect_symbol(TokenType.R_PAREN, ")", "at the end of the derived table")
        return SubqueryItem(query, None, None, place)

    # -- joins ----------------------------------------------------------------------------------------------------------------

    def _join_words(self) -> JoinWords | None:
        start = self._index
        words = JoinWords()
        if self.takes("CROSS"):
            self.expect("JOIN", where="after CROSS")
            words.cross = True
            return words
        words.asof = self.takes("ASOF")
        sided = False
        for side, kind in _SIDES.items():
            if self.takes(side):
                words.kind, sided = kind, True
                if side != "INNER":
                    self.takes("OUTER")
                break
        words.asof = self.takes("ASOF") or words.asof
        if self.takes("JOIN"):
            return words
        if self.sees("NATURAL"):
            raise self._refused("NATURAL JOIN", "write JOIN … ON … with a time bound")
        if words.asof or (sided and not self.sees_symbol(TokenType.L_PAREN)):
            self.unexpected(["JOIN"])
        self._retreat(start)
        return None

    def _join(self, left: FromItem, words: JoinWords, place: Place) -> JoinItem:
        system_time = None
        right, system_time = self._right_item()
        within = self.duration("WITHIN", least=0) if self.takes("WITHIN") else None
        if words.cross and (self._match(TokenType.ON) or self.takes("USING")):
            raise self.problem("CROSS JOIN takes no ON", self._prev, "write JOIN … ON …, or put the condition in WHERE")
        using = self._using() if self.takes("USING") else ()
        on = self.expression_of("a join condition") if not using and self._match(TokenType.ON) else None
        if on is None and not using and not words.cross:
            self.unexpected(["ON", "USING"], "after the joined item")
        if self.takes("WITHIN"):
            if within is not None:
                raise self.problem("WITHIN is given twice", self._prev)
            within = self.duration("WITHIN", least=0)
        system_time = system_time or self._system_time()
        return JoinItem(left, right, words.kind, on, within, words.asof, system_time, using=using, place=place)

    def _using(self) -> tuple[Name, ...]:
        self.expect_symbol(TokenType.L_PAREN, "(", "after USING")
        names = [self.name("column")]
        while self._match(TokenType.COMMA):
            names.append(self.name("column"))
        self.expect_symbol(TokenType.R_PAREN, ")", "after the columns of USING")
        return tuple(names)

    def _right_item(self) -> tuple[FromItem, exp.Expr | None]:
        """Read the right side; FOR SYSTEM_TIME may stand before its alias, as in Flink."""
        if self.sees_symbol(TokenType.L_PAREN) or self.sees_window_function():
            return self._item(), self._system_time()
        named = NamedItem(self._source_name(), None, None)
        window: WindowClause | None = self.bracket()
        system_time = self._system_time()
        item = replace(named, window=window, alias=self.alias())
        return item, system_time or self._system_time()

    def _system_time(self) -> exp.Expr | None:
        if not self.takes("FOR"):
            return None
        self.expect("SYSTEM_TIME", where="after FOR")
        self.expect("AS", "OF", where="after SYSTEM_TIME")
        return self.expression_of("the time of the left row")

    def _refused(self, clause: str, hint: str) -> Unsupported:
        token = self._curr
        return Unsupported(f"{clause} is not supported", hint=hint, line=token.line, column=token.col, token=token.text)
