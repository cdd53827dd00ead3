"""The files that other systems read for NEXMark, their queries, and the table of figures. They themselves run by hand (`make peers`)."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from millstream.client.benchmarks.nexmark.generator import CHUNK_EVENTS, Generator
from millstream.client.benchmarks.nexmark.workload import QUERIES, Workload
from millstream.engine.data.arrow import column_to_arrow
from millstream.engine.ingest.coerce import Coercer
from millstream.engine.ingest.csv_text import CsvParser
from millstream.server.benchmarks.embedding import Embedded

from tests.peers.flink_nexmark import queries
from tests.peers.nexmark import FLINK, NOT_IN_FLINK, OURS, READS, STREAMS, Ours, read, table, write


def test_the_files_hold_the_events_in_their_order_and_are_read_part_by_part(tmp_path: Path) -> None:
    events = CHUNK_EVENTS + 500
    write(tmp_path, events, 3)
    chunks = [dict(chunk.items()) for chunk in Generator(events, 3).chunks()]
    engine = Embedded(*Workload(Generator(events, 3)).streams)
    for stream in STREAMS:
        made = [chunk[stream] for chunk in chunks]
        found = list(read(tmp_path / f"{stream}.csv", CsvParser(Coercer(engine.host.intake(stream).definition)), 3))
        assert 3 <= len(found) <= 4
        batches = [pa.record_batch([column_to_arrow(c) for c in part.columns], names=made[0].schema.names) for part in found]
        assert pa.Table.from_batches(batches).cast(made[0].schema).equals(pa.Table.from_batches(made))


@pytest.mark.parametrize("name", ["read_auction", "q2", "q6", "q13"])
def test_a_query_runs_over_the_files(tmp_path: Path, name: str) -> None:
    write(tmp_path, 1_000, 3)
    wall_s, cpu_s = Ours(tmp_path, Workload(Generator(1_000, 3))).run(name)
    assert wall_s > 0
    assert cpu_s > 0


def test_flink_is_asked_all_queries_that_it_can_answer_and_each_names_the_streams_that_it_reads() -> None:
    texts = queries()
    assert set(texts) == {*QUERIES, *(f"read_{stream}" for stream in STREAMS)} - {NOT_IN_FLINK}
    for name, text in texts.items():
        assert {stream for stream in STREAMS if re.search(rf"\b(?:FROM|JOIN|TABLE) {stream}", text)} == set(READS[name])
    assert "{" not in "".join(texts.values())


def test_the_table_leaves_out_what_reading_took_and_has_no_figure_where_nothing_was_measured() -> None:
    seconds = {
        (OURS, "read_bid"): [(9.0, 1.0)], (FLINK, "read_bid"): [(9.0, 4.0)],
        (OURS, "q0"): [(9.0, 1.0), (9.0, 2.0), (9.0, 3.0)], (FLINK, "q0"): [(9.0, 8.0)], (OURS, "q6"): [(9.0, 5.0)],
    }  # fmt: skip
    rows = [line.strip("| ").split(" | ") for line in table(1_000_000, seconds).splitlines()[2:]]
    assert rows == [
        ["read_bid", "1,000", "–", "250", "–", "4.0", "–"],
        ["q0", "500", "1,000", "125", "250", "4.0", "4.0"],
        ["q6", "200", "–", "–", "–", "–", "–"],
    ]
