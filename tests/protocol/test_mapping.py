"""Files whose columns and times are named and written otherwise: `--map` and `--time-format`, and packed files."""

from __future__ import annotations

import datetime as dt
import gzip
import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.protocol.values.mapping import ColumnMap, column_maps
from millstream.protocol.values.packed import packing_of, split_name, unpacked
from millstream.protocol.values.time_formats import TimeFormat

FORMATS = [
    "%d/%m/%Y %H:%M:%S",
    "%Y%m%dT%H%M%S.%f",
    "%b %d %Y, %I:%M:%S %p",
    "%B %d, %y %H:%M",
    "%m/%d/%y %R",
    "%F %T.%f %z",
    "%d.%m.%Y",
    "%%%Y*%m(%d)",
]


@given(st.sampled_from(FORMATS), st.datetimes(dt.datetime(1969, 1, 1), dt.datetime(2068, 12, 31)), st.integers(-14 * 60, 14 * 60))
def test_a_time_is_read_as_strptime_reads_it(text: str, time: dt.datetime, offset: int) -> None:
    aware = time.replace(tzinfo=dt.timezone(dt.timedelta(minutes=offset))) if "%z" in text else time
    spelled = text.replace("%R", "%H:%M").replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S")
    written = aware.strftime(spelled)
    iso = TimeFormat(text).iso_of(written)
    assert iso is not None
    assert dt.datetime.fromisoformat(iso) == dt.datetime.strptime(written, spelled)
    assert TimeFormat(text).iso_of(f" {written.upper()} ") == iso


@given(st.integers(-62_135_596_800 * 10**9, 253_402_300_799 * 10**9), st.sampled_from(["s", "ms", "us", "ns"]))
def test_a_number_since_1970_is_read_exactly(nanoseconds: int, unit: str) -> None:
    per = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    number = nanoseconds // per
    iso = TimeFormat(unit).iso_of(str(number))
    if abs(number) >= 2**63:
        assert iso is None
        return
    assert iso is not None
    whole, _, digits = iso.removesuffix("Z").partition(".")
    seconds = (dt.datetime.fromisoformat(whole) - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1)
    assert seconds * 10**9 + int(digits.ljust(9, "0") or 0) == number * per


@pytest.mark.parametrize(
    ("format", "texts"),
    [
        ("%Y-%d-%m", ["2024-05-31", "2024-31-13", "", "x", "2024-31-05x"]),
        ("%d/%m/%Y %H:%M", ["32/01/2024 10:00", "01/01/2024 24:00", "01/01/2024"]),
        ("s", ["", "x", "1e9", "99999999999999999999", "1.0.0", "300000000000"]),
        ("ms", ["1.5"]),
    ],
)
def test_what_has_another_format_is_not_guessed_at(format: str, texts: list[str]) -> None:
    assert TimeFormat(format).iso(pa.array([*texts, None])).to_pylist() == [None] * (len(texts) + 1)


