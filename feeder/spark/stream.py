"""Queries over files as they come: Spark's streaming says which files are new, the operators' state is kept by bucket between batches.

    CHECKPOINT/plan.json           the script, the number of buckets, the order of the streams
    CHECKPOINT/spark/              what Spark notes for itself: which files were in which batch
    CHECKPOINT/state/              what the operators of each bucket held after a batch, in the project's own state format
    CHECKPOINT/commits/N.json      the manifest of batch N: state files, result files, how far each stream had come

A batch counts once its manifest stands there, which is one rename. Its result files wait in hidden folders until then and are put in
place afterwards, by whoever comes first: this run or the next. So a result is in the output once, whenever the driver dies.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.state.decoding import decode
from millstream.engine.state.encoding import encode
from millstream.feeder.errors import SourceError
from millstream.feeder.spark.blocks import BlockFacts, blocks_of, facts_of
from millstream.feeder.spark.output import STAGING, write_part
from millstream.feeder.spark.pieces import Task, end_bucket, feed_bucket, ordered, read_sent, second_engine
from millstream.feeder.spark.run import bucket_of, placement_of, refusal_note, stage_one
from millstream.feeder.spark.script import maps_of, read_script

MANIFESTS_KEPT = 3
_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"  # only the path is asked for, so that no file is read


@dataclass(frozen=True, slots=True)
class Written:
    """What a bucket's task left: its result file aside and the rows in it, its state file; names are "" where there is none."""

    query: int
    bucket: int
    results: str = ""
    rows: int = 0
    state: str = ""


@dataclass(slots=True)
class Manifest:
    """What stands after a batch. `places` are the rows of all batches by query, `greatest_us` the greatest event time of each stream.

    `states` and `results` are (query, bucket, file). `ended`: the streams have ended with it.
    """

    batch: int
    places: dict[str, int] = field(default_factory=dict)
    greatest_us: dict[str, int] = field(default_factory=dict)
    states: list[tuple[int, int, str]] = field(default_factory=list)
    results: list[tuple[int, int, str]] = field(default_factory=list)
    ended: bool = False


