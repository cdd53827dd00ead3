"""DataFrames into blocks of Arrow bytes, and Arrow bytes into DataFrames: both by `mapInArrow`, which passes whole batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from millstream.engine.data.schema import Schema, StreamDefinition
from millstream.engine.data.types import DataType, Kind
from millstream.feeder.errors import SourceError
from millstream.feeder.session import quietly
from millstream.feeder.spark.blocks import Block

if TYPE_CHECKING:
    from millstream.protocol.values.mapping import ColumnMap

STRETCH_ROWS, STRETCH_BYTES = 262_144, 16 * 2**20  # of a block: what merges then shrinks much before it is shuffled
_SPARK_TYPES = {
    Kind.NULL: "void",
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.BIGINT: "bigint",
    Kind.DOUBLE: "double",
    Kind.TEXT: "string",
    Kind.BYTES: "binary",
    Kind.TIMESTAMP: "timestamp",
    Kind.DATE: "date",
    Kind.INTERVAL: "interval day to second",
    Kind.JSON: "string",
}


def spark_type(type_: DataType) -> str:
    """Return a type in the words of Spark SQL."""
    if type_.kind is Kind.DECIMAL:
        return f"decimal({type_.precision},{type_.scale})"
    if type_.kind is Kind.LIST:
        assert type_.element is not None
        return f"array<{spark_type(type_.element)}>"
    if type_.kind is Kind.MAP:
        assert type_.element is not None
        return f"map<string, {spark_type(type_.element)}>"
    if type_.kind is Kind.STRUCT:
        return f"struct<{', '.join(f'{_quoted(name)}: {spark_type(part)}' for name, part in type_.fields)}>"
    if type_.kind is Kind.TIME:
        raise SourceError("Spark has no type for times of day", hint="select CAST(t AS INTERVAL) or CAST(t AS TEXT)")
    return _SPARK_TYPES[type_.kind]


def spark_schema(schema: Schema) -> str:
    """Return a schema in the words of Spark SQL."""
    return ", ".join(f"{_quoted(f.name)} {spark_type(f.type)}" for f in schema.fields)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def blocks_of_frame(frame: Any, definition: StreamDefinition, wanted: Collection[int], column_map: ColumnMap | None = None) -> Any:
    """Return an RDD of the blocks of a DataFrame, in the order of its partitions and their rows, with the columns at `wanted` positions.

    They are kept, as they are read twice and a DataFrame need not give its rows in the same order again.
    """
    from pyspark import StorageLevel

    sources = {} if column_map is None else column_map.sources
    fillers = {f.name: sources.get(f.name, f.name) for f in definition.schema.fields}
    names = [name for name in dict.fromkeys(fillers.values()) if name in frame.columns]
    if definition.time.column is not None and fillers[definition.time.column] not in names:
        raise SourceError(
            f"the DataFrame for {definition.name} has no column {definition.time.column}", hint=f"it has {', '.join(frame.columns)}"
        )
    if column_map is None and all(_fits(frame, f.name, f.type) for f in definition.schema.fields):
        # No row can be refused for a column that nobody reads.
        read = [f for i, f in enumerate(definition.schema.fields) if i in wanted or not f.nullable or f.name == definition.time.column]
        names = [f.name for f in read]
    with quietly():
        packed = frame.select(*map(_quoted, names)).mapInArrow(stretches, "chunk binary")
    stream = definition.name
    parts = packed.rdd.mapPartitionsWithIndex(lambda part, rows: ((part, i, bytes(row[0])) for i, row in enumerate(rows)))
    kept = parts.persist(StorageLevel.MEMORY_AND_DISK)
    numbers = {place: n for n, place in enumerate(sorted(kept.map(lambda item: item[:2]).collect()))}
    return kept.map(lambda item: Block(stream, numbers[item[0], item[1]], data=item[2], column_map=column_map))


def _fits(frame: Any, name: str, type_: DataType) -> bool:
    return name in frame.columns and type_.kind is not Kind.TIME and frame.schema[name].dataType.simpleString() == spark_type(type_)


def stretches(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield for each stretch of a partition's batches one row that holds them as an Arrow stream. Runs inside Spark's tasks."""
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > STRETCH_ROWS or size + batch.nbytes > STRETCH_BYTES):
            yield _packed(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield _packed(held)


def _packed(batches: list[Any]) -> Any:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return pa.record_batch([pa.array([sink.getvalue().to_pybytes()], type=pa.binary())], names=["chunk"])


def frame_of(session: Any, results: Any, schema: Schema) -> Any:
    """Return results, an RDD of Arrow bytes with the order of their rows behind the columns, as a DataFrame."""

    def unpack(batches: Iterable[Any]) -> Iterator[Any]:
        from millstream.feeder.spark.output import result_table, without_order

        for batch in batches:
            for data in batch.column(0):
                yield from without_order(result_table(data.as_py(), schema)).to_batches()

    with quietly():
        return session.createDataFrame(results.map(lambda data: (bytearray(data),)), "data binary").mapInArrow(unpack, spark_schema(schema))
