"""What a connector is: a class with `open`, `read` or `write`, and `close`, found by an entry point of `millstream.connectors`.

A source gives messages, each batch with a position: bytes of its own (up to 1 KiB) that say where to go on behind it. Millstream keeps the
position with the rows, and gives it back when the source is opened again. A sink takes results, each batch with a token that says where to
go on behind it, and keeps the token together with them if it can.

A connector runs in a thread of its own, so it may block, within the time that it is given. Whatever it raises is told, and it is opened
again after a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol, overload
from urllib.parse import SplitResult, urlsplit

ENTRY_POINTS = "millstream.connectors"
BATCH_BYTES_MAX = 4 * 2**20  # of a source's batch, as it is taken whole: the server takes 16 MiB of rows at once
NUMBERS, NUMBER_BYTES = frozenset((int, float, bool, type(None))), 8
DECODED_BYTES_MAX = 32 * 2**20  # that the values of a batch may come to, in memory


class ConnectorError(Exception):
    """Something that a person has to mend; the text says what and where."""


class Unreadable(Exception):
    """A message that is not of its format."""


class Message(NamedTuple):
    """One message of a source: bytes for the source's format to read, or values by name where there is nothing to read.

    `time_us` is when the other side says that it came (microseconds since 1970), None where it does not say. `header` is the first line of
    a CSV file, which names the fields.
    """

    value: bytes | Mapping[str, Any]
    topic: str = ""
    key: bytes | None = None
    time_us: int | None = None
    header: bytes | None = None

    @property
    def size(self) -> int:
        """About how many bytes its value has."""
        value = self.value
        return len(value) if isinstance(value, bytes) else sum(map(_size, value.values()))


def _size(value: Any) -> int:
    return NUMBER_BYTES if type(value) in NUMBERS else len(value) if isinstance(value, str | bytes) else len(str(value))


class Records(Sequence[Message]):
    """Rows of a table as messages, each made when it is looked at: `rows` have the values of the columns `names`."""

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.names = names
        self.rows = rows

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Records: ...

    def __getitem__(self, at: int | slice) -> Message | Records:
        """Return one of them, or some."""
        if isinstance(at, slice):
            return Records(self.names, self.rows[at])
        return Message(dict(zip(self.names, self.rows[at], strict=True)))

    def sizes(self) -> list[int]:
        """Return about how many bytes the values of each have."""
        if all(NUMBERS.issuperset(map(type, column)) for column in zip(*self.rows, strict=True)):
            return [NUMBER_BYTES * len(self.names)] * len(self.rows)
        return [sum(map(_size, row)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages in order, and the position behind them."""

    messages: Sequence[Message]
    position: bytes


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a source is behind: messages that wait, and the age of the oldest in seconds; None where that is not known."""

    messages: int | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Growth:
    """How many bytes of memory the value of a message comes to at most: `fixed`, and `per_byte` for each byte of the message."""

    fixed: int = 0
    per_byte: float = DECODED_BYTES_MAX / BATCH_BYTES_MAX

    def of(self, size: int) -> float:
        """Return them for a message of so many bytes."""
        return self.fixed + self.per_byte * size


def fitting(messages: Sequence[Message], growth: Growth = Growth()) -> int:
    """Return how many of the first messages make one batch: whose values come to `DECODED_BYTES_MAX` bytes at most, or a single one."""
    sizes = messages.sizes() if isinstance(messages, Records) else [message.size for message in messages]
    if growth.fixed * len(sizes) + growth.per_byte * sum(sizes) <= DECODED_BYTES_MAX:
        return len(sizes)
    total = 0.0
    for count, size in enumerate(sizes):
        total += growth.of(size)
        if count and total > DECODED_BYTES_MAX:
            return count
    return len(sizes)


class ConnectorOptions:
    """The options of WITH, secrets filled in. Each is asked for by name; what nobody asks for is told as unknown.

    `growth` is that of a source's format: a connector gives it to `fitting`.
    """

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self.growth = Growth()
        self._values = dict(values)
        self._asked = {"connector"}

    def text(self, name: str, default: str | None = None) -> str:
        """Return an option as text. ConnectorError when it is not given and has no default."""
        self._asked.add(name)
        value = self._values.get(name, default)
        if value is None:
            raise ConnectorError(f"{self.name}: option {name} is missing; add {name} = '…' to WITH")
        return str(value)

    def maybe(self, name: str) -> str | None:
        """Return an option as text, None when it is not given."""
        self._asked.add(name)
        value = self._values.get(name)
        return None if value is None else str(value)

    def url(self, schemes: Sequence[str], example: str) -> SplitResult:
        """Return the option `url`, taken apart. ConnectorError with the example when it has none of these schemes, or no host."""
        text = self.text("url")
        try:
            found = urlsplit(text)
            if found.scheme in schemes and (found.hostname or found.scheme == "unix"):
                return found
        except ValueError:
            pass  # brackets that do not close: no URL either
        raise ConnectorError(f"{self.name}: url must be {example}")

    def number(self, name: str, default: float, least: float = 0) -> float:
        """Return an option as a number. ConnectorError when it is none, or less than `least`."""
        self._asked.add(name)
        value = self._values.get(name, default)
        try:
            found = float(value)
        except (TypeError, ValueError):
            raise ConnectorError(f"{self.name}: {name} must be a number, not {value!r:.40}") from None
        if not found >= least:
            raise ConnectorError(f"{self.name}: {name} must be at least {least:g}")
        return found

    def check_all_known(self) -> None:
        """ConnectorError naming an option that the connector has not asked for."""
        unknown = sorted(self._values.keys() - self._asked)
        if unknown:
            known = ", ".join(sorted(self._asked))
            raise ConnectorError(f"{self.name}: there is no option {unknown[0]}; this connector has {known}")


class Source(Protocol):
    """Where rows come from. `promise` begins with `exactly once` or `at least once`, and says why."""

    promise: str

    def open(self, options: ConnectorOptions, position: bytes | None) -> None:
        """Connect, to go on behind `position`; None: from the beginning. ConnectorError for what a person has to mend."""
        ...

    def read(self, wait_s: float) -> MessageBatch | None:
        """Return the next messages, of some `BATCH_BYTES_MAX` bytes at most; None when none come within so many seconds."""
        ...

    def settled(self, position: bytes) -> None:
        """All messages up to a position are in the stream, or refused by it: the other side need not keep them."""
        ...

    def lag(self) -> Lag:
        """Return how far behind it is."""
        ...

    def close(self) -> None:
        """Disconnect. Called once after `open`, also when that or anything else failed."""
        ...


class Sink(Protocol):
    """Where results go. `promise` as that of a source."""

    promise: str

    def open(self, options: ConnectorOptions, token: str | None) -> str | None:
        """Connect; returns the token to go on behind: its own where it keeps one, else the one given. None: from the beginning."""
        ...

    def write(self, batch: Any, token: str) -> None:
        """Take a `pyarrow.RecordBatch` of results; `token` says where to go on behind it."""
        ...

    def flush(self) -> None:
        """Return once all that was written is kept."""
        ...

    def close(self) -> None:
        """Disconnect, perhaps without what was not flushed."""
        ...


def find(kind: str, connector: str) -> type[Any]:
    """Return the class of a connector; `kind` is `source` or `sink`. ConnectorError naming those there are, or what is missing."""
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    entry = found.get(f"{connector}-{kind}")
    if entry is None:
        names = ", ".join(sorted(name.removesuffix(f"-{kind}") for name in found if name.endswith(f"-{kind}")))
        raise ConnectorError(f"there is no connector {connector} for a {kind}; there are {names}")
    try:
        made: type[Any] = entry.load()
    except ImportError as error:
        raise ConnectorError(
            f"connector {connector} needs a library that is not installed ({error}): pip install 'millstream[{connector}]'"
        ) from error
    return made
