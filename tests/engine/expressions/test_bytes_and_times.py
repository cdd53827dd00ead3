"""BYTES, TIME and months (K22): in by every format and out again, functions against hashlib, base64 and DuckDB, and what is refused."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import millstream
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import EngineError
from millstream.protocol.values.text import csv_lines, json_lines

from tests.support.engine_run import SqlEngine

STREAM = "CREATE STREAM s (ts BIGINT, b BYTES, o TIME, t TEXT, n INT, at TIMESTAMP, day DATE) TIMESTAMP BY ts UNIT s"
CLOCKS = st.times() | st.times().map(lambda t: t.replace(microsecond=0))
DATA = st.binary(max_size=12)
INSTANTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2150, 12, 31))
SECOND = dt.timedelta(seconds=1)


def evaluated(expressions: list[str], rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the values of expressions for each row, as Arrow has them."""
    listed = ", ".join(f"{text} AS x{i}" for i, text in enumerate(expressions))
    kinds = {"ts": pa.int64(), "b": pa.binary(), "o": pa.time64("us"), "t": pa.string(), "n": pa.int32()}
    kinds |= {"at": pa.timestamp("us", "UTC"), "day": pa.date32()}
    columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()}
    columns["ts"] = pa.array(range(len(rows)), pa.int64())
    found = millstream.run(f"{STREAM}; SELECT {listed} FROM s;", s=pa.table(columns)).rows()
    return [tuple(row.values()) for row in found]


@given(st.lists(st.none() | DATA, min_size=1, max_size=6))
@settings(max_examples=15, deadline=None)
def test_functions_of_bytes_do_what_pythons_do(values: list[bytes | None]) -> None:
    functions: dict[str, Callable[[bytes], Any]] = {
        "MD5(b)": lambda v: hashlib.md5(v, usedforsecurity=False).hexdigest(),
        **{f"SHA{bits}(b)": lambda v, bits=bits: hashlib.new(f"sha{bits}", v).digest() for bits in (1, 224, 256, 384, 512)},
        "ENCODE(b, 'hex')": bytes.hex,
        "ENCODE(b, 'base64')": lambda v: base64.b64encode(v).decode(),
        "DECODE(ENCODE(b, 'hex'), 'hex')": bytes,
        "DECODE(ENCODE(b, 'base64'), 'base64')": bytes,
        "CAST(CAST(b AS TEXT) AS BYTES)": bytes,
        "LENGTH(b)": len,
        "SUBSTRING(b, 2, 3)": lambda v: v[1:4],
        "SUBSTRING(b FROM 0 FOR 2)": lambda v: v[:1],
        "b || x'00' || b": lambda v: v + b"\0" + v,
        "b > x'61'": lambda v: v > b"a",
        "GET_BYTE(b || x'07', 0)": lambda v: (v + b"\7")[0],
    }
    found = evaluated(list(functions), [{"b": v} for v in values])
    assert found == [tuple(None if v is None else f(v) for f in functions.values()) for v in values]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1, max_size=6))
@settings(max_examples=15, deadline=None)
def test_text_goes_to_bytes_and_back(values: list[str]) -> None:
    found = evaluated(
        ["TO_BYTES(t)", "FROM_BYTES(TO_BYTES(t, 'utf8'))", "SHA256(t)", "CONVERT_FROM(CONVERT_TO(t, 'UTF8'), 'UTF8')"],
        [{"t": v} for v in values],
    )
    assert found == [(v.encode(), v, hashlib.sha256(v.encode()).digest(), v) for v in values]