@pytest.mark.parametrize(
    ("format", "words"),
    [("%H:%M", "does not tell a day"), ("%Q", "has %Q"), ("%Y-%m-%d %I", "without %p"), ("%Y %Y-%m-%d", "%Y twice"), ("seconds", "a day")],
)
def test_a_format_that_means_nothing_is_refused_with_the_mend(format: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TimeFormat(format)


S = {"ts": "TIMESTAMP", "k": "BIGINT", "day": "DATE"}


def test_options_are_said_of_one_stream_or_of_all() -> None:
    maps = column_maps(["ts=time", "t.K=key"], ["%d.%m.%Y", "s.ts=ms", "day=%m/%d/%Y"], {"s": S, "t": {"ts": "TIMESTAMP", "k": "BIGINT"}})
    assert maps["s"].sources == {"ts": "time"}
    assert maps["t"].sources == {"ts": "time", "k": "key"}
    assert {column: format.text for column, format in maps["s"].formats.items()} == {"ts": "ms", "day": "%m/%d/%Y"}
    assert {column: format.text for column, format in maps["t"].formats.items()} == {"ts": "%d.%m.%Y"}


@pytest.mark.parametrize(
    ("map", "format", "words"),
    [
        ("ts", None, "write COLUMN=COLUMN_OF_THE_FILE"),
        ("x=y", None, "--map names x, which is not a column; s has ts, k, day"),
        (None, "x=%d", "--time-format: the time format"),
        (None, "x=s", "--time-format names x"),
        (None, "k=s", "column k of s is BIGINT, not TIMESTAMP"),
    ],
)
def test_an_option_that_means_nothing_is_refused(map: str | None, format: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        column_maps([map] if map else [], [format] if format else [], {"s": S})


def test_rows_and_tables_are_brought_to_the_columns_of_the_stream_alike() -> None:
    mapped = column_maps(["ts=time", "k=ts"], ["%d/%m/%Y"], {"s": S})["s"]
    rows = [mapped.row({"time": "06/05/2024", "ts": 7, "day": "2024-05-06", "x": 1}), mapped.row({"time": "2024-06-05"})]
    assert mapped.bring_times(rows) == {1: "column ts: '2024-06-05' does not have the time format %d/%m/%Y"}
    assert rows[0] == {"day": "2024-05-06", "x": 1, "ts": "2024-05-06", "k": 7}
    table = mapped.table(pa.table({"time": ["06/05/2024", "2024-06-05"], "ts": [7, 8], "x": [1, 2]}))
    assert table.to_pylist() == [
        {"ts": "2024-05-06", "k": 7, "x": 1},
        {"ts": "2024-06-05 (not %d/%m/%Y)", "k": 8, "x": 2},
    ]
    counts = ColumnMap(S, {}, {"ts": TimeFormat("ms")})
    assert counts.table(pa.table({"ts": [1_715_000_000_000]}))["ts"].to_pylist() == ["2024-05-06T12:53:20Z"]
    with pytest.raises(ValueError, match="there is no column time; there are a, b"):
        mapped.places(["a", "b"])


def test_a_map_of_one_column_leaves_the_others_to_their_names_in_any_case() -> None:
    mapped = column_maps(["ts=time"], [], {"s": S})["s"]
    assert mapped.places(["Time", "K", "note"]) == {"ts": 0, "k": 1}
    assert mapped.row({"Time": 5, "K": 1, "TS": 9, "note": "x"}) == {"ts": 5, "k": 1, "note": "x"}
    assert mapped.table(pa.table({"K": [1], "TIME": [5]})).to_pylist() == [{"ts": 5, "k": 1}]
    with pytest.raises(ValueError, match="column day stands twice"):
        mapped.row({"time": 1, "Day": 1, "DAY": 2})
    seen = column_maps([], ["ms"], {"s": S})["s"]
    rows = [seen.row({"TS": 1_715_000_000_000})]
    assert seen.bring_times(rows) == {}
    assert rows == [{"ts": "2024-05-06T12:53:20Z"}]
    assert seen.table(pa.table({"TS": [1_715_000_000_000]})).to_pylist() == [{"ts": "2024-05-06T12:53:20Z"}]


TEXT = b"k,v\n" + b"1,a\n" * 300_000
PACKED = {"gzip": gzip.compress(TEXT), "zstd": pa.compress(TEXT, codec="zstd", asbytes=True)}


@pytest.mark.parametrize("packing", PACKED)
def test_a_packed_file_is_unpacked_and_its_damage_told(packing: str) -> None:
    packed = PACKED[packing]
    assert packing_of(packed) == packing
    source = io.BytesIO(packed + packed)  # as `cat a.gz b.gz` makes it
    with unpacked(source, packing) as file:
        assert file.readline() == b"k,v\n"
        assert file.tell() == 4
        assert file.read() == TEXT[4:] + TEXT
    assert source.closed
    for damaged in (packed[:-3], packed[:60] + b"xxxx" + packed[64:]):
        with unpacked(io.BytesIO(damaged), packing) as file, pytest.raises(EOFError):
            file.read()


def test_the_packing_is_the_last_part_of_a_name() -> None:
    named = {name: (str(split_name(Path(name))[0]), split_name(Path(name))[1]) for name in ("a.csv", "a.csv.GZ", "a.jsonl.zst", "gz")}
    assert named == {"a.csv": ("a.csv", None), "a.csv.GZ": ("a.csv", "gzip"), "a.jsonl.zst": ("a.jsonl", "zstd"), "gz": ("gz", None)}
    assert packing_of(b"k,v\n") is None
    assert unpacked(io.BytesIO(b"x"), None).read() == b"x"
