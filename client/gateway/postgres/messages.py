"""The messages of protocol 3.0 and how they lie in bytes; what clients say both ways, what servers say as bytes.

Source: PostgreSQL's manual, "Message Formats". A message is a type byte, an int32 that counts itself and the body, and the body; those
before the greeting have no type byte. Numbers are big-endian, texts end with a zero byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct, error, pack

from millstream.client.gateway.postgres import limits
from millstream.client.gateway.postgres.sqlstates import LIMIT, PROTOCOL_VIOLATION, PgError

VERSION_3_0 = 196_608
CANCEL_CODE, SSL_CODE, GSS_CODE = 80_877_102, 80_877_103, 80_877_104
INT16, INT32, UINT32 = Struct(">h"), Struct(">i"), Struct(">I")
TEXT, BINARY = 0, 1  # format codes


@dataclass(frozen=True, slots=True)
class Startup:
    """The greeting: the protocol's version (major in the upper 16 bits) and parameters such as `user`."""

    version: int
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class SslRequest:
    """May TLS begin?"""


@dataclass(frozen=True, slots=True)
class GssRequest:
    """May GSSAPI encryption begin?"""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Cancel what the connection with this number and key is doing."""

    number: int
    key: int


@dataclass(frozen=True, slots=True)
class Password:
    """A password, or a step of SASL."""

    data: bytes


@dataclass(frozen=True, slots=True)
class SimpleQuery:
    """Run statements, one after the other."""

    text: str


@dataclass(frozen=True, slots=True)
class Parse:
    """Prepare a statement; `types` are OIDs of its parameters, 0 for unknown."""

    name: str
    text: str
    types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    """Give a prepared statement its parameters: a portal."""

    portal: str
    statement: str
    formats: tuple[int, ...] = ()
    values: tuple[bytes | None, ...] = ()
    result_formats: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Describe:
    """Which columns has a statement (`S`) or portal (`P`)?"""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    """Run a portal, for at most so many rows; 0 is all."""

    portal: str
    rows_max: int = 0


@dataclass(frozen=True, slots=True)
class Close:
    """Forget a statement (`S`) or portal (`P`)."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Sync:
    """The end of a group of extended messages."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Send what there is."""


@dataclass(frozen=True, slots=True)
class CopyData:
    """Bytes of COPY FROM STDIN."""

    data: bytes


@dataclass(frozen=True, slots=True)
class CopyDone:
    """The end of COPY FROM STDIN."""


@dataclass(frozen=True, slots=True)
class CopyFail:
    """The client gives COPY FROM STDIN up."""

    reason: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function by its OID, which nobody needs any more."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """The client leaves."""


Message = (
    Startup | SslRequest | GssRequest | CancelRequest | Password | SimpleQuery | Parse | Bind | Describe | Execute | Close | Sync | Flush
    | CopyData | CopyDone | CopyFail | FunctionCall | Terminate
)  # fmt: skip


class _Body:
    """Reads the parts of a body in order; a `PgError` when they do not fill it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise _malformed("a text does not end")
        raw, self._at = self._data[self._at : end], end + 1
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as problem:
            raise PgError("22021", f"a text is not UTF-8 (byte {problem.start})", fatal=True) from None

    def number(self, layout: Struct) -> int:
        try:
            (found,) = layout.unpack_from(self._data, self._at)
        except error:
            raise _malformed("it ends too early") from None
        self._at += layout.size
        return int(found)

    def count(self) -> int:
        found = self.number(INT16) & 0xFFFF
        if found > limits.PARAMETERS_MAX:
            raise PgError(LIMIT, f"a statement has at most {limits.PARAMETERS_MAX} parameters, not {found}", fatal=True)
        return found

    def value(self) -> bytes | None:
        length = self.number(INT32)
        if length == -1:
            return None
        if length < 0 or self._at + length > len(self._data):
            raise _malformed("a value is longer than the message")
        self._at += length
        return self._data[self._at - length : self._at]

    def kind(self) -> str:
        self._at += 1
        found = self._data[self._at - 1 : self._at].decode("latin-1")
        if found not in ("S", "P"):
            raise _malformed(f"{found!r} is neither statement nor portal")
        return found

    def rest(self) -> bytes:
        found, self._at = self._data[self._at :], len(self._data)
        return found

    def end(self) -> None:
        if self._at != len(self._data):
            raise _malformed("it is longer than its parts")


def _malformed(why: str) -> PgError:
    return PgError(PROTOCOL_VIOLATION, f"malformed message: {why}", fatal=True)


def _parse(body: _Body) -> Parse:
    name, text = body.text(), body.text()
    return Parse(name, text, tuple(body.number(UINT32) for _ in range(body.count())))


