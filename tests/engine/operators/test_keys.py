"""Ids for keys: equal keys get one id, different ones never, also after keys were freed and came again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.key_maps import ENCODED_ROWS, GONE_PER_KEPT, HashTable, IdPool
from millstream.engine.data.keys import KeyEncoder, NumberKey, key_encoder
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, INT, TEXT, DataType, decimal

from tests.support.engine_run import columns_of, values_of

VALUES: dict[str, tuple[DataType, st.SearchStrategy[Any]]] = {
    "small": (BIGINT, st.integers(0, 20) | st.none()),
    "row": (BIGINT, st.integers(5, 9) | st.sampled_from([4, 10, -(2**63), 2**63 - 1]) | st.none()),
    "wide": (BIGINT, st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]) | st.none()),
    "int": (INT, st.integers(-100_000, 100_000) | st.none()),
    "double": (DOUBLE, st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf]) | st.none()),
    "text": (TEXT, st.text(max_size=2) | st.none()),
    "bool": (BOOLEAN, st.booleans() | st.none()),
}


def canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def encode(encoder: KeyEncoder, types: list[DataType], rows: list[tuple[Any, ...]]) -> list[int]:
    schema = Schema(tuple(Field(f"k{i}", t) for i, t in enumerate(types)))
    result: list[int] = encoder.encode(columns_of(schema, rows)).tolist()
    return result


def find(encoder: KeyEncoder, types: list[DataType], rows: list[tuple[Any, ...]]) -> list[int]:
    schema = Schema(tuple(Field(f"k{i}", t) for i, t in enumerate(types)))
    result: list[int] = encoder.find(columns_of(schema, rows)).tolist()
    return result


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3), st.data())
def test_ids_tell_keys_apart_as_equality_does(kinds: list[str], data: st.DataObject) -> None:
    types = [VALUES[k][0] for k in kinds]
    row = st.tuples(*(VALUES[k][1] for k in kinds))
    encoder = key_encoder(types)
    known: dict[tuple[Any, ...], int] = {}
    for _ in range(4):
        rows = data.draw(st.lists(row, min_size=1, max_size=30))
        found = find(encoder, types, rows)
        ids = encode(encoder, types, rows)
        for r, i, before in zip(rows, ids, found, strict=True):
            assert before == i if tuple(map(canonical, r)) in known else before < 0
        assert find(encoder, types, rows) == ids
        for r, i in zip(rows, ids, strict=True):
            key = tuple(map(canonical, r))
            assert known.setdefault(key, i) == i
        assert len(set(known.values())) == len(known)
        assert encoder.alive == len(known)
        back = [values_of(c) for c in encoder.columns(np.array(list(known.values()), dtype=np.int64))]
        for (key, _), *values in zip(known.items(), *back, strict=True):
            assert tuple(map(canonical, values)) == key
        gone = data.draw(st.sets(st.sampled_from(sorted(known.values())))) if known else set()
        if gone:
            encoder.free(np.array(sorted(gone), dtype=np.int64))
            known = {k: v for k, v in known.items() if v not in gone}


def test_ids_are_reused_so_that_tables_do_not_grow_with_passing_keys() -> None:
    encoder = key_encoder([BIGINT, TEXT])
    for start in range(0, 100_000, 1_000):
        ids = encode(encoder, [BIGINT, TEXT], [(start + i, f"t{start + i}") for i in range(1_000)])
        encoder.free(np.array(ids))
    assert encoder.size <= 2_000
    assert encoder.alive == 0


@pytest.mark.parametrize("first", [0, 1, -3, 1_700_000_000_000_000])
def test_values_in_a_row_are_not_looked_up_until_another_one_comes(first: int) -> None:
    encoder = NumberKey(BIGINT)
    row = [(first + i,) for i in range(20)]
    assert encode(encoder, [BIGINT], row[::-1]) == list(range(19, -1, -1))
    find, looked_up = encoder._map._search, []
    encoder._map._search = lambda values: looked_up.append(len(values)) or find(values)  # type: ignore[method-assign,func-returns-value]
    assert encode(encoder, [BIGINT], row) == list(range(20))
    assert encode(encoder, [BIGINT], [row[0], row[-1]]) == [0, 19]
    assert looked_up == []
    assert encode(encoder, [BIGINT], [(first + 20,), (first + 21,), (first + 3,)]) == [20, 21, 3]
    assert encode(encoder, [BIGINT], [(first + 21,)]) == [21]
    assert looked_up == [3]  # the row has grown
    assert encode(encoder, [BIGINT], [(first,), (first - 1,), (first + 19,)]) == [0, 22, 19]
    assert encode(encoder, [BIGINT], [(first - 1,), (first + 1,)]) == [22, 1]
    assert len(looked_up) == 3


def test_a_row_of_values_with_null_or_a_freed_one_is_told_apart_all_the_same() -> None:
    encoder = NumberKey(BIGINT)
    assert encode(encoder, [BIGINT], [(0,), (1,), (2,)]) == [0, 1, 2]
    assert encode(encoder, [BIGINT], [(None,), (2,)]) == [3, 2]
    assert encode(encoder, [BIGINT], [(3,), (None,), (0,)]) == [4, 3, 0]  # 3 is NULL's
    encoder.free(np.array([1]))
    assert encode(encoder, [BIGINT], [(2,), (7,), (0,)]) == [2, 1, 0]
    assert encode(encoder, [BIGINT], [(1,)]) == [5]


@pytest.mark.parametrize("spread", [1, 1_000_003])
@pytest.mark.parametrize("gone", [100, 10_000, 19_000, 20_000])
def test_a_hash_table_finds_what_was_put_in_and_nothing_else(spread: int, gone: int) -> None:
    table = HashTable()
    values, ids = np.arange(20_000, dtype=np.int64) * spread, np.arange(20_000, dtype=np.int64)[::-1]
    table.insert(values, ids)
    stays = np.random.default_rng(gone).permutation(20_000) >= gone
    table.delete(values[~stays], ids[~stays])
    assert (table.find(values[stays]) == ids[stays]).all()
    assert (table.find(values[~stays]) == -1).all()
    assert (table.find(values + 20_000 * spread) == -1).all()


@pytest.mark.parametrize("different", [7, 1_000, 60_000])
@pytest.mark.parametrize("types", [[BIGINT], [INT, BIGINT], [TEXT, BIGINT, INT]], ids=["one", "two", "three"])
def test_many_rows_at_once_have_the_keys_that_they_would_have_in_parts(types: list[DataType], different: int) -> None:
    random = np.random.default_rng(different)
    count = 3 * ENCODED_ROWS + 5
    drawn = random.integers(0, different, count)
    parts = [(drawn * 7_919) % 100_003, drawn % 97, drawn // 3]
    rows = list(zip(*([str(v) for v in p.tolist()] if t is TEXT else p.tolist() for t, p in zip(types, parts, strict=False)), strict=True))
    encoder = key_encoder(types)
    ids = np.array(encode(encoder, types, rows))
    assert encoder.alive == len(set(rows)) == len(set(ids.tolist()))
    first = {row: place for place, row in reversed(list(enumerate(rows)))}
    assert (ids == ids[[first[row] for row in rows]]).all()
    back = encoder.columns(ids[:1_000])
    assert list(zip(*map(values_of, back), strict=True)) == rows[:1_000]
    kept = np.unique(ids)[:: GONE_PER_KEPT + 2]
    encoder.free(np.setdiff1d(ids, kept))
    assert encoder.alive == len(kept)
    again = np.array(find(encoder, types, rows[: 2 * ENCODED_ROWS]))
    stays = np.isin(ids[: 2 * ENCODED_ROWS], kept)
    assert (again[stays] == ids[: 2 * ENCODED_ROWS][stays]).all()
    assert (again[~stays] < 0).all()
    assert len(set(encode(encoder, types, rows))) == len(set(rows))
    assert encoder.size == len(set(rows))  # all ids were taken again


def test_freed_ids_come_back_in_order() -> None:
    pool = IdPool()
    assert pool.take(40).tolist() == list(range(40))
    pool.give_back(np.arange(30))
    assert (pool.alive, pool.size) == (10, 40)
    assert pool.take(10).tolist() == list(range(10))
    pool.give_back(np.array([3, 35]))
    assert pool.take(3).tolist() == [3, 10, 35]
    assert pool.take(21).tolist() == [*range(11, 30), 40, 41]
    assert IdPool.from_state({"size": 2, "_free": np.array([1])}).used(2).tolist() == [0]
    with pytest.raises(ValueError, match="free ids"):
        IdPool.from_state({"size": 2, "_free": "ab"})


def test_wide_decimals_are_keys_by_value() -> None:
    type_ = decimal(38, 2)
    encoder = key_encoder([type_])
    from decimal import Decimal

    ids = encode(encoder, [type_], [(Decimal("1.50"),), (Decimal("1.5"),), (Decimal(10) ** 30,), (None,)])
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
