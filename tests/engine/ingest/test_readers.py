"""Files by extension, gzipped or not; Parquet's three kinds of timestamp; damaged files."""

from __future__ import annotations

import datetime
import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from millstream.engine.data.errors import InvalidDefinition, SyntaxProblem
from millstream.engine.data.schema import TimeRule
from millstream.engine.data.types import BIGINT, TEXT, TIMESTAMP
from millstream.engine.ingest.readers import Reader, file_format
from millstream.protocol.values.packed import split_name, unpacked

COLUMNS = (("id", BIGINT), ("s", TEXT))
TABLE = pa.table({"id": pa.array([1, 2, None]), "s": ["a", None, "é"]})
ROWS = [(1, "a"), (2, None), (None, "é")]


def open_reader(path: Path, definition: Any) -> Reader:
    file = unpacked(io.BytesIO(path.read_bytes()), split_name(path)[1])
    return Reader(file, path.name, str(file_format(path)), definition)


def write(path: Path) -> None:
    kind, zipped = file_format(path), path.suffix == ".gz"
    text = {
        "csv": "id,s\n1,a\n2,\n,é\n",
        "tsv": "id\ts\n1\ta\n2\t\n\té\n",
        "jsonl": '{"id":1,"s":"a"}\n{"id":2}\n{"id":null,"s":"é"}\n',
    }
    if kind in text:
        data = text[kind].encode()
    elif kind == "parquet":
        pq.write_table(TABLE, path)
        return
    else:
        sink = pa.BufferOutputStream()
        with (pa.ipc.new_stream if path.name.startswith("stream") else pa.ipc.new_file)(sink, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=2)
        data = sink.getvalue().to_pybytes()
    path.write_bytes(gzip.compress(data) if zipped else data)


@pytest.mark.parametrize(
    "name",
    [
        "x.csv",
        "x.csv.gz",
        "x.tsv",
        "x.jsonl",
        "x.ndjson.gz",
        "x.JSON",
        "x.arrow",
        "stream.arrow",
        "stream.arrow.gz",
        "x.arrow.gz",
        "x.parquet",
    ],
)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path, coercer: Any, rows_of: Any) -> None:
    path = tmp_path / name
    write(path)
    with open_reader(path, coercer(*COLUMNS).definition) as reader:
        assert [row for chunk in reader.chunks() for row in rows_of(chunk)] == ROWS
        assert reader.notes == []


def test_unknown_extensions_have_no_format() -> None:
    for name in ("x.xlsx", "noextension", ".csv"):
        assert file_format(Path(name)) is None


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.csv.gz"])
def test_damaged_files_are_named_in_one_sentence(name: str, tmp_path: Path, coercer: Any) -> None:
    path = tmp_path / name
    path.write_bytes(b"this is not what the name says, at all")
    with pytest.raises(SyntaxProblem, match=f"{name} cannot be read as"), open_reader(path, coercer(*COLUMNS).definition) as reader:
        list(reader.chunks())


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.arrow", "stream.arrow"])
def test_a_file_without_a_needed_column_is_refused(name: str, tmp_path: Path, coercer: Any) -> None:
    path = tmp_path / name
    write(path)
    stream = coercer(("needed", BIGINT, False), ("id", BIGINT))
    lead = "a CSV file begins with a line of column names, and here that is" if name == "x.csv" else "it has"
    with (
        pytest.raises(InvalidDefinition, match=f"{name} has no column needed; {lead} id, s"),
        open_reader(path, stream.definition) as reader,
    ):
        list(reader.chunks())


def test_places_and_notes_of_a_file(tmp_path: Path, coercer: Any, rows_of: Any) -> None:
    path = tmp_path / "x.csv"
    path.write_text('id,more,s\n1,,"a\nb"\nx,,b\n2,,c,d\n')
    with open_reader(path, coercer(*COLUMNS).definition) as reader:
        (result,) = list(reader.chunks())
    assert [(reader.place(r.index), r.reason) for r in result.rejected] == [
        ("line 4", "column id: 'x' is not BIGINT"),
        ("line 5", "4 fields where the header has 3"),
    ]
    assert reader.notes == ["x.csv: left out column more, which the stream does not have"]
    assert reader.place(0) == "row 1"
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(SyntaxProblem, match=r"empty\.csv is empty"), open_reader(empty, coercer(*COLUMNS).definition) as reader:
        list(reader.chunks())


INSTANT = datetime.datetime(2020, 1, 1, 20, tzinfo=datetime.UTC)


def parquet(path: Path, array: Any, **options: Any) -> Path:
    pq.write_table(pa.table({"ts": array}), path, **options)
    return path


def times(path: Path, stream: Any, times_of: Any) -> list[int]:
    with open_reader(path, stream.definition) as reader:
        return [t for chunk in reader.chunks() for t in times_of(stream, chunk)]


def test_case_c29_int96_and_adjusted_timestamps_are_instants(tmp_path: Path, coercer: Any, times_of: Any) -> None:
    us = int(INSTANT.timestamp()) * 1_000_000
    adjusted = parquet(tmp_path / "a.parquet", pa.array([INSTANT], pa.timestamp("us", "UTC")))
    int96 = parquet(tmp_path / "b.parquet", pa.array([us], pa.timestamp("us")), use_deprecated_int96_timestamps=True)
    for zone in (None, "Asia/Kolkata"):
        stream = coercer(("ts", TIMESTAMP), time=TimeRule("ts", zone=zone))
        assert times(adjusted, stream, times_of) == [us]
        assert times(int96, stream, times_of) == [us]


def test_case_c29_local_timestamps_need_a_zone_for_the_event_time(tmp_path: Path, coercer: Any, texts_of: Any, times_of: Any) -> None:
    local = parquet(tmp_path / "c.parquet", pa.array([datetime.datetime(2020, 1, 1, 12)], pa.timestamp("us")))
    with pytest.raises(InvalidDefinition, match="local time without a zone"):
        times(local, coercer(("ts", TIMESTAMP), time=TimeRule("ts")), times_of)
    zoned = coercer(("ts", TIMESTAMP), time=TimeRule("ts", zone="America/Los_Angeles"))
    assert times(local, zoned, times_of) == [int(INSTANT.timestamp()) * 1_000_000]
    unused = coercer(("ts", TIMESTAMP))
    with open_reader(local, unused.definition) as reader:
        assert texts_of(next(reader.chunks())) == [("2020-01-01T12:00:00Z",)]


def test_case_c29_int96_of_the_year_3000_does_not_wrap(tmp_path: Path, coercer: Any, times_of: Any) -> None:
    far = int(datetime.datetime(3000, 1, 1, tzinfo=datetime.UTC).timestamp()) * 1_000_000
    path = parquet(tmp_path / "d.parquet", pa.array([far], pa.timestamp("us")), use_deprecated_int96_timestamps=True)
    assert times(path, coercer(("ts", TIMESTAMP), time=TimeRule("ts")), times_of) == [far]
