"""DataFrames into blocks of Arrow bytes, and Arrow bytes into DataFrames: both by `mapInArrow`, which passes whole batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from millstream.engine.data.schema import Schema, StreamDefinition
from millstream.engine.data.types import DataType, Kind
from millstream.feeder.errors import SourceError
from millstream.feeder.job import pack
from millstream.feeder.session import quietly
from millstream.feeder.spark.blocks import Block

if TYPE_CHECKING:
    from millstream.protocol.values.mapping import ColumnMap

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


def blocks_of_frame(frame: Any, definition: StreamDefinition, column_map: ColumnMap | None = None) -> Any:
    """Return an RDD of the blocks of a DataFrame, in the order of its partitions and their rows.

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
    with quietly():
        packed = frame.select(*map(_quoted, names)).mapInArrow(pack, "chunk binary")
    stream = definition.name
    parts = packed.rdd.mapPartitionsWithIndex(lambda part, rows: ((part, i, bytes(row[0])) for i, row in enumerate(rows)))
    kept = parts.persist(StorageLevel.MEMORY_AND_DISK)
    numbers = {place: n for n, place in enumerate(sorted(kept.map(lambda item: item[:2]).collect()))}
    return kept.map(lambda item: Block(stream, numbers[item[0], item[1]], data=item[2], column_map=column_map))


def frame_of(session: Any, results: Any, schema: Schema) -> Any:
    """Return results, an RDD of Arrow bytes with the order of their rows behind the columns, as a DataFrame."""

    def unpack(batches: Iterable[Any]) -> Iterator[Any]:
        from millstream.feeder.spark.output import result_table, without_order

        for batch in batches:
            for data in batch.column(0):
                yield from without_order(result_table(data.as_py(), schema)).to_batches()

    with quietly():
        return session.createDataFrame(results.map(lambda data: (bytearray(data),)), "data binary").mapInArrow(unpack, spark_schema(schema))
