"""PostgreSQL: a table polled by a growing column as a source; INSERT, or upsert by a key, as a sink."""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg
import pyarrow as pa
from millstream.client.edges.contract import ConnectorError, ConnectorOptions, Lag, MessageBatch, Records, fitting
from millstream.protocol.values.rows import rows_of
from millstream.protocol.values.text import json_texts
from psycopg import sql

ROWS_MAX = 1_000
CONNECT_S = 10
POLL_S_MIN = 0.01
TOKENS = sql.Identifier("millstream_sinks")


def _connected(options: ConnectorOptions) -> psycopg.Connection[Any]:
    password = options.maybe("password")
    try:
        if password is None:
            return psycopg.connect(options.text("url"), connect_timeout=CONNECT_S)
        return psycopg.connect(options.text("url"), connect_timeout=CONNECT_S, password=password)
    except psycopg.Error as error:
        raise ConnectorError(f"{options.name}: PostgreSQL cannot be reached: {' '.join(str(error).split())}") from None


def _table(name: str) -> sql.Identifier:
    return sql.Identifier(*name.split("."))


class PostgresSource:
    """Rows of `table` whose `cursor` column is greater than that of the rows before, every `poll` seconds."""

    promise = "exactly once for rows that become visible in the order of the cursor column: the last value is kept with the rows"

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None

    def open(self, options: ConnectorOptions, position: bytes | None) -> None:
        """Connect."""
        table, cursor = _table(options.text("table")), sql.Identifier(options.text("cursor"))
        self._cursor = options.text("cursor")
        self._poll_s = options.number("poll", 1.0, POLL_S_MIN)
        self._connection = _connected(options)
        self._connection.autocommit = True
        first = "SELECT * FROM {} ORDER BY {} LIMIT {}", (table, cursor, ROWS_MAX)
        after = "SELECT * FROM {} WHERE {} > %s ORDER BY {} LIMIT {}", (table, cursor, cursor, ROWS_MAX)
        behind = "SELECT count(*) FROM (SELECT FROM {} WHERE {} > %s LIMIT 100000) AS behind", (table, cursor)
        self._first, self._next, self._behind = (
            sql.SQL(text).format(*parts).as_bytes(self._connection) for text, parts in (first, after, behind)
        )
        self._last: str | None = None if position is None else json.loads(position)
        self._due_s = time.monotonic()
        self._growth = options.growth
        self._ahead = Records((), ())  # rows that were read and not given yet

    def read(self, wait_s: float) -> MessageBatch | None:
        """Return the next rows, as many as one poll gives."""
        deadline = time.monotonic() + wait_s
        while True:
            if not self._ahead and time.monotonic() >= self._due_s:
                self._ahead = self._poll()
            if self._ahead:
                return self._next_batch()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            time.sleep(min(left_s, max(0.0, self._due_s - time.monotonic())))  # a table tells nobody that it has grown

    def _poll(self) -> Records:
        assert self._connection is not None
        with self._connection.cursor() as cursor:
            rows = cursor.execute(self._first).fetchall() if self._last is None else cursor.execute(self._next, (self._last,)).fetchall()
            found = Records([column.name for column in cursor.description or ()], rows)
        if len(rows) < ROWS_MAX:
            self._due_s = time.monotonic() + self._poll_s
        if rows and self._order(found) is None:
            raise ConnectorError(f"column {self._cursor} is NULL, so it says no order")
        return found

    def _order(self, records: Records) -> Any:
        """Return the last value of the cursor column."""
        return records.rows[-1][records.names.index(self._cursor)]

    def _next_batch(self) -> MessageBatch:
        count = fitting(self._ahead, self._growth)
        records, self._ahead = self._ahead[:count], self._ahead[count:]
        self._last = str(self._order(records))
        return MessageBatch(records, json.dumps(self._last).encode())

    def settled(self, position: bytes) -> None:
        """The table stays as it is."""

    def lag(self) -> Lag:
        """Return how many rows wait (100,000 at most are counted)."""
        assert self._connection is not None
        if self._last is None:
            return Lag()
        row = self._connection.execute(self._behind, (self._last,)).fetchone()
        return Lag(None if row is None else row[0])

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()


class PostgresSink:
    """Results into `table`, whose columns have their names; with `key` a row takes the place of the one with that key."""

    promise = "exactly once: the resume token is written in the same transaction as the rows (table millstream_sinks)"

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None
        self._statement: sql.Composed | None = None
        self._rows: list[list[Any]] = []  # written and not kept yet
        self._token = ""
        self._names: list[str] = []

    def open(self, options: ConnectorOptions, token: str | None) -> str | None:
        """Connect, and return the token that the database has. The one of a connect process may be another database's."""
        self._name = options.name
        self._table_name = options.text("table")
        self._table = _table(self._table_name)
        key = options.maybe("key")
        self._key = [] if key is None else [part.strip() for part in key.split(",")]
        self._connection = _connected(options)
        with self._connection.transaction():
            self._connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} (sink text PRIMARY KEY, token text NOT NULL)").format(TOKENS))
        with self._connection.transaction():
            row = self._connection.execute(sql.SQL("SELECT token FROM {} WHERE sink = %s").format(TOKENS), (self._name,)).fetchone()
        return None if row is None else str(row[0])

    def write(self, batch: Any, token: str) -> None:
        """Take rows into the next transaction."""
        names = batch.schema.names
        if self._statement is None:
            self._statement, self._names = self._insert(names), names
        rows = rows_of(batch)
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if pa.types.is_nested(field.type.value_type if pa.types.is_list(field.type) else field.type):  # other lists are arrays
                for row, text in zip(rows, json_texts(column, field).to_pylist(), strict=True):
                    row[field.name] = text
        self._rows += [[row[name] for name in names] for row in rows]
        self._token = token

    def _insert(self, names: list[str]) -> sql.Composed:
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            self._table, sql.SQL(", ").join(map(sql.Identifier, names)), sql.SQL(", ").join(sql.Placeholder() for _ in names)
        )
        if not self._key:
            return statement
        others = [name for name in names if name not in self._key]
        keys = sql.SQL(", ").join(map(sql.Identifier, self._key))
        if not others:
            return statement + sql.SQL(" ON CONFLICT ({}) DO NOTHING").format(keys)
        sets = sql.SQL(", ").join(sql.SQL("{} = excluded.{}").format(sql.Identifier(n), sql.Identifier(n)) for n in others)
        return statement + sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(keys, sets)

    def flush(self) -> None:
        """Write the rows and the token behind them in one transaction."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        assert self._connection is not None
        assert self._statement is not None
        upsert = sql.SQL("INSERT INTO {} VALUES (%s, %s) ON CONFLICT (sink) DO UPDATE SET token = excluded.token").format(TOKENS)
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.executemany(self._statement, rows)
                cursor.execute(upsert, (self._name, self._token))
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.InvalidColumnReference) as error:
            raise ConnectorError(f"{str(error).splitlines()[0]}; {self._wanted()}") from None

    def _wanted(self) -> str:
        """Say what the table must have."""
        unique = f", and PRIMARY KEY or UNIQUE ({', '.join(self._key)})" if self._key else ""
        return f"table {self._table_name} must have the columns {', '.join(self._names)}{unique}"

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
