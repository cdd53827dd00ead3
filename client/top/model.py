"""What `top` shows: one look at the server, and the figures that two looks give. No terminal and no clock in here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from millstream.client import figures
from millstream.client.errors import MillstreamError
from millstream.client.render import aligned

Row = Mapping[str, Any]
STATEMENTS = ("QUERIES", "STREAMS", "CLASSES", "POLICIES", "SCHEDULER", "WATERMARKS", "WORKERS")
LONG_COLUMNS = ("failure", "columns", "definition", "text")
OPERATOR_COLUMNS = {  # of EXPLAIN ANALYZE, with short titles: the table fits the box of 80 columns
    "kind": "operator",
    "rows_in": "in",
    "rows_out": "out",
    "selectivity": "share",
    "cost_us_per_row": "µs a row",
    "waiting": "waits",
    "state_bytes": "state",
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
HIDDEN_CODES = ("forbidden", "unsupported", "syntax")  # a role need not see everything, and an older server has not everything


@dataclass(frozen=True)
class Look:
    """The tables of the server at one time. `at_s` is of any clock that does not run back; `now` is the time of day, for watermarks."""

    at_s: float
    now: dt.datetime
    tables: Mapping[str, Sequence[Row]]

    def table(self, name: str) -> Sequence[Row]:
        """Return the rows of SHOW name; none where this role may not see it."""
        return self.tables.get(name, ())


def look(execute: Callable[[str], Iterable[Row]], clock: Callable[[], tuple[float, dt.datetime]]) -> Look:
    """Ask the server for everything, and return it; `clock` gives `at_s` and `now`. MillstreamError as `execute`."""
    tables = {}
    for name in STATEMENTS:
        try:
            tables[name] = list(execute(f"SHOW {name}"))
        except MillstreamError as error:
            if error.code not in HIDDEN_CODES:
                raise
    return Look(*clock(), tables)


def typed_rows(types: Mapping[str, str], rows: Iterable[Row]) -> list[Row]:
    """Return rows with the times in them, whole microseconds, as Python's; those out of its reach stay numbers."""

    def typed(name: str, value: Any) -> Any:
        try:
            if types[name] == "TIMESTAMP" and isinstance(value, int):
                return _EPOCH + dt.timedelta(microseconds=value)
            return dt.timedelta(microseconds=value) if types[name] == "INTERVAL" and isinstance(value, int) else value
        except OverflowError:
            return value

    return [{name: typed(name, value) for name, value in row.items()} for row in rows]


@dataclass(frozen=True)
class Column:
    """A column of a pane: its title, how its values look, whether they stand to the right."""

    key: str
    title: str
    show: Callable[[Any], str] = str
    to_the_right: bool = True


def _text(value: Any) -> str:
    return figures.UNKNOWN if value is None else " ".join(str(value).split())


def _number(value: float | None) -> str:
    return figures.UNKNOWN if value is None else figures.significant(value)


