"""The Spark side: what is read, in which order, and that no number of partitions shows."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from millstream.client.inputs import time_format
from millstream.engine.expressions.values import parse_timestamp
from millstream.feeder.arrivals import ArrivalRule
from millstream.feeder.errors import SourceError
from millstream.feeder.job import FeedJob, FeedPlan, split_values
from millstream.feeder.numbering import ARRIVAL, INDEX, STREAM
from millstream.feeder.rates import constant
from millstream.feeder.shaping import Mapped
from millstream.feeder.sources import ReadOptions, format_of
from millstream.feeder.targets import Target

from tests.feeder.fakes import target

pytestmark = [pytest.mark.spark, pytest.mark.slow]
POISSON = ArrivalRule("poisson", constant(1000), seed=4)
MAX = ArrivalRule("max")
UTC = dt.UTC


def plan(path: Path | str, *targets: Target, rule: ArrivalRule = MAX, **options: Any) -> FeedPlan:
    paths = tuple(str(item) for item in (path if isinstance(path, tuple) else (path,)))
    return FeedPlan(paths, targets or (target("s"),), rule, conditions=options.pop("conditions", (None,) * max(1, len(targets))), **options)


def fed(spark: Any, what: FeedPlan, skip: dict[int, int] | None = None) -> tuple[list[dict[str, Any]], dict[str, int]]:
    job = FeedJob(spark, what)
    counted = job.count(skip)
    rows = [row for batch in job.batches(counted) for row in batch.to_pylist()]
    return rows, dict(counted.refused)


def values(rows: list[dict[str, Any]], name: str = "v") -> list[Any]:
    return [row[name] for row in rows]


def write_csv(path: Path, rows: list[list[Any]], header: list[str] | None = None) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header or ["v"], *rows])
    return path


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_rows_and_arrivals_are_the_same_for_any_number_of_partitions(spark: Any, tmp_path: Path, partitions: int) -> None:
    rows = 700
    first = write_csv(tmp_path / "b.csv", [[i] for i in range(300)])
    write_csv(tmp_path / "a.csv", [[i] for i in range(300, rows)])
    # The larger file is read first by Spark; the order asked for is that of the arguments.
    what = plan((first, tmp_path / "a.csv"), rule=POISSON, read=ReadOptions(one_line=True))
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(-(-3000 // partitions)))
    try:
        found, _ = fed(spark, what)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert values(found) == list(range(rows))
    assert values(found, INDEX) == list(range(rows))
    assert values(found, ARRIVAL) == POISSON.at(0, 0, rows, 0)[0].tolist()


def test_columns_of_the_files_that_are_in_no_stream_are_known(spark: Any, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [[1, 2, 3, 4, 5]], ["v", "Room", "note", "w x", "kind"])
    assert FeedJob(spark, plan(path)).unused == ["Room", "note", "w x", "kind"]
    mapped = Mapped({"room": "concat(room, '!')", "w": "`w x` + 1"})
    two = (target("s", "v BIGINT, room TEXT, w BIGINT"), target("t", "v BIGINT, room TEXT, w BIGINT"))
    assert FeedJob(spark, plan(path, *two, mapped=mapped, conditions=("kind > 3", None))).unused == ["note"]


@pytest.mark.parametrize("publishers", [1, 2, 7])
def test_publishers_have_the_rows_and_arrivals_of_the_driver(
    spark: Any, tmp_path: Path, publishers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has the stripes that follow from the data and the number of publishers, in order of arrival; together they have all rows."""
    monkeypatch.setattr("millstream.feeder.job.STRIPE_ROWS", 40)
    path = write_csv(tmp_path / "x.csv", [[i] for i in range(600)])
    what = plan(path, target("even"), target("third"), rule=POISSON, conditions=("v % 2 = 0", "v % 3 = 0"))
    expected, _ = fed(spark, what)
    job = FeedJob(spark, replace(what, publishers=publishers))
    folder = str(tmp_path)

    def in_task(batches: Any) -> Any:
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()  # type: ignore[union-attr]
        rows = [row for batch in batches for row in batch.to_pylist()]
        Path(folder, f"{number}.json").write_text(json.dumps(rows))
        yield pa.record_batch({"publisher": pa.array([number], pa.int32()), "sent": pa.array([len(rows)], pa.int64())})

    job.publish(job.count(), in_task)
    parts = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(publishers)]
    for number, rows in enumerate(parts):
        assert rows == [row for row in expected if (row[INDEX] // 40 + row[STREAM]) % publishers == number]
    assert sum(map(len, parts)) == len(expected) == 500


def test_streams_are_merged_in_order_of_arrival_each_with_its_own_gaps(spark: Any, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [[i] for i in range(600)])
    what = plan(path, target("even"), target("third"), rule=POISSON, conditions=("v % 2 = 0", "v % 3 = 0"))
    found, _ = fed(spark, what)
    expected = [(at, 0, 2 * i) for i, at in enumerate(POISSON.at(0, 0, 300, 0)[0].tolist())]
    expected += [(at, 1, 3 * i) for i, at in enumerate(POISSON.at(1, 0, 200, 0)[0].tolist())]
    assert [(row[ARRIVAL], row[STREAM], row["v"]) for row in found] == sorted(expected)


def test_a_column_can_split_the_rows_into_streams(spark: Any, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [[i, "tu"[i % 2]] for i in range(9)] + [[9, ""]], ["v", "kind"])
    found_values = split_values(spark, (str(path),), ReadOptions(), "kind")
    assert found_values == ("t", "u")
    what = plan(path, target("s_t"), target("s_u"), split_by="kind", split_values=found_values)
    found, refused = fed(spark, what)
    assert [[row["v"] for row in found if row[STREAM] == stream] for stream in (0, 1)] == [[0, 2, 4, 6, 8], [1, 3, 5, 7]]
    assert refused == {"column kind is NULL": 1}
    with pytest.raises(SourceError, match="--split-by names nothing"):
        split_values(spark, (str(path),), ReadOptions(), "nothing")


def test_a_resumed_feed_brings_exactly_the_rows_that_are_left(spark: Any, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [[i] for i in range(100)])
    what = plan(path, target("a"), target("b"), rule=POISSON, conditions=("v < 60", "v >= 60"))
    whole, _ = fed(spark, what)
    rest, _ = fed(spark, what, {0: 13, 1: 40})
    assert rest == [row for row in whole if row[STREAM] == 0 and row[INDEX] >= 13]


def test_recorded_times_give_the_arrivals_and_the_order_of_several_streams(spark: Any, tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "x.csv", [["2024-01-01T00:00:05Z", 1], ["2024-01-01T00:00:01Z", 2], ["2024-01-01T00:00:09.5Z", 3], ["", 4]], ["ts", "v"]
    )
    columns = "ts TIMESTAMP, v BIGINT"
    what = plan(
        path, target("a", columns, "ts"), target("b", columns, "ts"), rule=ArrivalRule("original", speed=2), conditions=("v <> 2", "v = 2")
    )
    found, refused = fed(spark, what)
    assert [(row["v"], row[ARRIVAL]) for row in found] == [(2, 0), (1, 2 * 10**9), (3, 4_250_000_000)]
    assert refused == {"column ts is NULL": 1}


def test_an_integer_time_counts_in_the_unit_of_the_stream(spark: Any, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [[1_000], [1_250]], ["t"])
    timed = replace(target("s", "t BIGINT", "t"), unit="ms")
    found, _ = fed(spark, plan(path, timed, rule=ArrivalRule("original")))
    assert values(found, ARRIVAL) == [0, 250_000_000]


def test_csv_whose_header_has_no_comma_is_read_by_what_it_has(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "sheet.csv").write_text("v;w\n1;0,5\n2;1\n", "utf-8")
    found, _ = fed(spark, plan(tmp_path / "sheet.csv", target("s", "v BIGINT, w TEXT")))
    assert [(row["v"], row["w"]) for row in found] == [(1, "0,5"), (2, "1")]


def test_csv_keeps_what_quoting_says(spark: Any, tmp_path: Path) -> None:
    text = '\ufeffid,s\r\n1,"a,b"\r\n2,"line1\nline2"\r\n3,""\r\n4,\r\n5,"say ""hi"""\r\n6,"x",\r\n7,last'
    (tmp_path / "quirks.csv").write_bytes(text.encode())
    found, refused = fed(spark, plan(tmp_path / "quirks.csv", target("s", "id BIGINT, s TEXT")))
    assert [(row["id"], row["s"]) for row in found] == [(1, "a,b"), (2, "line1\nline2"), (3, ""), (4, None), (5, 'say "hi"'), (7, "last")]
    assert refused == {"the row cannot be parsed": 1}


def test_json_lines_that_are_broken_are_counted_and_the_rest_is_read(spark: Any, tmp_path: Path) -> None:
    lines = [b'{"v": 1, "w": 0.10}', b'{"v": 12iiii}', b'{"w": null, "v": 9007199254740993}', b'{"v": 1.5}', b'{"v": "2"}']
    with gzip.open(tmp_path / "x.jsonl.gz", "wb") as file:
        file.write(b"\n".join(lines))
    found, refused = fed(spark, plan(tmp_path / "x.jsonl.gz", target("s", "v BIGINT, w DECIMAL(4,2)")))
    assert [(row["v"], str(row["w"])) for row in found] == [(1, "0.10"), (9007199254740993, "None"), (2, "None")]
    assert refused == {"the row cannot be parsed": 1, "column v is not a BIGINT": 1}


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_columnar_files_keep_their_types(spark: Any, tmp_path: Path, kind: str) -> None:
    # Spark's ORC reader fails on fractions of a second before 1970; then the feed stops and names the file.
    second = 59 if kind == "parquet" else 60
    instant = dt.datetime(1969, 12, 31, 23, 59, tzinfo=UTC) + dt.timedelta(seconds=second, microseconds=999_999)
    table = pa.table(
        {
            "b": [True, None],
            "i": pa.array([1, -(2**31)], pa.int32()),
            "d": [0.1, float("nan")],
            "t": pa.array([instant, None], pa.timestamp("us", "UTC")),
            "x": ["測试", ""],
            "day": [dt.date(2020, 2, 29), None],
        }
    )
    module = pyarrow.parquet if kind == "parquet" else pyarrow.orc
    module.write_table(table, tmp_path / f"x.{kind}")
    found, refused = fed(
        spark, plan(tmp_path / f"x.{kind}", target("s", "b BOOLEAN, i BIGINT, d DOUBLE, t TIMESTAMP, x TEXT, day DATE, gone TEXT"))
    )
    got = pa.Table.from_pylist([{name: row[name] for name in table.column_names} for row in found])
    expected = table.set_column(1, "i", table["i"].cast("int64"))
    assert refused == {}
    assert got.select(["b", "i", "t", "x", "day"]).to_pydict() == expected.select(["b", "i", "t", "x", "day"]).to_pydict()
    assert np.array_equal(got["d"].to_numpy(), expected["d"].to_numpy(), equal_nan=True)
    assert values(found, "gone") == [None, None]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_instants_in_parquet_mean_the_same_under_any_session_zone(spark: Any, tmp_path: Path, zone: str) -> None:
    instant = dt.datetime(2020, 1, 1, 20, tzinfo=UTC)
    far = dt.datetime(3000, 1, 1, tzinfo=UTC)
    adjusted = pa.table({"v": pa.array([instant, far], pa.timestamp("us", "UTC"))})
    pyarrow.parquet.write_table(adjusted, tmp_path / "micros.parquet")
    pyarrow.parquet.write_table(adjusted.slice(0, 1), tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        found, _ = fed(spark, plan((tmp_path / "micros.parquet", tmp_path / "int96.parquet"), target("s", "v TIMESTAMP")))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [value.astimezone(UTC) for value in values(found)] == [instant, far, instant]


def test_local_times_are_refused_until_a_zone_is_named(spark: Any, tmp_path: Path) -> None:
    local = pa.table({"v": pa.array([dt.datetime(2020, 1, 1, 12)], pa.timestamp("us"))})
    pyarrow.parquet.write_table(local, tmp_path / "x.parquet")
    timed = target("s", "v TIMESTAMP")
    with pytest.raises(SourceError, match="local times without a zone"):
        fed(spark, plan(tmp_path / "x.parquet", timed))
    found, _ = fed(spark, plan(tmp_path / "x.parquet", timed, mapped=Mapped(zone="America/Los_Angeles")))
    assert values(found) == [dt.datetime(2020, 1, 1, 20, tzinfo=UTC)]


def test_a_zone_is_for_texts_that_name_none(spark: Any, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [["2020-07-01 12:00:00"], ["2020-07-01T12:00:00Z"], ["2020-07-01T12:00:00+05:30"]])
    found, _ = fed(spark, plan(path, target("s", "v TIMESTAMP"), mapped=Mapped(zone="Europe/Berlin")))
    assert [value.hour * 60 + value.minute for value in values(found)] == [600, 720, 390]


TIMES = [
    ("%d/%m/%Y %H:%M:%S.%f", None, ["06/05/2024 12:00:01.5", "6/5/2024 1:2:3.123456", "31/02/2024 00:00:00.0", "2024-05-06 00:00:00"]),
    ("%b %d %y %I:%M %p", "Europe/Berlin", ["May 6 24 12:00 AM", "jul 31 99 01:05 pm", "x"]),
    (
        "%B %d %Y %H:%M %z",
        "Europe/Berlin",
        ["May 6 2024 12:00 +0230", "May 6 2024 12:00 -05:30", "May 6 2024 12:00 Z", "May 6 2024 12:00 +02"],
    ),
    ("%Y%m%d", "UTC", ["20240506", "2024056", "20241301"]),
    ("s", None, ["1715000000", "-1.5", "1715000000.123456", "1715000000.1234567", "x"]),
    ("ms", None, ["1715000000123", "1.5", "x"]),
]


@pytest.mark.parametrize(("text", "zone", "times"), TIMES, ids=[text for text, _, _ in TIMES])
def test_times_in_a_format_are_read_as_publish_and_run_read_them(
    spark: Any, tmp_path: Path, text: str, zone: str | None, times: list[str]
) -> None:
    path = write_csv(tmp_path / "x.csv", [[one] for one in times])
    column, format = time_format(text)
    found, refused = fed(spark, plan(path, target("s", "v TIMESTAMP"), mapped=Mapped({}, zone, {column: format})))
    wanted = []
    for iso in format.iso(pa.array(times)).to_pylist():
        with contextlib.suppress(ValueError):
            wanted += [] if iso is None or len(iso) > 27 else [parse_timestamp(iso, zone)]  # finer than Spark's microseconds
    assert [(value - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(microseconds=1) for value in values(found)] == wanted
    assert refused == ({f"column v does not have the time format {text}": len(times) - len(wanted)} if len(wanted) < len(times) else {})


def test_what_does_not_fit_its_column_is_refused_and_counted_never_bent(spark: Any, tmp_path: Path) -> None:
    table = pa.table({"v": [1.0, 2.5, float("nan"), 1e30, None]})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    found, refused = fed(spark, plan(tmp_path / "x.parquet"))
    assert values(found) == [1, None]
    assert refused == {"column v is not a BIGINT": 3}
    path = write_csv(tmp_path / "y.csv", [["1.25"], ["1.255"], ["x"]])
    found, refused = fed(spark, plan(path, target("s", "v DECIMAL(5,2)")))
    assert [str(value) for value in values(found)] == ["1.25"]
    assert refused == {"column v is not a DECIMAL(5,2)": 2}


def test_expressions_fill_columns_that_the_files_do_not_have(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"seconds": 1715000000 + i, "name": "n"}) for i in range(2)))
    columns = "ts TIMESTAMP, v TEXT"
    mapped = Mapped({"ts": "timestamp_seconds(cast(seconds as bigint))", "v": "upper(name)"})
    found, _ = fed(spark, plan(tmp_path / "x.jsonl", target("s", columns), mapped=mapped))
    assert (found[0]["ts"].isoformat(), found[0]["v"]) == ("2024-05-06T12:53:20+00:00", "N")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"mapped": Mapped({"v": "nothing + 1"})}, "cannot fill the stream's columns.*nothing"),
        ({"mapped": Mapped({"w": "v"})}, "--map names w"),
        ({"conditions": ("nothing > 1",)}, "the condition 'nothing > 1'"),
    ],
)
def test_expressions_that_mean_nothing_are_named(spark: Any, tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    path = write_csv(tmp_path / "x.csv", [[1]])
    with pytest.raises(SourceError, match=complaint):
        fed(spark, plan(path, **options))


def test_a_column_that_the_stream_needs_must_be_there(spark: Any, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [[1]], ["other"])
    needed = target("s")
    needed = replace(needed, columns=(replace(needed.columns[0], nullable=False),))
    with pytest.raises(SourceError, match="no column v") as caught:
        fed(spark, plan(path, needed))
    assert "they have other" in caught.value.hint


def test_files_without_a_telling_name_need_a_format(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write_csv(tmp_path / "d" / "part-0.csv", [[1]])
    write_csv(tmp_path / "d" / "part 1.csv", [[2]])
    assert sorted(values(fed(spark, plan(tmp_path / "d"))[0])) == [1, 2]
    plain = write_csv(tmp_path / "plain", [[3]])
    with pytest.raises(SourceError, match="cannot tell the format"):
        fed(spark, plan(plain))
    assert values(fed(spark, plan(plain, read=ReadOptions(format="csv")))[0]) == [3]
    with pytest.raises(SourceError, match=r"cannot read .*missing\.csv"):
        fed(spark, plan(tmp_path / "missing.csv"))


def test_a_file_that_is_not_what_its_name_says_is_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no parquet")
    with pytest.raises(SourceError, match=r"cannot read .*x\.parquet: .*is not a Parquet file"):
        fed(spark, plan(tmp_path / "x.parquet"))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a/x.CSV", "csv"),
        ("x.tsv.gz", "csv"),
        ("d/*.json.bz2", "jsonl"),
        ("s3a://b/k.parquet", "parquet"),
        ("x.orc/", "orc"),
        ("d/part-0", None),
    ],
)
def test_a_file_name_tells_its_format(path: str, kind: str | None) -> None:
    assert format_of(path) == kind


def test_what_spark_cannot_unpack_is_refused_by_name() -> None:
    with pytest.raises(SourceError, match="packed with xz"):
        format_of("flights.csv.xz")


def test_a_mark_of_null_is_taken_besides_the_empty_value(spark: Any, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [["NA", "NA"], ["1", "x"], ["", "NAME"]], ["v", "w"])
    found, refused = fed(spark, plan(path, target("s", "v BIGINT, w TEXT"), read=ReadOptions(null="NA")))
    assert [(row["v"], row["w"]) for row in found] == [(None, None), (1, "x"), (None, "NAME")]
    assert refused == {}
