"""The short way for Arrow batches takes only what the long way takes unchanged, and takes it alike."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.types import TEXT
from millstream.engine.ingest.coerce import Coercer
from millstream.engine.ingest.quick import PlainText, joined, plain_text
from millstream.engine.language.parse import parse_statement
from millstream.protocol.batches import BatchEncoder
from millstream.protocol.plain_batches import PlainReader, width_of

COLUMNS = "ts TIMESTAMP, k BIGINT, n INT, x DOUBLE, s TEXT"
SCHEMA = pa.schema([("s", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("n", pa.int32()), ("x", pa.float64())])


def coercer(text: str = f"CREATE STREAM s ({COLUMNS}) TIMESTAMP BY ts") -> Coercer:
    return Coercer(parse_statement(text).definition)  # type: ignore[union-attr]


def batch(texts: list[str], times: list[int]) -> Any:
    rows = len(times)
    ts = pa.array(times, pa.int64()).view(pa.timestamp("us", "UTC"))
    return pa.record_batch(
        [pa.array(texts, pa.string()), ts, np.arange(rows), np.arange(rows, dtype=np.int32), np.ones(rows)], schema=SCHEMA
    )


def taken(one: Any, payload: bytes | None = None) -> Any:
    if payload is None:
        payload = b"".join(bytes(piece) for piece in BatchEncoder(one.schema).encode(one))
    plain = coercer().plain(one.schema)
    assert plain is not None
    view = memoryview(payload)
    buffers = PlainReader([width_of(f.type) or 0 for f in one.schema]).read(view, one.num_rows)
    assert buffers is not None
    return plain.columns(view, buffers, one.num_rows)


@pytest.mark.parametrize("texts", [["a", "", "long text"], ["", "", ""]])
def test_plain_columns_are_those_of_the_long_way(texts: list[str]) -> None:
    one = batch(texts, [1, 5, 3])
    short, long = taken(one), coercer().arrow(one)
    assert not long.rejected
    for mine, theirs in zip(short, long.columns, strict=True):
        assert mine.type == theirs.type
        assert mine.valid is None
        assert list(mine.values) == list(theirs.values)


@pytest.mark.parametrize(("texts", "times"), [(["a", "é"], [1, 2]), (["a", "b"], [1, 2**62 + 1]), (["a", "b"], [1, -(2**63)])])
def test_what_needs_a_closer_look_is_left_to_the_long_way(texts: list[str], times: list[int]) -> None:
    assert taken(batch(texts, times)) is None


@pytest.mark.parametrize("offsets", [[0, 5, 2], [-1, 1, 2], [0, 1, 200], [0, 2**31 - 1, 2]])
def test_text_whose_offsets_lead_astray_is_left_to_the_long_way(offsets: list[int]) -> None:
    one = batch(["a", "b"], [1, 2])
    payload = b"".join(bytes(piece) for piece in BatchEncoder(one.schema).encode(one))
    assert payload.count(np.array([0, 1, 2], np.int32).tobytes()) == 1
    assert taken(one, payload.replace(np.array([0, 1, 2], np.int32).tobytes(), np.array(offsets, np.int32).tobytes())) is None


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA.append(pa.field("more", pa.int64())),
        SCHEMA.remove(0),
        SCHEMA.set(2, pa.field("k", pa.int32())),
        SCHEMA.set(0, pa.field("s", pa.large_string())),
    ],
)
def test_a_schema_that_is_not_the_streams_own_has_no_short_way(schema: Any) -> None:
    assert coercer().plain(schema) is None


def test_a_stream_with_other_types_has_no_short_way() -> None:
    assert coercer("CREATE STREAM s (ts TIMESTAMP, d DECIMAL(10, 2)) TIMESTAMP BY ts").plain(SCHEMA) is None


def text_from(array: Any) -> PlainText:
    """Return a text column over a payload whose offsets are the array's own, which a slice's do not begin at 0."""
    one = pa.record_batch([array, *batch([""] * len(array), [1] * len(array)).columns[1:]], schema=SCHEMA)
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
    payload = b"".join(bytes(piece) for piece in BatchEncoder(one.schema).encode(one))
    characters = array.buffers()[2].to_pybytes()
    view, start = memoryview(payload + offsets.tobytes() + characters), len(payload)
    text = plain_text(view, (start, offsets.nbytes), (start + offsets.nbytes, len(characters)), len(array))
    assert text is not None
    return text


def test_text_is_made_into_an_array_only_when_it_is_read_and_says_how_long_it_is_before() -> None:
    text = text_from(pa.array(["ab", "", "cde"]))
    assert (len(text), text.nbytes(), text.validity()) == (3, 5 + 4 * 3, None)
    with pytest.raises(AttributeError):
        text.missing  # noqa: B018
    assert text.values.to_pylist() == ["ab", "", "cde"]
    assert text.values is text.values
    assert text.take(np.array([2, 0])).values.to_pylist() == ["cde", "ab"]


def test_a_snapshot_of_text_that_nobody_has_read_holds_its_rows() -> None:
    copy = pickle.loads(pickle.dumps(text_from(pa.array(["ab", "", "cde"]).slice(1, 2)), protocol=5))
    assert type(copy) is Column
    assert (copy.type, copy.valid, copy.values.to_pylist()) == (TEXT, None, ["", "cde"])


def test_joined_text_is_the_rows_of_all_wherever_their_offsets_begin() -> None:
    whole = pa.array(["zero", "one", "", "three", "four"])
    parts = [text_from(whole.slice(1, 2)), text_from(whole.slice(0, 1)), text_from(whole.slice(2, 3))]
    expected = ["one", "", "zero", "", "three", "four"]
    both = joined(parts)
    assert (len(both), both.nbytes()) == (6, len("".join(expected)) + 4 * 6)
    assert both.values.to_pylist() == expected
    assert joined([both, parts[0]]).values.to_pylist() == [*expected, "one", ""]
    assert joined(parts[:1]) is parts[0]
    assert joined([concat_columns([parts[0], both]), parts[1]]).values.to_pylist() == ["one", "", *expected, "zero"]