def _bind(body: _Body) -> Bind:
    portal, statement = body.text(), body.text()
    formats = tuple(_format(body) for _ in range(body.count()))
    values = tuple(body.value() for _ in range(body.count()))
    if len(formats) not in (0, 1, len(values)):
        raise _malformed(f"{len(formats)} formats for {len(values)} parameters")
    return Bind(portal, statement, formats, values, tuple(_format(body) for _ in range(body.count())))


def _function_call(body: _Body) -> FunctionCall:
    body.rest()
    return FunctionCall()


def _format(body: _Body) -> int:
    found = body.number(INT16)
    if found not in (TEXT, BINARY):
        raise _malformed(f"{found} is no format")
    return found


# Of each kind of message: how it is read, and the most bytes that it may have.
_READERS: dict[bytes, tuple[Callable[[_Body], Message], int]] = {
    b"p": (lambda body: Password(body.rest()), limits.PASSWORD_BYTES_MAX),
    b"Q": (lambda body: SimpleQuery(body.text()), limits.STATEMENT_BYTES_MAX),
    b"P": (_parse, limits.STATEMENT_BYTES_MAX),
    b"B": (_bind, limits.BIND_BYTES_MAX),
    b"D": (lambda body: Describe(body.kind(), body.text()), limits.OTHER_BYTES_MAX),
    b"E": (lambda body: Execute(body.text(), max(0, body.number(INT32))), limits.OTHER_BYTES_MAX),
    b"C": (lambda body: Close(body.kind(), body.text()), limits.OTHER_BYTES_MAX),
    b"S": (lambda body: Sync(), limits.OTHER_BYTES_MAX),
    b"H": (lambda body: Flush(), limits.OTHER_BYTES_MAX),
    b"d": (lambda body: CopyData(body.rest()), limits.COPY_BYTES_MAX),
    b"c": (lambda body: CopyDone(), limits.OTHER_BYTES_MAX),
    b"f": (lambda body: CopyFail(body.text()), limits.OTHER_BYTES_MAX),
    b"F": (_function_call, limits.OTHER_BYTES_MAX),
    b"X": (lambda body: Terminate(), limits.OTHER_BYTES_MAX),
}


def bytes_max(kind: bytes) -> int:
    """Return the most bytes of a message of this type, its length among them. `PgError` (fatal) when there is no such type."""
    found = _READERS.get(kind)
    if found is None:
        raise PgError(PROTOCOL_VIOLATION, f"unknown type of message {kind!r}", fatal=True)
    return found[1]


def read(kind: bytes, body: bytes) -> Message:
    """Return the message of a type byte and a body. `PgError` (fatal) when it is malformed."""
    reader = _Body(body)
    message = _READERS[kind][0](reader)
    reader.end()
    return message


def read_first(body: bytes) -> Message:
    """Return a message before the greeting, or the greeting. `PgError` (fatal) when it is malformed."""
    reader = _Body(body)
    code = reader.number(INT32)
    if code in (SSL_CODE, GSS_CODE):
        reader.end()
        return SslRequest() if code == SSL_CODE else GssRequest()
    if code == CANCEL_CODE:
        found = CancelRequest(reader.number(INT32), reader.number(INT32))
        reader.end()
        return found
    if code >> 16 != 3:
        raise PgError("0A000", f"protocol version {code >> 16}.{code & 0xFFFF} is not supported: version 3.0 is", fatal=True)
    parameters: dict[str, str] = {}
    while name := reader.text():
        parameters[name] = reader.text()
    reader.end()
    return Startup(code, parameters)


# --- what a client says, as bytes: for the private PostgreSQL, and for tests ---


