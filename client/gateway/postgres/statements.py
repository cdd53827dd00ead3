"""What a statement asks for: of the gateway, of the private PostgreSQL, or of the server. Text only; nothing is looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from millstream.client.gateway.postgres.sql_words import Edited, Word, unescaped
from millstream.client.gateway.postgres.sqlstates import INVALID_PARAMETER, SYNTAX, UNDEFINED_PARAMETER, UNSUPPORTED, PgError
from millstream.client.gateway.postgres.types import type_of_word
from millstream.protocol.types import ColumnType


class Kind(Enum):
    """Who carries a statement out, and how."""

    BEGIN = "BEGIN"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    ROLLBACK_TO = "ROLLBACK TO"
    SAVEPOINT = "SAVEPOINT"
    RELEASE = "RELEASE"
    SET = "SET"
    RESET = "RESET"
    SETTING = "SHOW"
    DISCARD = "DISCARD"
    DEALLOCATE = "DEALLOCATE"
    DECLARE = "DECLARE CURSOR"
    FETCH = "FETCH"
    CLOSE = "CLOSE CURSOR"
    COPY_OUT = "COPY TO"
    COPY_IN = "COPY FROM"
    CATALOGUE = "catalogue"
    SELECT = "SELECT"
    INSERT = "INSERT"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class CopyForm:
    """How rows of COPY look."""

    name: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False


@dataclass(frozen=True, slots=True)
class Subscribed:
    """SUBSCRIBE query [FROM START]."""

    query: str
    from_start: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement: its words, who carries it out, and what its kind needs to know.

    `name` is a setting, cursor, statement or stream; `value` of SET; `count` of FETCH (None: all); `inner` is the place of the first
    word of the query of DECLARE and COPY, and that behind its last; `columns` of COPY.
    """

    kind: Kind
    words: tuple[Word, ...]
    name: str = ""
    value: str | None = None
    count: int | None = None
    subscribed: Subscribed | None = None
    inner: tuple[int, int] | None = None
    columns: tuple[str, ...] = ()
    form: CopyForm = field(default=CopyForm())
    holds: bool = False

    @property
    def tag(self) -> str:
        """What is said of a statement of the server that has been carried out: its first words."""
        first = [word.upper for word in self.words[:3]]
        if first[1:2] == ["MATERIALIZED"]:
            return " ".join(first)
        return " ".join(first[: 2 if first[0] in ("CREATE", "DROP", "START", "STOP", "PAUSE", "RESUME", "SET") else 1])

    def parameters(self) -> list[int]:
        """Return the numbers of the parameters in the order of their places."""
        return [int(word.text[1:]) for word in self.words if word.kind == "parameter"]


SERVER_SHOWS = {
    "STREAMS", "TABLES", "ARCHIVES", "QUERIES", "CLASSES", "FUNCTIONS", "POLICIES", "SHARING", "WATERMARKS", "DECISIONS", "MEASURES",
    "SCHEDULER", "WORKERS", "OPERATORS", "SOURCES", "SINKS",
}  # fmt: skip
_CATALOGUE_SCHEMAS = {"pg_catalog", "information_schema"}
_SIMPLE = {
    "BEGIN": Kind.BEGIN, "COMMIT": Kind.COMMIT, "END": Kind.COMMIT, "ABORT": Kind.ROLLBACK, "SAVEPOINT": Kind.SAVEPOINT,
    "RELEASE": Kind.RELEASE, "DISCARD": Kind.DISCARD, "INSERT": Kind.INSERT,
}  # fmt: skip


def read(words: Sequence[Word]) -> Asked:
    """Return what a statement asks for. `PgError` when it begins like one of PostgreSQL's and does not go on so."""
    first = next((word.upper for word in words if word.text != "("), "")
    reader = _READERS.get(first)
    if reader is not None:
        return reader(_Reader(words))
    if first in ("SELECT", "WITH", "VALUES", "TABLE"):
        return Asked(Kind.CATALOGUE if _is_of_catalogue(words) else Kind.SELECT, tuple(words))
    return Asked(_SIMPLE.get(first, Kind.SERVER), tuple(words))


def _is_of_catalogue(words: Sequence[Word]) -> bool:
    """Whether a SELECT asks about the catalogue, or about nothing: no stream is without a FROM."""
    if not any(word.upper == "FROM" for word in words):
        return True
    names = [word.identifier or "" for word in words]
    return any(name in _CATALOGUE_SCHEMAS or name.startswith("pg_") for name in names)