@given(st.lists(st.tuples(CLOCKS, INSTANTS, st.integers(-400, 400)), min_size=1, max_size=5))
@settings(max_examples=15, deadline=None)
def test_times_of_day_and_months_are_reckoned_as_duckdb_does(rows: list[tuple[dt.time, dt.datetime, int]]) -> None:
    ours = [
        "o + n * INTERVAL '1 hour'", "o - INTERVAL '90 minutes'", "o - CAST(at AS TIME)", "EXTRACT(MINUTE FROM o)", "EXTRACT(EPOCH FROM o)",
        "CAST(at AS TIME)", "day + o", "at + n * INTERVAL '1 month'", "at - INTERVAL '1 year 2 months'",
        "at + INTERVAL '1-2' YEAR TO MONTH * n",
        "at + n * INTERVAL '1 month 3 days'", "CAST(o AS TEXT)",
    ]  # fmt: skip
    theirs = """SELECT o + to_hours(n), o - INTERVAL '90 minutes', epoch_us(o) - epoch_us(m::TIME), extract(minute from o), epoch_us(o),
        m::TIME, day + o, m + to_months(n), m - INTERVAL '14 months', m + to_months(14 * n), m + to_months(n) + to_days(3 * n), o"""
    given_ = [{"o": o, "at": at.replace(tzinfo=dt.UTC), "day": at.date(), "n": n, "t": None, "b": None} for o, at, n in rows]
    found = evaluated(ours, given_)
    for (o, at, n), row in zip(rows, found, strict=True):
        with duckdb.connect() as connection:
            wanted = connection.execute(
                f"{theirs} FROM (SELECT ?::TIME AS o, ?::TIMESTAMP AS m, ?::DATE AS day, ?::INT AS n)", [o, at, at.date(), n]
            ).fetchone()
        assert wanted is not None
        plain = [v.replace(tzinfo=None) if isinstance(v, dt.datetime) else v for v in row]
        plain[2] = plain[2] // dt.timedelta(microseconds=1)
        plain[4] = int(plain[4] * 1_000_000)
        shown = wanted[-1].isoformat()
        assert plain == [*wanted[:-1], shown[:12] if shown.endswith("000") and len(shown) > 8 else shown]


