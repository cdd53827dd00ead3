"""What people who know another system write, and what to write here: the one table, for errors and for docs/other-systems.md.

A row has a kind (where its words stand), the words, the systems that they come from, and what to write here. The words are a phrase of
tokens in upper case; in it `…` is any token, `9` a number, `'…'` a text. Alternatives are parted by ` | `. Words that work here, perhaps
as another name of something, need no row. `refusals.py` finds the row of a refused statement; nothing else reads this file, so it is
loaded when something is refused.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class WordPlace(Enum):
    """Where words stand: at the start of a statement, in CREATE, in a query, or as the name of a function, column or type."""

    STATEMENT = "statement"
    DEFINITION = "definition"
    CLAUSE = "clause"
    FUNCTION = "function"
    COLUMN = "column"
    TYPE = "type"


class ForeignWord(NamedTuple):
    """One row of the table. `ours` follows a semicolon in an error."""

    kind: WordPlace
    words: str
    systems: str
    ours: str

    @property
    def phrases(self) -> tuple[str, ...]:
        """The alternatives."""
        return tuple(self.words.split(" | "))


_ROW_NUMBER = "SELECT … FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM s) WHERE n = 1"
_VIEW = "write CREATE MATERIALIZED VIEW name AS SELECT …, or over a window CREATE QUERY name AS SELECT …; FETCH SELECT … FROM name reads it"
_DERIVED = "write CREATE STREAM name AS SELECT … if other queries read it, or WITH name AS (SELECT …) inside one query"
_WINDOW = "write the window after the stream's name: FROM s [RANGE 10 MINUTES SLIDE 10 MINUTES]; window_start and window_end are its bounds"
_JSON = "write j ->> 'name', j #>> '{list, 0, name}' or JSON_VALUE(j, '$.list[0].name'); a column may be declared JSON"
_TO_JSON = "write CAST(x AS JSON); of several values, CAST({'a': x, 'b': y} AS JSON)"
_NESTED = "write {'a': x}, MAP {'k': x} or ARRAY[x, y]"
_UNNEST = "write FROM s CROSS JOIN UNNEST(s.list) AS t(item)"
_CLOCK = "answers must not depend on the clock; use CURRENT_WATERMARK(), or the event time of a stream TIMESTAMP BY ARRIVAL"
_OWN = "write your own: CREATE FUNCTION name (t TEXT) RETURNS TEXT FROM 'file.py'"
_FOLLOWS = "write FROM s MATCH_RECOGNIZE (… PATTERN (a b+) WITHIN 10 SECONDS DEFINE …), or join: b.ts BETWEEN a.ts AND a.ts + 10 SECONDS"
_GAPS = "write FROM s [RANGE 5 MINUTES SLIDE 5 MINUTES] GROUP BY k EMIT EMPTY, and LOCF(AVG(x)) or INTERPOLATE(AVG(x))"
_UPSERT = "a row published to a table replaces the row with its key; a row whose column op is '-' deletes it"

STATEMENTS = (
    ("CREATE VIEW | CREATE TEMPORARY VIEW | CREATE TEMP VIEW", "PostgreSQL, Flink, Spark", _DERIVED),
    ("CREATE OR REPLACE VIEW | CREATE OR REPLACE TEMP VIEW | CREATE OR REPLACE TEMPORARY VIEW", "PostgreSQL, Spark", _DERIVED),
    (
        "CREATE STREAM … WITH ( | CREATE TABLE … WITH (",
        "ksqlDB, Flink",
        "leave WITH (…) out: rows come from publishers, and results go to subscribers",
    ),
    ("CREATE TABLE … AS", "ksqlDB, Spark, PostgreSQL", _VIEW),
    ("CREATE SCHEMA", "Esper, PostgreSQL", "write CREATE STREAM name (ts TIMESTAMP, …) TIMESTAMP BY ts; names have no schemas"),
    ("CREATE WINDOW", "Esper", "write CREATE TABLE name (…, PRIMARY KEY (k)) for the last row of each key, or a window in each query"),
    ("CREATE CONTEXT | CONTEXT", "Esper", "write GROUP BY k, and a window after the stream's name: FROM s [SESSION 5 MINUTES]"),
    ("CREATE VARIABLE", "Esper", "keep the value in a table of one row and join it: s JOIN settings ON settings.id = s.setting"),
    ("CREATE EXPRESSION | CREATE TEMPORARY FUNCTION | CREATE AGGREGATE", "Esper, Flink, PostgreSQL, Spark", _OWN),
    (
        "CREATE INDEX | CREATE UNIQUE",
        "PostgreSQL, Esper",
        "a table is found by its PRIMARY KEY, and joins keep their own state; leave it out",
    ),
    ("CREATE TRIGGER", "PostgreSQL", "write CREATE QUERY alerts AS SELECT … WHERE …, and read it with millstream tail alerts"),
    ("CREATE CONTINUOUS QUERY", "InfluxDB", "write CREATE QUERY name AS SELECT … FROM s [RANGE 1 HOUR SLIDE 1 HOUR]"),
    (
        "CREATE RETENTION | SHOW RETENTION",
        "InfluxDB",
        "the server keeps rows of durable streams for journal_kept_s, as its configuration says",
    ),
    ("CREATE DATABASE | CREATE CATALOG | USE", "PostgreSQL, Flink, Spark, InfluxDB", "a server has one catalogue, and it is in use"),
    (
        "CREATE CONNECTOR | CREATE SOURCE CONNECTOR | CREATE SINK CONNECTOR",
        "ksqlDB",
        "write CREATE SOURCE name INTO stream WITH (connector = '…'), or CREATE SINK name FROM query WITH (connector = '…')",
    ),
    ("CREATE TYPE | CREATE DOMAIN", "ksqlDB, PostgreSQL", "columns have the types of docs/language.md"),
    ("UPDATE | DELETE | MERGE | UPSERT", "PostgreSQL, Spark, Esper", _UPSERT),
    (
        "ALTER STREAM … DROP | ALTER STREAM … RENAME | ALTER STREAM … ALTER | ALTER STREAM … SET",
        "ksqlDB, PostgreSQL, Flink",
        "ALTER STREAM name ADD COLUMN c type is all that changes a stream; CREATE STREAM other AS SELECT … shows it in another shape",
    ),
    (
        "ALTER QUERY … RENAME | ALTER QUERY … RESET",
        "PostgreSQL",
        "ALTER QUERY name SET (class = 'gold') changes its options; CREATE OR REPLACE QUERY name AS SELECT … its SELECT",
    ),
    (
        "ALTER TABLE",
        "PostgreSQL, Flink, Spark",
        "CREATE OR REPLACE TABLE name (…) makes it anew, and a stream takes ALTER STREAM … ADD COLUMN",
    ),
    ("ALTER CLASS | ALTER FUNCTION | ALTER SOURCE | ALTER SINK", "PostgreSQL", "write CREATE OR REPLACE …, with all its clauses"),
    ("ALTER SYSTEM", "ksqlDB, PostgreSQL", "the server has its settings from its configuration"),
    ("ALTER | TRUNCATE", "PostgreSQL, Flink, ksqlDB, Spark", "DROP it and CREATE it anew"),
    ("COMMENT ON COLUMN", "PostgreSQL", "write COMMENT ON STREAM name IS '…', and name the column in it"),
    ("COMMENT ON VIEW", "PostgreSQL", "write COMMENT ON STREAM name IS '…', or COMMENT ON MATERIALIZED VIEW name IS '…'"),
    ("COPY", "PostgreSQL", "write millstream publish name FILE in a shell; a table can also be CREATE TABLE … FROM 'file'"),
    ("LISTEN | NOTIFY", "PostgreSQL", "write millstream tail name in a shell, or ms.subscribe(name) in Python"),
    (
        "SUBSCRIBE | TAIL",
        "Materialize",
        "write millstream tail name in a shell, ms.subscribe(name) in Python, or COPY (SUBSCRIBE name) TO STDOUT in psql",
    ),
    ("BEGIN | COMMIT | ROLLBACK", "PostgreSQL", "each statement takes effect as a whole by itself; leave it out"),
    ("EXECUTE | PREPARE", "Flink, PostgreSQL, Spark", "send each statement by itself; queries that are alike share their work"),
    ("ANALYZE | VACUUM | OPTIMIZE | CACHE | REFRESH", "PostgreSQL, Spark", "there is nothing to do: costs are measured while queries run"),
    ("GRANT | REVOKE", "PostgreSQL", "rights come with tokens, which the server's configuration lists"),
    ("LIST", "ksqlDB", "write SHOW STREAMS, SHOW TABLES or SHOW QUERIES"),
    ("SHOW TOPICS | SHOW MEASUREMENTS | SHOW DATABASES", "ksqlDB, InfluxDB", "write SHOW STREAMS"),
    ("PRINT", "ksqlDB", "write CREATE QUERY all_rows AS SELECT * FROM s, then millstream tail all_rows in a shell"),
    ("TERMINATE | KILL", "ksqlDB, InfluxDB", "write STOP QUERY name, or DROP QUERY name"),
    ("SHOW JOBS", "Flink", "write SHOW QUERIES"),
    ("SHOW QUERIES EXTENDED", "ksqlDB", "write SHOW QUERIES, then EXPLAIN name for one of them"),
    ("\\ …", "PostgreSQL", "write SHOW STREAMS, SHOW QUERIES or DESCRIBE name; the shell's own commands stand in its help"),
    ("HELP", "PostgreSQL, ksqlDB", "start the shell with millstream sql and write help there, or see docs/language.md"),
    ("STOP JOB", "Flink", "write STOP QUERY name"),
    (
        "SHOW VIEWS | SHOW MATERIALIZED",
        "Flink, Spark",
        "write SHOW QUERIES for materialized views, SHOW STREAMS for derived streams",
    ),
    ("SHOW COLUMNS | SHOW CREATE | SHOW FIELD | SHOW TAG | SHOW SERIES", "Flink, Spark, InfluxDB", "write DESCRIBE name"),
    ("SHOW CONTINUOUS", "InfluxDB", "write SHOW QUERIES"),
    ("DESCRIBE EXTENDED | DESCRIBE FORMATTED", "Flink, ksqlDB, Spark", "write DESCRIBE name, or EXPLAIN name for a query"),
    ("EXPLAIN PLAN FOR | EXPLAIN ( …", "Flink, PostgreSQL", "write EXPLAIN SELECT …"),
    ("EXPLAIN FETCH", "Millstream", "write EXPLAIN SELECT …: FETCH runs the same operators"),
    (
        "SET '…' | SET … = | SET … . | RESET | DEFINE | UNSET",
        "Flink, ksqlDB, Spark, PostgreSQL",
        "SET POLICY name is the only SET; a query takes WITH (…), the server its configuration",
    ),
    ("ADD JAR | ADD FILE | LOAD MODULE", "Flink, Spark", _OWN),
    ("INSERT OVERWRITE", "Flink, Spark", _UPSERT),
    ("INSERT INTO TABLE", "Spark", "leave TABLE out: INSERT INTO name SELECT …"),
    ("INSERT … ,", "InfluxDB", "write INSERT INTO name (column, …) VALUES (…, …), or millstream publish name FILE in a shell"),
    (
        "INSERT IRSTREAM | INSERT ISTREAM | INSERT RSTREAM",
        "Esper",
        "write INSERT INTO name ISTREAM(SELECT …), or DSTREAM(SELECT …) for rows that leave",
    ),
    ("ON", "Esper", "join the two: FROM a JOIN b ON a.k = b.k WITHIN 10 SECONDS"),
    ("@ …", "Esper", "write CREATE QUERY name AS SELECT …"),
    ("FROM (", "InfluxDB (Flux)", "write SELECT AVG(x) FROM s [RANGE 5 MINUTES SLIDE 5 MINUTES] WHERE … GROUP BY k"),
    (
        "DROP VIEW",
        "PostgreSQL, Flink, Spark",
        "write DROP STREAM name for a derived stream, DROP MATERIALIZED VIEW name for a view whose rows are kept",
    ),
    ("DROP MEASUREMENT | DROP SERIES | DROP CONTINUOUS", "InfluxDB", "write DROP STREAM name, or DROP QUERY name"),
)

DEFINITIONS = (
    (
        "WITH (",
        "Flink, ksqlDB",
        "rows come from clients: leave WITH (…) out and write TIMESTAMP BY ts, then millstream publish name FILE",
    ),
    ("WATERMARK FOR", "Flink", "a table has no event time; write CREATE STREAM"),
    ("NOT ENFORCED", "Flink", "leave it out"),
    ("PRIMARY KEY | KEY | HEADERS", "ksqlDB, Flink", "a stream has no key, so leave it out; CREATE TABLE takes PRIMARY KEY (k)"),
    ("METADATA", "Flink", "publishers send every column; leave METADATA out"),
    ("AS PROCTIME", "Flink", "leave the column out: without TIMESTAMP BY, a stream's time is that of arrival"),
    ("AS", "Flink, Esper", "a column is a name and a type; compute others in a query: CREATE STREAM name AS SELECT …"),
    (
        "REFERENCES | DEFAULT | UNIQUE | CHECK | GENERATED | COMMENT | COLLATE",
        "PostgreSQL, Flink, Spark",
        "a column is a name, a type and perhaps NOT NULL",
    ),
    ("USING | PARTITIONED | CLUSTERED | LOCATION | TBLPROPERTIES", "Spark", "leave it out; a table can be filled by FROM 'file.parquet'"),
    ("INHERITS | LIKE", "Esper, PostgreSQL, Flink", "list the columns"),
    ("STARTTIMESTAMP", "Esper", "write TIMESTAMP BY column after the columns"),
)

CLAUSES = (
    ("QUALIFY", "Spark", f"filter a derived table: {_ROW_NUMBER}"),
    ("PATTERN [ …", "Esper", _FOLLOWS),
    ("PIVOT (", "Spark", "write one column for each value: SUM(x) FILTER (WHERE k = 'a') AS a"),
    ("UNPIVOT (", "Spark", "write SELECT 'a' AS k, a AS x FROM s UNION ALL SELECT 'b' AS k, b AS x FROM s"),
    ("WINDOW TUMBLING", "ksqlDB", "write the window after the stream's name: FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]"),
    ("WINDOW HOPPING", "ksqlDB", "write the window after the stream's name: FROM s [RANGE 1 MINUTE SLIDE 10 SECONDS]"),
    ("WINDOW SESSION", "ksqlDB", "write the window after the stream's name: FROM s [SESSION 5 MINUTES]"),
    ("WINDOW … AS", "PostgreSQL, Flink, Spark", "write the window after the stream's name: FROM s [ROWS 3] or FROM s [RANGE 1 HOUR]"),
    ("GRACE PERIOD", "ksqlDB", "say how late rows may be in CREATE STREAM … DELAY 1 MINUTE"),
    (
        "EMIT ON | EMIT WINDOW | EMIT AFTER",
        "RisingWave, Flink",
        "EMIT FINAL, the default, answers when a window closes; EMIT EVERY 10 SECONDS meanwhile",
    ),
    ("FROM … PARTITION BY", "ksqlDB", "rows need no new partitions; leave it out"),
    (
        "LATERAL VIEW | LATERAL ( | LATERAL TABLE ( | UNNEST (",
        "Spark, PostgreSQL, Flink",
        _UNNEST,
    ),
    ("TABLESAMPLE (", "PostgreSQL, Spark", "take a share of the keys, as in WHERE id % 10 = 0; under overload a class with SHED samples"),
    ("FOR UPDATE | FOR SHARE", "PostgreSQL", "nothing is locked; leave it out"),
    (
        "LEFT SEMI | SEMI",
        "Spark",
        "write WHERE k IN (SELECT k FROM …), of a table or the same window; or JOIN, and SELECT DISTINCT if a row may find several",
    ),
    (
        "LEFT ANTI | ANTI",
        "Spark",
        "write WHERE NOT EXISTS (SELECT …), of a table or the same window; or LEFT JOIN b ON … WITHIN 10 SECONDS WHERE b.k IS NULL",
    ),
    ("NATURAL", "PostgreSQL, Spark", "write JOIN … USING (column, …) with a time bound"),
    ("MINUS SELECT", "Spark", "write EXCEPT"),
    ("WITH RECURSIVE …", "PostgreSQL", "only plain common table expressions are known"),
    ("LIMIT 9 OFFSET | OFFSET 9 ROWS | FETCH FIRST | FETCH NEXT", "PostgreSQL, Flink", "write ORDER BY … LIMIT k"),
    ("SORT BY | DISTRIBUTE BY | CLUSTER BY", "Spark", "write ORDER BY … LIMIT k over a window"),
    ("FILL (", "InfluxDB", "EMIT EMPTY answers windows without rows; COALESCE(SUM(x), 0) or LOCF(SUM(x)) fills their NULLs"),
    ("GAP_FILL (", "RisingWave", _GAPS),
    ("TIME ( 9 …", "InfluxDB", "write the window after the stream's name: FROM s [RANGE 5 MINUTES SLIDE 5 MINUTES]"),
    ("SLIMIT | SOFFSET", "InfluxDB", "write ORDER BY … LIMIT k over a window"),
    ("TZ (", "InfluxDB", "give the window its zone: FROM s [RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'Europe/Rome']"),
    ("INTO … FROM", "InfluxDB, PostgreSQL", "write INSERT INTO name SELECT … FROM s"),
    ("# TIME ( | . WIN : TIME ( | # EXT_TIMED (", "Esper", "write FROM s [RANGE 30 SECONDS]"),
    ("# TIME_BATCH ( | . WIN : TIME_BATCH (", "Esper", "write FROM s [RANGE 30 SECONDS SLIDE 30 SECONDS]"),
    ("# LENGTH ( | . WIN : LENGTH (", "Esper", "write FROM s [ROWS 10]"),
    ("# LENGTH_BATCH ( | . WIN : LENGTH_BATCH (", "Esper", "write FROM s [ROWS 10 SLIDE 10]"),
    ("# GROUPWIN ( | . STD : GROUPWIN (", "Esper", "write FROM s [PARTITION BY k ROWS 10]"),
    ("# UNIQUE ( | . STD : UNIQUE ( | # FIRSTUNIQUE (", "Esper", "write FROM s [PARTITION BY k ROWS 1]"),
    ("# LASTEVENT | . STD : LASTEVENT", "Esper", "write FROM s [ROWS 1]"),
    ("# KEEPALL | . WIN : KEEPALL", "Esper", "write FROM s [UNBOUNDED]"),
    ("# … ( | . WIN | . STD | . EXT", "Esper", "a window stands in brackets: [RANGE 30 SECONDS], [ROWS 10], [SESSION 5 MINUTES]"),
    ("OUTPUT EVERY | OUTPUT LAST | OUTPUT ALL | OUTPUT FIRST", "Esper", "write EMIT EVERY 10 SECONDS at the end"),
    ("OUTPUT SNAPSHOT", "Esper", "write RSTREAM(SELECT … EVERY 10 SECONDS)"),
    ("OUTPUT WHEN | OUTPUT AFTER | OUTPUT AT", "Esper", "write HAVING for a condition, EMIT EVERY 10 SECONDS for a time"),
    ("SELECT IRSTREAM * …", "Esper", "EMIT CHANGES at the end shows rows that enter and that leave"),
    ("SELECT RSTREAM * …", "Esper", "DSTREAM(SELECT …) gives the rows that leave a window"),
    ("SELECT ISTREAM * …", "Esper", "ISTREAM(SELECT …) gives the rows that enter a window"),
    ("@ > | < @ | ? &", "PostgreSQL", _JSON),
    ("& &", "MySQL, ksqlDB", "write AND"),
    ("= ~ | ! ~ /", "InfluxDB", "write x ~ 'pattern'"),
    ("` … ` | ` …", "Flink, ksqlDB, Spark", 'write "name" in double quotes, or plain where it is one lower-case word'),
    ("* * 9", "Spark", "write POWER(x, y) or x ^ y"),
    ("/ / | DIV 9", "Spark, DuckDB", "x / y of whole numbers drops the fraction"),
    ("SIMILAR TO | RLIKE | REGEXP", "PostgreSQL, Spark, Flink", "write x ~ 'pattern'"),
    ("LIKE ALL", "Spark, PostgreSQL", "write x LIKE 'a%' AND x LIKE 'b%'"),
    ("EXCLUDE ( | EXCEPT ( … )", "Spark, DuckDB", "list the columns"),
    ("OVERLAPS", "PostgreSQL, Flink", "compare the bounds: a.start < b.stop AND b.start < a.stop"),
    (
        "9 S | 9 M | 9 H | 9 D | 9 W | 9 MS | 9 US | 9 NS | 9 SEC | 9 MIN | 9 MSEC | 9 HR",
        "InfluxDB, Esper",
        "write the unit as a word: 10 SECONDS, 5 MINUTES, 1 HOUR, 100 MILLISECONDS",
    ),
    ("| >", "InfluxDB (Flux)", "write SELECT AVG(x) FROM s [RANGE 5 MINUTES SLIDE 5 MINUTES] WHERE … GROUP BY k"),
    ("UNIDIRECTIONAL", "Esper", "write FROM a JOIN b [RANGE 30 SECONDS] ON a.k = b.k"),
    ("RETAIN - UNION | RETAIN - INTERSECTION", "Esper", "an item takes one window; use a query for each"),
    ("RETENTION 9", "ksqlDB", "kept results are bounded by the server's configuration; leave it out"),
    ("TOP 9", "SQL Server", "write ORDER BY … LIMIT k over a window"),
)

FUNCTIONS = (
    ("ROLLUP | CUBE | GROUPING", "PostgreSQL, Flink, Spark", "they stand behind GROUP BY: GROUP BY ROLLUP (a, b); GROUPING(k) beside them"),
    (
        "NOW | CURRENT_TIMESTAMP | LOCALTIMESTAMP | CURRENT_DATE | CURRENT_TIME | GETDATE | CURRENT_ROW_TIMESTAMP | UTC_TIMESTAMP",
        "PostgreSQL, Flink, Spark, InfluxDB",
        _CLOCK,
    ),
    ("PROCTIME | PROCESSING_TIME", "Flink", "without TIMESTAMP BY, a stream's event time is that of arrival"),
    ("RANDOM | RAND | UUID | GEN_RANDOM_UUID", "PostgreSQL, Flink, Spark", "answers must be the same on every run"),
    ("WINDOW", "Spark, Esper", _WINDOW),
    ("SESSION_WINDOW", "Spark", "write the window after the stream's name: FROM s [SESSION 5 MINUTES]"),
    ("TIME_SLICE", "PostgreSQL, InfluxDB", _WINDOW),
    ("LOCF | INTERPOLATE", "TimescaleDB, RisingWave", "it stands around an aggregate, in a query with EMIT EMPTY: LOCF(AVG(x))"),
    ("TIME_BUCKET_GAPFILL | DATE_BIN_GAPFILL", "TimescaleDB, InfluxDB", _GAPS),
    (
        "TUMBLE_START | TUMBLE_END | TUMBLE_ROWTIME | HOP_START | HOP_END | HOP_ROWTIME | SESSION_START | SESSION_END | SESSION_ROWTIME",
        "Flink",
        "select window_start, window_end or window_time",
    ),
    (
        "JSON_EXTRACT | JSON_EXTRACT_PATH_TEXT | JSONB_EXTRACT_PATH_TEXT | EXTRACTJSONFIELD | GET_JSON_OBJECT | JSON_TUPLE",
        "Flink, ksqlDB, PostgreSQL, Spark",
        _JSON,
    ),
    (
        "CRC32 | HASH | XXHASH64 | HASHTEXT",
        "PostgreSQL, Flink, Spark",
        _OWN,
    ),
    ("SHA2", "Flink, Spark", "write SHA256(x), or another of SHA1, SHA224, SHA384 and SHA512; ENCODE(SHA256(x), 'hex') is TEXT"),
    ("BASE64 | TO_BASE64", "Spark, ksqlDB", "write ENCODE(b, 'base64')"),
    ("UNBASE64 | FROM_BASE64", "Spark, ksqlDB", "write DECODE(t, 'base64')"),
    ("HEX | UNHEX", "Spark", "write ENCODE(b, 'hex') or DECODE(t, 'hex')"),
    ("TO_JSON | TO_JSONB | ROW_TO_JSON | JSON_OBJECT | JSON_BUILD_OBJECT | JSON_ARRAY", "PostgreSQL, Flink, Spark", _TO_JSON),
    ("FROM_JSON | JSON_TO_RECORD", "Spark, PostgreSQL", "write CAST(j AS STRUCT(a INT, b TEXT))"),
    ("NAMED_STRUCT | MAKE_ARRAY | AS_MAP", "Spark, Esper, ksqlDB", _NESTED),
    ("EXPLODE | UNNEST | POSEXPLODE | INLINE", "Spark, PostgreSQL, ksqlDB", _UNNEST),
    ("GENERATE_SERIES | REGEXP_SPLIT_TO_TABLE", "PostgreSQL", "publish one row for each element"),
    ("ANY | SOME", "PostgreSQL", "write x IN (1, 2), x LIKE 'a%' OR x LIKE 'b%', or ARRAY_CONTAINS(list, x)"),
    ("LATEST_BY_OFFSET | LASTEVER", "ksqlDB, Esper", "write LAST(x)"),
    ("EARLIEST_BY_OFFSET | FIRSTEVER", "ksqlDB, Esper", "write FIRST(x)"),
    ("ANY_VALUE", "PostgreSQL, Spark", "write FIRST(x)"),
    ("COLLECT", "Flink", "write ARRAY_AGG(x), or COLLECT_SET(x)"),
    ("TOPKDISTINCT", "ksqlDB", "write TOP(DISTINCT x, k)"),
    ("PERCENTILE | PERCENTILE_EXACT", "InfluxDB, Spark", "write PERCENTILE_CONT(x, 0.95)"),
    ("PERCENTILE_APPROX", "Spark", "write APPROX_PERCENTILE(x, 0.95)"),
    ("HLL | HLL_SKETCH_ESTIMATE | COUNT_DISTINCT", "Spark, ksqlDB, Esper", "write COUNT(DISTINCT x), or APPROX_COUNT_DISTINCT(x)"),
    ("SPREAD | RANGE", "InfluxDB", "write MAX(x) - MIN(x)"),
    ("BOTTOM", "InfluxDB", "write ORDER BY x LIMIT k over a window"),
    (
        "DERIVATIVE | NON_NEGATIVE_DERIVATIVE | RATE",
        "InfluxDB, Esper",
        "write (x - LAG(x) OVER (PARTITION BY k)) / EXTRACT(EPOCH FROM ts - LAG(ts) OVER (PARTITION BY k))",
    ),
    ("DIFFERENCE | NON_NEGATIVE_DIFFERENCE", "InfluxDB", "write x - LAG(x) OVER (PARTITION BY k)"),
    ("ELAPSED", "InfluxDB", "write ts - LAG(ts) OVER (PARTITION BY k)"),
    ("MOVING_AVERAGE", "InfluxDB", "write SELECT AVG(x) FROM s [ROWS 5], or FROM s [PARTITION BY k ROWS 5] for each k"),
    ("CUMULATIVE_SUM", "InfluxDB", "write ISTREAM(SELECT SUM(x) AS total FROM s)"),
    ("PREV | PRIOR", "Esper", "write LAG(x, 1) OVER (PARTITION BY k)"),
    ("AVEDEV", "Esper", "write STDDEV(x)"),
    ("UNIX_TIMESTAMP | TO_UNIX_TIMESTAMP", "Flink, Spark, ksqlDB", "write EXTRACT(EPOCH FROM ts)"),
    (
        "TO_TIMESTAMP_LTZ | TIMESTAMP_MILLIS | FROM_UNIXTIME_MILLIS",
        "Flink, Spark",
        "a BIGINT can be the event time: TIMESTAMP BY at UNIT ms; as a value write TO_TIMESTAMP(at / 1000.0)",
    ),
    (
        "STRINGTOTIMESTAMP | STR_TO_DATE | TO_DATE | PARSE_DATE",
        "ksqlDB, Spark, PostgreSQL",
        "write TO_TIMESTAMP(t, 'DD/MM/YYYY'), CAST(t AS TIMESTAMP), or CAST(t AS DATE)",
    ),
    (
        "DATE_FORMAT | FORMAT_TIMESTAMP | TIMESTAMPTOSTRING | FORMAT_DATE",
        "Flink, ksqlDB, Spark",
        "write TO_CHAR(ts, 'YYYY-MM-DD HH24:MI:SS')",
    ),
    (
        "CONVERT_TZ | FROM_UTC_TIMESTAMP | TO_UTC_TIMESTAMP | TIMEZONE",
        "Flink, Spark, PostgreSQL",
        "a TIMESTAMP is an instant; write TO_CHAR(ts, 'YYYY-MM-DD HH24:MI:SS', 'Asia/Tokyo')",
    ),
    ("DATE_ADD | DATEADD | TIMESTAMPADD | DATE_SUB", "Spark, Flink, ksqlDB", "write ts + INTERVAL '1 hour'"),
    (
        "DATEDIFF | DATE_DIFF | TIMESTAMPDIFF | AGE",
        "Spark, Flink, PostgreSQL",
        "subtract the instants; EXTRACT(EPOCH FROM a - b) gives seconds",
    ),
    ("FORMAT | PRINTF", "PostgreSQL, Spark", "join texts with ||"),
    ("COUNT_IF | COUNTIF", "Spark", "write COUNT(*) FILTER (WHERE …)"),
    ("REGEXP_SUBSTR", "PostgreSQL, Spark", "write REGEXP_EXTRACT(t, 'pattern')"),
    ("LOCATE", "Flink, Spark", "write STRPOS(t, part)"),
    ("TO_NUMBER", "PostgreSQL, Spark", "write CAST(t AS DOUBLE)"),
    ("NVL2", "Spark", "write IF(x IS NULL, b, a)"),
    ("CONVERT | TRY_CONVERT", "SQL Server", "write CAST(x AS type), or TRY_CAST"),
)

COLUMNS = (
    ("NOW | CURRENT_TIMESTAMP | LOCALTIMESTAMP | CURRENT_DATE | CURRENT_TIME", "PostgreSQL, Flink, Spark", _CLOCK),
    ("ROWTIME | _TIME | TIME | PROCTIME", "ksqlDB, InfluxDB, Flink", "name the event time column; DESCRIBE stream tells which it is"),
    ("WINDOWSTART", "ksqlDB", "write window_start"),
    ("WINDOWEND", "ksqlDB", "write window_end"),
    ("WINDOW", "Spark", "write window_start or window_end, and the window after the stream's name: FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]"),
    ("IRSTREAM", "Esper", "EMIT CHANGES at the end shows rows that enter and that leave"),
    ("ISTREAM", "Esper", "write ISTREAM(SELECT …)"),
    ("RSTREAM", "Esper", "DSTREAM(SELECT …) gives the rows that leave a window"),
    ("ROW_NUMBER | ROWNUM", "PostgreSQL, Spark", "write ROW_NUMBER() OVER (…) in a derived table"),
)

TYPES = (
    ("VARIANT", "Spark", "write JSON"),
    ("UUID | INET | CIDR | ENUM", "PostgreSQL", "write TEXT"),
    ("MULTISET | OBJECT", "Flink, Spark", "write STRUCT(a INT, b TEXT), MAP(TEXT, INT), INT[] or JSON"),
    ("TIMETZ", "PostgreSQL", "write TIME; a time of day has no zone here"),
    ("TIMESTAMP_LTZ | TIMESTAMP_NTZ | TIMESTAMPNTZ", "Flink, Spark", "write TIMESTAMP"),
    ("SERIAL | BIGSERIAL | LONG | UBIGINT | UINT", "PostgreSQL, Spark, Esper", "write BIGINT"),
    ("SHORT | BYTE", "Spark, Esper", "write INT"),
    ("MONEY | BIGDECIMAL", "PostgreSQL, Esper", "write DECIMAL(18, 2)"),
)

TABLE: tuple[ForeignWord, ...] = tuple(
    ForeignWord(kind, *row)
    for kind, rows in (
        (WordPlace.STATEMENT, STATEMENTS),
        (WordPlace.DEFINITION, DEFINITIONS),
        (WordPlace.CLAUSE, CLAUSES),
        (WordPlace.FUNCTION, FUNCTIONS),
        (WordPlace.COLUMN, COLUMNS),
        (WordPlace.TYPE, TYPES),
    )
    for row in rows
)