def _framed(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + INT32.pack(len(body) + 4) + body


def _z(text: str) -> bytes:
    return text.encode() + b"\0"


def _numbers(layout: Struct, numbers: Sequence[int]) -> bytes:
    return pack(">H", len(numbers)) + b"".join(layout.pack(number) for number in numbers)


def written(message: Message) -> bytes:
    """Return the bytes of a message as a client sends it."""
    match message:
        case Startup(version, parameters):
            pairs = b"".join(_z(name) + _z(value) for name, value in parameters.items())
            return _framed(b"", INT32.pack(version), pairs, b"\0")
        case SslRequest():
            return _framed(b"", INT32.pack(SSL_CODE))
        case GssRequest():
            return _framed(b"", INT32.pack(GSS_CODE))
        case CancelRequest(number, key):
            return _framed(b"", INT32.pack(CANCEL_CODE), INT32.pack(number), INT32.pack(key))
        case Password(data):
            return _framed(b"p", data)
        case SimpleQuery(text):
            return _framed(b"Q", _z(text))
        case Parse(name, text, types):
            return _framed(b"P", _z(name), _z(text), _numbers(UINT32, types))
        case Bind(portal, statement, formats, values, result_formats):
            lain = b"".join(INT32.pack(-1) if value is None else INT32.pack(len(value)) + value for value in values)
            counted = pack(">H", len(values)) + lain
            return _framed(b"B", _z(portal), _z(statement), _numbers(INT16, formats), counted, _numbers(INT16, result_formats))
        case Describe(kind, name):
            return _framed(b"D", kind.encode(), _z(name))
        case Execute(portal, rows_max):
            return _framed(b"E", _z(portal), INT32.pack(rows_max))
        case Close(kind, name):
            return _framed(b"C", kind.encode(), _z(name))
        case CopyData(data):
            return _framed(b"d", data)
        case CopyFail(reason):
            return _framed(b"f", _z(reason))
        case Sync() | Flush() | CopyDone() | FunctionCall() | Terminate():
            kinds: dict[type, bytes] = {Sync: b"S", Flush: b"H", CopyDone: b"c", FunctionCall: b"F", Terminate: b"X"}
            return _framed(kinds[type(message)])


# --- what a server says ---


@dataclass(frozen=True, slots=True)
class ResultField:
    """A column of a result: name, OID, bytes of a value (-1: they vary), modifier (-1: none) and format."""

    name: str
    oid: int
    size: int = -1
    modifier: int = -1
    format: int = field(default=TEXT)


AUTHENTICATION_OK = _framed(b"R", INT32.pack(0))
AUTHENTICATION_CLEARTEXT = _framed(b"R", INT32.pack(3))
PARSE_COMPLETE, BIND_COMPLETE, CLOSE_COMPLETE = _framed(b"1"), _framed(b"2"), _framed(b"3")
NO_DATA, PORTAL_SUSPENDED, EMPTY_QUERY, COPY_DONE = _framed(b"n"), _framed(b"s"), _framed(b"I"), _framed(b"c")


def authentication_sasl(mechanisms: Sequence[str]) -> bytes:
    """Offer these mechanisms."""
    return _framed(b"R", INT32.pack(10), *map(_z, mechanisms), b"\0")


def authentication_continue(data: bytes) -> bytes:
    """Go on with SASL."""
    return _framed(b"R", INT32.pack(11), data)


def authentication_final(data: bytes) -> bytes:
    """Say the last word of SASL."""
    return _framed(b"R", INT32.pack(12), data)


def negotiate_version(unknown_options: Sequence[str]) -> bytes:
    """Say that 3.0 is the newest version spoken here, and which options of the greeting are unknown."""
    return _framed(b"v", INT32.pack(VERSION_3_0), INT32.pack(len(unknown_options)), *map(_z, unknown_options))


def parameter_status(name: str, value: str) -> bytes:
    """Tell the value of a setting."""
    return _framed(b"S", _z(name), _z(value))


def backend_key(number: int, key: int) -> bytes:
    """Tell what a CancelRequest has to say."""
    return _framed(b"K", INT32.pack(number), INT32.pack(key))


def ready(status: str) -> bytes:
    """Say that the next statement may come; `status` is I (idle), T (in a transaction) or E (in a failed one)."""
    return _framed(b"Z", status.encode())


def row_description(fields: Sequence[ResultField]) -> bytes:
    """Describe the columns of a result."""
    lain = [_z(f.name) + pack(">IhIhih", 0, 0, f.oid, f.size, f.modifier, f.format) for f in fields]
    return _framed(b"T", pack(">H", len(fields)), *lain)


def parameter_description(oids: Sequence[int]) -> bytes:
    """Tell the types of a statement's parameters."""
    return _framed(b"t", _numbers(UINT32, oids))


def command_complete(tag: str) -> bytes:
    """Say that a statement is done."""
    return _framed(b"C", _z(tag))


def copy_response(kind: bytes, format: int, columns: int) -> bytes:
    """Begin COPY: `kind` is G (the client sends) or H (the server sends)."""
    return _framed(kind, bytes((format,)), _numbers(INT16, [format] * columns))


def copy_data(data: bytes) -> bytes:
    """Carry bytes of COPY TO STDOUT."""
    return _framed(b"d", data)


def _report(kind: bytes, severity: str, sqlstate: str, message: str, hint: str | None, position: int | None) -> bytes:
    fields = [("S", severity), ("V", severity), ("C", sqlstate), ("M", message)]
    if hint:
        fields.append(("H", hint))
    if position is not None:
        fields.append(("P", str(position)))
    return _framed(kind, *(code.encode() + _z(text.replace("\0", "")) for code, text in fields), b"\0")


def error_response(problem: PgError) -> bytes:
    """Report an error."""
    severity = "FATAL" if problem.fatal else "ERROR"
    return _report(b"E", severity, problem.sqlstate, problem.message, problem.hint, problem.position)


def notice(message: str, severity: str = "NOTICE", sqlstate: str = "00000") -> bytes:
    """Say something beside the answer."""
    return _report(b"N", severity, sqlstate, message, None, None)
