"""SELECT: FROM with its joins, the other clauses, UNION ALL, WITH, ISTREAM and its kin, ORDER BY … LIMIT, EMIT and options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from itertools import chain, combinations, islice, product
from typing import TypeVar

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.expressions.values import parse_timestamp
from millstream.engine.language import statements
from millstream.engine.language.dialect import CLAUSE_WORDS, QUERY
from millstream.engine.language.recipes import EmitKind, EmitSpec, JoinKind
from millstream.engine.language.window_parser import MatchParser, WindowParser
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
    """Adds FROM to the cursor. `query` is supplied by the SELECT parser below it.

    `history` gathers the streams of a FETCH whose past is asked for; None elsewhere.
    """

    history: list[statements.HistoryOf] | None = None

    def query(self) -> statements.SelectQuery:
        """Read a whole query. The subclass has it, as it stands on FROM; the parser of sqlglot below is no ABC."""
        raise NotImplementedError

    def sees_query(self) -> bool:
        """A query begins here."""
        return any(self.sees(word) for word in _QUERY_WORDS)

    def from_list(self) -> statements.FromItem:
        """Read `item, item …`; a comma is an inner join whose condition stands in WHERE."""
        item = self._joined()
        while self.sees_symbol(TokenType.COMMA):
            place = self.place()
            self.advance()
            item = statements.JoinItem(item, self._joined(), JoinKind.INNER, None, comma=True, place=place)
        return item

    def _joined(self) -> statements.FromItem:
        item = self._item()
        while True:
            place = self.place()
            words = self._join_words()
            if words is None:
                return item
            item = self._join(item, words, place)

    # -- one item -------------------------------------------------------------------------------------------------------------

    def _item(self) -> statements.FromItem:
        place = self.place()
        if self.sees_unnest():
            return self._unnest(place)
        if self.sees_window_function():
            source, called = self.window_function(self._bare_item)
            item: statements.FromItem = replace(source, window=called, alias=self.alias())
            return item
        if self.sees_symbol(TokenType.L_PAREN):
            return self._windowed(self._derived_table(place))
        return self._windowed(statements.NamedItem(self._source_name(), None, None))

    def sees_unnest(self) -> bool:
        """UNNEST( comes, perhaps behind LATERAL."""
        at = 1 if self.sees("LATERAL") else 0
        return self.sees(*("LATERAL", "UNNEST")[1 - at :]) and self.token_at(at + 1).token_type == TokenType.L_PAREN

    def _unnest(self, place: statements.Place) -> statements.UnnestItem:
        self.takes("LATERAL")
        self.advance(2)
        expression = self.expression_of("a list or a map")
        self.expect_symbol(TokenType.R_PAREN, ")", "after the list of UNNEST")
        numbered = self.current.token_type == TokenType.WITH and self.token_at(1).text.upper() == "ORDINALITY"
        if numbered:
            self.advance(2)
        alias = self.alias()
        columns = self._called("UNNEST") if alias is not None else ()
        return statements.UnnestItem(expression, alias, columns, numbered, place)

    def _called(self, what: str) -> tuple[statements.Name, ...]:
        """Read `(column, …)` behind a name, if it is there."""
        if not self.sees_symbol(TokenType.L_PAREN) or self.token_at(2).token_type not in (TokenType.COMMA, TokenType.R_PAREN):
            return ()
        self.advance()
        columns = self.listed(lambda: self.name("column"))
        self.expect_symbol(TokenType.R_PAREN, ")", f"after the columns of {what}")
        return columns

    def _windowed(self, item: statements.NamedItem | statements.SubqueryItem) -> statements.FromItem:
        """Read the window and the alias; people write them in either order."""
        window = self.bracket()
        alias = self.alias()
        if alias is not None and isinstance(item, statements.SubqueryItem):
            item = replace(item, columns=self._called(alias.text))
        source = replace(item, window=window or self.bracket(), alias=alias)
        return self._row_pattern(source) if self.sees("MATCH_RECOGNIZE") else source

    def _row_pattern(self, source: statements.NamedItem | statements.SubqueryItem) -> statements.MatchItem:
        return MatchParser(self).item(source)

    def _bare_item(self) -> statements.NamedItem | statements.SubqueryItem:
        if self.sees_symbol(TokenType.L_PAREN):
            return self._derived_table(self.place())
        return statements.NamedItem(self._source_name(), None, None)

    def _source_name(self) -> statements.Name:
        name = self.name("stream or table name")
        if self.sees_symbol(TokenType.L_PAREN):
            raise self.problem(
                f"{name.text} is not a table function", self.previous, "the window functions are TUMBLE, HOP, SESSION and CUMULATE"
            )
        if self.history is None and self.sees("HISTORY"):
            hint = "to begin in the past write CREATE QUERY name WITH (history = 'archive') AS SELECT …; for an alias AS history"
            raise self.problem("HISTORY can stand only in a FETCH", hint=hint)
        if self.history is not None and self.takes("HISTORY"):
            start = self._instant("HISTORY FROM") if self.takes_symbol(TokenType.FROM) else None
            stop = self._instant("TO") if self.takes("TO") else None
            if stop is not None and self.sees_symbol(TokenType.FROM):
                raise self.problem("FROM stands before TO in HISTORY", hint="write HISTORY FROM earlier TO later")
            if start is not None and stop is not None and stop <= start:
                raise self.problem("HISTORY ends before it begins", self.previous, "write FROM earlier TO later")
            self.history.append(statements.HistoryOf(name, start, stop))
        return name

    def _instant(self, what: str) -> int:
        self.takes("TIMESTAMP")
        text = self.string(f"an instant for {what}")
        try:
            return parse_timestamp(text)
        except ValueError as problem:
            raise self.problem(f"{what}: {problem}", self.previous) from None

    def _derived_table(self, place: statements.Place) -> statements.SubqueryItem:
        self.expect_symbol(TokenType.L_PAREN, "(")
        if not self.sees_query():
            self.unexpected(["SELECT"], "after ( in FROM")
        query = self.query()
        self.expect_symbol(TokenType.R_PAREN, ")", "at the end of the derived table")
        return statements.SubqueryItem(query, None, None, place)

    # -- joins ----------------------------------------------------------------------------------------------------------------

    def _join_words(self) -> JoinWords | None:
        start = self.position
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
        if words.asof or (sided and not self.sees_symbol(TokenType.L_PAREN)):
            self.unexpected(["JOIN"])
        self.retreat(start)
        return None

    def _join(self, left: statements.FromItem, words: JoinWords, place: statements.Place) -> statements.JoinItem:
        system_time = None
        right, system_time = self._right_item()
        within = self.duration("WITHIN", least=0) if self.takes("WITHIN") else None
        if words.cross and (self.takes_symbol(TokenType.ON) or self.takes("USING")):
            raise self.problem("CROSS JOIN takes no ON", self.previous, "write JOIN … ON …, or put the condition in WHERE")
        using = self._using() if self.takes("USING") else ()
        on = self.expression_of("a join condition") if not using and self.takes_symbol(TokenType.ON) else None
        if on is None and not using and not words.cross:
            self.unexpected(["ON", "USING"], "after the joined item")
        if self.takes("WITHIN"):
            if within is not None:
                raise self.problem("WITHIN is given twice", self.previous)
            within = self.duration("WITHIN", least=0)
        system_time = system_time or self._system_time()
        return statements.JoinItem(left, right, words.kind, on, within, words.asof, system_time, using=using, place=place)

    def _using(self) -> tuple[statements.Name, ...]:
        self.expect_symbol(TokenType.L_PAREN, "(", "after USING")
        names = [self.name("column")]
        while self.takes_symbol(TokenType.COMMA):
            names.append(self.name("column"))
        self.expect_symbol(TokenType.R_PAREN, ")", "after the columns of USING")
        return tuple(names)

    def _right_item(self) -> tuple[statements.FromItem, exp.Expr | None]:
        """Read the right side; FOR SYSTEM_TIME may stand before its alias, as in Flink."""
        if self.sees_unnest():
            return self._item(), None
        if self.sees_symbol(TokenType.L_PAREN) or self.sees_window_function():
            return self._item(), self._system_time()
        named = statements.NamedItem(self._source_name(), None, None)
        window: statements.WindowClause | None = self.bracket()
        system_time = self._system_time()
        item = replace(named, window=window, alias=self.alias())
        if self.sees("MATCH_RECOGNIZE"):
            return self._row_pattern(item), None
        return item, system_time or self._system_time()

    def _system_time(self) -> exp.Expr | None:
        if self.takes("FOR"):
            self.expect("SYSTEM_TIME", where="after FOR")
            self.expect("AS", "OF", where="after SYSTEM_TIME")
        elif self.sees("AS", "OF", "PROCTIME"):
            self.advance(2)
        else:
            return None
        return self.expression_of("the time of the left row, or PROCTIME()")


Grouping = tuple[exp.Expr, ...]
Part = TypeVar("Part")
GROUPINGS_MAX = 64


def _is_bare(query: statements.SelectQuery) -> bool:
    """Nothing but its body was written."""
    return query == statements.SelectQuery(query.body)


_STREAMS = {"ISTREAM": "i", "DSTREAM": "d", "RSTREAM": "r"}


@dataclass(slots=True)
class Tail:
    """The clauses after the last branch."""

    order_by: tuple[statements.OrderItem, ...] = ()
    limit: int | None = None
    with_ties: bool = False
    emit: EmitSpec | None = None
    emit_place: statements.Place | None = None
    options: tuple[statements.Option, ...] = field(default=())


class SelectParser(FromParser):
    """Adds SELECT to the cursor."""

    def query(self) -> statements.SelectQuery:
        """Read a whole query with everything that belongs to it."""
        place = self.place()
        tables = self._common_tables()
        for word, stream in _STREAMS.items():
            if self.sees(word) and self.following and self.following.token_type == TokenType.L_PAREN:
                inner = self._relation_to_stream(stream)
                return replace(self._finish(inner, place), common_tables=tables + inner.common_tables)
        return replace(self._finish(statements.SelectQuery(self._body(), place=place), place), common_tables=tables)

    def _common_tables(self) -> tuple[statements.CommonTable, ...]:
        if not self.takes_symbol(TokenType.WITH):
            return ()
        return self.listed(self._common_table)

    def _common_table(self) -> statements.CommonTable:
        name = self.name("name of a common table expression")
        columns = self._called(name.text)
        self.expect("AS", where=f"after {name.text}")
        self.expect_symbol(TokenType.L_PAREN, "(", "after AS")
        query = self.query()
        self.expect_symbol(TokenType.R_PAREN, ")", "at the end of the common table expression")
        return statements.CommonTable(name, query, columns)

    def _relation_to_stream(self, stream: str) -> statements.SelectQuery:
        self.advance(2)
        inner = self.query()
        every = None
        if self.sees("EVERY"):
            if stream != "r":
                raise self.problem("EVERY belongs to RSTREAM")
            self.advance()
            every = self.duration("EVERY")
        self.expect_symbol(TokenType.R_PAREN, ")", "at the end of the query")
        if inner.stream is not None:
            raise self.problem("ISTREAM, DSTREAM and RSTREAM cannot be nested", self.previous)
        return replace(inner, stream=stream, every_us=every)

    def _finish(self, query: statements.SelectQuery, place: statements.Place) -> statements.SelectQuery:
        tail = self._tail()
        if query.stream is None:
            return replace(
                query,
                order_by=tail.order_by,
                limit=tail.limit,
                with_ties=tail.with_ties,
                emit=tail.emit,
                emit_place=tail.emit_place,
                options=tail.options,
                place=place,
            )
        if tail.order_by or tail.limit is not None or tail.emit is not None:
            raise self.problem("ORDER BY, LIMIT and EMIT belong inside ISTREAM( ), DSTREAM( ) or RSTREAM( )", self.previous)
        return replace(query, options=query.options + tail.options, place=place)

    def subquery(self, word: str) -> exp.Expr:
        """Read a query that stands in an expression. Its text tells two of them apart."""
        token, start = self.current, self.current.start
        query = self.query()
        text = exp.Literal.string(self.slice_from(start))
        node: exp.Expr = self.expression(exp.Anonymous(this=word, expressions=[text]), token)
        node.meta[QUERY] = query
        return node

    # -- bodies ---------------------------------------------------------------------------------------------------------------

    def _body(self) -> statements.SelectBody | statements.UnionBody | statements.SetBody:
        found = self._intersected()
        while (word := next((w for w in ("UNION", "EXCEPT") if self.takes(w)), None)) is not None:
            place = statements.Place(self.previous.line, self.previous.col)
            keeps_all = self._keeps_all()
            by_name = self.takes("BY", "NAME")
            right = self._intersected()
            if word == "UNION" and keeps_all and not by_name:
                before = found.body.branches if isinstance(found.body, statements.UnionBody) and _is_bare(found) else (found,)
                found = statements.SelectQuery(statements.UnionBody((*before, right), found.place), place=found.place)
            else:
                made = statements.SetBody(word.lower(), found, right, by_name, keeps_all, place)
                found = statements.SelectQuery(made, place=found.place)
        if _is_bare(found):
            return found.body
        raise self.problem("a query in parentheses can only stand in FROM, in an expression, or beside UNION, INTERSECT or EXCEPT")

    def _intersected(self) -> statements.SelectQuery:
        """Read `a INTERSECT b`, which binds closer than UNION and EXCEPT."""
        found = self._branch()
        while self.takes("INTERSECT"):
            place = statements.Place(self.previous.line, self.previous.col)
            keeps_all = self._keeps_all()
            by_name = self.takes("BY", "NAME")
            made = statements.SetBody("intersect", found, self._branch(), by_name, keeps_all, place)
            found = statements.SelectQuery(made, place=found.place)
        return found

    def _keeps_all(self) -> bool:
        """Read ALL or DISTINCT behind the word."""
        if self.takes("ALL"):
            return True
        self.takes("DISTINCT")
        return False

    def _branch(self) -> statements.SelectQuery:
        place = self.place()
        if self.takes_symbol(TokenType.L_PAREN):
            query = self.query()
            self.expect_symbol(TokenType.R_PAREN, ")", "at the end of the branch")
            return query
        return statements.SelectQuery(self._select(), place=place)

    def _select(self) -> statements.SelectBody:
        place = self.place()
        self.expect("SELECT")
        distinct = self.takes_symbol(TokenType.DISTINCT)
        on: tuple[exp.Expr, ...] = ()
        if distinct and self.takes("ON"):
            self.expect_symbol(TokenType.L_PAREN, "(", "after DISTINCT ON")
            distinct, on = False, self.listed(lambda: self.expression_of("a column"))
            self.expect_symbol(TokenType.R_PAREN, ")", "at the end of DISTINCT ON")
        elif not distinct:
            self.takes_symbol(TokenType.ALL)
        items = self.listed(self._item_of_select)
        self.expect("FROM", where="after the select list")
        source = self.from_list()
        where = self.expression_of("a condition") if self.takes_symbol(TokenType.WHERE) else None
        every, group_by, sets = self._group_by()
        having = self.expression_of("a condition") if self.takes_symbol(TokenType.HAVING) else None
        return statements.SelectBody(items, source, where, group_by, having, distinct, place, on, every, sets)

    def _group_by(self) -> tuple[bool, Grouping, tuple[Grouping, ...]]:
        """Return whether it says ALL, the keys, and instead of these the groupings if there are several."""
        if not self.takes_phrase("GROUP", "BY"):
            return False, (), ()
        if self.takes("ALL"):
            return True, (), ()
        parts = self.listed(self._groupings)
        if all(len(part) == 1 for part in parts):
            return False, tuple(key for part in parts for key in part[0]), ()
        sets = [tuple(dict.fromkeys(chain.from_iterable(one))) for one in islice(product(*parts), GROUPINGS_MAX + 1)]
        if len(sets) > GROUPINGS_MAX:
            raise self.problem(f"more than {GROUPINGS_MAX} groupings in one GROUP BY", self.previous, "use several queries")
        return False, (), tuple(sets)

    def _groupings(self) -> list[Grouping]:
        """Read a key, ROLLUP (…), CUBE (…) or GROUPING SETS (…): the groupings that it asks for."""
        if self.sees("GROUPING", "SETS"):
            self.advance(2)
            return [grouping for part in self._in_parentheses(self._groupings, "SETS") for grouping in part]
        word = next((w for w in ("ROLLUP", "CUBE") if self.sees(w) and self.following.token_type == TokenType.L_PAREN), None)
        if word is None:
            return [self._keys()]
        self.advance()
        keys = self._in_parentheses(self._keys, word)
        if word == "ROLLUP":
            return [tuple(chain.from_iterable(keys[:n])) for n in range(len(keys), -1, -1)]
        if len(keys) > 8:
            raise self.problem("CUBE of more than 8 keys", self.previous, "write the groupings that you want with GROUPING SETS")
        return [tuple(chain.from_iterable(some)) for n in range(len(keys), -1, -1) for some in combinations(keys, n)]

    def _in_parentheses(self, read: Callable[[], Part], word: str) -> list[Part]:
        self.expect_symbol(TokenType.L_PAREN, "(", f"after {word}")
        found = list(self.listed(read))
        self.expect_symbol(TokenType.R_PAREN, ")", f"at the end of {word}")
        return found

    def _keys(self) -> Grouping:
        """Read a key, or `(a, b)`, or `()`."""
        if self.sees_symbol(TokenType.L_PAREN) and self.token_at(1).token_type == TokenType.R_PAREN:
            self.advance(2)
            return ()
        node = self.expression_of("a grouping key")
        return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node,)

    def _item_of_select(self) -> statements.SelectItem | statements.Star:
        place = self.place()
        start = self.current.start if self.current else 0
        if self.takes_symbol(TokenType.STAR):
            return statements.Star(None, place)
        if self.following and self.following.token_type == TokenType.DOT and self._star_after_dot():
            qualifier = self.name("alias")
            self.advance(2)
            return statements.Star(qualifier, place)
        node = self.expression_of("an expression")
        text = self.slice_from(start)
        return statements.SelectItem(node, self._item_alias(), text, place)

    def _star_after_dot(self) -> bool:
        return self.token_at(2).token_type == TokenType.STAR

    def _item_alias(self) -> statements.Name | None:
        return self.alias(clause_words=CLAUSE_WORDS | {"FROM"})

    # -- the tail -------------------------------------------------------------------------------------------------------------

    def _tail(self) -> Tail:
        tail = Tail()
        while True:
            if self.takes_phrase("ORDER", "BY"):
                tail.order_by = self.listed(self.order_item)
            elif self.takes_symbol(TokenType.LIMIT):
                tail.limit = self.integer("LIMIT")
                tail.with_ties = self.takes("WITH", "TIES")
            elif self.sees("EMIT"):
                self._emit(tail)
            elif self.sees("WITH"):
                self.advance()
                tail.options += self.options()
            else:
                return tail

    def _emit(self, tail: Tail) -> None:
        place = self.place()
        self.advance()
        emit = self.emit_words()
        if tail.emit is None:
            tail.emit, tail.emit_place = emit, place
            return
        # EMIT EMPTY may stand beside one of the others; anything else twice is a contradiction.
        if emit.empty and not tail.emit.empty:
            tail.emit = replace(tail.emit, empty=True)
        elif tail.emit == EmitSpec(empty=True) and not emit.empty:
            tail.emit = replace(emit, empty=True)
        else:
            line, column = place.line, place.column
            raise Unsupported("EMIT is given twice", hint="keep one", line=line, column=column, token="EMIT")

    def emit_words(self) -> EmitSpec:
        """Read FINAL, CHANGES, EVERY d or EMPTY."""
        word = self.choice(("FINAL", "CHANGES", "EVERY", "EMPTY", "ON WINDOW CLOSE"), "after EMIT")
        every = self.duration("EVERY") if word == "EVERY" else 0
        kind = {"CHANGES": EmitKind.CHANGES, "EVERY": EmitKind.EVERY}.get(word, EmitKind.FINAL)
        return EmitSpec(kind, every, word == "EMPTY")
