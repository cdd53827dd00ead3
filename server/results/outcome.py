"""What a statement gives back: perhaps a table, sentences for people, names for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema


@dataclass(frozen=True, slots=True)
class NamedResult:
    """The whole answer of one SELECT, or the table that a SHOW, DESCRIBE or EXPLAIN gave; `plan` is what EXPLAIN shows as json."""

    name: str
    schema: Schema
    batches: Iterable[Any]
    plan: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """`columns` are [name, type, nullable] each; `values` the rows, plain values; `info` as in the Reply message.

    `answer` stands in the place of both where the rows are those of a query.
    """

    columns: list[Any] = field(default_factory=list)
    values: list[list[Any]] = field(default_factory=list)
    notices: tuple[str, ...] = ()
    info: dict[str, Any] = field(default_factory=dict)
    answer: NamedResult | None = None


def said(*notices: str, **info: Any) -> Outcome:
    """Return an outcome without a table."""
    return Outcome(notices=notices, info=info)


def table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[Any]], first: str = "") -> Outcome:
    """Return a table; columns are (name, type). `first` names those that a person needs first, where not all fit a screen."""
    info = {"first": first.split()} if first else {}
    return Outcome([[name, kind, True] for name, kind in columns], [list(row) for row in rows], info=info)


def spell(schema: Schema) -> list[list[Any]]:
    """Return a schema as messages carry it: [name, type, nullable] each."""
    return [[f.name, str(f.type), f.nullable] for f in schema.fields]