@dataclass(frozen=True)
class Pane:
    """A table on the screen. `rows` are by the columns' keys; `key` names the column that tells rows apart."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()
    key: str = "name"

    def shown(self, sort: str | None = None, *, descending: bool = False, filter: str = "") -> list[tuple[str, list[str]]]:
        """Return (key, cells) of the rows that have `filter` in a text, in order; rows that lack the value go last."""
        rows = list(self.rows)
        if sort is not None:
            known = [row for row in rows if row[sort] is not None]
            known.sort(key=lambda row: (isinstance(row[sort], str), row[sort]), reverse=descending)
            rows = known + [row for row in rows if row[sort] is None]
        cells = [(str(row[self.key]), [column.show(row[column.key]) for column in self.columns]) for row in rows]
        wanted = filter.casefold()
        texts = [place for place, column in enumerate(self.columns) if not column.to_the_right]
        return [(key, shown) for key, shown in cells if any(wanted in shown[place].casefold() for place in texts)]


QUERIES = Pane(
    "queries",
    "Queries",
    (
        Column("name", "query", _text, False),
        Column("state", "state", _text, False),
        Column("class", "class", _text, False),
        Column("rows_per_s", "in", figures.rate),
        Column("results_per_s", "out", figures.rate),
        Column("queued", "queued", figures.count),
        Column("late", "late", figures.count),
        Column("latency_p99_ms", "p99", figures.duration),
        Column("target", "target", _text, False),
        Column("shed_percent", "shed", figures.percent),
        Column("memory_bytes", "memory", figures.size),
        Column("results", "results", figures.count),
        Column("slowdown", "slowdown", _number),
        Column("utility", "utility", _number),
    ),
)
STREAMS = Pane(
    "streams",
    "Streams",
    (
        Column("name", "stream", _text, False),
        Column("rows_per_s", "in", figures.rate),
        Column("accepted", "rows", figures.count),
        Column("refused", "refused", figures.count),
        Column("behind_ms", "behind", figures.duration),
        Column("state", "state", _text, False),
        Column("shed", "shed", figures.count),
    ),
)
CLASSES = Pane(
    "classes",
    "Classes and policy",
    (
        Column("name", "class", _text, False),
        Column("priority", "prio", _number),
        Column("latency_p99_ms", "p99", figures.duration),
        Column("target_ms", "target", figures.duration),
        Column("loss_percent", "loss", figures.percent),
        Column("load", "load", _number),
        Column("headroom", "headroom", _number),
    ),
)
WORKERS = Pane(
    "workers",
    "Workers",
    (Column("name", "scheduler", _text, False), Column("value", "", _text)),
)
PANES = (QUERIES, STREAMS, CLASSES, WORKERS)
PaneName = Literal["queries", "streams", "classes", "workers"]


@dataclass(frozen=True)
class Board:
    """Everything on the screen at one time. `policy` is the one in use with its options, `policies` name and summary of all."""

    panes: Mapping[str, Pane]
    policy: str = figures.UNKNOWN
    policies: tuple[tuple[str, str], ...] = ()
    summary: tuple[tuple[str, str], ...] = field(default=())


def board(now: Look, before: Look | None = None) -> Board:
    """Return the figures of a look; rates are those since the look `before`, unknown without one."""
    seconds = None if before is None or now.at_s <= before.at_s else now.at_s - before.at_s
    old = Look(0.0, now.now, {}) if before is None else before
    scheduler = {str(row["measure"]): str(row["value"]) for row in now.table("SCHEDULER")}
    earlier = {str(row["measure"]): str(row["value"]) for row in old.table("SCHEDULER")}
    queries = with_rates(now.table("QUERIES"), old.table("QUERIES"), seconds, {"rows_per_s": "accepted", "results_per_s": "results"})
    streams = with_rates(now.table("STREAMS"), old.table("STREAMS"), seconds, {"rows_per_s": "accepted"})
    behind = {str(row["stream"]): behind_ms(row.get("watermark"), now.now) for row in now.table("WATERMARKS")}
    shown: dict[str, Sequence[Row]] = {
        "queries": [{**row, "shed_percent": _share(row.get("shed"), row.get("accepted"))} for row in queries],
        "streams": [{**row, "behind_ms": behind.get(str(row["name"]))} for row in streams],
        "classes": [{**row, "target_ms": in_milliseconds(row.get("target"))} for row in now.table("CLASSES")],
        "workers": [*_scheduler(scheduler, earlier, seconds), *map(_worker, now.table("WORKERS"))],
    }
    panes = {
        pane.name: Pane(pane.name, pane.title, pane.columns, tuple(_complete(pane, row) for row in shown[pane.name])) for pane in PANES
    }
    policies = tuple((str(row["name"]), str(row["summary"])) for row in now.table("POLICIES"))
    return Board(panes, policy_in_use(now.table("POLICIES"), scheduler), policies, _summary(panes, scheduler))


def _complete(pane: Pane, row: Row) -> Row:
    return {column.key: row.get(column.key) for column in pane.columns}


def with_rates(now: Sequence[Row], before: Sequence[Row], seconds: float | None, rates: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of a SHOW with rates beside them: name of the rate to name of the count that it is of; unknown without `before`."""
    earlier = {str(row["name"]): row for row in before}
    return [
        {**row, **{rate: _rate(row.get(count), earlier.get(str(row["name"]), {}).get(count), seconds) for rate, count in rates.items()}}
        for row in now
    ]


def _rate(now: float | None, before: float | None, seconds: float | None) -> float | None:
    """Return things a second; unknown for what was not there before, or began to count anew since."""
    if now is None or before is None or seconds is None or now < before:
        return None
    return (now - before) / seconds


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100.0 * part / whole


def behind_ms(watermark: dt.datetime | None, now: dt.datetime) -> float | None:
    """Return how far a watermark is behind the time of day; None where there is none."""
    return None if not isinstance(watermark, dt.datetime) else (now - watermark) / dt.timedelta(milliseconds=1)


