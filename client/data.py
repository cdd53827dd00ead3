"""What `publish` takes, as things that go over the wire: Arrow batches of one schema, or plain rows."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from millstream.client.errors import MillstreamError
from millstream.client.typed import as_map
from millstream.protocol import limits
from millstream.protocol.batches import arrow_type, columns_of
from millstream.protocol.types import Column
from millstream.protocol.values import DEPTH_MAX

if TYPE_CHECKING:
    import pyarrow as pa

TRAIN_BYTES_MAX = 4 * 1024 * 1024  # large enough that a train's fixed costs vanish, small enough that four fit a default credit
ROWS_PER_MESSAGE = 1_000
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INSTANTS = ("TIMESTAMP", "DATE", "TIME", "INTERVAL")
NUMBERS = (int, float)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def is_rows(data: object) -> bool:
    """Whether `data` is plain rows (a list of maps or lists) and not columns."""
    return isinstance(data, list | tuple)


def to_table(data: Any) -> pa.Table:
    """Return Arrow tables, batches, readers of batches and pandas frames as one Arrow table. MillstreamError (`data`) for other things."""
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if type(data).__module__.partition(".")[0] == "pandas" and type(data).__name__ == "DataFrame":
        try:
            return pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowException, TypeError) as error:
            hint = "give the column values of one type, or publish rows: frame.to_dict('records')"
            raise MillstreamError("data", f"cannot publish this frame: {' '.join(map(str, error.args))}", hint) from error
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise MillstreamError(
        "data", f"cannot publish a {type(data).__name__}", "give an Arrow table or batch, a pandas frame, or a list of dicts"
    )


def check_pandas() -> None:
    """MillstreamError (`unsupported`) when pandas is not installed."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise MillstreamError("unsupported", "to_pandas needs pandas, which is not installed", "pip install pandas") from None


def to_pandas(table: pa.Table) -> Any:
    """Return an Arrow table as a pandas frame. MillstreamError (`unsupported`) when pandas is not installed."""
    check_pandas()
    return table.to_pandas()


class Shaper:
    """Brings tables into a stream's shape: dictionaries unpacked, columns in the stream's types where that changes no value.

    Other columns stay as they are: the server judges them row by row, and names what it refuses. What there is to do is worked
    out once for each schema that comes.
    """

    def __init__(self, columns: list[Column]) -> None:
        self._wanted = {column.name: arrow_type(column.type) for column in columns}
        self._schema: pa.Schema | None = None
        self._casts: list[tuple[int, pa.DataType]] = []

    def shaped(self, table: pa.Table) -> pa.Table:
        """Return the table as it is to be sent. MillstreamError (`data`) if a column's type has no counterpart."""
        import pyarrow as pa

        if self._schema is None or not table.schema.equals(self._schema):
            self._casts = list(self._casts_for(table.schema))
            self._schema = table.schema
        for index, target in self._casts:
            # A value that does not fit: the server will refuse its row, and only that.
            with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
                column = _without_view_words(table.column(index)).cast(target, safe=True)
                table = table.set_column(index, pa.field(table.schema[index].name, target), column)
        return table if table.schema.metadata is None else table.replace_schema_metadata(None)

    def _casts_for(self, schema: pa.Schema) -> Iterator[tuple[int, pa.DataType]]:
        import pyarrow as pa

        try:
            columns_of(schema)
        except ValueError as error:
            raise MillstreamError("data", f"cannot publish these columns: {error}") from None
        for index, field in enumerate(schema):
            source = field.type
            if pa.types.is_dictionary(source):
                source = pa.string() if pa.types.is_string_view(source.value_type) else source.value_type
                yield index, source
            elif isinstance(source, pa.BaseExtensionType):
                source = source.storage_type
                yield index, source
            target = self._wanted.get(field.name)
            if target is not None and target != source and _may_cast(source, target):
                yield index, target


def _without_view_words(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column whose dictionary, if it has one, is no string view (as polars' categories are): Arrow cannot unpack such."""
    import pyarrow as pa

    if not (pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type)):
        return column
    return pa.chunked_array([pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.string())) for c in column.chunks])


