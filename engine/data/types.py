"""Data types of columns, and how each is stored.

| kind | stored as | unit |
|---|---|---|
| BOOLEAN | numpy bool | |
| INT | numpy int32 | |
| BIGINT | numpy int64 | |
| DOUBLE | numpy float64 | |
| DECIMAL(p, s), p <= 18 | numpy int64, scaled by 10**s | |
| DECIMAL(p, s), p > 18 | numpy object array of Python ints, scaled by 10**s | |
| TEXT | Arrow string array | code points |
| BYTES | Arrow binary array | bytes |
| TIMESTAMP | numpy int64 | microseconds since 1970-01-01T00:00:00Z |
| DATE | numpy int32 | days since 1970-01-01 |
| TIME | numpy int64 | microseconds since midnight, less than a day's |
| INTERVAL | numpy int64 | microseconds |
| LIST of t | Arrow list array | |
| STRUCT | Arrow struct array | |
| MAP of TEXT to t | Arrow map array, each map's entries in the order of their keys | |
| JSON | Arrow string array, in the normal form of `protocol/values/json_values.py` | |
| NULL | numpy bool, never valid | type of a bare NULL literal |

Strings stay Arrow because encoding ten thousand of them costs about as much as a whole filter chain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from enum import Enum

from millstream.engine.data.records import dataclass
from millstream.engine.state.forms import state_enum, state_record

DECIMAL_PRECISION_MAX = 38
DECIMAL_NARROW_PRECISION_MAX = 18  # what an int64 holds with every digit free


@state_enum("type")
class Kind(Enum):
    """The closed list of types a column may have."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    TEXT = "TEXT"
    BYTES = "BYTES"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"
    TIME = "TIME"
    INTERVAL = "INTERVAL"
    LIST = "LIST"
    STRUCT = "STRUCT"
    MAP = "MAP"
    JSON = "JSON"

    __hash__ = object.__hash__  # members are single, and Enum's own is a Python function, called for every look-up by kind


FLAT_ARROW_KINDS = (Kind.TEXT, Kind.BYTES, Kind.JSON)
"""What Arrow stores and has no parts: offsets and characters, or bytes."""


@state_record("data_type", 2, added={"fields": tuple})
@dataclass(frozen=True, slots=True)
class DataType:
    """A kind with its parameters.

    `precision` and `scale` are those of DECIMAL, `element` of LIST and MAP (whose keys are TEXT), `fields` (name, type) of STRUCT.
    """

    kind: Kind
    precision: int = 0
    scale: int = 0
    element: DataType | None = None
    fields: tuple[tuple[str, DataType], ...] = ()
    is_arrow: bool = field(init=False, repr=False, compare=False)
    """Stored as an Arrow array (TEXT, BYTES, JSON, LIST, STRUCT, MAP) and not as a NumPy array."""
    is_nested: bool = field(init=False, repr=False, compare=False)
    """A LIST, STRUCT or MAP: made of other values."""
    is_ordered: bool = field(init=False, repr=False, compare=False)
    """Its values can be compared with `<`: neither nested nor JSON."""
    is_wide: bool = field(init=False, repr=False, compare=False)
    """A DECIMAL that does not fit int64 and is stored as Python ints."""

    def __post_init__(self) -> None:
        """Work out what is asked of every column of every train."""
        nested = self.kind in (Kind.LIST, Kind.STRUCT, Kind.MAP)
        object.__setattr__(self, "is_nested", nested)
        object.__setattr__(self, "is_ordered", not nested and self.kind is not Kind.JSON)
        object.__setattr__(self, "is_arrow", nested or self.kind in FLAT_ARROW_KINDS)
        object.__setattr__(self, "is_wide", self.kind is Kind.DECIMAL and self.precision > DECIMAL_NARROW_PRECISION_MAX)

    def __str__(self) -> str:
        """Return the spelling that CREATE STREAM accepts."""
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.kind is Kind.LIST:
            return f"{self.element}[]"
        if self.kind is Kind.STRUCT:
            return f"STRUCT({', '.join(f'{quoted_name(name)} {type_}' for name, type_ in self.fields)})"
        if self.kind is Kind.MAP:
            return f"MAP(TEXT, {self.element})"
        return str(self.kind.value)

    @property
    def is_integer(self) -> bool:
        """INT or BIGINT."""
        return self.kind in (Kind.INT, Kind.BIGINT)

    @property
    def is_numeric(self) -> bool:
        """INT, BIGINT, DECIMAL or DOUBLE."""
        return self.kind in (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)


NULL = DataType(Kind.NULL)
BOOLEAN = DataType(Kind.BOOLEAN)
INT = DataType(Kind.INT)
BIGINT = DataType(Kind.BIGINT)
DOUBLE = DataType(Kind.DOUBLE)
TEXT = DataType(Kind.TEXT)
BYTES = DataType(Kind.BYTES)
TIMESTAMP = DataType(Kind.TIMESTAMP)
DATE = DataType(Kind.DATE)
TIME = DataType(Kind.TIME)
INTERVAL = DataType(Kind.INTERVAL)
JSON = DataType(Kind.JSON)


def decimal(precision: int, scale: int) -> DataType:
    """Return DECIMAL(precision, scale); 1 <= precision <= 38 and 0 <= scale <= precision, else ValueError."""
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        raise ValueError(f"DECIMAL({precision}, {scale}): precision must be 1 to 38 and scale 0 to precision")
    return DataType(Kind.DECIMAL, precision, scale)


def list_of(element: DataType) -> DataType:
    """Return the type of a list whose elements are of type `element`."""
    return DataType(Kind.LIST, element=element)


def struct_of(fields: Iterable[tuple[str, DataType]]) -> DataType:
    """Return the type of a value with these named parts."""
    return DataType(Kind.STRUCT, fields=tuple(fields))


def map_of(value: DataType) -> DataType:
    """Return the type of a map from TEXT to values of type `value`."""
    return DataType(Kind.MAP, element=value)


def quoted_name(name: str) -> str:
    """Return a name as it may be written in a statement."""
    return name if name.isidentifier() and name == name.lower() else '"' + name.replace('"', '""') + '"'


def depth_of_type(type_: DataType) -> int:
    """Return how many types stand in one another at most; 1 for a plain type."""
    below = [type_.element] if type_.element is not None else [field_type for _, field_type in type_.fields]
    return 1 + max((depth_of_type(part) for part in below), default=0)