def in_milliseconds(target: dt.timedelta | int | None) -> float | None:
    """Return a class's target, an interval or whole microseconds, in ms; None where there is none."""
    if isinstance(target, dt.timedelta):
        return target / dt.timedelta(milliseconds=1)
    return None if target is None else target / 1_000


def policy_in_use(policies: Sequence[Row], scheduler: Mapping[str, str]) -> str:
    """Return the policy in use with its options, of the rows of SHOW POLICIES and the measures of SHOW SCHEDULER."""
    used = next((row for row in policies if row.get("in_use")), None)
    if used is None:
        return scheduler.get("policy", figures.UNKNOWN)
    return f"{used['name']} ({used['options']})" if used.get("options") else str(used["name"])


def _worker(row: Row) -> Row:
    """Return a worker process as a line of its pane: how busy it was, what it holds, and how often it ended."""
    said = f"{figures.percent(row['load_percent'])}  {figures.size(row['state_bytes'])}"
    return {"name": f"worker {row['worker']}", "value": f"{said}  ended {row['ends']} times" if row["ends"] else said}


def _scheduler(now: Mapping[str, str], before: Mapping[str, str], seconds: float | None) -> list[Row]:
    def grown(name: str) -> float | None:
        return _rate(_float(now.get(name)), _float(before.get(name)), seconds)

    busy = grown("busy_ns")
    deciding = _float(now.get("deciding_share"))
    rows = (
        ("workers", now.get("workers")),
        ("busy", None if busy is None else f"{figures.significant(busy / 1e9)} cores"),
        ("deciding", figures.percent(None if deciding is None else 100.0 * deciding)),
        ("orders", figures.rate(grown("orders"))),
        ("steps", figures.rate(grown("steps"))),
        ("rows", figures.rate(grown("rows_in"))),
        ("orders out", figures.count(_float(now.get("orders_out")))),
        ("rows waiting", figures.count(_float(now.get("rows_waiting")))),
        ("bytes waiting", figures.size(_float(now.get("bytes_waiting")))),
        ("operators", figures.count(_float(now.get("operators")))),
        ("failures", figures.count(_float(now.get("failures")))),
    )
    return [{"name": name, "value": value} for name, value in rows] if now else []


def _float(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _summary(panes: Mapping[str, Pane], scheduler: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    queries, streams = panes["queries"].rows, panes["streams"].rows
    running = sum(1 for row in queries if row["state"] == "running")
    return (
        ("queries", f"{running} of {len(queries)} running" if running < len(queries) else f"{len(queries)}"),
        ("in", figures.rate(_total(row["rows_per_s"] for row in streams))),
        ("out", figures.rate(_total(row["results_per_s"] for row in queries))),
        ("waiting", figures.count(_float(scheduler.get("rows_waiting")))),
        ("state", figures.size(_total(row["memory_bytes"] for row in queries))),
    )


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def details(look: Look, pane: str, key: str) -> str:
    """Return everything that one row of a pane's SHOW says, its long texts first, then a line each."""
    row = next((row for row in look.table(pane.upper()) if str(row["name"]) == key), None)
    if row is None:
        return f"{key} is gone"
    known = {name: value for name, value in row.items() if value is not None}
    width = max(map(len, known), default=0)
    lines = [f"{name:{width}}  {_shown(name, value)}" for name, value in known.items() if name not in LONG_COLUMNS]
    return "\n".join([*(f"{known[name]}\n" for name in LONG_COLUMNS if name in known), *lines])


def operators(rows: Sequence[Row]) -> str:
    """Return the operators of EXPLAIN ANALYZE as the lines of a table."""
    if not rows:
        return ""
    named = [name for name in OPERATOR_COLUMNS if name in rows[0]]
    heads = [(OPERATOR_COLUMNS[name], name != "kind") for name in named]
    return "\n".join(aligned(heads, [["" if row[name] is None else _shown(name, row[name]) for name in named] for row in rows]))


def _shown(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dt.timedelta):
        return figures.duration(value / dt.timedelta(milliseconds=1))
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if not isinstance(value, int | float):
        return str(value)
    if name.endswith("_ms"):
        return figures.duration(value)
    if "bytes" in name:
        return figures.size(value)
    if name.endswith("_percent"):
        return figures.percent(value)
    return f"{value:,}" if isinstance(value, int) else figures.significant(value)
