"""One random scenario: schemas, arrivals, a script of random queries with their expected answers; how it is run and compared."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from millstream.engine.plan.plan import RULES
from millstream.scheduler.catalog import CATALOG
from millstream.scheduler.names import SHARING_DEFAULT, SHARING_OFF
from millstream.server.run.embedded import Replay, ReplayOutcome, run_replay

from tests.property.oracle import nested_types, values
from tests.property.oracle.aggregates import Near, matches
from tests.property.oracle.expressions import Columns, Row
from tests.property.oracle.feeds import Feed, source
from tests.property.oracle.queries import Expected

POLICIES = [name for name in CATALOG if name != "user"]
STEPS = (0, 0, 1, 1, 2, 3, -1, -2, -6, 9)  # disorder within and beyond the delay, ties


@dataclass(frozen=True)
class Way:
    """How a script is run. `train` None is the default."""

    train: int | None = None
    workers: int = 1
    policy: str = "fcfs"
    rules_off: frozenset[str] = frozenset()
    sharing: bool = True


@dataclass
class Scenario:
    """Arrivals as (stream, row) in order, the definitions, and queries."""

    choice: random.Random
    delay: int
    schemas: dict[str, Columns] = field(default_factory=dict)
    arrivals: list[tuple[str, Row]] = field(default_factory=list)
    definitions: list[str] = field(default_factory=list)
    queries: list[Expected] = field(default_factory=list)

    def stream(self, name: str, columns: Columns | None = None) -> Columns:
        """Define a stream, of random columns if none are given."""
        columns = self.schemas[name] = random_columns(self.choice) if columns is None else columns
        listed = ", ".join(f"{n} {t}" for n, t in columns)
        self.definitions.append(f"CREATE STREAM {name} ({listed}) TIMESTAMP BY ts UNIT s DELAY {self.delay} SECONDS")
        return columns

    def feed(self, name: str) -> Feed:
        """The stream as the rules see it."""
        return source(name, self.schemas[name], self.arrivals, self.delay)

    def keep(self, places: frozenset[int] | None) -> None:
        """Leave in only the arrivals at some places."""
        if places is not None:
            self.arrivals = [a for place, a in enumerate(self.arrivals) if place in places]

    def named(self) -> list[tuple[str, Expected]]:
        """The queries with the names of their results."""
        bare = iter(range(1, len(self.queries) + 1))
        return [(query.name or f"q{next(bare)}", query) for query in self.queries]

    def script(self) -> str:
        return ";\n".join([*self.definitions, *(q.sql for q in self.queries if not q.name)]) + ";\n"

    def timeline(self) -> str:
        lines = []
        for stream, row in self.arrivals:
            kinds = dict(self.schemas[stream])
            lines.append(json.dumps({"stream": stream, "row": {k: _as_json(v, kinds.get(k, "TEXT")) for k, v in row.items()}}))
        return "".join(line + "\n" for line in lines)

    def run(self, way: Way, script: str | None = None) -> ReplayOutcome:
        """Run the script in a way; whatever fails is in the answer."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "arrivals.jsonl"
            path.write_text(self.timeline(), "utf-8")
            text = self.script() if script is None else script
            sharing = SHARING_DEFAULT if way.sharing else SHARING_OFF
            return run_replay(Replay(text, (), path, way.policy, way.workers, way.train, way.rules_off, sharing))


def _as_json(value: Any, kind: str) -> Any:
    return nested_types.as_json(value, kind) if isinstance(kind, nested_types.Nested) or kind == "JSON" else values.as_json(value, kind)


def random_columns(choice: random.Random) -> Columns:
    kinds = choice.sample(values.TYPES, choice.randint(2, 5))
    kinds += [k for k in (values.INT, values.TEXT) if k not in kinds]
    return [("ts", values.BIGINT), ("n", values.INT), *((f"c{i}", k) for i, k in enumerate(kinds))]


def random_times(choice: random.Random, count: int, start: int | None = None, scale: int = 1) -> list[int]:
    """Seconds that drift forward, from before 1970 or after."""
    now, found = choice.choice([-30, 0, 1_000]) if start is None else start, []
    for _ in range(count):
        now += choice.choice(STEPS) * scale
        found.append(now)
    return found


def random_row(choice: random.Random, columns: Columns, time: int, number: int) -> Row:
    return {"ts": time, "n": number} | {n: values.random_value(choice, t) for n, t in columns[2:]}


def random_way(choice: random.Random, *, rewrites: bool) -> Way:
    """Any train, workers and policy; with `rewrites` some of the rewrites off, or all, and sharing or not."""
    off = choice.choice([frozenset(("all",)), frozenset((choice.choice(sorted(RULES)),))]) if rewrites else frozenset[str]()
    sharing = choice.random() < 0.5 if rewrites else True
    return Way(choice.choice([1, 7, 4096]), choice.choice([1, 3]), choice.choice(POLICIES), off, sharing)


def rows_of(outcomes: ReplayOutcome, name: str) -> list[list[Any]]:
    """The rows of a result, as `values.shown` gives them."""
    (result,) = [r for r in outcomes.results if r.name == name]
    return [[values.shown(v) for v in row] for batch in result.batches for row in zip(*map(_plain, batch.columns), strict=True)]


def _plain(column: pa.Array) -> list[Any]:
    """The values of a column. Instants as microseconds: those after the year 9999 are none of Python's."""
    return column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()


def late_of(outcomes: ReplayOutcome, name: str) -> int | None:
    """How many rows a query called late; None when some failed, as a row that is both counts as failed."""
    words = [w for m in outcomes.messages if m.startswith(f"{name}: ") for w in m.split(": ", 1)[1].split(", ")]
    counts = {what.removesuffix("s"): int(count) for count, what in (w.split(" ", 1) for w in words)}
    return None if "failed row" in counts else counts.get("late row", 0)


def _row_matches(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    return len(expected) == len(found) and all(matches(e, f) for e, f in zip(expected, found, strict=True))


def same_rows(expected: list[list[Any]], found: list[list[Any]], *, ordered: bool) -> bool:
    """Whether the rows are those expected, in order or in any."""
    plain = [[e if isinstance(e, Near) else values.shown(e) for e in row] for row in expected]
    if len(plain) != len(found):
        return False
    if all(_row_matches(e, f) for e, f in zip(plain, found, strict=True)):
        return True
    if ordered:
        return False
    left = list(found)
    for row in plain:
        place = next((i for i, f in enumerate(left) if _row_matches(row, f)), None)
        if place is None:
            return False
        del left[place]
    return True


def summed(changes: list[list[Any]]) -> list[list[Any]]:
    """The rows that stand after a change log whose last column is its kind; a row taken back must be there."""
    standing: list[list[Any]] = []
    for *row, kind in changes:
        if kind == "+":
            standing.append(row)
        else:
            standing.remove(row)
    return standing