class _Reader:
    """The words of a statement, one after another."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = tuple(words)
        self.at = 1

    @property
    def word(self) -> Word | None:
        return self.words[self.at] if self.at < len(self.words) else None

    def takes(self, *wanted: str) -> bool:
        """Pass these words if they come next."""
        found = self.words[self.at : self.at + len(wanted)]
        if [word.upper for word in found] != list(wanted):
            return False
        self.at += len(wanted)
        return True

    def any_of(self, *wanted: str) -> str:
        """Pass one of these words and return it; empty if none comes next."""
        for one in wanted:
            if self.takes(one):
                return one
        return ""

    def name(self, what: str) -> str:
        found = self.word
        if found is None or found.identifier is None:
            raise self.error(f"the name of a {what} was expected")
        self.at += 1
        return found.identifier

    def expect(self, word: str) -> None:
        if not self.takes(word):
            raise self.error(f"{word} was expected")

    def end(self) -> None:
        if self.word is not None:
            raise self.error("the end of the statement was expected")

    def error(self, message: str, hint: str | None = None, state: str = SYNTAX) -> PgError:
        found = self.word
        place = self.words[-1].end if found is None else found.start
        return PgError(state, message if found is None else f"{message}, not {found.text[:40]!r}", hint, place + 1)


def _start(reader: _Reader) -> Asked:
    return Asked(Kind.BEGIN if reader.takes("TRANSACTION") else Kind.SERVER, reader.words)


def _rollback(reader: _Reader) -> Asked:
    reader.any_of("WORK", "TRANSACTION")
    return Asked(Kind.ROLLBACK_TO if reader.takes("TO") else Kind.ROLLBACK, reader.words)


def _set(reader: _Reader) -> Asked:
    if reader.takes("POLICY"):
        return Asked(Kind.SERVER, reader.words)
    reader.any_of("SESSION", "LOCAL")
    if reader.any_of("TRANSACTION", "CHARACTERISTICS", "CONSTRAINTS"):
        return Asked(Kind.SET, reader.words)
    if reader.takes("TIME", "ZONE"):
        name = "timezone"
    else:
        name = reader.name("setting")
        if reader.takes("."):
            name += "." + reader.name("setting")
        if not reader.any_of("TO", "="):
            raise reader.error("TO was expected")
    parts = [_bare(word) for word in reader.words[reader.at :] if word.text != ","]
    if not parts:
        raise reader.error("a value was expected")
    return Asked(Kind.SET, reader.words, name.lower(), ", ".join(parts))


def _bare(word: Word) -> str:
    if word.kind in ("text", "name"):
        return word.text[1:-1].replace(word.text[0] * 2, word.text[0])
    return unescaped(word.text)[1:-1] if word.kind == "escaped" else word.text


def _show(reader: _Reader) -> Asked:
    found = reader.word
    if found is None or found.upper in SERVER_SHOWS:
        return Asked(Kind.SERVER, reader.words)
    names = {("TRANSACTION", "ISOLATION", "LEVEL"): "transaction_isolation", ("TIME", "ZONE"): "timezone"}
    for wanted, name in names.items():
        if reader.takes(*wanted):
            return Asked(Kind.SETTING, reader.words, name)
    return Asked(Kind.SETTING, reader.words, ".".join(word.text for word in reader.words[1:] if word.text != ".").lower())


def _reset(reader: _Reader) -> Asked:
    return Asked(Kind.RESET, reader.words, reader.name("setting").lower())


def _deallocate(reader: _Reader) -> Asked:
    reader.takes("PREPARE")
    return Asked(Kind.DEALLOCATE, reader.words, "" if reader.takes("ALL") else reader.name("statement"))


def _close(reader: _Reader) -> Asked:
    return Asked(Kind.CLOSE, reader.words, "" if reader.takes("ALL") else reader.name("cursor"))


def _declare(reader: _Reader) -> Asked:
    name = reader.name("cursor")
    while found := reader.any_of("BINARY", "INSENSITIVE", "ASENSITIVE", "NO", "SCROLL"):
        if found == "BINARY":
            raise PgError(UNSUPPORTED, "a BINARY cursor is not supported", "ask for binary results with the extended protocol")
    reader.expect("CURSOR")
    holds = reader.takes("WITH", "HOLD")
    reader.takes("WITHOUT", "HOLD")
    reader.expect("FOR")
    subscribed, inner = _rows(reader, len(reader.words))
    return Asked(Kind.DECLARE, reader.words, name, subscribed=subscribed, inner=inner, holds=holds)


def _rows(reader: _Reader, end: int) -> tuple[Subscribed | None, tuple[int, int] | None]:
    """Read SUBSCRIBE …, or pass a SELECT, up to the word at `end`."""
    if not reader.takes("SUBSCRIBE"):
        inner = reader.at, end
        if reader.at >= end or reader.words[reader.at].upper not in ("SELECT", "WITH", "FETCH", "("):
            raise reader.error("SUBSCRIBE or SELECT was expected")
        reader.at = end
        return None, inner
    query = reader.name("query")
    from_start = reader.takes("FROM", "START")
    if reader.at != end:
        raise reader.error("the end of SUBSCRIBE was expected", "write SUBSCRIBE query [FROM START]")
    return Subscribed(query, from_start), None


def _fetch(reader: _Reader) -> Asked:
    found = reader.word
    if found is None or found.upper in ("SELECT", "QUERY", "WITH", "("):
        return Asked(Kind.SERVER, reader.words)
    count: int | None = 1
    word = reader.any_of("NEXT", "FORWARD", "ALL", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "BACKWARD", "-")
    if word not in ("", "NEXT", "FORWARD", "ALL"):
        raise PgError(UNSUPPORTED, f"FETCH {word} is not supported: a cursor goes forward only", "write FETCH 100 FROM cursor")
    if word == "ALL" or (word == "FORWARD" and reader.takes("ALL")):
        count = None
    elif word != "NEXT" and (number := reader.word) is not None and number.kind == "number":
        if not number.text.isdigit():
            raise reader.error("a number of rows was expected")
        count = int(number.text[:18])
        reader.at += 1
    reader.any_of("FROM", "IN")
    name = reader.name("cursor")
    reader.end()
    return Asked(Kind.FETCH, reader.words, name, count=count)


def _copy(reader: _Reader) -> Asked:
    name, columns, subscribed, inner = "", [], None, None
    if reader.takes("("):
        subscribed, inner = _rows(reader, _closing(reader))
        reader.expect(")")
    else:
        name = reader.name("stream")
        if reader.takes("."):
            name = reader.name("stream")
        if reader.takes("("):
            columns.append(reader.name("column"))
            while reader.takes(","):
                columns.append(reader.name("column"))
            reader.expect(")")
    going = reader.any_of("TO", "FROM")
    if not going or (going == "FROM" and not name):
        raise reader.error("TO STDOUT was expected" if not name else "TO STDOUT or FROM STDIN was expected")
    if not reader.takes("STDOUT" if going == "TO" else "STDIN"):
        raise reader.error("COPY goes over the connection: TO STDOUT or FROM STDIN was expected", "in psql, \\copy reads and writes files")
    form = _copy_form(reader)
    reader.end()
    kind = Kind.COPY_OUT if going == "TO" else Kind.COPY_IN
    return Asked(kind, reader.words, name, subscribed=subscribed, inner=inner, columns=tuple(columns), form=form)


def _closing(reader: _Reader) -> int:
    """Return the place of the parenthesis that closes the one just passed."""
    depth = 1
    for index in range(reader.at, len(reader.words)):
        depth += {"(": 1, ")": -1}.get(reader.words[index].upper, 0)
        if depth == 0:
            return index
    raise reader.error("a closing parenthesis was expected")


def _copy_form(reader: _Reader) -> CopyForm:
    """Read the options of COPY, in the form of today or of old."""
    given: dict[str, str] = {}
    reader.takes("WITH")
    enclosed = reader.takes("(")
    while (word := reader.word) is not None and word.text != ")":
        option = word.upper
        reader.at += 1
        if option in ("CSV", "BINARY", "TEXT") and not enclosed:
            given["FORMAT"] = option
        elif option == "HEADER":
            given[option] = "true"
            if (value := reader.word) is not None and value.text.lower() in ("true", "false", "on", "off", "1", "0", "match"):
                given[option] = value.text.lower()
                reader.at += 1
        elif option in ("FORMAT", "DELIMITER", "NULL", "ENCODING"):
            reader.takes("AS")
            value = reader.word
            if value is None:
                raise reader.error("a value was expected")
            given[option] = _bare(value)
            reader.at += 1
        else:
            message = f"COPY with {word.text[:40]} is not supported"
            raise PgError(UNSUPPORTED, message, "FORMAT, HEADER, DELIMITER and NULL are", word.start + 1)
        if enclosed and not reader.takes(","):
            break
    if enclosed:
        reader.expect(")")
    return _form_of(given)


def _form_of(given: Mapping[str, str]) -> CopyForm:
    name = given.get("FORMAT", "text").lower()
    if name not in ("text", "csv", "binary"):
        raise PgError(INVALID_PARAMETER, f"{name[:40]!r} is no format of COPY", "write text, csv or binary")
    delimiter = given.get("DELIMITER", "," if name == "csv" else "\t")
    if len(delimiter) != 1 or delimiter in '\r\n\\"' or delimiter.isalnum():
        raise PgError(INVALID_PARAMETER, "the DELIMITER of COPY is one sign, no letter, digit, quote or backslash")
    null = given.get("NULL", "" if name == "csv" else "\\N")
    return CopyForm(name, delimiter, null, given.get("HEADER", "false") in ("true", "on", "1", "match"))


_READERS: dict[str, Callable[[_Reader], Asked]] = {
    "START": _start, "ROLLBACK": _rollback, "SET": _set, "SHOW": _show, "RESET": _reset, "DEALLOCATE": _deallocate,
    "CLOSE": _close, "DECLARE": _declare, "FETCH": _fetch, "COPY": _copy,
}  # fmt: skip


# --- parameters ---

_OPERATORS = {"=", "<", ">", "<=", ">=", "<>", "!=", "+", "-", "*", "/", "%"}


def parameter_types(words: Sequence[Word], columns: Mapping[str, ColumnType], inserted: Sequence[ColumnType]) -> dict[int, ColumnType]:
    """Return the types of a statement's parameters, by number, as far as the words around them tell.

    `columns` are those of the streams and tables in the statement, `inserted` those that INSERT fills, in order. A cast says it, or what
    the parameter is compared with, or its place in VALUES.
    """
    found: dict[int, ColumnType] = {}
    for index, word in enumerate(words):
        if word.kind == "parameter":
            kind = _type_at(words, index, columns) or _type_in_values(words, index, inserted)
            if kind is not None:
                found.setdefault(int(word.text[1:]), kind)
    return found


def _type_at(words: Sequence[Word], index: int, columns: Mapping[str, ColumnType]) -> ColumnType | None:
    def upper(at: int) -> str:
        return words[at].upper if 0 <= at < len(words) else ""

    def named(at: int) -> ColumnType | None:
        return columns.get(words[at].identifier or "") if 0 <= at < len(words) else None

    before, after = upper(index - 1), upper(index + 1)
    if after in ("::", "AS") and (after == "::" or (before == "(" and upper(index - 2) in ("CAST", "TRY_CAST"))):
        return type_of_word(upper(index + 2))
    if before == "LIMIT":
        return ColumnType("BIGINT")
    if before in ("LIKE", "ILIKE", "||") or after in ("LIKE", "ILIKE", "||"):
        return ColumnType("TEXT")
    if before in _OPERATORS or before == "BETWEEN":
        return named(index - 2) or _of_call(words, index - 2)
    if before == "AND" and upper(index - 3) == "BETWEEN":
        return named(index - 4)
    if after in _OPERATORS:
        return named(index + 4) if upper(index + 3) == "." else named(index + 2)
    at = index - 1
    while at > 0 and upper(at) == "," and words[at - 1].kind == "parameter":
        at -= 2
    return named(at - 2) if upper(at) == "(" and upper(at - 1) == "IN" else None


def _of_call(words: Sequence[Word], at: int) -> ColumnType | None:
    """Return the type of a count, whose closing parenthesis stands at this place."""
    is_count = at >= 3 and words[at].text == ")" and words[at - 2].text == "(" and words[at - 3].upper == "COUNT"
    return ColumnType("BIGINT") if is_count else None


def _type_in_values(words: Sequence[Word], index: int, inserted: Sequence[ColumnType]) -> ColumnType | None:
    """Return the type of the column that a parameter fills, if it stands alone in a row of VALUES."""
    if not inserted or words[0].upper != "INSERT":
        return None
    place, depth, at = 0, 0, index - 1
    while at > 0 and (depth or words[at].upper != "("):
        text = words[at].upper
        depth += {")": 1, "(": -1}.get(text, 0)
        place += text == "," and depth == 0
        at -= 1
    return inserted[place] if words[at - 1].upper in ("VALUES", ",") and place < len(inserted) else None


# --- what the server is sent ---


def for_server(source: str, words: Sequence[Word], literals: Mapping[int, str], *, prefix: str = "") -> Edited:
    """Return a statement as the server is sent it.

    A parameter becomes a literal, PostgreSQL's E'…' a plain text, and the schema `public` is left out, as names here have no schema.
    """
    edits: list[tuple[int, int, str]] = []
    if prefix:
        edits.append((words[0].start, words[0].start, prefix))
    for index, word in enumerate(words):
        if word.kind == "parameter":
            number = int(word.text[1:])
            if number not in literals:
                raise PgError(UNDEFINED_PARAMETER, f"there is no parameter {word.text}", position=word.start + 1)
            edits.append((word.start, word.end, literals[number]))
        elif word.kind == "escaped":
            edits.append((word.start, word.end, unescaped(word.text)))
        elif word.identifier == "public" and index + 1 < len(words) and words[index + 1].text == ".":
            edits.append((word.start, words[index + 1].end, ""))
    return Edited(source, words[0].start, words[-1].end, edits)
