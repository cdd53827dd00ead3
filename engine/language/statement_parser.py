"""Every other statement, and the choice between them by the first word."""

from __future__ import annotations

from millstream.engine.data.errors import Unsupported
from millstream.engine.language.definition_parser import DefinitionParser
from millstream.engine.language.statements import (
    ChangeQuery,
    Describe,
    Drop,
    Explain,
    ExplainMode,
    Fetch,
    InsertSelect,
    InsertValues,
    ObjectKind,
    QueryVerb,
    Record,
    Recorded,
    SelectStatement,
    SetPolicy,
    Show,
    ShowWhat,
    Statement,
)
from millstream.engine.language.syntax import Name, Option
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

STATEMENT_WORDS = (
    *("SELECT", "CREATE", "INSERT", "DROP", "START", "STOP", "PAUSE", "RESUME", "SHOW", "DESCRIBE", "EXPLAIN", "SET"),
    *("FETCH", "WITH", "ISTREAM", "DSTREAM", "RSTREAM"),
)
_FOREIGN = {
    "UPDATE": "publish to a table upserts by its key",
    "DELETE": "publish to a table with op '-' deletes",
    "ALTER": "DROP it and CREATE it anew",
    "TRUNCATE": "DROP it and CREATE it anew",
    "MERGE": "publish to a table upserts by its key",
}


class StatementParser(DefinitionParser):
    """The whole grammar: one statement from the tokens it was given."""

    def statement(self) -> Statement:
        """Read one statement; all its tokens must be used."""
        result = self._statement()
        if not self.at_end():
            self.unexpected([])
        return result

    def _statement(self) -> Statement:
        if self.sees_query() or self.sees_symbol(TokenType.L_PAREN):
            query, text = self.query_with_text()
            return SelectStatement(query, text)
        if self.takes("CREATE"):
            return self.create()
        if self.takes("INSERT"):
            return self._insert()
        if self.takes("DROP"):
            return self._drop()
        for verb in QueryVerb:
            if self.takes(verb.value):
                if verb in (QueryVerb.START, QueryVerb.STOP) and self.takes("RECORDING"):
                    what = next((one for one in Recorded if self.takes(one.value)), Recorded.ARRIVALS)
                    return Record(what, verb is QueryVerb.START)
                self.expect("QUERY", where=f"after {verb.value}")
                return ChangeQuery(verb, self.name("query name"))
        return self._inspection()

    def _inspection(self) -> Statement:
        if self.takes("FETCH"):
            return self._fetch()
        if self.takes("SHOW"):
            return Show(ShowWhat(self.choice([w.value for w in ShowWhat], "after SHOW")))
        if self.takes("DESCRIBE") or self.takes("DESC"):
            found = next((kind for kind in ObjectKind if self._next and self.takes(kind.value)), None)
            return Describe(self.name("name"), found)
        if self.takes("EXPLAIN"):
            return self._explain()
        if self.takes("SET"):
            return self._set_policy()
        word = self._curr.text.upper() if self._curr else ""
        if word in _FOREIGN:
            place = self.place()
            raise Unsupported(f"{word} is not supported", hint=_FOREIGN[word], line=place.line, column=place.column, token=word)
        raise self.unexpected_error(STATEMENT_WORDS[:13])

    def _insert(self) -> Statement:
        self.expect("INTO", where="after INSERT")
        name = self.name("stream or table name")
        columns: tuple[Name, ...] = ()
        if self.sees_symbol(TokenType.L_PAREN) and not self._query_in_parentheses():
            self._advance()
            columns = self.listed(lambda: self.name("column name"))
            self.expect_symbol(TokenType.R_PAREN, ")", "after the columns")
        if self.takes("VALUES"):
            return InsertValues(name, columns, self.listed(self._row))
        if not self.sees_query():
            self.unexpected(["VALUES", "SELECT"])
        query, text = self.query_with_text()
        return InsertSelect(name, columns, query, text)

    def _query_in_parentheses(self) -> bool:
        return bool(self._next) and self._next.text.upper() in ("SELECT", "WITH")

    def _row(self) -> tuple[exp.Expr, ...]:
        self.expect_symbol(TokenType.L_PAREN, "(", "before a row of values")
        values = self.listed(lambda: self.expression_of("a value"))
        self.expect_symbol(TokenType.R_PAREN, ")", "after the row")
        return values

    def _drop(self) -> Statement:
        kind = ObjectKind(self.choice([k.value for k in ObjectKind], "after DROP"))
        exists_ok = self.takes("IF", "EXISTS")
        name = self.name(f"{kind.value.lower()} name")
        return Drop(kind, name, self.takes("CASCADE"), exists_ok)

    def _explain(self) -> Statement:
        mode = ExplainMode.PLAN
        for candidate in (ExplainMode.SEMANTICS, ExplainMode.ANALYZE, ExplainMode.QOS):
            if self._next and self.takes(candidate.value):
                mode = candidate
                break
        if self.sees_query():
            query, text = self.query_with_text()
            return Explain(mode, query=query, text=text)
        return Explain(mode, name=self.name("SELECT or the name of a query"))

    def _fetch(self) -> Statement:
        if self.sees("QUERY"):
            self._advance()
            return Fetch(name=self.name("query name"))
        if not self.sees_query():
            self.unexpected(["SELECT", "QUERY"], "after FETCH")
        query, text = self.query_with_text()
        return Fetch(query=query, text=text)

    def _set_policy(self) -> Statement:
        self.expect("POLICY", where="after SET")
        place = self.place()
        quoted = self.sees_symbol(TokenType.STRING)
        name = self.string("policy name").lower() if quoted else self.dashed_name("policy name")
        options: tuple[Option, ...] = ()
        if self._match(TokenType.WITH):
            options = self.options()
        return SetPolicy(Name(name, place), options)
