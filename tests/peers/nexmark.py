"""NEXMark on Millstream and on other systems, over the same files on the same machine: `make peers FLINK=…/bin/python`.

`FLINK` is an interpreter that has `apache-flink` (2.3.0 was measured), in an environment of its own; without it Millstream is measured
alone. Both systems read CSV files, one a stream, and drop what they answer; Millstream reads them as `millstream run` does. `read_bid` and
its like are a stream read alone, into a query that passes its rows on. Figures are events of all three streams a second of processor time,
however many streams a query reads: the median of the runs, in which the systems take turns. `without` leaves out what it took to read the
streams that the query reads. That Millstream's answers are right is judged by `millstream bench nexmark-engine`, not here.

Options: `--events 2000000`, `--runs 2`, `--parallelism 2` (of Flink), `--seed 1`, and names of queries; `--figures FILE` keeps what was
measured, and `--table FILE` only prints the table of such a file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
from millstream.client.benchmarks.nexmark.answers import side_input
from millstream.client.benchmarks.nexmark.generator import Generator
from millstream.client.benchmarks.nexmark.workload import QUERIES, SIDE_INPUT, Workload
from millstream.engine.ingest.checks import Coerced
from millstream.engine.ingest.coerce import Coercer
from millstream.engine.ingest.csv_text import CsvParser
from millstream.scheduler.spec import PolicySpec
from millstream.server.benchmarks.embedding import Embedded
from millstream.server.benchmarks.nexmark import AS_LIVE
from millstream.server.host.inputs import unread_columns

STREAMS = ("person", "auction", "bid")
READS = {
    **dict.fromkeys(QUERIES, ("bid",)), **dict.fromkeys(("q4", "q6", "q9", "q20"), ("auction", "bid")),
    **dict.fromkeys(("q3", "q8"), ("person", "auction")), **{f"read_{stream}": (stream,) for stream in STREAMS},
}  # fmt: skip
FEW_EVENTS = 1_000
PART_BYTES = 4_000_000  # of all files that a query reads: as `millstream run` reads a file
NOT_IN_FLINK = "q6"
OURS, FLINK = "millstream", "flink"
Seconds = dict[tuple[str, str], list[tuple[float, float]]]
"""By system and name: the seconds of the clock and of the processor of each run."""


def write(folder: Path, events: int, seed: int) -> None:
    """Write the events, a file a stream, and the table of q13."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = pc.WriteOptions(include_header=False, quoting_style="none")
    with ExitStack() as opened:
        files: dict[str, pc.CSVWriter] = {}
        for chunk in Generator(events, seed).chunks():
            for stream, batch in chunk.items():
                fields = [pa.field(f.name, pa.timestamp("ms") if pa.types.is_timestamp(f.type) else f.type) for f in batch.schema]
                rows = pa.Table.from_batches([batch]).cast(pa.schema(fields))
                if stream not in files:
                    made = pc.CSVWriter(str(folder / f"{stream}.csv"), rows.schema, write_options=plain)
                    files[stream] = opened.enter_context(made)
                files[stream].write_table(rows)
    pc.write_csv(pa.table(side_input().to_pydict()), str(folder / f"{SIDE_INPUT}.csv"), plain)


