"""Protobuf: messages of one type of a descriptor set (`protoc --include_imports --descriptor_set_out`), or of a `.proto` file."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError
from millstream.client.edges.contract import DECODED_BYTES_MAX, ConnectorError, ConnectorOptions, Growth, Unreadable
from millstream.client.edges.schema_files import RECORD_BYTES, VALUE_BYTES, RegistryHeader, SchemaFile, field_bytes
from millstream.protocol.values.rows import rows_of

COMPILE_S = 30.0
PARSED_BYTES_MAX = 128 * 2**20
PARSED_FIELD_BYTES = 16  # of a field that is not set, in the library's memory
MESSAGE_BYTES_LEAST = 2  # of a message inside another: its number and its length
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WRAPPERS = "google/protobuf/wrappers.proto"
_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


class ProtobufSchema:
    """The type of messages that `schema` and `message` name. ConnectorError names the file, and the line where there is one."""

    def __init__(self, options: ConnectorOptions) -> None:
        self._file = SchemaFile(options, "reading.proto")
        is_text = self._file.path.suffix == ".proto"
        files = self._files(self._compiled(self._file.path) if is_text else self._file.content)
        name = options.maybe("message")
        if name is None:
            raise ConnectorError(f"format = 'protobuf' needs message = '…', one of {_some(_types(files))}")
        self._name = name.removeprefix(".")
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in files.file:
                pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            self._file.fail(f"{' '.join(str(error).split())[:200]}; make it with --include_imports")
        try:
            self.descriptor = pool.FindMessageTypeByName(self._name)
        except KeyError:
            self._file.fail(f"there is no message {name}; there are {_some(_types(files))}")
        self.make: Callable[[], Any] = message_factory.GetMessageClass(self.descriptor)
        self.header = RegistryHeader(options, _place_bytes(_place(files, self._name)))

    def _files(self, content: bytes) -> Any:
        try:
            found = descriptor_pb2.FileDescriptorSet.FromString(content)
        except DecodeError:
            found = None
        if found is None or not found.file:
            self._file.fail("not a descriptor set; protoc --include_imports --descriptor_set_out=FILE makes one, or name a .proto file")
        return found

    def _compiled(self, path: Path) -> bytes:
        if importlib.util.find_spec("grpc_tools") is None:
            self._file.fail("a .proto file needs pip install grpcio-tools; a set of protoc --include_imports --descriptor_set_out does not")
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "set"
            words = ["-m", "grpc_tools.protoc", f"-I{path.parent}", "--include_imports", f"--descriptor_set_out={made}", str(path)]
            try:
                done = subprocess.run([sys.executable, *words], capture_output=True, timeout=COMPILE_S, check=False)
            except subprocess.TimeoutExpired:
                self._file.fail(f"protoc has not read it within {COMPILE_S:g} s")
            if done.returncode or not made.exists():
                said = done.stderr.decode("utf-8", "replace").split("\n")[0][:300]
                raise ConnectorError(f"schema: {said or f'{path}: protoc cannot read it'}")
            return made.read_bytes()


def _types(files: Any) -> list[str]:
    return [f"{file.package}.{one.name}".removeprefix(".") for file in files.file for one in file.message_type]


def _some(names: list[str]) -> str:
    own = [name for name in names if not name.startswith("google.protobuf.")] or names
    return ", ".join(own[:10]) + (" …" if len(own) > 10 else "")


def _place(files: Any, name: str) -> list[int]:
    """Return where a type stands among those of its file, and of those around it."""

    def look(types: Any, before: str, place: list[int]) -> list[int] | None:
        for number, one in enumerate(types):
            full = f"{before}.{one.name}".removeprefix(".")
            if full == name:
                return [*place, number]
            if name.startswith(f"{full}."):
                return look(one.nested_type, full, [*place, number])
        return None

    return next(found for file in files.file if (found := look(file.message_type, file.package, [])) is not None)


def _place_bytes(place: list[int]) -> bytes:
    """Return the place as the registry's clients write it: how many numbers, and the numbers, as signed varints; the first type is 0."""
    return b"\0" if place == [0] else b"".join(_varint(2 * number) for number in (len(place), *place))


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


