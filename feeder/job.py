"""The Spark side of a feed: count, number, time and sort the rows of all streams, then hand them over in order of arrival.

Two passes over the data. The first counts rows per stream and block, and the rows refused. The second numbers and times them
(`numbering.py`, inside Spark's tasks), sorts all streams into one order of arrival, and packs each sorted partition into Arrow
messages, which come to the driver one partition at a time, the next one already on its way. Or it deals the rows out to several
publishers (`publishing.py`), each a task that sends its rows itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.feeder.arrivals import ArrivalRule
from millstream.feeder.errors import FeederError, SourceError, what_failed
from millstream.feeder.numbering import (
    ARRIVAL,
    BLOCK,
    FILE,
    INDEX,
    SOURCE,
    STREAM,
    STRIPE_ROWS,
    TIME_US,
    BlockCount,
    BlockKey,
    Numbering,
    plan_numbering,
)
from millstream.feeder.session import quietly
from millstream.feeder.shaping import REFUSED, Mapped, shape, unused_columns, with_streams
from millstream.feeder.sources import ReadOptions, is_columnar, read, reading
from millstream.feeder.targets import Target, common_columns

PARTITION_ROWS = 100_000  # rows sorted together and handed over at once; two of them are held by the driver
SPLIT_VALUES_MAX = 1_000
ORDER = (ARRIVAL, INDEX, STREAM)


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """What to feed: files, how to read them, the streams, which rows go to which, and when.

    `conditions` has one entry a target (None: every row). With `split_by` the targets are those of the column's values, in the
    order of `split_values`. `publishers` of Spark's tasks send the rows; 0: the driver does.
    """

    paths: tuple[str, ...]
    targets: tuple[Target, ...]
    rule: ArrivalRule
    read: ReadOptions = field(default_factory=ReadOptions)
    mapped: Mapped = field(default_factory=Mapped)
    conditions: tuple[str | None, ...] = (None,)
    split_by: str | None = None
    split_values: tuple[str, ...] = ()
    publishers: int = 0

    @property
    def time_column(self) -> str | None:
        """The event-time column by which rows are ordered (original, and max when all streams have it), else None."""
        names = {target.event_time for target in self.targets}
        if self.rule.kind == "original" and (len(names) > 1 or None in names):
            raise SourceError("--original needs streams with an event-time column of one name", hint="declare it with TIMESTAMP BY")
        return names.pop() if self.rule.kind in {"original", "max"} and len(names) == 1 else None


@dataclass(frozen=True, slots=True)
class Counted:
    """What the first pass found: rows of each stream (by position of its target), and rows refused by reason."""

    numbering: Numbering
    rows: tuple[int, ...]
    refused: Mapping[str, int]


class FeedJob:
    """One feed on one Spark session."""

    def __init__(self, session: Any, plan: FeedPlan) -> None:
        self._session = session
        self._plan = plan
        self._columns = common_columns(list(plan.targets))
        self.unused: list[str] = []
        """Columns of the files that are in no stream; of JSON lines those that were looked for."""
        self._shaped = self._shape()

    def _shape(self) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        plan = self._plan
        frame = read(self._session, plan.paths, plan.read, self._json_columns())
        split = "" if plan.split_by is None else "`" + plan.split_by.replace("`", "``") + "`"
        others = [text for text in (split, *plan.conditions) if text]
        self.unused = unused_columns(frame, self._columns, plan.mapped, others)
        if plan.split_by is None:
            frame = with_streams(frame, plan.targets, plan.conditions)
        else:
            pairs = [F.lit(item) for pair in zip(plan.split_values, range(len(plan.split_values)), strict=True) for item in pair]
            frame = frame.withColumn(STREAM, F.element_at(F.create_map(*pairs), split_value(plan.split_by)))
        time_column = plan.time_column
        shaped = shape(frame, self._columns, plan.mapped, time_column, plan.targets[0].unit)
        unplaced = F.when(F.col(STREAM).isNull(), F.lit(f"column {plan.split_by} is NULL"))
        if time_column is not None:
            unplaced = F.coalesce(unplaced, F.when(F.col(TIME_US).isNull(), F.lit(f"column {time_column} is NULL")))
        return shaped.withColumn(REFUSED, F.coalesce(F.col(REFUSED), unplaced))

    def _json_columns(self) -> list[str] | None:
        """Return the fields wanted from JSON: those of the streams, as long as no expression may name others."""
        plan = self._plan
        if plan.mapped.expressions or plan.split_by or any(plan.conditions):
            return None
        return [column.name for column in self._columns]

    def count(self, skip: Mapping[int, int] | None = None) -> Counted:
        """Run the first pass. `skip` has the number of rows of each stream to leave out, as they were fed before."""
        from pyspark.sql import functions as F  # noqa: N812

        keys = [SOURCE, FILE, BLOCK, STREAM, REFUSED]
        asked = [F.count("*"), F.max(TIME_US), F.min(TIME_US)]
        if not is_columnar(self._plan.paths, self._plan.read):
            # A parser that is asked for fewer columns finds other rows broken: both passes must ask for the same.
            asked.append(F.bit_xor(F.xxhash64(*[f"`{column.name}`" for column in self._columns])))
        grouped = self._shaped.groupBy(*keys).agg(*asked)
        counts: list[BlockCount] = []
        refused: Counter[str] = Counter()
        for source, file, block, stream, reason, rows, latest_us, earliest_us, *_ in _collected(grouped, self._plan):
            if reason is not None:
                refused[reason] += rows
            else:
                counts.append(BlockCount(BlockKey(source, file, block, stream), rows, latest_us, earliest_us))
        totals = Counter[int]()
        for count in counts:
            totals[count.key.stream] += count.rows
        numbering = plan_numbering(self._plan.rule, counts, skip or {}, by_time=self._plan.time_column is not None)
        return Counted(numbering, tuple(totals[position] for position in range(len(self._plan.targets))), dict(refused))

    def batches(self, counted: Counted) -> Iterator[Any]:
        """Yield Arrow batches of the streams' columns, STREAM, INDEX and ARRIVAL, in order of arrival."""
        import pyarrow as pa

        left = sum(counted.rows) - sum(counted.numbering.skip.values())
        if left <= 0:
            return
        for row in _each(self._ordered(counted.numbering, left), self._plan):
            with pa.ipc.open_stream(pa.py_buffer(row[0])) as reader:
                yield from reader

    @property
    def driver(self) -> tuple[str, str]:
        """The host by which tasks reach this process, and the address to listen at."""
        conf = self._session.sparkContext.getConf()
        host = conf.get("spark.driver.host")
        return host, conf.get("spark.driver.bindAddress", host)

    def cancel(self) -> None:
        """End what runs on the session."""
        self._session.sparkContext.cancelAllJobs()

    def publish(self, counted: Counted, in_task: Callable[[Iterable[Any]], Iterator[Any]]) -> None:
        """Deal the rows out to the plan's publishers, stripe by stripe, and run `in_task` over the rows of each, in order of arrival.

        Returns when all have ended. FeederError with what a task failed of.
        """
        from pyspark.sql import functions as F  # noqa: N812

        stripe = F.floor(F.col(INDEX) / STRIPE_ROWS) + F.col(STREAM)
        with quietly():
            dealt = self._numbered(counted.numbering).repartitionById(self._plan.publishers, (stripe % self._plan.publishers).cast("int"))
            published = dealt.sortWithinPartitions(*ORDER).mapInArrow(in_task, "publisher INT, sent BIGINT")
            try:
                published.collect()
            except Exception as error:
                sentence = what_failed(error)
                if sentence is None:
                    raise
                raise FeederError(sentence) from error

    def _ordered(self, numbering: Numbering, rows: int) -> Any:
        partitions = -(-rows // PARTITION_ROWS)
        with quietly():
            numbered = self._numbered(numbering)
            return numbered.repartitionByRange(partitions, *ORDER).sortWithinPartitions(*ORDER).mapInArrow(pack, "chunk BINARY")

    def _numbered(self, numbering: Numbering) -> Any:
        """Return all rows that can be fed, with number and instant of arrival."""
        from pyspark.sql import functions as F  # noqa: N812

        fields = [column.name for column in self._columns]
        rows_in = self._shaped.where(F.col(REFUSED).isNull()).select(
            *[f"`{name}`" for name in fields], STREAM, SOURCE, FILE, BLOCK, TIME_US
        )
        columns = [f"`{field.name}` {field.dataType.simpleString()}" for field in rows_in.schema.fields[: len(fields) + 1]]
        schema = ", ".join([*columns, f"{INDEX} BIGINT", f"{ARRIVAL} BIGINT"])
        return rows_in.mapInArrow(numbering.apply, schema)


def pack(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield for each batch of a partition one row that holds it as an Arrow stream. Runs inside Spark's tasks."""
    import pyarrow as pa

    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()], type=pa.binary())], names=["chunk"])


def split_value(column: str) -> Any:
    """Return the expression of the text of the split column."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(f"`{column.replace('`', '``')}`").cast("string")


def split_values(session: Any, paths: tuple[str, ...], options: ReadOptions, column: str) -> tuple[str, ...]:
    """Return the values of the split column in order of their text, as one pass over the files finds them."""
    frame = read(session, paths, options, None)
    if column not in frame.columns:
        raise SourceError(f"--split-by names {column}, which the files do not have")
    found = sorted(
        row[0] for row in frame.select(split_value(column)).distinct().limit(SPLIT_VALUES_MAX + 2).collect() if row[0] is not None
    )
    if len(found) > SPLIT_VALUES_MAX:
        raise SourceError(f"column {column} has more than {SPLIT_VALUES_MAX} values", hint="split by a column with fewer")
    return tuple(found)


def _collected(frame: Any, plan: FeedPlan) -> list[Any]:
    with reading(", ".join(plan.paths)):
        return list(frame.collect())


def _each(frame: Any, plan: FeedPlan) -> Iterator[Any]:
    with reading(", ".join(plan.paths)):
        yield from frame.toLocalIterator(prefetchPartitions=True)
