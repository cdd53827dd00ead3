"""Messages to msgpack and back. What is not a message of `messages.py`, whole and with the right types, is refused by name.

A header is a map from field names (text) to values, plus `kind`. Unknown fields are refused, so a misspelt one is not
silently without effect; a new field needs a new protocol version.

Bounds come first. An unpacker allocates an array on the word of its length, and arrays may be nested, so a long header is
walked once without building anything, which fails when fewer items are there than announced. Text that is not UTF-8 is refused,
except in rows: there it arrives with the bad bytes as lone surrogates (`str.encode("utf-8", "surrogateescape")` gives the
original bytes back), so that the receiver can refuse that row and take the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, get_type_hints

import msgpack
from millstream.protocol import limits
from millstream.protocol.errors import LocalProtocolError, RemoteProtocolError
from millstream.protocol.messages import KIND_OF, KINDS, Ack, Credit, Hello, Message, OpenChannel, Result, Row, Rows, Submit, Train

_ROW_KINDS = ("row", "rows")


_TEXT_ALONE = {str}


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= limits.NUMBER_MAX


def _is_text_map(value: object) -> bool:
    return type(value) is dict and set(map(type, value)) <= _TEXT_ALONE


def _is_number_list(value: object) -> bool:
    return type(value) is list and all(_is_number(item) for item in value)


# annotation -> (test, what it is called in an error)
_CHECKS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    int: (_is_number, "a number from 0 to 2^63 - 1"),
    str: (lambda value: type(value) is str, "text"),
    bool: (lambda value: type(value) is bool, "true or false"),
    int | None: (lambda value: value is None or _is_number(value), "a number from 0 to 2^63 - 1, or nil"),
    str | None: (lambda value: value is None or type(value) is str, "text or nil"),
    bytes | None: (lambda value: value is None or type(value) is bytes, "bytes or nil"),
    list[Any]: (lambda value: type(value) is list, "a list"),
    list[int]: (_is_number_list, "a list of numbers"),
    dict[str, Any]: (_is_text_map, "a map with text keys"),
    dict[str, Any] | None: (lambda value: value is None or _is_text_map(value), "a map with text keys, or nil"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class FieldForm:
    """How one field of a message looks: whether it must be there, its default otherwise, and the test of its value."""

    name: str
    required: bool
    default: Any
    accepts: Callable[[Any], bool]
    wanted: str


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """How one message looks: its kind, class, fields, and whether it may have a payload."""

    kind: str
    message_class: type[Message]
    fields: tuple[FieldForm, ...]
    takes_payload: bool


def _form_of(kind: str, message_class: type[Message]) -> Form:
    hints = get_type_hints(message_class)
    forms, takes_payload = [], False
    for field in dataclasses.fields(message_class):
        if field.name == "payload":
            takes_payload = True
            continue
        accepts, wanted = _CHECKS[hints[field.name]]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        forms.append(FieldForm(field.name, required, default, accepts, wanted))
    return Form(kind, message_class, tuple(forms), takes_payload)


FORMS: dict[str, Form] = {kind: _form_of(kind, message_class) for kind, message_class in KINDS.items()}


class Encoder:
    """Messages to headers. Keeps one packer, so it belongs to one connection; not safe for threads."""

    __slots__ = ("_pack",)

    def __init__(self) -> None:
        self._pack: Callable[[object], bytes] = msgpack.Packer(autoreset=True).pack

    def encode(self, message: Message) -> bytes:
        """Return the header of `message`. LocalProtocolError if a field is of the wrong type or too large."""
        fields: dict[str, Any]
        if type(message) is Row:
            fields = {"kind": "row", "channel": message.channel, "number": message.number, "values": message.values}
        else:
            fields = _short_fields_of(message) or _fields_of(message)
        try:
            return self._pack(fields)
        except (OverflowError, ValueError, TypeError, UnicodeEncodeError) as error:
            raise LocalProtocolError(f"{KIND_OF[type(message)]}: cannot be written as msgpack: {error}") from error


def _short_fields_of(message: Message) -> dict[str, Any] | None:
    """Return the fields of the two messages that go out for every row that comes in, in their plain form; None for any other."""
    if type(message) is Ack:
        channel, through, accepted, position = message.channel, message.through, message.accepted, message.position
        if message.rejected_rows or message.rejected or not type(channel) is type(through) is type(accepted) is type(position) is int:
            return None
        if channel < 0 or through < 0 or accepted <= 0 or position < 0:
            return None
        return {"kind": "ack", "channel": channel, "through": through, "accepted": accepted, "position": position}
    if type(message) is Result:
        subscription, rows, meta = message.subscription, message.rows, message.meta
        if (
            type(message.values) is not list
            or message.values
            or not type(subscription) is type(rows) is int
            or subscription < 0
            or rows < 0
        ):
            return None
        return {"kind": "result", "subscription": subscription, "rows": rows, "meta": meta} if meta and _is_text_map(meta) else None
    return None


def _fields_of(message: Message) -> dict[str, Any]:
    form = FORMS[KIND_OF[type(message)]]
    fields: dict[str, Any] = {"kind": form.kind}
    for field in form.fields:
        value = getattr(message, field.name)
        if not field.accepts(value):
            raise LocalProtocolError(f"{form.kind}: {field.name} must be {field.wanted}, not {value!r:.80}")
        if field.required or value != field.default:
            fields[field.name] = value
    fault = _fault_between_fields(message)
    if fault is not None:
        raise LocalProtocolError(fault)
    return fields


def unpack(header: memoryview | bytes, nested_bytes_max: int | None = None) -> dict[str, Any]:
    """Return the map in `header`, within all bounds. RemoteProtocolError if it is not one.

    `nested_bytes_max` bounds the lists and maps in it, for a peer that sends no rows: those are counted by their bytes, before any is made.
    """
    length = len(header)
    hooks: dict[str, Any] = {}
    if length <= limits.UNCHECKED_HEADER_BYTES:
        try:
            fields = _unpack_short(header)
        except (ValueError, msgpack.exceptions.UnpackException):
            pass  # the long way tells what is wrong, or reads the row's bad text
        else:
            if type(fields) is dict:
                return fields
    else:
        _walk(header)
        if nested_bytes_max is not None:
            _check_nested(header, nested_bytes_max)
        elif length > limits.UNCOUNTED_HEADER_BYTES and _containers_at_most(header) > limits.CONTAINERS_MAX:
            count = _container_counter()
            hooks = {"list_hook": count, "object_hook": count}
    try:
        fields = _unpack_text(header, length, hooks)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        reason = "extension types are not used" if "max_ext_len" in str(error) else str(error) or type(error).__name__
        raise RemoteProtocolError(f"header is not msgpack within the limits: {reason}") from error
    if type(fields) is not dict:
        raise RemoteProtocolError(f"header must be a map, not {type(fields).__name__}")
    return fields


def _refuse_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code} ({len(data)} bytes) is not used")


_BOUNDS = {
    "strict_map_key": True,
    "max_ext_len": 0,
    "ext_hook": _refuse_extension,  # an extension of no bytes passes the length
}
_CONTAINERS = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))  # what begins a map or a list in msgpack
_SHORT = limits.UNCHECKED_HEADER_BYTES
_unpack_short = partial(msgpack.unpackb, max_array_len=_SHORT, max_map_len=_SHORT, **_BOUNDS)


def _unpack_text(header: memoryview | bytes, length: int, hooks: dict[str, Any]) -> Any:
    arguments = {
        "max_array_len": min(length, limits.ARRAY_ITEMS_MAX),
        "max_map_len": min(length, limits.MAP_ITEMS_MAX),
        **_BOUNDS,
        **hooks,
    }
    try:
        return msgpack.unpackb(header, **arguments)
    except UnicodeDecodeError:
        fields = msgpack.unpackb(header, unicode_errors="surrogateescape", **arguments)
        if isinstance(fields, dict) and fields.get("kind") in _ROW_KINDS:
            return fields
        raise


def _walk(header: memoryview | bytes) -> None:
    walker = msgpack.Unpacker(max_buffer_size=limits.HEADER_BYTES_MAX)
    walker.feed(header)
    try:
        walker.skip()
    except (msgpack.exceptions.UnpackException, ValueError) as error:
        raise RemoteProtocolError(f"header is not msgpack: {error or type(error).__name__}") from error
    if walker.tell() != len(header):
        raise RemoteProtocolError(f"header has {len(header) - walker.tell()} bytes after its map")


def _check_nested(header: memoryview | bytes, nested_bytes_max: int) -> None:
    """Refuse a map whose values are lists and maps of more bytes than that in all. What is no map is refused elsewhere."""
    walker = msgpack.Unpacker(max_buffer_size=limits.HEADER_BYTES_MAX)
    walker.feed(header)
    try:
        fields = walker.read_map_header()
    except (msgpack.exceptions.UnpackException, ValueError):
        return
    nested_bytes = 0
    for _ in range(fields):
        walker.skip()  # the name
        begins = walker.tell()
        walker.skip()
        if _is_container(header[begins]):
            nested_bytes += walker.tell() - begins
    if nested_bytes > nested_bytes_max:
        raise RemoteProtocolError(f"lists and maps of {nested_bytes} bytes are over the limit of {nested_bytes_max}", "limit")


def _is_container(first_byte: int) -> bool:
    return first_byte in _CONTAINERS


def _containers_at_most(header: memoryview | bytes) -> int:
    """Return how many lists and maps there can be: bytes that may begin one. Counting the ones there are takes a call for each."""
    return len(header) - len(bytes(header).translate(None, _CONTAINERS))


def _container_counter() -> Callable[[Any], Any]:
    left = limits.CONTAINERS_MAX

    def count(container: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"more than {limits.CONTAINERS_MAX} lists and maps")
        return container

    return count


def decode(fields: dict[str, Any], payload: memoryview | None) -> Message:
    """Return the message of an unpacked header. RemoteProtocolError naming the kind or the field that is wrong."""
    kind = fields.pop("kind", None)
    form = FORMS.get(kind) if type(kind) is str else None
    if form is None:
        raise RemoteProtocolError(f"unknown kind of message: {kind!r:.80}" if kind is not None else "message without a kind")
    values: dict[str, Any] = {}
    for field in form.fields:
        if field.name in fields:
            value = fields.pop(field.name)
            if not field.accepts(value):
                raise RemoteProtocolError(f"{kind}: {field.name} must be {field.wanted}, not {value!r:.80}")
            values[field.name] = value
        elif field.required:
            raise RemoteProtocolError(f"{kind}: {field.name} is missing")
    if fields:
        raise RemoteProtocolError(f"{kind}: unknown field {next(iter(fields))!r:.80}")
    if payload is not None:
        if not form.takes_payload:
            raise RemoteProtocolError(f"{kind}: takes no payload")
        values["payload"] = payload
    message = form.message_class(**values)
    fault = _fault_between_fields(message)
    if fault is not None:
        raise RemoteProtocolError(fault)
    return message


def _fault_between_fields(message: Message) -> str | None:
    """Return what is wrong between fields that are each right, or None."""
    match message:
        case Credit():
            if message.channel is not None and message.subscription is not None:
                return "credit: takes either channel or subscription"
        case Submit():
            if (message.sql is None) == (message.plan is None):
                return "submit: needs either sql or plan"
        case Hello() if len(message.versions) > limits.VERSIONS_OFFERED_MAX:
            return f"hello: more than {limits.VERSIONS_OFFERED_MAX} versions are offered"
        case Ack() if len(message.rejected) > limits.REJECTIONS_LISTED_MAX:
            return f"ack: lists more than {limits.REJECTIONS_LISTED_MAX} rejections"
        case Train() if message.rows > limits.TRAIN_ROWS_MAX:
            return f"train: {message.rows} rows are over the limit of {limits.TRAIN_ROWS_MAX}"
        case Rows() if len(message.values) > limits.MESSAGE_ROWS_MAX:
            return f"rows: {len(message.values)} rows are over the limit of {limits.MESSAGE_ROWS_MAX}"
        case Rows() if not all(type(row) in (list, dict) for row in message.values):
            return "rows: each row must be a list or a map"
        case Train() | Rows() if message.position is not None and len(message.position) > limits.POSITION_BYTES_MAX:
            kind = KIND_OF[type(message)]
            return f"{kind}: a position of {len(message.position)} bytes is over the limit of {limits.POSITION_BYTES_MAX}"
        case Train() | Rows() if message.position is not None and message.sequence is None:
            return f"{KIND_OF[type(message)]}: a position needs a sequence"
        case OpenChannel() if message.producer is not None and not _is_producer_name(message.producer):
            return f"open_channel: a producer's name has 1 to {limits.PRODUCER_NAME_BYTES_MAX} bytes"
        case Result() if message.values and len(message.values) != message.rows:
            return f"result: says {message.rows} rows and has {len(message.values)}"
        case _:
            pass
    return None


def _is_producer_name(name: str) -> bool:
    return 0 < len(name.encode("utf-8", "surrogatepass")) <= limits.PRODUCER_NAME_BYTES_MAX
