"""The events of NEXMark as files: a Parquet file and an Arrow file for each stream."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from millstream.client.benchmarks.nexmark.generator import Generator

REPEATED = ["channel", "url"]  # what has few different values


def write_events(folder: Path, generator: Generator) -> str:
    """Write the events into `person`, `auction` and `bid`, each as .parquet and .arrow; returns a sentence about it."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.process_time()
    with ExitStack() as files:
        writers: dict[str, list[pq.ParquetWriter | pa.RecordBatchWriter]] = {}
        for chunk in generator.chunks():
            for name, batch in chunk.items():
                if name not in writers:
                    parquet = pq.ParquetWriter(folder / f"{name}.parquet", batch.schema, use_dictionary=REPEATED, write_statistics=False)
                    arrow = pa.ipc.new_file(str(folder / f"{name}.arrow"), batch.schema)
                    writers[name] = [files.enter_context(parquet), files.enter_context(arrow)]
                for writer in writers[name]:
                    writer.write_batch(batch)
    taken_s = time.process_time() - began
    return f"{generator.events} events of seed {generator.seed} in {folder}, {generator.events / taken_s:,.0f} a second of processor time"
