"""What cannot be planned is refused with the clause, the place and the mend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data.errors import EngineError, InvalidDefinition, SyntaxProblem, TypeProblem, UnknownName, Unsupported

from tests.support.plans import make_catalog, plan

CASES = [
    ("SELECT name AS op, COUNT(*) FROM s GROUP BY name", TypeProblem, "marks its rows in a column op.*write EMIT FINAL", (1, 1)),
    ("SELECT COUNT(DISTINCT) FROM s", TypeProblem, r"COUNT\(DISTINCT\) names nothing", (1, 8)),
    (
        "SELECT n FROM (SELECT window_start, k AS n FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS]) [RANGE 4 SECONDS SLIDE 4 SECONDS]",
        TypeProblem,
        "the window adds a column window_start, and there is one already",
        (1, 86),
    ),
    ("SELECT k FROM s WHERE name LIKE 'a\\'", TypeProblem, "pattern ends with its escape character", (1, 23)),
    ("SELECT k FROM s WHERE name NOT ILIKE 'a' || '!' ESCAPE '!'", TypeProblem, "pattern ends with its escape character", (1, 23)),
    ("SELECT k FROM s WHERE name ~ '('", TypeProblem, "bad regular expression", (1, 23)),
    ("SELECT REGEXP_LIKE(name, name, 'q') FROM s", TypeProblem, "unknown regular expression flag 'q'", (1, 8)),
    ("SELECT REGEXP_REPLACE(name, 'x', '\\3') FROM s", TypeProblem, "requests 3 matches", (1, 8)),
    ("SELECT s.k FROM s SEMI JOIN r ON s.k = r.k", Unsupported, "SEMI is not supported.*write WHERE k IN", (1, 19)),
    ("SELECT s.k FROM s x JOIN r ANTI JOIN s ON x.k = r.k", Unsupported, "ANTI is not supported.*write WHERE NOT EXISTS", (1, 28)),
    ("SELECT s.k FROM s LATERAL JOIN r ON s.k = r.k", SyntaxProblem, "'LATERAL' is no kind of join.*ASOF JOIN; .* AS lateral", (1, 19)),
    ("SELECT s.k FROM s OUTER JOIN r ON s.k = r.k", SyntaxProblem, "'OUTER' is no kind of join.*LEFT JOIN", (1, 19)),
    ("SELECT SUM(v, 3) FROM s", TypeProblem, "SUM takes 1 argument, not 2", (1, 8)),
    ("SELECT MEDIAN(v, 0.3) FROM s", TypeProblem, "MEDIAN takes 1 argument, not 2", (1, 8)),
    ("SELECT STRING_AGG(name, ',', 'x') FROM s", TypeProblem, "STRING_AGG takes at most 2 arguments, not 3", (1, 8)),
    ("SELECT CAST(v AS INTERVAL DAY) FROM s", TypeProblem, r"takes no unit as a type.*CAST\(x AS INTERVAL\)", (1, 13)),
    (
        "SELECT c FROM (SELECT k, COUNT(*) AS c FROM s GROUP BY k) EMIT EMPTY",
        Unsupported,
        "EMIT EMPTY needs a tumbling or hopping window",
        (1, 16),
    ),
    (
        "SELECT MAX(c) FROM (SELECT k, COUNT(*) AS c FROM s GROUP BY k) EMIT EVERY 2 SECONDS",
        Unsupported,
        "EMIT EVERY of an aggregate over another without a window.*EMIT FINAL",
        (1, 1),
    ),
    ("SELECT COUNT(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)", Unsupported, "TUMBLE outside FROM", (1, 33)),
    ("SELECT 1e400 FROM s", TypeProblem, "out of the range of DOUBLE", (1, 8)),
    ("SELECT 0x1F FROM s", SyntaxProblem, "'0x1F' is not a number", (1, 8)),
    ("SELECT v FROM ss", UnknownName, "no stream or table ss.*did you mean s", (1, 15)),
    ("SELECT vv FROM s", UnknownName, r"no column vv.*did you mean v", (1, 8)),
    ("SELECT q.v FROM s", UnknownName, "no q in FROM", (1, 8)),
    ("SELECT s.v FROM s x", UnknownName, "no s in FROM", (1, 8)),
    ("SELECT q.* FROM s", UnknownName, "no q in FROM", (1, 8)),
    ("SELECT k FROM s JOIN r ON s.k = r.k WITHIN 1 SECOND", UnknownName, "column k is ambiguous.*r.k or s.k", (1, 8)),
    ("SELECT UPER(name) FROM s", UnknownName, "no function UPER.*did you mean UPPER", (1, 8)),
    ("SELECT DECIMAL(k, 2) FROM s", UnknownName, r"no function DECIMAL.*write CAST\(x AS DECIMAL\(12, 2\)\)", (1, 8)),
    ("SELECT VARCHAR(name) FROM s", UnknownName, r"no function VARCHAR.*write CAST\(x AS VARCHAR\)", (1, 8)),
    ("SELECT NOW() FROM s", UnknownName, "no function NOW.*clock", (1, 8)),
    ("SELECT k FROM s,\n s WHERE s.k = s.k", Unsupported, "s appears twice in FROM", (1, 16)),
    ("SELECT v + name FROM s", TypeProblem, r"DOUBLE \+ TEXT is not defined", (1, 8)),
    ("SELECT k FROM s WHERE k", TypeProblem, "WHERE must be a condition", (1, 23)),
    ("SELECT k FROM s WHERE k = 'a'", TypeProblem, "is not defined", (1, 23)),
    ("SELECT s.k FROM s JOIN r ON s.name = r.k WITHIN 1 SECOND", TypeProblem, "TEXT = INT is not defined", (1, 29)),
    ("SELECT CAST(k AS TINYTEXT) FROM s", SyntaxProblem, "'TINYTEXT' is not a type", (1, 13)),
    *(
        (f"SELECT CAST(v AS {kind}({part})) FROM s", TypeProblem, "is no whole number.*as in VARCHAR", (1, 13))
        for kind in ("DECIMAL", "VARCHAR", "TIMESTAMP", "CHAR")
        for part in ("k", "2.5", "'2'", "NULL", "1e3", "²", "9" * 30)
    ),
    ("SELECT CAST(v AS DECIMAL(10, k)) FROM s", TypeProblem, "K after DECIMAL is no whole number", (1, 13)),
    ("SELECT CAST('x' AS INT) FROM s", TypeProblem, "is not INT", (1, 13)),
    ("SELECT k, v FROM s GROUP BY k", TypeProblem, "column v must be in GROUP BY", (1, 11)),
    ("SELECT * FROM s GROUP BY k", TypeProblem, r"\* cannot stand beside GROUP BY", (1, 8)),
    ("SELECT k FROM s WHERE MAX(v) > 3", Unsupported, "cannot stand in WHERE; use HAVING", (1, 23)),
    ("SELECT SUM(MAX(v)) FROM s", Unsupported, "inside another", (1, 12)),
    ("SELECT SUM(*) FROM s", TypeProblem, r"SUM\(\*\) is not defined", (1, 8)),
    ("SELECT SUM(v) OVER (PARTITION BY k) FROM s", Unsupported, r"SUM OVER \( \)", (1, 8)),
    ("SELECT LAG(v, 0) OVER () FROM s", TypeProblem, "at least 1", (1, 8)),
    ("SELECT COUNT(*) FROM s GROUP BY 3", TypeProblem, "GROUP BY 3 is not a column", (1, 1)),
    ("SELECT k FROM s ORDER BY k", Unsupported, "ORDER BY without LIMIT", (1, 26)),
    ("SELECT k FROM s LIMIT 3", Unsupported, "LIMIT without ORDER BY", (1, 1)),
    ("SELECT k FROM s ORDER BY k LIMIT 3", Unsupported, "without a window", (1, 1)),
    ("SELECT k FROM s [RANGE 5 SECONDS] ORDER BY k LIMIT 3", Unsupported, r"LIMIT over \[RANGE 5 SECONDS\] is not", (1, 1)),
    ("SELECT k FROM s [PARTITION BY k ROWS 2] ORDER BY k LIMIT 3", Unsupported, r"LIMIT over \[PARTITION BY k ROWS 2\] is not", (1, 1)),
    (
        "SELECT k FROM (SELECT k, COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k) ORDER BY n LIMIT 3",
        Unsupported,
        "move it into the derived table that has the window",
        (1, 1),
    ),
    ("SELECT RANK() OVER (PARTITION BY k RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM s", Unsupported, r"a frame .*RANGE", (1, 8)),
    ("SELECT ~k FROM s", SyntaxProblem, "the text before ~ is missing.*x # -1", (1, 8)),
    ("SELECT k FROM s WHERE !~* 'a'", SyntaxProblem, r"the text before !~\* is missing", (1, 23)),
    ("SELECT COUNT(DISTINCT k, v) FROM s", TypeProblem, "COUNT takes one expression.*CONCAT_WS", (1, 8)),
    ("SELECT s.k FROM s JOIN r ON s.k = r.k", InvalidDefinition, "needs a bound in time.*WITHIN", (1, 19)),
    ("SELECT s.k FROM s, r WHERE s.k = r.k", InvalidDefinition, "needs a bound in time", (1, 18)),
    (
        "SELECT s.k FROM s JOIN r ON r.ts > s.ts + 5 SECONDS AND r.ts < s.ts",
        InvalidDefinition,
        "bounds in time contradict",
        (1, 19),
    ),
    ("SELECT s.k FROM s [ROWS 3] JOIN r [ROWS 3] ON s.k = r.k", Unsupported, "join of ROWS and ROWS windows", (1, 28)),
    ("SELECT s.k FROM s [ROWS 5] JOIN r ON s.k = r.k", Unsupported, "ROWS window on one side only", (1, 28)),
    ("SELECT s.k FROM s CROSS JOIN r", InvalidDefinition, "needs a bound in time", (1, 19)),
    ("SELECT s.k FROM s CROSS JOIN r ON s.k = r.k WITHIN 1 SECOND", SyntaxProblem, "CROSS JOIN takes no ON", (1, 32)),
    ("ISTREAM(SELECT k FROM tab)", Unsupported, "ISTREAM of a table is not supported.*EMIT CHANGES", (1, 1)),
    (
        "SELECT k FROM tab ORDER BY k LIMIT 3 WITH TIES",
        Unsupported,
        "ORDER BY … LIMIT over a change log.*without WITH TIES.*FETCH SELECT",
        (1, 1),
    ),
    (
        "SELECT k FROM tab WHERE k IN (SELECT k FROM tab)",
        Unsupported,
        "a subquery over a change log.*JOIN .SELECT DISTINCT.*FETCH SELECT",
        (1, 1),
    ),
    ("SELECT k FROM s EXCEPT SELECT k FROM tab", Unsupported, "EXCEPT over a change log.*WHERE k NOT IN", (1, 17)),
    ("SELECT k FROM s INTERSECT SELECT k FROM tab", Unsupported, "INTERSECT over a change log.*WHERE k IN", (1, 17)),
    ("SELECT SUM(k) OVER (ORDER BY k) AS r FROM tab", Unsupported, "a table has no event time; join it with itself", (1, 30)),
    ("SELECT s.k FROM s JOIN (SELECT k FROM tab) t ON s.k = t.k", Unsupported, "stream with rows that change.*by their names", (1, 19)),
    ("SELECT s.k FROM tab JOIN tab b ON tab.k = b.k WITHIN 1 SECOND JOIN s ON s.k = b.k", Unsupported, "no bound in time", (1, 21)),
    ("SELECT s.k FROM s JOIN tab ON s.v > 1", Unsupported, "join with a table needs an equality", (1, 19)),
    ("SELECT s.k FROM s FULL JOIN tab ON s.k = tab.k", Unsupported, "FULL a join with a table", (1, 19)),
    ("SELECT s.k FROM s JOIN tab ON s.k = tab.k WITHIN 1 SECOND", Unsupported, "WITHIN has no meaning", (1, 19)),
    ("SELECT s.k FROM s ASOF JOIN r ON s.k = r.k AND r.w > 1", Unsupported, "as-of join takes equalities", (1, 19)),
    (
        "SELECT s.k FROM s ASOF JOIN r ON s.k = r.k AND r.ts > s.ts + 5 SECONDS",
        Unsupported,
        "one comparison of the two event times",
        (1, 19),
    ),
    ("SELECT s.k FROM s LEFT ASOF JOIN r ON s.k = r.k AND r.ts >= s.ts", Unsupported, "wait for ever.*add WITHIN", (1, 19)),
    (
        "SELECT s.k FROM s LEFT ASOF JOIN r ON s.k = r.k AND r.ts >= s.ts AND s.v > 1 WITHIN 5 SECONDS",
        Unsupported,
        "no condition on the left alone .*put it in WHERE, or into the key",
        (1, 19),
    ),
    (
        "SELECT s.k FROM s JOIN r AS OF PROCTIME() ON s.k = r.k",
        Unsupported,
        "a stream has none .*write FOR SYSTEM_TIME AS OF left.ts",
        (1, 19),
    ),
    ("SELECT s.k FROM s JOIN r FOR SYSTEM_TIME AS OF NOW() ON s.k = r.k", UnknownName, "NOW", (1, 48)),
    ("SELECT s.k FROM s JOIN r FOR SYSTEM_TIME AS OF s.k ON s.k = r.k", TypeProblem, "takes the event time", (1, 19)),
    ("SELECT * FROM TUMBLE(s, v, 10 SECONDS)", InvalidDefinition, "v is not the event time.*it is ts", (1, 25)),
    ("SELECT * FROM s [RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'Mars']", InvalidDefinition, "'Mars' is not a time zone", (1, 52)),
    ("SELECT COUNT(*) FROM s [UNBOUNDED]", InvalidDefinition, "needs EMIT CHANGES or EMIT EVERY", (1, 1)),
    ("SELECT COUNT(*) FROM s [LANDMARK]", InvalidDefinition, "needs EMIT EVERY", (1, 1)),
    ("SELECT k FROM s [LANDMARK]", Unsupported, "without an aggregate", (1, 1)),
    ("SELECT k, COUNT(*) FROM s [NOW] GROUP BY k EMIT EMPTY", Unsupported, "needs a tumbling or hopping window", (1, 1)),
    (
        "SELECT k, COUNT(*) FROM s [RANGE 4 SECONDS SLIDE WITHIN 2 SECONDS] GROUP BY k EMIT EMPTY",
        Unsupported,
        "with keys and SLIDE WITHIN",
        (1, 1),
    ),
    ("SELECT k, LOCF(SUM(v)) FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k", Unsupported, "add EMIT EMPTY", (1, 1)),
    (
        "SELECT LOCF(v) FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] EMIT EMPTY",
        UnknownName,
        "no function LOCF.*stands around an aggregate",
        (1, 8),
    ),
    ("SELECT k, INTERPOLATE(AVG(v)) FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k", Unsupported, "add EMIT EMPTY", (1, 1)),
    (
        "SELECT INTERPOLATE(COUNT(*)) FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] EMIT EMPTY",
        TypeProblem,
        "takes a DOUBLE.*SUM.CAST.x AS DOUBLE",
        (1, 8),
    ),
    ("SELECT LOCF(1 + SUM(v)) FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] EMIT EMPTY", TypeProblem, "LOCF takes an aggregate", (1, 8)),
    ("SELECT COUNT(*) FROM s EMIT EMPTY", Unsupported, "needs a tumbling or hopping window", (1, 1)),
    ("SELECT k FROM s EMIT EVERY 5 SECONDS", Unsupported, "EMIT EVERY needs an aggregate", (1, 17)),
    ("SELECT k FROM (SELECT k FROM s EMIT CHANGES)", Unsupported, "EMIT belongs to the outermost query", (1, 32)),
    ("SELECT k FROM (SELECT k FROM s WITH (weight = 1))", Unsupported, "WITH options belong to the outermost", (1, 38)),
    ("SELECT k FROM (SELECT k, COUNT(*) FROM s GROUP BY k) [NOW]", Unsupported, "window over a change log", (1, 54)),
    ("RSTREAM(SELECT k FROM s)", Unsupported, "RSTREAM of rows that never leave", (1, 1)),
    ("ISTREAM(SELECT COUNT(*) FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS])", Unsupported, "ISTREAM over a HOPPING window", (1, 9)),
    ("SELECT k FROM s UNION ALL SELECT name FROM s", TypeProblem, "column k of UNION ALL is BIGINT and TEXT", (1, 1)),
    ("SELECT k FROM s UNION ALL SELECT k, v FROM s", TypeProblem, "have 1 and 2 columns", (1, 1)),
    ("SELECT k FROM s WITH (clas = gold)", UnknownName, "no option clas.*did you mean class", (1, 23)),
    ("SELECT k FROM s WITH (class = golden)", UnknownName, "no class golden.*did you mean gold", (1, 23)),
    ("SELECT k FROM s WITH (qos = '1s:1, 1s:0')", InvalidDefinition, "latencies of a qos graph must rise", (1, 23)),
    ("SELECT k FROM s WITH (qos = '1s:0, 2s:1')", InvalidDefinition, "utilities of a qos graph must not rise", (1, 23)),
    ("SELECT k FROM s WITH (deadline = 'soon')", InvalidDefinition, "option deadline", (1, 23)),
    (
        "SELECT COUNT(*) FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] WHERE ts > window_start",
        Unsupported,
        "cannot mix the window's bounds",
        (1, 1),
    ),
    ("SELECT MAX(window_end) FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS]", Unsupported, "bounds cannot stand inside an aggregate", (1, 1)),
    ("SELECT window_start FROM s [ROWS 5]", UnknownName, "no column window_start .*a ROWS window has bounds only", (1, 8)),
    ("SELECT k FROM s WHERE (k, v) IN ((1, 2))", Unsupported, "list in parentheses", (1, 24)),
    ("SELECT k FROM s [ROWS 2 SLIDE 3]", Unsupported, "SLIDE in a ROWS window without an aggregate", (1, 1)),
    ("RSTREAM(SELECT k FROM s [ROWS 3 SLIDE 2])", Unsupported, "SLIDE in a ROWS window without an aggregate", (1, 9)),
    ("SELECT SUM(v) FROM s [ROWS 5 SLIDE 2] EMIT EVERY 5 SECONDS", Unsupported, "EMIT EVERY over .ROWS n SLIDE m.", (1, 1)),
    (
        "SELECT s.v FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] JOIN r [RANGE 5 SECONDS SLIDE 5 SECONDS] ON s.window_start < r.window_end",
        Unsupported,
        "can only compare",
        (1, 1),
    ),
    ("SELECT ts AT TIME ZONE 'UTC' FROM s", Unsupported, "AT TIME ZONE", (1, 8)),
    ("SELECT v FROM s WHERE v > 1 AND", SyntaxProblem, "an expression is missing after 'AND'", (1, 29)),
    ("SELECT v + FROM s", SyntaxProblem, "an expression is missing before 'FROM'", (1, 12)),
    ("SELECT v FROM s WHERE (v = )", SyntaxProblem, "an expression is missing before '\\)'", (1, 28)),
    ("SELECT k FROM s WHERE v > 1 [RANGE 5 SECONDS]", Unsupported, r"a window .* in an expression.*before WHERE: FROM s \[RANGE", (1, 29)),
    ("SELECT LAG(v) FROM s", UnknownName, r"no function LAG without OVER.*write LAG\(…\) OVER", (1, 8)),
    ("SELECT CONT(*) FROM s", UnknownName, "no function CONT .*did you mean COUNT", (1, 8)),
    ("SELECT k FROM s WHERE k IN (ARRAY[1, 2])", TypeProblem, r"IN\(BIGINT, INT\[\]\) is not defined", (1, 23)),
    ("SELECT k.x FROM s", TypeProblem, "a BIGINT has no parts", (1, 8)),
    ("SELECT ROW(k AS a, v AS a) FROM s", TypeProblem, "the part a stands twice", (1, 8)),
    ("SELECT {'a': k}.b FROM s", UnknownName, "has no part b", (1, 8)),
    ("SELECT {'a': k}['a'] FROM s", TypeProblem, "named by a point.*write s.part", (1, 8)),
    ("SELECT MAP {'a': k}[1] FROM s", TypeProblem, r"named by its key.*map\['key'\]", (1, 12)),
    ("SELECT ARRAY[k, 'a'] FROM s", TypeProblem, "items of a list have one type", (1, 14)),
    ("SELECT ARRAY[k] < ARRAY[1] FROM s", TypeProblem, "have no order", (1, 14)),
    ("SELECT x FROM s [ROWS 5] CROSS JOIN UNNEST(ARRAY[s.k]) AS t(x)", Unsupported, r"behind a window of \[ROWS n\]", (1, 37)),
    ("SELECT ROW_NUMBER() OVER (ORDER BY ARRAY[k]) AS n FROM s", TypeProblem, r"BIGINT\[\] have no order and cannot be a key", None),
    ("SELECT k -> 'a' FROM s", TypeProblem, r"must be JSON, or TEXT that holds it.*CAST\(x AS JSON\)", (1, 8)),
    ("SELECT CAST('{}' AS JSON) -> k FROM s", SyntaxProblem, "a name in quotes or a number was expected after ->", (1, 30)),
    ("SELECT JSON_VALUE(name, 'a') FROM s", TypeProblem, "a JSON path begins with", (1, 8)),
    ("SELECT k FROM s, UNNEST(s.k) AS t(x)", TypeProblem, "UNNEST takes a list or a map, not BIGINT", (1, 18)),
    ("SELECT k FROM s [ROWS 3], UNNEST(ARRAY[k]) AS t(x)", Unsupported, r"UNNEST behind a window of \[ROWS n\].*to count items", (1, 27)),
    ("SELECT x FROM UNNEST(ARRAY[1]) AS t(x)", Unsupported, "UNNEST reads an item that stands before it", (1, 15)),
    ("SELECT k FROM s RIGHT JOIN UNNEST(ARRAY[1]) AS t(x) ON TRUE", Unsupported, "this join with UNNEST.*CROSS JOIN UNNEST", (1, 17)),
    ("SELECT k FROM s, UNNEST(ARRAY[1]) AS t(x, y)", InvalidDefinition, "UNNEST gives 1 columns here, not 2", (1, 18)),
    ("SELECT k << 2 FROM s", Unsupported, "<< is not supported.*power of two", (1, 8)),
]


@pytest.mark.parametrize(("text", "error", "message", "place"), CASES, ids=[c[0].replace("\n", " ") for c in CASES])
def test_a_query_is_refused_with_its_place(text: str, error: type[EngineError], message: str, place: tuple[int, int] | None) -> None:
    with pytest.raises(error, match=f"(?s){message}") as caught:
        plan(text)
    if place is not None:
        assert (caught.value.line, caught.value.column) == place


def _check(problem: EngineError) -> None:
    """A refusal says something, and nothing of the parser's inside."""
    assert problem.message
    assert "object at 0x" not in str(problem)