def _may_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a safe cast says the same: within numbers, text to text, instants to instants. Nothing is parsed or given a zone."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_null(source):
        return True
    numbers = (kinds.is_integer(source) or kinds.is_floating(source)) and (kinds.is_integer(target) or kinds.is_floating(target))
    text = (kinds.is_large_string(source) or kinds.is_string_view(source)) and kinds.is_string(target)
    instants = kinds.is_timestamp(source) and source.tz is not None and kinds.is_timestamp(target)
    alike = (kinds.is_duration, kinds.is_date, kinds.is_time)
    others = any(test(source) and test(target) for test in alike)
    return bool((numbers and not (kinds.is_floating(source) and kinds.is_integer(target))) or text or instants or others)


def trains_of(table: pa.Table, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Yield a table as batches of at most `rows_max` rows and about `TRAIN_BYTES_MAX` bytes."""
    rows_max = max(1, min(rows_max, limits.TRAIN_ROWS_MAX))
    for batch in table.to_batches():
        if not batch.num_rows:
            continue
        size = batch.get_total_buffer_size()  # quick, and too much for slices
        bytes_per_row = (size if size <= TRAIN_BYTES_MAX else batch.nbytes) / batch.num_rows
        rows = max(1, min(rows_max, int(TRAIN_BYTES_MAX / bytes_per_row) if bytes_per_row else rows_max))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


class RowShaper:
    """Makes rows of what people write: values that msgpack has, in columns of instants no bare numbers.

    On the wire an integer in such a column is a number of microseconds. A number that a person writes there names no unit, so it goes as
    text, which the server refuses with the unit that was probably meant (K12).
    """

    def __init__(self, columns: list[Column]) -> None:
        self._instants = [(i, c.name) for i, c in enumerate(columns) if c.type.name in INSTANTS]
        self._names = frozenset(name.lower() for _, name in self._instants)

    def shaped(self, row: Any) -> Any:
        """Return one row (a map, a list, or an object of a data class) as the wire takes it. MillstreamError (`data`) for anything else."""
        if not isinstance(row, dict | list | tuple):
            row = as_map(row)
        if not self._names:
            return plain_row(row)
        if isinstance(row, Mapping):
            return {
                str(name): str(value) if type(value) in NUMBERS and str(name).lower() in self._names else plain_value(value)
                for name, value in row.items()
            }
        found = plain_row(row)
        for position, _ in self._instants:
            if position < len(found) and type(row[position]) in NUMBERS:
                found[position] = str(row[position])
        return found


def row_groups(rows: Iterable[Any], rows_max: int, shaper: RowShaper) -> Iterator[list[Any]]:
    """Cut rows into lists for one `Rows` message each, their values as the wire takes them."""
    group: list[Any] = []
    size = max(1, min(rows_max, ROWS_PER_MESSAGE))
    for row in rows:
        group.append(shaper.shaped(row))
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def plain_row(row: Any) -> Any:
    """Return one row (a map or a list) with values that msgpack has."""
    if isinstance(row, Mapping):
        return {str(name): plain_value(value) for name, value in row.items()}
    if isinstance(row, list | tuple):
        return [plain_value(value) for value in row]
    raise MillstreamError("data", f"a row is a dict, a list or an object of a data class, not {type(row).__name__}")


def _nested(value: Any, levels: int) -> Any:
    """Return a list or map as the wire takes it; times inside are text. MillstreamError (`data`) for more than DEPTH_MAX levels."""
    if isinstance(value, Mapping | list | tuple) and levels == 0:
        raise MillstreamError("data", f"a value is nested deeper than {DEPTH_MAX} levels", "send its inner part as one JSON text")
    if isinstance(value, Mapping):
        return {str(name): _nested(item, levels - 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_nested(item, levels - 1) for item in value]
    if isinstance(value, dt.datetime):
        return None if value != value else value.isoformat()
    if isinstance(value, dt.timedelta):
        return f"{value // _MICROSECOND} microseconds"
    return plain_value(value)


def plain_value(value: Any) -> Any:
    """Return a value that msgpack has: times in microseconds, decimals as text, NumPy scalars and arrays as Python's."""
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        return str(value)  # a DECIMAL takes it, a BIGINT refuses it; either is the server's to say
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    if isinstance(value, dt.datetime):
        if value != value:  # pandas' "not a time"
            return None
        return value.isoformat() if value.tzinfo is None else (value - _EPOCH) // _MICROSECOND
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, dt.timedelta):
        return value // _MICROSECOND
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list | tuple | Mapping):
        return _nested(value, DEPTH_MAX)
    if hasattr(value, "as_py"):
        return plain_value(value.as_py())
    if hasattr(value, "tolist"):
        return plain_value(value.tolist())
    raise MillstreamError("data", f"a value of type {type(value).__name__} cannot be published")