class _Budget:
    """How many bytes the value of one message may still come to."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = DECODED_BYTES_MAX

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise Unreadable(f"its value takes more than {DECODED_BYTES_MAX} bytes")


Reading = Callable[[Any, _Budget], Any]


class _TypeReader:
    """Makes a dict of a message of one type."""

    def __init__(self, descriptor: Any, made: dict[str, _TypeReader]) -> None:
        made[descriptor.full_name] = self
        self.is_inside = False  # of another message, or of itself
        self.size = RECORD_BYTES
        self.fields: dict[str, Reading] = {}
        self._defaults: dict[str, Any] = {}
        for field in descriptor.fields:
            self.size += field_bytes(field.name) + VALUE_BYTES
            self.fields[field.name], self._defaults[field.name] = _reading(field, made)

    def read(self, message: Any, budget: _Budget) -> dict[str, Any]:
        budget.take(self.size)
        row = dict(self._defaults)
        for field, value in message.ListFields():
            if not field.is_extension:
                row[field.name] = self.fields[field.name](value, budget)
        return row


def _reading(field: Any, made: dict[str, _TypeReader]) -> tuple[Reading, Any]:
    """Return how a field is read, and what it is where it is not set."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, item = kind.fields_by_name["key"], _one(kind.fields_by_name["value"], made)
        name = (lambda value: str(value).lower()) if key.type == key.TYPE_BOOL else str

        def read_map(value: Any, budget: _Budget) -> Any:
            budget.take(len(value) * (field_bytes("") + VALUE_BYTES))
            return {name(one): item(value[one], budget) for one in value}

        return read_map, {}
    one = _one(field, made)
    if field.is_repeated:

        def read_list(value: Any, budget: _Budget) -> Any:
            budget.take(len(value) * VALUE_BYTES)
            return [one(item, budget) for item in value]

        return read_list, []
    if field.has_presence and not field.has_default_value:
        return one, None
    return one, one(field.default_value, _Budget())


def _one(field: Any, made: dict[str, _TypeReader]) -> Reading:
    """Return how one value of a field is read."""
    kind = field.message_type
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda value, budget: names.get(value, str(value))
    if kind is None:
        return lambda value, budget: value
    if kind.full_name == _TIMESTAMP:
        return lambda value, budget: _EPOCH + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
    if kind.full_name == _DURATION:
        return lambda value, budget: dt.timedelta(seconds=value.seconds, microseconds=int(value.nanos / 1_000))
    if kind.full_name in _JSON:
        return _read_json
    if kind.file.name == _WRAPPERS:
        return lambda value, budget: value.value
    reader = made.get(kind.full_name) or _TypeReader(kind, made)
    reader.is_inside = True
    return reader.read


def _read_json(value: Any, budget: _Budget) -> Any:
    budget.take(value.ByteSize() * VALUE_BYTES)
    return json_format.MessageToDict(value)


class ProtobufReader:
    """Reads messages."""

    def __init__(self, options: ConnectorOptions) -> None:
        schema = ProtobufSchema(options)
        self._make, self._header = schema.make, schema.header
        types: dict[str, _TypeReader] = {}
        self._reader = _TypeReader(schema.descriptor, types)
        largest = max(PARSED_FIELD_BYTES * (1 + len(one.fields)) for one in types.values())
        self._bytes_max = PARSED_BYTES_MAX * MESSAGE_BYTES_LEAST // largest
        inside = max((one.size for one in types.values() if one.is_inside), default=0)
        self.growth = Growth(self._reader.size, max(Growth().per_byte, VALUE_BYTES, inside / MESSAGE_BYTES_LEAST))

    def read(self, value: bytes) -> Any:
        """Return the value of a message. Unreadable when it is none of the type."""
        rest = self._header.without(value)
        if len(rest) > self._bytes_max:
            raise Unreadable(f"{len(rest)} bytes, {self._bytes_max} are the most of a type with so many fields")
        message = self._make()
        try:
            message.ParseFromString(rest)
        except DecodeError as error:
            raise Unreadable(f"not of the Protobuf message ({' '.join(str(error).split())[:100]})") from None
        if not message.IsInitialized():
            raise Unreadable(f"it lacks {', '.join(message.FindInitializationErrors()[:5])}")
        try:
            return self._reader.read(message, _Budget())
        except json_format.SerializeToJsonError as error:
            raise Unreadable(f"a part has no form in JSON ({error})") from None