WORDS = [
    *["k", "v", "name", "ts", "d", "i", "window_start", "window_end", "s.k", "r.w", "COUNT(*)", "SUM(v)", "AVG(d)", "MAX(name)"],
    *["1", "2.5", "'x'", "NULL", "TRUE", "+", "-", "*", "/", "%", "||", "=", "<", ">", "AND", "OR", "NOT", "IS", "IN"],
    *["(", ")", ",", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST(k", "AS", "TEXT)", "COALESCE(", "UPPER("],
    *["EXTRACT(HOUR", "FROM", "ts)", "INTERVAL", "'5", "seconds'", "DISTINCT"],
]
SOURCES = (
    "s",
    "s [RANGE 10 SECONDS SLIDE 5 SECONDS]",
    "s [ROWS 5]",
    "s [RANGE 5 SECONDS]",
    "s JOIN r ON s.k = r.k WITHIN 5 SECONDS",
    "(SELECT k, v, ts FROM s) AS s",
    "s LEFT JOIN tab ON s.k = tab.k",
)
TAILS = ("", "GROUP BY k", "GROUP BY s.k, name HAVING COUNT(*) > 1", "EMIT CHANGES", "ORDER BY 1 LIMIT 2")
CATALOG = make_catalog()
soup = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)


@given(soup, st.sampled_from(SOURCES), soup, st.sampled_from(TAILS))
def test_any_query_is_planned_or_refused_and_never_breaks_the_planner(items: str, source: str, where: str, tail: str) -> None:
    try:
        plan(f"SELECT {items} FROM {source} WHERE {where} {tail}", catalog=CATALOG)
    except EngineError as problem:
        _check(problem)


ITEMS = st.lists(
    st.sampled_from(
        ["k", "v + 1", "UPPER(name)", "COUNT(*)", "SUM(v)", "AVG(d) * 2", "MAX(ts)", "window_end", "CASE WHEN v > 1 THEN k END"]
    ),
    min_size=1,
    max_size=4,
).map(", ".join)
CONDITIONS = st.lists(
    st.sampled_from(["v > 1", "k IN (1, 2)", "name LIKE 'a%'", "ts > '2024-01-01'", "d BETWEEN 1 AND 2.5", "NOT v IS NULL", "1 + 1 = 2"]),
    min_size=1,
    max_size=4,
).map(" AND ".join)


@given(ITEMS, st.sampled_from(SOURCES[:4]), CONDITIONS, st.sampled_from(["", "GROUP BY k, name, v", "GROUP BY k HAVING SUM(v) > 2"]))
def test_what_is_planned_runs_alike_from_its_plan_object(items: str, source: str, condition: str, tail: str) -> None:
    from millstream.engine.plan.plan_writer import to_plan_object

    try:
        planned = plan(f"SELECT {items} FROM {source} WHERE {condition} {tail}", catalog=CATALOG)
    except EngineError:
        return
    assert plan(to_plan_object(planned.bound), catalog=CATALOG).physical == planned.physical
    assert planned.physical.schema == plan(to_plan_object(planned.bound), catalog=CATALOG, off="all").physical.schema
