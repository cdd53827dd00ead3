"""`millstream.run`: data frames and files give the rows that `millstream run` gives over the same rows."""

from __future__ import annotations

import datetime as dt
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import hypothesis.strategies as st
import millstream
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from millstream.server.run.embedded import Replay, run_replay

START = dt.datetime(2024, 5, 6, 12, tzinfo=dt.UTC)
WINDOW = "SELECT window_start, proto, COUNT(*) AS n, SUM(length) AS total FROM packets [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY proto"


def packets(*seconds: float) -> pa.Table:
    columns = {
        "ts": pa.array([START + dt.timedelta(seconds=s) for s in seconds], pa.timestamp("us", "UTC")),
        "proto": pa.array([("udp", "tcp")[i % 2] for i in range(len(seconds))], pa.string()),
        "length": pa.array([10 * i for i in range(len(seconds))], pa.int64()),
    }
    return pa.table(columns)


@given(st.lists(st.integers(0, 60), max_size=40))
@settings(max_examples=40)
def test_a_window_over_a_frame_in_any_order_loses_no_row(seconds: list[int]) -> None:
    table = packets(*seconds)
    result = millstream.run(WINDOW, packets=table)
    expected: dict[tuple[dt.datetime, str], list[int]] = {}
    for row in table.to_pylist():
        start = START + dt.timedelta(seconds=(row["ts"] - START).seconds // 10 * 10)
        expected.setdefault((start, row["proto"]), []).append(row["length"])
    assert {(r["window_start"], r["proto"]): (r["n"], r["total"]) for r in result} == {k: (len(v), sum(v)) for k, v in expected.items()}
    assert result.messages == []


def test_it_is_what_the_command_gives(tmp_path: Path) -> None:
    table = packets(0, 3, 14, 9, 31)
    script = "CREATE STREAM packets (ts TIMESTAMP, proto TEXT, length BIGINT) TIMESTAMP BY ts DELAY 2 SECONDS;\n" + WINDOW
    pq.write_table(table, tmp_path / "packets.parquet")
    outcome = run_replay(Replay(script, [("packets", tmp_path / "packets.parquet")]))
    for source in (table, tmp_path / "packets.parquet", str(tmp_path / "packets.parquet"), table.to_pandas(), table.to_pylist()):
        result = millstream.run(script, packets=source)
        assert result.table.to_batches() == list(outcome.results[0].batches)
        assert result.messages == outcome.messages == ["q1: 1 late row"]


def as_categories(table: pa.Table) -> pd.DataFrame:
    frame = table.to_pandas()
    frame["proto"] = frame["proto"].astype("category")
    return frame.set_index("length", drop=False).rename_axis(None)


SOURCES = {
    "arrow": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "reader": lambda table: table.to_reader(),
    "pandas": lambda table: table.to_pandas(),
    "pandas with an index": as_categories,
    "naive nanoseconds": lambda table: table.to_pandas().assign(ts=lambda f: f["ts"].dt.tz_localize(None).astype("datetime64[ns]")),
    "duckdb": lambda table: duckdb.connect().execute("SET TimeZone = 'UTC'").from_arrow(table),
    "dicts": lambda table: table.to_pylist(),
    "columns in capitals": lambda table: table.rename_columns(["TS", "Proto", "LENGTH"]),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_whatever_has_rows_is_read(kind: str) -> None:
    table = packets(0, 3, 14)
    assert millstream.run(WINDOW, packets=SOURCES[kind](table)).table == millstream.run(WINDOW, packets=table).table


def test_columns_of_all_types_come_back_as_they_were() -> None:
    table = pa.table(
        {
            "flag": pa.array([True, None]),
            "small": pa.array([1, -2], pa.int8()),
            "big": pa.array([2**63 - 1, None], pa.int64()),
            "real": pa.array([0.5, None], pa.float32()),
            "price": pa.array([Decimal("12.50"), None], pa.decimal128(9, 2)),
            "day": pa.array([dt.date(2024, 2, 29), None]),
            "span": pa.array([dt.timedelta(microseconds=7), None]),
            "text": pa.array(["a", None], pa.large_string()),
            "nothing": pa.nulls(2),
        }
    )
    result = millstream.run("SELECT flag, small, big, real, price, day, span, text, nothing FROM s", s=table)
    assert result.rows() == table.to_pylist()


def test_a_result_is_a_frame_and_arrow_and_text() -> None:
    result = millstream.run("SELECT k, v * 2 AS w FROM s WHERE v > 1", s=[{"k": "<b>", "v": 1}, {"k": "<i>", "v": 2}])
    assert len(result) == 1
    assert result.df().to_dict("records") == [{"k": "<i>", "w": 4}]
    assert pa.table(result) == result.table
    assert repr(result) == "k   | w\n----+--\n<i> | 4"
    assert "<td>&lt;i&gt;</td>" in result._repr_html_()
    many = millstream.run("SELECT v FROM s", s=[{"v": v} for v in range(30)])
    assert repr(many).endswith("the first 20 of 30 rows")


def test_a_script_gives_all_its_answers_by_name() -> None:
    script = "CREATE TABLE names (k INT, name TEXT, PRIMARY KEY (k)); SELECT v FROM s; SELECT name FROM s JOIN names n ON s.k = n.k"
    found = millstream.run_script(script, inputs={"s": [{"k": 1, "v": 5}], "names": [{"k": 1, "name": "one"}]})
    assert {name: result.rows() for name, result in found.items()} == {"q1": [{"v": 5}], "q2": [{"name": "one"}]}


def test_nested_columns_are_declared_after_their_types() -> None:
    rows = [
        {"r": {"X": 1, "from": ["a", None], "r2": {"d": dt.date(2024, 2, 29)}}, "l": [[1], []], "none": [None]},
        {"r": None, "l": None, "none": None},
    ]
    maps = pa.array([[("b", 1.5), ("a", None)], None], pa.map_(pa.string(), pa.float64()))
    words = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array(["w"], pa.string_view()))
    table = pa.Table.from_pylist(rows).append_column("m", maps).append_column("u", pa.array([2**63, None], pa.uint64()))
    table = table.append_column("w", words).append_column("s", pa.StructArray.from_arrays([words], ["w"], mask=pa.array([False, True])))
    result = millstream.run(
        """SELECT r.x AS x, r."from"[1] AS f, r.r2.d AS d, l[1] AS l, none, u, w, s.w AS sw, m['b'] AS b, m FROM s""", s=table
    )
    first = {"x": 1, "f": "a", "d": dt.date(2024, 2, 29), "l": [1], "none": [None], "u": 2**63, "w": "w", "sw": "w", "b": 1.5}
    first["m"] = {"a": None, "b": 1.5}
    assert result.rows() == list(result) == [first, dict.fromkeys(first)]
    assert repr(result).splitlines()[2].endswith('|  1.5 | {"a": null, "b": 1.5}')


def test_an_instant_beyond_pythons_years_is_text_in_rows_and_shown() -> None:
    far = pa.array([[("k", 2**60)], [("k", 0)]], pa.map_(pa.string(), pa.int64())).cast(pa.map_(pa.string(), pa.timestamp("us", "UTC")))
    result = millstream.run("SELECT m['k'] AS k, m FROM s", s=pa.table({"m": far}))
    text = "38504-08-17T21:30:06.846976Z"
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert result.rows() == [{"k": text, "m": f'{{"k": "{text}"}}'}, {"k": epoch, "m": {"k": epoch}}]
    assert text in repr(result)


def test_polars_is_needed_only_for_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    result = millstream.run("SELECT a FROM s", s=[{"a": 1}])
    with pytest.raises(ImportError, match="polars"):
        result.pl()
    assert result.rows() == [{"a": 1}]


def test_a_part_of_a_struct_that_the_script_does_not_declare_is_refused() -> None:
    script = "CREATE STREAM s (r STRUCT(a INT)) TIMESTAMP BY ARRIVAL; SELECT r.a AS a FROM s"
    for rows in ([{"r": {"a": 1, "b": 2}}, {"r": {"a": 3, "b": None}}], pa.Table.from_pylist([{"r": {"a": 1, "b": 2}}])):
        with pytest.raises(millstream.RunError, match=r"row 1: column r: there is no part b"):
            millstream.run(script, s=rows)


MONTHS = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
TWO_TIMES = pa.table({"a": packets(0)["ts"], "b": packets(0)["ts"]})


def test_the_event_time_is_the_column_that_is_named() -> None:
    sql = "SELECT window_end FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
    for named in ("b", {"s": "b"}):
        assert len(millstream.run(sql, s=TWO_TIMES, timestamp_by=named)) == 1


@pytest.mark.parametrize(
    ("sql", "streams", "said"),
    [
        ("SELECT nope FROM s", {"s": [{"a": 1}]}, "there is no column nope (line 1, column 8)"),
        ("SELECT a FROM s; SELECT a FROM s", {"s": [{"a": 1}]}, "the script has 2 answers where run gives one; call run_script"),
        ("SELECT a FROM s", {"s": 3}, "s: int has no rows; give a path, a data frame"),
        ("SELECT a FROM s", {"s": "rows.csv"}, "s: rows.csv does not say its columns' types; begin the script with CREATE STREAM s"),
        ("SELECT a FROM s", {"s": "nowhere.parquet"}, "s: cannot read nowhere.parquet"),
        ("SELECT a FROM s", {"s": TWO_TIMES}, "s: which of a, b is the event time? Say timestamp_by='a'"),
        ("SELECT a FROM s", {"s": TWO_TIMES, "timestamp_by": "c"}, "s: timestamp_by names c, which is no TIMESTAMP column; it has a, b"),
        ("SELECT a FROM s", {"s": pa.table({"a": MONTHS})}, "s: no column type for a, which is month_day_nano_interval; leave it out"),
        ("SELECT FROM", {}, "line 1"),
    ],
)
def test_what_cannot_be_run_says_where_and_what_to_do(sql: str, streams: dict[str, Any], said: str) -> None:
    with pytest.raises(millstream.RunError) as caught:
        millstream.run(sql, **streams)
    assert said in str(caught.value)


def test_the_package_shows_its_names_and_loads_nothing_before() -> None:
    assert set(millstream.__all__) <= set(dir(millstream))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        millstream.nothing  # noqa: B018


def test_the_example_of_the_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    code, printed = re.search(r"```python\n(import millstream\n.*?)```\n\n```text\n(.*?)```", text, re.S).groups()  # type: ignore[union-attr]
    exec(code, {})
    assert capsys.readouterr().out == printed