def test_every_format_takes_and_gives_them(tmp_path: Path) -> None:
    values = [(b"\0\xff", dt.time(10, 0, 1, 500_000)), (b"", dt.time(0)), (None, None)]
    table = pa.table(
        {
            "ts": pa.array([1, 2, 3], pa.int64()),
            "b": pa.array([b for b, _ in values], pa.large_binary()),
            "o": pa.array(
                [None if o is None else o.replace(microsecond=500_000 * bool(o.microsecond)) for _, o in values], pa.time64("ns")
            ),
        }
    )
    pq.write_table(table, tmp_path / "s.parquet")
    (tmp_path / "s.csv").write_text("ts,b,o\n1,\\x00FF,10:00:01.5\n2,\\x,00:00\n3,,\n")
    lines = [{"ts": 1, "b": "\\x00ff", "o": "10:00:01.500"}, {"ts": 2, "b": "\\x", "o": "00:00:00"}, {"ts": 3, "b": None, "o": None}]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [{"ts": i, "b": b, "o": o} for i, (b, o) in enumerate(values, start=1)]
    for source in (table, tmp_path / "s.parquet", tmp_path / "s.csv", tmp_path / "s.jsonl", rows):
        found = millstream.run("CREATE STREAM s (ts BIGINT, b BYTES, o TIME) TIMESTAMP BY ts UNIT s; SELECT b, o FROM s;", s=source)
        assert [tuple(row.values()) for row in found] == values
        (batch,) = found.table.combine_chunks().to_batches()
        assert csv_lines(batch) == b"\\x00ff,10:00:01.500000\n\\x,00:00:00\n,\n"
        assert [json.loads(line) for line in json_lines(batch).splitlines()] == [
            {"b": "\\x00ff", "o": "10:00:01.500000"},
            {"b": "\\x", "o": "00:00:00"},
            {"b": None, "o": None},
        ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"b": "0aff"}, "column b: '0aff' is not BYTES (write \\x and two hexadecimal digits a byte)"),
        ({"b": "\\x0"}, "column b: '\\\\x0' is not BYTES (write \\x and two hexadecimal digits a byte)"),
        ({"b": 7}, "column b: 7 is not BYTES"),
        ({"o": "24:00"}, "column o: '24:00' names a time of day that does not exist"),
        ({"o": "10:00:00.1234567"}, "column o: '10:00:00.1234567' is finer than a microsecond"),
        ({"o": "10"}, "column o: '10' is not TIME (write hh:mm:ss)"),
        ({"o": 36_000}, "column o: 36000 is not TIME"),
    ],
)
def test_what_is_none_is_one_bad_row(row: dict[str, Any], reason: str, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(json.dumps({"ts": 1} | row) + '\n{"ts": 2, "b": "\\\\x61", "o": "01:02:03"}\n')
    script = f"{STREAM} ON ERROR INTO broken; SELECT b, o FROM s; SELECT reason FROM broken;"
    good, broken = millstream.run_script(script, inputs={"s": tmp_path / "s.jsonl"}).values()
    assert (good.rows(), broken.rows()) == ([{"b": b"a", "o": dt.time(1, 2, 3)}], [{"reason": reason}])


@pytest.mark.parametrize("spelled", ["TIME", "STRUCT(o TIME)"])
def test_arrow_times_beyond_a_day_are_bad_rows(spelled: str) -> None:
    lies = pa.array([-1, 86_400_000_000, 5], pa.int64()).view(pa.time64("us"))
    rows = pa.table({"ts": pa.array([1, 2, 3]), "v": lies if spelled == "TIME" else pa.StructArray.from_arrays([lies], ["o"])})
    found = millstream.run(f"CREATE STREAM s (ts BIGINT, v {spelled}) TIMESTAMP BY ts UNIT s; SELECT ts FROM s;", s=rows)
    assert [row["ts"] for row in found] == [3]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("ENCODE(t, 'hex')", "argument 1 of ENCODE is TEXT, it must be BYTES"),
        ("ENCODE(b)", "ENCODE needs the encoding"),
        ("ENCODE(b, 'rot13')", "ENCODE does not know the encoding 'rot13'"),
        ("b || t", "BYTES || TEXT is not defined"),
        ("CAST(n AS BYTES)", "INT cannot be cast to BYTES"),
        ("UPPER(b)", "argument 1 of UPPER is BYTES, it must be TEXT"),
        ("x'0'", "x'0' has half a byte"),
        ("x'zz'", "not hexadecimal"),
        ("o * 2", "TIME * INT is not defined"),
        ("EXTRACT(DAY FROM o)", "EXTRACT does not know the unit 'day'"),
        ("TIME '25:00'", "names a time of day that does not exist"),
        ("INTERVAL '1 month'", "an interval of months can only be added"),
        ("at + 1.5 * INTERVAL '1 month'", "months are multiplied by a whole number"),
    ],
)
def test_what_is_not_defined_says_so(expression: str, message: str) -> None:
    with pytest.raises(EngineError, match=message.replace("|", "\\|").replace("*", "\\*").replace("'", ".")) as caught:
        SqlEngine(STREAM).select(f"SELECT {expression} AS a FROM s")
    assert "*" in expression or "25" in expression or caught.value.hint


def test_what_fails_for_a_row_is_null_and_counted() -> None:
    texts = ["DECODE(t, 'hex')", "DECODE(t, 'base64')", "GET_BYTE(b, 5)", "FROM_BYTES(b)", "CAST(t AS TIME)", "CAST(t AS BYTES)"]
    assert evaluated(texts, [{"t": "*", "b": b"\xff"}]) == [(None,) * len(texts)]
    assert evaluated(["EXTRACT(EPOCH FROM o)"], [{"o": dt.time(0, 0, 1, 5)}]) == [(Decimal("1.000005"),)]


def test_they_are_keys_and_survive_in_tables() -> None:
    script = """CREATE TABLE shifts (code BYTES, begins TIME, PRIMARY KEY (code));
        INSERT INTO shifts VALUES (x'0a', TIME '06:00'), ('\\x0b', '14:30');
        CREATE STREAM s (ts BIGINT, code BYTES) TIMESTAMP BY ts UNIT s;
        SELECT s.code, f.begins, COUNT(*) AS n FROM s JOIN shifts f ON s.code = f.code GROUP BY s.code, f.begins EMIT FINAL;"""
    found = millstream.run_script(script, inputs={"s": [{"ts": i, "code": code} for i, code in enumerate((b"\x0a", b"\x0b", b"\x0a"))]})
    assert found["q1"].rows() == [
        {"code": b"\x0a", "begins": dt.time(6), "n": 2},
        {"code": b"\x0b", "begins": dt.time(14, 30), "n": 1},
    ]
