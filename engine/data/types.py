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
| TIMESTAMP | numpy int64 | microseconds since 1970-01-01T00:00:00Z |
| DATE | numpy int32 | days since 1970-01-01 |
| INTERVAL | numpy int64 | microseconds |
| LIST of t | Arrow list array | |
| NULL | numpy bool, never valid | type of a bare NULL literal |

Strings stay Arrow because encoding ten thousand of them costs about as much as a whole filter chain.
"""

from __future__ import annotations

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
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"
    INTERVAL = "INTERVAL"
    LIST = "LIST"

    __hash__ = object.__hash__  # members are single, and Enum's own is a Python function, called for every look-up by kind


@state_record("data_type", 1)
@dataclass(frozen=True, slots=True)
class DataType:
    """A kind with its parameters: `precision` and `scale` for DECIMAL, `element` for LIST."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    element: DataType | None = None
    is_arrow: bool = field(init=False, repr=False, compare=False)
    """Stored as an Arrow array (TEXT, LIST) and not as a NumPy array."""
    is_wide: bool = field(init=False, repr=False, compare=False)
    """A DECIMAL that does not fit int64 and is stored as Python ints."""

    def __post_init__(self) -> None:
        """Work out what is asked of every column of every train."""
        object.__setattr__(self, "is_arrow", self.kind in (Kind.TEXT, Kind.LIST))
        object.__setattr__(self, "is_wide", self.kind is Kind.DECIMAL and self.precision > DECIMAL_NARROW_PRECISION_MAX)

    def __str__(self) -> str:
        """Return the spelling that CREATE STREAM accepts."""
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.kind is Kind.LIST:
            return f"{self.element}[]"
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
TIMESTAMP = DataType(Kind.TIMESTAMP)
DATE = DataType(Kind.DATE)
INTERVAL = DataType(Kind.INTERVAL)


def decimal(precision: int, scale: int) -> DataType:
    """Return DECIMAL(precision, scale); 1 <= precision <= 38 and 0 <= scale <= precision, else ValueError."""
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        raise ValueError(f"DECIMAL({precision}, {scale}): precision must be 1 to 38 and scale 0 to precision")
    return DataType(Kind.DECIMAL, precision, scale)


def list_of(element: DataType) -> DataType:
    """Return the type of a list whose elements are of type `element`."""
    return DataType(Kind.LIST, element=element)
