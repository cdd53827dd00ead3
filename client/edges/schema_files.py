"""What formats with a schema file share: the file, how much memory a message may come to, and the header of a schema registry."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NoReturn

from millstream.client.edges.contract import ConnectorError, ConnectorOptions, Unreadable

FILE_BYTES_MAX = 1 << 20
VALUE_BYTES, FIELD_BYTES, RECORD_BYTES = 40, 60, 64  # what a value, its place under a name, and a record take, about
NAME_CHARACTER_BYTES = 4  # a name is sent with each value
LEVELS_MAX = 32
_ID_MAX = 2**32 - 1


def field_bytes(name: str) -> int:
    """Return about how many bytes a field takes beside its value: in memory, and at least four times what it takes on the wire."""
    return FIELD_BYTES + NAME_CHARACTER_BYTES * len(name)


class SchemaFile:
    """The file that the option `schema` names."""

    def __init__(self, options: ConnectorOptions, example: str) -> None:
        said = options.maybe("schema")
        if said is None:
            raise ConnectorError(f"format = '{options.text('format')}' needs schema = '{example}', a file where millstream connect runs")
        self.path = Path(said)
        try:
            with self.path.open("rb") as file:
                self.content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ConnectorError(f"schema: {self.path} cannot be read: {error.strerror}") from None
        if len(self.content) > FILE_BYTES_MAX:
            raise ConnectorError(f"schema: {self.path} has more than {FILE_BYTES_MAX} bytes")

    def fail(self, problem: str, at: str | None = None) -> NoReturn:
        """Raise ConnectorError with the file, and the first line that has `at`."""
        lines = self.content.decode("utf-8", "replace").splitlines()
        line = next((number for number, text in enumerate(lines, 1) if at is not None and at in text), None)
        raise ConnectorError(f"schema: {self.path}{'' if line is None else f', line {line}'}: {problem}")


class RegistryHeader:
    """The header that clients of a schema registry write before a message: a zero, and the number of its schema in four bytes.

    The number is that of the option `schema_id`; without it there is no header. A message with another number is of another schema, so it
    is not read. `behind` is what the format adds.
    """

    def __init__(self, options: ConnectorOptions, behind: bytes = b"") -> None:
        number = options.number("schema_id", -1, -1)
        if number > _ID_MAX or number != int(number):
            raise ConnectorError(f"schema_id must be a whole number up to {_ID_MAX}")
        self._number = int(number)
        self.bytes = b"" if number < 0 else b"\0" + struct.pack(">I", self._number) + behind

    def without(self, value: bytes) -> bytes:
        """Return what stands behind the header. Unreadable when a message has another."""
        if value.startswith(self.bytes):
            return value[len(self.bytes) :]
        raise Unreadable(f"it does not begin with the header of schema {self._number}, but with {value[: len(self.bytes)].hex(' ')}")
