"""JSON lines to columns: a strict reader that keeps every digit and recovers at the next line (C31).

A line holds one row: an object by column name, or an array in the schema's order. Integers of any size and numbers with a point
stay exact until the column's type is known. `NaN`, `Infinity` and `-Infinity` are taken, bare or as text. A line that is no JSON,
repeats a key, or is not UTF-8 is a bad row and keeps its bytes.
"""

from __future__ import annotations

from typing import Any

from millstream.engine.ingest.checks import Coerced, Reasons
from millstream.engine.ingest.coerce import Coercer
from millstream.engine.ingest.csv_text import BYTE_ORDER_MARK, shift_places
from millstream.protocol.values.json_values import read_json

LINE_BYTES_MAX = 64 * 1024 * 1024  # a longer line is refused, its rest skipped
MADE_LINES = {b"[": "jq -c '.[]'", b"{": "jq -c ."}
"""What makes JSON lines of a file that begins with such a line."""
REFUSED_ROW: dict[str, Any] = {}


def parse_line(line: bytes) -> Any:
    """Return the value of one line; ValueError with the reason when it is not a JSON object or array."""
    try:
        value = read_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"invalid UTF-8 at byte {error.start}") from error
    except ValueError:
        begun = line.strip()
        if begun in MADE_LINES:
            raise ValueError(f"a row is one line, and this value goes on in the next; {MADE_LINES[begun]} FILE makes lines of it") from None
        raise
    if not isinstance(value, dict | list):
        raise ValueError("a line must hold a JSON object or array")  # noqa: TRY004 - a fault of the data, not of the caller
    return value


class JsonLinesParser:
    """Takes JSON lines piece by piece: `feed` bytes as they come, then `finish`. Indexes count rows, lines count from 1."""

    def __init__(self, coercer: Coercer) -> None:
        self.coercer = coercer
        self.line = 1
        self.records = 0
        self._rest = b""
        self._begun = False
        self._skipping = False

    def feed(self, data: bytes) -> Coerced | None:
        """Take more text; None while no line of it is complete."""
        if self._skipping:  # the rest of a line that was too long
            end = data.find(b"\n")
            if end < 0:
                return None
            data, self._skipping = data[end + 1 :], False
            self.line += 1
        data = self._rest + data
        end = data.rfind(b"\n")
        if end < 0 and len(data) > LINE_BYTES_MAX:
            self._rest, self._skipping = b"", True
            return self._too_long(data)
        self._rest = data[end + 1 :]
        return self._lines(data[: end + 1]) if end >= 0 else None

    def finish(self) -> Coerced | None:
        """Take what is left as the last line; None when nothing is."""
        data, self._rest = self._rest, b""
        return self._lines(data) if data else None

    def _too_long(self, data: bytes) -> Coerced:
        bad = Reasons(1)
        bad.add(0, f"a line longer than {LINE_BYTES_MAX} bytes")
        return self._result([REFUSED_ROW], bad, [data[:1024]], [self.line])

    def _lines(self, data: bytes) -> Coerced | None:
        if not self._begun:
            self._begun = True
            data = data.removeprefix(BYTE_ORDER_MARK)
        rows: list[Any] = []
        raw: list[bytes] = []
        numbers: list[int] = []
        bad: dict[int, str] = {}
        lines = data.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        for offset, line in enumerate(lines):
            line = line.removesuffix(b"\r")
            if not line.strip():
                continue
            try:
                rows.append(parse_line(line))
            except ValueError as error:
                bad[len(rows)] = str(error)
                rows.append(REFUSED_ROW)
            raw.append(line)
            numbers.append(self.line + offset)
        self.line += len(lines)
        if not rows:
            return None
        reasons = Reasons(len(rows))
        reasons.by_row.update(bad)
        return self._result(rows, reasons, raw, numbers)

    def _result(self, rows: list[Any], reasons: Reasons, raw: list[bytes], numbers: list[int]) -> Coerced:
        result = self.coercer.rows(rows, reasons, raw.__getitem__, numbers.__getitem__, bare_instants=False)
        shift_places(result, self.records)
        self.records += len(rows)
        return result
