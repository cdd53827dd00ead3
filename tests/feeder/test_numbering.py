"""Numbering on Arrow batches without Spark: the cut into partitions and batches must not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.feeder.arrivals import ArrivalRule
from millstream.feeder.numbering import (
    ARRIVAL,
    BLOCK,
    FILE,
    INDEX,
    SOURCE,
    STREAM,
    TIME_US,
    BlockCount,
    BlockKey,
    plan_numbering,
)
from millstream.feeder.rates import constant

Rows = list[tuple[int, str, int, int, int]]  # source, file, block, stream, value


def batch(rows: Rows) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return pa.record_batch(
        {
            "value": pa.array(columns[4], pa.int64()),
            STREAM: pa.array(columns[3], pa.int32()),
            SOURCE: pa.array(columns[0], pa.int32()),
            FILE: pa.array(columns[1], pa.string()),
            BLOCK: pa.array(columns[2], pa.int64()),
            TIME_US: pa.array(columns[4], pa.int64()),
        }
    )


def counts_of(rows: Rows) -> list[BlockCount]:
    found: dict[BlockKey, list[int]] = {}
    for *key, value in rows:
        found.setdefault(BlockKey(*key), []).append(value)  # type: ignore[arg-type]
    return [BlockCount(key, len(values), max(values), min(values)) for key, values in found.items()]


def numbered(rows: Rows, order: list[int], cut: int, rule: ArrivalRule, **options: Any) -> dict[int, tuple[int, int]]:
    """Return value -> (index, arrival), the blocks read in the given order by a task each, in batches of `cut` rows."""
    numbering = plan_numbering(rule, counts_of(rows), options.get("skip", {}), by_time=options.get("by_time", False))
    blocks = sorted({row[:3] for row in rows})
    found: dict[int, tuple[int, int]] = {}
    for position in order:
        part = [row for row in rows if row[:3] == blocks[position % len(blocks)]]
        batches = [batch(part[at : at + cut]) for at in range(0, len(part), cut)]
        for out in numbering.apply(batches):
            assert out.schema.names == ["value", STREAM, INDEX, ARRIVAL]
            for row in out.to_pylist():
                found[row["value"]] = (row[INDEX], row[ARRIVAL])
    return found


places = st.tuples(st.integers(0, 1), st.sampled_from(["a", "b"]), st.sampled_from([0, 4096]))


@given(st.lists(st.tuples(places, st.integers(0, 2)), min_size=1, max_size=40), st.integers(1, 9), st.randoms())
def test_numbers_follow_files_blocks_and_rows_whoever_reads_them(drawn: list[Any], cut: int, chance: Any) -> None:
    drawn.sort(key=lambda item: item[0])
    rows = [(*place, stream, value) for value, (place, stream) in enumerate(drawn)]
    blocks = len({row[:3] for row in rows})
    order = list(range(blocks))
    chance.shuffle(order)
    rule = ArrivalRule("poisson", constant(100), seed=1)
    found = numbered(rows, order, cut, rule)
    for stream in range(3):
        values = [row[4] for row in rows if row[3] == stream]
        assert [found[value][0] for value in values] == list(range(len(values)))
        assert [found[value][1] for value in values] == rule.at(stream, 0, len(values), 0)[0].tolist()


def test_blocks_that_share_one_partition_are_told_apart_inside_a_batch() -> None:
    rows: Rows = [(0, "a", 0, 0, 10), (0, "a", 4096, 0, 11), (0, "b", 0, 0, 12)]
    numbering = plan_numbering(ArrivalRule("max"), counts_of(rows), {}, by_time=False)
    # one task reads b before a, as Spark does when b is the larger file
    (out,) = numbering.apply([batch([rows[2], rows[0], rows[1]])])
    assert out.column(INDEX).to_pylist() == [2, 0, 1]


def test_recorded_times_run_on_over_blocks() -> None:
    rows: Rows = [(0, "a", 0, 0, 5_000), (0, "a", 4096, 0, 2_000), (0, "a", 4096, 0, 9_000), (0, "a", 0, 1, 3_000)]
    found = numbered(rows, [1, 0], 10, ArrivalRule("original"), by_time=True)
    assert {value: arrival for value, (_, arrival) in found.items()} == {
        5_000: 3_000_000,
        2_000: 3_000_000,
        9_000: 7_000_000,
        3_000: 1_000_000,
    }


@pytest.mark.parametrize("skipped", [0, 1, 4, 5])
def test_rows_fed_before_are_left_out_and_the_others_keep_their_numbers(skipped: int) -> None:
    rows: Rows = [(0, "a", 0, i % 2, i) for i in range(10)]
    whole = numbered(rows, [0], 3, ArrivalRule("fixed", constant(10)))
    rest = numbered(rows, [0], 3, ArrivalRule("fixed", constant(10)), skip={1: skipped})
    assert rest == {value: kept for value, kept in whole.items() if value % 2 == 0 or kept[0] >= skipped}


def test_an_empty_batch_passes() -> None:
    numbering = plan_numbering(ArrivalRule("max"), [], {}, by_time=False)
    (out,) = numbering.apply([batch([])])
    assert out.num_rows == 0
    assert np.array_equal(out.column(ARRIVAL).to_numpy(), [])
