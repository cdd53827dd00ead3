"""NEXMark as `millstream bench` runs it: events, the queries' statements, and whether their answers are right."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from millstream.client.benchmarks.nexmark.answers import Answers, side_input
from millstream.client.benchmarks.nexmark.generator import Chunk, Generator

_MADE = re.compile(r"\s*(?:--[^\n]*\n\s*)*CREATE STREAM (\w+)")
QUERIES = tuple(f"q{number}" for number in range(23))
SIDE_INPUT = "side_input"
REPEATED = ["channel", "url"]  # what has few different values


class Workload:
    """`events` of NEXMark in memory, and `queries` of it."""

    sources = ("person", "auction", "bid")

    def __init__(self, generator: Generator, queries: Sequence[str] = QUERIES) -> None:
        self.generator = generator
        self.events = generator.events
        self.queries = queries

    @cached_property
    def chunks(self) -> list[Chunk]:
        """The events, made once."""
        return list(self.generator.chunks())

    @property
    def trains(self) -> list[list[tuple[str, pa.RecordBatch]]]:
        """The events as record batches by stream, in order of arrival."""
        return [list(chunk.items()) for chunk in self.chunks]

    @cached_property
    def answers(self) -> Answers:
        """The right answers."""
        return Answers(rows for train in self.trains for rows in train)

    def write(self, folder: Path) -> str:
        """Write the events, without holding them, into `person`, `auction` and `bid`, each as .parquet and .arrow.

        Returns a sentence about it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        began = time.process_time()
        with ExitStack() as opened:
            writers: dict[str, list[pq.ParquetWriter | pa.RecordBatchWriter]] = {}
            for chunk in self.generator.chunks():
                for name, batch in chunk.items():
                    if name not in writers:
                        parquet = pq.ParquetWriter(
                            folder / f"{name}.parquet", batch.schema, use_dictionary=REPEATED, write_statistics=False
                        )
                        arrow = pa.ipc.new_file(str(folder / f"{name}.arrow"), batch.schema)
                        writers[name] = [opened.enter_context(parquet), opened.enter_context(arrow)]
                    for writer in writers[name]:
                        writer.write_batch(batch)
        taken_s = time.process_time() - began
        made = f"{self.events} events of seed {self.generator.seed} in {folder}"
        return f"{made}, {self.events / taken_s:,.0f} a second of processor time"

    @property
    def streams(self) -> list[str]:
        """The statements that make the streams."""
        return statements_of("streams")

    def query(self, name: str) -> list[str]:
        """Return the statements of a query; the last is the SELECT."""
        return statements_of(name)

    def fed(self, name: str) -> list[str]:
        """Return the streams that the statements of a query make and feed; they end after those of the events."""
        return [made[1] for statement in statements_of(name) if (made := _MADE.match(statement)) is not None]

    @property
    def side_input(self) -> tuple[str, pa.RecordBatch]:
        """The table of q13 and its rows."""
        return SIDE_INPUT, side_input()

    def wrong(self, name: str, rows: Sequence[pa.RecordBatch]) -> str | None:
        """Return what is wrong with the rows of a query; None if nothing is."""
        return self.answers.wrong(name, pa.Table.from_batches(rows))


def statements_of(name: str) -> list[str]:
    """Return the statements of one of the files beside this one."""
    text = files(__package__).joinpath("queries", f"{name}.sql").read_text("utf-8")
    return [statement for part in text.split(";") if (statement := part.strip())]
