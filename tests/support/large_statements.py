"""Statements of every shape that can be made large, `n` parts each, and the streams they read."""

from __future__ import annotations

from collections.abc import Callable

STREAMS = (
    "CREATE STREAM s (k BIGINT, v BIGINT, x DOUBLE, d DECIMAL(10, 2), t TEXT, b BOOLEAN, ts TIMESTAMP) TIMESTAMP BY ts",
    "CREATE TABLE tab (k BIGINT PRIMARY KEY, v BIGINT)",
)
WIDE = f"CREATE STREAM wide ({', '.join(f'c{i} BIGINT' for i in range(500))}, ts TIMESTAMP) TIMESTAMP BY ts"
WINDOW = "[RANGE 1 SECOND SLIDE 1 SECOND]"


def _each(n: int, form: str, between: str = ", ") -> str:
    return between.join(form.format(i=i, next=i + 1) for i in range(n))


def _in(n: int, begin: str, inner: str, end: str) -> str:
    return begin * n + inner + end * n


SHAPES: dict[str, Callable[[int], str]] = {
    # chains of operators
    "+": lambda n: f"SELECT {_each(n, 'k', ' + ')} AS a FROM s",
    "-": lambda n: f"SELECT {_each(n, 'v', ' - ')} AS a FROM s",
    "*": lambda n: f"SELECT {_each(n, 'x', ' * ')} AS a FROM s",
    "+ of DECIMAL": lambda n: f"SELECT {_each(n, 'd', ' + ')} AS a FROM s",
    "+ of numbers": lambda n: f"SELECT {_each(n, '1', ' + ')} AS a FROM s",
    "+ of mixed types": lambda n: f"SELECT {_each(n, 'k + d - x', ' + ')} AS a FROM s",
    "+ of durations": lambda n: f"SELECT ts + {_each(n, '1 SECOND', ' + ')} AS a FROM s",
    "+ of products": lambda n: f"SELECT {_each(n, 'k * v % 7', ' + ')} AS a FROM s",
    "&": lambda n: f"SELECT {_each(n, 'k', ' & ')} AS a FROM s",
    "||": lambda n: f"SELECT {_each(n, 't', ' || ')} AS a FROM s",
    "|| of texts": lambda n: f"SELECT {_each(n, chr(39) + 'ab' + chr(39), ' || ')} AS a FROM s",
    "^": lambda n: f"SELECT {_each(n, 'x', ' ^ ')} AS a FROM s",
    "OR": lambda n: f"SELECT k FROM s WHERE {_each(n, 'k = {i}', ' OR ')}",
    "AND": lambda n: f"SELECT k FROM s WHERE {_each(n, 'k <> {next}', ' AND ')}",
    "AND of what may fail": lambda n: f"SELECT k FROM s WHERE {_each(n, 'v / k <> {i}', ' AND ')}",
    "AND of OR": lambda n: f"SELECT k FROM s WHERE {_each(n, '(k = {i} OR v > {i})', ' AND ')}",
    "OR as a column": lambda n: f"SELECT {_each(n, 'k = {i}', ' OR ')} AS a FROM s",
    "OR in ON": lambda n: f"SELECT a.k FROM s a JOIN s b ON a.k = b.k AND ({_each(n, 'a.v = b.v + {i}', ' OR ')}) WITHIN 1 SECOND",
    "OR in HAVING": lambda n: f"SELECT COUNT(*) AS n FROM s {WINDOW} HAVING {_each(n, 'COUNT(*) = {i}', ' OR ')}",
    "=": lambda n: f"SELECT k FROM s WHERE {_each(n, 'b', ' = ')}",
    # one in another
    "parentheses": lambda n: f"SELECT {_in(n, '(', 'k', ')')} AS a FROM s",
    "+ to the right": lambda n: f"SELECT {_in(n, '(v + ', 'k', ')')} AS a FROM s",
    "AND and OR": lambda n: f"SELECT k FROM s WHERE {_in(n, '(k = 1 AND (v = 2 OR ', 'b', '))')}",
    "NOT": lambda n: f"SELECT k FROM s WHERE {'NOT ' * n}b",
    "signs": lambda n: f"SELECT {'- ' * n}k AS a FROM s",
    "CASE in ELSE": lambda n: f"SELECT {_in(n, 'CASE WHEN k = 1 THEN 2 ELSE ', 'k', ' END')} AS a FROM s",
    "CASE in CASE": lambda n: f"SELECT {_in(n, 'CASE ', 'k', ' WHEN 1 THEN 2 WHEN 2 THEN 3 END')} AS a FROM s",
    "functions": lambda n: f"SELECT {_in(n, 'ABS(', 'k', ')')} AS a FROM s",
    "COALESCE": lambda n: f"SELECT {_in(n, 'COALESCE(v, ', 'k', ')')} AS a FROM s",
    "CAST": lambda n: f"SELECT {_in(n, 'CAST(CAST(', 'k', ' AS TEXT) AS BIGINT)')} AS a FROM s",
    "::": lambda n: f"SELECT k{'::TEXT::BIGINT' * n} AS a FROM s",
    "IS NULL": lambda n: f"SELECT k {'IS NULL ' * n} AS a FROM s",
    "BETWEEN": lambda n: f"SELECT {_in(n, '(', 'b', ' BETWEEN SYMMETRIC TRUE AND FALSE)')} AS a FROM s",
    "brackets": lambda n: f"SELECT t{'[1]' * n} AS a FROM s",
    # lists
    "CASE arms": lambda n: f"SELECT CASE {_each(n, 'WHEN k = {i} THEN {i}', ' ')} END AS a FROM s",
    "CASE of a chain": lambda n: f"SELECT CASE {_each(n, 'k', ' + ')} {_each(n, 'WHEN {i} THEN {i}', ' ')} END AS a FROM s",
    "COALESCE of many": lambda n: f"SELECT COALESCE({_each(n, 'k')}) AS a FROM s",
    "IN": lambda n: f"SELECT k FROM s WHERE k IN ({_each(n, '{i}')})",
    "IN of expressions": lambda n: f"SELECT k FROM s WHERE k IN ({_each(n, 'v + {i}')})",
    "columns": lambda n: f"SELECT {_each(n, 'k + {i} AS c{i}')} FROM s",
    "columns of a name": lambda n: f"SELECT {_each(n, 'k')} FROM s",
    "stars": lambda n: f"SELECT {_each(n, '*')} FROM s",
    "aggregates": lambda n: f"SELECT {_each(n, 'SUM(k + {i}) AS c{i}')} FROM s {WINDOW} GROUP BY k",
    "sum of aggregates": lambda n: f"SELECT {_each(n, 'SUM(k + {i})', ' + ')} AS a FROM s {WINDOW}",
    "keys": lambda n: f"SELECT COUNT(*) AS n FROM s {WINDOW} GROUP BY {_each(n, 'k + {i}')}",
    "keys and columns": lambda n: f"SELECT COUNT(*) AS n, {_each(n, 'k + {i} AS c{i}')} FROM s {WINDOW} GROUP BY {_each(n, 'k + {i}')}",
    "DISTINCT": lambda n: f"SELECT DISTINCT {_each(n, 'k + {i} AS c{i}')} FROM s {WINDOW}",
    "equal columns": lambda n: f"SELECT a.k FROM s a JOIN s b ON {_each(n, 'a.k + {i} = b.k + {i}', ' AND ')} WITHIN 1 SECOND",
    "LAG": lambda n: f"SELECT {_each(n, 'LAG(k, {next}) OVER () AS c{i}')} FROM s",
    "RANK": lambda n: (
        f"SELECT k, {_each(n, 'RANK() OVER (PARTITION BY window_start ORDER BY COUNT(*) + {i}) AS c{i}')} FROM s {WINDOW} GROUP BY k"
    ),
    "ORDER BY": lambda n: f"SELECT k FROM s {WINDOW} ORDER BY {_each(n, 'k + {i}')} LIMIT 3",
    "UNION ALL": lambda n: _each(n, "SELECT k FROM s WHERE k = {i}", " UNION ALL "),
    "common tables": lambda n: f"WITH c0 AS (SELECT k FROM s), {_each(n, 'c{next} AS (SELECT k + 1 AS k FROM c{i})')} SELECT k FROM c{n}",
    "common tables that double": lambda n: (
        f"WITH c0 AS (SELECT k FROM s), {_each(n, 'c{next} AS (SELECT k FROM c{i} UNION ALL SELECT k + 1 FROM c{i})')} SELECT k FROM c{n}"
    ),
    "common tables that nobody reads": lambda n: f"WITH {_each(n, 'c{i} AS (SELECT k FROM s)')} SELECT k FROM s",
    # queries in queries
    "derived tables": lambda n: f"SELECT k FROM {_in(n, '(SELECT k FROM ', 's', ')')}",
    "derived tables with WHERE": lambda n: f"SELECT k FROM {_in(n, '(SELECT k, v FROM ', 's', ' WHERE k > 1)')}",
    "expressions that double": lambda n: f"SELECT k FROM {_in(n, '(SELECT k + k AS k FROM ', 's', ')')}",
    "conditions that double": lambda n: f"SELECT b FROM {_in(n, '(SELECT b OR NOT b AS b FROM ', 's', ' WHERE b)')}",
    "stars that double": lambda n: f"SELECT * FROM {_in(n, '(SELECT *, * FROM ', 's', ')')}",
    "UNION ALL in UNION ALL": lambda n: f"SELECT k FROM {_in(n, '(SELECT k FROM s UNION ALL SELECT k FROM ', 's', ')')}",
    "aggregates of aggregates": lambda n: f"SELECT k FROM {_in(n, '(SELECT COUNT(*) AS k FROM ', 's', f' {WINDOW})')}",
    # joins
    "comma joins": lambda n: f"SELECT a0.k FROM {_each(n, f's {WINDOW} a{{i}}')} WHERE {_each(n - 1, 'a{i}.k = a{next}.k', ' AND ')}",
    "joins WITHIN": lambda n: f"SELECT a0.k FROM s a0 {_each(n - 1, 'JOIN s a{next} ON a0.k = a{next}.k WITHIN 1 SECOND', ' ')}",
    "joins with a table": lambda n: f"SELECT a0.k FROM s a0 {_each(n - 1, 'JOIN tab a{next} ON a0.k = a{next}.k AND a{next}.v > 3', ' ')}",
    "joins USING": lambda n: f"SELECT k FROM s {_each(n - 1, 'FULL JOIN s a{next} USING (k) WITHIN 1 SECOND', ' ')}",
    # what is no use
    "unclosed parentheses": lambda n: "SELECT " + "(" * n,
    "unclosed brackets": lambda n: "SELECT " + "[" * n,
    "unclosed comments": lambda n: "SELECT k FROM s " + "/* " * n,
    "comments": lambda n: f"SELECT k {'/**/ ' * n} FROM s",
    "comments in comments": lambda n: f"SELECT k {'/* ' * n}{'*/ ' * n} FROM s",
    "a long text": lambda n: f"SELECT '{'ab' * n}' AS a FROM s",
    "quotes": lambda n: f"SELECT '{chr(39) * 2 * n}' AS a FROM s",
    "a long name": lambda n: f"SELECT {'k' * n} FROM s",
    "a long number": lambda n: f"SELECT {'1' * n} AS a FROM s",
    "a long fraction": lambda n: f"SELECT 1.{'1' * n} AS a FROM s",
    "unknown names": lambda n: f"SELECT {_each(n, 'zz{i}')} FROM s",
    "options": lambda n: f"SELECT k FROM s WITH ({_each(n, 'o{i} = 1')})",
    "statements": lambda n: "SELECT k FROM s; " * n,
    "semicolons": lambda n: "; " * n + "SELECT k FROM s",
}