def read(file: Path, parser: CsvParser, parts: int) -> Iterator[Coerced]:
    """Read a file by and by, in about so many parts: then streams keep pace with one another. Every row must be good."""
    parser.feed(f"{','.join(parser.coercer.schema.names)}\n".encode())  # Flink's files have no line of names
    with file.open("rb", buffering=0) as opened:
        for found in parser.read(opened, -(-file.stat().st_size // parts)):
            assert not found.rejected
            yield found


class Ours:
    """Millstream in this process: the engine as the server has it, without sockets."""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.folder, self.workload = folder, workload

    def run(self, name: str) -> tuple[float, float]:
        """Read the streams of a query and answer it; return the seconds of the clock and of the processor."""
        engine = Embedded(policy=PolicySpec("fcfs"), settings=AS_LIVE, sharing=True, rewrite=True)
        for statement in self.workload.streams:
            engine.execute(statement)
        is_read = name.startswith("read_")
        *before, select = [f"SELECT * FROM {READS[name][0]}"] if is_read else self.workload.query(name)
        for statement in before:
            engine.execute(statement)
        engine.execute(select, name)
        if SIDE_INPUT in engine.host.intakes:
            engine.host.intake(SIDE_INPUT).take_batch(side_input())
        streams = READS[name]
        files = [self.folder / f"{stream}.csv" for stream in streams]
        parts = -(-sum(file.stat().st_size for file in files) // PART_BYTES)
        began, used = time.perf_counter(), time.process_time()
        intakes = [engine.host.intake(stream) for stream in streams]
        parsers = [CsvParser(Coercer(intake.definition), unread=unread_columns(engine.host, intake)) for intake in intakes]
        for found in zip_longest(*(read(file, parser, parts) for file, parser in zip(files, parsers, strict=True))):
            for stream, rows in zip(streams, found, strict=True):
                if rows is not None:
                    engine.push(stream, rows.columns)
            engine.runtime.run()
            engine.results.take()
        engine.end(*READS[name])
        engine.end(*([] if is_read else self.workload.fed(name)))
        return time.perf_counter() - began, time.process_time() - used


def measured(arguments: argparse.Namespace, names: Sequence[str]) -> Seconds:
    """Run all, the two systems in turn."""
    found: Seconds = defaultdict(list)
    with tempfile.TemporaryDirectory() as place:
        whole, few = Path(place, "whole"), Path(place, "few")
        write(whole, arguments.events, arguments.seed)
        write(few, FEW_EVENTS, arguments.seed)
        ours, warm = (
            Ours(at, Workload(Generator(events, arguments.seed))) for at, events in ((whole, arguments.events), (few, FEW_EVENTS))
        )
        for name in names:
            warm.run(name)  # what is loaded and compiled the first time is not what is measured
        for run in range(arguments.runs):
            for name in names:
                found[OURS, name].append(noted(run, OURS, name, *ours.run(name)))
            if arguments.flink is not None:
                script = Path(__file__).with_name("flink_nexmark.py")
                there = [name for name in names if name != NOT_IN_FLINK]
                command = [arguments.flink, str(script), str(whole), str(few), "1", str(arguments.parallelism), *there]
                with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flink:
                    assert flink.stdout is not None
                    for line in flink.stdout:
                        one = json.loads(line)
                        found[FLINK, one["name"]].append(noted(run, FLINK, one["name"], one["wall_s"], one["cpu_s"]))
                if flink.returncode:
                    print("Flink did not answer all queries; what it says stands above", file=sys.stderr)
    return found


def noted(run: int, system: str, name: str, wall_s: float, cpu_s: float) -> tuple[float, float]:
    """Say on standard error what was just measured; return it."""
    print(f"run {run + 1}: {system} {name} {wall_s:.2f} s, {cpu_s:.2f} s of processor time", file=sys.stderr)
    return wall_s, cpu_s


def table(events: int, seconds: Seconds) -> str:
    """Return the figures as a table for docs/nexmark.md: thousands of events a second of processor time."""
    cpu_s = {key: statistics.median(cpu for _, cpu in runs) for key, runs in seconds.items()}
    lines = ["| query | Millstream | without reading | PyFlink | without reading | times | times without reading |", "| --- " * 7 + "|"]

    def rate(taken_s: float) -> float | None:
        return events / taken_s / 1e3 if taken_s > 0 else None

    def shown(value: float | None, form: str = ",.0f") -> str:
        return "–" if value is None else f"{value:{form}}"

    for name in dict.fromkeys(name for _, name in seconds):
        cells: list[float | None] = []
        for system in (OURS, FLINK):
            taken = cpu_s.get((system, name))
            reading = [cpu_s.get((system, f"read_{stream}")) for stream in READS[name]]
            is_less = taken is not None and not name.startswith("read_") and None not in reading
            cells += [None if taken is None else rate(taken), rate(taken - sum(r or 0.0 for r in reading)) if is_less and taken else None]
        ours, ours_less, theirs, theirs_less = cells
        times = ours / theirs if ours and theirs else None
        times_less = ours_less / theirs_less if ours_less and theirs_less else None
        texts = [name, shown(ours), shown(ours_less), shown(theirs), shown(theirs_less), shown(times, ".1f"), shown(times_less, ".1f")]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queries", nargs="*", default=[])
    parser.add_argument("--flink", help="an interpreter that has apache-flink; without it Millstream is measured alone")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    if arguments.table is not None:
        kept = json.loads(arguments.table.read_text("utf-8"))
        print(table(kept["events"], {(one["system"], one["name"]): one["seconds"] for one in kept["figures"]}))
        return
    names = [*(f"read_{stream}" for stream in STREAMS), *(arguments.queries or QUERIES)]
    seconds = measured(arguments, names)
    if arguments.figures is not None:
        figures = [{"system": system, "name": name, "seconds": runs} for (system, name), runs in seconds.items()]
        arguments.figures.write_text(json.dumps({"events": arguments.events, "figures": figures}), "utf-8")
    print(table(arguments.events, seconds))


if __name__ == "__main__":
    main()