class ProtobufWriter:
    """Writes results, a message each: the columns are its fields. NULL is a field that is not set."""

    def __init__(self, options: ConnectorOptions) -> None:
        schema = ProtobufSchema(options)
        self._make, self._descriptor, self._header = schema.make, schema.descriptor, schema.header.bytes

    def messages(self, batch: Any) -> list[bytes]:
        """Return a message for each row of an Arrow batch. ConnectorError naming the column that the message does not have, or not so."""
        fields = self._descriptor.fields_by_name
        unknown = next((name for name in batch.schema.names if name not in fields), None)
        if unknown is not None:
            raise ConnectorError(f"schema: {self._descriptor.full_name} has no field {unknown}; its fields are {', '.join(fields.keys())}")
        return [self._header + self._message(row) for row in rows_of(batch)]

    def _message(self, row: dict[str, Any]) -> bytes:
        message = self._make()
        _fill(message, row)
        missing = message.FindInitializationErrors()
        if missing:
            raise ConnectorError(f"a result does not fill {', '.join(missing[:5])}, which {self._descriptor.full_name} requires")
        return bytes(message.SerializeToString())


def _fill(message: Any, row: Mapping[str, Any]) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        if value is None:
            continue
        field = fields.get(name)
        try:
            if field is None:
                raise KeyError(f"{message.DESCRIPTOR.full_name} has no field {name}")  # noqa: TRY301
            _set(message, field, value)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError, json_format.ParseError) as error:
            said = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise ConnectorError(f"column {name} does not fit the field {field.full_name if field else name}: {said}") from None


def _set(message: Any, field: Any, value: Any) -> None:
    kind = field.message_type
    if isinstance(value, str) and (
        field.is_repeated or (kind is not None and kind.file.name != _WRAPPERS and kind.full_name not in (_TIMESTAMP, _DURATION))
    ):
        value = json.loads(value)  # a column of JSON
    if kind is not None and kind.GetOptions().map_entry:
        key, item = kind.fields_by_name["key"], kind.fields_by_name["value"]
        place = getattr(message, field.name)
        for name, one in value.items():
            named = name if key.type == key.TYPE_STRING or not isinstance(name, str) else json.loads(name)
            if item.message_type is None:
                place[named] = _scalar(item, one)
            else:
                _set_message(place[named], one)
    elif field.is_repeated:
        place = getattr(message, field.name)
        for one in value:
            if kind is None:
                place.append(_scalar(field, one))
            else:
                _set_message(place.add(), one)
    elif kind is None:
        setattr(message, field.name, _scalar(field, value))
    else:
        part = getattr(message, field.name)
        part.SetInParent()
        _set_message(part, value)


def _set_message(part: Any, value: Any) -> None:
    kind = part.DESCRIPTOR
    if value is None:
        raise ValueError("a list or map of Protobuf has no NULL")
    if kind.full_name == _TIMESTAMP:
        part.FromDatetime(value)
    elif kind.full_name == _DURATION:
        part.FromTimedelta(value)
    elif kind.full_name in _JSON:
        json_format.ParseDict(value, part)
    elif kind.file.name == _WRAPPERS:
        part.value = _scalar(kind.fields_by_name["value"], value)
    else:
        _fill(part, value)


def _scalar(field: Any, value: Any) -> Any:
    """Return a value as the library takes it for a field: numbers and instants as text where the field is text."""
    if value is None:
        raise ValueError("a list or map of Protobuf has no NULL")
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        if known is None:
            raise ValueError(f"{field.enum_type.full_name} has no value {value}")
        return known.number
    if field.cpp_type == field.CPPTYPE_STRING and field.type == field.TYPE_STRING and not isinstance(value, str | bytes):
        return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return float(value)
    return value
