"""Which of PostgreSQL's types stands for which of ours, and back. OIDs are those of PostgreSQL's `pg_type.dat`."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.gateway.postgres.messages import TEXT, ResultField
from millstream.protocol.types import Column, ColumnType


@dataclass(frozen=True, slots=True)
class PgType:
    """A type: OID, bytes of a value (-1: they vary), OID of its arrays, spelling."""

    oid: int
    size: int
    array_oid: int
    spelling: str


_TEXT = PgType(25, -1, 1009, "text")
_JSONB = PgType(3802, -1, 3807, "jsonb")
OF_PLAIN = {
    "BOOLEAN": PgType(16, 1, 1000, "boolean"),
    "INT": PgType(23, 4, 1007, "integer"),
    "BIGINT": PgType(20, 8, 1016, "bigint"),
    "DOUBLE": PgType(701, 8, 1022, "double precision"),
    "DECIMAL": PgType(1700, -1, 1231, "numeric"),
    "TEXT": _TEXT,
    "BYTES": PgType(17, -1, 1001, "bytea"),
    "TIMESTAMP": PgType(1184, 8, 1185, "timestamp with time zone"),
    "DATE": PgType(1082, 4, 1182, "date"),
    "TIME": PgType(1083, 8, 1183, "time without time zone"),
    "INTERVAL": PgType(1186, 16, 1187, "interval"),
    "JSON": _JSONB,
    "NULL": _TEXT,
}

# Other types that a parameter may have, by OID: what of ours takes it.
_OTHERS = {
    18: "TEXT", 19: "TEXT", 21: "INT", 26: "BIGINT", 114: "JSON", 700: "DOUBLE", 705: "TEXT", 1042: "TEXT", 1043: "TEXT",
    1114: "TIMESTAMP", 2950: "TEXT",
}  # fmt: skip
_OTHER_ARRAYS = {1002: "TEXT", 1005: "INT", 1014: "TEXT", 1015: "TEXT", 1021: "DOUBLE", 1115: "TIMESTAMP", 199: "JSON", 2951: "TEXT"}
_OF_OID = {
    **{of.oid: ColumnType(name) for name, of in OF_PLAIN.items() if name != "NULL"},
    **{of.array_oid: ColumnType("LIST", element=ColumnType(name)) for name, of in OF_PLAIN.items() if name != "NULL"},
    **{oid: ColumnType(name) for oid, name in _OTHERS.items()},
    **{oid: ColumnType("LIST", element=ColumnType(name)) for oid, name in _OTHER_ARRAYS.items()},
}

# How a type is called after `::` or in CAST, by its first word.
_OF_WORD = {
    "BOOL": "BOOLEAN", "BOOLEAN": "BOOLEAN", "INT": "INT", "INTEGER": "INT", "INT4": "INT", "SMALLINT": "INT", "INT2": "INT",
    "BIGINT": "BIGINT", "INT8": "BIGINT", "DOUBLE": "DOUBLE", "FLOAT": "DOUBLE", "FLOAT8": "DOUBLE", "FLOAT4": "DOUBLE", "REAL": "DOUBLE",
    "NUMERIC": "DECIMAL", "DECIMAL": "DECIMAL", "TEXT": "TEXT", "VARCHAR": "TEXT", "CHAR": "TEXT", "CHARACTER": "TEXT", "STRING": "TEXT",
    "UUID": "TEXT", "TIMESTAMP": "TIMESTAMP", "TIMESTAMPTZ": "TIMESTAMP", "DATETIME": "TIMESTAMP", "DATE": "DATE",
    "INTERVAL": "INTERVAL", "JSON": "JSON", "JSONB": "JSON", "BYTEA": "BYTES", "BYTES": "BYTES", "TIME": "TIME",
}  # fmt: skip


def is_array(kind: ColumnType) -> bool:
    """Whether a type is an array of PostgreSQL: a list of plain values. Lists of lists, structs and maps go as jsonb."""
    return kind.name == "LIST" and kind.element is not None and kind.element.name in OF_PLAIN and kind.element.name != "NULL"


def oid_of(kind: ColumnType) -> int:
    """Return the OID of a type."""
    if is_array(kind):
        assert kind.element is not None
        return OF_PLAIN[kind.element.name].array_oid
    return OF_PLAIN.get(kind.name, _JSONB).oid


def type_of_oid(oid: int) -> ColumnType | None:
    """Return our type of an OID; None for one that nothing of ours takes."""
    return _OF_OID.get(oid)


def type_of_word(word: str) -> ColumnType | None:
    """Return the type whose name begins with a word; None if none does."""
    name = _OF_WORD.get(word.upper())
    return None if name is None else ColumnType(name)


def spelling_of(kind: ColumnType) -> str:
    """Return how PostgreSQL spells a type."""
    if is_array(kind):
        assert kind.element is not None
        return spelling_of(kind.element) + "[]"
    if kind.name == "DECIMAL":
        return f"numeric({kind.precision},{kind.scale})"
    return OF_PLAIN.get(kind.name, _JSONB).spelling


def field_of(column: Column, format: int = TEXT) -> ResultField:
    """Return how a column is described in a result."""
    oid = oid_of(column.type)
    size = -1 if is_array(column.type) else OF_PLAIN.get(column.type.name, _JSONB).size
    modifier = (column.type.precision << 16 | column.type.scale) + 4 if column.type.name == "DECIMAL" else -1
    return ResultField(column.name, oid, size, modifier, format)
