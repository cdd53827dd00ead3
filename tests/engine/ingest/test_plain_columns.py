"""The short way for Arrow batches takes only what the long way takes unchanged, and takes it alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from millstream.engine.ingest.coerce import Coercer
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