class StreamRun:
    """One run of a script over sources, folders by stream, into outputs, folders by query, from where a checkpoint stands.

    `maps` and `time_formats` are as for `SparkScript`. `tell` gets sentences about each batch.
    """

    def __init__(
        self,
        session: Any,
        text: str,
        sources: Mapping[str, str],
        outputs: Mapping[str, str],
        checkpoint: str,
        buckets: int | None = None,
        maps: Sequence[str] = (),
        time_formats: Sequence[str] = (),
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.session = session
        self.text = text
        self.script = read_script(text)
        self.sources, self.outputs, self.checkpoint = dict(sources), dict(outputs), Path(checkpoint)
        self._check()
        self._maps = maps_of(self.script, self.sources, maps, time_formats)
        self._said = {"maps": list(maps), "time_formats": list(time_formats)}
        self._tell = tell
        self.buckets = self._agreed(buckets or session.sparkContext.defaultParallelism)
        self.manifest = self._last() or Manifest(-1)
        self._put_in_place(self.manifest)

    def _check(self) -> None:
        if self.script.whole is not None:
            raise SourceError(f"{self.script.whole}, so the script cannot run over batches", hint="use millstream run, or a server")
        for name in self.sources:
            if name not in self.script.streams:
                raise SourceError(f"there is no stream {name}", hint=f"the streams are {', '.join(self.script.streams)}")
        queries = [q.name for q in self.script.queries]
        for query in queries:
            if query not in self.outputs:
                raise SourceError(f"query {query} has no output", hint=f"give --output {query}=FOLDER")
        strange = next((name for name in self.outputs if name not in queries), None)
        if strange is not None:
            raise SourceError(f"there is no query {strange}", hint=f"the queries are {', '.join(queries)}")

    def _agreed(self, buckets: int) -> int:
        """Note the script with a new checkpoint, or see that it is the one noted; return the number of buckets."""
        place = self.checkpoint / "plan.json"
        mine = {"script": self.text, "streams": list(self.sources), **self._said}
        if place.exists():
            noted = json.loads(place.read_text("utf-8"))
            if {name: noted.get(name, []) for name in mine} != mine:  # before there were maps, none was noted
                raise SourceError(
                    f"{self.checkpoint} belongs to another script, other sources or another --map or --time-format",
                    hint="name a new checkpoint and new outputs",
                )
            return int(noted["buckets"])
        write_whole(place, json.dumps({**mine, "buckets": buckets}))
        return buckets

    def _last(self) -> Manifest | None:
        found = sorted(int(p.stem) for p in (self.checkpoint / "commits").glob("*.json"))
        if not found:
            return None
        return Manifest(**json.loads((self.checkpoint / "commits" / f"{found[-1]}.json").read_text("utf-8")))

    # -- batches ----------------------------------------------------------------------------------------------------------------

    def start(self, *, once: bool) -> Any:
        """Start Spark's streaming query; with `once` it stops when all files that are there have been read."""
        if self.manifest.ended:
            raise SourceError(f"the streams of {self.checkpoint} have ended", hint="name a new checkpoint and new outputs")
        from pyspark.sql import functions as F  # noqa: N812

        frames = []
        for name, folder in self.sources.items():
            Path(folder).mkdir(parents=True, exist_ok=True)
            read = self.session.readStream.format("binaryFile").schema(_FILES).option("pathGlobFilter", "[!._]*").load(folder)
            frames.append(read.select(F.lit(name).alias("stream"), F.col("path")))
        joined = frames[0]
        for frame in frames[1:]:
            joined = joined.union(frame)
        writer = joined.writeStream.foreachBatch(self._batch).option("checkpointLocation", str(self.checkpoint / "spark"))
        return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")).start()

    def _batch(self, frame: Any, number: int) -> None:
        found: dict[str, list[str]] = {name: [] for name in self.sources}
        for stream, path in frame.collect():
            found[stream].append(_local(path))
        self.take(number, {name: sorted(paths) for name, paths in found.items()})

    def take(self, number: int, files: Mapping[str, Sequence[str]], *, ends: bool = False) -> None:
        """Run one batch over its files, those of each stream in their order; nothing when it has been committed before."""
        if number <= self.manifest.batch:
            return
        manifest = Manifest(number, ended=ends)
        said = _Said()
        for query in range(len(self.script.queries)):
            self._take_query(query, files, manifest, said)
        write_whole(self.checkpoint / "commits" / f"{number}.json", json.dumps(asdict(manifest)))
        self._put_in_place(manifest)
        self.manifest = manifest
        for sentence in said.sentences(files):
            self._tell(f"batch {number}: {sentence}")
        self._forget()

    def end(self) -> None:
        """End the streams: what windows still hold becomes their last results."""
        self.take(self.manifest.batch + 1, {}, ends=True)

    def _take_query(self, query: int, files: Mapping[str, Sequence[str]], manifest: Manifest, said: _Said) -> None:
        before, context = self.manifest, self.session.sparkContext
        plan = Task(self.text, query, 1, {}, {}, in_batches=True).cut
        streams = [s for s in self.sources if s in plan.streams]
        streams += [s for s in plan.streams if s not in streams]
        blocks = []
        definitions = {s: self.script.streams[s] for s in streams}
        for stream in streams:
            mine = [
                block for path in files.get(stream, ()) for block in blocks_of(stream, path, definitions[stream], self._maps.get(stream))
            ]
            blocks += [replace(b, number=i) for i, b in enumerate(mine)]
        with_steps = len(streams) > 1 or plan.needs_moves
        rows = context.parallelize(blocks, max(1, min(len(blocks), context.defaultParallelism)))
        facts: list[BlockFacts] = rows.map(lambda block: facts_of(block, definitions[block.stream], with_steps)).collect()
        for stream in streams:
            note = refusal_note(stream, facts)
            if note is not None:
                said.refused[stream] = note
        placement = placement_of(definitions, facts, before.greatest_us)
        offset = before.places.get(str(query), 0)
        buckets = self.buckets if all(e.keys for e in plan.exchanges) else 1
        task = Task(self.text, query, buckets, placement.steps, placement.last_us, offset + placement.rows, offset, in_batches=True)
        states = {bucket: name for q, bucket, name in before.states if q == query}
        aside = Path(self.outputs[self.script.queries[query].name]) / f"{STAGING}-{manifest.batch}"
        aside.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "state").mkdir(parents=True, exist_ok=True)
        batch = Batch(task, str(self.checkpoint / "state"), states, str(aside), manifest.ended)
        sent = stage_one(rows, [task], placement)
        if plan.second is None:
            made = sent.map(lambda item: item[1][1]).mapPartitionsWithIndex(lambda part, data: batch.write(part, data))
        else:
            made = sent.partitionBy(buckets, bucket_of).mapPartitionsWithIndex(lambda part, items: batch.run(part, (i[1] for i in items)))
        written: list[Written] = made.collect()
        said.results[self.script.queries[query].name] = sum(w.rows for w in written)
        manifest.places[str(query)] = offset + placement.rows
        manifest.greatest_us |= {s: max(v, before.greatest_us.get(s, TIME_MIN)) for s, v in placement.greatest_us.items()}
        manifest.states += [(query, w.bucket, w.state) for w in written if w.state]
        manifest.results += [(query, w.bucket, w.results) for w in written if w.results]

    def _put_in_place(self, manifest: Manifest) -> None:
        """Move the result files of a committed batch to where readers look, as far as that was not done yet."""
        for query, bucket, name in manifest.results:
            folder = Path(self.outputs[self.script.queries[query].name])
            aside = folder / f"{STAGING}-{manifest.batch}" / name
            if aside.exists():
                aside.rename(folder / f"batch-{manifest.batch:06d}-{bucket:05d}.parquet")
        for output in self.outputs.values():
            for left in Path(output).glob(f"{STAGING}-*"):
                # A task of a driver that died may still write there; what it leaves goes next time.
                shutil.rmtree(left, ignore_errors=True)

    def _forget(self) -> None:
        """Remove manifests and states that no restart needs."""
        for place in (self.checkpoint / "commits").glob("*.json"):
            if int(place.stem) <= self.manifest.batch - MANIFESTS_KEPT:
                place.unlink()
        kept = {name for _, _, name in self.manifest.states}
        for place in (self.checkpoint / "state").iterdir():
            if place.name not in kept:
                place.unlink(missing_ok=True)  # a task of a driver that died may just have named it


