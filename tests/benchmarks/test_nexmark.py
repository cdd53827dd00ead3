"""NEXMark: events as documented, every query's answer DuckDB's, in order and out of it; late rows by the rules."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from millstream.client.benchmarks.nexmark import workload as workload_module
from millstream.client.benchmarks.nexmark.generator import BASE_US, CHUNK_EVENTS, Generator
from millstream.client.benchmarks.nexmark.workload import QUERIES, Workload
from millstream.client.cli import run
from millstream.server.benchmarks.nexmark import Engine

EVENTS = 12_000
DISORDER = 5_000  # events: half a second, of the four that the streams allow
DELAY_US = 4_000_000
SECOND_US = 1_000_000


@cache
def workload(disorder: int = 1, events: int = EVENTS, rate_per_s: int = 10_000) -> Workload:
    return Workload(Generator(events, seed=7, rate_per_s=rate_per_s, disorder=disorder))


def ints(column: Any) -> Any:
    return column.cast(pa.int64()).to_numpy()


def test_events_come_in_the_documented_proportions_and_name_the_documented_ids() -> None:
    chunk = Generator(50_000, seed=3).chunk(0)
    assert [batch.num_rows for _, batch in chunk.items()] == [1_000, 3_000, 46_000]
    assert ints(chunk.person["id"]).tolist() == list(range(1_000, 2_000))
    assert ints(chunk.auction["id"]).tolist() == list(range(1_000, 4_000))
    times = ints(chunk.bid["datetime"])
    assert times[0] == BASE_US
    assert times[-1] == BASE_US + 4_999 * 1_000
    assert set(ints(chunk.auction["category"])) == set(range(10, 15))
    open_us = ints(chunk.auction["expires"]) - ints(chunk.auction["datetime"])
    assert 1_000 <= open_us.min() < open_us.max() <= 334_000
    prices = np.log10(ints(chunk.bid["price"]))
    assert (prices.min(), prices.max()) == pytest.approx((2, 8), abs=0.01)
    assert np.histogram(prices, bins=6, range=(2, 8))[0] == pytest.approx(46_000 / 6, rel=0.05)
    hot = ints(chunk.bid["auction"]) % 100 == 0
    assert hot.mean() == pytest.approx(0.505, abs=0.01)
    assert (ints(chunk.bid["bidder"]) % 100 == 1).mean() == pytest.approx(0.7525, abs=0.01)
    assert (ints(chunk.auction["seller"]) % 100 == 0).mean() == pytest.approx(0.7525, abs=0.03)
    for batch, wanted in ((chunk.person, 200), (chunk.auction, 500)):
        size = sum(len(value) if isinstance(value, str) else 8 for row in batch.to_pylist() for value in row.values())
        assert size / batch.num_rows == pytest.approx(wanted, rel=0.05)


def test_hot_channels_take_half_of_the_bids_and_most_addresses_name_their_channel() -> None:
    bids = Generator(50_000, seed=3).chunk(0).bid.to_pylist()
    count = Counter(bid["channel"] for bid in bids)
    assert sum(count[name] for name in ("Google", "Facebook", "Baidu", "Apple")) / len(bids) == pytest.approx(0.5, abs=0.01)
    others = [bid["url"] for bid in bids if bid["channel"].startswith("channel-")]
    assert sum("&channel_id=" in url for url in others) / len(others) == pytest.approx(0.9, abs=0.02)
    assert all(url.startswith("https://www.nexmark.com/") and url.count("/") == 6 for url in others)


def test_a_chunk_is_the_same_whatever_was_made_before_it_and_seeds_differ() -> None:
    whole = list(Generator(CHUNK_EVENTS + 500, seed=5).chunks())
    assert Generator(CHUNK_EVENTS + 500, seed=5).chunk(1).bid.equals(whole[1].bid)
    assert not Generator(500, seed=6).chunk(0).bid.equals(whole[1].bid)


def test_events_out_of_order_are_those_in_order_within_each_group() -> None:
    straight, shuffled = (ints(Generator(20_000, disorder=d).chunk(0).bid["datetime"]) for d in (1, 2_000))
    assert sorted(shuffled) == sorted(straight)
    assert (np.diff(shuffled) < 0).any()
    assert (np.maximum.accumulate(shuffled) - shuffled).max() < 2_000 * 100


def answered(work: Workload, names: list[str]) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    engine = Engine(work, names)
    engine.run()
    for name in names:
        yield name, engine.rows(name)


@pytest.mark.parametrize("disorder", [1, DISORDER], ids=["in order", "out of order"])
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_as_duckdb_does(query: str, disorder: int) -> None:
    for name, rows in answered(workload(disorder), [query]):
        assert workload(disorder).wrong(name, rows) is None


def test_all_queries_at_once_answer_as_each_does_alone() -> None:
    work = workload(DISORDER)
    assert {name: work.wrong(name, rows) for name, rows in answered(work, list(QUERIES))} == dict.fromkeys(QUERIES)


def test_a_wrong_answer_is_told() -> None:
    work = workload()
    ((name, rows),) = answered(work, ["q2"])
    table = pa.Table.from_batches(rows)
    assert "instead of" in str(work.wrong(name, table.slice(1).to_batches()))
    assert "instead of" in str(work.wrong(name, pa.concat_tables([table, table.slice(0, 1)]).to_batches()))


def in_time(times: Any, ends: Any) -> Any:
    """K3, K4: whether a row comes before W has reached the end of its window. W is the greatest time of the rows before, less the delay."""
    before = np.concatenate([[np.iinfo(np.int64).min // 2], np.maximum.accumulate(times)[:-1]])
    return ends > before - DELAY_US


@pytest.fixture(scope="module")
def late() -> Workload:
    """Events up to 20 s out of order, at a slow rate: some come when their windows have closed."""
    return workload(20_000, 20_000, 1_000)


def test_late_bids_are_left_out_of_the_highest_ones(late: Workload) -> None:
    bids = pa.Table.from_batches([chunk.bid for chunk in late.chunks])
    times, prices = ints(bids["datetime"]), ints(bids["price"])
    starts = times // (10 * SECOND_US) * 10 * SECOND_US
    counted = in_time(times, starts + 10 * SECOND_US)
    assert 0 < (~counted).sum() < len(counted)
    highest: dict[int, int] = {}
    for start, price in zip(starts[counted].tolist(), prices[counted].tolist(), strict=True):
        highest[start] = max(highest.get(start, 0), price)
    expected = sorted(
        (start, price) for start, price in zip(starts[counted].tolist(), prices[counted].tolist(), strict=True) if price == highest[start]
    )
    ((_, rows),) = answered(late, ["q7"])
    table = pa.Table.from_batches(rows)
    found = zip((ints(table["datetime"]) // (10 * SECOND_US) * 10 * SECOND_US).tolist(), ints(table["price"]).tolist(), strict=True)
    assert sorted(found) == expected


def test_late_bids_count_in_those_windows_that_are_still_open(late: Workload) -> None:
    bids = pa.Table.from_batches([chunk.bid for chunk in late.chunks])
    times, auctions = ints(bids["datetime"]), ints(bids["auction"])
    counts: Counter[tuple[int, int]] = Counter()
    for hop in range(5):
        starts = times // (2 * SECOND_US) * 2 * SECOND_US - hop * 2 * SECOND_US
        counted = in_time(times, starts + 10 * SECOND_US)
        counts.update(zip(starts[counted].tolist(), auctions[counted].tolist(), strict=True))
    most: dict[int, int] = {}
    for (start, _), count in counts.items():
        most[start] = max(most.get(start, 0), count)
    expected = sorted((start, auction, count) for (start, auction), count in counts.items() if count == most[start])
    ((_, rows),) = answered(late, ["q5"])
    table = pa.Table.from_batches(rows)
    found = zip(ints(table["window_start"]).tolist(), ints(table["auction"]).tolist(), ints(table["num"]).tolist(), strict=True)
    assert sorted(found) == expected


def test_events_are_written_as_parquet_and_as_arrow(tmp_path: Path) -> None:
    assert run(["bench", "nexmark", "--events", "1000", "--seed", "7", "--write", str(tmp_path)]) == 0
    import pyarrow.parquet as pq

    for name, batch in Generator(1_000, seed=7).chunk(0).items():
        expected = pa.Table.from_batches([batch])
        assert pq.read_table(tmp_path / f"{name}.parquet").equals(expected)
        assert pa.ipc.open_file(tmp_path / f"{name}.arrow").read_all().equals(expected)


def test_parts_and_events_are_refused_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["chain", "q5"], ["window", "--events", "5"]):
        assert run(["bench", *arguments]) == 2
        assert "makes no events" in capsys.readouterr().err
    assert run(["bench", "nexmark-engine", "q99"]) == 2
    assert "nexmark has no query q99; there are q0, q1," in capsys.readouterr().err


def test_without_duckdb_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert run(["bench", "nexmark-engine", "q0", "--events", "100"]) == 1
    assert "bench nexmark needs duckdb, which is not installed; pip install duckdb" in capsys.readouterr().err


def test_over_tcp_a_wrong_answer_of_no_rows_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = workload_module.statements_of
    nothing = ["SELECT auction, price FROM bid WHERE FALSE"]
    monkeypatch.setattr(workload_module, "statements_of", lambda name: nothing if name == "q2" else right(name))
    assert run(["bench", "nexmark-tcp", "q2", "--events", "20000"]) == 1
    assert "q2 has 0 rows instead of" in capsys.readouterr().err
