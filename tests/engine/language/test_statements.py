"""Every statement of the language, in its reference spelling and its synonyms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data import types
from millstream.engine.data.errors import SyntaxProblem
from millstream.engine.data.schema import Field, OnError, TimeRule
from millstream.engine.language import statements as say
from millstream.engine.language.dialect import RESERVED, walked
from millstream.engine.language.parse import parse_expression, parse_query, parse_script, parse_statement
from millstream.engine.language.recipes import EmitKind, EmitSpec, JoinKind, WindowKind
from millstream.engine.language.statements import JoinItem, NamedItem, SelectBody, SubqueryItem, UnionBody, WindowClause

S = 1_000_000


def stream(text: str) -> say.StreamDefinition:
    statement = parse_statement(text)
    assert isinstance(statement, say.CreateStream)
    return statement.definition


def window(text: str) -> WindowClause:
    body = parse_query(f"SELECT * FROM {text}").body
    assert isinstance(body, SelectBody)
    assert isinstance(body.source, NamedItem | SubqueryItem)
    assert body.source.window is not None
    return body.source.window


def source(text: str) -> JoinItem:
    body = parse_query(f"SELECT * FROM {text}").body
    assert isinstance(body, SelectBody)
    assert isinstance(body.source, JoinItem)
    return body.source


# -- CREATE STREAM ------------------------------------------------------------------------------------------------------------


def test_a_stream_without_clauses_takes_its_time_from_arrival() -> None:
    definition = stream("CREATE STREAM s (a INT NOT NULL, b TEXT)")
    assert definition.schema.fields == (Field("a", types.INT, False), Field("b", types.TEXT, True))
    assert definition.time == TimeRule()
    assert (definition.on_error, definition.durability, definition.rate_per_second_max) == (OnError.DROP, "none", None)
    assert stream("CREATE STREAM s (a INT NOT NULL, b TEXT) TIMESTAMP BY ARRIVAL") == definition


def test_every_clause_of_create_stream_is_read_in_any_order() -> None:
    definition = stream(
        "CREATE STREAM IF NOT EXISTS s (ts TIMESTAMP, v DOUBLE) RATE 500 PER SECOND DURABILITY sync ON ERROR INTO bad LATE INTO late_s "
        "IDLE 3 SECONDS FLUSH SKEW 5 MINUTES DELAY 2 SECONDS TIMESTAMP BY ts ZONE 'Europe/Rome'"
    )
    assert definition.time == TimeRule("ts", None, False, "Europe/Rome", 2 * S, 300 * S, 3 * S, True)
    assert (definition.late_into, definition.on_error, definition.errors_into) == ("late_s", OnError.INTO, "bad")
    assert (definition.durability, definition.rate_per_second_max) == ("sync", 500.0)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts DELAY 5 SECONDS",
        "CREATE STREAM s (ts TIMESTAMP) WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
        "CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts - 5 SECONDS)",
        "create stream S (TS timestamp) timestamp by TS delay interval '5 seconds';",
    ],
)
def test_a_watermark_is_a_delay_in_every_spelling(text: str) -> None:
    assert stream(text) == stream("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts DELAY 5 SECONDS")


@pytest.mark.parametrize(
    ("spelling", "type_"),
    [
        *[("BOOLEAN", types.BOOLEAN), ("INT", types.INT), ("INTEGER", types.INT), ("BIGINT", types.BIGINT), ("DOUBLE", types.DOUBLE)],
        *[("double precision", types.DOUBLE), ("FLOAT", types.DOUBLE), ("REAL", types.DOUBLE), ("TEXT", types.TEXT)],
        *[("VARCHAR", types.TEXT), ("STRING", types.TEXT), ("TIMESTAMP", types.TIMESTAMP), ("DATE", types.DATE)],
        *[("INTERVAL", types.INTERVAL), ("DECIMAL(12, 2)", types.decimal(12, 2)), ("NUMERIC(9)", types.decimal(9, 0))],
    ],
)
def test_every_type_and_its_synonyms_are_known(spelling: str, type_: types.DataType) -> None:
    assert stream(f"CREATE STREAM s (a {spelling})").schema.fields[0].type == type_


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_a_type_is_read_as_it_is_shown_whatever_its_parts_are_called(word: str) -> None:
    parts = types.struct_of([(word.lower(), types.INT), (word, types.TEXT), ("b c", types.list_of(types.map_of(types.JSON)))])
    assert stream(f"CREATE STREAM s (a {parts})").schema.fields[0].type == parts


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_an_integer_time_column_has_a_unit(unit: str) -> None:
    assert stream(f"CREATE STREAM s (t BIGINT) TIMESTAMP BY t UNIT {unit}").time == TimeRule("t", unit)


def test_nanoseconds_are_taken_only_with_round() -> None:
    assert stream("CREATE STREAM s (t BIGINT) TIMESTAMP BY t UNIT ns ROUND").time == TimeRule("t", "ns", True)


# -- the other definitions ----------------------------------------------------------------------------------------------------


def test_a_table_has_a_key_and_perhaps_a_file() -> None:
    both = [
        parse_statement("CREATE TABLE t (k BIGINT, j INT, v TEXT, PRIMARY KEY (k, j)) FROM 'rates.csv'"),
        parse_statement("CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT)"),
    ]
    assert all(isinstance(t, say.CreateTable) for t in both)
    assert [(t.definition.key, t.definition.file) for t in both if isinstance(t, say.CreateTable)] == [
        (("k", "j"), "rates.csv"),
        (("k",), None),
    ]


def test_a_derived_stream_and_a_query_keep_the_text_of_their_select() -> None:
    derived = parse_statement("CREATE STREAM d AS\n SELECT a -- why\n FROM s ;")
    assert isinstance(derived, say.CreateDerivedStream)
    assert (derived.name, derived.text) == ("d", "SELECT a -- why\n FROM s")
    query = parse_statement("CREATE QUERY IF NOT EXISTS q WITH (class = 'gold', weight = 2.5) AS SELECT a FROM s WITH (qos = '1s:1')")
    assert isinstance(query, say.CreateQuery)
    assert [(o.name, o.value) for o in query.options] == [("class", "gold"), ("weight", 2.5)]
    assert query.text == "SELECT a FROM s WITH (qos = '1s:1')"
    assert query.if_not_exists


def test_a_class_has_a_priority_a_target_and_may_be_shed() -> None:
    assert parse_statement("CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS") == say.CreateClass(
        say.ClassDefinition("gold", 6.0, 300_000, False)
    )
    shed = parse_statement("CREATE CLASS bronze SHED PRIORITY 1")
    assert isinstance(shed, say.CreateClass)
    assert shed.definition.may_shed
    never = parse_statement("CREATE CLASS silver PRIORITY 1 NEVER SHED")
    assert isinstance(never, say.CreateClass)
    assert not never.definition.may_shed
    pinned = parse_statement("CREATE CLASS tin PRIORITY 1 WORKERS 2, 1 SHED")
    assert isinstance(pinned, say.CreateClass)
    assert pinned.definition.workers == (2, 1)
    for text in ("WORKERS", "WORKERS 0", "WORKERS 1, 1", "WORKERS 1.5", "WORKERS 1 WORKERS 2"):
        with pytest.raises(SyntaxProblem):
            parse_statement(f"CREATE CLASS tin PRIORITY 1 {text}")


def test_statements_about_queries_and_names() -> None:
    script = (
        "START QUERY q; STOP QUERY q; PAUSE QUERY q; RESUME QUERY q; DROP STREAM s CASCADE; DROP QUERY IF EXISTS q; DESCRIBE s; "
        "SHOW STREAMS; SHOW DECISIONS; SET POLICY min-latency WITH (capacity = 0.5, adaptive = TRUE); SET POLICY 'golab-hybrid';"
    )
    found = [statement for statement, _ in parse_script(script)]
    assert [s.verb.value for s in found[:4] if isinstance(s, say.ChangeQuery)] == ["START", "STOP", "PAUSE", "RESUME"]
    drop, maybe = found[4:6]
    assert isinstance(drop, say.Drop)
    assert isinstance(maybe, say.Drop)
    assert (drop.kind, drop.name.text, drop.cascade, maybe.if_exists) == (say.ObjectKind.STREAM, "s", True, True)
    assert isinstance(found[6], say.Describe)
    assert [s.what for s in found if isinstance(s, say.Show)] == [say.ShowWhat.STREAMS, say.ShowWhat.DECISIONS]
    policies = [s for s in found if isinstance(s, say.SetPolicy)]
    assert [p.name.text for p in policies] == ["min-latency", "golab-hybrid"]
    assert [(o.name, o.value) for o in policies[0].options] == [("capacity", 0.5), ("adaptive", True)]


def test_a_recording_is_of_arrivals_unless_it_says_of_decisions() -> None:
    texts = ("START RECORDING", "STOP RECORDING ARRIVALS", "START RECORDING DECISIONS")
    arrivals, decisions = say.Recorded
    wanted = [say.SetRecording(arrivals, True), say.SetRecording(arrivals, False), say.SetRecording(decisions, True)]
    assert [parse_statement(t) for t in texts] == wanted
    with pytest.raises(SyntaxProblem, match="DECISIONS"):
        parse_statement("START RECORDING ARRIVALS DECISIONS")
    with pytest.raises(SyntaxProblem):
        parse_statement("PAUSE RECORDING")


def test_a_recording_of_what_was_may_say_how_long_ago() -> None:
    assert parse_statement("SHOW RECORDING") == say.ShowRecording()
    assert parse_statement("SHOW RECORDING LAST 10 MINUTES") == say.ShowRecording(600_000_000)
    for wrong in ("SHOW RECORDING LAST", "SHOW RECORDING LAST 0 SECONDS", "SHOW RECORDING 10 MINUTES"):
        with pytest.raises(SyntaxProblem):
            parse_statement(wrong)


def test_explain_takes_a_query_or_a_name() -> None:
    modes = [parse_statement(f"EXPLAIN {mode} SELECT a FROM s") for mode in ("", "SEMANTICS", "ANALYZE", "QOS")]
    assert [m.mode for m in modes if isinstance(m, say.Explain)] == list(say.ExplainMode)
    named = parse_statement("EXPLAIN SEMANTICS q")
    assert isinstance(named, say.Explain)
    assert named.name is not None
    assert (named.mode, named.name.text, named.query) == (say.ExplainMode.SEMANTICS, "q", None)
    assert parse_statement("EXPLAIN SEMANTICS QUERY q") == named
    called_query = parse_statement("EXPLAIN query")
    assert isinstance(called_query, say.Explain)
    assert called_query.name is not None
    assert called_query.name.text == "query"
    called_qos = parse_statement("EXPLAIN qos")
    assert isinstance(called_qos, say.Explain)
    assert called_qos.name is not None
    assert called_qos.name.text == "qos"


def test_insert_takes_rows_or_a_continuous_select() -> None:
    rows = parse_statement("INSERT INTO s (a, b) VALUES (1, 'x'), (-2, NULL)")
    assert isinstance(rows, say.InsertValues)
    assert ([c.text for c in rows.columns], len(rows.rows)) == (["a", "b"], 2)
    select = parse_statement("INSERT INTO s SELECT a, b FROM t WHERE a > 1")
    assert isinstance(select, say.InsertSelect)
    assert (select.name.text, select.text) == ("s", "SELECT a, b FROM t WHERE a > 1")


# -- windows ------------------------------------------------------------------------------------------------------------------

HOP = WindowClause(WindowKind.HOPPING, range_us=10 * S, slide_us=5 * S)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s [RANGE 10 SECONDS SLIDE 5 SECONDS]", HOP),
        ("s [WINDOW 10 SECONDS SLIDE 5 SECONDS] x", HOP),
        ("s x [range interval '10' second slide interval '5 seconds']", HOP),
        ("(SELECT * FROM s) [RANGE 10 SECONDS SLIDE 5 SECONDS] AS x", HOP),
        ("s [RANGE 10 SECONDS]", WindowClause(WindowKind.SLIDING, range_us=10 * S)),
        ("s [ROWS 5]", WindowClause(WindowKind.ROWS, rows=5, rows_slide=1)),
        ("s [ROWS 5 SLIDE 2]", WindowClause(WindowKind.ROWS, rows=5, rows_slide=2)),
        ("s [SESSION 5 SECONDS MAX 1 MINUTE]", WindowClause(WindowKind.SESSION, gap_us=5 * S, max_us=60 * S)),
        ("s [LANDMARK]", WindowClause(WindowKind.LANDMARK)),
        ("s [NOW]", WindowClause(WindowKind.NOW)),
        ("s [UNBOUNDED]", WindowClause(WindowKind.UNBOUNDED)),
        ("s [RANGE UNBOUNDED]", WindowClause(WindowKind.UNBOUNDED)),
        ("s [UNBOUNDED STATE 100 ROWS]", WindowClause(WindowKind.UNBOUNDED, state_rows_max=100)),
    ],
)
def test_windows_in_brackets(text: str, expected: WindowClause) -> None:
    assert window(text) == expected


def test_slide_within_is_golabs_upper_bound() -> None:
    assert window("s [RANGE 10 SECONDS SLIDE WITHIN 5 SECONDS]").slide_within


def test_a_window_may_be_shifted_and_follow_a_zone() -> None:
    found = window("s [RANGE 1 DAY SLIDE 1 DAY OFFSET -45 MINUTES TIME ZONE 'Europe/Rome']")
    assert (found.offset_us, found.zone) == (-45 * 60 * S, "Europe/Rome")


@pytest.mark.parametrize(
    "text",
    [
        "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
        "TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))",
        "hop(s, ts, 5 SECONDS, 10 SECONDS) AS x",
        "HOP(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '5' SECOND, SIZE => INTERVAL '10' SECOND)",
        "HOP(s, DESCRIPTOR(ts), size => 10 SECONDS, slide => 5 SECONDS)",
        "HOP((SELECT * FROM s), ts, 5 SECONDS, 10 SECONDS)",
    ],
)
def test_a_hopping_window_as_a_function_in_every_spelling(text: str) -> None:
    found = window(text)
    assert found.descriptor is not None
    assert found.descriptor.text == "ts"
    assert (found.kind, found.range_us, found.slide_us) == (WindowKind.HOPPING, 10 * S, 5 * S)


def test_the_other_window_functions() -> None:
    tumble = window("TUMBLE(TABLE s, DESCRIPTOR(ts), 10 SECONDS, 1 SECOND)")
    assert (tumble.range_us, tumble.slide_us, tumble.offset_us) == (10 * S, 10 * S, S)
    cumulate = window("CUMULATE(s, ts, 1 SECOND, 10 SECONDS, TIME ZONE => 'UTC')")
    assert (cumulate.kind, cumulate.slide_us, cumulate.range_us, cumulate.zone) == (WindowKind.CUMULATE, S, 10 * S, "UTC")
    for text in ("SESSION(TABLE s PARTITION BY a, b, DESCRIPTOR(ts), 5 SECONDS)", "SESSION(s PARTITION BY a, b, ts, gap => 5 SECONDS)"):
        session = window(text)
        assert [p.name for p in session.partition] == ["a", "b"]
        assert (session.kind, session.gap_us) == (WindowKind.SESSION, 5 * S)


# -- joins and the rest of SELECT ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        *[("JOIN", JoinKind.INNER), ("INNER JOIN", JoinKind.INNER), ("LEFT JOIN", JoinKind.LEFT), ("LEFT OUTER JOIN", JoinKind.LEFT)],
        *[("RIGHT JOIN", JoinKind.RIGHT), ("FULL OUTER JOIN", JoinKind.FULL)],
    ],
)
def test_within_stands_before_or_after_on(words: str, kind: JoinKind) -> None:
    for text in (f"a {words} b WITHIN 5 SECONDS ON a.k = b.k", f"a {words} b ON a.k = b.k WITHIN 5 SECONDS"):
        found = source(text)
        assert (found.kind, found.within_us, found.asof) == (kind, 5 * S, False)


def test_as_of_joins_and_versions() -> None:
    assert source("a ASOF JOIN b ON a.k = b.k").asof
    for text in ("a LEFT ASOF JOIN b ON a.k = b.k", "a ASOF LEFT JOIN b ON a.k = b.k"):
        assert (source(text).kind, source(text).asof) == (JoinKind.LEFT, True)
    for text in (
        "a JOIN t FOR SYSTEM_TIME AS OF a.ts ON a.k = t.k",
        "a JOIN t FOR SYSTEM_TIME AS OF a.ts AS x ON a.k = x.k",
        "a JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS x ON a.k = x.k",
        "a JOIN t AS OF PROCTIME() ON a.k = t.k",
        "a JOIN t AS x AS OF PROCTIME ON a.k = x.k",
        "a JOIN t x FOR SYSTEM_TIME AS OF a.ts ON a.k = x.k",
        "a JOIN t ON a.k = t.k FOR SYSTEM_TIME AS OF a.ts",
    ):
        assert source(text).system_time is not None


def test_joins_lean_to_the_left_and_commas_bind_last() -> None:
    found = source("a, b JOIN c ON b.k = c.k WITHIN 1 SECOND")
    assert found.comma
    assert isinstance(found.right, JoinItem)
    assert isinstance(source("a JOIN b ON TRUE WITHIN 1 SECOND JOIN c ON TRUE WITHIN 1 SECOND").left, JoinItem)


def test_emission_options_and_streams() -> None:
    assert parse_query("SELECT a FROM s EMIT EVERY 5 SECONDS").emit == EmitSpec(EmitKind.EVERY, 5 * S)
    assert parse_query("SELECT a FROM s EMIT EMPTY").emit == EmitSpec(EmitKind.FINAL, 0, True)
    assert parse_query("SELECT a FROM s EMIT ON WINDOW CLOSE").emit == EmitSpec()
    query = parse_query("RSTREAM(SELECT a FROM s [RANGE 5 SECONDS] EVERY 2 SECONDS) WITH (class = gold)")
    assert (query.stream, query.every_us, query.options[0].value) == ("r", 2 * S, "gold")
    top = parse_query("SELECT a FROM s [NOW] ORDER BY a DESC, b NULLS FIRST LIMIT 3 WITH TIES EMIT FINAL WITH (weight = 1)")
    assert [(o.descending, o.nulls_first) for o in top.order_by] == [(True, True), (False, True)]
    assert (top.limit, top.with_ties, top.emit) == (3, True, EmitSpec())


def test_unions_and_common_tables() -> None:
    query = parse_query(
        "WITH x AS (SELECT a FROM s), y AS (SELECT a FROM x) SELECT a FROM x UNION ALL SELECT a FROM y UNION ALL (SELECT a FROM s)"
    )
    assert [t.name.text for t in query.common_tables] == ["x", "y"]
    assert isinstance(query.body, UnionBody)
    assert len(query.body.branches) == 3


def test_names_fold_unless_quoted_and_comments_are_passed_over() -> None:
    query = parse_query('SELECT Aa, "Aa", "from" /* one /* two */ */ FROM "Str eam" -- three\n AS Xx')
    assert isinstance(query.body, SelectBody)
    assert isinstance(query.body.source, NamedItem)
    assert query.body.source.name.text == "Str eam"
    assert query.body.source.alias is not None
    assert query.body.source.alias.text == "xx"


def test_words_of_clauses_stay_usable_as_columns() -> None:
    words = "emit within window range rows slide session delay date text timestamp interval filter first last every class value offset"
    body = parse_query(f"SELECT {', '.join(words.split())} FROM s").body
    assert isinstance(body, SelectBody)
    assert len(body.items) == len(words.split())


def test_a_script_gives_each_statement_with_its_span() -> None:
    text = "SELECT a FROM s;\n;\n  CREATE CLASS c\n PRIORITY 1 ;"
    (_, first), (_, second) = parse_script(text)
    assert (first.text, text[second.start : second.stop]) == ("SELECT a FROM s", "CREATE CLASS c\n PRIORITY 1")
    assert (second.place.line, second.place.column) == (3, 3)
    assert parse_script(" -- nothing\n ;") == []
    assert [span.text for _, span in parse_script("\ufeffSHOW STREAMS;")] == ["SHOW STREAMS"]


SCRIPT = (
    "CREATE STREAM s (ts TIMESTAMP, a INT) TIMESTAMP BY ts DELAY 1 SECOND; CREATE CLASS c PRIORITY 1 NEVER SHED; "
    "SELECT a, COUNT(*) FROM s [RANGE 1 MINUTE SLIDE 5 SECONDS] WHERE a BETWEEN 1 AND 2 GROUP BY a HAVING COUNT(*) > 1 EMIT FINAL; "
    "SELECT s.a FROM s LEFT JOIN r ON s.a = r.a WITHIN 5 SECONDS; EXPLAIN SEMANTICS SELECT a FROM s"
)


@given(st.integers(min_value=0, max_value=2**64))
def test_keywords_may_be_written_in_any_case(bits: int) -> None:
    mixed = "".join(c.upper() if bits >> (i % 64) & 1 else c.lower() for i, c in enumerate(SCRIPT))

    def shown(text: str) -> list[str]:
        found = []
        for statement, _ in parse_script(text):
            fields = [str(getattr(statement, f)) for f in type(statement).__dataclass_fields__ if f != "text"]
            found.append("|".join(fields).lower())
        return found

    assert shown(mixed) == shown(SCRIPT)


@pytest.mark.parametrize(
    "text",
    ["k", "a + b * 2", "CASE WHEN k IN (1, 2, x) THEN s.t ELSE f(a, b || 'c') END", "COUNT(DISTINCT v) FILTER (WHERE v BETWEEN 1 AND 2)"],
)
def test_all_parts_of_an_expression_are_found(text: str) -> None:
    node = parse_expression(text)
    assert sorted(map(id, walked(node))) == sorted(map(id, node.walk()))