@dataclass(frozen=True, slots=True)
class Batch:
    """What the tasks of one query are told of one batch: where states are, and which was the last of each bucket; where results go."""

    task: Task
    folder: str
    states: Mapping[int, str]
    aside: str
    ends: bool

    def run(self, bucket: int, sent: Iterable[tuple[int, bytes]]) -> Iterator[Written]:
        """Take a bucket's rows in where it stands, and leave results and state; nothing for a bucket that never had a row."""
        tables = read_sent(sent)
        known = self.states.get(bucket)
        if not tables and known is None:
            return
        engine = second_engine(self.task.cut)
        if known is not None:
            held = decode((Path(self.folder) / known).read_bytes())
            engine.take_up(held["operators"], held["next_seq"], held["watermarks_us"])
        feed_bucket(engine, self.task, tables)
        state = ""
        if self.ends:
            end_bucket(engine, self.task)
        else:
            standing = {name: source.watermark_us for name, source in engine.network.sources.items()}
            state = f"{self.task.query}-{bucket}-{uuid.uuid4().hex}"
            operators = engine.states()
            body = encode({"operators": operators, "next_seq": engine.next_seq, "watermarks_us": standing})
            write_whole(Path(self.folder) / state, body)
        made = next(self.write(bucket, ordered(self.task.cut, engine.results())), Written(self.task.query, bucket))
        yield Written(made.query, bucket, made.results, made.rows, state)

    def write(self, part: int, data: Iterable[bytes]) -> Iterator[Written]:
        """Leave results aside."""
        schema = read_script(self.task.text).queries[self.task.query].schema
        for name, rows in write_part(data, part, self.aside, schema):
            yield Written(self.task.query, part, name, rows)


def write_whole(place: Path, body: str | bytes) -> None:
    """Write a file so that it stands there whole or not at all, also after a loss of power."""
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    with aside.open("wb") as file:
        file.write(body.encode() if isinstance(body, str) else body)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(place)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@dataclass(slots=True)
class _Said:
    """What a person is told of a batch: why rows of a stream were refused, how many results each query gave."""

    refused: dict[str, str] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)

    def sentences(self, files: Mapping[str, Sequence[str]]) -> list[str]:
        """Return them; `files` are those that the batch has read, by stream."""
        read = [f"{len(paths)} file{'' if len(paths) == 1 else 's'} of {stream}" for stream, paths in files.items() if paths]
        gave = [f"{query} {rows} result{'' if rows == 1 else 's'}" for query, rows in self.results.items()]
        return [*self.refused.values(), f"{', '.join(read) or 'the streams end'}; {', '.join(gave)}"]


def _local(path: str) -> str:
    """Return the path of a file that Spark names by an address."""
    from urllib.parse import unquote, urlparse

    found = urlparse(path)
    return unquote(found.path) if found.scheme in ("", "file") else path
